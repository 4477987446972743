/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_RUN_LIBRARY_H
#define GM_RUN_LIBRARY_H

#include <limits.h>

/* The library that the environment names. */

#define GM_RUN_LIBRARY_WHY (PATH_MAX + 64)

/*
 * Why the library must not run in the program, or NULL. sudo -E keeps the variable, and the caller's code must not run as root. So
 * nobody but root, the effective user, the owner of gpumem-run and their groups may be able to put another file in its place, now or
 * later. path has no links, as realpath() makes it.
 */
const char *gm_run_library_distrusts(const char *path, char why[GM_RUN_LIBRARY_WHY]);

#endif
