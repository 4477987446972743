/* SPDX-License-Identifier: Apache-2.0 */
/* How an arena grows: steps, holes, moves, what a refusal leaves, and what goes wrong. */
#include "autoconf.h"

#include <errno.h>
#include <malloc.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/unit/heap/arena_fixture.h"

START_TEST(a_first_small_need_takes_one_chunk_of_the_least_size)
{
	give(take(256));
	ck_assert_uint_eq(w.granted, GM_CHUNK_MIN);
	give(take(100 * KIB));
	/* The small one's chunk is moved over, now that nothing uses it, or another was asked for:
	 * never more than these two. */
	ck_assert_uint_le(w.granted, 2 * GM_CHUNK_MIN);
}
END_TEST

START_TEST(growth_is_by_at_most_a_32nd_of_what_is_held)
{
	uint64_t held = 0;

	for (unsigned i = 0; i < 500; i++) {
		uint64_t bound;
		take(MIB);
		bound = held / 32 < GM_CHUNK_MIN ? GM_CHUNK_MIN : held / 32;
		if (bound > 32 * MIB)
			bound = 32 * MIB;
		ck_assert_uint_le(w.granted - held, bound);
		held = w.granted;
	}
	ck_assert_uint_le(w.granted, 500 * MIB + 500 * MIB / 32 + GM_CHUNK_MIN);
}
END_TEST

START_TEST(a_large_request_asks_once_and_only_for_what_is_missing_next_to_a_free_tail)
{
	void *a = take(3 * MIB), *b;

	ck_assert_uint_eq(w.granted, 4 * MIB);
	b = take(101 * MIB); /* 1 MiB of it is there */
	ck_assert_uint_eq(w.gets, 2);
	ck_assert_uint_eq(w.last_get, 100 * MIB);
	ck_assert_ptr_eq(b, (uint8_t *)a + 3 * MIB);
	memset(b, 1, 101 * MIB);
	give(a);
	give(b);
}
END_TEST

/* Blocks of a chunk each, the first and every second one free again. */
static void take_with_holes(void **blocks, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		blocks[i] = take(2 * MIB);
	for (unsigned i = 0; i < n; i += 2)
		give(blocks[i]);
}

START_TEST(free_neighbours_merge_across_chunk_borders)
{
	void *blocks[16];

	take_with_holes(blocks, 16);
	for (unsigned i = 1; i < 16; i += 2)
		give(blocks[i]);
	uint64_t gets = w.gets;
	blocks[0] = take(32 * MIB);
	ck_assert_uint_eq(w.gets, gets);
	ck_assert_uint_eq(stats().moves, 0);
	give(blocks[0]);
}
END_TEST

START_TEST(a_chunk_in_the_middle_goes_back_alone_and_its_hole_is_filled_first)
{
	uint8_t *blocks[8];

	for (unsigned i = 0; i < 8; i++)
		blocks[i] = take(2 * MIB);
	give(blocks[3]);
	ck_assert_uint_eq(gm_arena_trim(arena, UINT64_MAX), 2 * MIB);
	ck_assert_uint_eq(w.granted, 14 * MIB);
	ck_assert_uint_eq(stats().returns, 1);
	ck_assert_ptr_eq(take(2 * MIB), blocks[3]);
	ck_assert_uint_eq(w.granted, 16 * MIB);
}
END_TEST

START_TEST(own_free_chunks_are_moved_together_before_the_source_is_asked)
{
	void *blocks[16], *large;

	take_with_holes(blocks, 16);
	/* 16 MiB are free, in pieces of 2: no more is asked for. */
	uint64_t gets = w.gets;
	w.capacity = w.granted;
	large = take(16 * MIB);
	memset(large, 1, 16 * MIB);
	ck_assert_uint_eq(w.gets, gets);
	ck_assert_uint_ge(stats().moves, 7);
	ck_assert_uint_eq(w.granted, 32 * MIB);
	ck_assert_uint_eq(stats().held, 32 * MIB);
}
END_TEST

START_TEST(what_moving_cannot_bring_is_asked_for)
{
	void *blocks[8];

	take_with_holes(blocks, 8);
	memset(take(20 * MIB), 1, 20 * MIB);
	ck_assert_uint_eq(w.last_get, 12 * MIB);
	ck_assert_uint_eq(w.granted, 28 * MIB);
}
END_TEST

START_TEST(a_step_that_is_refused_is_asked_for_smaller)
{
	/* Steps are 4 MiB from 128 MiB on. */
	take(128 * MIB);
	w.capacity = w.granted + 2 * MIB;
	take(MIB);
	ck_assert_uint_eq(w.granted, 130 * MIB);
}
END_TEST

/* Asks for a block that cannot be had, and says how often the source was asked for it. */
static uint64_t gets_for(uint64_t size)
{
	uint64_t before = w.gets;
	void *ptr;

	ck_assert_int_eq(
		gm_arena_alloc(arena, size, 0, ANY, 0, NULL, &ptr, NULL), GM_ARENA_E_SOURCE);
	return w.gets - before;
}

START_TEST(a_block_that_can_never_be_had_is_asked_for_once_and_prepared_for_never)
{
	struct gm_arena_stats before, after;
	void *block = take(6 * MIB);

	give(block);
	w.most = w.capacity;
	gm_arena_stats(arena, &before);
	uint64_t puts = w.puts, maps = w.maps, heap = mallinfo2().uordblks + mallinfo2().hblkhd;
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(gets_for(w.capacity + 1), 1);
		ck_assert_uint_eq(gets_for(UINT64_C(1) << 40), 1);
		ck_assert_uint_eq(w.last_get, UINT64_C(1) << 40);
	}
	/* Not a table was made, and what is cached stays. */
	ck_assert_uint_eq(w.maps, maps);
	ck_assert_uint_eq(w.puts, puts);
	ck_assert_uint_le(mallinfo2().uordblks + mallinfo2().hblkhd, heap);
	gm_arena_stats(arena, &after);
	ck_assert_uint_eq(after.held, before.held);
	ck_assert_uint_eq(after.cached, before.cached);
}
END_TEST

START_TEST(a_block_that_can_be_had_after_all_is_had)
{
	w.most = 64 * MIB; /* out of date */
	void *block = take(128 * MIB);
	ck_assert_uint_ge(w.granted, 128 * MIB);
	ck_assert_uint_lt(w.granted, 256 * MIB);
	give(block);
}
END_TEST

START_TEST(a_call_that_fails_asks_the_source_once)
{
	for (int i = 0; i < 2; i++) {
		w.tells_room = i;
		void *large = take(128 * MIB), *block = take(6 * MIB);
		w.capacity = w.granted;
		ck_assert_uint_eq(gets_for(64 * MIB), 1);
		/* Also if free chunks here cover a part of it. */
		give(block);
		ck_assert_uint_eq(gets_for(64 * MIB), 1);
		block = take(6 * MIB);
		if (i)
			ck_assert_uint_eq(gets_for(MIB), 1); /* not a step before */
		give(block);
		give(large);
		gm_arena_trim(arena, UINT64_MAX);
		w.capacity = 0;
		ck_assert_uint_eq(gets_for(100), 1);
		w.capacity = GIB;
	}
}
END_TEST

START_TEST(what_the_source_would_not_give_is_asked_for_when_all_else_was_tried)
{
	/* 100 chunks that lie apart, more than are moved if the source has memory. */
	void *blocks[200], *large;

	w.chunk_most = 2 * MIB;
	for (unsigned i = 0; i < 200; i++)
		blocks[i] = take(2 * MIB);
	for (unsigned i = 0; i < 200; i += 2)
		give(blocks[i]);
	w.tells_room = true;
	w.capacity = w.granted + 2 * MIB;
	uint64_t gets = w.gets;
	large = take(202 * MIB);
	ck_assert_uint_eq(w.gets, gets + 1);
	ck_assert_uint_eq(w.last_get, 2 * MIB);
	give(large);
}
END_TEST

START_TEST(a_refusal_brings_the_sources_status_and_changes_nothing)
{
	gpumem_status status = GPUMEM_OK;
	void *ptr = &w;

	take(MIB);
	struct gm_arena_stats before = stats();
	w.fail_status = GPUMEM_E_LIMIT;
	w.fail_gets = 100;
	ck_assert_int_eq(
		gm_arena_alloc(arena, 64 * MIB, 0, ANY, 0, NULL, &ptr, &status), GM_ARENA_E_SOURCE);
	ck_assert_int_eq(status, GPUMEM_E_LIMIT);
	ck_assert_ptr_eq(ptr, &w);
	struct gm_arena_stats after = stats();
	ck_assert_mem_eq(&before, &after, sizeof(before));
	w.fail_gets = 0;
	take(64 * MIB);
}
END_TEST

START_TEST(a_small_block_comes_from_the_heap_when_no_slab_is_to_be_had)
{
	void *large = take(3 * MIB);
	void *small;

	w.capacity = w.granted;
	small = take(256);
	memset(small, 1, 256);
	give(small);
	give(large);
}
END_TEST

START_TEST(chunks_of_odd_sizes_are_all_used)
{
	w.chunk_min = 8 * MIB;
	for (unsigned i = 0; i < 200; i++)
		take(1000);
	/* No chunk fits a slab; that does not mean one more for every small block. */
	ck_assert_uint_le(w.granted, 24 * MIB);
	for (unsigned i = 0; i < 12; i++)
		take(MIB);
	ck_assert_uint_le(w.granted, 32 * MIB);
}
END_TEST

START_TEST(what_cannot_be_mapped_goes_back)
{
	void *ptr;

	w.fail_map = 100;
	ck_assert_int_eq(gm_arena_alloc(arena, 8 * MIB, 0, ANY, 0, NULL, &ptr, NULL), -EIO);
	ck_assert_uint_eq(w.granted, 0);
	ck_assert_uint_eq(stats().held, 0);
	w.fail_map = 0;
	w.fail_access = 100;
	ck_assert_int_eq(gm_arena_alloc(arena, 8 * MIB, 0, ANY, 0, NULL, &ptr, NULL), -EIO);
	ck_assert_uint_eq(w.granted, 0);
	w.fail_access = 0;
	give(take(8 * MIB));
}
END_TEST

START_TEST(a_chunk_that_cannot_be_unmapped_is_used_on)
{
	give(take(2 * MIB));
	w.fail_unmap = 1;
	ck_assert_uint_eq(gm_arena_trim(arena, UINT64_MAX), 0);
	ck_assert_uint_eq(stats().held, 2 * MIB);
	uint64_t gets = w.gets;
	give(take(2 * MIB));
	ck_assert_uint_eq(w.gets, gets);
	ck_assert_uint_eq(gm_arena_trim(arena, UINT64_MAX), 2 * MIB);
}
END_TEST

START_TEST(the_reservation_is_halved_until_it_fits)
{
	struct gm_arena_config config = {.ops = &w.ops, .backend = &w, .source = w.source};
	struct gm_arena *other = NULL;
	struct world small;

	world_init(&small, false, GIB);
	small.reserve_max = 300 * MIB;
	config.ops = &small.ops;
	config.backend = &small;
	config.source = small.source;
	ck_assert_int_eq(gm_arena_new(&config, &other), 0);
	ck_assert_uint_eq(small.reserved, 256 * MIB);
	gm_arena_free(other);
	world_deinit(&small);
	small.reserve_max = MIB;
	ck_assert_int_eq(gm_arena_new(&config, &other), -ENOMEM);
	gm_arena_free(NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("grow");
	TCase *tests = tcase_create("growth");

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, a_first_small_need_takes_one_chunk_of_the_least_size);
	tcase_add_test(tests, growth_is_by_at_most_a_32nd_of_what_is_held);
	tcase_add_test(
		tests, a_large_request_asks_once_and_only_for_what_is_missing_next_to_a_free_tail);
	tcase_add_test(tests, free_neighbours_merge_across_chunk_borders);
	tcase_add_test(tests, a_chunk_in_the_middle_goes_back_alone_and_its_hole_is_filled_first);
	tcase_add_test(tests, own_free_chunks_are_moved_together_before_the_source_is_asked);
	tcase_add_test(tests, what_moving_cannot_bring_is_asked_for);
	tcase_add_test(tests, a_step_that_is_refused_is_asked_for_smaller);
	tcase_add_test(
		tests, a_block_that_can_never_be_had_is_asked_for_once_and_prepared_for_never);
	tcase_add_test(tests, a_block_that_can_be_had_after_all_is_had);
	tcase_add_test(tests, a_call_that_fails_asks_the_source_once);
	tcase_add_test(tests, what_the_source_would_not_give_is_asked_for_when_all_else_was_tried);
	tcase_add_test(tests, a_refusal_brings_the_sources_status_and_changes_nothing);
	tcase_add_test(tests, a_small_block_comes_from_the_heap_when_no_slab_is_to_be_had);
	tcase_add_test(tests, chunks_of_odd_sizes_are_all_used);
	tcase_add_test(tests, what_cannot_be_mapped_goes_back);
	tcase_add_test(tests, a_chunk_that_cannot_be_unmapped_is_used_on);
	tcase_add_test(tests, the_reservation_is_halved_until_it_fits);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
