/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_SYSTEM_PLATFORM_H
#define GM_SYSTEM_PLATFORM_H

#include <stdbool.h>

/*
 * This folder is what the programs need of Linux: memfds, paths of sockets, namespaces, processors, random numbers. It must
 * never know what any of it is for.
 *
 * Here: what kind of machine this is.
 */

/* A prefix for /proc, /dev and the like: "", or $GPUMEM_TEST_ROOT, which tests set. */
const char *gm_platform_root(void);
/* Whether the version string of the kernel says that this is the Windows Subsystem for Linux. */
bool gm_platform_is_wsl(const char *root);
/* Calls fn with the value of each line "KEY=value" of a unit of systemd and of its drop-ins, in the order in
 * which they apply. Returns false if there is no such unit. */
bool gm_platform_unit(const char *root, const char *unit, const char *key,
	void (*fn)(void *ctx, const char *value), void *ctx);

#endif
