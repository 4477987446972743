/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_CHUNK_H
#define GM_CLIENT_CHUNK_H

#include <stdbool.h>
#include <stdint.h>

#include "client/heap/heap.h"
#include "client/heap/ptrmap.h"

/*
 * Which chunk lies where in an arena's range, and where the next one should go. No lock inside, no
 * driver call.
 */

enum gm_arena_chunk_kind {
	GM_ARENA_CHUNK_BUSY, /* the place is taken: on its way in or out, or kept for what is asked for */
	GM_ARENA_CHUNK_HEAP, /* mapped, cut by the heap */
	GM_ARENA_CHUNK_SLAB, /* mapped, a slab of small objects */
};

struct gm_arena_chunk {
	uint64_t id;
	uint64_t addr;
	uint64_t bytes;
	enum gm_arena_chunk_kind kind;
	bool touched; /* something in it was allocated or freed since the last tick */
	bool chosen;
	bool unusable;       /* mapped, but the device may not use it */
	uint64_t idle_since; /* if it was free at the last tick: the first such tick */
	struct gm_arena_chunk *prev, *next; /* by address */
	struct gm_arena_chunk *list_next;   /* of a list somebody made */
	uint64_t to;                        /* in such a list: where it is moved to */
	struct gm_heap_block *cover;        /* in such a list: the free block it lies in */
};

struct gm_arena_chunks {
	uint64_t base, end;
	struct gm_ptrmap map;         /* a granule is GM_CHUNK_MIN */
	struct gm_arena_chunk *first; /* its prev is the last one */
};

/* -ENOMEM. */
int gm_arena_chunks_init(struct gm_arena_chunks *chunks, uint64_t base, uint64_t bytes);
/* Frees what is still in it. */
void gm_arena_chunks_deinit(struct gm_arena_chunks *chunks);

/* Whether a chunk of the table lies there, or reaches into it. */
bool gm_arena_chunks_taken(const struct gm_arena_chunks *chunks, uint64_t addr, uint64_t bytes);
/* addr and bytes are set; nothing else is there. -ENOMEM. The chunk is the table's now. */
int gm_arena_chunks_insert(struct gm_arena_chunks *chunks, struct gm_arena_chunk *chunk);
/* The chunk is the caller's again. */
void gm_arena_chunks_remove(struct gm_arena_chunks *chunks, struct gm_arena_chunk *chunk);
/* NULL: there is none. */
static inline struct gm_arena_chunk *gm_arena_chunks_at(
	const struct gm_arena_chunks *chunks, uint64_t addr)
{
	return (struct gm_arena_chunk *)gm_ptrmap_get(&chunks->map, addr);
}

/* A gap, and what to put into it so that a block fits. */
struct gm_arena_place {
	uint64_t addr;                      /* of the gap */
	uint64_t room;                      /* in the gap */
	uint64_t missing;                   /* to be mapped from addr on */
	uint64_t start;                     /* of the block, once that is mapped */
	struct gm_heap_block *left, *right; /* free memory next to the gap that the block uses */
};

/* The gap where least is missing for a block of bytes; the lowest of several. false: there is none.
 * clean is where free memory counts. */
bool gm_arena_chunks_place(const struct gm_arena_chunks *chunks, struct gm_heap *heap,
	const struct gm_heap_bins *clean, uint64_t bytes, uint64_t alignment,
	struct gm_arena_place *ret_place);
/* The end of the highest gap that has room. */
bool gm_arena_chunks_place_high(
	const struct gm_arena_chunks *chunks, uint64_t bytes, uint64_t *ret_addr);

/* A list (list_next) of the chunks that are wholly free in clean. A chunk comes before those that lie
 * below it in the same free block, so that they can be removed from the heap one by one. */
struct gm_arena_chunk *gm_arena_chunks_free_list(
	const struct gm_arena_chunks *chunks, struct gm_heap_bins *clean);

#endif
