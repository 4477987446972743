/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_SYSTEM_PROGRAM_H
#define GM_SYSTEM_PROGRAM_H

#include <stddef.h>

/*
 * How to run gpumemd and gpumemctl. A remedy says 'gpumemd', which a shell may not find, or which may be another one than
 * the one that belongs to the running program.
 */

/* Bytes of a program's path, with its end. */
#define GM_PROGRAM_BYTES 256

/*
 * Writes how a shell runs the program of that name which belongs to the running program: its name, if PATH leads to it,
 * else its path. Returns text. If no such program is there, text is the name.
 */
const char *gm_program(const char *name, char text[GM_PROGRAM_BYTES]);

/*
 * Copies a sentence, and names gpumemd and gpumemctl by gm_program() where the sentence says to run them: "run 'gpumemd
 * --socket mine'". A copy that would be longer than the room is the sentence as it was, cut. Returns to.
 */
char *gm_program_mend(const char *sentence, char *to, size_t room);

#endif
