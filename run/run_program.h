/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_RUN_PROGRAM_H
#define GM_RUN_PROGRAM_H

#include <stddef.h>

/* The program that is to run: where it is, and whether a library can be put into it. */

/* Finds it as a shell would. -ENOENT; -EACCES: it cannot be executed; -ENAMETOOLONG. */
int gm_program_find(const char *name, char *path, size_t room);

/* Why the dynamic linker would not load a library of ours into it, as the end of a sentence that begins
 * with its path; NULL: it would, or nobody knows. */
const char *gm_program_closed(const char *path);

/* Becomes the program. A script that names no interpreter runs in the shell, as with execvp(3). Returns only on error: a
 * negative errno. */
int gm_program_execute(const char *path, char *const argv[]);

#endif
