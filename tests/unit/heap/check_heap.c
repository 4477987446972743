/* SPDX-License-Identifier: Apache-2.0 */
/* The heap by itself: cutting, merging, holes, alignment, order of age. Addresses are only numbers.
 */
#include "autoconf.h"

#include "client/heap/heap.h"

#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"

#define MIB  (UINT64_C(1) << 20)
#define BASE (UINT64_C(1) << 40)

static struct gm_heap heap;
static struct gm_heap_bins clean, other;

static void setup(void)
{
	gm_heap_init(&heap);
	gm_heap_bins_init(&clean, false);
	gm_heap_bins_init(&other, true);
}

static void teardown(void)
{
	gm_heap_deinit(&heap);
}

static struct gm_heap_block *take(uint64_t bytes, uint64_t alignment)
{
	struct gm_heap_block *block = NULL;
	ck_assert_int_eq(gm_heap_alloc(&heap, &clean, bytes, alignment, &block), 0);
	ck_assert_uint_eq(block->bytes, bytes);
	ck_assert_uint_eq(block->addr % alignment, 0);
	return block;
}

static unsigned count_free(struct gm_heap_bins *bins)
{
	unsigned n = 0;
	for (struct gm_heap_block *b = gm_heap_walk(bins, GM_HEAP_UNIT, NULL); b;
		b = gm_heap_walk(bins, GM_HEAP_UNIT, b))
		n++;
	return n;
}

START_TEST(an_empty_heap_has_nothing)
{
	struct gm_heap_block *block;
	ck_assert_int_eq(gm_heap_alloc(&heap, &clean, 256, 256, &block), GM_HEAP_E_NONE);
	ck_assert_ptr_null(gm_heap_last_before(&heap, BASE));
	ck_assert_ptr_null(gm_heap_walk(&clean, 256, NULL));
}
END_TEST

START_TEST(a_range_is_cut_and_merges_again_in_any_order_of_frees)
{
	static const int orders[][4] = {
		{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}, {0, 2, 1, 3}};

	ck_assert_int_eq(gm_heap_add(&heap, BASE, MIB, &clean, 0, NULL), 0);
	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
		struct gm_heap_block *blocks[4];
		for (int j = 0; j < 4; j++) {
			blocks[j] = take(MIB / 4, 256);
			ck_assert_uint_eq(blocks[j]->addr, BASE + (uint64_t)j * MIB / 4);
		}
		ck_assert_uint_eq(clean.bytes, 0);
		for (int j = 0; j < 4; j++)
			gm_heap_release(&heap, blocks[orders[i][j]], &clean, 0);
		ck_assert_uint_eq(clean.bytes, MIB);
		ck_assert_uint_eq(count_free(&clean), 1);
	}
}
END_TEST

START_TEST(neighbouring_ranges_merge_and_those_with_a_hole_between_do_not)
{
	struct gm_heap_block *block;

	ck_assert_int_eq(gm_heap_add(&heap, BASE, MIB, &clean, 0, NULL), 0);
	ck_assert_int_eq(gm_heap_add(&heap, BASE + 2 * MIB, MIB, &clean, 0, NULL), 0);
	ck_assert_int_eq(gm_heap_alloc(&heap, &clean, MIB + 256, 256, &block), GM_HEAP_E_NONE);
	ck_assert_uint_eq(heap.n_ranges, 2);
	ck_assert_int_eq(gm_heap_add(&heap, BASE + MIB, MIB, &clean, 0, &block), 0);
	ck_assert_uint_eq(heap.n_ranges, 1);
	ck_assert_uint_eq(block->bytes, 3 * MIB);
	block = take(3 * MIB, 256);
	ck_assert_uint_eq(block->addr, BASE);
}
END_TEST

START_TEST(a_piece_in_the_middle_leaves_a_hole_that_can_be_filled_again)
{
	struct gm_heap_block *block = NULL, *low, *high;

	ck_assert_int_eq(gm_heap_add(&heap, BASE, 4 * MIB, &clean, 0, &block), 0);
	ck_assert_int_eq(gm_heap_remove(&heap, block, BASE + MIB, MIB), 0);
	ck_assert_uint_eq(heap.bytes, 3 * MIB);
	ck_assert_uint_eq(clean.bytes, 3 * MIB);
	ck_assert_uint_eq(heap.n_ranges, 2);
	low = gm_heap_last_before(&heap, BASE + MIB);
	high = gm_heap_first_after(&heap, BASE + 2 * MIB);
	ck_assert_ptr_eq(low, block);
	ck_assert_uint_eq(low->bytes, MIB);
	ck_assert_uint_eq(high->bytes, 2 * MIB);
	ck_assert_ptr_null(gm_heap_last_before(&heap, BASE + 2 * MIB));
	ck_assert_int_eq(gm_heap_add(&heap, BASE + MIB, MIB, &clean, 0, &block), 0);
	ck_assert_uint_eq(block->bytes, 4 * MIB);
	/* The ends, and then all of it. */
	ck_assert_int_eq(gm_heap_remove(&heap, block, BASE + 3 * MIB, MIB), 0);
	block = gm_heap_first_after(&heap, BASE);
	ck_assert_int_eq(gm_heap_remove(&heap, block, BASE, MIB), 0);
	block = gm_heap_first_after(&heap, BASE + MIB);
	ck_assert_uint_eq(block->bytes, 2 * MIB);
	ck_assert_int_eq(gm_heap_remove(&heap, block, BASE + MIB, 2 * MIB), 0);
	ck_assert_uint_eq(heap.n_ranges, 0);
	ck_assert_uint_eq(heap.bytes, 0);
	ck_assert_uint_eq(clean.bytes, 0);
}
END_TEST

START_TEST(blocks_in_use_next_to_a_removed_piece_stay_and_free_as_before)
{
	struct gm_heap_block *a, *b, *c;

	ck_assert_int_eq(gm_heap_add(&heap, BASE, 3 * MIB, &clean, 0, NULL), 0);
	a = take(MIB, 256);
	b = take(MIB, 256);
	c = take(MIB, 256);
	b = gm_heap_release(&heap, b, &clean, 0);
	ck_assert_int_eq(gm_heap_remove(&heap, b, BASE + MIB, MIB), 0);
	gm_heap_release(&heap, a, &clean, 0);
	gm_heap_release(&heap, c, &clean, 0);
	ck_assert_uint_eq(count_free(&clean), 2);
	ck_assert_uint_eq(clean.bytes, 2 * MIB);
}
END_TEST

START_TEST(a_larger_alignment_is_kept_and_what_is_skipped_stays_free)
{
	struct gm_heap_block *blocks[32];
	unsigned n = 0;

	ck_assert_int_eq(gm_heap_add(&heap, BASE + 256, 8 * MIB, &clean, 0, NULL), 0);
	for (uint64_t alignment = 256; alignment <= MIB; alignment *= 2)
		blocks[n++] = take(1024, alignment);
	ck_assert_uint_eq(clean.bytes, 8 * MIB - n * 1024);
	while (n)
		gm_heap_release(&heap, blocks[--n], &clean, 0);
	ck_assert_uint_eq(count_free(&clean), 1);
}
END_TEST

START_TEST(an_aligned_fit_in_its_own_class_is_found)
{
	/* Exactly one block of the size at the alignment: plain class search would not look. */
	ck_assert_int_eq(gm_heap_add(&heap, BASE, MIB, &clean, 0, NULL), 0);
	take(MIB, MIB);
}
END_TEST

START_TEST(a_request_takes_the_best_fit_of_its_own_class_before_breaking_a_larger_block)
{
	struct gm_heap_block *blocks[9], *got;
	uint64_t exact = 0;

	ck_assert_int_eq(gm_heap_add(&heap, BASE, 64 * MIB, &clean, 0, NULL), 0);
	/* Holes of sizes of one class (1/64 of 1 MiB is 16 KiB), kept apart by blocks in use. */
	for (unsigned i = 0; i < 9; i++) {
		blocks[i] = take(MIB + 256 * i, 256);
		take(256, 256);
	}
	for (unsigned i = 0; i < 9; i++) {
		if (i == 4)
			exact = blocks[i]->addr;
		gm_heap_release(&heap, blocks[i], &clean, 0);
	}
	got = take(MIB + 256 * 4, 256);
	ck_assert_uint_eq(got->addr, exact);
}
END_TEST

START_TEST(of_equal_fits_the_lowest_address_is_taken)
{
	struct gm_heap_block *a, *b, *c;
	uint64_t lowest;

	ck_assert_int_eq(gm_heap_add(&heap, BASE, 16 * MIB, &clean, 0, NULL), 0);
	a = take(MIB, 256);
	take(256, 256);
	b = take(MIB, 256);
	take(256, 256);
	c = take(MIB, 256);
	take(256, 256);
	lowest = a->addr;
	gm_heap_release(&heap, a, &clean, 0);
	gm_heap_release(&heap, c, &clean, 0);
	gm_heap_release(&heap, b, &clean, 0);
	ck_assert_uint_eq(take(MIB, 256)->addr, lowest);
}
END_TEST

START_TEST(blocks_merge_only_with_those_in_the_same_bins)
{
	struct gm_heap_block *a, *b, *c;

	ck_assert_int_eq(gm_heap_add(&heap, BASE, 3 * MIB, &clean, 0, NULL), 0);
	a = take(MIB, 256);
	b = take(MIB, 256);
	c = take(MIB, 256);
	gm_heap_release(&heap, a, &clean, 0);
	gm_heap_release(&heap, b, &other, 7);
	gm_heap_release(&heap, c, &clean, 0);
	ck_assert_uint_eq(count_free(&clean), 2);
	ck_assert_uint_eq(other.bytes, MIB);
	ck_assert_uint_eq(other.oldest->stamp, 7);
	gm_heap_rebin(&heap, other.oldest, &clean, 0);
	ck_assert_uint_eq(count_free(&clean), 1);
	ck_assert_ptr_null(other.oldest);
}
END_TEST

START_TEST(aged_bins_keep_the_order_through_cuts_and_merges)
{
	struct gm_heap_block *blocks[8], *got;
	uint64_t last = 0;
	unsigned n = 0;

	ck_assert_int_eq(gm_heap_add(&heap, BASE, 8 * MIB, &clean, 0, NULL), 0);
	for (unsigned i = 0; i < 8; i++)
		blocks[i] = take(MIB, 256);
	gm_heap_release(&heap, blocks[6], &other, 1);
	gm_heap_release(&heap, blocks[2], &other, 2);
	gm_heap_release(&heap, blocks[4], &other, 3);
	/* Joins blocks 2 to 4, of which the youngest part counts. */
	gm_heap_release(&heap, blocks[3], &other, 4);
	gm_heap_release(&heap, blocks[0], &other, 5);
	/* A piece out of the middle of the oldest one: both rests are as old as it was. */
	ck_assert_int_eq(
		gm_heap_carve(&heap, other.oldest, BASE + 6 * MIB + MIB / 4, MIB / 4, &got), 0);
	for (struct gm_heap_block *b = other.oldest; b; b = b->age_next) {
		ck_assert_uint_ge(b->stamp, last);
		last = b->stamp;
		n++;
	}
	ck_assert_uint_eq(n, 4);
	ck_assert_uint_eq(other.oldest->stamp, 1);
	ck_assert_uint_eq(other.oldest->age_next->stamp, 1);
	ck_assert_uint_eq(other.oldest->age_prev->stamp, 5);
}
END_TEST

START_TEST(sizes_up_to_the_largest_range_find_their_class)
{
	struct gm_heap_block *block;

	for (unsigned shift = 8; shift <= 46; shift++) {
		uint64_t bytes = UINT64_C(1) << shift;
		ck_assert_int_eq(gm_heap_add(&heap, BASE, bytes, &clean, 0, &block), 0);
		ck_assert_int_eq(
			gm_heap_alloc(&heap, &clean, bytes + 256, 256, &block), GM_HEAP_E_NONE);
		block = take(bytes, 256);
		block = gm_heap_release(&heap, block, &clean, 0);
		ck_assert_int_eq(gm_heap_remove(&heap, block, BASE, bytes), 0);
	}
}
END_TEST

/* Random cutting and freeing against a plain table of who has which unit. */
START_TEST(random_use_never_overlaps_and_always_merges_back)
{
	enum { UNITS = 4096, LIVE = 256 };
	static uint8_t owner[UNITS];
	struct gm_heap_block *live[LIVE] = {0};
	unsigned seed = 12345 + (unsigned)_i;

	memset(owner, 0, sizeof(owner));
	ck_assert_int_eq(gm_heap_add(&heap, BASE, UNITS * 256, &clean, 0, NULL), 0);
	for (unsigned step = 0; step < 20000; step++) {
		unsigned i = (unsigned)rand_r(&seed) % LIVE;
		if (live[i]) {
			memset(&owner[(live[i]->addr - BASE) / 256], 0, live[i]->bytes / 256);
			gm_heap_release(&heap, live[i], &clean, 0);
			live[i] = NULL;
			continue;
		}
		uint64_t bytes = 256 * (1 + (uint64_t)rand_r(&seed) % 64);
		uint64_t alignment = UINT64_C(256) << ((unsigned)rand_r(&seed) % 5);
		int r = gm_heap_alloc(&heap, &clean, bytes, alignment, &live[i]);
		if (r == GM_HEAP_E_NONE) {
			live[i] = NULL;
			continue;
		}
		ck_assert_int_eq(r, 0);
		ck_assert_uint_eq(live[i]->addr % alignment, 0);
		for (uint64_t u = 0; u < bytes / 256; u++)
			ck_assert_uint_eq(owner[(live[i]->addr - BASE) / 256 + u]++, 0);
	}
	for (unsigned i = 0; i < LIVE; i++) {
		if (live[i])
			gm_heap_release(&heap, live[i], &clean, 0);
	}
	ck_assert_uint_eq(count_free(&clean), 1);
	ck_assert_uint_eq(clean.bytes, UNITS * 256);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("heap");
	TCase *tcase = tcase_create("heap");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, an_empty_heap_has_nothing);
	tcase_add_test(tcase, a_range_is_cut_and_merges_again_in_any_order_of_frees);
	tcase_add_test(tcase, neighbouring_ranges_merge_and_those_with_a_hole_between_do_not);
	tcase_add_test(tcase, a_piece_in_the_middle_leaves_a_hole_that_can_be_filled_again);
	tcase_add_test(tcase, blocks_in_use_next_to_a_removed_piece_stay_and_free_as_before);
	tcase_add_test(tcase, a_larger_alignment_is_kept_and_what_is_skipped_stays_free);
	tcase_add_test(tcase, an_aligned_fit_in_its_own_class_is_found);
	tcase_add_test(tcase,
		a_request_takes_the_best_fit_of_its_own_class_before_breaking_a_larger_block);
	tcase_add_test(tcase, of_equal_fits_the_lowest_address_is_taken);
	tcase_add_test(tcase, blocks_merge_only_with_those_in_the_same_bins);
	tcase_add_test(tcase, aged_bins_keep_the_order_through_cuts_and_merges);
	tcase_add_test(tcase, sizes_up_to_the_largest_range_find_their_class);
	tcase_add_loop_test(tcase, random_use_never_overlaps_and_always_merges_back, 0, 4);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
