/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_HEAP_ARENA_SEGMENT_H
#define GM_CLIENT_HEAP_ARENA_SEGMENT_H

#include "client/heap/arena_private.h"

/* How an arena gets memory that cannot be mapped beside what it has: region by region. */

/* Regions lie below this address. */
#define GM_REGION_RANGE (UINT64_C(1) << 48)

/* Asks the source and opens what comes, as a list (list_next) that is in no table yet. Call without
 * the lock. 0, a negative errno or GM_ARENA_E_SOURCE. */
int gm_arena_segment_fetch(struct gm_arena *arena, struct gm_heap_source_call *call, uint64_t bytes,
	struct gm_arena_chunk **ret_list, gpumem_status *ret_status);
/*
 * Adds a region to the arena: as a slab, or as free memory of the heap, which is then in *ret_block
 * (ret_block may be NULL). Call with the lock held. On error, nothing has changed: -ENOMEM; -EPROTO
 * if the source gave memory under a new id that is already open here. The same memory must never be
 * two blocks of the heap.
 */
int gm_arena_segment_add(struct gm_arena *arena, struct gm_arena_chunk *chunk, bool slab,
	struct gm_heap_block **ret_block);
/* Closes a list of regions that were fetched and not added, and gives them back. Call without the
 * lock. */
void gm_arena_segment_undo(struct gm_arena *arena, struct gm_arena_chunk *list);

#endif
