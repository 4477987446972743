/* SPDX-License-Identifier: Apache-2.0 */
/* An arena whose backend has streams: who may have a freed block at once, who must wait, and for
 * what. */
#include "autoconf.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "client/heap/arena_private.h"
#include "tests/tap.h"
#include "tests/unit/heap/arena_fixture.h"

static void setup_streams(void)
{
	setup_with(true, false);
}

static void teardown_streams(void)
{
	world_finish_all(&w);
	teardown();
}

static void *take_on(uint64_t size, gpumem_stream stream)
{
	return take_with(size, 0, stream);
}

static void use(unsigned stream)
{
	world_launch(&w, stream);
}

static void give_on(void *ptr, unsigned stream)
{
	ck_assert_int_eq(gm_arena_dealloc(arena, ptr, world_stream(stream), NULL), 0);
}

START_TEST(a_stream_gets_back_at_once_what_it_freed_and_nothing_is_recorded)
{
	static const uint64_t sizes[] = {500, 50 * KIB, 2 * MIB};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (unsigned s = 0; s < 3; s++) {
			void *first = take_on(sizes[i], world_stream(s));
			use(s);
			give_on(first, s);
			for (unsigned j = 0; j < 10; j++) {
				void *again = take_on(sizes[i], world_stream(s));
				ck_assert_ptr_eq(again, first);
				use(s);
				give_on(again, s);
			}
		}
	}
	ck_assert_uint_eq(w.orders, 0);
}
END_TEST

START_TEST(what_the_device_may_still_use_is_slack_until_its_work_is_done)
{
	void *ptr = take_on(4 * MIB, world_stream(1));
	struct gm_arena_stats s;

	use(1);
	give_on(ptr, 1);
	gm_arena_tick(arena, SECOND);
	s = stats();
	ck_assert_uint_eq(s.in_use + s.cached, 0);
	ck_assert_uint_eq(s.slack, s.held);
	ck_assert_uint_eq(s.pending, s.held);

	world_finish_all(&w);
	gm_arena_tick(arena, SECOND);
	s = stats();
	ck_assert_uint_eq(s.cached, s.held);
	ck_assert_uint_eq(s.slack + s.pending, 0);
}
END_TEST

START_TEST(reuse_on_the_default_stream_records_nothing)
{
	void *ptr = take_on(2 * MIB, world_stream(0));

	use(0);
	for (unsigned i = 0; i < 10; i++) {
		give_on(ptr, 0);
		ck_assert_ptr_eq(take_on(2 * MIB, world_stream(0)), ptr);
	}
	ck_assert_uint_eq(w.records, 0);
	ck_assert_uint_eq(w.queries, 0);
	ck_assert_uint_eq(w.gets, 1);
	give_on(ptr, 0);
}
END_TEST

START_TEST(another_stream_gets_it_only_when_the_event_has_passed)
{
	static const uint64_t sizes[] = {500, 50 * KIB, 2 * MIB};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		void *mine = take_on(sizes[i], world_stream(1)), *other;
		use(1);
		give_on(mine, 1);
		other = take_on(sizes[i], world_stream(2));
		ck_assert_ptr_ne(other, mine);
		ck_assert_int_eq(gm_arena_dealloc(arena, other, DONE, NULL), 0);
		other = take_on(sizes[i], ANY);
		ck_assert_ptr_ne(other, mine);
		ck_assert_int_eq(gm_arena_dealloc(arena, other, DONE, NULL), 0);
		world_finish(&w, 1);
		gm_arena_trim(arena, UINT64_MAX);
		ck_assert_uint_eq(w.granted, 0);
	}
}
END_TEST

START_TEST(one_event_serves_many_blocks)
{
	void *blocks[50];

	for (unsigned i = 0; i < 50; i++)
		blocks[i] = take_on(MIB, world_stream(i % 3));
	for (unsigned i = 0; i < 3; i++)
		use(i);
	for (unsigned i = 0; i < 50; i++)
		give_on(blocks[i], i % 3);
	ck_assert_uint_eq(w.records, 0);
	world_finish_all(&w);
	gm_arena_tick(arena, SECOND);
	ck_assert_uint_eq(w.records, 1);
	ck_assert_uint_eq(stats().pending, 0);
	uint64_t gets = w.gets;
	take_on(50 * MIB, world_stream(5));
	ck_assert_uint_eq(w.gets, gets);
}
END_TEST

START_TEST(only_blocks_of_one_stream_merge)
{
	void *a = take_on(2 * MIB, world_stream(1)), *b = take_on(2 * MIB, world_stream(2));
	void *c = take_on(2 * MIB, world_stream(1)), *d = take_on(2 * MIB, world_stream(1));

	use(1);
	use(2);
	give_on(a, 1);
	give_on(b, 2);
	give_on(c, 1);
	give_on(d, 1);
	uint64_t gets = w.gets;
	ck_assert_ptr_eq(take_on(4 * MIB, world_stream(1)), c);
	ck_assert_uint_eq(w.gets, gets);
	take_on(4 * MIB, world_stream(1));
	ck_assert_uint_eq(w.gets, gets + 1);
}
END_TEST

START_TEST(an_alloc_that_would_fail_orders_itself_behind_what_is_pending)
{
	uint8_t *a = take_on(32 * MIB, world_stream(1)), *b = take_on(32 * MIB, world_stream(2));
	void *c;

	w.capacity = w.granted;
	use(1);
	use(2);
	give_on(a, 1);
	give_on(b, 2);
	c = take_on(64 * MIB, world_stream(3));
	ck_assert_ptr_eq(c, a);
	ck_assert_uint_eq(w.orders, 1);
	ck_assert_uint_ge(w.behind[3][1], 1);
	ck_assert_uint_ge(w.behind[3][2], 1);
	give_on(c, 3);
}
END_TEST

START_TEST(a_small_alloc_that_would_fail_does_so_too)
{
	void *ptr, *a = take_on(16 * KIB, world_stream(1));

	w.capacity = w.granted;
	while (gm_arena_alloc(arena, 16 * KIB, 0, ANY, 0, NULL, &ptr, NULL) == 0)
		;
	use(1);
	give_on(a, 1);
	ck_assert_ptr_eq(take_on(16 * KIB, world_stream(3)), a);
	ck_assert_uint_eq(w.orders, 1);
	ck_assert_uint_ge(w.behind[3][1], 1);
	give_on(a, 3);
}
END_TEST

START_TEST(free_memory_between_pending_blocks_is_used_too_before_failing)
{
	uint8_t *a = take_on(16 * MIB, world_stream(1)), *b = take_on(16 * MIB, ANY);
	uint8_t *c = take_on(16 * MIB, world_stream(2));

	w.capacity = w.granted;
	use(1);
	use(2);
	give_on(a, 1);
	give(b);
	give_on(c, 2);
	ck_assert_ptr_eq(take_on(48 * MIB, world_stream(3)), a);
}
END_TEST

static void *tick_once(void *ctx)
{
	gm_arena_tick(arena, SECOND);
	return NULL;
}

/* The context is the stream. */
static void *take_64(void *ctx)
{
	return take_on(64 * MIB, ctx);
}

static bool somebody_waits(void)
{
	gm_lock(&arena->lock);
	bool waits = arena->waiters;
	gm_lock_drop(&arena->lock);
	return waits;
}

/* Another thread is recording an event for what was freed before. Meanwhile stream 1 is finished or, if freed is not
 * NULL, this block is freed on stream 2. Returns what a thread gets that allocates 64 MiB then. */
static void *take_while_recording(void *freed, gpumem_stream stream)
{
	pthread_t ticking, taking;
	void *ptr;

	w.hold_records = true;
	ck_assert_int_eq(pthread_create(&ticking, NULL, tick_once, NULL), 0);
	world_await_records(&w, 1);
	if (freed) {
		use(2);
		give_on(freed, 2);
	} else {
		world_finish(&w, 1);
	}
	ck_assert_int_eq(pthread_create(&taking, NULL, take_64, stream), 0);
	while (!somebody_waits())
		sched_yield();
	world_release_records(&w);
	ck_assert_int_eq(pthread_join(taking, &ptr), 0);
	ck_assert_int_eq(pthread_join(ticking, NULL), 0);
	return ptr;
}

START_TEST(what_is_freed_while_another_thread_records_is_used_before_failing)
{
	uint8_t *a = take_on(32 * MIB, world_stream(1)), *b = take_on(32 * MIB, world_stream(2));

	w.capacity = w.granted;
	use(1);
	give_on(a, 1);
	void *c = take_while_recording(b, world_stream(3));
	ck_assert_ptr_eq(c, a);
	ck_assert_uint_ge(w.behind[3][1], 1);
	ck_assert_uint_ge(w.behind[3][2], 1);
	give_on(c, 3);
}
END_TEST

START_TEST(what_comes_free_at_the_last_moment_is_used_together_with_what_the_source_has)
{
	const gpumem_stream streams[] = {world_stream(3), ANY};
	void *a = take_on(32 * MIB, world_stream(1));

	w.capacity = w.granted + 32 * MIB;
	use(1);
	give_on(a, 1);
	give(take_while_recording(NULL, streams[_i]));
}
END_TEST

START_TEST(a_call_that_must_not_wait_for_other_threads_fails_while_one_records)
{
	void *a = take_on(32 * MIB, world_stream(1)), *b;
	pthread_t ticking;

	w.capacity = w.granted;
	use(1);
	give_on(a, 1);
	w.hold_records = true;
	ck_assert_int_eq(pthread_create(&ticking, NULL, tick_once, NULL), 0);
	world_await_records(&w, 1);
	world_finish(&w, 1);
	ck_assert_int_eq(gm_arena_alloc(arena, 32 * MIB, 0, ANY, GM_ARENA_HERE, NULL, &b, NULL),
		GM_ARENA_E_SOURCE);
	world_release_records(&w);
	ck_assert_int_eq(pthread_join(ticking, NULL), 0);
}
END_TEST

/* Takes two blocks of 32 MiB, on streams 1 and 2. The source has no more. Small blocks that are freed on stream 4 keep
 * all events in use, except for so many. */
static void use_up_events(uint8_t *ret_blocks[2], unsigned spare)
{
	void *small[GM_PENDING_EVENTS];

	for (unsigned i = 0; i < 2; i++)
		ret_blocks[i] = take_on(32 * MIB, world_stream(1 + i));
	for (unsigned i = spare; i < GM_PENDING_EVENTS; i++)
		small[i] = take_on(100, world_stream(4));
	w.capacity = w.granted;
	for (unsigned i = spare; i < GM_PENDING_EVENTS; i++) {
		use(4);
		give_on(small[i], 4);
		gm_arena_trim(arena, 0);
	}
	ck_assert_uint_eq(w.events, GM_PENDING_EVENTS - spare);
}

static void use_and_give(uint8_t *const blocks[2])
{
	for (unsigned i = 0; i < 2; i++) {
		use(1 + i);
		give_on(blocks[i], 1 + i);
	}
}

/* The block is both blocks in one. Frees it, and shows that nothing waits for ever. */
static void require_both(void *block, uint8_t *const blocks[2])
{
	ck_assert_ptr_eq(block, blocks[0]);
	ck_assert_uint_ge(w.behind[3][1], 1);
	ck_assert_uint_ge(w.behind[3][2], 1);
	give_on(block, 3);
	world_finish_all(&w);
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(w.granted, 0);
	ck_assert_uint_eq(w.events, 0);
}

START_TEST(what_is_freed_after_the_last_event_that_is_kept_is_used_before_failing)
{
	uint8_t *blocks[2];

	use_up_events(blocks, 0);
	use_and_give(blocks);
	void *both = take_on(64 * MIB, world_stream(3));
	ck_assert_uint_eq(w.events, GM_PENDING_EVENTS);
	require_both(both, blocks);
}
END_TEST

/* While a stream is captured, the driver records no event. */
START_TEST(an_event_that_is_there_serves_if_no_other_can_be_recorded)
{
	uint8_t *blocks[2];
	void *small = take_on(100, world_stream(5));

	use_up_events(blocks, 1);
	use_and_give(blocks);
	gm_arena_trim(arena, 0);
	ck_assert_uint_eq(w.events, GM_PENDING_EVENTS);
	use(5);
	give_on(small, 5);
	gm_arena_trim(arena, 0);
	w.fail_record = 100;
	void *both = take_on(64 * MIB, world_stream(3));
	ck_assert_uint_lt(w.fail_record, 100);
	w.fail_record = 0;
	require_both(both, blocks);
}
END_TEST

/* The argument: whether the events that the other thread asks about have passed. */
START_TEST(an_event_is_not_replaced_while_another_thread_asks_about_it)
{
	uint8_t *blocks[2];
	pthread_t ticking, taking;
	void *both;

	use_up_events(blocks, 0);
	use_and_give(blocks);
	w.hold_records = true;
	ck_assert_int_eq(pthread_create(&taking, NULL, take_64, world_stream(3)), 0);
	world_await_records(&w, 1);
	w.hold_queries = true;
	ck_assert_int_eq(pthread_create(&ticking, NULL, tick_once, NULL), 0);
	world_await_queries(&w, 1);
	world_release_records(&w);
	while (!somebody_waits())
		sched_yield();
	ck_assert_uint_eq(w.events, GM_PENDING_EVENTS + 1);
	if (_i)
		world_finish(&w, 4);
	world_release_queries(&w);
	ck_assert_int_eq(pthread_join(taking, &both), 0);
	ck_assert_int_eq(pthread_join(ticking, NULL), 0);
	require_both(both, blocks);
}
END_TEST

START_TEST(an_alloc_for_any_stream_fails_rather_than_use_what_is_pending)
{
	gpumem_status status = GPUMEM_OK;
	void *ptr = take_on(32 * MIB, world_stream(1));

	w.capacity = w.granted;
	use(1);
	give_on(ptr, 1);
	ck_assert_int_eq(
		gm_arena_alloc(arena, 32 * MIB, 0, ANY, 0, NULL, &ptr, &status), GM_ARENA_E_SOURCE);
	ck_assert_int_eq(status, GPUMEM_E_NO_MEMORY);
	ck_assert_uint_eq(w.orders, 0);
	world_finish(&w, 1);
	ck_assert_int_eq(gm_arena_alloc(arena, 32 * MIB, 0, ANY, 0, NULL, &ptr, NULL), 0);
}
END_TEST

START_TEST(chunks_go_back_only_after_their_last_use_has_passed)
{
	void *ptr = take_on(8 * MIB, world_stream(1));

	use(1);
	give_on(ptr, 1);
	ck_assert_uint_eq(gm_arena_trim(arena, UINT64_MAX), 0);
	ck_assert_uint_eq(stats().pending, 8 * MIB);
	ck_assert_uint_ne(gm_arena_tick(arena, SECOND), GM_ARENA_NEVER);
	ck_assert_uint_eq(w.granted, 8 * MIB);
	/* The trim was asked for: what it could not take goes as soon as it can. */
	world_finish(&w, 1);
	gm_arena_tick(arena, 2 * SECOND);
	ck_assert_uint_eq(w.granted, 0);
}
END_TEST

START_TEST(a_trim_does_not_end_decay_for_what_is_freed_later)
{
	void *before = take_on(8 * MIB, world_stream(1)),
	     *after = take_on(4 * MIB, world_stream(2));
	uint64_t now = SECOND;

	use(1);
	give_on(before, 1);
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(w.granted, 12 * MIB);
	use(2);
	give_on(after, 2);
	/* What the trim was for goes as soon as it can. */
	world_finish(&w, 1);
	gm_arena_tick(arena, now);
	ck_assert_uint_eq(w.granted, 4 * MIB);
	ck_assert_uint_eq(stats().pending, 4 * MIB);
	/* The rest was freed later, and has its time. */
	world_finish(&w, 2);
	gm_arena_tick(arena, ++now);
	ck_assert_uint_eq(stats().pending, 0);
	ck_assert_uint_eq(w.granted, 4 * MIB);
	gm_arena_tick(arena, now + 10 * SECOND);
	ck_assert_uint_eq(w.granted, 0);
}
END_TEST

START_TEST(what_was_freed_for_any_stream_waits_for_all_of_them)
{
	void *ptr = take_on(2 * MIB, ANY);

	use(1);
	use(4);
	ck_assert_int_eq(gm_arena_dealloc(arena, ptr, ANY, NULL), 0);
	world_finish(&w, 1);
	ck_assert_ptr_ne(take_on(2 * MIB, ANY), ptr);
	world_finish(&w, 4);
	ck_assert_ptr_eq(take_on(2 * MIB, ANY), ptr);
}
END_TEST

START_TEST(a_recording_that_fails_is_tried_again)
{
	void *large = take_on(2 * MIB, world_stream(1)), *small = take_on(100, world_stream(1));

	use(1);
	give_on(large, 1);
	give_on(small, 1);
	world_finish(&w, 1);
	w.fail_record = 3;
	for (unsigned i = 0; i < 3; i++)
		gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(w.granted, 4 * MIB);
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(w.granted, 0);
}
END_TEST

START_TEST(many_streams_are_kept_apart_as_far_as_possible_and_never_mixed_up)
{
	/* More events than are kept, and each stream's blocks still only its own. */
	void *blocks[WORLD_STREAMS][20];

	for (unsigned round = 0; round < 20; round++) {
		for (unsigned s = 0; s < WORLD_STREAMS; s++) {
			blocks[s][round] = take_on(64 * KIB, world_stream(s));
			use(s);
		}
		for (unsigned s = 0; s < WORLD_STREAMS; s++)
			give_on(blocks[s][round], s);
		gm_arena_tick(arena, (round + 1) * SECOND);
	}
	ck_assert_uint_le(w.events, 8);
	for (unsigned s = 0; s < WORLD_STREAMS; s++)
		ck_assert_ptr_eq(blocks[s][19], blocks[s][0]);
	world_finish_all(&w);
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(w.granted, 0);
}
END_TEST

static void over(struct world *world, uint64_t addr, uint64_t bytes)
{
	for (unsigned i = 0; i < WORLD_STREAMS; i++)
		ck_assert_uint_eq(world->done[i], world->launched[i]);
}

/* Once somebody asks whether it has. */
static void *finish_at_last(void *ctx)
{
	uint64_t *before = ctx;
	bool asked = false;

	while (!asked) {
		sched_yield();
		pthread_mutex_lock(&w.lock);
		asked = w.queries != *before;
		pthread_mutex_unlock(&w.lock);
	}
	world_finish_all(&w);
	return NULL;
}

START_TEST(the_end_waits_for_what_may_still_use_freed_memory)
{
	static const uint64_t sizes[] = {500, 50 * KIB, 2 * MIB};
	uint64_t queries;
	pthread_t thread;

	void *ptr = take_on(sizes[_i], world_stream(1));
	use(1);
	give_on(ptr, 1);
	queries = w.queries;
	w.leaving = over;
	ck_assert_int_eq(pthread_create(&thread, NULL, finish_at_last, &queries), 0);
	gm_arena_free(arena);
	arena = NULL;
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

START_TEST(the_end_waits_for_nothing_that_nobody_freed_or_that_no_event_tells_of)
{
	void *ptr = take_on(2 * MIB, world_stream(1));

	use(1);
	if (_i) {
		give_on(ptr, 1);
		w.fail_record = 1000;
	}
	gm_arena_free(arena);
	arena = NULL;
}
END_TEST

/* ---- several threads, and too little memory */

#define THREADS 4
#define UNITS   128

/* Which launch of each stream used a MiB of the arena last. */
static uint64_t used[UNITS][WORLD_STREAMS];

/* Whether the stream may use the block now. If so, it uses it. */
static bool use_block(const uint8_t *block, uint64_t bytes, unsigned stream)
{
	uint64_t first = ((uintptr_t)block - w.base) / MIB;
	bool safe = first + bytes / MIB <= UNITS;

	pthread_mutex_lock(&w.lock);
	w.launched[stream]++;
	for (uint64_t unit = first; safe && unit < first + bytes / MIB; unit++) {
		for (unsigned i = 0; i < WORLD_STREAMS; i++)
			safe = safe && (i == stream || used[unit][i] <= w.done[i] ||
					       used[unit][i] <= w.behind[stream][i]);
		used[unit][stream] = w.launched[stream];
	}
	pthread_mutex_unlock(&w.lock);
	return safe;
}

/* Allocates, uses and frees on one stream, whose number is the context. Returns whether no block was in use. */
static void *churn(void *ctx)
{
	unsigned stream = (unsigned)(uintptr_t)ctx, seed = stream;
	bool safe = true;

	for (unsigned i = 0; i < 500 && safe; i++) {
		uint64_t bytes = (1 + (uint64_t)rand_r(&seed) % 24) * MIB;
		unsigned what = (unsigned)rand_r(&seed) % 8;
		void *block, *small = NULL;

		(void)gm_arena_alloc(arena, 100, 0, world_stream(stream), 0, NULL, &small, NULL);
		if (gm_arena_alloc(
			    arena, bytes, MIB, world_stream(stream), 0, NULL, &block, NULL) == 0) {
			safe = use_block(block, bytes, stream);
			gm_arena_dealloc(arena, block, what ? world_stream(stream) : ANY, NULL);
		}
		if (small)
			gm_arena_dealloc(arena, small, world_stream(stream), NULL);
		if (what == 1)
			world_finish(&w, stream);
		if (what == 2)
			gm_arena_trim(arena, 0);
		if (what == 3) {
			pthread_mutex_lock(&w.lock);
			w.fail_record = stream % 3;
			pthread_mutex_unlock(&w.lock);
		}
	}
	return safe ? ctx : NULL;
}

START_TEST(threads_in_need_of_memory_never_get_what_another_stream_may_use)
{
	pthread_t threads[THREADS];
	void *safe;

	w.capacity = 64 * MIB;
	memset(used, 0, sizeof(used));
	for (uintptr_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		ck_assert_int_eq(pthread_join(threads[i], &safe), 0);
		ck_assert_ptr_nonnull(safe);
	}
	w.fail_record = 0;
	world_finish_all(&w);
	gm_arena_trim(arena, UINT64_MAX);
	gm_arena_tick(arena, SECOND);
	ck_assert_uint_eq(stats().pending, 0);
	ck_assert_uint_eq(w.events, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("arena streams");
	TCase *tests = tcase_create("streams");

	tcase_add_checked_fixture(tests, setup_streams, teardown_streams);
	tcase_add_loop_test(tests, the_end_waits_for_what_may_still_use_freed_memory, 0, 3);
	tcase_add_loop_test(
		tests, the_end_waits_for_nothing_that_nobody_freed_or_that_no_event_tells_of, 0, 2);
	tcase_add_test(tests, a_stream_gets_back_at_once_what_it_freed_and_nothing_is_recorded);
	tcase_add_test(tests, what_the_device_may_still_use_is_slack_until_its_work_is_done);
	tcase_add_test(tests, reuse_on_the_default_stream_records_nothing);
	tcase_add_test(tests, another_stream_gets_it_only_when_the_event_has_passed);
	tcase_add_test(tests, one_event_serves_many_blocks);
	tcase_add_test(tests, only_blocks_of_one_stream_merge);
	tcase_add_test(tests, an_alloc_that_would_fail_orders_itself_behind_what_is_pending);
	tcase_add_test(tests, a_small_alloc_that_would_fail_does_so_too);
	tcase_add_test(tests, free_memory_between_pending_blocks_is_used_too_before_failing);
	tcase_add_test(tests, what_is_freed_while_another_thread_records_is_used_before_failing);
	tcase_add_loop_test(tests,
		what_comes_free_at_the_last_moment_is_used_together_with_what_the_source_has, 0, 2);
	tcase_add_test(tests, a_call_that_must_not_wait_for_other_threads_fails_while_one_records);
	tcase_add_test(
		tests, what_is_freed_after_the_last_event_that_is_kept_is_used_before_failing);
	tcase_add_test(tests, an_event_that_is_there_serves_if_no_other_can_be_recorded);
	tcase_add_loop_test(
		tests, an_event_is_not_replaced_while_another_thread_asks_about_it, 0, 2);
	tcase_add_test(tests, an_alloc_for_any_stream_fails_rather_than_use_what_is_pending);
	tcase_add_test(tests, chunks_go_back_only_after_their_last_use_has_passed);
	tcase_add_test(tests, a_trim_does_not_end_decay_for_what_is_freed_later);
	tcase_add_test(tests, what_was_freed_for_any_stream_waits_for_all_of_them);
	tcase_add_test(tests, a_recording_that_fails_is_tried_again);
	tcase_add_test(tests, many_streams_are_kept_apart_as_far_as_possible_and_never_mixed_up);
	tcase_add_test(tests, threads_in_need_of_memory_never_get_what_another_stream_may_use);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
