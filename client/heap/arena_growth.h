/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_GROWTH_H
#define GM_CLIENT_GROWTH_H

#include "client/heap/arena_private.h"

/*
 * One growth of an arena, from taking a place to handing it to the heap. The steps come in this
 * order; after a begin, even one that failed with room set, there is always an end.
 */

struct gm_arena_growth {
	struct gm_arena *arena;
	struct gm_arena_place place;
	struct gm_arena_chunk *room;                /* the busy chunk that keeps the place */
	struct gm_heap_block *left, *right;         /* taken meanwhile */
	struct gm_arena_chunk *moving;              /* own chunks, on their way here */
	struct gm_arena_chunk *placed, *placed_end; /* mapped here, lowest first */
	struct gm_arena_chunk *bad;                 /* to give back */
	uint64_t cursor;                            /* where the next chunk goes */
	int error;
};

/* Takes the place, room bytes of it, and the free memory next to it that the block uses. Lock.
 * -ENOMEM; room is set if there is something for gm_arena_growth_end() to undo. */
int gm_arena_growth_begin(struct gm_arena_growth *g, uint64_t room);
/* Chooses up to max own free chunks to move here, the largest first; slabs: those of empty slabs
 * too, if need be. Lock. Returns how much of missing they leave. */
uint64_t gm_arena_growth_choose(
	struct gm_arena_growth *g, uint64_t missing, unsigned max, bool slabs);
/* Asks the source and maps what comes; what finds no room here goes elsewhere. No lock. 0,
 * GM_ARENA_E_SOURCE. */
int gm_arena_growth_fetch(struct gm_arena_growth *g, uint64_t bytes, gpumem_status *ret_status);
/* Moves what was chosen; go is false: lets it stay, because the rest did not come. No lock. */
void gm_arena_growth_move(struct gm_arena_growth *g, bool go);
/* Lets the device use what was placed; what it may not use is to go back (bad). No lock. */
void gm_arena_growth_access(struct gm_arena_growth *g);
/* Puts everything where it belongs. Lock. *ret_block: the free block that all of it is a part of
 * now. What is in bad is for gm_arena_discard(), without the lock. */
void gm_arena_growth_end(struct gm_arena_growth *g, struct gm_heap_block **ret_block);

#endif
