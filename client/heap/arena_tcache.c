/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of the heap that a thread keeps for its own next allocation of the same size.
 *
 * The heap has one lock. When several threads use it all the time, most of their time goes into
 * handing the lock from one to the other. So a thread that frees a block while another one has the
 * lock does not wait for it: it puts the block into its cache. If it next allocates as much, it takes
 * the block from there, and needs the lock for neither. A program whose threads do not get in each
 * other's way caches nothing, and its heap is packed as if this file did not exist.
 *
 * To everybody else a block in a thread's cache is in use, except that the program does not have it: it is not
 * listed, and to free it again fails. In the ptrmap its value carries a bit. Whoever changes the
 * value first, a thread that caches the block or one that frees it with the lock held, has it.
 *
 * A block with a tag or a cookie is not cached, because whoever listed it must learn that it went.
 */
#include "autoconf.h"

#include "client/heap/arena_private.h"

/* Larger blocks are worth the wait: they merge with their neighbours. */
#define PARK_MAX UINT64_C(0x400000)
/* How many frees a thread goes on to cache for, once it has found the lock taken. */
#define PARK_CROWDED 1000

bool gm_arena_tcache_empty(struct gm_arena *arena, struct gm_tcache *cache)
{
	bool wake = false;

	for (unsigned i = 0; i < cache->n_large; i++) {
		struct gm_heap_block *block = cache->large[i].block;

		gm_heap_ptrmap_set(&arena->blocks, block->addr, 0);
		wake |= gm_arena_release(arena, block, cache->large[i].key);
	}
	atomic_store_explicit(&cache->n_large, 0, memory_order_relaxed);
	cache->parked_bytes = 0;
	/* Otherwise the arena's sums would count what one thread frees and another allocates, again and again. */
	gm_arena_small_fold(arena, cache);
	if (arena->waiters)
		pthread_cond_broadcast(&arena->changed);
	return wake;
}

bool gm_arena_tcache_end(struct gm_arena *arena, struct gm_tcache *cache)
{
	bool wake;

	if (!gm_tcache_enter(cache))
		return false;
	wake = gm_arena_tcache_empty(arena, cache);
	gm_tcache_leave(cache);
	return wake;
}

struct tcache_walk {
	struct gm_arena *arena;
	bool idle_only, freed, left;
};

static void tcache_walk_step(struct gm_tcache *cache, void *ctx)
{
	struct tcache_walk *walk = ctx;
	uint64_t reused = atomic_load_explicit(&cache->reused, memory_order_relaxed);
	bool idle = reused == cache->reused_seen, wake;

	if (walk->idle_only)
		cache->reused_seen = reused;
	if (!cache->n_large)
		return;
	if (walk->idle_only && !idle) {
		walk->left = true;
		return;
	}
	gm_lock(&walk->arena->lock);
	wake = gm_arena_tcache_empty(walk->arena, cache);
	gm_lock_drop(&walk->arena->lock);
	gm_arena_wake(walk->arena, wake);
	walk->freed = true;
}

bool gm_arena_tcache_drain(struct gm_arena *arena)
{
	struct tcache_walk walk = {.arena = arena};

	gm_tcache_each_busy(&arena->caches, tcache_walk_step, &walk);
	return walk.freed;
}

bool gm_arena_tcache_tick(struct gm_arena *arena)
{
	struct tcache_walk walk = {.arena = arena, .idle_only = true};

	gm_tcache_each_busy(&arena->caches, tcache_walk_step, &walk);
	return walk.left;
}

/* Whether a block may be cached, once gm_heap_ptrmap_change() has made it this thread's: then nobody changes what this reads, but for the
 * cookie. */
static bool tcache_may(const struct gm_heap_block *block, uint64_t addr)
{
	return block->addr == addr && block->bytes <= PARK_MAX && !block->note && !block->cookie;
}

/*
 * The same for a block that may be another thread's: if the program frees it twice at once, that thread may be changing what this
 * reads. So the answer is a guess, by which nobody uses the block; park_may() decides. Without the guess, a pointer into a
 * block would make that block look cached for a moment. Thread sanitizer must not look here: it cannot know that.
 */
static __attribute__((noinline, no_sanitize("thread"))) bool tcache_may_try(
	const volatile struct gm_heap_block *block, uint64_t addr, uint64_t *ret_bytes)
{
	*ret_bytes = block->bytes;
	return block->addr == addr && *ret_bytes <= PARK_MAX && !block->note && !block->cookie;
}

/* Makes room for a block, and sees to it that a tick comes, which looks after what is cached. The caller has made the cache
 * busy. */
static void tcache_prepare(struct gm_arena *arena, struct gm_tcache *cache, uint64_t bytes)
{
	bool wake = false;

	if (cache->n_large == GM_TCACHE_LARGE ||
		cache->parked_bytes + bytes > GM_TCACHE_LARGE_BYTES) {
		gm_lock(&arena->lock);
		wake = gm_arena_tcache_empty(arena, cache);
		gm_lock_drop(&arena->lock);
	}
	wake |= gm_arena_arm(arena);
	gm_arena_wake(arena, wake);
}

bool gm_arena_tcache_put(struct gm_arena *arena, uint64_t addr, uintptr_t value, gm_stream_key key)
{
	struct gm_heap_block *block = (struct gm_heap_block *)value;
	struct gm_tcache *cache;
	uint64_t bytes;

	/* An arena over a range of its caller's has no caches. */
	if (!value || (value & GM_ARENA_TCACHED) || arena->config.range)
		return false;
	cache = gm_arena_cache(arena);
	if (!cache || !gm_tcache_enter(cache))
		return false;
	cache->crowded = cache->crowded ? cache->crowded - 1 : PARK_CROWDED;
	/* Threads that wait for another thread's request look for memory in the heap. No allocation could take a block from here that any
	 * stream may still use. */
	if (arena->waiters || gm_arena_is_scarce(arena) || key == GM_STREAM_ANY ||
		!tcache_may_try(block, addr, &bytes)) {
		gm_tcache_leave(cache);
		return false;
	}

	tcache_prepare(arena, cache, bytes);
	if (!gm_heap_ptrmap_change(&arena->blocks, addr, value, value | GM_ARENA_TCACHED)) {
		gm_tcache_leave(cache);
		return false;
	}
	/* Somebody may have listed it since. From here on gm_arena_set_cookie() does not. */
	if (!tcache_may(block, addr)) {
		gm_heap_ptrmap_set(&arena->blocks, addr, value);
		gm_tcache_leave(cache);
		return false;
	}
	cache->large[cache->n_large] = (struct gm_tcache_large){.block = block, .key = key};
	atomic_store_explicit(&cache->n_large, cache->n_large + 1, memory_order_relaxed);
	cache->parked_bytes += block->bytes;
	gm_arena_cache_count(cache, &cache->frees, -(int64_t)block->stamp, -(int64_t)block->bytes);
	gm_tcache_leave(cache);
	return true;
}

/* Whether work on the stream of an allocation may use a block in a thread's cache at once. */
static bool tcache_fits(
	const struct gm_tcache_large *large, uint64_t size, uint64_t alignment, gm_stream_key key)
{
	return large->block->stamp == size && !(large->block->addr & (alignment - 1)) &&
	       (large->key == GM_STREAM_DONE || (large->key == key && key != GM_STREAM_ANY));
}

/* Takes a block in a thread's cache out of a busy cache. NULL: none fits. The last one that was cached is the likeliest. */
static struct gm_heap_block *tcache_take(
	struct gm_tcache *cache, uint64_t size, uint64_t alignment, gm_stream_key key)
{
	for (unsigned i = cache->n_large; i-- > 0;) {
		struct gm_heap_block *block = cache->large[i].block;

		if (!tcache_fits(&cache->large[i], size, alignment, key))
			continue;
		cache->large[i] = cache->large[cache->n_large - 1];
		atomic_store_explicit(&cache->n_large, cache->n_large - 1, memory_order_relaxed);
		cache->parked_bytes -= block->bytes;
		return block;
	}
	return NULL;
}

bool gm_arena_tcache_take(struct gm_arena *arena, struct gm_tcache *cache, uint64_t size,
	uint64_t alignment, gm_stream_key key, void **ret_ptr)
{
	struct gm_heap_block *block;

	if (!gm_tcache_enter(cache))
		return false;
	block = tcache_take(cache, size, alignment, key);
	if (block) {
		*ret_ptr = (void *)block->addr;
		gm_arena_cache_count(cache, &cache->allocs, (int64_t)size, (int64_t)block->bytes);
		gm_heap_ptrmap_set(&arena->blocks, block->addr, (uintptr_t)block);
		/* After that, so that whoever sees the number change also finds the block alive. */
		atomic_store_explicit(&cache->reused, cache->reused + 1, memory_order_release);
	}
	gm_tcache_leave(cache);
	return block;
}
