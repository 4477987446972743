/* SPDX-License-Identifier: Apache-2.0 */
/* What an arena gives back: when it is asked to, and with time. */
#include "autoconf.h"

#include "tests/tap.h"
#include "tests/unit/heap/arena_fixture.h"

START_TEST(trim_gives_back_what_it_is_asked_for_and_no_chunk_more)
{
	void *blocks[8];

	for (unsigned i = 0; i < 8; i++)
		blocks[i] = take(2 * MIB);
	for (unsigned i = 0; i < 8; i++)
		give(blocks[i]);
	ck_assert_uint_eq(gm_arena_trim(arena, 3 * MIB), 4 * MIB);
	ck_assert_uint_eq(w.granted, 12 * MIB);
	ck_assert_uint_eq(gm_arena_trim(arena, UINT64_MAX), 12 * MIB);
	ck_assert_uint_eq(gm_arena_trim(arena, UINT64_MAX), 0);
}
END_TEST

START_TEST(trim_takes_small_blocks_out_of_the_caches)
{
	void *blocks[100];

	for (unsigned i = 0; i < 100; i++)
		blocks[i] = take(1 + i * 300);
	for (unsigned i = 0; i < 100; i++)
		give(blocks[i]);
	ck_assert_uint_gt(stats().held, 0);
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(stats().held, 0);
}
END_TEST

START_TEST(a_chunk_goes_when_it_was_free_for_the_whole_decay_time)
{
	uint64_t now = 100 * SECOND, next;
	void *ptr = take(2 * MIB);

	next = gm_arena_tick(arena, now);
	give(ptr);
	/* Free since some time after the last tick: counted from the next one on. */
	now += 5 * SECOND;
	next = gm_arena_tick(arena, now);
	ck_assert_uint_eq(next, now + 10 * SECOND);
	ck_assert_uint_gt(gm_arena_tick(arena, next - 1), next - 1);
	ck_assert_uint_eq(w.granted, 2 * MIB);
	/* Used once more: the time starts again. */
	give(take(2 * MIB));
	now = next;
	next = gm_arena_tick(arena, now);
	ck_assert_uint_eq(w.granted, 2 * MIB);
	ck_assert_uint_eq(next, now + 10 * SECOND);
	ck_assert_uint_eq(gm_arena_tick(arena, next), GM_ARENA_NEVER);
	ck_assert_uint_eq(w.granted, 0);
}
END_TEST

START_TEST(an_idle_threads_cache_and_its_slab_go_with_time)
{
	uint64_t now = SECOND;

	give(take(1000));
	ck_assert_uint_eq(w.granted, 2 * MIB);
	for (unsigned i = 0; i < 10; i++) {
		uint64_t next = gm_arena_tick(arena, now);
		if (next == GM_ARENA_NEVER)
			break;
		ck_assert_uint_gt(next, now);
		now = next;
	}
	ck_assert_uint_eq(w.granted, 0);
}
END_TEST

START_TEST(the_arena_asks_for_a_tick_only_when_none_will_come)
{
	void *ptr = take(2 * MIB);

	ck_assert_uint_eq(w.wakes, 0);
	give(ptr);
	ck_assert_uint_eq(w.wakes, 1);
	give(take(2 * MIB));
	ck_assert_uint_eq(w.wakes, 1);
	ck_assert_uint_ne(gm_arena_tick(arena, SECOND), GM_ARENA_NEVER);
	give(take(2 * MIB));
	ck_assert_uint_eq(w.wakes, 1);
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(gm_arena_tick(arena, 2 * SECOND), GM_ARENA_NEVER);
	give(take(2 * MIB));
	ck_assert_uint_eq(w.wakes, 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shrink");
	TCase *tests = tcase_create("giving back");

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, trim_gives_back_what_it_is_asked_for_and_no_chunk_more);
	tcase_add_test(tests, trim_takes_small_blocks_out_of_the_caches);
	tcase_add_test(tests, a_chunk_goes_when_it_was_free_for_the_whole_decay_time);
	tcase_add_test(tests, an_idle_threads_cache_and_its_slab_go_with_time);
	tcase_add_test(tests, the_arena_asks_for_a_tick_only_when_none_will_come);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
