/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports on an arena: its counters, and a status and a sentence for each outcome. This file reads
 * the arena and must never change it.
 */
#include "autoconf.h"

#include <errno.h>
#include <string.h>

#include "client/heap/arena_private.h"
#include "common/arith.h"

/* Sums over the threads' caches, since they were last folded. */
struct gm_arena_sums {
	uint64_t allocs, frees;
	int64_t in_use, rounded, peak;
};

static void arena_stats_add_cache(struct gm_tcache *cache, void *ctx)
{
	struct gm_arena_sums *sums = ctx;

	sums->allocs += atomic_load_explicit(&cache->allocs, memory_order_relaxed);
	sums->frees += atomic_load_explicit(&cache->frees, memory_order_relaxed);
	sums->in_use += atomic_load_explicit(&cache->in_use, memory_order_relaxed);
	sums->rounded += atomic_load_explicit(&cache->in_use_rounded, memory_order_relaxed);
	sums->peak += atomic_load_explicit(&cache->in_use_peak, memory_order_relaxed);
}

/*
 * The bytes that a trim would give back now. If the device has streams, an object in a thread's
 * cache may wait for one, so a slab counts only when all its objects are back.
 */
static uint64_t arena_stats_returnable(struct gm_arena *arena)
{
	uint64_t bytes = gm_arena_chunks_free_bytes(&arena->chunks, &arena->clean);

	for (const struct gm_small_slab *slab = arena->small.slabs; slab; slab = slab->next)
		if (arena->streams ? gm_small_slab_empty(slab) : gm_small_slab_dead(slab))
			bytes += GM_SMALL_SLAB_BYTES;
	return bytes;
}

static uint64_t arena_stats_at_least_0(int64_t value)
{
	return value > 0 ? (uint64_t)value : 0;
}

void gm_arena_stats(struct gm_arena *arena, struct gm_arena_stats *ret_stats)
{
	struct gm_arena_stats *stats = ret_stats;
	struct gm_arena_sums sums = {0};

	memset(stats, 0, sizeof(*stats));
	gm_tcache_each(&arena->caches, arena_stats_add_cache, &sums);

	gm_lock(&arena->lock);
	/* Other threads go on meanwhile, so this may see a free without its allocation. */
	stats->held = arena->held;
	stats->in_use = arena_stats_at_least_0((int64_t)arena->in_use + sums.in_use);
	stats->rounding = arena_stats_at_least_0(
		(int64_t)(arena->in_use_rounded - arena->in_use) + sums.rounded - sums.in_use);
	stats->cached =
		gm_u64_min(arena_stats_returnable(arena), gm_u64_minus(stats->held, stats->in_use));
	stats->slack = gm_u64_minus(stats->held, stats->in_use + stats->cached);
	stats->peak = arena_stats_at_least_0((int64_t)arena->in_use + sums.peak);
	if (stats->peak < arena->peak)
		stats->peak = arena->peak;
	stats->misses = arena->misses;
	stats->hits = arena->allocs + sums.allocs - arena->misses;
	stats->active = arena_stats_at_least_0(
		(int64_t)(arena->allocs + sums.allocs - arena->frees - sums.frees));
	stats->returns = arena->returns;
	stats->moves = arena->moves;
	stats->pending = gm_pending_bytes(&arena->pending);
	stats->reserved = arena->reserved;
	gm_lock_drop(&arena->lock);
}

gpumem_status gm_arena_status(int outcome)
{
	switch (outcome) {
	case 0:
		return GPUMEM_OK;
	case GM_ARENA_E_SOURCE:
	case GM_ARENA_E_SPACE:
		return GPUMEM_E_NO_MEMORY;
	case GM_ARENA_E_SIZE:
	case GM_ARENA_E_ALIGNMENT:
	case GM_ARENA_E_FOREIGN:
	case GM_ARENA_E_INSIDE:
	case GM_ARENA_E_FREED:
	case GM_ARENA_E_STREAM:
		return GPUMEM_E_INVALID;
	case -ENOMEM:
		return GPUMEM_E_HOST_MEMORY;
	case -ENOBUFS:
		return GPUMEM_E_NO_MEMORY;
	case -EPROTO:
		return GPUMEM_E_PROTOCOL;
	default:
		return GPUMEM_E_SYSTEM;
	}
}

const char *gm_arena_text(int outcome)
{
	switch (outcome) {
	case 0:
	case GM_ARENA_E_SOURCE:
		return NULL;
	case GM_ARENA_E_SIZE:
		return "no device is that large";
	case GM_ARENA_E_ALIGNMENT:
		return "the alignment is not a power of two, or more than 1 GiB";
	case GM_ARENA_E_SPACE:
		return "the address range for this device has no gap that is large enough: free "
		       "some blocks first";
	case GM_ARENA_E_FOREIGN:
		return "the pointer is not memory that this session has allocated";
	case GM_ARENA_E_INSIDE:
		return "the pointer is inside a block, not at its start";
	case GM_ARENA_E_FREED:
		return "no block is alive at this pointer: it was freed already, or never "
		       "allocated";
	case GM_ARENA_E_STREAM:
		return "a new block is for work to come: name a stream, or none; only what is freed can have "
		       "no work left";
	case -ENOMEM:
		return "out of host memory";
	case -ENOBUFS:
		return "the driver has no memory left to map the block: free some blocks first";
	case -EPROTO:
		return "gpumemd granted memory that opens where this session has other memory: "
		       "it granted the same memory twice, or the program destroyed the CUDA "
		       "context of the other memory";
	default:
		return "the device's memory could not be mapped into this process";
	}
}
