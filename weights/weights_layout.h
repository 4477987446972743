/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_WEIGHTS_LAYOUT_H
#define GM_WEIGHTS_LAYOUT_H

#include <pthread.h>

#include "weights/weights_source.h"

/*
 * Where the tensors of a model lie in its buffer: in the order of the files, each aligned. Neighbours that stay
 * neighbours are one run, so most files are read as a whole.
 */

struct gm_weights_run {
	uint64_t place, bytes; /* in the buffer */
	uint64_t offset;       /* in the file */
	uint32_t file;
};

struct gm_weights_layout {
	const struct gm_weights_source *source;
	struct gm_weights_run *runs;
	size_t n;
	uint64_t bytes; /* of the buffer */

	pthread_mutex_t lock; /* protects the rest: the first read that failed */
	int failed;           /* a result of gm_weights_file_read(); 0: none */
	uint64_t failed_at;
	uint32_t failed_file;
};

/* Gives every tensor of the source its place. The source must outlive the layout. On error, leaves a sentence. */
gpumem_status gm_weights_layout_init(
	struct gm_weights_layout *layout, struct gm_weights_source *source);
void gm_weights_layout_deinit(struct gm_weights_layout *layout);
/* A gpumem_copy_read_fn whose user is the layout: reads a part of the buffer from the files. What lies between tensors is
 * zero. */
int gm_weights_layout_read(void *layout, uint64_t at, void *to, size_t n);
/* Leaves the sentence if a read failed, and returns its status. */
gpumem_status gm_weights_layout_outcome(struct gm_weights_layout *layout);

#endif
