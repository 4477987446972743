/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the chunks of an arena in the order of their addresses, with a table to find the chunk at
 * an address. Between the chunks are gaps. A block goes where the least new memory makes room for
 * it, so holes are filled before the range grows.
 *
 * This module must never map or unmap anything.
 */
#include "autoconf.h"

#include "client/heap/arena_chunks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "common/arith.h"
#include "common/bounds.h"

int gm_arena_chunks_init(struct gm_arena_chunks *chunks, uint64_t base, uint64_t bytes)
{
	memset(chunks, 0, sizeof(*chunks));
	chunks->base = base;
	chunks->end = base + bytes;
	return gm_heap_ptrmap_init(&chunks->map, base, bytes, GM_CHUNK_MIN_SHIFT);
}

void gm_arena_chunks_deinit(struct gm_arena_chunks *chunks)
{
	while (chunks->first) {
		struct gm_arena_chunk *chunk = chunks->first;

		chunks->first = chunk->next;
		free(chunk);
	}
	gm_heap_ptrmap_deinit(&chunks->map);
	memset(chunks, 0, sizeof(*chunks));
}

static void chunks_map_set(
	struct gm_arena_chunks *chunks, struct gm_arena_chunk *chunk, uintptr_t value)
{
	for (uint64_t a = 0; a < chunk->bytes; a += GM_CHUNK_MIN)
		gm_heap_ptrmap_set(&chunks->map, chunk->addr + a, value);
}

bool gm_arena_chunks_taken(const struct gm_arena_chunks *chunks, uint64_t addr, uint64_t bytes)
{
	/* The last chunk that begins before the end of the range. */
	const struct gm_arena_chunk *chunk =
		(const struct gm_arena_chunk *)gm_heap_ptrmap_below(&chunks->map, addr + bytes - 1);

	return chunk && chunk->addr + chunk->bytes > addr;
}

int gm_arena_chunks_insert(struct gm_arena_chunks *chunks, struct gm_arena_chunk *chunk)
{
	int r = gm_heap_ptrmap_cover(&chunks->map, chunk->addr, chunk->bytes);
	struct gm_arena_chunk *below;

	if (r < 0)
		return r;
	below = (struct gm_arena_chunk *)gm_heap_ptrmap_below(&chunks->map, chunk->addr);
	DL_APPEND_ELEM(chunks->first, below, chunk);
	chunks_map_set(chunks, chunk, (uintptr_t)chunk);
	return 0;
}

void gm_arena_chunks_remove(struct gm_arena_chunks *chunks, struct gm_arena_chunk *chunk)
{
	DL_DELETE(chunks->first, chunk);
	chunks_map_set(chunks, chunk, 0);
}

void gm_arena_chunks_shorten(
	struct gm_arena_chunks *chunks, struct gm_arena_chunk *chunk, uint64_t bytes)
{
	for (uint64_t a = bytes; a < chunk->bytes; a += GM_CHUNK_MIN)
		gm_heap_ptrmap_set(&chunks->map, chunk->addr + a, 0);
	chunk->bytes = bytes;
}

/* The source may give a little more than it was asked for if that needs fewer chunks. This is how
 * much room must be left for that. */
static uint64_t chunks_slack(uint64_t bytes)
{
	return bytes / 64 & ~(GM_CHUNK_MIN - 1);
}

/* Whether a block fits if memory is mapped into this gap. */
static bool chunks_gap_fits(struct gm_heap *heap, const struct gm_heap_bins *clean, uint64_t start,
	uint64_t end, uint64_t bytes, uint64_t alignment, struct gm_arena_place *place)
{
	struct gm_heap_block *left = gm_heap_last_before(heap, start);
	struct gm_heap_block *right;
	uint64_t block_end;

	memset(place, 0, sizeof(*place));
	place->addr = start;
	place->room = end - start;

	if (left && clean && left->bins == clean)
		place->left = left;
	place->start = gm_round_up(place->left ? left->addr : start, alignment);
	if (place->start >= start)
		place->left = NULL;

	block_end = place->start + bytes;
	if (block_end <= start)
		return true;
	place->missing = gm_round_up(block_end - start, GM_CHUNK_MIN);
	if (place->missing + chunks_slack(place->missing) <= place->room)
		return true;

	right = gm_heap_first_after(heap, end);
	if (!right || !clean || right->bins != clean || block_end > end + right->bytes)
		return false;
	/* The whole gap is filled, so what comes must fit it exactly. */
	if (chunks_slack(place->room))
		return false;
	place->missing = place->room;
	place->right = right;
	return true;
}

bool gm_arena_chunks_place(const struct gm_arena_chunks *chunks, struct gm_heap *heap,
	const struct gm_heap_bins *clean, uint64_t bytes, uint64_t alignment,
	struct gm_arena_place *ret_place)
{
	uint64_t start = chunks->base;
	bool found = false;

	for (struct gm_arena_chunk *chunk = chunks->first;; chunk = chunk->next) {
		uint64_t end = chunk ? chunk->addr : chunks->end;
		struct gm_arena_place place;

		if (end > start &&
			chunks_gap_fits(heap, clean, start, end, bytes, alignment, &place) &&
			(!found || place.missing < ret_place->missing)) {
			*ret_place = place;
			found = true;
		}
		if (!chunk)
			return found;
		start = chunk->addr + chunk->bytes;
	}
}

bool gm_arena_chunks_place_high(
	const struct gm_arena_chunks *chunks, uint64_t bytes, uint64_t *ret_addr)
{
	uint64_t end = chunks->end;

	struct gm_arena_chunk *chunk = chunks->first ? chunks->first->prev : NULL;

	for (;;) {
		uint64_t start = chunk ? chunk->addr + chunk->bytes : chunks->base;

		if (end - start >= bytes) {
			*ret_addr = end - bytes;
			return true;
		}
		if (!chunk)
			return false;
		end = chunk->addr;
		chunk = chunk == chunks->first ? NULL : chunk->prev;
	}
}

/* The first chunk that begins inside a free block; NULL: there is none above the block's start. */
static struct gm_arena_chunk *chunks_first_in(
	const struct gm_arena_chunks *chunks, const struct gm_heap_block *block)
{
	struct gm_arena_chunk *chunk = gm_arena_chunks_at(chunks, block->addr);

	return chunk->addr < block->addr ? chunk->next : chunk;
}

struct gm_arena_chunk *gm_arena_chunks_free_list(
	const struct gm_arena_chunks *chunks, struct gm_heap_bins *clean)
{
	struct gm_arena_chunk *list = NULL;

	for (struct gm_heap_block *block = gm_heap_walk(clean, GM_CHUNK_MIN, NULL); block;
		block = gm_heap_walk(clean, GM_CHUNK_MIN, block)) {
		uint64_t end = block->addr + block->bytes;
		struct gm_arena_chunk *chunk = chunks_first_in(chunks, block);

		for (; chunk && chunk->addr + chunk->bytes <= end; chunk = chunk->next) {
			chunk->cover = block;
			chunk->chosen = false;
			LL_PREPEND2(list, chunk, list_next);
		}
	}
	return list;
}

uint64_t gm_arena_chunks_free_bytes(
	const struct gm_arena_chunks *chunks, struct gm_heap_bins *clean)
{
	uint64_t bytes = 0;

	for (struct gm_heap_block *block = gm_heap_walk(clean, GM_CHUNK_MIN, NULL); block;
		block = gm_heap_walk(clean, GM_CHUNK_MIN, block)) {
		uint64_t end = block->addr + block->bytes;
		const struct gm_arena_chunk *chunk = chunks_first_in(chunks, block);

		for (; chunk && chunk->addr + chunk->bytes <= end; chunk = chunk->next)
			bytes += chunk->bytes;
	}
	return bytes;
}
