/* SPDX-License-Identifier: Apache-2.0 */
/* What an arena is asked and answers: arguments, pointers that are none, alignment, the figures. */
#include "autoconf.h"

#include "client/heap/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/bounds.h"
#include "tests/tap.h"
#include "tests/unit/heap/arena_fixture.h"

START_TEST(nonsense_is_refused_by_name)
{
	void *ptr = &w;
	ck_assert_int_eq(gm_arena_alloc(arena, 0, 0, ANY, 0, NULL, &ptr, NULL), GM_ARENA_E_SIZE);
	ck_assert_int_eq(gm_arena_alloc(arena, GM_LEASE_BYTES_MAX + 1, 0, ANY, 0, NULL, &ptr, NULL),
		GM_ARENA_E_SIZE);
	ck_assert_int_eq(
		gm_arena_alloc(arena, UINT64_MAX, 0, ANY, 0, NULL, &ptr, NULL), GM_ARENA_E_SIZE);
	ck_assert_int_eq(gm_arena_alloc(arena, UINT64_C(1) << 63, 0, ANY, 0, NULL, &ptr, NULL),
		GM_ARENA_E_SIZE);
	ck_assert_int_eq(
		gm_arena_alloc(arena, 1, 3, ANY, 0, NULL, &ptr, NULL), GM_ARENA_E_ALIGNMENT);
	ck_assert_int_eq(
		gm_arena_alloc(arena, 1, 768, ANY, 0, NULL, &ptr, NULL), GM_ARENA_E_ALIGNMENT);
	ck_assert_int_eq(gm_arena_alloc(arena, 1, 2 * GM_CHUNK_MAX, ANY, 0, NULL, &ptr, NULL),
		GM_ARENA_E_ALIGNMENT);
	ck_assert_int_eq(gm_arena_alloc(arena, 1, 0, DONE, 0, NULL, &ptr, NULL), GM_ARENA_E_STREAM);
	ck_assert_ptr_eq(ptr, &w);
	ck_assert_uint_eq(w.gets, 0);
	for (int i = GM_ARENA_E_SIZE; i <= GM_ARENA_E_STREAM; i++) {
		ck_assert_int_ne(gm_arena_status(i), GPUMEM_OK);
		ck_assert(i == GM_ARENA_E_SOURCE || gm_arena_text(i));
	}
	ck_assert_int_eq(gm_arena_status(-ENOMEM), GPUMEM_E_HOST_MEMORY);
	ck_assert_int_eq(gm_arena_status(-EIO), GPUMEM_E_SYSTEM);
	ck_assert_int_eq(gm_arena_status(GM_ARENA_E_FREED), GPUMEM_E_INVALID);
}
END_TEST

START_TEST(a_size_that_no_address_range_holds_is_refused)
{
	void *ptr;
	w.capacity = UINT64_MAX;
	ck_assert_int_eq(
		gm_arena_alloc(arena, 16 * GIB, 0, ANY, 0, NULL, &ptr, NULL), GM_ARENA_E_SPACE);
	ck_assert_uint_eq(w.granted, 0);
}
END_TEST

START_TEST(pointers_that_are_none_are_told_apart)
{
	static const uint64_t sizes[] = {256, 1000, 32 * KIB, 32 * KIB + 1, 100 * KIB, 5 * MIB};
	uint8_t local[64];

	ck_assert_int_eq(gm_arena_dealloc(arena, local, DONE, NULL), GM_ARENA_E_FOREIGN);
	ck_assert_int_eq(gm_arena_dealloc(arena, NULL, DONE, NULL), GM_ARENA_E_FOREIGN);
	ck_assert(!gm_arena_holds(arena, local));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint8_t *ptr = take(sizes[i]);
		uint64_t size = 0;
		ck_assert(gm_arena_holds(arena, ptr));
		ck_assert_int_eq(gm_arena_size(arena, ptr, &size), 0);
		ck_assert_uint_eq(size, sizes[i]);
		ck_assert_int_eq(gm_arena_dealloc(arena, ptr + 1, DONE, NULL), GM_ARENA_E_INSIDE);
		ck_assert_int_eq(
			gm_arena_dealloc(arena, ptr + sizes[i] - 1, DONE, NULL), GM_ARENA_E_INSIDE);
		if (sizes[i] > 256)
			ck_assert_int_eq(
				gm_arena_dealloc(arena, ptr + 256, DONE, NULL), GM_ARENA_E_INSIDE);
		ck_assert_int_eq(gm_arena_dealloc(arena, ptr, DONE, NULL), 0);
		ck_assert_int_eq(gm_arena_dealloc(arena, ptr, DONE, NULL), GM_ARENA_E_FREED);
		ck_assert_int_eq(gm_arena_size(arena, ptr, &size), GM_ARENA_E_FREED);
		ck_assert_int_eq(gm_arena_dealloc(arena, ptr + 512, DONE, NULL), GM_ARENA_E_FREED);
	}
	ck_assert_uint_eq(stats().active, 0);
}
END_TEST

START_TEST(the_chunks_of_a_block_are_listed_by_address)
{
	static const uint64_t sizes[] = {256, 33 * KIB, 3 * MIB, 21 * MIB};
	uint64_t *ids, offset;
	size_t n;

	w.chunk_most = 4 * MIB;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint8_t *ptr = take(sizes[i]);
		ck_assert_int_eq(gm_arena_cover(arena, ptr, sizes[i], &ids, &n, &offset), 0);
		uint64_t at = (uint64_t)(uintptr_t)ptr - offset;
		for (size_t c = 0; c < n; c++) {
			const struct world_chunk *chunk = &w.chunks[ids[c]];
			ck_assert_uint_eq(chunk->addr, at);
			ck_assert_uint_lt(at, (uint64_t)(uintptr_t)ptr + sizes[i]);
			at += chunk->bytes;
		}
		ck_assert_uint_ge(at, (uint64_t)(uintptr_t)ptr + sizes[i]);
		ck_assert(sizes[i] < 21 * MIB ? n <= 2 : n >= 6);
		free(ids);
	}
}
END_TEST

START_TEST(an_inside_pointer_before_the_next_block_of_its_granule_is_still_inside)
{
	/* Two blocks that share a granule of the table: the end of one, the start of the next. */
	uint8_t *a = take(33 * KIB), *b = take(33 * KIB);

	ck_assert_ptr_eq(b, a + 33 * KIB);
	ck_assert_int_eq(gm_arena_dealloc(arena, b - 256, DONE, NULL), GM_ARENA_E_INSIDE);
	ck_assert_int_eq(gm_arena_dealloc(arena, b + 256, DONE, NULL), GM_ARENA_E_INSIDE);
	give(a);
	ck_assert_int_eq(gm_arena_dealloc(arena, b - 256, DONE, NULL), GM_ARENA_E_FREED);
	give(b);
}
END_TEST

START_TEST(every_alignment_holds_at_every_kind_of_size)
{
	static const uint64_t sizes[] = {1, 300, 20 * KIB, 40 * KIB, 3 * MIB};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (uint64_t alignment = 1; alignment <= 32 * MIB; alignment *= 2) {
			void *ptr = NULL;
			ck_assert_int_eq(gm_arena_alloc(arena, sizes[i], alignment, ANY, 0, NULL,
						 &ptr, NULL),
				0);
			ck_assert_uint_eq((uintptr_t)ptr % alignment, 0);
			ck_assert_uint_eq((uintptr_t)ptr % 256, 0);
			memset(ptr, 1, sizes[i]);
			give(ptr);
		}
	}
}
END_TEST

START_TEST(what_is_cached_is_what_a_trim_returns_and_the_rest_is_slack)
{
	void *large = take(300 * MIB), *middle = take(5 * MIB), *small[50];
	struct gm_arena_stats s;

	for (unsigned i = 0; i < 50; i++)
		small[i] = take(30 * KIB);
	s = stats();
	ck_assert_uint_eq(s.cached, 0);
	ck_assert_uint_eq(s.in_use + s.slack, s.held);

	/* One small block keeps its slab. */
	give(middle);
	for (unsigned i = 1; i < 50; i++)
		give(small[i]);
	s = stats();
	ck_assert_uint_ge(s.cached, 4 * MIB);
	ck_assert_uint_eq(s.in_use + s.cached + s.slack, s.held);
	ck_assert_uint_eq(gm_arena_trim(arena, UINT64_MAX), s.cached);
	s = stats();
	ck_assert_uint_eq(s.cached, 0);
	ck_assert_uint_eq(s.in_use + s.slack, s.held);

	give(small[0]);
	give(large);
	s = stats();
	ck_assert_uint_eq(s.cached, s.held);
	ck_assert_uint_eq(gm_arena_trim(arena, UINT64_MAX), s.cached);
}
END_TEST

START_TEST(the_figures_say_what_happened)
{
	void *a = take(1000), *b = take(MIB + 1);
	struct gm_arena_stats s = stats();

	ck_assert_uint_eq(s.in_use, 1000 + MIB + 1);
	ck_assert_uint_eq(s.rounding, 24 + 255);
	ck_assert_uint_eq(s.held, w.granted);
	/* Both chunks are partly in use, so nothing could be returned. */
	ck_assert_uint_eq(s.cached, 0);
	ck_assert_uint_eq(s.slack, s.held - s.in_use);
	ck_assert_uint_eq(s.active, 2);
	ck_assert_uint_eq(s.misses, 2);
	ck_assert_uint_eq(s.hits, 0);
	give(a);
	give(b);
	give(take(1000));
	s = stats();
	ck_assert_uint_eq(s.in_use, 0);
	ck_assert_uint_eq(s.rounding, 0);
	ck_assert_uint_eq(s.cached, s.held);
	ck_assert_uint_eq(s.slack, 0);
	ck_assert_uint_eq(s.peak, 1000 + MIB + 1);
	ck_assert_uint_eq(s.hits, 1);
	ck_assert_uint_eq(s.active, 0);
	ck_assert_uint_ge(s.reserved, GIB);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("arena");
	TCase *tests = tcase_create("arguments");

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, nonsense_is_refused_by_name);
	tcase_add_test(tests, a_size_that_no_address_range_holds_is_refused);
	tcase_add_test(tests, pointers_that_are_none_are_told_apart);
	tcase_add_test(tests, the_chunks_of_a_block_are_listed_by_address);
	tcase_add_test(
		tests, an_inside_pointer_before_the_next_block_of_its_granule_is_still_inside);
	tcase_add_test(tests, every_alignment_holds_at_every_kind_of_size);
	tcase_add_test(tests, what_is_cached_is_what_a_trim_returns_and_the_rest_is_slack);
	tcase_add_test(tests, the_figures_say_what_happened);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
