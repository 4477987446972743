/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hands out and takes back blocks of an arena; makes and frees arenas. A block above the small
 * sizes costs one uncontended lock each way: the heap finds a block in constant time, and a table
 * finds the block of a pointer.
 *
 * The lock protects the books only. The source, the backend and wake() must never be called with
 * the lock held.
 */
#include "autoconf.h"

#include "client/heap/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

#include "client/heap/arena_private.h"
#include "common/cancel.h"
#include "client/heap/arena_segment.h"
#include "common/bounds.h"

#define RESERVE_DEFAULT (UINT64_C(4) << 40)
#define RESERVE_MIN     (UINT64_C(64) << 20)

/* How long to sleep between two questions to the device, if there is nothing to do but wait. */
/* A call that would fail looks so often, at most, for what the device has finished with. */
#define LAST_LOOKS 8

/* ---- beginning and end */

static int arena_reserve(struct gm_arena *arena)
{
	const struct gm_arena_config *config = &arena->config;
	uint64_t bytes = config->reserve ? config->reserve : RESERVE_DEFAULT;
	void *addr;
	int r;

	if (config->regions)
		return config->ops->attach ? 0 : -EOPNOTSUPP;

	bytes &= ~(GM_CHUNK_MIN - 1);
	if (config->range) {
		arena->base = (uint64_t)(uintptr_t)config->range;
		arena->reserved = bytes;
		return 0;
	}
	for (;;) {
		r = config->ops->reserve(config->backend, bytes, &addr);
		if (r == 0)
			break;
		if (r != -ENOMEM || bytes / 2 < RESERVE_MIN)
			return r;
		bytes = bytes / 2 & ~(GM_CHUNK_MIN - 1);
	}

	arena->base = (uint64_t)(uintptr_t)addr;
	arena->reserved = bytes;
	return 0;
}

/* Frees the notes of the blocks that are still alive. */
static void arena_drop_notes(struct gm_arena *arena)
{
	struct gm_heap_slab *slab = NULL;
	struct gm_heap_block *blocks;
	unsigned n;

	while ((slab = gm_heap_slab(&arena->heap, slab, &blocks, &n))) {
		for (unsigned i = 0; i < n; i++)
			if (gm_arena_alive(arena, &blocks[i]))
				free(blocks[i].note);
	}
}

/* Frees an arena, which may be half-built. */
static void arena_drop(struct gm_arena *arena)
{
	const struct gm_arena_config *config = &arena->config;

	arena_drop_notes(arena);
	gm_arena_chunks_deinit(&arena->chunks);
	gm_small_deinit(&arena->small);
	gm_heap_deinit(&arena->heap);
	gm_pending_deinit(&arena->pending);
	gm_heap_ptrmap_deinit(&arena->blocks);
	if (arena->reserved && !config->range)
		config->ops->unreserve(config->backend, (void *)arena->base, arena->reserved);
	pthread_cond_destroy(&arena->changed);
	gm_lock_deinit(&arena->lock);
	free(arena);
}

int gm_arena_new(const struct gm_arena_config *config, struct gm_arena **ret_arena)
{
	struct gm_arena *arena = calloc(1, sizeof(*arena));
	uint64_t range;
	int r;

	if (!arena)
		return -ENOMEM;
	arena->config = *config;
	arena->streams = config->ops->record != NULL;
	gm_lock_init(&arena->lock, GM_LOCK_ARENA);
	pthread_cond_init(&arena->changed, NULL);
	gm_heap_init(&arena->heap);
	arena->heap.apart = config->regions;
	gm_heap_bins_init(&arena->clean, false);
	gm_small_init(&arena->small, &arena->blocks);

	r = arena_reserve(arena);
	range = config->regions ? GM_REGION_RANGE : arena->reserved;
	if (r == 0)
		r = gm_heap_ptrmap_init(&arena->blocks, arena->base, range, GM_ARENA_GRANULE_SHIFT);
	if (r == 0)
		r = gm_arena_chunks_init(&arena->chunks, arena->base, range);
	if (r == 0)
		r = gm_pending_init(&arena->pending);
	if (r == 0)
		r = gm_tcache_group_init(&arena->caches, gm_arena_small_drain);
	if (r < 0) {
		arena_drop(arena);
		return r;
	}
	*ret_arena = arena;
	return 0;
}

/* Waits for work that may still use freed memory. If no event can be recorded (the driver is gone,
 * a context has failed, a stream is being captured), nobody can know, and this does not wait. */
static void arena_await_device(struct gm_arena *arena)
{
	const struct gm_arena_config *config = &arena->config;
	struct gm_map_event *event;

	if (!arena->streams)
		return;
	gm_tcache_drain_all(&arena->caches, false);
	if (gm_pending_bytes(&arena->pending) == 0 ||
		config->ops->record(config->backend, &event) < 0)
		return;

	(void)gm_map_await(config->ops, config->backend, event, UINT64_MAX);
	config->ops->forget(config->backend, event);
}

bool gm_arena_free(struct gm_arena *arena)
{
	struct gm_map_event *events[GM_PENDING_EVENTS];
	struct gm_arena_chunk *list = NULL;
	unsigned n;
	bool gone;

	if (!arena)
		return true;

	arena_await_device(arena);
	gm_tcache_group_deinit(&arena->caches);
	if (gm_pending_poll_begin(&arena->pending, events, &n))
		for (unsigned i = 0; i < n; i++)
			arena->config.ops->forget(arena->config.backend, events[i]);

	for (struct gm_arena_chunk *chunk = arena->chunks.first; chunk; chunk = chunk->next) {
		chunk->kind = GM_ARENA_CHUNK_BUSY;
		LL_PREPEND2(list, chunk, list_next);
	}
	gm_arena_discard(arena, list);
	gone = arena->held == 0;
	arena_drop(arena);
	return gone;
}

/* ---- blocks */

int gm_arena_take(
	struct gm_arena *arena, const struct gm_arena_want *want, struct gm_heap_block **ret_block)
{
	if (want->key != GM_STREAM_DONE && want->key != GM_STREAM_ANY) {
		struct gm_pending_set *own = gm_pending_own(&arena->pending, want->key);

		if (own && own->bins.bytes >= want->bytes) {
			int r = gm_heap_alloc(
				&arena->heap, &own->bins, want->bytes, want->alignment, ret_block);

			if (r != GM_HEAP_E_NONE)
				return r;
		}
	}
	return gm_heap_alloc(&arena->heap, &arena->clean, want->bytes, want->alignment, ret_block);
}

/* Marks the chunks under a block that is being freed, for the tick. Allocating needs no mark: the
 * tick sees that the chunks are not free. */
static inline void arena_touch(struct gm_arena *arena, const struct gm_heap_block *block)
{
	uint64_t end = block->addr + block->bytes;

	for (struct gm_arena_chunk *chunk = gm_arena_chunks_at(&arena->chunks, block->addr);
		chunk && chunk->addr < end; chunk = chunk->next)
		chunk->touched = true;
}

/* Makes a block of the heap a live block. Call with the lock held. */
static inline void arena_hand_out(struct gm_arena *arena, struct gm_tcache *hot,
	struct gm_heap_block *block, uint64_t size, struct gm_arena_note *note)
{
	if (__builtin_expect(note != NULL, 0)) {
		note->serial = ++arena->notes;
		block->note = note;
	}
	block->stamp = size;
	gm_heap_ptrmap_set(&arena->blocks, block->addr, (uintptr_t)block);
	gm_arena_count(arena, hot, (int64_t)size, (int64_t)block->bytes);
}

static int arena_alloc_heap(struct gm_arena *arena, struct gm_tcache *hot, uint64_t size,
	struct gm_arena_want *want, struct gm_arena_note *note, void **ret_ptr)
{
	struct gm_heap_block *block;
	bool wake = false;
	int r;

	gm_lock(&arena->lock);
	r = gm_arena_take(arena, want, &block);
	if (r == GM_HEAP_E_NONE && __builtin_expect(gm_arena_tcache_any(hot), 0)) {
		wake = gm_arena_tcache_end(arena, hot);
		r = gm_arena_take(arena, want, &block);
	}
	if (r == GM_HEAP_E_NONE) {
		gm_lock_drop(&arena->lock);
		gm_arena_wake(arena, wake);
		wake = false;
		r = gm_arena_grow(arena, want, &block);
		if (r)
			return r;
		gm_lock(&arena->lock);
		arena->misses += want->asked;
	}

	if (r == 0) {
		arena_hand_out(arena, hot, block, size, note);
		*ret_ptr = (void *)block->addr;
	}
	gm_lock_drop(&arena->lock);
	gm_arena_wake(arena, wake);
	return r;
}

/* Takes what is free outside the caches. Returns whether there was a block, which has the note then. Call with the lock held. */
static bool arena_alloc_free(struct gm_arena *arena, bool small, uint64_t size,
	const struct gm_arena_want *want, struct gm_arena_note *note, void **ret_ptr)
{
	struct gm_heap_block *block;

	if (small && !note &&
		gm_arena_small_alloc_freed(arena, size, want->alignment, want->key, ret_ptr))
		return true;
	if (gm_arena_take(arena, want, &block))
		return false;
	arena_hand_out(arena, gm_arena_cache_hot(arena), block, size, note);
	*ret_ptr = (void *)block->addr;
	return true;
}

/*
 * The last look of a call that would fail. Since the heap emptied the caches, other threads may have freed memory to theirs,
 * or fetched more for them than they needed. While the arena is scarce they do neither, so once the caches are empty again,
 * everything that is free is here, or waits for the device. This looks for one piece that is large enough: pieces that have
 * come free in several chunks since the heap looked are not moved together any more. Returns as arena_alloc_free().
 */
static __attribute__((noinline, cold)) bool arena_alloc_last(struct gm_arena *arena, bool small,
	uint64_t size, const struct gm_arena_want *want, struct gm_arena_note *note, void **ret_ptr)
{
	bool found;
	GM_UNCANCELLED;

	gm_lock(&arena->lock);
	bool hopeless = want->bytes > arena->held;
	gm_lock_drop(&arena->lock);
	if (hopeless)
		return false;

	atomic_fetch_add(&arena->scarce, 1);
	gm_tcache_drain_all(&arena->caches, false);
	gm_lock(&arena->lock);
	found = arena_alloc_free(arena, small, size, want, note, ret_ptr);
	/* Other threads may be quicker to take what comes free. */
	for (unsigned i = 0; !found && i < LAST_LOOKS && gm_arena_order(arena, want); i++)
		found = arena_alloc_free(arena, small, size, want, note, ret_ptr);
	arena->misses += found && want->asked;
	gm_lock_drop(&arena->lock);
	atomic_fetch_sub(&arena->scarce, 1);
	return found;
}

int gm_arena_alloc(struct gm_arena *arena, uint64_t size, uint64_t alignment, gpumem_stream stream,
	unsigned flags, struct gm_heap_source_call *call, void **ret_ptr, gpumem_status *ret_status)
{
	const char *tag = call ? call->tag : NULL;
	struct gm_arena_note *note = NULL;
	gpumem_status status = GPUMEM_E_NO_MEMORY;
	uint64_t refused = UINT64_MAX;
	struct gm_arena_want want;
	struct gm_tcache *hot;
	gm_stream_key key;
	bool small;
	int r;

	if (size - 1 >= GM_LEASE_BYTES_MAX)
		return GM_ARENA_E_SIZE;
	if (alignment < GM_HEAP_UNIT) {
		if (alignment & (alignment - 1))
			return GM_ARENA_E_ALIGNMENT;
		alignment = GM_HEAP_UNIT;
	} else if ((alignment & (alignment - 1)) || alignment > GM_CHUNK_MAX) {
		return GM_ARENA_E_ALIGNMENT;
	}
	if (stream == GPUMEM_STREAM_DONE)
		return GM_ARENA_E_STREAM;

	key = gm_arena_key(arena, stream);
	small = size <= GM_SMALL_MAX && alignment <= GM_SMALL_MAX && !(flags & GM_ARENA_LISTED);
	if (small) {
		r = gm_arena_small_alloc(
			arena, call, size, alignment, key, flags, ret_ptr, &status);
		if (r == 0)
			return 0;
		/* Without a chunk for a slab, there is none for a larger block. */
		if (r == GM_ARENA_E_SOURCE)
			refused = GM_SMALL_SLAB_BYTES;
	}

	hot = gm_arena_cache_hot(arena);
	if (__builtin_expect(gm_arena_tcache_any(hot), 0) && !tag &&
		gm_arena_tcache_take(arena, hot, size, alignment, key, ret_ptr))
		return 0;

	want = (struct gm_arena_want){
		.refused = refused,
		.status = status,
		.bytes = size <= GM_ARENA_GRANULE ? GM_ARENA_GRANULE
						  : (size + GM_HEAP_UNIT - 1) & ~(GM_HEAP_UNIT - 1),
		.alignment = alignment,
		.stream = stream,
		.key = key,
		.flags = flags,
		.call = call,
	};
	if (__builtin_expect(tag != NULL, 0)) {
		note = calloc(1, sizeof(*note));
		if (!note)
			return -ENOMEM;
		strncpy(note->tag, tag, sizeof(note->tag) - 1);
	}

	r = arena_alloc_heap(arena, hot, size, &want, note, ret_ptr);
	if (__builtin_expect(r != 0, 0)) {
		if (!(flags & GM_ARENA_EASY) &&
			arena_alloc_last(arena, small, size, &want, note, ret_ptr))
			return 0;
		free(note);
	}
	if (r == GM_ARENA_E_SOURCE && ret_status)
		*ret_status = want.status;
	return r;
}

/* Says what is wrong with a pointer that is not the start of a live block of the heap. Call with
 * the lock held. */
static int arena_blame(struct gm_arena *arena, uint64_t addr)
{
	uintptr_t value;

	if (!gm_arena_holds(arena, (void *)addr))
		return GM_ARENA_E_FOREIGN;

	value = gm_heap_ptrmap_below(&arena->blocks, addr);
	if (value && !(value & GM_SMALL_MARK)) {
		struct gm_heap_block *block = (struct gm_heap_block *)(value & ~GM_ARENA_TCACHED);

		if (addr > block->addr && addr < block->addr + block->bytes)
			return value & GM_ARENA_TCACHED ? GM_ARENA_E_FREED : GM_ARENA_E_INSIDE;
		/* The block of addr's own granule may start above addr. */
		if (block->addr > addr && (block->addr & ~(GM_ARENA_GRANULE - 1)) > arena->base) {
			value = gm_heap_ptrmap_below(
				&arena->blocks, (block->addr & ~(GM_ARENA_GRANULE - 1)) - 1);
			block = (struct gm_heap_block *)value;
			if (value && !(value & (GM_SMALL_MARK | GM_ARENA_TCACHED)) &&
				addr < block->addr + block->bytes)
				return GM_ARENA_E_INSIDE;
		}
	}
	return GM_ARENA_E_FREED;
}

/* Finds the live block of the heap that starts there. Call with the lock held. */
static int arena_find(struct gm_arena *arena, uint64_t addr, struct gm_heap_block **ret_block)
{
	struct gm_heap_block *block =
		(struct gm_heap_block *)gm_heap_ptrmap_get(&arena->blocks, addr);

	if (!block || ((uintptr_t)block & (GM_SMALL_MARK | GM_ARENA_TCACHED)) ||
		block->addr != addr)
		return arena_blame(arena, addr);
	*ret_block = block;
	return 0;
}

bool gm_arena_release(struct gm_arena *arena, struct gm_heap_block *block, gm_stream_key key)
{
	arena_touch(arena, block);
	if (key == GM_STREAM_DONE) {
		block = gm_heap_release(&arena->heap, block, &arena->clean, 0);
		return block->bytes >= GM_CHUNK_MIN && gm_arena_arm(arena);
	}
	gm_heap_release(&arena->heap, block, &gm_pending_set(&arena->pending, key)->bins,
		gm_pending_stamp(&arena->pending));
	return gm_arena_arm(arena);
}

int gm_arena_dealloc(struct gm_arena *arena, void *ptr, gpumem_stream stream, uint32_t *ret_cookie)
{
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	uintptr_t value = gm_heap_ptrmap_get(&arena->blocks, addr);
	struct gm_heap_block *block;
	struct gm_tcache *hot;
	gm_stream_key key;
	bool wake = false;
	void *note;
	int r;

	if (value & GM_SMALL_MARK) {
		r = gm_arena_small_dealloc(
			arena, (struct gm_small_span *)(value & ~GM_SMALL_MARK), addr, stream);
		if (r == 0 && ret_cookie)
			*ret_cookie = 0;
		return r;
	}

	key = gm_arena_key(arena, stream);
	hot = gm_arena_cache_hot(arena);
	if ((hot && hot->crowded) || !gm_lock_try(&arena->lock)) {
		if (gm_arena_tcache_put(arena, addr, value, key)) {
			if (ret_cookie)
				*ret_cookie = 0;
			return 0;
		}
		gm_lock(&arena->lock);
	} else if (__builtin_expect(gm_arena_tcache_any(hot), 0)) {
		wake = gm_arena_tcache_end(arena, hot);
	}
	r = arena_find(arena, addr, &block);
	/* Another thread that frees the same block may be parking it. */
	if (r == 0 && !gm_heap_ptrmap_change(&arena->blocks, addr, (uintptr_t)block, 0))
		r = GM_ARENA_E_FREED;
	if (r) {
		gm_lock_drop(&arena->lock);
		gm_arena_wake(arena, wake);
		return r;
	}

	if (ret_cookie)
		*ret_cookie = block->cookie;
	note = block->note;
	gm_arena_count(arena, hot, -(int64_t)block->stamp, -(int64_t)block->bytes);
	wake |= gm_arena_release(arena, block, key);
	if (arena->waiters)
		pthread_cond_broadcast(&arena->changed);
	gm_lock_drop(&arena->lock);

	if (__builtin_expect(note != NULL, 0))
		free(note);
	gm_arena_wake(arena, wake);
	return 0;
}

bool gm_arena_holds(const struct gm_arena *arena, const void *ptr)
{
	uint64_t addr = (uint64_t)(uintptr_t)ptr;

	return arena->config.regions ? gm_arena_chunks_at(&arena->chunks, addr) != NULL
				     : gm_heap_ptrmap_holds(&arena->blocks, addr);
}

int gm_arena_size(struct gm_arena *arena, const void *ptr, uint64_t *ret_size)
{
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	uintptr_t value = gm_heap_ptrmap_get(&arena->blocks, addr);
	struct gm_heap_block *block;
	int r;

	if (value & GM_SMALL_MARK) {
		struct gm_small_span *span = (struct gm_small_span *)(value & ~GM_SMALL_MARK);
		unsigned class;
		bool start;
		_Atomic uint16_t *word = gm_small_find(span, addr, &class, &start);
		uint16_t asked = word ? atomic_load_explicit(word, memory_order_relaxed) : 0;

		if (!asked)
			return GM_ARENA_E_FREED;
		if (!start)
			return GM_ARENA_E_INSIDE;
		*ret_size = asked;
		return 0;
	}

	gm_lock(&arena->lock);
	r = arena_find(arena, addr, &block);
	if (r == 0)
		*ret_size = block->stamp;
	gm_lock_drop(&arena->lock);
	return r;
}

int gm_arena_cover(struct gm_arena *arena, const void *ptr, uint64_t bytes, uint64_t **ret_ids,
	size_t *ret_n, uint64_t *ret_offset)
{
	uint64_t addr = (uint64_t)(uintptr_t)ptr, end = addr + bytes;
	size_t n = 0, most = bytes / GM_CHUNK_MIN + 2;
	uint64_t *ids = calloc(most, sizeof(*ids));

	if (!ids)
		return -ENOMEM;
	gm_lock(&arena->lock);
	while (addr < end) {
		const struct gm_arena_chunk *chunk = gm_arena_chunks_at(&arena->chunks, addr);
		if (!chunk || chunk->kind == GM_ARENA_CHUNK_BUSY)
			break;
		if (n == 0)
			*ret_offset = addr - chunk->addr;
		ids[n++] = chunk->id;
		addr = chunk->addr + chunk->bytes;
	}
	gm_lock_drop(&arena->lock);
	if (addr < end) {
		free(ids);
		return -EPROTO;
	}

	*ret_ids = ids;
	*ret_n = n;
	return 0;
}

/* ---- the source */

int gm_arena_get(struct gm_arena *arena, struct gm_heap_source_call *call, uint64_t bytes,
	struct gm_heap_source_chunk **ret_chunks, size_t *ret_n, gpumem_status *ret_status)
{
	const struct gm_heap_source *source = &arena->config.source;
	gpumem_status status = source->get(source->ctx, call, bytes, ret_chunks, ret_n);

	if (status != GPUMEM_OK) {
		*ret_status = status;
		return GM_ARENA_E_SOURCE;
	}

	gm_lock(&arena->lock);
	for (size_t i = 0; i < *ret_n; i++)
		arena->held += (*ret_chunks)[i].bytes;
	gm_lock_drop(&arena->lock);
	return 0;
}

void gm_arena_put(struct gm_arena *arena, uint64_t id, uint64_t bytes)
{
	const struct gm_heap_source *source = &arena->config.source;

	source->put(source->ctx, &id, 1);
	gm_lock(&arena->lock);
	arena->held -= bytes;
	gm_lock_drop(&arena->lock);
}

/* ---- memory that waits for the device */

/* Records an event, if there is a need. If all events are in use, it does nothing or, with replace, replaces the newest
 * one. Returns the replaced event, which the caller forgets, or NULL. Call with the lock held; it is let go in between. */
static struct gm_map_event *arena_record(struct gm_arena *arena, bool replace)
{
	const struct gm_arena_config *config = &arena->config;
	struct gm_map_event *event = NULL;
	uint64_t epoch;

	if (!gm_pending_record_begin(&arena->pending, replace, &epoch))
		return NULL;

	gm_lock_drop(&arena->lock);
	if (config->ops->record(config->backend, &event) < 0)
		event = NULL;
	gm_lock(&arena->lock);
	/* Another thread may be asking about the event that will be replaced. */
	while (event && arena->pending.polling && gm_pending_full(&arena->pending))
		gm_arena_wait_change(arena);
	event = gm_pending_record_end(&arena->pending, &arena->small, epoch, event);
	pthread_cond_broadcast(&arena->changed);
	return event;
}

/* One round of gm_arena_pump(). *ret_again: there is room for another event now, and a need. */
static uint64_t arena_pump_once(struct gm_arena *arena, bool *ret_again)
{
	const struct gm_arena_config *config = &arena->config;
	struct gm_map_event *events[GM_PENDING_EVENTS];
	uint64_t epoch, bytes = 0;
	unsigned n, passed = 0;
	bool wake = false;

	gm_lock(&arena->lock);
	(void)arena_record(arena, false);
	if (gm_pending_poll_begin(&arena->pending, events, &n)) {
		gm_lock_drop(&arena->lock);
		while (passed < n && config->ops->passed(config->backend, events[passed]) == 1)
			passed++;
		gm_lock(&arena->lock);
		gm_pending_poll_end(&arena->pending, passed, &epoch);
		if (passed) {
			bytes = gm_pending_settle(
				&arena->pending, epoch, &arena->heap, &arena->clean, &arena->small);
			wake = gm_arena_arm(arena);
		}
		pthread_cond_broadcast(&arena->changed);
	}
	*ret_again = passed && arena->pending.open;
	gm_lock_drop(&arena->lock);

	for (unsigned i = 0; i < passed; i++)
		config->ops->forget(config->backend, events[i]);
	gm_arena_wake(arena, wake);
	return bytes;
}

uint64_t gm_arena_pump(struct gm_arena *arena)
{
	uint64_t bytes;
	bool again;

	if (!arena->streams)
		return 0;

	GM_UNCANCELLED;
	bytes = arena_pump_once(arena, &again);
	if (again)
		bytes += arena_pump_once(arena, &again);
	return bytes;
}

/* Waits until no other thread records or polls. They do so for the time of some driver calls only. */
static void arena_await_pump(struct gm_arena *arena)
{
	while (arena->pending.polling || arena->pending.recording)
		gm_arena_wait_change(arena);
}

void gm_arena_pump_all(struct gm_arena *arena, bool replace)
{
	struct gm_map_event *replaced;

	gm_lock_drop(&arena->lock);
	gm_arena_pump(arena);
	gm_lock(&arena->lock);
	arena_await_pump(arena);
	if (!arena->pending.open)
		return;

	/* Another thread recorded its event too early, or all events are in use. */
	replaced = arena_record(arena, replace);
	gm_lock_drop(&arena->lock);
	if (replaced)
		arena->config.ops->forget(arena->config.backend, replaced);
	gm_arena_pump(arena);
	gm_lock(&arena->lock);
	arena_await_pump(arena);
}
