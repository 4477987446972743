/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_ARENA_PRIVATE_H
#define GM_CLIENT_ARENA_PRIVATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/heap/arena.h"
#include "client/heap/arena_chunks.h"
#include "client/heap/heap.h"
#include "client/heap/pending.h"
#include "client/heap/heap_ptrmap.h"
#include "client/heap/small.h"
#include "client/heap/tcache.h"
#include "common/lock.h"

/*
 * The inside of an arena, for these files and no others:
 *
 *   arena.c, arena_small.c           blocks in and out, with arena_tcache.c
 *   arena_grow.c                     more chunks, with arena_growth.c and arena_segment.c
 *   arena_shrink.c, arena_range.c    fewer chunks
 *   arena_list.c, arena_stats.c      what is alive, and the counters
 *
 * "Call with the lock held" and "call without the lock" in comments mean the lock of struct
 * gm_arena. A function that is called without the lock may take it.
 */

/* A live block of the heap is at least as large as a granule, so it has a granule of its own. */
#define GM_ARENA_GRANULE_SHIFT 15
#define GM_ARENA_GRANULE       (UINT64_C(1) << GM_ARENA_GRANULE_SHIFT)

/* A request to the source that has not been answered yet. */
struct gm_arena_ask {
	uint64_t serial;
	uint64_t spare; /* bytes that will come and that no thread counts on yet */
	bool slab;      /* it is for a slab */
	struct gm_arena_ask *next;
};

struct gm_arena {
	struct gm_arena_config config;
	bool streams;            /* the backend has streams, so work may still use freed memory */
	_Atomic unsigned scarce; /* calls that are about to fail: meanwhile caches keep nothing */
	uint64_t base, reserved;
	struct gm_heap_ptrmap blocks; /* leads to a gm_heap_block or a marked gm_small_span */
	struct gm_tcache_group caches;

	struct gm_lock lock;      /* protects the rest */
	pthread_cond_t changed;   /* memory came free or came in, or a request or a poll ended */
	_Atomic unsigned waiters; /* threads that wait for changed; may be read without the lock */
	_Atomic bool armed;       /* a tick will come; only clearing this needs the lock */
	bool odd_source;          /* the source does not give chunks of one slab */
	/* A trim could not give back what waited for the device in this epoch and before. It goes
	 * back as soon as it can, without decay. 0: there is no such epoch. */
	uint64_t eager_until;
	struct gm_heap heap;
	struct gm_heap_bins clean; /* memory that no stream uses: free for everybody */
	struct gm_pending pending;
	struct gm_small small;
	struct gm_arena_chunks chunks;
	struct gm_arena_chunk *stuck; /* a list (list_next) of chunks that could neither be used
					 nor unmapped */
	struct gm_arena_ask *asks;
	uint64_t next_ask;
	/* A pass: a thread takes free memory out of the heap for a moment, to move it or to give it back. */
	unsigned passing; /* threads in a pass */
	uint64_t passed;  /* passes that have ended */
	uint64_t given;   /* of them, those that gave the memory back to the source */
	unsigned giving;  /* threads that are giving memory back now */
	uint64_t held;
	/* Sums without what the threads' caches have counted since they were last folded. */
	uint64_t in_use, in_use_rounded, peak, allocs, frees, misses, returns, moves;
	uint64_t notes; /* how many were made so far */
};

/* The note of a live block that has a tag; malloc'ed. */
struct gm_arena_note {
	uint64_t serial; /* never twice in an arena */
	char tag[GM_BOUND_NAME_BYTES + 1];
};

/* A block that somebody wants. */
struct gm_arena_want {
	uint64_t bytes, alignment;
	gpumem_stream stream;
	gm_stream_key key;
	uint64_t room;    /* a hint: bytes that the source can probably give */
	uint64_t refused; /* the source gave not even that much; UINT64_MAX: it was not asked */
	uint64_t passed;  /* the arena's, when this call last looked; without its own passes */
	uint64_t given;   /* the arena's, at the same time */
	unsigned flags;   /* of the call */
	struct gm_heap_source_call *call;
	bool asked;           /* out: the source was asked */
	gpumem_status status; /* out, with GM_ARENA_E_SOURCE only */
};

/* The cache that the calling thread used last, if it is one of this arena. NULL: it is not. */
static inline struct gm_tcache *gm_arena_cache_hot(const struct gm_arena *arena)
{
	const struct gm_tcache_hot *hot = gm_tcache_hot();

	return __builtin_expect(hot->id == arena->caches.id, 1) ? hot->cache : NULL;
}

/* The calling thread's cache, which is made if need be. NULL: it has none. */
static inline struct gm_tcache *gm_arena_cache(struct gm_arena *arena)
{
	struct gm_tcache *cache = gm_arena_cache_hot(arena);

	return cache ? cache : gm_tcache_get(&arena->caches);
}

/* Counts an allocation or a free that a cache served. The caller has made it busy. */
static inline void gm_arena_cache_count(
	struct gm_tcache *cache, _Atomic uint64_t *counter, int64_t asked, int64_t rounded)
{
	int64_t in_use = atomic_load_explicit(&cache->in_use, memory_order_relaxed) + asked;

	/* There is one writer only, so these need no locked instruction. */
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
		memory_order_relaxed);
	atomic_store_explicit(&cache->in_use, in_use, memory_order_relaxed);
	atomic_store_explicit(&cache->in_use_rounded,
		atomic_load_explicit(&cache->in_use_rounded, memory_order_relaxed) + rounded,
		memory_order_relaxed);
	if (in_use > atomic_load_explicit(&cache->in_use_peak, memory_order_relaxed))
		atomic_store_explicit(&cache->in_use_peak, in_use, memory_order_relaxed);
}

/* ---- arena.c */

/* Takes a block out of what is here. Call with the lock held. GM_HEAP_E_NONE or -ENOMEM. */
int gm_arena_take(
	struct gm_arena *arena, const struct gm_arena_want *want, struct gm_heap_block **ret_block);
/* Records an event for memory that waits for the device, and frees what older events have released.
 * Call without the lock. Returns how many bytes were freed. */
uint64_t gm_arena_pump(struct gm_arena *arena);
/* The same for a call that would fail otherwise. It waits while other threads record or poll. Afterwards an event covers
 * everything that was freed before the call, if the driver can record one, and no thread records or polls. replace:
 * records one even if all events are in use. Call with the lock held; the function releases it in between. */
void gm_arena_pump_all(struct gm_arena *arena, bool replace);
/* Asks the source for chunks, which count as held from then on. Call without the lock. 0 or
 * GM_ARENA_E_SOURCE. */
int gm_arena_get(struct gm_arena *arena, struct gm_heap_source_call *call, uint64_t bytes,
	struct gm_heap_source_chunk **ret_chunks, size_t *ret_n, gpumem_status *ret_status);
/* Gives one chunk back that is not mapped. Call without the lock. */
void gm_arena_put(struct gm_arena *arena, uint64_t id, uint64_t bytes);

/* Waits until another thread has changed something. Call with the lock held; the function releases it while it
 * waits. */
static inline void gm_arena_wait_change(struct gm_arena *arena)
{
	arena->waiters++;
	gm_lock_wait(&arena->lock, &arena->changed);
	arena->waiters--;
}

/* Begin and end a pass. While one is under way, no other thread's allocation may fail for lack of that memory
 * (gm_arena_grow()). Call both with the lock held. */
static inline void gm_arena_pass_begin(struct gm_arena *arena)
{
	arena->passing++;
}

static inline void gm_arena_pass_end(struct gm_arena *arena)
{
	arena->passing--;
	arena->passed++;
	if (arena->waiters)
		pthread_cond_broadcast(&arena->changed);
}

/* Notes that a tick has something to do. Returns whether the caller must call gm_arena_wake(), without
 * the lock. Call with the lock held or without it. */
static inline bool gm_arena_arm(struct gm_arena *arena)
{
	return !arena->armed && !atomic_exchange(&arena->armed, true);
}

/* Calls wake() if gm_arena_arm() said so. Call without the lock. */
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

/* Whether the program has this block: it was handed out and not freed. Call with the lock held. */
static inline bool gm_arena_alive(const struct gm_arena *arena, const struct gm_heap_block *block)
{
	return block->bytes && !block->bins &&
	       gm_heap_ptrmap_get(&arena->blocks, block->addr) == (uintptr_t)block;
}

/*
 * Counts a block that came or went past the caches. Call with the lock held. The peak is computed
 * from in_use and from what the calling thread's cache has counted since it was folded. So it is
 * exact with one thread; with several, it may miss what the other threads' caches have counted.
 * hot: gm_arena_cache_hot().
 */
static inline void gm_arena_count(
	struct gm_arena *arena, struct gm_tcache *hot, int64_t asked, int64_t rounded)
{
	int64_t cached = 0, cached_peak = 0;

	if (hot) {
		cached = atomic_load_explicit(&hot->in_use, memory_order_relaxed);
		cached_peak = atomic_load_explicit(&hot->in_use_peak, memory_order_relaxed);
		atomic_store_explicit(&hot->in_use_peak, cached, memory_order_relaxed);
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

/* Gives the memory of a block, which must no longer be in the ptrmap, back to the heap. Returns as gm_arena_arm(). Call
 * with the lock held. */
bool gm_arena_release(struct gm_arena *arena, struct gm_heap_block *block, gm_stream_key key);

/* Whether caches must keep nothing. The caller has made its cache busy: if a call that is about to fail has emptied the cache
 * before, this returns true. */
static inline bool gm_arena_is_scarce(const struct gm_arena *arena)
{
	return __builtin_expect(atomic_load_explicit(&arena->scarce, memory_order_relaxed) != 0, 0);
}

/* ---- arena_tcache.c */

/* The value of a block in a thread's cache in the ptrmap carries this bit. */
#define GM_ARENA_TCACHED UINT64_C(2)

/*
 * Puts a block into the cache that the program frees: the thread's cache keeps it for the thread's next allocation. value is what the
 * ptrmap has for it. Call without the lock. false: nothing has changed, and the caller must free the block.
 */
bool gm_arena_tcache_put(struct gm_arena *arena, uint64_t addr, uintptr_t value, gm_stream_key key);
/* Hands out a block of that size that the cache of the calling thread has in its cache. false: it has none. Call without the lock. */
bool gm_arena_tcache_take(struct gm_arena *arena, struct gm_tcache *cache, uint64_t size,
	uint64_t alignment, gm_stream_key key, void **ret_ptr);
/* Frees all blocks that a cache has in its cache, and wakes the threads that wait for memory. The caller has made the cache
 * busy. Returns as gm_arena_arm(). Call with the lock held. */
bool gm_arena_tcache_empty(struct gm_arena *arena, struct gm_tcache *cache);
/* The same for the cache of the calling thread, when no other thread competes for the heap any more. The caller has not
 * made the cache busy. */
bool gm_arena_tcache_end(struct gm_arena *arena, struct gm_tcache *cache);

/* Frees all blocks that any thread has in its cache. Returns whether there were any. Call without the lock. */
bool gm_arena_tcache_drain(struct gm_arena *arena);
/* Frees those of the threads that have taken none of theirs back since the last such call. Returns whether any thread
 * still has blocks in its cache. */
bool gm_arena_tcache_tick(struct gm_arena *arena);

/* Whether a cache, which may be NULL, has in its cache anything. For its thread. */
static inline bool gm_arena_tcache_any(const struct gm_tcache *cache)
{
	return cache && atomic_load_explicit(&cache->n_large, memory_order_relaxed);
}

/* ---- arena_small.c */

/* Allocates a small block; size and alignment are at most GM_SMALL_MAX. Fails like
 * gm_arena_alloc(); the caller may then try the heap. Call without the lock. */
int gm_arena_small_alloc(struct gm_arena *arena, struct gm_heap_source_call *call, uint64_t size,
	uint64_t alignment, gm_stream_key key, unsigned flags, void **ret_ptr,
	gpumem_status *ret_status);
/* The same out of what is free outside the caches, and nowhere else. For a call that would fail and has emptied the caches. Returns
 * whether there was an object. Call with the lock held. */
bool gm_arena_small_alloc_freed(struct gm_arena *arena, uint64_t size, uint64_t alignment,
	gm_stream_key key, void **ret_ptr);
int gm_arena_small_dealloc(
	struct gm_arena *arena, struct gm_small_span *span, uint64_t addr, gpumem_stream stream);
/* Adds a cache's sums to the arena's and clears them. The caller has made the cache busy. Call with the lock held. */
void gm_arena_small_fold(struct gm_arena *arena, struct gm_tcache *cache);
/* The drain() of the arena's caches. */
void gm_arena_small_drain(struct gm_tcache_group *group, struct gm_tcache *cache);

/* ---- arena_grow.c */

/* Gets a block by any means; *ret_block is in use then. Call without the lock. 0, a negative errno,
 * GM_ARENA_E_SOURCE or GM_ARENA_E_SPACE. */
int gm_arena_grow(
	struct gm_arena *arena, struct gm_arena_want *want, struct gm_heap_block **ret_block);
/*
 * Makes the stream wait for all work that uses freed memory, and gives the stream all that memory. An allocation for any
 * stream cannot wait: it only gets what the device is done with. Returns whether there was any. Call with the lock held; it is
 * let go in between.
 */
bool gm_arena_order(struct gm_arena *arena, const struct gm_arena_want *want);
/* 0: there is a new slab, or for another reason it is worth looking for an object again. Fails like
 * gm_arena_grow(). here: as GM_ARENA_HERE. Call without the lock. */
int gm_arena_grow_small(struct gm_arena *arena, struct gm_heap_source_call *call, bool here,
	bool *ret_asked, gpumem_status *ret_status);

/* ---- arena_shrink.c */

/* Unmaps a list (list_next) of busy chunks that are in no heap, and gives them back. Call without
 * the lock. Returns how many bytes went back. */
uint64_t gm_arena_discard(struct gm_arena *arena, struct gm_arena_chunk *list);
/* Does the same to chunks that were free until now. Call with the lock held; the function releases it in between.
 * Until this returns, no other thread's allocation fails for lack of them. */
uint64_t gm_arena_give_back(struct gm_arena *arena, struct gm_arena_chunk *list);
/* Makes a chunk that stays mapped free memory of the heap again; if that fails, it is stuck. Call
 * with the lock held. */
void gm_arena_keep(struct gm_arena *arena, struct gm_arena_chunk *chunk);
/* Takes the chosen chunks of a gm_arena_chunks_free_list() out of the heap and makes them busy.
 * Returns a list of them. Call with the lock held. */
struct gm_arena_chunk *gm_arena_detach(struct gm_arena *arena, struct gm_arena_chunk *list);
/* Takes wholly free slabs away from the small objects until they add up to min_bytes, and puts
 * their chunks in front of a list, which it returns. Call with the lock held. */
struct gm_arena_chunk *gm_arena_detach_slabs(
	struct gm_arena *arena, uint64_t min_bytes, struct gm_arena_chunk *list);

/*
 * One growth of an arena, from taking a place to handing it to the heap. begin comes first and end
 * last. Every begin needs an end, even one that failed, if it has set room.
 */

struct gm_arena_growth {
	struct gm_arena *arena;
	struct gm_arena_place place;
	struct gm_arena_chunk *room;                /* the busy chunk that keeps the place */
	struct gm_heap_block *left, *right;         /* free memory beside it, taken by then */
	struct gm_arena_chunk *moving;              /* own chunks on their way here */
	struct gm_arena_chunk *placed, *placed_end; /* chunks mapped here, lowest first */
	struct gm_arena_chunk *bad;                 /* chunks to give back */
	uint64_t cursor;                            /* where the next chunk goes */
	int error;
	bool passing; /* free memory of the arena is out of the heap for this growth */
};

/* Takes room bytes at the place, and the free memory beside it that the block uses. Call with the
 * lock held. -ENOMEM; if g->room is set, gm_arena_growth_end() has something to undo. */
int gm_arena_growth_begin(struct gm_arena_growth *g, uint64_t room);
/* Chooses up to max own free chunks to move here, the largest first; with slabs, also chunks of
 * empty slabs if need be. Call with the lock held. Returns how much of missing is still missing. */
uint64_t gm_arena_growth_choose(
	struct gm_arena_growth *g, uint64_t missing, unsigned max, bool slabs);
/* Asks the source and maps what comes; chunks that do not fit here go elsewhere. Call without the
 * lock. 0 or GM_ARENA_E_SOURCE. */
int gm_arena_growth_fetch(struct gm_arena_growth *g, struct gm_heap_source_call *call,
	uint64_t bytes, gpumem_status *ret_status);
/* Moves the chosen chunks; with go false, lets them stay, because the rest did not come. Call
 * without the lock. */
void gm_arena_growth_move(struct gm_arena_growth *g, bool go);
/* Lets the device use the placed chunks. If that fails, they become bad. Call without the lock. */
void gm_arena_growth_access(struct gm_arena_growth *g);
/* Puts everything where it belongs; *ret_block is the free block that contains all of it. Call with
 * the lock held. Afterwards the caller gives the bad chunks to gm_arena_discard(), without the
 * lock. */
void gm_arena_growth_end(struct gm_arena_growth *g, struct gm_heap_block **ret_block);

#endif
