/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_ARENA_CHUNKS_H
#define GM_CLIENT_ARENA_CHUNKS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/heap/heap.h"
#include "client/heap/heap_ptrmap.h"

/*
 * A table that says which chunk lies where in an arena's range, and where the next one should go.
 * It takes no lock and calls no driver.
 */

enum gm_arena_chunk_kind {
	/* The place is taken: by a chunk on its way in or out, or for one that was asked for. */
	GM_ARENA_CHUNK_BUSY,
	GM_ARENA_CHUNK_HEAP, /* mapped, cut by the heap */
	GM_ARENA_CHUNK_SLAB, /* mapped, a slab of small objects */
};

struct gm_arena_chunk {
	uint64_t id;
	uint64_t addr;
	uint64_t bytes;
	enum gm_arena_chunk_kind kind;
	bool touched;        /* something in it was allocated or freed since the last tick */
	bool chosen;         /* in a list: picked to go or to move */
	bool unusable;       /* mapped, but the device may not use it */
	uint64_t idle_since; /* if it was free at the last tick: the first such tick */
	struct gm_arena_chunk *prev, *next; /* by address */
	struct gm_arena_chunk *list_next;   /* in a list that somebody made */
	uint64_t to;                        /* in such a list: where it is moved to */
	struct gm_heap_block *cover;        /* in such a list: the free block it lies in */
};

struct gm_arena_chunks {
	uint64_t base, end;
	struct gm_heap_ptrmap map;    /* one granule is GM_CHUNK_MIN */
	struct gm_arena_chunk *first; /* its prev is the last one */
};

/* -ENOMEM. */
int gm_arena_chunks_init(struct gm_arena_chunks *chunks, uint64_t base, uint64_t bytes);
/* Frees the chunks that are still in the table. */
void gm_arena_chunks_deinit(struct gm_arena_chunks *chunks);

/* Whether a chunk of the table overlaps the range. */
bool gm_arena_chunks_taken(const struct gm_arena_chunks *chunks, uint64_t addr, uint64_t bytes);
/* Takes ownership of a chunk. Its addr and bytes are set, and nothing else lies there. -ENOMEM. */
int gm_arena_chunks_insert(struct gm_arena_chunks *chunks, struct gm_arena_chunk *chunk);
/* Gives the chunk back to the caller. */
void gm_arena_chunks_remove(struct gm_arena_chunks *chunks, struct gm_arena_chunk *chunk);
/* Returns the chunk that covers the address, or NULL. */
static inline struct gm_arena_chunk *gm_arena_chunks_at(
	const struct gm_arena_chunks *chunks, uint64_t addr)
{
	return (struct gm_arena_chunk *)gm_heap_ptrmap_get(&chunks->map, addr);
}

/* Makes a chunk of the table smaller, at its end. bytes: a multiple of GM_CHUNK_MIN, and not 0. */
void gm_arena_chunks_shorten(
	struct gm_arena_chunks *chunks, struct gm_arena_chunk *chunk, uint64_t bytes);

/* A gap, and what to put into it so that a block fits. */
struct gm_arena_place {
	uint64_t addr;                      /* of the gap */
	uint64_t room;                      /* size of the gap */
	uint64_t missing;                   /* bytes to map, from addr on */
	uint64_t start;                     /* of the block, once they are mapped */
	struct gm_heap_block *left, *right; /* free memory beside the gap that the block uses */
};

/* Finds the gap where the least memory is missing for a block; among equals, the lowest. Free
 * memory beside a gap counts if it is in clean. Returns false if no gap is large enough. */
bool gm_arena_chunks_place(const struct gm_arena_chunks *chunks, struct gm_heap *heap,
	const struct gm_heap_bins *clean, uint64_t bytes, uint64_t alignment,
	struct gm_arena_place *ret_place);
/* Finds the highest gap with room for that many bytes; *ret_addr is at its upper end. */
bool gm_arena_chunks_place_high(
	const struct gm_arena_chunks *chunks, uint64_t bytes, uint64_t *ret_addr);

/* Makes a list (list_next) of the chunks that are wholly free in clean. In the same free block,
 * higher chunks come first, so that they can be removed from the heap one by one. */
struct gm_arena_chunk *gm_arena_chunks_free_list(
	const struct gm_arena_chunks *chunks, struct gm_heap_bins *clean);
/* The bytes of these chunks. Changes nothing. */
uint64_t gm_arena_chunks_free_bytes(
	const struct gm_arena_chunks *chunks, struct gm_heap_bins *clean);

#endif
