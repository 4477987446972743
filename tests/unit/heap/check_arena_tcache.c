/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that a thread keeps because it found the heap's lock taken when it freed them. */
#include "autoconf.h"

#include <pthread.h>
#include <stdatomic.h>

#include "client/heap/arena_private.h"
#include "tests/tap.h"
#include "tests/unit/heap/arena_fixture.h"

#define MANY 20

static void *block, *again, *blocks[MANY];
static uint64_t size;
static gpumem_stream stream, asked;

/* ---- a second thread, which does as it is told */

static pthread_t second;
static pthread_barrier_t told, done;
static void (*task)(void);

static void *second_run(void *unused)
{
	for (;;) {
		pthread_barrier_wait(&told);
		if (!task)
			return unused;
		task();
		pthread_barrier_wait(&done);
	}
}

/* Lets the second thread do something, and waits for it. */
static void in_second(void (*fn)(void))
{
	task = fn;
	pthread_barrier_wait(&told);
	pthread_barrier_wait(&done);
}

/* The same while the heap's lock is taken: it would hang if the thread needed the lock. */
static void in_second_beside_others(void (*fn)(void))
{
	gm_lock(&arena->lock);
	in_second(fn);
	gm_lock_drop(&arena->lock);
}

static void setup_second(bool streams)
{
	setup_with(streams, false);
	stream = DONE;
	asked = ANY;
	pthread_barrier_init(&told, NULL, 2);
	pthread_barrier_init(&done, NULL, 2);
	ck_assert_int_eq(pthread_create(&second, NULL, second_run, NULL), 0);
}

static void setup_plain(void)
{
	setup_second(false);
}

static void setup_streams(void)
{
	setup_second(true);
}

static void teardown_second(void)
{
	task = NULL;
	pthread_barrier_wait(&told);
	ck_assert_int_eq(pthread_join(second, NULL), 0);
	pthread_barrier_destroy(&told);
	pthread_barrier_destroy(&done);
	teardown();
}

/* ---- what it does */

static void take_one(void)
{
	block = take_with(size, 0, asked);
}

static void give_one(void)
{
	ck_assert_int_eq(gm_arena_dealloc(arena, block, stream, NULL), 0);
}

static void take_again(void)
{
	again = take_with(size, 0, asked);
}

static void give_again(void)
{
	ck_assert_int_eq(gm_arena_dealloc(arena, again, stream, NULL), 0);
}

static void take_many(void)
{
	for (unsigned i = 0; i < MANY; i++)
		blocks[i] = take_with(size, 0, asked);
}

static void give_many(void)
{
	for (unsigned i = 0; i < MANY; i++)
		ck_assert_int_eq(gm_arena_dealloc(arena, blocks[i], stream, NULL), 0);
}

static void give_often(void)
{
	for (unsigned i = 0; i < 1500; i++) {
		void *ptr = take_with(size, 0, asked);
		ck_assert_int_eq(gm_arena_dealloc(arena, ptr, stream, NULL), 0);
	}
}

struct sums {
	unsigned n;
	uint64_t bytes, most;
};

static void add_parked(struct gm_tcache *cache, void *ctx)
{
	struct sums *sums = ctx;

	sums->n += cache->n_large;
	sums->bytes += cache->parked_bytes;
	sums->most = cache->parked_bytes > sums->most ? cache->parked_bytes : sums->most;
}

static struct sums large(void)
{
	struct sums sums = {0};

	gm_tcache_each(&arena->caches, add_parked, &sums);
	return sums;
}

/* The second thread has freed a block of that size while others had the lock. */
static void park_one(uint64_t bytes)
{
	size = bytes;
	in_second(take_one);
	in_second_beside_others(give_one);
	ck_assert_uint_eq(large().n, 1);
}

static void all_goes_back(void)
{
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(large().n, 0);
	ck_assert_uint_eq(w.granted, 0);
}

/* ---- the tests */

START_TEST(a_free_and_the_next_allocation_do_not_wait_for_the_lock)
{
	park_one(MIB);
	ck_assert_uint_eq(stats().active, 0);
	ck_assert_uint_eq(stats().in_use, 0);
	in_second_beside_others(take_again);
	ck_assert_ptr_eq(again, block);
	ck_assert_uint_eq(stats().active, 1);
	ck_assert_uint_eq(stats().in_use, MIB);
	in_second_beside_others(give_one);
	all_goes_back();
	ck_assert_uint_eq(stats().hits + stats().misses, 2);
}
END_TEST

START_TEST(a_parked_block_is_not_the_programs)
{
	struct gm_arena_entry entries[GM_ARENA_ENTRIES], entry;
	struct gm_arena_walk walk = {0};
	uint32_t old;

	park_one(MIB);
	ck_assert_int_eq(gm_arena_dealloc(arena, block, DONE, NULL), GM_ARENA_E_FREED);
	ck_assert_int_eq(gm_arena_size(arena, block, &(uint64_t){0}), GM_ARENA_E_FREED);
	ck_assert_int_eq(
		gm_arena_dealloc(arena, (char *)block + 512 * KIB, DONE, NULL), GM_ARENA_E_FREED);
	ck_assert_int_eq(gm_arena_describe(arena, block, &entry), GM_ARENA_E_FREED);
	ck_assert_int_eq(gm_arena_swap_cookie(arena, block, 7, &old), GM_ARENA_E_FREED);
	while (!walk.over)
		ck_assert_uint_eq(gm_arena_unlisted(arena, 1, &walk, entries), 0);
	all_goes_back();
}
END_TEST

START_TEST(a_block_that_is_handed_out_again_is_listed)
{
	struct gm_arena_entry entries[GM_ARENA_ENTRIES];
	struct gm_arena_walk walk = {0};
	uint64_t changes = gm_arena_changes(arena);
	uint32_t cookie = 0;
	size_t n = 0;

	park_one(MIB);
	in_second_beside_others(take_again);
	ck_assert_uint_ne(gm_arena_changes(arena), changes);
	while (!walk.over && !n)
		n = gm_arena_unlisted(arena, 1, &walk, entries);
	ck_assert_uint_eq(n, 1);
	ck_assert_ptr_eq(entries[0].ptr, again);
	ck_assert_int_eq(gm_arena_set_cookie(arena, &entries[0], 7), 0);

	/* Whoever listed it must learn that it is freed. */
	ck_assert(!gm_arena_tcache_put(arena, (uintptr_t)again,
		gm_heap_ptrmap_get(&arena->blocks, (uintptr_t)again), GM_STREAM_DONE));
	ck_assert_int_eq(gm_arena_dealloc(arena, again, DONE, &cookie), 0);
	ck_assert_uint_eq(cookie, 7);
	all_goes_back();
}
END_TEST

START_TEST(another_size_or_thread_gets_another_block)
{
	park_one(MIB);
	size = MIB - 256;
	in_second(take_again);
	ck_assert_ptr_ne(again, block);
	ck_assert_uint_eq(large().n, 1);
	give(again);
	give(take(MIB));
	ck_assert_uint_eq(large().n, 1);
	all_goes_back();
}
END_TEST

START_TEST(what_is_parked_is_bounded)
{
	park_one(64 * KIB);
	in_second(take_many);
	in_second(give_many);
	ck_assert_uint_le(large().n, GM_TCACHE_LARGE);
	ck_assert_uint_eq(stats().active, 0);
	size = 3 * MIB;
	in_second(take_many);
	in_second(give_many);
	ck_assert_uint_le(large().most, GM_TCACHE_LARGE_BYTES);
	size = 5 * MIB;
	in_second(take_many);
	in_second(give_many);
	ck_assert_uint_le(large().most, GM_TCACHE_LARGE_BYTES);
	ck_assert_uint_eq(stats().active, 0);
	all_goes_back();
}
END_TEST

START_TEST(a_thread_that_has_the_heap_for_itself_again_parks_nothing)
{
	park_one(64 * KIB);
	in_second(give_often);
	ck_assert_uint_eq(large().n, 0);
	all_goes_back();
}
END_TEST

START_TEST(the_peak_is_that_of_the_program_if_one_thread_allocates_and_another_frees)
{
	park_one(MIB);
	for (unsigned i = 0; i < 100; i++) {
		block = take(MIB);
		in_second(give_one);
	}
	ck_assert_uint_le(stats().peak, MIB + GM_TCACHE_LARGE_BYTES);
	ck_assert_uint_eq(stats().in_use, 0);
	all_goes_back();
}
END_TEST

START_TEST(a_thread_uses_up_what_it_has_parked_before_it_asks_for_more)
{
	park_one(2 * MIB);
	uint64_t granted = w.granted;
	size = MIB;
	in_second(take_again);
	ck_assert_uint_eq(w.granted, granted);
	ck_assert_uint_eq(large().n, 0);
	give(again);
}
END_TEST

static void use_small(void)
{
	give(take(512));
}

START_TEST(what_is_parked_and_not_used_goes_back_with_a_tick)
{
	park_one(MIB);
	for (unsigned i = 0; i < 3; i++) {
		in_second(use_small);
		gm_arena_tick(arena, i * SECOND);
	}
	ck_assert_uint_eq(large().n, 0);
	all_goes_back();
}
END_TEST

static void *take_large(void *unused)
{
	give(take(512 * MIB));
	return unused;
}

START_TEST(nobody_waits_for_anothers_request_beside_what_is_parked)
{
	pthread_t thread;

	size = 2 * MIB;
	in_second(take_one);
	w.hold_gets = true;
	ck_assert_int_eq(pthread_create(&thread, NULL, take_large, NULL), 0);
	world_await_gets(&w, 1);
	in_second_beside_others(give_one);
	ck_assert_uint_eq(large().n, 1);
	give(take(MIB)); /* would hang here */
	world_release_gets(&w);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

START_TEST(another_thread_in_need_gets_what_is_parked)
{
	park_one(2 * MIB);
	w.capacity = w.granted;
	give(take(2 * MIB));
	ck_assert_uint_eq(large().n, 0);
}
END_TEST

START_TEST(a_stream_gets_only_what_it_may_use)
{
	stream = asked = world_stream(1);
	park_one(MIB);
	world_launch(&w, 1);
	asked = world_stream(2);
	in_second(take_again);
	ck_assert_ptr_ne(again, block);
	give(again);
	asked = ANY;
	in_second(take_again);
	ck_assert_ptr_ne(again, block);
	give(again);
	asked = world_stream(1);
	in_second_beside_others(take_again);
	ck_assert_ptr_eq(again, block);
	in_second_beside_others(give_one);

	/* What any stream may still use is not worth keeping. */
	asked = stream = ANY;
	in_second(take_again);
	in_second(give_again);
	ck_assert_uint_eq(large().n, 1);

	/* It goes back when the device is done with it, not before. */
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(large().n, 0);
	ck_assert_uint_ne(w.granted, 0);
	world_finish_all(&w);
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(w.granted, 0);
}
END_TEST

/* ---- many threads, beside one that lists and one that trims */

#define CROWD  6
#define ROUNDS 4000

static _Atomic unsigned left, given_cookies;
static _Atomic uint64_t got_cookies;

static void *churn(void *seed)
{
	unsigned random = (unsigned)(uintptr_t)seed;
	void *mine[8] = {0};

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint32_t cookie = 0;
		unsigned k = rand_r(&random) % 8;
		if (mine[k] && gm_arena_dealloc(arena, mine[k], DONE, &cookie))
			return seed;
		got_cookies += cookie;
		mine[k] = NULL;
		if (rand_r(&random) % 4)
			(void)gm_arena_alloc(arena, UINT64_C(0x8000) << rand_r(&random) % 5, 0, ANY,
				0, NULL, &mine[k], NULL);
	}
	for (unsigned k = 0; k < 8; k++) {
		uint32_t cookie = 0;
		if (mine[k] && gm_arena_dealloc(arena, mine[k], DONE, &cookie))
			return seed;
		got_cookies += cookie;
	}
	left--;
	return NULL;
}

static void *list_all(void *unused)
{
	struct gm_arena_entry entries[GM_ARENA_ENTRIES];

	while (left) {
		struct gm_arena_walk walk = {0};
		while (!walk.over) {
			size_t n = gm_arena_unlisted(arena, MIB / 4, &walk, entries);
			for (size_t i = 0; i < n; i++)
				if (gm_arena_set_cookie(arena, &entries[i], 1) == 0)
					given_cookies++;
		}
	}
	return unused;
}

static void *trim_often(void *unused)
{
	while (left) {
		(void)gm_arena_trim(arena, UINT64_MAX);
		(void)gm_arena_tick(arena, 0);
	}
	return unused;
}

START_TEST(nothing_is_lost_among_many_threads)
{
	pthread_t crowd[CROWD], lister, trimmer;
	void *bad;

	left = CROWD;
	for (uintptr_t i = 0; i < CROWD; i++)
		ck_assert_int_eq(pthread_create(&crowd[i], NULL, churn, (void *)(i + 1)), 0);
	ck_assert_int_eq(pthread_create(&lister, NULL, list_all, NULL), 0);
	ck_assert_int_eq(pthread_create(&trimmer, NULL, trim_often, NULL), 0);
	for (unsigned i = 0; i < CROWD; i++) {
		ck_assert_int_eq(pthread_join(crowd[i], &bad), 0);
		ck_assert_ptr_null(bad);
	}
	ck_assert_int_eq(pthread_join(lister, NULL), 0);
	ck_assert_int_eq(pthread_join(trimmer, NULL), 0);
	ck_assert_uint_eq(got_cookies, given_cookies);
	ck_assert_uint_eq(stats().active, 0);
	ck_assert_uint_eq(stats().in_use, 0);
	all_goes_back();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("arena cache");
	TCase *tests = tcase_create("cache"), *streams = tcase_create("streams");
	TCase *crowd = tcase_create("crowd");

	tcase_add_checked_fixture(tests, setup_plain, teardown_second);
	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, a_free_and_the_next_allocation_do_not_wait_for_the_lock);
	tcase_add_test(tests, a_parked_block_is_not_the_programs);
	tcase_add_test(tests, a_block_that_is_handed_out_again_is_listed);
	tcase_add_test(tests, another_size_or_thread_gets_another_block);
	tcase_add_test(tests, what_is_parked_is_bounded);
	tcase_add_test(tests, a_thread_that_has_the_heap_for_itself_again_parks_nothing);
	tcase_add_test(tests, another_thread_in_need_gets_what_is_parked);
	tcase_add_test(
		tests, the_peak_is_that_of_the_program_if_one_thread_allocates_and_another_frees);
	tcase_add_test(tests, a_thread_uses_up_what_it_has_parked_before_it_asks_for_more);
	tcase_add_test(tests, what_is_parked_and_not_used_goes_back_with_a_tick);
	tcase_add_test(tests, nobody_waits_for_anothers_request_beside_what_is_parked);
	suite_add_tcase(suite, tests);
	tcase_add_checked_fixture(streams, setup_streams, teardown_second);
	tcase_set_timeout(streams, 60);
	tcase_add_test(streams, a_stream_gets_only_what_it_may_use);
	suite_add_tcase(suite, streams);
	tcase_add_checked_fixture(crowd, setup, teardown);
	tcase_set_timeout(crowd, 120);
	tcase_add_test(crowd, nothing_is_lost_among_many_threads);
	suite_add_tcase(suite, crowd);
	return gm_tap_run(suite);
}
