/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of the heap that a thread keeps for its own next allocation of the same size.
 *
 * The heap has one lock. When several threads use it all the time, most of their time goes into
 * handing the lock from one to the other. So a thread that frees a block while another one has the
 * lock does not wait for it: it parks the block in its cache. If it next allocates as much, it takes
 * the block from there, and needs the lock for neither. A program whose threads do not get in each
 * other's way parks nothing, and its heap is packed as if this file did not exist.
 *
 * To everybody else a parked block is in use, except that the program does not have it: it is not
 * listed, and to free it again fails. In the ptrmap its value carries a bit. Whoever changes the
 * value first, a thread that parks the block or one that frees it with the lock held, has it.
 *
 * A block with a tag or a cookie is not parked, because whoever listed it must learn that it went.
 */
#include "autoconf.h"

#include "client/heap/arena_private.h"

/* Larger blocks are worth the wait: they merge with their neighbours. */
#define PARK_MAX UINT64_C(0x400000)
/* How many frees a thread goes on to park for, once it has found the lock taken. */
#define PARK_CROWDED 1000

bool gm_arena_park_empty(struct gm_arena *arena, struct gm_tcache *cache)
{
	bool wake = false;

	for (unsigned i = 0; i < cache->n_parked; i++) {
		struct gm_heap_block *block = cache->parked[i].block;

		gm_heap_ptrmap_set(&arena->blocks, block->addr, 0);
		wake |= gm_arena_release(arena, block, cache->parked[i].key);
	}
	atomic_store_explicit(&cache->n_parked, 0, memory_order_relaxed);
	cache->parked_bytes = 0;
	/* Otherwise the arena's sums would count what one thread frees and another allocates, again and again. */
	gm_arena_small_fold(arena, cache);
	if (arena->waiters)
		pthread_cond_broadcast(&arena->changed);
	return wake;
}

bool gm_arena_park_over(struct gm_arena *arena, struct gm_tcache *cache)
{
	bool wake;

	if (!gm_tcache_enter(cache))
		return false;
	wake = gm_arena_park_empty(arena, cache);
	gm_tcache_leave(cache);
	return wake;
}

struct park_walk {
	struct gm_arena *arena;
	bool idle_only, freed, left;
};

static void park_walk_step(struct gm_tcache *cache, void *ctx)
{
	struct park_walk *walk = ctx;
	uint64_t unparked = atomic_load_explicit(&cache->unparked, memory_order_relaxed);
	bool idle = unparked == cache->unparked_seen, wake;

	if (walk->idle_only)
		cache->unparked_seen = unparked;
	if (!cache->n_parked)
		return;
	if (walk->idle_only && !idle) {
		walk->left = true;
		return;
	}
	gm_lock(&walk->arena->lock);
	wake = gm_arena_park_empty(walk->arena, cache);
	gm_lock_drop(&walk->arena->lock);
	gm_arena_wake(walk->arena, wake);
	walk->freed = true;
}

bool gm_arena_park_drain(struct gm_arena *arena)
{
	struct park_walk walk = {.arena = arena};

	gm_tcache_each_busy(&arena->caches, park_walk_step, &walk);
	return walk.freed;
}

bool gm_arena_park_tick(struct gm_arena *arena)
{
	struct park_walk walk = {.arena = arena, .idle_only = true};

	gm_tcache_each_busy(&arena->caches, park_walk_step, &walk);
	return walk.left;
}

/* Whether a block may be parked, once gm_heap_ptrmap_change() has made it this thread's: then nobody changes what this reads, but for the
 * cookie. */
static bool park_may(const struct gm_heap_block *block, uint64_t addr)
{
	return block->addr == addr && block->bytes <= PARK_MAX && !block->note && !block->cookie;
}

/*
 * The same for a block that may be another thread's: if the program frees it twice at once, that thread may be changing what this
 * reads. So the answer is a guess, by which nobody uses the block; park_may() decides. Without the guess, a pointer into a
 * block would make that block look parked for a moment. Thread sanitizer must not look here: it cannot know that.
 */
static __attribute__((noinline, no_sanitize("thread"))) bool park_may_try(
	const volatile struct gm_heap_block *block, uint64_t addr, uint64_t *ret_bytes)
{
	*ret_bytes = block->bytes;
	return block->addr == addr && *ret_bytes <= PARK_MAX && !block->note && !block->cookie;
}

/* Makes room for a block, and sees to it that a tick comes, which looks after what is parked. The caller has made the cache
 * busy. */
static void park_prepare(struct gm_arena *arena, struct gm_tcache *cache, uint64_t bytes)
{
	bool wake = false;

	if (cache->n_parked == GM_TCACHE_PARKED ||
		cache->parked_bytes + bytes > GM_TCACHE_PARKED_BYTES) {
		gm_lock(&arena->lock);
		wake = gm_arena_park_empty(arena, cache);
		gm_lock_drop(&arena->lock);
	}
	wake |= gm_arena_arm(arena);
	gm_arena_wake(arena, wake);
}

bool gm_arena_park(struct gm_arena *arena, uint64_t addr, uintptr_t value, gm_stream_key key)
{
	struct gm_heap_block *block = (struct gm_heap_block *)value;
	struct gm_tcache *cache;
	uint64_t bytes;

	/* An arena over a range of its caller's has no caches. */
	if (!value || (value & GM_ARENA_PARKED) || arena->config.range)
		return false;
	cache = gm_arena_cache(arena);
	if (!cache || !gm_tcache_enter(cache))
		return false;
	cache->crowded = cache->crowded ? cache->crowded - 1 : PARK_CROWDED;
	/* Threads that wait for another thread's request look for memory in the heap. No allocation could take a block from here that any
	 * stream may still use. */
	if (arena->waiters || gm_arena_is_scarce(arena) || key == GM_STREAM_ANY ||
		!park_may_try(block, addr, &bytes)) {
		gm_tcache_leave(cache);
		return false;
	}

	park_prepare(arena, cache, bytes);
	if (!gm_heap_ptrmap_change(&arena->blocks, addr, value, value | GM_ARENA_PARKED)) {
		gm_tcache_leave(cache);
		return false;
	}
	/* Somebody may have listed it since. From here on gm_arena_set_cookie() does not. */
	if (!park_may(block, addr)) {
		gm_heap_ptrmap_set(&arena->blocks, addr, value);
		gm_tcache_leave(cache);
		return false;
	}
	cache->parked[cache->n_parked] = (struct gm_tcache_parked){.block = block, .key = key};
	atomic_store_explicit(&cache->n_parked, cache->n_parked + 1, memory_order_relaxed);
	cache->parked_bytes += block->bytes;
	gm_arena_cache_count(cache, &cache->frees, -(int64_t)block->stamp, -(int64_t)block->bytes);
	gm_tcache_leave(cache);
	return true;
}

/* Whether work on the stream of an allocation may use a parked block at once. */
static bool park_fits(
	const struct gm_tcache_parked *parked, uint64_t size, uint64_t alignment, gm_stream_key key)
{
	return parked->block->stamp == size && !(parked->block->addr & (alignment - 1)) &&
	       (parked->key == GM_STREAM_DONE || (parked->key == key && key != GM_STREAM_ANY));
}

/* Takes a parked block out of a busy cache. NULL: none fits. The last one that was parked is the likeliest. */
static struct gm_heap_block *park_take(
	struct gm_tcache *cache, uint64_t size, uint64_t alignment, gm_stream_key key)
{
	for (unsigned i = cache->n_parked; i-- > 0;) {
		struct gm_heap_block *block = cache->parked[i].block;

		if (!park_fits(&cache->parked[i], size, alignment, key))
			continue;
		cache->parked[i] = cache->parked[cache->n_parked - 1];
		atomic_store_explicit(&cache->n_parked, cache->n_parked - 1, memory_order_relaxed);
		cache->parked_bytes -= block->bytes;
		return block;
	}
	return NULL;
}

bool gm_arena_unpark(struct gm_arena *arena, struct gm_tcache *cache, uint64_t size,
	uint64_t alignment, gm_stream_key key, void **ret_ptr)
{
	struct gm_heap_block *block;

	if (!gm_tcache_enter(cache))
		return false;
	block = park_take(cache, size, alignment, key);
	if (block) {
		*ret_ptr = (void *)block->addr;
		gm_arena_cache_count(cache, &cache->allocs, (int64_t)size, (int64_t)block->bytes);
		gm_heap_ptrmap_set(&arena->blocks, block->addr, (uintptr_t)block);
		/* After that, so that whoever sees the number change also finds the block alive. */
		atomic_store_explicit(&cache->unparked, cache->unparked + 1, memory_order_release);
	}
	gm_tcache_leave(cache);
	return block;
}
