/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_ARENA_GROWTH_H
#define GM_CLIENT_ARENA_GROWTH_H

#include "client/heap/arena_private.h"

/*
 * One growth of an arena, from taking a place to handing it to the heap. begin comes first and end
 * last. Every begin needs an end, even one that failed, if it has set room.
 */

struct gm_arena_growth {
	struct gm_arena *arena;
	struct gm_arena_place place;
	struct gm_arena_chunk *room;                /* the busy chunk that keeps the place */
	struct gm_heap_block *left, *right;         /* free memory beside it, taken meanwhile */
	struct gm_arena_chunk *moving;              /* own chunks on their way here */
	struct gm_arena_chunk *placed, *placed_end; /* chunks mapped here, lowest first */
	struct gm_arena_chunk *bad;                 /* chunks to give back */
	uint64_t cursor;                            /* where the next chunk goes */
	int error;
	bool passing; /* free memory of the arena is out of the heap for this growth */
};

/* Takes room bytes at the place, and the free memory beside it that the block uses. Call with the
 * lock held. -ENOMEM; if g->room is set, gm_arena_growth_end() has something to undo. */
int gm_arena_growth_begin(struct gm_arena_growth *g, uint64_t room);
/* Chooses up to max own free chunks to move here, the largest first; with slabs, also chunks of
 * empty slabs if need be. Call with the lock held. Returns how much of missing is still missing. */
uint64_t gm_arena_growth_choose(
	struct gm_arena_growth *g, uint64_t missing, unsigned max, bool slabs);
/* Asks the source and maps what comes; chunks that do not fit here go elsewhere. Call without the
 * lock. 0 or GM_ARENA_E_SOURCE. */
int gm_arena_growth_fetch(struct gm_arena_growth *g, uint64_t bytes, gpumem_status *ret_status);
/* Moves the chosen chunks; with go false, lets them stay, because the rest did not come. Call
 * without the lock. */
void gm_arena_growth_move(struct gm_arena_growth *g, bool go);
/* Lets the device use the placed chunks. If that fails, they become bad. Call without the lock. */
void gm_arena_growth_access(struct gm_arena_growth *g);
/* Puts everything where it belongs; *ret_block is the free block that contains all of it. Call with
 * the lock held. Afterwards the caller gives the bad chunks to gm_arena_discard(), without the
 * lock. */
void gm_arena_growth_end(struct gm_arena_growth *g, struct gm_heap_block **ret_block);

#endif
