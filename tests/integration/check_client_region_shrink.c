/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Regions against a real daemon that need less memory than before: what they give back while they are in
 * use, and what a pause and a resume leave out.
 */

#include "tests/integration/region_fixture.h"

static gpumem_stats_t figures(void)
{
	gpumem_stats_t all = GPUMEM_STATS_INIT;
	OK(gpumem_stats(session, 0, &all));
	return all;
}

static uint64_t trim(void)
{
	uint64_t bytes = 0;
	OK(gpumem_trim(session, &bytes));
	return bytes;
}

/* ---- while it is in use */

START_TEST(a_trim_returns_whole_leases_behind_the_last_allocation)
{
	gpumem_region *region = create("kv", 1000 * MIB);
	uint8_t *a = take(region, 100 * MIB), *b = take(region, 400 * MIB), *c = take(region, MIB);
	gm_device_set(a, 4 * MIB, 1);
	uint64_t held = stats_of("kv").held;
	GM_REQUIRE_EQ(held, 512 * MIB);
	GM_REQUIRE_EQ(trim(), 0);

	/* What is free in the middle stays: the last allocation lies behind it. */
	OK(gpumem_region_free(region, b, GPUMEM_STREAM_DONE));
	GM_REQUIRE_EQ(figures().pooled, 0);
	GM_REQUIRE_EQ(trim(), 0);
	GM_REQUIRE_EQ(stats_of("kv").held, held);

	OK(gpumem_region_free(region, c, GPUMEM_STREAM_DONE));
	GM_REQUIRE_EQ(figures().pooled, 256 * MIB);
	GM_REQUIRE_EQ(figures().in_use, 256 * MIB);
	GM_REQUIRE_EQ(figures().slack, 0);
	GM_REQUIRE_EQ(figures().allocated, 512 * MIB);
	GM_REQUIRE_EQ(trim(), 256 * MIB);
	GM_REQUIRE_EQ(leased(), 256 * MIB);
	require_held("kv", 256 * MIB);
	GM_REQUIRE(gm_device_is(a, 4 * MIB, 1));

	/* It grows again as before. */
	b = take(region, 500 * MIB);
	gm_device_set(b + 496 * MIB, 4 * MIB, 2);
	GM_REQUIRE(gm_device_is(a, 4 * MIB, 1));
	OK(gpumem_region_free(region, a, GPUMEM_STREAM_ANY));
	OK(gpumem_region_free(region, b, GPUMEM_STREAM_ANY));
	GM_UNTIL(figures().in_use == 0);
	(void)trim();
	require_held("kv", 0);
	a = take(region, 10 * MIB);
	gm_device_set(a, 4 * MIB, 3);
	gpumem_region_destroy(region);
}
END_TEST

START_TEST(memory_that_was_asked_for_at_the_start_stays)
{
	gpumem_region_options options = GPUMEM_REGION_OPTIONS_INIT;
	gpumem_region *region;
	options.initial = 256 * MIB;
	OK(gpumem_region_create(session, 0, "kv", 1000 * MIB, &options, &region));
	GM_REQUIRE_EQ(trim(), 0);
	void *a = take(region, 400 * MIB);
	OK(gpumem_region_free(region, a, GPUMEM_STREAM_DONE));
	GM_REQUIRE_EQ(trim(), 256 * MIB);
	require_held("kv", 256 * MIB);
	gpumem_region_destroy(region);
}
END_TEST

START_TEST(memory_that_a_region_could_return_counts_as_used_once_it_is_allocated)
{
	gpumem_region *region = create("kv", 1000 * MIB);
	void *a = take(region, 300 * MIB);
	OK(gpumem_region_free(region, a, GPUMEM_STREAM_DONE));
	GM_REQUIRE_EQ(figures().pooled, figures().allocated);
	a = take(region, 300 * MIB);
	GM_REQUIRE_EQ(figures().pooled, 0);
	GM_REQUIRE_EQ(figures().in_use, figures().allocated);
	gpumem_region_destroy(region);
	GM_REQUIRE_EQ(figures().allocated + figures().in_use + figures().pooled, 0);
}
END_TEST

START_TEST(others_get_what_a_region_no_longer_uses)
{
	gpumem_session *other = join("other");
	gpumem_region *region = create("kv", 1000 * MIB);
	uint8_t *a = take(region, 200 * MIB), *b = take(region, 700 * MIB);
	gm_device_set(a, 4 * MIB, 1);
	OK(gpumem_region_free(region, b, GPUMEM_STREAM_ANY));

	/* The daemon asks for it, and the library gives it back by itself. */
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer;
	options.wait_ms = GPUMEM_WAIT_FOREVER;
	OK(gpumem_buffer_create(other, 0, 700 * MIB, &options, &buffer));
	gm_device_set(gpumem_buffer_ptr(buffer), 4 * MIB, 2);
	GM_REQUIRE(gm_device_is(a, 4 * MIB, 1));
	GM_REQUIRE(stats_of("kv").held <= 324 * MIB);
	gpumem_buffer_destroy(buffer);
	gpumem_region_destroy(region);
	gpumem_disconnect(other);
}
END_TEST

START_TEST(a_region_gets_what_another_of_its_session_no_longer_uses)
{
	gpumem_region *one = create("one", 900 * MIB), *two = create("two", 900 * MIB);
	void *a = take(one, 900 * MIB), *b;
	OK(gpumem_region_free(one, a, GPUMEM_STREAM_ANY));
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	options.wait_ms = GPUMEM_WAIT_FOREVER;
	OK(gpumem_region_alloc(two, 800 * MIB, NULL, &options, &b));
	gm_device_set(b, 4 * MIB, 1);
	gpumem_region_destroy(one);
	gpumem_region_destroy(two);
}
END_TEST

static void *allocate_freed_there(void *ctx)
{
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	void *ptr;
	options.wait_ms = GPUMEM_WAIT_FOREVER;
	OK(gpumem_region_alloc(ctx, 500 * MIB, NULL, &options, &ptr));
	return ptr;
}

/* The memory lies before another block, so it cannot go back to the daemon. _i: the stream may still use
 * it for a moment. */
START_TEST(an_allocation_that_waits_gets_what_another_thread_frees_in_the_region)
{
	gpumem_region *region = create("kv", 2000 * MIB);
	void *a = take(region, 600 * MIB), *b = take(region, 400 * MIB), *c = NULL;
	pthread_t thread;
	GM_REQUIRE(a < b);
	GM_REQUIRE_EQ(pthread_create(&thread, NULL, allocate_freed_there, region), 0);
	GM_UNTIL(gm_queue_wait(&daemon_) == 1);

	OK(gpumem_region_free(region, a, _i ? GPUMEM_STREAM_ANY : GPUMEM_STREAM_DONE));
	GM_REQUIRE_EQ(pthread_join(thread, &c), 0);
	GM_REQUIRE(c >= a && c < b);
	gm_device_set(c, 4 * MIB, 1);
	GM_UNTIL(gm_queue_wait(&daemon_) == 0);
	gpumem_region_destroy(region);
}
END_TEST

/* ---- in a pause */

START_TEST(a_resume_does_not_ask_for_what_was_free_at_the_end)
{
	gpumem_region *region = create("kv", 1000 * MIB);
	uint8_t *a = take(region, 100 * MIB), *b = take(region, 600 * MIB);
	OK(gpumem_region_free(region, b, NULL));
	OK(gpumem_region_pause(session, "kv", GPUMEM_REGION_DROP));
	GM_REQUIRE_EQ(stats_of("kv").needed, 100 * MIB);
	OK(gpumem_region_resume(session, "kv", 0));
	require_held("kv", 100 * MIB);
	gm_device_set(a, 4 * MIB, 1);

	/* Freed while it is paused. */
	b = take(region, 300 * MIB);
	OK(gpumem_region_pause(session, "kv", GPUMEM_REGION_DROP));
	OK(gpumem_region_free(region, b, GPUMEM_STREAM_DONE));
	OK(gpumem_region_resume(session, "kv", 0));
	require_held("kv", 100 * MIB);
	OK(gpumem_region_pause(session, "kv", GPUMEM_REGION_DROP));
	OK(gpumem_region_free(region, a, GPUMEM_STREAM_DONE));
	OK(gpumem_region_resume(session, "kv", 0));
	require_held("kv", 0);
	gm_device_set(take(region, 50 * MIB), 4 * MIB, 2);
	gpumem_region_destroy(region);
}
END_TEST

START_TEST(only_what_is_allocated_is_kept)
{
	enum { N = 12 };
	gpumem_region *region = create("weights", 512 * MIB);
	void *blocks[N];
	uint64_t kept = 0;
	for (unsigned i = 0; i < N; i++) {
		blocks[i] = take(region, (8 + i) * MIB);
		write_pattern(blocks[i], (8 + i) * MIB, i);
	}
	/* Single holes, a wide one, and the end. */
	for (unsigned i = 0; i < N; i++) {
		if (i == 1 || (i >= 4 && i < 7) || i >= 10) {
			OK(gpumem_region_free(region, blocks[i], i % 2 ? NULL : GPUMEM_STREAM_ANY));
			blocks[i] = NULL;
		} else {
			kept += (8 + i) * MIB;
		}
	}
	for (unsigned round = 0; round < 2; round++) {
		OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP));
		GM_REQUIRE_EQ(stats_of("weights").kept, kept);
		GM_REQUIRE(on_host() < kept + kept / 8);
		OK(gpumem_region_resume(session, "weights", 0));
		for (unsigned i = 0; i < N; i++)
			if (blocks[i])
				require_pattern(blocks[i], (8 + i) * MIB, i);
	}
	gpumem_region_destroy(region);
}
END_TEST

START_TEST(small_gaps_are_kept_too_so_that_there_are_few_copies)
{
	gpumem_region *region = create("weights", 64 * MIB);
	void *a = take(region, MIB), *b = take(region, MIB), *c = take(region, MIB);
	write_pattern(a, MIB, 1);
	write_pattern(c, MIB, 3);
	OK(gpumem_region_free(region, b, GPUMEM_STREAM_DONE));
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP));
	GM_REQUIRE_EQ(stats_of("weights").kept, 3 * MIB);
	OK(gpumem_region_resume(session, "weights", 0));
	require_pattern(a, MIB, 1);
	require_pattern(c, MIB, 3);
	gpumem_region_destroy(region);
}
END_TEST

START_TEST(what_was_freed_while_content_is_kept_needs_no_memory)
{
	gpumem_region *region = create("weights", 256 * MIB);
	void *a = take(region, 20 * MIB), *b = take(region, 20 * MIB), *c = take(region, 60 * MIB);
	write_pattern(a, 20 * MIB, 1);
	write_pattern(b, 20 * MIB, 2);
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP));
	OK(gpumem_region_free(region, b, GPUMEM_STREAM_DONE));
	OK(gpumem_region_free(region, c, GPUMEM_STREAM_DONE));
	OK(gpumem_region_resume(session, "weights", 0));
	require_held("weights", 20 * MIB);
	require_pattern(a, 20 * MIB, 1);
	GM_UNTIL(on_host() == 0);

	/* If nothing is left, the content goes, too. */
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP));
	OK(gpumem_region_free(region, a, GPUMEM_STREAM_DONE));
	OK(gpumem_region_resume(session, "weights", 0));
	require_held("weights", 0);
	GM_UNTIL(on_host() == 0);
	GM_REQUIRE_EQ(stats_of("weights").kept, 0);

	/* A region with nothing in it keeps nothing. */
	a = take(region, MIB);
	OK(gpumem_region_free(region, a, GPUMEM_STREAM_DONE));
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP));
	GM_UNTIL(on_host() == 0);
	OK(gpumem_region_resume(session, "weights", 0));
	gpumem_region_destroy(region);
}
END_TEST

/* ---- threads */

enum { THREADS = 3, ROUNDS = 50 };

static void *grow_and_free(void *ctx)
{
	for (int i = 0; i < ROUNDS; i++) {
		void *ptr;
		OK(gpumem_region_alloc(ctx, (1 + i % 40) * MIB, NULL, NULL, &ptr));
		gm_device_set(ptr, MIB, (uint8_t)i);
		GM_REQUIRE(gm_device_is(ptr, MIB, (uint8_t)i));
		OK(gpumem_region_free(ctx, ptr, GPUMEM_STREAM_ANY));
	}
	return NULL;
}

static void *trim_there(void *ctx)
{
	for (int i = 0; i < ROUNDS; i++) {
		(void)trim();
		gpumem_region *region = create("passing", 64 * MIB);
		(void)take(region, MIB);
		gpumem_region_destroy(region);
	}
	return NULL;
}

START_TEST(regions_shrink_while_threads_allocate_and_others_come_and_go)
{
	gpumem_region *region = create("busy", 512 * MIB);
	pthread_t threads[THREADS + 1];
	for (int i = 0; i < THREADS; i++)
		GM_REQUIRE_EQ(pthread_create(&threads[i], NULL, grow_and_free, region), 0);
	GM_REQUIRE_EQ(pthread_create(&threads[THREADS], NULL, trim_there, NULL), 0);
	for (int i = 0; i <= THREADS; i++)
		GM_REQUIRE_EQ(pthread_join(threads[i], NULL), 0);
	GM_UNTIL(figures().in_use == 0);
	(void)trim();
	require_held("busy", 0);
	gpumem_region_destroy(region);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client region shrink");
	TCase *tc = tcase_create("client region shrink");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, a_trim_returns_whole_leases_behind_the_last_allocation);
	tcase_add_test(tc, memory_that_was_asked_for_at_the_start_stays);
	tcase_add_test(tc, memory_that_a_region_could_return_counts_as_used_once_it_is_allocated);
	tcase_add_test(tc, others_get_what_a_region_no_longer_uses);
	tcase_add_test(tc, a_region_gets_what_another_of_its_session_no_longer_uses);
	tcase_add_loop_test(
		tc, an_allocation_that_waits_gets_what_another_thread_frees_in_the_region, 0, 2);
	tcase_add_test(tc, a_resume_does_not_ask_for_what_was_free_at_the_end);
	tcase_add_test(tc, regions_shrink_while_threads_allocate_and_others_come_and_go);
	suite_add_tcase(suite, tc);

	tc = tcase_create("client region that keeps only what it needs");
	tcase_add_checked_fixture(tc, set_up_keeping, tear_down);
	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, only_what_is_allocated_is_kept);
	tcase_add_test(tc, small_gaps_are_kept_too_so_that_there_are_few_copies);
	tcase_add_test(tc, what_was_freed_while_content_is_kept_needs_no_memory);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
