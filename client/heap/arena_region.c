/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions: chunks of a transport that gives each its own address. The arena's tables span all
 * addresses there can be (they are made where something lies), and the heap keeps the regions
 * apart even where two happen to touch: a copy across the border of two allocations is an error
 * to the driver.
 *
 * Without merging and moving, small regions would be wasted on their borders; so steps are larger
 * than those of an arena that can place its chunks, up to the same 32 MiB.
 *
 * It must never give a block back that is still open here.
 */
#include "autoconf.h"

#include "client/heap/arena_region.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/limits.h"

#define STEP_MAX (UINT64_C(32) << 20)

uint64_t gm_arena_region_step(const struct gm_arena *arena, uint64_t need)
{
	uint64_t step = GM_CHUNK_MIN;

	while (step < STEP_MAX && step * 2 <= arena->held / 4)
		step *= 2;
	return step > need ? step : need;
}

static void region_put(struct gm_arena *arena, uint64_t id, uint64_t bytes)
{
	const struct gm_source *source = &arena->config.source;

	source->put(source->ctx, &id, 1);
	pthread_mutex_lock(&arena->lock);
	arena->held -= bytes;
	pthread_mutex_unlock(&arena->lock);
}

/* Opens one; on failure it goes back. No lock. */
static int region_open(struct gm_arena *arena, const struct gm_source_chunk *got,
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
		region_put(arena, got->id, got->bytes);
		return r;
	}
	chunk->id = got->id;
	chunk->bytes = got->bytes;
	chunk->addr = (uint64_t)(uintptr_t)addr;
	chunk->kind = GM_ARENA_CHUNK_BUSY;
	if (chunk->addr % GM_CHUNK_MIN || chunk->bytes % GM_CHUNK_MIN ||
		chunk->addr > GM_REGION_RANGE - chunk->bytes) {
		gm_arena_region_undo(arena, chunk);
		return -EOPNOTSUPP;
	}
	*ret_chunk = chunk;
	return 0;
}

int gm_arena_region_fetch(struct gm_arena *arena, uint64_t bytes, struct gm_arena_chunk **ret_list,
	gpumem_status *ret_status)
{
	const struct gm_source *source = &arena->config.source;
	struct gm_source_chunk *got;
	struct gm_arena_chunk *list = NULL;
	uint64_t total = 0;
	size_t n;
	int error = GM_ARENA_E_SPACE;
	gpumem_status status = source->get(source->ctx, bytes, &got, &n);

	if (status != GPUMEM_OK) {
		*ret_status = status;
		return GM_ARENA_E_SOURCE;
	}
	for (size_t i = 0; i < n; i++)
		total += got[i].bytes;
	pthread_mutex_lock(&arena->lock);
	arena->held += total;
	pthread_mutex_unlock(&arena->lock);
	for (size_t i = 0; i < n; i++) {
		struct gm_arena_chunk *chunk;
		int r = region_open(arena, &got[i], &chunk);
		if (got[i].fd >= 0)
			close(got[i].fd);
		if (r < 0) {
			error = r;
			continue;
		}
		chunk->list_next = list;
		list = chunk;
	}
	free(got);
	*ret_list = list;
	return list ? 0 : error;
}

/* Makes room in the tables. Lock. -EPROTO: what is open here came once more, under another id. One
 * memory at one address must never be two blocks of the heap. */
static int region_enter(struct gm_arena *arena, struct gm_arena_chunk *chunk)
{
	int r;

	if (gm_arena_chunks_taken(&arena->chunks, chunk->addr, chunk->bytes))
		return -EPROTO;
	r = gm_ptrmap_cover(&arena->blocks, chunk->addr, chunk->bytes);
	return r < 0 ? r : gm_arena_chunks_insert(&arena->chunks, chunk);
}

int gm_arena_region_add(
	struct gm_arena *arena, struct gm_arena_chunk *chunk, struct gm_heap_block **ret_block)
{
	int r = region_enter(arena, chunk);

	if (r < 0)
		return r;
	r = gm_heap_add(&arena->heap, chunk->addr, chunk->bytes, &arena->clean, 0, ret_block);
	if (r < 0) {
		gm_arena_chunks_remove(&arena->chunks, chunk);
		return r;
	}
	chunk->kind = GM_ARENA_CHUNK_HEAP;
	chunk->touched = true;
	return 0;
}

int gm_arena_region_add_slab(struct gm_arena *arena, struct gm_arena_chunk *chunk)
{
	int r = region_enter(arena, chunk);

	if (r < 0)
		return r;
	r = gm_small_add(&arena->small, chunk->addr);
	if (r < 0) {
		gm_arena_chunks_remove(&arena->chunks, chunk);
		return r;
	}
	chunk->kind = GM_ARENA_CHUNK_SLAB;
	chunk->touched = true;
	return 0;
}

void gm_arena_region_undo(struct gm_arena *arena, struct gm_arena_chunk *list)
{
	const struct gm_arena_config *config = &arena->config;
	struct gm_arena_chunk *chunk;

	while ((chunk = list)) {
		list = chunk->list_next;
		/* What cannot be closed stays with this process, and charged to it. */
		if (config->ops->detach(config->backend, (void *)chunk->addr) == 0)
			region_put(arena, chunk->id, chunk->bytes);
		free(chunk);
	}
}
