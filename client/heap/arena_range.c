/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arenas over a range of the caller's: they list the blocks that are alive, and give up their end. Such an
 * arena has memory from the start of its range on, without a hole, so only its end can go.
 *
 * This file must never map or unmap anything, nor call the source: the memory is the caller's.
 */
#include "autoconf.h"

#include <errno.h>
#include <stdlib.h>

#include "client/heap/arena_private.h"
#include "common/arith.h"
#include "common/clock.h"

/* How long until the next question to the device, while freed memory waits for it. */
#define RANGE_POLL_NS (10 * GM_NS_PER_MS)

/* Call with the lock held. */
static uint64_t range_next(const struct gm_arena *arena, uint64_t now_ns)
{
	return gm_pending_bytes(&arena->pending) ? now_ns + RANGE_POLL_NS : GM_ARENA_NEVER;
}

uint64_t gm_arena_range_settle(struct gm_arena *arena, uint64_t now_ns)
{
	gm_arena_pump(arena);
	gm_lock(&arena->lock);
	uint64_t next = range_next(arena, now_ns);
	gm_lock_drop(&arena->lock);
	return next;
}

uint64_t gm_arena_range_tick(struct gm_arena *arena, uint64_t now_ns)
{
	/* First, so that a thread which frees something from now on asks for another tick. */
	gm_lock(&arena->lock);
	arena->armed = false;
	gm_lock_drop(&arena->lock);

	gm_arena_pump(arena);
	gm_lock(&arena->lock);
	uint64_t next = range_next(arena, now_ns);
	if (next != GM_ARENA_NEVER)
		arena->armed = true;
	gm_lock_drop(&arena->lock);
	return next;
}

/* Where the memory of the arena ends. Call with the lock held, as the next two. */
static uint64_t range_end(const struct gm_arena *arena)
{
	const struct gm_arena_chunk *first = arena->chunks.first;

	return first ? first->prev->addr + first->prev->bytes : arena->base;
}

/* Returns the free block at the end, or NULL if the last block is in use. */
static struct gm_heap_block *range_free_end(struct gm_arena *arena)
{
	struct gm_heap_block *last = gm_heap_last_before(&arena->heap, range_end(arena));

	return last && last->bins == &arena->clean ? last : NULL;
}

static uint64_t range_used_end(struct gm_arena *arena)
{
	const struct gm_heap_block *last = range_free_end(arena);
	uint64_t end = range_end(arena);

	return last ? gm_u64_min(gm_round_up(last->addr, GM_CHUNK_MIN), end) : end;
}

uint64_t gm_arena_range_used(struct gm_arena *arena)
{
	gm_lock(&arena->lock);
	uint64_t end = range_used_end(arena);
	gm_lock_drop(&arena->lock);
	return end - arena->base;
}

/* Makes the table of chunks end there. Call with the lock held. */
static void range_cut_chunks(struct gm_arena *arena, uint64_t end)
{
	while (range_end(arena) > end) {
		struct gm_arena_chunk *chunk = arena->chunks.first->prev;

		arena->held -= gm_u64_min(chunk->bytes, range_end(arena) - end);
		if (chunk->addr < end) {
			gm_arena_chunks_shorten(&arena->chunks, chunk, end - chunk->addr);
		} else {
			gm_arena_chunks_remove(&arena->chunks, chunk);
			arena->returns++;
			free(chunk);
		}
	}
}

uint64_t gm_arena_range_cut(struct gm_arena *arena)
{
	gm_lock(&arena->lock);
	struct gm_heap_block *last = range_free_end(arena);
	uint64_t end = range_used_end(arena), bytes = range_end(arena) - end;

	if (last && bytes && gm_heap_remove(&arena->heap, last, end, bytes) == 0)
		range_cut_chunks(arena, end);
	end = range_end(arena);
	gm_lock_drop(&arena->lock);
	return end - arena->base;
}

/* Adds a block to the list, or to its last piece. */
static int range_list_add(struct gm_arena_piece **pieces, size_t *n, size_t *room, uint64_t gap,
	const struct gm_arena_piece *block)
{
	struct gm_arena_piece *last = *n ? &(*pieces)[*n - 1] : NULL;

	if (last && block->offset - (last->offset + last->bytes) < gap) {
		last->bytes = block->offset + block->bytes - last->offset;
		return 0;
	}
	if (*n == *room) {
		size_t more = *room ? 2 * *room : 16;
		void *grown = reallocarray(*pieces, more, sizeof(**pieces));
		if (!grown)
			return -ENOMEM;
		*pieces = grown;
		*room = more;
	}
	(*pieces)[(*n)++] = *block;
	return 0;
}

int gm_arena_range_live(
	struct gm_arena *arena, uint64_t gap, struct gm_arena_piece **ret_pieces, size_t *ret_n)
{
	struct gm_arena_piece *pieces = NULL;
	size_t n = 0, room = 0;
	int r = 0;

	gm_lock(&arena->lock);
	const struct gm_heap_block *block = gm_heap_first_after(&arena->heap, arena->base);
	/* The sentinel at the end has no bytes. */
	for (; r == 0 && block && block->bytes; block = block->next) {
		const struct gm_arena_piece piece = {block->addr - arena->base, block->bytes};

		if (!block->bins)
			r = range_list_add(&pieces, &n, &room, gap, &piece);
	}
	gm_lock_drop(&arena->lock);

	if (r < 0) {
		free(pieces);
		return r;
	}
	*ret_pieces = pieces;
	*ret_n = n;
	return 0;
}
