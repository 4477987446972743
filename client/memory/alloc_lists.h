/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MEMORY_ALLOC_LISTS_H
#define GM_CLIENT_MEMORY_ALLOC_LISTS_H

#include "client/session/gpumem_session.h"

struct gm_pinned_block;
struct gpumem_batch;
struct gpumem_managed;

/* Allocations of a session that are outside all heaps and not destroyed yet. */
struct gm_alloc_lists {
	/* Protected by the session's lock. */
	struct gm_pinned_block *blocks; /* pinned memory, if each block is a buffer: pinned.c */
	struct gpumem_batch *batches;
	struct gpumem_chunk *chunks;
	struct gpumem_managed *managed;
	struct gm_lock listing; /* held while the heap's blocks are listed in the page */
};

/* Makes the session's lists. On error, returns -ENOMEM. */
int gm_alloc_lists_init(struct gpumem_session *session);
/* Frees the lists, which are empty or were not made. */
void gm_alloc_lists_deinit(struct gpumem_session *session);

#endif
