/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_SHARED_H
#define GM_PRELOAD_SHARED_H

#include <stdbool.h>

#include "gpumem/gpumem_piece.h"
#include "preload/table/preload_blocks.h"

/*
 * Allocations of other processes that this one has opened. Memory that one token opens is mapped once,
 * however many allocations lie in it. Thread-safe. The calls take one lock for a short time, and call
 * nobody while they hold it.
 */

/* Memory that was just mapped. */
struct gm_preload_shared_mapped {
	gpumem_buffer *buffer;
	gm_cu_ptr start;
	uint64_t bytes;
};

/* Opens a piece once more if its memory is mapped. 1: done; 0: it is not mapped; -1: the host has no
 * memory. ctx: the context that opens it. */
int gm_preload_shared_open(const gpumem_piece *piece, gm_cu_ctx ctx, gm_cu_ptr *ret_ptr);
/* The same for memory that has just been mapped: takes ownership of the buffer on success. false: the
 * host has no memory. */
bool gm_preload_shared_add(const gpumem_piece *piece, gm_cu_ctx ctx,
	const struct gm_preload_shared_mapped *mapped, gm_cu_ptr *ret_ptr);
/* Whether an opened allocation begins there. */
bool gm_preload_shared_is(gm_cu_ptr ptr);
/* Closes it once. false: none begins there. *ret_buffer is NULL, or the memory that nothing uses any
 * more, which is the caller's. */
bool gm_preload_shared_close(gm_cu_ptr ptr, gpumem_buffer **ret_buffer);
/* Finds the opened allocation that holds the address, as a block. */
bool gm_preload_shared_find(gm_cu_ptr ptr, struct gm_preload_block *ret_block);

#endif
