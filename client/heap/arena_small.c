/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small blocks of an arena. The thread's cache is tried first: it costs a few loads and stores and
 * one atomic exchange each way. Behind the cache, and under the arena's lock, are the objects that
 * wait on the stream and the slabs. Objects move between the cache and those several at a time.
 *
 * One word per object says whether it is alive. A free takes the word with an exchange, so of two
 * frees of the same pointer, from any threads, exactly one finds the object alive.
 */
#include "autoconf.h"

#include <stddef.h>

#include "client/heap/arena_private.h"

void gm_arena_small_fold(struct gm_arena *arena, struct gm_tcache *cache)
{
	int64_t in_use = atomic_load_explicit(&cache->in_use, memory_order_relaxed);
	int64_t peak = atomic_load_explicit(&cache->in_use_peak, memory_order_relaxed);

	if ((int64_t)arena->in_use + peak > (int64_t)arena->peak)
		arena->peak = arena->in_use + (uint64_t)peak;
	arena->in_use += (uint64_t)in_use;
	arena->in_use_rounded +=
		(uint64_t)atomic_load_explicit(&cache->in_use_rounded, memory_order_relaxed);
	atomic_store_explicit(&cache->in_use, 0, memory_order_relaxed);
	atomic_store_explicit(&cache->in_use_rounded, 0, memory_order_relaxed);
	atomic_store_explicit(&cache->in_use_peak, 0, memory_order_relaxed);
}

/* The word of an object that no other thread is handing out or freeing. */
static _Atomic uint16_t *arena_small_word_of(struct gm_arena *arena, uint64_t object)
{
	struct gm_small_span *span =
		(struct gm_small_span *)(gm_heap_ptrmap_get(&arena->blocks, object) &
					 ~GM_SMALL_MARK);
	unsigned class;
	bool start;

	return gm_small_find(span, object, &class, &start);
}

/* ---- between the cache and the rest; the caller has made the cache busy */

/* Call these three with the lock held. */

static void arena_small_put_back(
	struct gm_arena *arena, gm_stream_key key, unsigned class, uint64_t object)
{
	if (key == GM_STREAM_DONE)
		gm_small_put(&arena->small, object);
	else
		gm_pending_put_small(&arena->pending, gm_pending_set(&arena->pending, key),
			&arena->small, class, object);
}

/* Leaves n objects in the bin; those that were there the longest go. */
static void arena_small_bin_flush(struct gm_arena *arena, struct gm_tcache *cache,
	struct gm_tcache_set *set, unsigned class, unsigned n)
{
	struct gm_tcache_bin *bin = &set->bins[class];
	unsigned go = bin->n > n ? bin->n - n : 0;

	for (unsigned i = 0; i < go; i++)
		arena_small_put_back(arena, set->key, class, bin->entries[i].object);
	for (unsigned i = go; i < bin->n; i++)
		bin->entries[i - go] = bin->entries[i];
	bin->n -= go;
	cache->bytes -= go * gm_small_bytes(class);
}

static void arena_small_set_flush(
	struct gm_arena *arena, struct gm_tcache *cache, struct gm_tcache_set *set)
{
	for (unsigned class = 0; class < GM_SMALL_CLASSES; class ++)
		arena_small_bin_flush(arena, cache, set, class, 0);
}

void gm_arena_small_drain(struct gm_tcache_group *group, struct gm_tcache *cache)
{
	struct gm_arena *arena =
		(struct gm_arena *)((char *)group - offsetof(struct gm_arena, caches));
	bool wake = false;

	gm_lock(&arena->lock);
	if (cache->bytes) {
		for (unsigned i = 0; i <= GM_TCACHE_STREAMS; i++) {
			if (cache->sets[i])
				arena_small_set_flush(arena, cache, cache->sets[i]);
		}
		wake = gm_arena_arm(arena);
	}
	wake |= gm_arena_tcache_empty(arena, cache);
	gm_arena_small_fold(arena, cache);
	/* These too, because the cache may be about to be freed. */
	arena->allocs += atomic_exchange_explicit(&cache->allocs, 0, memory_order_relaxed);
	atomic_store_explicit(&cache->reused, 0, memory_order_relaxed);
	cache->reused_seen = 0;
	arena->frees += atomic_exchange_explicit(&cache->frees, 0, memory_order_relaxed);
	cache->seen = 0;
	if (arena->waiters)
		pthread_cond_broadcast(&arena->changed);
	gm_lock_drop(&arena->lock);
	gm_arena_wake(arena, wake);
}

/* Finds or makes the set of a stream; may empty another stream's set for it. NULL: no memory. */
static struct gm_tcache_set *arena_small_set_for(
	struct gm_arena *arena, struct gm_tcache *cache, gm_stream_key key)
{
	struct gm_tcache_set *set = gm_tcache_find(cache, key);

	if (!set) {
		set = gm_tcache_choose(cache);
		if (!set)
			return NULL;
		gm_lock(&arena->lock);
		arena_small_set_flush(arena, cache, set);
		gm_lock_drop(&arena->lock);
		set->key = key;
	}
	set->used = ++cache->clock;
	return set;
}

/* Fetches objects for the cache and returns one for the caller, or 0 if it found none. */
static uint64_t arena_small_refill(
	struct gm_arena *arena, struct gm_tcache *cache, gm_stream_key key, unsigned class)
{
	unsigned max = gm_arena_is_scarce(arena) ? 1 : (gm_tcache_limit(class) + 1) / 2, n = 0;
	uint64_t objects[GM_TCACHE_OBJECTS];
	struct gm_pending_set *own = NULL;
	struct gm_tcache_bin *bin;
	bool wake = false;

	gm_lock(&arena->lock);
	gm_arena_small_fold(arena, cache);
	if (key != GM_STREAM_DONE && key != GM_STREAM_ANY)
		own = gm_pending_own(&arena->pending, key);
	if (own && own->small_bytes) {
		/* One is enough: what this stream frees comes back to this cache by itself. */
		objects[0] = gm_pending_take_small(&arena->pending, own, &arena->small, class);
		n = objects[0] ? 1 : 0;
	}
	if (!n)
		n = gm_small_take(&arena->small, class, max, objects);
	if (n)
		wake = gm_arena_arm(arena);
	gm_lock_drop(&arena->lock);
	gm_arena_wake(arena, wake);
	if (!n)
		return 0;

	bin = &cache->sets[0]->bins[class];
	for (unsigned i = 0; i < n - 1; i++) {
		bin->entries[bin->n].object = objects[n - 2 - i];
		bin->entries[bin->n].asked = arena_small_word_of(arena, objects[n - 2 - i]);
		bin->n++;
	}
	/* The caller's object counts as cached until it is handed out. */
	cache->bytes += n * gm_small_bytes(class);
	return objects[n - 1];
}

/* ---- without a cache */

static uint64_t arena_small_take_one(struct gm_arena *arena, gm_stream_key key, unsigned class)
{
	struct gm_pending_set *own = NULL;
	uint64_t object = 0;

	if (key != GM_STREAM_DONE && key != GM_STREAM_ANY)
		own = gm_pending_own(&arena->pending, key);
	if (own)
		object = gm_pending_take_small(&arena->pending, own, &arena->small, class);
	if (!object && gm_small_take(&arena->small, class, 1, &object) == 0)
		return 0;
	return object;
}

/* Allocates past the cache. false: no object is here. Call with the lock held. */
static bool arena_small_alloc_locked(struct gm_arena *arena, uint64_t size, gm_stream_key key,
	unsigned class, bool asked, void **ret_ptr)
{
	uint64_t object = arena_small_take_one(arena, key, class);

	if (!object)
		return false;
	atomic_store_explicit(
		arena_small_word_of(arena, object), (uint16_t)size, memory_order_relaxed);
	gm_arena_count(
		arena, gm_arena_cache_hot(arena), (int64_t)size, (int64_t)gm_small_bytes(class));
	if (asked)
		arena->misses++;
	*ret_ptr = (void *)object;
	return true;
}

static bool arena_small_alloc_uncached(struct gm_arena *arena, uint64_t size, gm_stream_key key,
	unsigned class, bool asked, void **ret_ptr)
{
	gm_lock(&arena->lock);
	bool found = arena_small_alloc_locked(arena, size, key, class, asked, ret_ptr);
	gm_lock_drop(&arena->lock);
	return found;
}

/* ---- allocating and freeing */

static inline struct gm_tcache_entry *arena_small_bin_pop(struct gm_tcache_set *set, unsigned class)
{
	struct gm_tcache_bin *bin = &set->bins[class];

	return bin->n ? &bin->entries[--bin->n] : NULL;
}

/* Allocates past the cache, and grows the arena if need be. */
static int arena_small_alloc_slow(struct gm_arena *arena, struct gm_heap_source_call *call,
	uint64_t size, gm_stream_key key, unsigned class, unsigned flags, void **ret_ptr,
	gpumem_status *ret_status)
{
	bool asked = false;

	for (bool pumped = false;; pumped = true) {
		int r;

		if (arena_small_alloc_uncached(arena, size, key, class, asked, ret_ptr))
			return 0;
		if (!pumped && gm_arena_pump(arena))
			continue;
		r = gm_arena_grow_small(arena, call, flags & GM_ARENA_HERE, &asked, ret_status);
		if (r)
			return r;
	}
}

static inline unsigned arena_small_class_of(uint64_t size, uint64_t alignment)
{
	return alignment <= 256 ? gm_small_class(size) : gm_small_class_aligned(size, alignment);
}

bool gm_arena_small_alloc_freed(struct gm_arena *arena, uint64_t size, uint64_t alignment,
	gm_stream_key key, void **ret_ptr)
{
	unsigned class = arena_small_class_of(size, alignment);

	return arena_small_alloc_locked(arena, size, key, class, false, ret_ptr);
}

int gm_arena_small_alloc(struct gm_arena *arena, struct gm_heap_source_call *call, uint64_t size,
	uint64_t alignment, gm_stream_key key, unsigned flags, void **ret_ptr,
	gpumem_status *ret_status)
{
	unsigned class = arena_small_class_of(size, alignment);
	struct gm_tcache *cache = gm_arena_cache(arena);
	struct gm_tcache_entry *entry = NULL;
	struct gm_tcache_set *set;
	_Atomic uint16_t *word;
	uint64_t object;

	if (!cache || !gm_tcache_enter(cache))
		return arena_small_alloc_slow(
			arena, call, size, key, class, flags, ret_ptr, ret_status);

	if (key != GM_STREAM_DONE && key != GM_STREAM_ANY) {
		set = gm_tcache_find(cache, key);
		if (set) {
			set->used = ++cache->clock;
			entry = arena_small_bin_pop(set, class);
		}
	}
	if (!entry)
		entry = arena_small_bin_pop(cache->sets[0], class);
	if (__builtin_expect(entry != NULL, 1)) {
		object = entry->object;
		word = entry->asked;
	} else {
		object = arena_small_refill(arena, cache, key, class);
		if (!object) {
			gm_tcache_leave(cache);
			return arena_small_alloc_slow(
				arena, call, size, key, class, flags, ret_ptr, ret_status);
		}
		word = arena_small_word_of(arena, object);
	}

	atomic_store_explicit(word, (uint16_t)size, memory_order_relaxed);
	gm_arena_cache_count(cache, &cache->allocs, (int64_t)size, (int64_t)gm_small_bytes(class));
	cache->bytes -= gm_small_bytes(class);
	gm_tcache_leave(cache);
	*ret_ptr = (void *)object;
	return 0;
}

static int arena_small_dealloc_uncached(
	struct gm_arena *arena, gm_stream_key key, unsigned class, uint64_t object, uint64_t asked)
{
	bool wake;

	gm_lock(&arena->lock);
	arena_small_put_back(arena, key, class, object);
	gm_arena_count(
		arena, gm_arena_cache_hot(arena), -(int64_t)asked, -(int64_t)gm_small_bytes(class));
	wake = gm_arena_arm(arena);
	if (arena->waiters)
		pthread_cond_broadcast(&arena->changed);
	gm_lock_drop(&arena->lock);
	gm_arena_wake(arena, wake);
	return 0;
}

/* Makes room when the bin or the whole cache is full. */
static void arena_small_make_room(
	struct gm_arena *arena, struct gm_tcache *cache, struct gm_tcache_set *set, unsigned class)
{
	bool wake;

	gm_lock(&arena->lock);
	arena_small_bin_flush(arena, cache, set, class, gm_tcache_limit(class) / 2);
	if (cache->bytes >= GM_TCACHE_BYTES) {
		for (unsigned i = 0; i <= GM_TCACHE_STREAMS; i++) {
			for (unsigned c = 0; cache->sets[i] && c < GM_SMALL_CLASSES; c++)
				arena_small_bin_flush(arena, cache, cache->sets[i], c,
					cache->sets[i]->bins[c].n / 2);
		}
	}
	gm_arena_small_fold(arena, cache);
	wake = gm_arena_arm(arena);
	if (arena->waiters)
		pthread_cond_broadcast(&arena->changed);
	gm_lock_drop(&arena->lock);
	gm_arena_wake(arena, wake);
}

/* Asks for a tick, because a cache begins to fill and none is due to look after it. */
static void arena_small_arm(struct gm_arena *arena)
{
	bool wake;

	gm_lock(&arena->lock);
	wake = gm_arena_arm(arena);
	gm_lock_drop(&arena->lock);
	gm_arena_wake(arena, wake);
}

int gm_arena_small_dealloc(
	struct gm_arena *arena, struct gm_small_span *span, uint64_t addr, gpumem_stream stream)
{
	struct gm_tcache_set *set = NULL;
	struct gm_tcache_bin *bin;
	struct gm_tcache *cache;
	_Atomic uint16_t *word;
	gm_stream_key key;
	uint64_t asked;
	unsigned class;
	bool start;

	word = gm_small_find(span, addr, &class, &start);
	if (!word)
		return GM_ARENA_E_FREED;
	if (!start)
		return atomic_load_explicit(word, memory_order_relaxed) ? GM_ARENA_E_INSIDE
									: GM_ARENA_E_FREED;
	asked = atomic_exchange_explicit(word, 0, memory_order_relaxed);
	if (!asked)
		return GM_ARENA_E_FREED;

	key = gm_arena_key(arena, stream);
	cache = gm_arena_cache(arena);
	if (!cache || !gm_tcache_enter(cache))
		return arena_small_dealloc_uncached(arena, key, class, addr, asked);
	if (!gm_arena_is_scarce(arena))
		set = key == GM_STREAM_DONE ? cache->sets[0]
					    : arena_small_set_for(arena, cache, key);
	if (!set) {
		gm_tcache_leave(cache);
		return arena_small_dealloc_uncached(arena, key, class, addr, asked);
	}

	if (cache->bytes == 0 && !atomic_load_explicit(&arena->armed, memory_order_relaxed))
		arena_small_arm(arena);
	bin = &set->bins[class];
	if (bin->n >= gm_tcache_limit(class) || cache->bytes >= GM_TCACHE_BYTES)
		arena_small_make_room(arena, cache, set, class);

	bin->entries[bin->n].object = addr;
	bin->entries[bin->n].asked = word;
	bin->n++;
	gm_arena_cache_count(
		cache, &cache->frees, -(int64_t)asked, -(int64_t)gm_small_bytes(class));
	cache->bytes += gm_small_bytes(class);
	gm_tcache_leave(cache);
	return 0;
}
