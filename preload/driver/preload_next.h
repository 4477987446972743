/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_NEXT_H
#define GM_PRELOAD_NEXT_H

#include <stdatomic.h>

/* The dlsym() that a program would call without this library: that of the next preloaded library which
 * has one, or the C library's. */
typedef void *(*gm_driver_next_fn)(void *handle, const char *name);
gm_driver_next_fn gm_driver_next(void);

/* The same once gm_driver_next() was called, for code that jumps to it. */
extern __attribute__((visibility("hidden"))) _Atomic(gm_driver_next_fn) gm_driver_next_dlsym;

/* What it finds under a name, for this library itself. */
void *gm_driver_next_symbol(void *handle, const char *name);
/* The same in a library that the process has loaded. NULL: it has not, or the library lacks that. */
void *gm_driver_next_loaded(const char *library, const char *name);

#endif
