/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of one growth: take a place; choose own free chunks for it; get the rest from the
 * source; map everything side by side; hand it to the heap. If a step fails, everything is undone:
 * new chunks go back to the source, and what was taken is free again.
 *
 * This module must never decide whether to grow; arena_grow.c does.
 */
#include "autoconf.h"

#include "client/heap/arena_private.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include <utlist.h>

#include "common/arith.h"
#include "common/bounds.h"

static void growth_append(struct gm_arena_growth *g, struct gm_arena_chunk *chunk)
{
	chunk->list_next = NULL;
	if (g->placed_end)
		g->placed_end->list_next = chunk;
	else
		g->placed = chunk;
	g->placed_end = chunk;
}

int gm_arena_growth_begin(struct gm_arena_growth *g, uint64_t room)
{
	struct gm_arena *arena = g->arena;
	struct gm_arena_place *place = &g->place;
	struct gm_arena_chunk *chunk;
	int r;

	r = gm_heap_ptrmap_cover(&arena->blocks, place->addr, room);
	if (r < 0)
		return r;

	chunk = calloc(1, sizeof(*chunk));
	if (!chunk)
		return -ENOMEM;
	chunk->addr = place->addr;
	chunk->bytes = room;
	chunk->kind = GM_ARENA_CHUNK_BUSY;
	r = gm_arena_chunks_insert(&arena->chunks, chunk);
	if (r < 0) {
		free(chunk);
		return r;
	}
	g->room = chunk;
	g->cursor = place->addr;

	/* These take whole blocks. Nothing is cut, so the only descriptors needed are the spare
	 * ones that carving always asks for. */
	if (place->left)
		r = gm_heap_carve(
			&arena->heap, place->left, place->left->addr, place->left->bytes, &g->left);
	if (r == 0 && place->right)
		r = gm_heap_carve(&arena->heap, place->right, place->right->addr,
			place->right->bytes, &g->right);
	return r;
}

uint64_t gm_arena_growth_choose(
	struct gm_arena_growth *g, uint64_t missing, unsigned max, bool slabs)
{
	struct gm_arena *arena = g->arena;
	struct gm_arena_chunk *list = gm_arena_chunks_free_list(&arena->chunks, &arena->clean);
	uint64_t left = missing;
	unsigned n = 0;

	for (uint64_t size = GM_CHUNK_MAX; size >= GM_CHUNK_MIN; size /= 2) {
		for (struct gm_arena_chunk *c = list; c && left >= size && n < max;
			c = c->list_next) {
			if (c->bytes == size && !c->chosen) {
				c->chosen = true;
				left -= size;
				n++;
			}
		}
	}

	/* One larger chunk supplies the rest, if there is room for it. */
	if (left && n < max) {
		struct gm_arena_chunk *best = NULL;
		uint64_t room = g->room->bytes - (missing - left);

		for (struct gm_arena_chunk *c = list; c; c = c->list_next) {
			if (!c->chosen && c->bytes >= left && c->bytes <= room &&
				(!best || c->bytes < best->bytes))
				best = c;
		}
		if (best) {
			best->chosen = true;
			left = 0;
		}
	}

	g->moving = gm_arena_detach(arena, list);
	if (left && slabs)
		g->moving = gm_arena_detach_slabs(arena, left, g->moving);

	/* A chosen chunk may have stayed because there was no host memory. */
	left = missing;
	for (struct gm_arena_chunk *c = g->moving; c; c = c->list_next)
		left -= gm_u64_min(c->bytes, left);

	g->passing = g->moving || g->left || g->right;
	if (g->passing)
		gm_arena_pass_begin(arena);
	return left;
}

void gm_arena_growth_move(struct gm_arena_growth *g, bool go)
{
	struct gm_arena *arena = g->arena;
	const struct gm_arena_config *config = &arena->config;
	struct gm_arena_chunk *moved = NULL, **end = &moved, *staying = NULL, *chunk;

	if (!g->moving)
		return;
	while ((chunk = g->moving)) {
		int r = -ECANCELED;

		g->moving = chunk->list_next;
		if (go && chunk->bytes <= g->room->addr + g->room->bytes - g->cursor)
			r = config->ops->move(config->backend, (void *)chunk->addr,
				(void *)g->cursor, chunk->bytes);
		if (r < 0) {
			LL_PREPEND2(staying, chunk, list_next);
			continue;
		}
		chunk->to = g->cursor;
		g->cursor += chunk->bytes;
		chunk->list_next = NULL;
		*end = chunk;
		end = &chunk->list_next;
	}

	/* Until now the old places have stayed taken. */
	gm_lock(&arena->lock);
	while ((chunk = moved)) {
		moved = chunk->list_next;
		gm_arena_chunks_remove(&arena->chunks, chunk);
		chunk->addr = chunk->to;
		arena->moves++;
		growth_append(g, chunk);
	}
	while ((chunk = staying)) {
		staying = chunk->list_next;
		gm_arena_keep(arena, chunk);
	}
	gm_lock_drop(&arena->lock);
}

static int growth_by_size(const void *a, const void *b)
{
	const struct gm_heap_source_chunk *x = a, *y = b;

	return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : 0;
}

/* Maps a chunk at the cursor; closes the fd in any case. Call without the lock. */
static void growth_map(struct gm_arena_growth *g, struct gm_heap_source_chunk *got)
{
	const struct gm_arena_config *config = &g->arena->config;
	struct gm_arena_chunk *chunk = calloc(1, sizeof(*chunk));
	int r = -ENOMEM;

	if (chunk) {
		chunk->id = got->id;
		chunk->bytes = got->bytes;
		chunk->addr = g->cursor;
		r = config->ops->map(config->backend, (void *)chunk->addr, chunk->bytes, got->fd);
	}
	if (got->fd >= 0)
		close(got->fd);
	got->fd = -1;

	if (r < 0) {
		g->error = r;
		free(chunk);
		gm_arena_put(g->arena, got->id, got->bytes);
		return;
	}

	g->cursor += chunk->bytes;
	growth_append(g, chunk);
}

void gm_arena_growth_access(struct gm_arena_growth *g)
{
	const struct gm_arena_config *config = &g->arena->config;
	int r;

	if (!g->placed)
		return;
	r = config->ops->access(
		config->backend, (void *)g->place.addr, g->cursor - g->place.addr, false);
	if (r == 0)
		return;

	g->error = r;
	g->bad = g->placed;
	for (struct gm_arena_chunk *chunk = g->bad; chunk; chunk = chunk->list_next)
		chunk->unusable = true;
	g->placed = g->placed_end = NULL;
	g->cursor = g->place.addr;
}

void gm_arena_growth_end(struct gm_arena_growth *g, struct gm_heap_block **ret_block)
{
	struct gm_arena *arena = g->arena;
	struct gm_heap_block *block = NULL;
	struct gm_arena_chunk *chunk, *next;

	gm_arena_chunks_remove(&arena->chunks, g->room);
	free(g->room);
	for (chunk = g->placed; chunk; chunk = next) {
		next = chunk->list_next;
		chunk->kind = GM_ARENA_CHUNK_HEAP;
		chunk->touched = true;
		/* This cannot fail: the busy chunk was here, so the tables cover the place. */
		gm_arena_chunks_insert(&arena->chunks, chunk);
		if (gm_heap_add(&arena->heap, chunk->addr, chunk->bytes, &arena->clean, 0, &block) <
			0) {
			g->error = -ENOMEM;
			chunk->kind = GM_ARENA_CHUNK_BUSY;
			LL_PREPEND2(g->bad, chunk, list_next);
		}
	}
	/* If nothing is placed, bad is what access was refused for, and in no table yet. */
	for (chunk = g->bad; chunk && !g->placed; chunk = chunk->list_next) {
		chunk->kind = GM_ARENA_CHUNK_BUSY;
		gm_arena_chunks_insert(&arena->chunks, chunk);
	}

	if (g->left)
		block = gm_heap_release(&arena->heap, g->left, &arena->clean, 0);
	if (g->right)
		block = gm_heap_release(&arena->heap, g->right, &arena->clean, 0);
	*ret_block = block;
}

/* Places chunks that do not fit into the room that was kept, wherever there is room. Call without
 * the lock. */
static void growth_place_rest(struct gm_arena *arena, struct gm_heap_source_chunk *chunks, size_t n)
{
	struct gm_arena_growth g = {.arena = arena};
	struct gm_heap_block *block;
	uint64_t bytes = 0;

	for (size_t i = 0; i < n; i++)
		bytes += chunks[i].bytes;
	if (!bytes)
		return;

	gm_lock(&arena->lock);
	if (gm_arena_chunks_place(
		    &arena->chunks, &arena->heap, NULL, bytes, GM_CHUNK_MIN, &g.place))
		(void)gm_arena_growth_begin(&g, bytes);
	gm_lock_drop(&arena->lock);

	if (!g.room) {
		for (size_t i = 0; i < n; i++) {
			if (chunks[i].fd >= 0)
				close(chunks[i].fd);
			gm_arena_put(arena, chunks[i].id, chunks[i].bytes);
		}
		return;
	}

	for (size_t i = 0; i < n; i++)
		growth_map(&g, &chunks[i]);
	gm_arena_growth_access(&g);
	gm_lock(&arena->lock);
	gm_arena_growth_end(&g, &block);
	gm_lock_drop(&arena->lock);
	gm_arena_discard(arena, g.bad);
}

int gm_arena_growth_fetch(struct gm_arena_growth *g, struct gm_heap_source_call *call,
	uint64_t bytes, gpumem_status *ret_status)
{
	struct gm_arena *arena = g->arena;
	struct gm_heap_source_chunk *chunks;
	uint64_t end = g->room->addr + g->room->bytes;
	size_t n, rest = 0;
	int r = gm_arena_get(arena, call, bytes, &chunks, &n, ret_status);

	if (r)
		return r;

	qsort(chunks, n, sizeof(*chunks), growth_by_size);
	for (size_t i = 0; i < n; i++) {
		if (chunks[i].bytes <= end - g->cursor)
			growth_map(g, &chunks[i]);
		else
			chunks[rest++] = chunks[i];
	}
	growth_place_rest(arena, chunks, rest);
	free(chunks);
	return 0;
}
