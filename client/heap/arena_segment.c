/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions are chunks of a transport that gives each chunk an address of its own. The arena's tables
 * span all possible addresses, but take memory only where a region lies. The heap keeps regions
 * apart even if two of them touch, because the driver refuses a copy across two allocations.
 *
 * This module must never give a region back that is still open here.
 */
#include "autoconf.h"

#include "client/heap/arena_segment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "common/bounds.h"

/* Opens a region; on failure it goes back to the source. Call without the lock. */
static int segment_open(struct gm_arena *arena, const struct gm_heap_source_chunk *got,
	struct gm_arena_chunk **ret_chunk)
{
	const struct gm_arena_config *config = &arena->config;
	struct gm_arena_chunk *chunk = calloc(1, sizeof(*chunk));
	void *addr = NULL;
	int r = -ENOMEM;

	if (chunk)
		r = config->ops->attach(config->backend, got->ipc, &addr);
	if (r < 0) {
		free(chunk);
		gm_arena_put(arena, got->id, got->bytes);
		return r;
	}

	chunk->id = got->id;
	chunk->bytes = got->bytes;
	chunk->addr = (uint64_t)(uintptr_t)addr;
	chunk->kind = GM_ARENA_CHUNK_BUSY;
	if (chunk->addr % GM_CHUNK_MIN || chunk->bytes % GM_CHUNK_MIN ||
		chunk->addr > GM_REGION_RANGE - chunk->bytes) {
		gm_arena_segment_undo(arena, chunk);
		return -EOPNOTSUPP;
	}
	*ret_chunk = chunk;
	return 0;
}

int gm_arena_segment_fetch(struct gm_arena *arena, struct gm_heap_source_call *call, uint64_t bytes,
	struct gm_arena_chunk **ret_list, gpumem_status *ret_status)
{
	struct gm_heap_source_chunk *got;
	struct gm_arena_chunk *list = NULL;
	size_t n;
	int r = gm_arena_get(arena, call, bytes, &got, &n, ret_status);

	if (r)
		return r;

	for (size_t i = 0; i < n; i++) {
		struct gm_arena_chunk *chunk;
		int opened = segment_open(arena, &got[i], &chunk);

		if (got[i].fd >= 0)
			close(got[i].fd);
		if (opened == 0)
			LL_PREPEND2(list, chunk, list_next);
		else
			r = opened;
	}
	free(got);
	*ret_list = list;
	return list ? 0 : r ? r : GM_ARENA_E_SPACE;
}

int gm_arena_segment_add(struct gm_arena *arena, struct gm_arena_chunk *chunk, bool slab,
	struct gm_heap_block **ret_block)
{
	int r;

	if (gm_arena_chunks_taken(&arena->chunks, chunk->addr, chunk->bytes))
		return -EPROTO;
	r = gm_heap_ptrmap_cover(&arena->blocks, chunk->addr, chunk->bytes);
	if (r == 0)
		r = gm_arena_chunks_insert(&arena->chunks, chunk);
	if (r < 0)
		return r;

	r = slab ? gm_small_add(&arena->small, chunk->addr)
		 : gm_heap_add(
			   &arena->heap, chunk->addr, chunk->bytes, &arena->clean, 0, ret_block);
	if (r < 0) {
		gm_arena_chunks_remove(&arena->chunks, chunk);
		return r;
	}

	chunk->kind = slab ? GM_ARENA_CHUNK_SLAB : GM_ARENA_CHUNK_HEAP;
	chunk->touched = true;
	return 0;
}

void gm_arena_segment_undo(struct gm_arena *arena, struct gm_arena_chunk *list)
{
	const struct gm_arena_config *config = &arena->config;
	struct gm_arena_chunk *chunk;

	while ((chunk = list)) {
		list = chunk->list_next;
		/* A region that cannot be closed stays charged to this process. */
		if (config->ops->detach(config->backend, (void *)chunk->addr) == 0)
			gm_arena_put(arena, chunk->id, chunk->bytes);
		free(chunk);
	}
}
