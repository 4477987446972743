/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Regions against a real daemon: how they get memory, what is allocated from them, and threads that do so at
 * once. See also check_client_region_pause.c and its siblings.
 */

#include <stdatomic.h>

#include "common/bounds.h"
#include "tests/integration/region_fixture.h"
/* ---- allocations */

START_TEST(a_region_gets_memory_in_large_pieces_up_to_its_size)
{
	gpumem_region *region = create("weights", 600 * MIB);
	require_held("weights", 0);
	void *a = take(region, 1000);
	GM_REQUIRE_EQ((uintptr_t)a % 256, 0);
	require_held("weights", 256 * MIB);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).chunks, 1);

	/* What the first piece has left is used first, and one block lies across the border. */
	uint8_t *b = take(region, 300 * MIB);
	require_held("weights", 512 * MIB);
	gm_device_set(a, 1000, 1);
	gm_device_set(b, 300 * MIB, 2);
	GM_REQUIRE(gm_device_is(a, 1000, 1));

	/* The rest, which is smaller than a piece. */
	void *c = take(region, 280 * MIB);
	require_held("weights", 600 * MIB);
	GM_REQUIRE(gm_device_is(b, 300 * MIB, 2));
	REFUSED(gpumem_region_alloc(region, 64 * MIB, NULL, NULL, &a), GPUMEM_E_LIMIT, "max_size");
	GM_REQUIRE_EQ(stats_of("weights").allocations, 3);
	GM_REQUIRE_EQ(stats_of("weights").in_use, 580 * MIB + 1000);

	OK(gpumem_region_free(region, c, NULL));
	OK(gpumem_region_free(region, b, GPUMEM_STREAM_ANY));
	/* The region still has it, although nobody uses it. */
	GM_REQUIRE_EQ(stats_of("weights").held, 600 * MIB);
	GM_REQUIRE_EQ(leased(), 600 * MIB);
	/* Freed memory is used again, and neighbours have merged. The stream waits for what may still use them. */
	(void)take(region, 590 * MIB);
	require_held("weights", 600 * MIB);
	GM_REQUIRE_EQ(stats_of("weights").peak, 590 * MIB + 1000);
	gpumem_region_destroy(region);
	GM_UNTIL(leased() == 0);
}
END_TEST

START_TEST(a_region_makes_do_with_what_the_device_has_left)
{
	gpumem_buffer *most;
	OK(gpumem_buffer_create(session, 0, 1000 * MIB, NULL, &most));
	gpumem_region *region = create("small", 512 * MIB);
	void *a = take(region, 3 * MIB), *b;
	GM_REQUIRE_EQ(stats_of("small").held, 4 * MIB);
	REFUSED(gpumem_region_alloc(region, 64 * MIB, NULL, NULL, &b), GPUMEM_E_NO_MEMORY, "");
	gm_device_set(a, 3 * MIB, 1);
	b = take(region, 16 * MIB);
	gm_device_set(b, 16 * MIB, 2);
	GM_REQUIRE(gm_device_is(a, 3 * MIB, 1));
	gpumem_region_destroy(region);
	gpumem_buffer_destroy(most);
}
END_TEST

START_TEST(a_region_can_have_its_memory_from_the_start)
{
	gpumem_region_options options = GPUMEM_REGION_OPTIONS_INIT;
	gpumem_region *region;
	options.initial = 300 * MIB;
	OK(gpumem_region_create(session, 0, "kv", 900 * MIB, &options, &region));
	GM_REQUIRE_EQ(stats_of("kv").held, 512 * MIB);
	(void)take(region, 500 * MIB);
	GM_REQUIRE_EQ(stats_of("kv").held, 512 * MIB);
	gpumem_region *other = NULL;
	options.initial = 600 * MIB;
	REFUSED(gpumem_region_create(session, 0, "too much", 600 * MIB, &options, &other),
		GPUMEM_E_NO_MEMORY, "");
	gpumem_region_stats_t stats = GPUMEM_REGION_STATS_INIT;
	REFUSED(gpumem_region_stats(session, "too much", &stats), GPUMEM_E_NOT_FOUND, "too much");
	gpumem_region_destroy(region);
}
END_TEST

START_TEST(calls_that_make_no_sense_are_refused)
{
	gpumem_region *region = create("weights", 64 * MIB), *other;
	gpumem_region_options options = GPUMEM_REGION_OPTIONS_INIT;
	gpumem_region_stats_t stats = GPUMEM_REGION_STATS_INIT;
	void *ptr = take(region, MIB), *p;
	char tag[GM_BOUND_NAME_BYTES + 2];

	REFUSED(gpumem_region_create(session, 0, "weights", MIB, NULL, &other), GPUMEM_E_BUSY,
		"weights");
	REFUSED(gpumem_region_create(session, 0, "", MIB, NULL, &other), GPUMEM_E_INVALID, "tag");
	REFUSED(gpumem_region_create(session, 0, NULL, MIB, NULL, &other), GPUMEM_E_INVALID, "tag");
	memset(tag, 'x', sizeof(tag) - 1);
	tag[sizeof(tag) - 1] = '\0';
	REFUSED(gpumem_region_create(session, 0, tag, MIB, NULL, &other), GPUMEM_E_INVALID, "tag");
	REFUSED(gpumem_region_create(session, 0, "x", 0, NULL, &other), GPUMEM_E_INVALID,
		"max_size");
	REFUSED(gpumem_region_create(session, 0, "x", SIZE_MAX, NULL, &other), GPUMEM_E_INVALID,
		"max_size");
	REFUSED(gpumem_region_create(session, 7, "x", MIB, NULL, &other), GPUMEM_E_NOT_FOUND, "7");
	REFUSED(gpumem_region_create(session, GPUMEM_DEVICE_HOST, "x", MIB, NULL, &other),
		GPUMEM_E_INVALID, "not host memory");
	options.initial = 2 * MIB;
	REFUSED(gpumem_region_create(session, 0, "x", MIB, &options, &other), GPUMEM_E_INVALID,
		"initial");
	options.size = 0;
	REFUSED(gpumem_region_create(session, 0, "x", MIB, &options, &other), GPUMEM_E_INVALID,
		"size");
	REFUSED(gpumem_region_create(session, 0, "x", MIB, NULL, NULL), GPUMEM_E_INVALID,
		"ret_region");
	REFUSED(gpumem_region_create(NULL, 0, "x", MIB, NULL, &other), GPUMEM_E_INVALID, "");

	REFUSED(gpumem_region_alloc(NULL, MIB, NULL, NULL, &p), GPUMEM_E_INVALID, "region");
	REFUSED(gpumem_region_alloc(region, 0, NULL, NULL, &p), GPUMEM_E_INVALID, "size");
	REFUSED(gpumem_region_alloc(region, MIB, NULL, NULL, NULL), GPUMEM_E_INVALID, "ret_ptr");
	REFUSED(gpumem_region_alloc(region, SIZE_MAX, NULL, NULL, &p), GPUMEM_E_INVALID, "weights");
	REFUSED(gpumem_region_alloc(region, 65 * MIB, NULL, NULL, &p), GPUMEM_E_LIMIT, "64");
	REFUSED(gpumem_region_alloc(region, MIB, GPUMEM_STREAM_DONE, NULL, &p), GPUMEM_E_INVALID,
		"");
	gpumem_alloc_options odd = GPUMEM_ALLOC_OPTIONS_INIT;
	odd.alignment = 768;
	REFUSED(gpumem_region_alloc(region, MIB, NULL, &odd, &p), GPUMEM_E_INVALID, "");

	REFUSED(gpumem_region_free(NULL, ptr, NULL), GPUMEM_E_INVALID, "region");
	REFUSED(gpumem_region_free(region, &ptr, NULL), GPUMEM_E_INVALID, "weights");
	REFUSED(gpumem_region_free(region, (char *)ptr + 256, NULL), GPUMEM_E_INVALID, "weights");
	OK(gpumem_region_free(region, NULL, NULL));
	/* The heap of the session knows nothing of it. */
	REFUSED(gpumem_free(session, ptr, NULL), GPUMEM_E_INVALID, "no memory there");
	OK(gpumem_region_free(region, ptr, NULL));
	REFUSED(gpumem_region_free(region, ptr, NULL), GPUMEM_E_INVALID, "weights");

	REFUSED(gpumem_region_pause(session, "kv", GPUMEM_REGION_DROP), GPUMEM_E_NOT_FOUND, "kv");
	REFUSED(gpumem_region_pause(session, NULL, GPUMEM_REGION_DROP), GPUMEM_E_INVALID, "tag");
	REFUSED(gpumem_region_pause(session, "weights", (gpumem_region_content)7), GPUMEM_E_INVALID,
		"7");
	REFUSED(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP), GPUMEM_E_UNSUPPORTED,
		"host_limit");
	REFUSED(gpumem_region_resume(session, "kv", 0), GPUMEM_E_NOT_FOUND, "kv");
	REFUSED(gpumem_region_resume(session, NULL, 0), GPUMEM_E_INVALID, "tag");
	REFUSED(gpumem_region_stats(session, NULL, &stats), GPUMEM_E_INVALID, "tag");
	REFUSED(gpumem_region_stats(session, "weights", NULL), GPUMEM_E_INVALID, "ret_stats");
	gpumem_region_destroy(NULL);
	gpumem_region_destroy(region);
	REFUSED(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP), GPUMEM_E_NOT_FOUND,
		"weights");
}
END_TEST

/* ---- threads */

enum { THREADS = 4, ROUNDS = 60 };
static _Atomic unsigned allocated, paused, resumed;

static void *churn(void *ctx)
{
	gpumem_region *region = ctx;
	for (int i = 0; i < ROUNDS; i++) {
		void *ptr;
		gpumem_status status =
			gpumem_region_alloc(region, (1 + i % 7) * MIB, NULL, NULL, &ptr);
		GM_REQUIRE(status == GPUMEM_OK || status == GPUMEM_E_BUSY);
		if (status == GPUMEM_OK) {
			atomic_fetch_add(&allocated, 1);
			OK(gpumem_region_free(region, ptr, i % 2 ? NULL : GPUMEM_STREAM_ANY));
		}
	}
	return NULL;
}

static void *turn(void *ctx)
{
	for (int i = 0; i < ROUNDS; i++) {
		gpumem_status p = gpumem_region_pause(session, "busy", GPUMEM_REGION_DROP);
		GM_REQUIRE(p == GPUMEM_OK || p == GPUMEM_E_BUSY || p == GPUMEM_E_INVALID);
		atomic_fetch_add(&paused, p == GPUMEM_OK);
		gpumem_status r = gpumem_region_resume(session, "busy", 0);
		GM_REQUIRE(r == GPUMEM_OK || r == GPUMEM_E_BUSY || r == GPUMEM_E_INVALID);
		atomic_fetch_add(&resumed, r == GPUMEM_OK);
	}
	return NULL;
}

START_TEST(several_threads_allocate_pause_and_resume)
{
	gpumem_region *region = create("busy", 256 * MIB);
	pthread_t threads[2 * THREADS];
	for (int i = 0; i < 2 * THREADS; i++)
		GM_REQUIRE_EQ(pthread_create(&threads[i], NULL, i % 2 ? turn : churn, region), 0);
	for (int i = 0; i < 2 * THREADS; i++)
		GM_REQUIRE_EQ(pthread_join(threads[i], NULL), 0);

	gpumem_region_stats_t stats = stats_of("busy");
	GM_REQUIRE_EQ(stats.in_use, 0);
	GM_REQUIRE_EQ(stats.allocations, 0);
	GM_REQUIRE_EQ(stats.pauses, paused);
	GM_REQUIRE(paused - resumed <= 1);
	GM_REQUIRE_EQ(stats.state, paused == resumed ? GPUMEM_REGION_ACTIVE : GPUMEM_REGION_PAUSED);
	if (paused != resumed)
		OK(gpumem_region_resume(session, "busy", 0));
	gm_device_set(take(region, 200 * MIB), 200 * MIB, 1);
	/* The daemon may round what a region grows by up by 1/64. */
	uint64_t held = stats_of("busy").held;
	GM_REQUIRE(held <= 260 * MIB);
	require_held("busy", held);
	gpumem_region_destroy(region);
}
END_TEST

static void *grow_there(void *ctx)
{
	void *ptr;
	for (int i = 0; i < 3; i++)
		OK(gpumem_region_alloc(ctx, 32 * MIB, NULL, NULL, &ptr));
	return NULL;
}

START_TEST(several_threads_make_a_region_grow_up_to_its_size)
{
	gpumem_region *region = create("growing", THREADS * 3 * 32 * MIB);
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		GM_REQUIRE_EQ(pthread_create(&threads[i], NULL, grow_there, region), 0);
	for (int i = 0; i < THREADS; i++)
		GM_REQUIRE_EQ(pthread_join(threads[i], NULL), 0);
	gpumem_region_stats_t stats = stats_of("growing");
	GM_REQUIRE_EQ(stats.in_use, stats.max_size);
	GM_REQUIRE_EQ(leased(), stats.held);
	OK(gpumem_region_pause(session, "growing", GPUMEM_REGION_DROP));
	OK(gpumem_region_resume(session, "growing", 0));
	require_held("growing", stats.max_size);
	gpumem_region_destroy(region);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client region");
	TCase *tc = tcase_create("client region");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, a_region_gets_memory_in_large_pieces_up_to_its_size);
	tcase_add_test(tc, a_region_makes_do_with_what_the_device_has_left);
	tcase_add_test(tc, a_region_can_have_its_memory_from_the_start);
	tcase_add_test(tc, calls_that_make_no_sense_are_refused);
	tcase_add_test(tc, several_threads_allocate_pause_and_resume);
	tcase_add_test(tc, several_threads_make_a_region_grow_up_to_its_size);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
