/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an arena gets smaller. Unused chunks are unmapped and given back one by one, wherever they
 * lie. A trim does that at once; a tick does it to chunks that were free for the whole decay time.
 * Only ticks know the time: a thread that frees leaves a mark on the chunk and never reads a clock.
 *
 * A chunk whose memory still waits for the device is not free. It must never go back.
 */
#include "autoconf.h"

#include <sched.h>
#include <stdlib.h>
#include <utlist.h>

#include "client/heap/arena_private.h"
#include "common/arith.h"
#include "common/cancel.h"
#include "common/clock.h"
#include "common/bounds.h"

#define PUT_BATCH    64
#define MILLISECOND  UINT64_C(1000000)
#define POLL_MIN_NS  (10 * MILLISECOND)
#define POLL_MAX_NS  (1000 * MILLISECOND)
#define CACHE_MIN_NS (100 * MILLISECOND)
#define CACHE_MAX_NS (5000 * MILLISECOND)

static int shrink_unmap(const struct gm_arena_config *config, const struct gm_arena_chunk *chunk)
{
	return config->regions
		       ? config->ops->detach(config->backend, (void *)chunk->addr)
		       : config->ops->unmap(config->backend, (void *)chunk->addr, chunk->bytes);
}

/* As soon as a region is closed, the driver may give its address to the next one. So a region
 * leaves the table before it is closed. Chunks that the arena places itself keep their place until
 * they are unmapped. */
static void shrink_unlist_regions(struct gm_arena *arena, struct gm_arena_chunk *list)
{
	gm_lock(&arena->lock);
	for (struct gm_arena_chunk *chunk = list; chunk; chunk = chunk->list_next)
		gm_arena_chunks_remove(&arena->chunks, chunk);
	gm_lock_drop(&arena->lock);
}

void gm_arena_keep(struct gm_arena *arena, struct gm_arena_chunk *chunk)
{
	/* A chunk that is still mapped can still be used, unless it never could. */
	if (!chunk->unusable &&
		gm_heap_add(&arena->heap, chunk->addr, chunk->bytes, &arena->clean, 0, NULL) == 0) {
		chunk->kind = GM_ARENA_CHUNK_HEAP;
		chunk->touched = true;
	} else {
		LL_PREPEND2(arena->stuck, chunk, list_next);
	}
}

uint64_t gm_arena_discard(struct gm_arena *arena, struct gm_arena_chunk *list)
{
	const struct gm_arena_config *config = &arena->config;
	uint64_t bytes = 0;

	if (config->regions && list)
		shrink_unlist_regions(arena, list);
	while (list) {
		uint64_t ids[PUT_BATCH];
		struct gm_arena_chunk *gone = NULL, *kept = NULL;
		size_t n = 0;

		while (list && n < PUT_BATCH) {
			struct gm_arena_chunk *chunk = list;

			list = chunk->list_next;
			if (shrink_unmap(config, chunk) < 0) {
				LL_PREPEND2(kept, chunk, list_next);
				continue;
			}
			ids[n++] = chunk->id;
			LL_PREPEND2(gone, chunk, list_next);
		}

		gm_lock(&arena->lock);
		while (gone) {
			struct gm_arena_chunk *chunk = gone;

			gone = chunk->list_next;
			if (!config->regions)
				gm_arena_chunks_remove(&arena->chunks, chunk);
			arena->held -= chunk->bytes;
			arena->returns++;
			bytes += chunk->bytes;
			free(chunk);
		}
		while (kept) {
			struct gm_arena_chunk *chunk = kept;

			kept = chunk->list_next;
			/* If another region is there now, the source gave the same memory twice,
			 * and the new one keeps it. */
			if (config->regions &&
				gm_arena_chunks_taken(&arena->chunks, chunk->addr, chunk->bytes)) {
				free(chunk);
				continue;
			}
			if (config->regions) /* cannot fail: the table covers the place */
				gm_arena_chunks_insert(&arena->chunks, chunk);
			gm_arena_keep(arena, chunk);
		}
		gm_lock_drop(&arena->lock);

		if (n)
			config->source.put(config->source.ctx, ids, n);
	}
	return bytes;
}

uint64_t gm_arena_give_back(struct gm_arena *arena, struct gm_arena_chunk *list)
{
	if (!list)
		return 0;
	gm_arena_pass_begin(arena);
	arena->giving++;
	gm_lock_drop(&arena->lock);
	uint64_t bytes = gm_arena_discard(arena, list);
	gm_lock(&arena->lock);
	arena->giving--;
	arena->given++;
	gm_arena_pass_end(arena);
	return bytes;
}

struct gm_arena_chunk *gm_arena_detach(struct gm_arena *arena, struct gm_arena_chunk *list)
{
	struct gm_arena_chunk *detached = NULL;

	while (list) {
		struct gm_arena_chunk *chunk = list;

		list = chunk->list_next;
		if (!chunk->chosen)
			continue;
		/* Without memory for the descriptors of what is left, the chunk stays. */
		if (gm_heap_remove(&arena->heap, chunk->cover, chunk->addr, chunk->bytes) < 0)
			continue;
		chunk->kind = GM_ARENA_CHUNK_BUSY;
		LL_PREPEND2(detached, chunk, list_next);
	}
	return detached;
}

static struct gm_arena_chunk *shrink_detach_slab(
	struct gm_arena *arena, struct gm_small_slab *slab, struct gm_arena_chunk *list)
{
	struct gm_arena_chunk *chunk = gm_arena_chunks_at(&arena->chunks, slab->addr);

	gm_small_remove(&arena->small, slab);
	chunk->kind = GM_ARENA_CHUNK_BUSY;
	chunk->list_next = list;
	return chunk;
}

struct gm_arena_chunk *gm_arena_detach_slabs(
	struct gm_arena *arena, uint64_t min_bytes, struct gm_arena_chunk *list)
{
	struct gm_small_slab *next;

	for (struct gm_small_slab *slab = arena->small.slabs; slab; slab = next) {
		next = slab->next;
		if (!gm_small_slab_empty(slab))
			continue;
		list = shrink_detach_slab(arena, slab, list);
		if (min_bytes <= GM_SMALL_SLAB_BYTES)
			break;
		min_bytes -= GM_SMALL_SLAB_BYTES;
	}
	return list;
}

uint64_t gm_arena_trim(struct gm_arena *arena, uint64_t min_bytes)
{
	struct gm_arena_chunk *list;
	uint64_t bytes = 0;
	bool wake = false;

	gm_tcache_drain_all(&arena->caches, false);
	gm_arena_pump(arena);

	gm_lock(&arena->lock);
	list = gm_arena_chunks_free_list(&arena->chunks, &arena->clean);
	for (struct gm_arena_chunk *chunk = list; chunk && bytes < min_bytes;
		chunk = chunk->list_next) {
		chunk->chosen = true;
		bytes += chunk->bytes;
	}
	list = gm_arena_detach(arena, list);
	LL_CONCAT2(list, arena->stuck, list_next);
	arena->stuck = NULL;
	if (bytes < min_bytes)
		list = gm_arena_detach_slabs(arena, min_bytes - bytes, list);
	if (min_bytes == UINT64_MAX && gm_pending_bytes(&arena->pending)) {
		/* Nothing was freed in the epoch that has just begun. */
		arena->eager_until = arena->pending.epoch - !arena->pending.open;
		wake = gm_arena_arm(arena);
	}
	bytes = gm_arena_give_back(arena, list);
	gm_lock_drop(&arena->lock);

	gm_arena_wake(arena, wake);
	return bytes;
}

void gm_arena_settle(struct gm_arena *arena, uint64_t patience_ns)
{
	uint64_t until = gm_clock_ns() + patience_ns;
	bool left = true;
	GM_UNCANCELLED;

	gm_tcache_drain_all(&arena->caches, false);
	while (left) {
		gm_arena_pump(arena);

		gm_lock(&arena->lock);
		/* Other threads do this for the time of some driver calls only. */
		while (arena->pending.polling || arena->pending.recording || arena->giving)
			gm_arena_wait_change(arena);
		left = gm_pending_bytes(&arena->pending) && gm_clock_ns() < until;
		gm_lock_drop(&arena->lock);
		if (left)
			sched_yield();
	}
}

static uint64_t shrink_clamp(uint64_t value, uint64_t low, uint64_t high)
{
	return value < low ? low : value > high ? high : value;
}

/* Whether a free chunk was free for long enough; if not, lowers *next to when it will be. */
static bool shrink_decayed(
	const struct gm_arena *arena, struct gm_arena_chunk *chunk, uint64_t now, uint64_t *next)
{
	if (chunk->touched) {
		chunk->touched = false;
		chunk->idle_since = now;
	}
	if (arena->eager_until || now - chunk->idle_since >= arena->config.decay_ns)
		return true;
	*next = gm_u64_min(*next, chunk->idle_since + arena->config.decay_ns);
	return false;
}

uint64_t gm_arena_tick(struct gm_arena *arena, uint64_t now_ns)
{
	uint64_t decay = arena->config.decay_ns;
	uint64_t next = GM_ARENA_NEVER;
	struct gm_arena_chunk *list;
	struct gm_small_slab *next_slab;

	/* First, so that a thread which caches something from now on asks for another tick. */
	gm_lock(&arena->lock);
	arena->armed = false;
	gm_lock_drop(&arena->lock);

	bool left = gm_arena_tcache_tick(arena);
	if (gm_tcache_drain_all(&arena->caches, true) || left)
		next = now_ns + shrink_clamp(decay / 2, CACHE_MIN_NS, CACHE_MAX_NS);
	gm_arena_pump(arena);

	gm_lock(&arena->lock);
	list = gm_arena_chunks_free_list(&arena->chunks, &arena->clean);
	for (struct gm_arena_chunk *chunk = list; chunk; chunk = chunk->list_next)
		chunk->chosen = shrink_decayed(arena, chunk, now_ns, &next);
	list = gm_arena_detach(arena, list);

	for (struct gm_small_slab *slab = arena->small.slabs; slab; slab = next_slab) {
		struct gm_arena_chunk *chunk = gm_arena_chunks_at(&arena->chunks, slab->addr);

		next_slab = slab->next;
		chunk->touched = chunk->touched || slab->touched;
		slab->touched = false;
		if (gm_small_slab_empty(slab) && shrink_decayed(arena, chunk, now_ns, &next))
			list = shrink_detach_slab(arena, slab, list);
	}

	if (arena->stuck)
		next = gm_u64_min(next, now_ns + POLL_MAX_NS);
	LL_CONCAT2(list, arena->stuck, list_next);
	arena->stuck = NULL;

	if (gm_pending_bytes(&arena->pending))
		next = gm_u64_min(next, now_ns + shrink_clamp(decay / 8, POLL_MIN_NS, POLL_MAX_NS));
	if (arena->pending.settled >= arena->eager_until)
		arena->eager_until = 0;
	if (next != GM_ARENA_NEVER)
		arena->armed = true;
	else if (arena->armed)
		next = now_ns + shrink_clamp(decay, POLL_MIN_NS, CACHE_MAX_NS);
	(void)gm_arena_give_back(arena, list);
	gm_lock_drop(&arena->lock);
	return next;
}
