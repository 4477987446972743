/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_ARENA_IMPL_H
#define GM_CLIENT_ARENA_IMPL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/heap/arena.h"
#include "client/heap/arena_chunks.h"
#include "client/heap/heap.h"
#include "client/heap/pending.h"
#include "client/heap/ptrmap.h"
#include "client/heap/small.h"
#include "client/heap/tcache.h"

/*
 * The inside of an arena, for arena.c and arena_small.c (blocks in and out), arena_list.c (what is
 * alive), arena_grow.c (more chunks) and arena_shrink.c (fewer), nobody else. What stands under lock is touched
 * with the lock held only.
 */

/* Live blocks of the heap are at least as large as a granule, so each has one of its own. */
#define GM_ARENA_GRANULE_SHIFT 15
#define GM_ARENA_GRANULE       (UINT64_C(1) << GM_ARENA_GRANULE_SHIFT)

/* A request to the source that is under way. */
struct gm_arena_ask {
	uint64_t serial;
	uint64_t spare; /* of what will come: nobody counts on it yet */
	bool slab;
	struct gm_arena_ask *next;
};

struct gm_arena {
	struct gm_arena_config config;
	bool streams; /* the backend has something that can be under way */
	uint64_t base, reserved;
	struct gm_ptrmap blocks; /* to gm_heap_block, or to gm_small_span with GM_SMALL_MARK */
	struct gm_tcache_group caches;

	pthread_mutex_t lock;
	pthread_cond_t changed; /* memory came free or came in, a request or a poll ended */
	unsigned waiters;
	_Atomic bool armed; /* a tick will come; written with the lock held, read by anybody */
	bool odd_source;    /* it gave something else than the chunk of one slab */
	/* A trim could not take what waited for the device in these epochs: it goes when it can. 0:
	 * there is none. */
	uint64_t eager_until;
	struct gm_heap heap;
	struct gm_heap_bins clean; /* free for everybody */
	struct gm_pending pending;
	struct gm_small small;
	struct gm_arena_chunks chunks;
	struct gm_arena_chunk *stuck; /* could neither be used nor unmapped; a list by list_next */
	struct gm_arena_ask *asks;
	uint64_t next_ask;
	uint64_t held;
	/* What the caches did not count by themselves. */
	uint64_t in_use, in_use_rounded, peak, allocs, frees, misses, returns, moves;
	uint64_t notes; /* made so far */
};

/* What a block in use has for a note, if it has a tag; malloc'd. */
struct gm_arena_note {
	uint64_t serial; /* never twice in an arena */
	char tag[GM_LIMIT_NAME_BYTES + 1];
};

/* What a block is wanted for. */
struct gm_arena_want {
	uint64_t bytes, alignment;
	gpumem_stream stream;
	gm_stream_key key;
	bool asked;           /* out: the source was asked */
	gpumem_status status; /* out, with GM_ARENA_E_SOURCE */
};

/* ---- arena.c */

/* A block out of what is here; GM_HEAP_E_NONE or -ENOMEM. Lock. */
int gm_arena_take(
	struct gm_arena *arena, const struct gm_arena_want *want, struct gm_heap_block **ret_block);
/* Asks for events of what waits, and frees what has passed. No lock. Returns how many bytes. */
uint64_t gm_arena_pump(struct gm_arena *arena);
/* Asks the source for chunks, which count as held from then on. No lock. 0, GM_ARENA_E_SOURCE. */
int gm_arena_get(struct gm_arena *arena, uint64_t bytes, struct gm_source_chunk **ret_chunks,
	size_t *ret_n, gpumem_status *ret_status);
/* Gives one chunk back that is not mapped. No lock. */
void gm_arena_put(struct gm_arena *arena, uint64_t id, uint64_t bytes);
/* There is something for a tick to do: returns whether wake() is to be called, without the lock.
 * Lock. */
static inline bool gm_arena_arm(struct gm_arena *arena)
{
	bool wake = !arena->armed;
	arena->armed = true;
	return wake;
}
static inline void gm_arena_wake(struct gm_arena *arena, bool wake)
{
	if (wake && arena->config.wake)
		arena->config.wake(arena->config.wake_ctx);
}
static inline gm_stream_key gm_arena_key(const struct gm_arena *arena, gpumem_stream stream)
{
	return arena->streams ? gm_pending_key(arena->config.ops, arena->config.backend, stream)
			      : GM_STREAM_DONE;
}

/* Whether the program has this block: it was handed out and not freed. Lock. */
static inline bool gm_arena_alive(const struct gm_arena *arena, const struct gm_heap_block *block)
{
	return block->bytes && !block->bins &&
	       gm_ptrmap_get(&arena->blocks, block->addr) == (uintptr_t)block;
}

/*
 * A block came or went past the caches. in_use and what the calling thread's cache counted since it
 * was folded make the peak; so it is exact with one thread, and with several short by no more than
 * what the others' caches hold. Lock.
 */
static inline void gm_arena_count(struct gm_arena *arena, int64_t asked, int64_t rounded)
{
	struct gm_tcache_hot *hot = gm_tcache_hot();
	int64_t cached = 0, cached_peak = 0;

	if (hot->id == arena->caches.id) {
		cached = atomic_load_explicit(&hot->cache->in_use, memory_order_relaxed);
		cached_peak = atomic_load_explicit(&hot->cache->in_use_peak, memory_order_relaxed);
		atomic_store_explicit(&hot->cache->in_use_peak, cached, memory_order_relaxed);
	}
	if ((int64_t)arena->in_use + cached_peak > (int64_t)arena->peak)
		arena->peak = arena->in_use + (uint64_t)cached_peak;
	arena->in_use += (uint64_t)asked;
	arena->in_use_rounded += (uint64_t)rounded;
	if ((int64_t)arena->in_use + cached > (int64_t)arena->peak)
		arena->peak = arena->in_use + (uint64_t)cached;
	if (asked > 0)
		arena->allocs++;
	else
		arena->frees++;
}

/* ---- arena_small.c */

/* size and alignment are at most GM_SMALL_MAX. Outcomes as of gm_arena_alloc(); a failure leaves
 * the heap to try. */
int gm_arena_small_alloc(struct gm_arena *arena, uint64_t size, uint64_t alignment,
	gm_stream_key key, void **ret_ptr);
int gm_arena_small_dealloc(
	struct gm_arena *arena, struct gm_small_span *span, uint64_t addr, gpumem_stream stream);
/* The group's drain(). */
void gm_arena_small_drain(struct gm_tcache_group *group, struct gm_tcache *cache);

/* ---- arena_grow.c */

/* A block, whatever it takes. No lock; *ret_block is in use. 0, -errno, GM_ARENA_E_SOURCE,
 * GM_ARENA_E_SPACE. */
int gm_arena_grow(
	struct gm_arena *arena, struct gm_arena_want *want, struct gm_heap_block **ret_block);
/* Another slab, or another chance to find an object of what is here: 0. No lock. */
int gm_arena_grow_small(struct gm_arena *arena, bool *ret_asked, gpumem_status *ret_status);

/* ---- arena_shrink.c */

/* Unmaps chunks (a list by list_next; busy, in no heap) and gives them back. No lock. */
uint64_t gm_arena_discard(struct gm_arena *arena, struct gm_arena_chunk *list);
/* A chunk that stays mapped is free memory of the heap again, or stuck. Lock. */
void gm_arena_keep(struct gm_arena *arena, struct gm_arena_chunk *chunk);
/* Makes busy the chosen ones of a list of gm_arena_chunks_free_list(); returns those, as a list. Lock. */
struct gm_arena_chunk *gm_arena_detach(struct gm_arena *arena, struct gm_arena_chunk *list);
/* Takes slabs that are wholly free out of the small zone, onto a list, until that makes min_bytes.
 * Lock. */
struct gm_arena_chunk *gm_arena_detach_slabs(
	struct gm_arena *arena, uint64_t min_bytes, struct gm_arena_chunk *list);

#endif
