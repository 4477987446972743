/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_WEIGHTS_FILE_H
#define GM_WEIGHTS_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "gpumem/gpumem.h"

/* A regular file that is read with pread() alone: a mapping of a file that shrinks would end the process. */

struct gm_weights_file {
	char *name; /* for messages; owned */
	int fd;     /* -1: none */
	uint64_t size;
	struct timespec changed;
	uint64_t data; /* where the data of the tensors begins */
};

/* Opens name in that folder, which may be AT_FDCWD. Anything but a regular file is refused, and never waited for.
 * Symbolic links are followed: tools that fetch models make them. On error, leaves a sentence. */
gpumem_status gm_weights_file_open(
	struct gm_weights_file *file, int folder, const char *name, const char *shown);
void gm_weights_file_close(struct gm_weights_file *file);

/* Reads n bytes at that offset. Returns 0, an errno, or GM_WEIGHTS_FILE_SHORT: the file ends before them. */
#define GM_WEIGHTS_FILE_SHORT (-1)
int gm_weights_file_read(const struct gm_weights_file *file, uint64_t offset, void *to, size_t n);
/* The sentence for such a result; 0 is GPUMEM_OK. */
gpumem_status gm_weights_file_explain(
	const struct gm_weights_file *file, uint64_t offset, int result);
/* Whether the file is as it was when it was opened. On error, leaves a sentence. */
gpumem_status gm_weights_file_same(const struct gm_weights_file *file);

#endif
