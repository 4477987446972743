/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists the live blocks of an arena. The heap's own descriptors are the list. Each step looks at a
 * bounded number of them, so a thread that allocates meanwhile waits for no more than that, and
 * listing costs it nothing else.
 *
 * Small objects that threads may cache are not listed. This module calls neither the source nor the
 * backend.
 */
#include "autoconf.h"

#include <string.h>

#include "client/heap/arena_private.h"

static uint64_t arena_list_serial(const struct gm_heap_block *block)
{
	const struct gm_arena_note *note = block->note;

	return note ? note->serial : 0;
}

static void arena_list_describe(const struct gm_heap_block *block, struct gm_arena_entry *ret)
{
	const struct gm_arena_note *note = block->note;

	ret->ptr = (void *)block->addr;
	ret->size = block->stamp;
	ret->serial = arena_list_serial(block);
	if (note)
		memcpy(ret->tag, note->tag, sizeof(ret->tag));
	else
		ret->tag[0] = '\0';
}

size_t gm_arena_unlisted(struct gm_arena *arena, uint64_t min_bytes, struct gm_arena_walk *walk,
	struct gm_arena_entry ret_entries[GM_ARENA_ENTRIES])
{
	struct gm_heap_block *blocks;
	size_t found = 0;
	unsigned n = 0;

	gm_lock(&arena->lock);
	walk->at = gm_heap_slab(&arena->heap, walk->at, &blocks, &n);
	for (unsigned i = 0; i < n; i++)
		/* The size first, because it rules out most blocks. */
		if (blocks[i].bytes >= min_bytes && gm_arena_alive(arena, &blocks[i]) &&
			blocks[i].stamp >= min_bytes && !blocks[i].cookie)
			arena_list_describe(&blocks[i], &ret_entries[found++]);
	gm_lock_drop(&arena->lock);
	walk->over = !walk->at;
	return found;
}

/* Call with the lock held. */
static struct gm_heap_block *arena_list_find(struct gm_arena *arena, const void *ptr)
{
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	uintptr_t value = gm_heap_ptrmap_get(&arena->blocks, addr);
	struct gm_heap_block *block = (struct gm_heap_block *)value;

	return block && !(value & (GM_SMALL_MARK | GM_ARENA_TCACHED)) && block->addr == addr ? block
											     : NULL;
}

int gm_arena_set_cookie(struct gm_arena *arena, const struct gm_arena_entry *entry, uint32_t cookie)
{
	int r = GM_ARENA_E_FREED;

	gm_lock(&arena->lock);
	struct gm_heap_block *block = arena_list_find(arena, entry->ptr);
	/* If a new block has the same address and size, and neither has a tag, it is as good as the
	 * old one. */
	if (block && block->stamp == entry->size && arena_list_serial(block) == entry->serial &&
		!block->cookie) {
		/* A thread that caches the block changes its value in the ptrmap, then looks for a cookie. Either it sees
		 * this one, or its change is seen here. */
		atomic_store(&block->cookie, cookie);
		atomic_thread_fence(memory_order_seq_cst);
		if (gm_arena_alive(arena, block))
			r = 0;
		else
			atomic_store(&block->cookie, 0);
	}
	gm_lock_drop(&arena->lock);
	return r;
}

int gm_arena_describe(struct gm_arena *arena, void *ptr, struct gm_arena_entry *ret_entry)
{
	gm_lock(&arena->lock);
	const struct gm_heap_block *block = arena_list_find(arena, ptr);
	if (block)
		arena_list_describe(block, ret_entry);
	gm_lock_drop(&arena->lock);
	return block ? 0 : GM_ARENA_E_FREED;
}

int gm_arena_swap_cookie(struct gm_arena *arena, void *ptr, uint32_t cookie, uint32_t *ret_old)
{
	gm_lock(&arena->lock);
	struct gm_heap_block *block = arena_list_find(arena, ptr);
	if (block) {
		*ret_old = block->cookie;
		block->cookie = cookie;
	}
	gm_lock_drop(&arena->lock);
	return block ? 0 : GM_ARENA_E_FREED;
}

static void arena_list_add_unparked(struct gm_tcache *cache, void *sum)
{
	*(uint64_t *)sum += atomic_load_explicit(&cache->reused, memory_order_acquire);
}

uint64_t gm_arena_changes(struct gm_arena *arena)
{
	uint64_t changes;

	/* In this order: a cache that is drained in between is missed, and makes the next number another one. */
	gm_lock(&arena->lock);
	changes = arena->allocs + arena->frees;
	gm_lock_drop(&arena->lock);
	gm_tcache_each(&arena->caches, arena_list_add_unparked, &changes);
	return changes;
}
