/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_REGION_H
#define GM_CLIENT_REGION_H

#include "client/heap/arena_private.h"

/* How an arena gets memory that cannot be put next to what it has: region by region. */

/* Addresses below this can be a region's. */
#define GM_REGION_RANGE (UINT64_C(1) << 48)

/* Asks the source and opens what comes, as a list by list_next; in no table yet. No lock. 0, -errno,
 * GM_ARENA_E_SOURCE. */
int gm_arena_region_fetch(struct gm_arena *arena, uint64_t bytes, struct gm_arena_chunk **ret_list,
	gpumem_status *ret_status);
/* Makes the region the arena's: as a slab, or as free memory of the heap, in *ret_block (may be NULL). Lock. -ENOMEM; -EPROTO: what
 * is open here came once more, under another id; nothing changed. */
int gm_arena_region_add(struct gm_arena *arena, struct gm_arena_chunk *chunk, bool slab,
	struct gm_heap_block **ret_block);
/* Closes a list of what was fetched and not added, and gives it back. No lock. */
void gm_arena_region_undo(struct gm_arena *arena, struct gm_arena_chunk *list);

#endif
