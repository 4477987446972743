/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an arena gets larger. A block that does not fit goes where the least memory is missing. Free
 * chunks of the arena are moved there first, and the source gives the rest. Small needs are met in
 * steps of at most 1/32 of what is held, so a step stays a small part of the whole. A large need
 * gets what is missing and no more.
 *
 * The lock is not held while chunks are asked for, mapped or moved. Meanwhile a busy chunk keeps
 * the place, and the free memory beside it that the block will use is taken, too. Several threads
 * may grow the arena at once. If one thread's request brings more than that thread needs, another
 * whose need is covered by the rest waits for it; the others ask for themselves.
 *
 * An arena of regions cannot choose places. It gets a region for what is needed. Nothing merges
 * across regions, so small ones would waste memory at their borders; the steps are therefore up to
 * 1/4 of what is held. Before it fails, it gives back regions that are free but of the wrong size.
 *
 * This module must never fail if the memory that is here would do, once moved together or ordered
 * behind the device's work. That includes memory which another thread has in its hands for a moment,
 * for a growth of its own that may fail or to give it back to the source: before a call fails, it
 * waits for such a thread and looks again.
 */
#include "autoconf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "common/arith.h"
#include "common/cancel.h"
#include "client/heap/arena_private.h"
#include "client/heap/arena_segment.h"
#include "common/bounds.h"

#define STEP_MAX (UINT64_C(32) << 20) /* no step is larger */
/* Moving more chunks than this costs more than asking for a few large ones. */
#define MOVES_MAX 64
/* A call waits for the hands of other threads so often at most. */
#define PASSES_MAX 8

/* How hard to try. */
enum grow_stage {
	STAGE_STEP,  /* ask for a step */
	STAGE_EXACT, /* ask for what is missing, no more */
	STAGE_ALL,   /* empty all caches, and move whatever is free */
	STAGE_ORDER, /* let the stream wait for all work that uses freed memory */
	STAGE_FAIL,
};

enum {
	AGAIN = 100, /* memory came in, but the block does not fit yet */
};

/* ---- requests under way; the callers hold the lock */

static void grow_ask_begin(
	struct gm_arena *arena, struct gm_arena_ask *ask, uint64_t spare, bool slab)
{
	ask->serial = ++arena->next_ask;
	ask->spare = spare;
	ask->slab = slab;
	LL_PREPEND(arena->asks, ask);
}

static void grow_ask_end(struct gm_arena *arena, struct gm_arena_ask *ask)
{
	LL_DELETE(arena->asks, ask);
	pthread_cond_broadcast(&arena->changed);
}

/* Waits if a request under way brings enough for this need, too. *joined is the serial of the
 * request that this thread already counts on. */
static bool grow_ask_join(struct gm_arena *arena, uint64_t bytes, bool slab, uint64_t *joined)
{
	for (struct gm_arena_ask *ask = arena->asks; ask; ask = ask->next) {
		if (ask->serial != *joined) {
			if (ask->slab != slab || (!slab && ask->spare < bytes))
				continue;
			if (!slab)
				ask->spare -= bytes;
			*joined = ask->serial;
		}
		gm_arena_wait_change(arena);
		return true;
	}
	return false;
}

/* ---- memory in the hands of other threads; the callers hold the lock */

/* This thread ends its pass. It notes that, because its own pass is no reason for it to look again. */
static void grow_pass_end(struct gm_arena *arena, struct gm_arena_want *want)
{
	gm_arena_pass_end(arena);
	want->passed++;
}

/* Whether other threads had free memory in their hands since the call looked last. Waits until one
 * of them has put it back. */
static bool grow_pass_await(struct gm_arena *arena, struct gm_arena_want *want)
{
	while (arena->passing && arena->passed == want->passed)
		gm_arena_wait_change(arena);
	if (arena->passed == want->passed)
		return false;

	/* Another thread gave memory back to the source, so the source may grant it now. */
	if (arena->given != want->given)
		want->refused = UINT64_MAX;
	want->passed = arena->passed;
	want->given = arena->given;
	return true;
}

/* ---- growing */

static uint64_t grow_step_of(const struct gm_arena *arena)
{
	uint64_t part = arena->held / (arena->config.regions ? 4 : 32), step = GM_CHUNK_MIN;

	while (step < STEP_MAX && step * 2 <= part)
		step *= 2;
	return step;
}

/*
 * Whether to ask the source. A call of the program asks once: only for what the source would
 * probably give, or when nothing else is left to try, and after a refusal only for less. If not,
 * the status is that of the refusal.
 */
static bool grow_may_ask(struct gm_arena_want *want, enum grow_stage stage, uint64_t bytes)
{
	if (gm_round_up(bytes, GM_CHUNK_MIN) >= want->refused)
		return false;
	return stage >= STAGE_ALL || bytes <= want->room;
}

/* Remembers that the source refused so many bytes. A source that cannot be reached gives nothing at
 * all. */
static void grow_refused(struct gm_arena_want *want, uint64_t bytes)
{
	want->refused = want->status == GPUMEM_E_DISCONNECTED ? 0 : bytes;
}

/* How many chunks may be moved to where they are needed. */
static unsigned grow_moves_max(const struct gm_arena *arena, enum grow_stage stage)
{
	if (arena->config.range)
		return 0;
	return stage >= STAGE_ALL ? UINT32_MAX : MOVES_MAX;
}

/* One try to get a block. */
struct grow_try {
	struct gm_arena_growth g;
	struct gm_arena_ask ask; /* serial 0: nothing is asked for */
	uint64_t missing;        /* bytes that the block lacks, and free chunks cannot give */
	uint64_t more;           /* what is asked for beyond that: the rest of a step */
	int r, r_source;
};

/* Decides how much more than the block is asked for. Returns how much room that takes at the place. */
static uint64_t grow_measure(struct grow_try *try, const struct gm_arena_want *want,
	enum grow_stage stage, uint64_t *ret_spare)
{
	const struct gm_arena_place *place = &try->g.place;
	uint64_t step = grow_step_of(try->g.arena), room = place->room, most;

	try->missing = place->missing;
	*ret_spare = 0;
	if (stage == STAGE_STEP && !place->right && step > try->missing)
		try->more = gm_u64_min(step, place->room) - try->missing;
	if (try->missing + try->more > want->room)
		try->more = 0;
	if (!place->right) {
		most = try->missing + try->more;
		room = gm_u64_min(place->room, most + most / 32 + GM_CHUNK_MIN);
		*ret_spare = place->addr + try->missing - (place->start + want->bytes);
	}
	return room & ~(GM_CHUNK_MIN - 1);
}

/* Takes the place and the free chunks that move there, and says what others may count on. Call with the lock held. */
static void grow_take_place(struct grow_try *try, struct gm_arena_want *want, enum grow_stage stage)
{
	struct gm_arena *arena = try->g.arena;
	uint64_t spare, room = grow_measure(try, want, stage, &spare);

	try->r = gm_arena_growth_begin(&try->g, room);
	if (try->r == 0)
		try->missing = gm_arena_growth_choose(
			&try->g, try->missing, grow_moves_max(arena, stage), stage >= STAGE_ALL);
	if (try->r == 0 && try->missing && grow_may_ask(want, stage, try->missing + try->more))
		grow_ask_begin(arena, &try->ask, try->more + spare, false);
}

/* Fills the place. The source comes first: if it refuses, nothing is moved in vain. Call without the lock. */
static void grow_fill_place(struct grow_try *try, struct gm_arena_want *want)
{
	uint64_t bytes = try->missing + try->more;

	if (try->ask.serial) {
		want->asked = true;
		try->r_source = gm_arena_growth_fetch(&try->g, want->call, bytes, &want->status);
		if (try->r_source)
			grow_refused(want, gm_round_up(bytes, GM_CHUNK_MIN));
	} else if (try->missing) {
		try->r_source = GM_ARENA_E_SOURCE;
	}
	gm_arena_growth_move(&try->g, try->r_source == 0);
	gm_arena_growth_access(&try->g);
}

/* Hands the place to the heap, carves the block out of it, and wakes others. Call with the lock held. */
static int grow_use_place(
	struct grow_try *try, struct gm_arena_want *want, struct gm_heap_block **ret_block)
{
	struct gm_arena_growth *g = &try->g;
	struct gm_arena *arena = g->arena;
	struct gm_heap_block *block;
	int r = try->r;

	if (g->room)
		gm_arena_growth_end(g, &block);
	if (r == 0 && !g->bad && g->cursor - g->place.addr >= g->place.missing)
		r = gm_heap_carve(&arena->heap, block, g->place.start, want->bytes, ret_block);
	else if (r == 0)
		r = g->error ? g->error : try->r_source ? try->r_source : AGAIN;
	if (g->passing)
		grow_pass_end(arena, want);
	if (try->ask.serial)
		grow_ask_end(arena, &try->ask);
	else
		pthread_cond_broadcast(&arena->changed);
	return r;
}

/* Tries once to get a block. Call with the lock held; it is let go in between. 0: *ret_block is in
 * use. Otherwise AGAIN, GM_ARENA_E_SOURCE, GM_ARENA_E_SPACE or a negative errno. */
static int grow_once(struct gm_arena *arena, struct gm_arena_want *want, enum grow_stage stage,
	struct gm_heap_block **ret_block)
{
	struct grow_try try = {.g = {.arena = arena}};
	struct gm_arena_place *place = &try.g.place;

	if (!gm_arena_chunks_place(&arena->chunks, &arena->heap, &arena->clean, want->bytes,
		    want->alignment, place))
		return GM_ARENA_E_SPACE;
	if (!place->missing)
		return gm_heap_carve(
			&arena->heap, place->left, place->start, want->bytes, ret_block);

	grow_take_place(&try, want, stage);
	gm_lock_drop(&arena->lock);
	if (try.r == 0)
		grow_fill_place(&try, want);
	gm_lock(&arena->lock);
	int r = grow_use_place(&try, want, ret_block);
	if (try.g.bad) {
		gm_lock_drop(&arena->lock);
		gm_arena_discard(arena, try.g.bad);
		gm_lock(&arena->lock);
	}
	return r;
}

/* Gives back every region that is wholly free. Call with the lock held; it is let go in between.
 * Returns whether there was any. */
static bool grow_give_back(struct gm_arena *arena, struct gm_arena_want *want)
{
	struct gm_arena_chunk *list = gm_arena_chunks_free_list(&arena->chunks, &arena->clean);

	for (struct gm_arena_chunk *chunk = list; chunk; chunk = chunk->list_next)
		chunk->chosen = true;
	list = gm_arena_detach_slabs(arena, UINT64_MAX, gm_arena_detach(arena, list));
	if (!list)
		return false;
	want->passed++;
	return gm_arena_give_back(arena, list) > 0;
}

/* Like grow_once(), for an arena of regions. */
static int grow_region(struct gm_arena *arena, struct gm_arena_want *want, enum grow_stage stage,
	struct gm_heap_block **ret_block)
{
	struct gm_arena_chunk *list = NULL, *bad = NULL, *chunk;
	struct gm_heap_block *block, *fits = NULL;
	struct gm_arena_ask ask;
	uint64_t bytes = want->bytes, start = 0;
	int r;

	/* A region is aligned to GM_CHUNK_MIN and no more. */
	if (want->alignment > GM_CHUNK_MIN)
		bytes += want->alignment - GM_CHUNK_MIN;
	bytes = gm_round_up(bytes, GM_CHUNK_MIN);
	if (stage == STAGE_STEP && grow_step_of(arena) > bytes && grow_step_of(arena) <= want->room)
		bytes = grow_step_of(arena);
	/* The source may have room for this call once it has regions back. refused is 0 if the daemon
	 * is away: then nobody takes them. */
	if (stage == STAGE_ALL && want->refused && grow_give_back(arena, want))
		want->refused = UINT64_MAX;
	if (!grow_may_ask(want, stage, bytes))
		return GM_ARENA_E_SOURCE;

	grow_ask_begin(arena, &ask, bytes - want->bytes, false);
	gm_lock_drop(&arena->lock);
	want->asked = true;
	r = gm_arena_segment_fetch(arena, want->call, bytes, &list, &want->status);
	if (r == GM_ARENA_E_SOURCE)
		grow_refused(want, bytes);
	gm_lock(&arena->lock);
	while ((chunk = list)) {
		list = chunk->list_next;
		int added = gm_arena_segment_add(arena, chunk, false, &block);

		if (added < 0) {
			r = added;
			LL_PREPEND2(bad, chunk, list_next);
			continue;
		}
		start = gm_round_up(block->addr, want->alignment);
		if (start + want->bytes <= block->addr + block->bytes)
			fits = block;
	}

	if (fits) {
		start = gm_round_up(fits->addr, want->alignment);
		r = gm_heap_carve(&arena->heap, fits, start, want->bytes, ret_block);
	} else if (r == 0) {
		r = GM_ARENA_E_SPACE;
	}
	grow_ask_end(arena, &ask);
	if (bad) {
		gm_lock_drop(&arena->lock);
		gm_arena_segment_undo(arena, bad);
		gm_lock(&arena->lock);
	}
	return r;
}

/* How many bytes of freed memory other streams' work may still use. */
static uint64_t grow_pending_elsewhere(struct gm_arena *arena, gm_stream_key key)
{
	const struct gm_pending_set *own = gm_pending_own(&arena->pending, key);

	return gm_pending_bytes(&arena->pending) - (own ? own->bins.bytes + own->small_bytes : 0);
}

bool gm_arena_order(struct gm_arena *arena, const struct gm_arena_want *want)
{
	struct gm_pending *pending = &arena->pending;
	struct gm_map_event *events[GM_PENDING_EVENTS];
	struct gm_pending_set *set = NULL;
	uint64_t epoch, none, settled = pending->settled;
	bool gathered = false;
	unsigned n;
	int r;

	if (!arena->streams || gm_pending_bytes(pending) == 0)
		return false;
	if (want->key == GM_STREAM_ANY || want->key == GM_STREAM_DONE) {
		if (!(want->flags & GM_ARENA_HERE))
			gm_arena_pump_all(arena, false);
		return pending->settled != settled;
	}

	gm_arena_pump_all(arena, true);
	if (gm_pending_poll_begin(pending, events, &n)) {
		epoch = pending->events[n - 1].epoch;
		gm_lock_drop(&arena->lock);
		r = arena->config.ops->order(arena->config.backend, want->stream, events[n - 1]);
		gm_lock(&arena->lock);
		if (r == 0) {
			uint64_t before = grow_pending_elsewhere(arena, want->key);

			set = gm_pending_gather(
				pending, want->key, epoch, &arena->heap, &arena->small);
			gathered = grow_pending_elsewhere(arena, want->key) != before;
		}
		gm_pending_poll_end(pending, 0, &none);
		pthread_cond_broadcast(&arena->changed);
	}

	if (set && !gm_heap_fits(&set->bins, want->bytes, want->alignment) &&
		set->bins.bytes + arena->clean.bytes >= want->bytes) {
		/* Memory that is free for everybody may lie between the stream's. */
		struct gm_heap_block *block;

		while ((block = gm_heap_walk(&arena->clean, GM_HEAP_UNIT, NULL)))
			gm_heap_rebin(&arena->heap, block, &set->bins, gm_pending_stamp(pending));
	}
	return gathered || pending->settled != settled;
}

/*
 * Asks the source for a whole block that is larger than the source could ever give, so that its
 * refusal says why. Nothing is prepared for such a block: the tables alone would cost more than all
 * other blocks together. 0: the source gave it after all, because what is known here is out of
 * date. Then it goes back, and the caller grows as usual.
 */
static int grow_hopeless(struct gm_arena *arena, struct gm_arena_want *want, uint64_t bytes)
{
	struct gm_heap_source_chunk *chunks;
	size_t n;
	int r = gm_arena_get(arena, want->call, bytes, &chunks, &n, &want->status);

	want->asked = true;
	if (r)
		return r;
	for (size_t i = 0; i < n; i++) {
		if (chunks[i].fd >= 0)
			close(chunks[i].fd);
		gm_arena_put(arena, chunks[i].id, chunks[i].bytes);
	}
	free(chunks);
	return 0;
}

/* Frees the blocks that threads cached since the call began. Returns whether there were any. Call with the lock held;
 * the lock is dropped in between. */
static bool grow_empty_caches(struct gm_arena *arena)
{
	gm_lock_drop(&arena->lock);
	bool any = gm_arena_tcache_drain(arena);
	gm_lock(&arena->lock);
	return any;
}

/* One call of gm_arena_grow(). */
struct grow_call {
	struct gm_arena *arena;
	struct gm_arena_want *want;
	enum grow_stage stage;
	uint64_t joined; /* the last request of another thread that was waited for */
	unsigned again, passes, settles; /* how often each was done */
	bool pumped;                     /* freed memory was looked through */
	bool here, easy;                 /* the flags of the want */
	int failed;                      /* why the last stage did */
};

/* Before a call fails, waits for memory that other threads have in their hands. Returns whether it is worth another
 * look. */
static bool grow_may_retry(struct grow_call *call)
{
	if (!call->easy && call->passes < PASSES_MAX && grow_empty_caches(call->arena))
		call->passes++;
	else if (call->here || call->passes++ == PASSES_MAX ||
		 !grow_pass_await(call->arena, call->want))
		return false;
	call->stage = STAGE_ALL;
	return true;
}

/* Looks once through the memory that streams freed. Returns whether it did. */
static bool grow_pump(struct grow_call *call)
{
	struct gm_arena *arena = call->arena;

	if (call->pumped || !arena->streams || !gm_pending_bytes(&arena->pending))
		return false;
	call->pumped = true;
	gm_lock_drop(&arena->lock);
	gm_arena_pump(arena);
	gm_lock(&arena->lock);
	return true;
}

/* Lets the stream wait for the work that uses freed memory. */
static void grow_order(struct grow_call *call)
{
	uint64_t settled = call->arena->pending.settled;

	(void)gm_arena_order(call->arena, call->want);
	call->stage = STAGE_FAIL;
	/* The device may have freed enough in between, together with what the source has. */
	if (call->arena->pending.settled != settled && call->settles++ < PASSES_MAX)
		call->stage = STAGE_ALL;
}

/* Goes to the next stage, because the last one failed. */
static void grow_try_harder(struct grow_call *call)
{
	struct gm_arena *arena = call->arena;

	call->stage++;
	if (call->stage != STAGE_ALL)
		return;
	if (call->easy) {
		call->stage = STAGE_FAIL;
		return;
	}
	call->pumped = false;
	gm_lock_drop(&arena->lock);
	gm_tcache_drain_all(&arena->caches, false);
	gm_lock(&arena->lock);
}

/* The heap has no such block: does the next thing that may bring one. Call with the lock held; it is let go in
 * between. 0: *ret_block is in use. AGAIN: the heap may have one now. Otherwise the call fails. */
static int grow_step(struct grow_call *call, struct gm_heap_block **ret_block)
{
	struct gm_arena *arena = call->arena;
	struct gm_arena_want *want = call->want;

	if (call->stage == STAGE_FAIL)
		return grow_may_retry(call) ? AGAIN : call->failed;
	if (call->stage == STAGE_STEP && !call->here &&
		grow_ask_join(arena, want->bytes, false, &call->joined))
		return AGAIN;
	if (grow_pump(call))
		return AGAIN;
	if (call->stage == STAGE_ORDER) {
		grow_order(call);
		return AGAIN;
	}

	int r = arena->config.regions ? grow_region(arena, want, call->stage, ret_block)
				      : grow_once(arena, want, call->stage, ret_block);
	if (r == 0 || (r == AGAIN && ++call->again < 8))
		return r;
	call->failed = r == AGAIN ? GM_ARENA_E_SPACE : r;
	grow_try_harder(call);
	return AGAIN;
}

int gm_arena_grow(
	struct gm_arena *arena, struct gm_arena_want *want, struct gm_heap_block **ret_block)
{
	const struct gm_heap_source *source = &arena->config.source;
	uint64_t whole = gm_round_up(want->bytes, GM_CHUNK_MIN);
	struct grow_call call = {
		.arena = arena,
		.want = want,
		.here = want->flags & GM_ARENA_HERE,
		.easy = want->flags & GM_ARENA_EASY,
		.failed = GM_ARENA_E_SPACE,
	};
	int r;
	GM_UNCANCELLED;

	if (source->most && whole > source->most(source->ctx)) {
		r = grow_hopeless(arena, want, whole);
		if (r)
			return r;
	}

	/* Before anybody else is asked for memory. */
	if (!call.easy)
		(void)gm_arena_tcache_drain(arena);
	want->room = source->room ? source->room(source->ctx) : UINT64_MAX;
	gm_lock(&arena->lock);
	want->passed = arena->passed;
	want->given = arena->given;
	do {
		r = gm_arena_take(arena, want, ret_block);
		if (r == GM_HEAP_E_NONE)
			r = grow_step(&call, ret_block);
	} while (r == AGAIN);
	gm_lock_drop(&arena->lock);
	return r;
}

/* Like gm_arena_grow_small(), for an arena of regions. */
static int grow_small_region(struct gm_arena *arena, struct gm_heap_source_call *call, bool here,
	bool *ret_asked, gpumem_status *ret_status)
{
	struct gm_arena_chunk *list = NULL, *bad = NULL, *chunk;
	struct gm_arena_ask ask;
	uint64_t joined = 0;
	bool slab = false;
	int r;

	gm_lock(&arena->lock);
	if (arena->odd_source || (!here && grow_ask_join(arena, 0, true, &joined))) {
		r = arena->odd_source ? GM_ARENA_E_SPACE : 0;
		gm_lock_drop(&arena->lock);
		return r;
	}
	grow_ask_begin(arena, &ask, 0, true);
	gm_lock_drop(&arena->lock);
	*ret_asked = true;
	r = gm_arena_segment_fetch(arena, call, GM_SMALL_SLAB_BYTES, &list, ret_status);
	gm_lock(&arena->lock);
	while ((chunk = list)) {
		list = chunk->list_next;
		bool fits = chunk->bytes == GM_SMALL_SLAB_BYTES;
		int added = gm_arena_segment_add(arena, chunk, fits, NULL);

		slab = slab || (fits && added == 0);
		if (added < 0) {
			r = added;
			LL_PREPEND2(bad, chunk, list_next);
		}
	}
	if (r == 0 && !slab) {
		/* No chunk of a slab's size came. What came is in the heap, and asking again would
		 * bring more of that. */
		arena->odd_source = true;
		r = GM_ARENA_E_SPACE;
	}
	grow_ask_end(arena, &ask);
	gm_lock_drop(&arena->lock);
	gm_arena_segment_undo(arena, bad);
	return r;
}

int gm_arena_grow_small(struct gm_arena *arena, struct gm_heap_source_call *call, bool here,
	bool *ret_asked, gpumem_status *ret_status)
{
	struct gm_arena_growth g = {.arena = arena};
	struct gm_arena_ask ask;
	struct gm_arena_chunk *chunk;
	uint64_t joined = 0, addr, missing;
	bool odd;
	int r;
	GM_UNCANCELLED;

	if (arena->config.regions)
		return grow_small_region(arena, call, here, ret_asked, ret_status);
	gm_lock(&arena->lock);
	if (!here && grow_ask_join(arena, 0, true, &joined)) {
		gm_lock_drop(&arena->lock);
		return 0;
	}
	if (!gm_arena_chunks_place_high(&arena->chunks, GM_SMALL_SLAB_BYTES, &addr)) {
		gm_lock_drop(&arena->lock);
		return GM_ARENA_E_SPACE;
	}
	g.place.addr = addr;
	g.place.missing = g.place.room = GM_SMALL_SLAB_BYTES;
	r = gm_arena_growth_begin(&g, GM_SMALL_SLAB_BYTES);
	if (r < 0) {
		gm_lock_drop(&arena->lock);
		return r;
	}
	missing = gm_arena_growth_choose(&g, GM_SMALL_SLAB_BYTES, 1, false);
	odd = arena->odd_source;
	grow_ask_begin(arena, &ask, 0, true);
	gm_lock_drop(&arena->lock);

	gm_arena_growth_move(&g, true);
	if (missing && !odd) {
		*ret_asked = true;
		r = gm_arena_growth_fetch(&g, call, GM_SMALL_SLAB_BYTES, ret_status);
		odd = r == 0 && !g.placed && !g.error;
	}
	gm_arena_growth_access(&g);

	gm_lock(&arena->lock);
	gm_arena_chunks_remove(&arena->chunks, g.room);
	free(g.room);
	for (chunk = g.placed ? g.placed : g.bad; chunk; chunk = chunk->list_next) {
		chunk->kind = GM_ARENA_CHUNK_BUSY;
		gm_arena_chunks_insert(&arena->chunks, chunk);
	}
	chunk = g.placed;
	if (chunk && gm_small_add(&arena->small, chunk->addr) == 0) {
		chunk->kind = GM_ARENA_CHUNK_SLAB;
		chunk->touched = true;
	} else if (chunk) {
		r = -ENOMEM;
		g.bad = chunk;
	} else if (r == 0) {
		/* No chunk of a slab's size came. What came is in the heap, and asking again would
		 * bring more of that. */
		arena->odd_source = odd;
		r = g.error ? g.error : GM_ARENA_E_SPACE;
	}
	if (g.passing)
		gm_arena_pass_end(arena);
	grow_ask_end(arena, &ask);
	gm_lock_drop(&arena->lock);
	gm_arena_discard(arena, g.bad);
	return r;
}
