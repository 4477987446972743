/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "client/heap/arena_segment.h"
#include "tests/tap.h"
#include "tests/unit/heap/arena_fixture.h"

/* An arena of regions: the world puts each next to the one before, which must make no difference.
 */

static void setup_regions(void)
{
	setup_with(false, true);
}

static void setup_streams(void)
{
	setup_with(true, true);
}

static void *take_aligned(uint64_t size, uint64_t alignment)
{
	return take_with(size, alignment, ANY);
}

START_TEST(nothing_is_reserved_and_a_first_need_takes_the_least)
{
	ck_assert_uint_eq(w.reserved, 0);
	ck_assert_uint_eq(stats().reserved, 0);
	void *ptr = take(100000);
	ck_assert_uint_eq(stats().held, GM_CHUNK_MIN);
	give(ptr);
}
END_TEST

START_TEST(steps_grow_with_what_is_held_up_to_32_mib)
{
	void *ptr[600];
	for (int i = 0; i < 600; i++)
		ptr[i] = take(MIB);
	ck_assert_uint_eq(w.largest_get, 32 * MIB);
	ck_assert_uint_le(stats().held, 600 * MIB + 32 * MIB);
	ck_assert_uint_lt(w.gets, 60);
	for (int i = 0; i < 600; i++)
		give(ptr[i]);
}
END_TEST

START_TEST(regions_that_touch_do_not_merge)
{
	/* Each fills a region of its own; both are free, and side by side. */
	void *a = take(8 * MIB), *b = take(8 * MIB);
	ck_assert_ptr_eq((char *)a + 8 * MIB, b);
	give(a);
	give(b);
	void *c = take(10 * MIB);
	ck_assert_uint_eq(stats().held, 26 * MIB);
	void *d = take(8 * MIB), *e = take(8 * MIB);
	ck_assert_uint_eq(stats().held, 26 * MIB);
	give(c);
	give(d);
	give(e);
}
END_TEST

START_TEST(before_it_fails_free_regions_go_back_for_one_of_the_right_size)
{
	void *ptr[50], *large;
	for (int i = 0; i < 50; i++)
		ptr[i] = take(16 * MIB);
	for (int i = 0; i < 50; i++)
		give(ptr[i]);
	ck_assert_uint_ge(stats().held, 800 * MIB);
	large = take(900 * MIB);
	ck_assert_uint_ge(w.puts, 25);
	ck_assert_uint_eq(stats().held, 900 * MIB);
	give(large);
}
END_TEST

START_TEST(what_is_too_much_is_refused_with_the_sources_status)
{
	void *ptr = NULL, *one = take(MIB);
	gpumem_status status = GPUMEM_OK;
	ck_assert_int_eq(
		gm_arena_alloc(arena, 2048 * MIB, 0, GPUMEM_STREAM_ANY, 0, NULL, &ptr, &status),
		GM_ARENA_E_SOURCE);
	ck_assert_int_eq(status, GPUMEM_E_NO_MEMORY);
	ck_assert_ptr_null(ptr);
	give(one);
}
END_TEST

START_TEST(alignment_beyond_that_of_a_region_holds)
{
	void *ptr[20];
	for (int i = 0; i < 10; i++) {
		ptr[2 * i] = take_aligned(MIB, 16 * MIB);
		ptr[2 * i + 1] = take_aligned(300, 4096);
	}
	for (int i = 0; i < 20; i++)
		give(ptr[i]);
}
END_TEST

START_TEST(pointers_that_are_none_are_told_apart)
{
	char *a = take(8 * MIB);
	ck_assert(gm_arena_holds(arena, a + 5 * MIB));
	ck_assert(!gm_arena_holds(arena, a + 8 * MIB));
	ck_assert(!gm_arena_holds(arena, &w));
	ck_assert_int_eq(
		gm_arena_dealloc(arena, a + MIB, GPUMEM_STREAM_DONE, NULL), GM_ARENA_E_INSIDE);
	ck_assert_int_eq(gm_arena_dealloc(arena, &w, GPUMEM_STREAM_DONE, NULL), GM_ARENA_E_FOREIGN);
	give(a);
	ck_assert_int_eq(gm_arena_dealloc(arena, a, GPUMEM_STREAM_DONE, NULL), GM_ARENA_E_FREED);
	/* Its region is gone: it is nobody's address any more. */
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert(!gm_arena_holds(arena, a));
	ck_assert_int_eq(gm_arena_dealloc(arena, a, GPUMEM_STREAM_DONE, NULL), GM_ARENA_E_FOREIGN);
}
END_TEST

START_TEST(what_does_not_open_goes_back)
{
	void *ptr = NULL;
	w.fail_map = 100;
	ck_assert_int_eq(
		gm_arena_alloc(arena, 8 * MIB, 0, GPUMEM_STREAM_ANY, 0, NULL, &ptr, NULL), -EIO);
	ck_assert_int_eq(
		gm_arena_alloc(arena, 64, 0, GPUMEM_STREAM_ANY, 0, NULL, &ptr, NULL), -EIO);
	ck_assert_uint_eq(w.granted, 0);
	ck_assert_uint_eq(stats().held, 0);
	w.fail_map = 0;
	give(take(8 * MIB));
	give(take(64));
}
END_TEST

START_TEST(an_address_that_the_tables_cannot_hold_is_refused)
{
	void *ptr = NULL;
	w.next_addr = _i ? GM_REGION_RANGE : UINT64_C(0x7e0000000000) + 4096;
	ck_assert_int_eq(gm_arena_alloc(arena, 8 * MIB, 0, GPUMEM_STREAM_ANY, 0, NULL, &ptr, NULL),
		-EOPNOTSUPP);
	ck_assert_uint_eq(w.granted, 0);
	ck_assert_uint_eq(stats().held, 0);
}
END_TEST

START_TEST(a_region_that_does_not_close_is_used_on)
{
	void *a = take(8 * MIB);
	give(a);
	w.fail_unmap = 1;
	ck_assert_uint_eq(gm_arena_trim(arena, UINT64_MAX), 0);
	ck_assert_ptr_eq(take(8 * MIB), a);
	give(a);
	ck_assert_uint_eq(gm_arena_trim(arena, UINT64_MAX), 8 * MIB);
}
END_TEST

START_TEST(memory_that_is_open_already_is_refused_under_another_id)
{
	/* A block's, or a slab's; all of it, or more than that. */
	static const uint64_t sizes[] = {2 * MIB, 8 * MIB, 64};
	void *ptr = NULL, *a = take(4 * MIB), *next = take(8 * MIB);
	w.open_as = w.next_id - 2;
	ck_assert_ptr_eq((void *)(uintptr_t)w.chunks[w.open_as].addr, a);
	int r = gm_arena_alloc(arena, sizes[_i], 0, GPUMEM_STREAM_ANY, 0, NULL, &ptr, NULL);
	ck_assert_int_eq(r, -EPROTO);
	ck_assert_int_eq(gm_arena_status(r), GPUMEM_E_PROTOCOL);
	ck_assert_ptr_null(ptr);
	ck_assert_uint_eq(w.opened_as, 0);
	ck_assert_uint_eq(w.granted, 12 * MIB);
	ck_assert_uint_eq(stats().held, 12 * MIB);
	w.open_as = 0;
	/* What was there is as it was. */
	ck_assert(gm_arena_holds(arena, a) && gm_arena_holds(arena, next));
	give(take(sizes[_i]));
	give(a);
	give(next);
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(stats().held, 0);
}
END_TEST

static void *taken_there;

/* As another thread may, at the worst moment. */
static void take_there(struct world *world, uint64_t addr)
{
	world->closed = NULL;
	world->next_addr = addr;
	taken_there = take(8 * MIB);
}

START_TEST(an_address_is_the_next_regions_as_soon_as_it_is_closed)
{
	void *a = take(8 * MIB), *before = _i ? take(16 * MIB) : NULL;
	give(a);
	w.closed = take_there;
	ck_assert_uint_eq(gm_arena_trim(arena, UINT64_MAX), 8 * MIB);
	ck_assert_ptr_eq(taken_there, a);
	ck_assert(gm_arena_holds(arena, a));
	ck_assert_uint_eq(stats().held, (_i ? 24 : 8) * MIB);
	give(a);
	if (before)
		give(before);
	ck_assert_uint_eq(gm_arena_trim(arena, UINT64_MAX), (_i ? 24 : 8) * MIB);
	ck_assert(!gm_arena_holds(arena, a));
}
END_TEST

START_TEST(small_blocks_have_regions_of_their_own_and_go_with_time)
{
	void *ptr[200];
	for (int i = 0; i < 200; i++)
		ptr[i] = take(512);
	ck_assert_uint_eq(stats().held, GM_CHUNK_MIN);
	for (int i = 0; i < 200; i++)
		give(ptr[i]);
	for (uint64_t t = 1; t < 200; t++)
		gm_arena_tick(arena, t * SECOND);
	ck_assert_uint_eq(stats().held, 0);
}
END_TEST

START_TEST(a_region_goes_back_only_after_its_last_use_has_passed)
{
	void *ptr = NULL;
	gpumem_stream stream = world_stream(1);
	ck_assert_int_eq(gm_arena_alloc(arena, 8 * MIB, 0, stream, 0, NULL, &ptr, NULL), 0);
	world_launch(&w, 1);
	ck_assert_int_eq(gm_arena_dealloc(arena, ptr, stream, NULL), 0);
	ck_assert_uint_eq(gm_arena_trim(arena, UINT64_MAX), 0);
	world_finish_all(&w);
	ck_assert_uint_eq(gm_arena_trim(arena, UINT64_MAX), 8 * MIB);
}
END_TEST

static void *churn(void *ctx)
{
	unsigned seed = (unsigned)(uintptr_t)ctx;
	void *held[16] = {0};
	for (int i = 0; i < 4000; i++) {
		unsigned at = (unsigned)rand_r(&seed) % 16;
		uint64_t size = UINT64_C(1) << (rand_r(&seed) % 23);
		if (held[at]) {
			if (gm_arena_dealloc(arena, held[at], GPUMEM_STREAM_DONE, NULL))
				return "a live pointer was refused";
			held[at] = NULL;
		} else {
			(void)gm_arena_alloc(
				arena, size, 0, GPUMEM_STREAM_ANY, 0, NULL, &held[at], NULL);
		}
		if (i % 500 == 499)
			gm_arena_trim(arena, UINT64_MAX);
	}
	for (int i = 0; i < 16; i++)
		if (held[i] && gm_arena_dealloc(arena, held[i], GPUMEM_STREAM_DONE, NULL))
			return "a live pointer was refused at the end";
	return NULL;
}

START_TEST(threads_allocate_and_free_among_one_another)
{
	pthread_t threads[4];
	for (uintptr_t i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
	for (int i = 0; i < 4; i++) {
		void *wrong;
		ck_assert_int_eq(pthread_join(threads[i], &wrong), 0);
		if (wrong)
			ck_abort_msg("%s", (const char *)wrong);
	}
	ck_assert_uint_eq(stats().active, 0);
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(stats().held, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("region");
	TCase *tcase = tcase_create("regions");
	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup_regions, teardown);
	tcase_add_test(tcase, nothing_is_reserved_and_a_first_need_takes_the_least);
	tcase_add_test(tcase, steps_grow_with_what_is_held_up_to_32_mib);
	tcase_add_test(tcase, regions_that_touch_do_not_merge);
	tcase_add_test(tcase, before_it_fails_free_regions_go_back_for_one_of_the_right_size);
	tcase_add_test(tcase, what_is_too_much_is_refused_with_the_sources_status);
	tcase_add_test(tcase, alignment_beyond_that_of_a_region_holds);
	tcase_add_test(tcase, pointers_that_are_none_are_told_apart);
	tcase_add_test(tcase, what_does_not_open_goes_back);
	tcase_add_loop_test(tcase, an_address_that_the_tables_cannot_hold_is_refused, 0, 2);
	tcase_add_test(tcase, a_region_that_does_not_close_is_used_on);
	tcase_add_loop_test(tcase, memory_that_is_open_already_is_refused_under_another_id, 0, 3);
	tcase_add_loop_test(tcase, an_address_is_the_next_regions_as_soon_as_it_is_closed, 0, 2);
	tcase_add_test(tcase, small_blocks_have_regions_of_their_own_and_go_with_time);
	tcase_add_test(tcase, threads_allocate_and_free_among_one_another);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("streams");
	tcase_add_checked_fixture(tcase, setup_streams, teardown);
	tcase_add_test(tcase, a_region_goes_back_only_after_its_last_use_has_passed);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
