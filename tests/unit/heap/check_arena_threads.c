/* SPDX-License-Identifier: Apache-2.0 */
/* Many threads in one arena: one grows while others need memory, frees by others, frees at once. */
#include "autoconf.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "client/heap/arena_private.h"
#include "tests/tap.h"
#include "tests/unit/heap/arena_fixture.h"

static void *alloc_one(void *ctx)
{
	void *ptr = NULL;
	int r = gm_arena_alloc(arena, *(uint64_t *)ctx, 0, ANY, 0, NULL, &ptr, NULL);
	return r ? NULL : ptr;
}

START_TEST(threads_that_grow_at_once_ask_for_little_more_than_they_need)
{
	pthread_t threads[16];
	uint64_t size = 64 * KIB;
	void *ptr;

	w.hold_gets = true;
	for (unsigned i = 0; i < 16; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, alloc_one, &size), 0);
	world_await_gets(&w, 1);
	world_release_gets(&w);
	for (unsigned i = 0; i < 16; i++) {
		ck_assert_int_eq(pthread_join(threads[i], &ptr), 0);
		ck_assert_ptr_nonnull(ptr);
	}
	/* All of it fits one chunk. */
	ck_assert_uint_eq(w.granted, 2 * MIB);
}
END_TEST

START_TEST(a_large_request_under_way_does_not_keep_others_waiting)
{
	uint64_t size = 512 * MIB;
	pthread_t thread;
	void *ptr;

	void *block = take(MIB + MIB / 2);
	w.hold_gets = true;
	ck_assert_int_eq(pthread_create(&thread, NULL, alloc_one, &size), 0);
	world_await_gets(&w, 1);
	/* What is free here, and what others free, is used meanwhile. */
	give(block);
	give(take(MIB));
	world_release_gets(&w);
	ck_assert_int_eq(pthread_join(thread, &ptr), 0);
	ck_assert_ptr_nonnull(ptr);
	give(ptr);
}
END_TEST

START_TEST(a_local_free_wakes_a_thread_that_waits_for_anothers_request)
{
	uint64_t half = MIB;
	pthread_t first, second;
	void *ptr, *block = take(2 * MIB);

	w.hold_gets = true;
	ck_assert_int_eq(pthread_create(&first, NULL, alloc_one, &half), 0);
	world_await_gets(&w, 1);
	/* This one counts on the other half of what the first one gets. */
	ck_assert_int_eq(pthread_create(&second, NULL, alloc_one, &half), 0);
	give(block);
	ck_assert_int_eq(pthread_join(second, &ptr), 0);
	ck_assert_ptr_nonnull(ptr);
	ck_assert_uint_eq(w.gets, 2);
	world_release_gets(&w);
	ck_assert_int_eq(pthread_join(first, &ptr), 0);
	ck_assert_ptr_nonnull(ptr);
}
END_TEST

START_TEST(when_a_request_fails_those_who_counted_on_it_ask_for_themselves)
{
	pthread_t threads[4];
	uint64_t size = 64 * KIB;
	void *ptr;

	w.hold_gets = true;
	w.fail_gets = 1; /* the first asks once */
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, alloc_one, &size), 0);
	world_await_gets(&w, 1);
	world_release_gets(&w);
	unsigned got = 0;
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_int_eq(pthread_join(threads[i], &ptr), 0);
		got += ptr != NULL;
	}
	/* The others were not failed by it. */
	ck_assert_uint_ge(got, 3);
}
END_TEST

/* The source gave 60 MiB, which are in use, and a chunk of 2 MiB, which is free. It has no more. */
static void fill_but_one_chunk(void)
{
	(void)take(60 * MIB);
	give(take(MIB));
	gm_arena_trim(arena, 0);
	w.capacity = w.granted;
}

START_TEST(a_call_does_not_fail_for_want_of_what_another_thread_tries_to_use)
{
	uint64_t large = 20 * MIB, small = MIB;
	pthread_t first, second;
	void *ptr;

	fill_but_one_chunk();
	uint64_t gets = w.gets;
	w.hold_from = 8 * MIB;
	w.hold_gets = true;
	/* It has the free chunk in its hands while it asks for the rest, in vain. */
	ck_assert_int_eq(pthread_create(&first, NULL, alloc_one, &large), 0);
	world_await_gets(&w, 1);
	ck_assert_int_eq(pthread_create(&second, NULL, alloc_one, &small), 0);
	world_await_asked(&w, gets + 2);
	world_release_gets(&w);
	ck_assert_int_eq(pthread_join(first, &ptr), 0);
	ck_assert_ptr_null(ptr);
	ck_assert_int_eq(pthread_join(second, &ptr), 0);
	ck_assert_ptr_nonnull(ptr);
}
END_TEST

static void *trim_all(void *ctx)
{
	(void)ctx;
	(void)gm_arena_trim(arena, UINT64_MAX);
	return NULL;
}

START_TEST(a_call_does_not_fail_for_want_of_what_another_thread_gives_back)
{
	uint64_t small = MIB;
	pthread_t first, second;
	void *ptr;

	fill_but_one_chunk();
	uint64_t gets = w.gets;
	w.hold_puts = true;
	ck_assert_int_eq(pthread_create(&first, NULL, trim_all, NULL), 0);
	world_await_puts(&w, 1);
	ck_assert_int_eq(pthread_create(&second, NULL, alloc_one, &small), 0);
	/* The source refuses it, and has the chunk a moment later. */
	world_await_asked(&w, gets + 1);
	world_release_puts(&w);
	ck_assert_int_eq(pthread_join(first, NULL), 0);
	ck_assert_int_eq(pthread_join(second, &ptr), 0);
	ck_assert_ptr_nonnull(ptr);
}
END_TEST

/* Frees a small block, which the thread's cache keeps, and lives on until somebody has used it. */
struct keeper {
	void *ptr;
	pthread_barrier_t step;
};

static void *keep(void *ctx)
{
	struct keeper *keeper = ctx;

	give(keeper->ptr);
	pthread_barrier_wait(&keeper->step);
	pthread_barrier_wait(&keeper->step);
	return NULL;
}

START_TEST(a_small_call_does_not_fail_for_want_of_what_another_threads_cache_keeps)
{
	struct keeper keeper = {.ptr = NULL};
	pthread_t thread;
	void *ptr;

	if (_i) {
		teardown();
		setup_with(false, true);
	}
	keeper.ptr = take(16 * KIB);
	w.capacity = w.granted;
	while (gm_arena_alloc(arena, 16 * KIB, 0, ANY, 0, NULL, &ptr, NULL) == 0)
		;
	pthread_barrier_init(&keeper.step, NULL, 2);
	ck_assert_int_eq(pthread_create(&thread, NULL, keep, &keeper), 0);
	pthread_barrier_wait(&keeper.step);
	ck_assert_ptr_eq(take(16 * KIB), keeper.ptr);
	pthread_barrier_wait(&keeper.step);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	pthread_barrier_destroy(&keeper.step);
}
END_TEST

/* Whenever the heap asks about an event, a thread takes a block and frees it, so that its cache has the block again. */
static struct {
	pthread_barrier_t step;
	atomic_bool over, asked;
	int (*plain)(void *backend, struct gm_map_event *event);
} busy;

static void *take_and_free(void *ctx)
{
	void *ptr;

	for (;;) {
		pthread_barrier_wait(&busy.step);
		if (atomic_load(&busy.over))
			return NULL;
		if (gm_arena_alloc(arena, 16 * KIB, 0, ANY, GM_ARENA_EASY, NULL, &ptr, NULL) == 0)
			(void)gm_arena_dealloc(arena, ptr, DONE, NULL);
		pthread_barrier_wait(&busy.step);
	}
}

static int passed_and_use(void *backend, struct gm_map_event *event)
{
	int r = busy.plain(backend, event);

	atomic_store(&busy.asked, true);
	pthread_barrier_wait(&busy.step);
	pthread_barrier_wait(&busy.step);
	return r;
}

START_TEST(nor_if_that_thread_uses_it_again_and_again)
{
	pthread_t thread;
	void *ptr, *pending, *block;

	teardown();
	setup_with(true, false);
	pending = take(16 * KIB);
	block = take(16 * KIB);
	w.capacity = w.granted;
	while (gm_arena_alloc(arena, 16 * KIB, 0, ANY, 0, NULL, &ptr, NULL) == 0)
		;
	/* The heap asks about this one. */
	world_launch(&w, 1);
	ck_assert_int_eq(gm_arena_dealloc(arena, pending, world_stream(1), NULL), 0);
	give(block);

	pthread_barrier_init(&busy.step, NULL, 2);
	ck_assert_int_eq(pthread_create(&thread, NULL, take_and_free, NULL), 0);
	gm_tcache_drain_all(&arena->caches, false);
	pthread_barrier_wait(&busy.step);
	pthread_barrier_wait(&busy.step);
	busy.plain = w.ops.passed;
	w.ops.passed = passed_and_use;
	ck_assert_ptr_eq(take(16 * KIB), block);
	ck_assert(atomic_load(&busy.asked));

	w.ops.passed = busy.plain;
	atomic_store(&busy.over, true);
	pthread_barrier_wait(&busy.step);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	pthread_barrier_destroy(&busy.step);
	world_finish_all(&w);
}
END_TEST

/* Small blocks of a stream that has no work. Whenever the heap asks about an event, one of them is freed, so each round of the
 * heap finds that something came free. */
static void *crumbs[400];
static unsigned n_crumbs;
static int (*plain_passed)(void *backend, struct gm_map_event *event);

static int passed_and_free(void *backend, struct gm_map_event *event)
{
	int r = plain_passed(backend, event);

	if (n_crumbs > 0)
		(void)gm_arena_dealloc(arena, crumbs[--n_crumbs], world_stream(4), NULL);
	return r;
}

static atomic_bool over;

static void *alloc_on_a_stream(void *ctx)
{
	void *ptr = NULL;
	int r = gm_arena_alloc(arena, *(uint64_t *)ctx, 0, world_stream(3), 0, NULL, &ptr, NULL);
	atomic_store(&over, true);
	return r ? NULL : ptr;
}

START_TEST(nor_if_other_memory_comes_free_again_and_again)
{
	uint64_t size = 32 * MIB;
	pthread_t first, second;
	void *ptr;

	teardown();
	setup_with(true, false);
	void *block = take_with(size, 0, world_stream(1));
	for (n_crumbs = 0; n_crumbs < 400; n_crumbs++)
		crumbs[n_crumbs] = take_with(33000, 0, world_stream(4));
	w.capacity = w.granted;
	give(block);
	w.hold_puts = true;
	ck_assert_int_eq(pthread_create(&first, NULL, trim_all, NULL), 0);
	world_await_puts(&w, 1);
	plain_passed = w.ops.passed;
	w.ops.passed = passed_and_free;
	ck_assert_int_eq(gm_arena_dealloc(arena, crumbs[--n_crumbs], world_stream(4), NULL), 0);
	ck_assert_int_eq(pthread_create(&second, NULL, alloc_on_a_stream, &size), 0);
	while (!arena->waiters && !atomic_load(&over))
		sched_yield();
	world_release_puts(&w);
	ck_assert_int_eq(pthread_join(first, NULL), 0);
	ck_assert_int_eq(pthread_join(second, &ptr), 0);
	ck_assert_ptr_nonnull(ptr);
}
END_TEST

START_TEST(calls_that_fail_at_once_do_not_wait_for_one_another_for_ever)
{
	pthread_t threads[8];
	uint64_t large = 20 * MIB;
	void *ptr;

	fill_but_one_chunk();
	for (unsigned i = 0; i < 8; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, alloc_one, &large), 0);
	for (unsigned i = 0; i < 8; i++) {
		ck_assert_int_eq(pthread_join(threads[i], &ptr), 0);
		ck_assert_ptr_null(ptr);
	}
	give(take(MIB));
}
END_TEST

struct handover {
	void *blocks[64];
};

static void *alloc_many(void *ctx)
{
	struct handover *h = ctx;
	for (unsigned i = 0; i < 64; i++) {
		h->blocks[i] = NULL;
		if (gm_arena_alloc(arena, 100 + i * 500, 0, ANY, 0, NULL, &h->blocks[i], NULL))
			return h;
	}
	return NULL;
}

static void *free_many(void *ctx)
{
	struct handover *h = ctx;
	for (unsigned i = 0; i < 64; i++) {
		if (gm_arena_dealloc(arena, h->blocks[i], DONE, NULL))
			return h;
	}
	return NULL;
}

static void in_thread(void *(*fn)(void *), void *ctx)
{
	pthread_t thread;
	void *bad;
	ck_assert_int_eq(pthread_create(&thread, NULL, fn, ctx), 0);
	ck_assert_int_eq(pthread_join(thread, &bad), 0);
	ck_assert_ptr_null(bad);
}

START_TEST(blocks_may_be_freed_by_other_threads_and_outlive_their_own)
{
	struct handover h;

	in_thread(alloc_many, &h);
	ck_assert_uint_eq(stats().active, 64);
	in_thread(free_many, &h);
	ck_assert_uint_eq(stats().active, 0);
	ck_assert_uint_eq(stats().hits + stats().misses, 64);
	/* The threads are gone, and their caches with them. */
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(w.granted, 0);
}
END_TEST

static _Atomic unsigned freed;
static void *_Atomic target;
static pthread_barrier_t barrier;

static void *free_target(void *ctx)
{
	for (unsigned i = 0; i < 200; i++) {
		pthread_barrier_wait(&barrier);
		if (gm_arena_dealloc(arena, atomic_load(&target), DONE, NULL) == 0)
			atomic_fetch_add(&freed, 1);
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

START_TEST(of_two_frees_at_once_exactly_one_succeeds)
{
	pthread_t threads[2];

	pthread_barrier_init(&barrier, NULL, 3);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, free_target, NULL), 0);
	for (unsigned i = 0; i < 200; i++) {
		atomic_store(&target, take(i % 2 ? 500 : 500000));
		atomic_store(&freed, 0);
		pthread_barrier_wait(&barrier);
		pthread_barrier_wait(&barrier);
		ck_assert_uint_eq(atomic_load(&freed), 1);
	}
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	pthread_barrier_destroy(&barrier);
	ck_assert_uint_eq(stats().active, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("arena threads");
	TCase *tests = tcase_create("threads");

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, threads_that_grow_at_once_ask_for_little_more_than_they_need);
	tcase_add_test(tests, a_large_request_under_way_does_not_keep_others_waiting);
	tcase_add_test(tests, a_local_free_wakes_a_thread_that_waits_for_anothers_request);
	tcase_add_test(tests, when_a_request_fails_those_who_counted_on_it_ask_for_themselves);
	tcase_add_loop_test(
		tests, a_call_does_not_fail_for_want_of_what_another_thread_tries_to_use, 0, 20);
	tcase_add_loop_test(
		tests, a_call_does_not_fail_for_want_of_what_another_thread_gives_back, 0, 20);
	tcase_add_loop_test(tests,
		a_small_call_does_not_fail_for_want_of_what_another_threads_cache_keeps, 0, 2);
	tcase_add_test(tests, nor_if_that_thread_uses_it_again_and_again);
	tcase_add_loop_test(tests, nor_if_other_memory_comes_free_again_and_again, 0, 20);
	tcase_add_loop_test(
		tests, calls_that_fail_at_once_do_not_wait_for_one_another_for_ever, 0, 20);
	tcase_add_test(tests, blocks_may_be_freed_by_other_threads_and_outlive_their_own);
	tcase_add_test(tests, of_two_frees_at_once_exactly_one_succeeds);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
