/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_LOOKUP_H
#define GM_PRELOAD_LOOKUP_H

/*
 * How a program that looks for the driver's functions finds ours.
 *
 * A linked program finds them because a preloaded library comes first in the search. dlsym() is
 * answered here for the names in preload_calls.h, if the program would have found the driver's function
 * there. A library that stands in for the driver, too, and is preloaded before this one, is found first. All
 * other names go to the next dlsym(), with the caller's own return address, so that
 * RTLD_NEXT means what the caller meant. cuGetProcAddress() is asked first, whichever version a program
 * has; what it returns is replaced if it is a function that we stand in for.
 *
 * The client library and the driver itself are never answered: they get the driver's functions.
 */

/* dlsym() itself, which no header may declare otherwise than <dlfcn.h>, and cuGetProcAddress(), which
 * preload_calls.h declares, are all that there is to call. */

#endif
