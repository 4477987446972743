/* SPDX-License-Identifier: Apache-2.0 */
/* What is alive in an arena, as it is told: found until it has a cookie, with its tag. */
#include "autoconf.h"

#include <string.h>

#include "common/bounds.h"
#include "tests/tap.h"
#include "tests/unit/heap/arena_fixture.h"

static struct gm_arena_entry found[4 * GM_ARENA_ENTRIES];

static size_t unlisted(uint64_t min_bytes)
{
	struct gm_arena_walk walk = {0};
	size_t n = 0;

	while (!walk.over) {
		ck_assert_uint_le(n, 3 * GM_ARENA_ENTRIES);
		n += gm_arena_unlisted(arena, min_bytes, &walk, &found[n]);
	}
	return n;
}

#define TAG(text) (&(struct gm_heap_source_call){.tag = (text)})

START_TEST(what_is_alive_is_found_until_it_has_a_cookie)
{
	uint64_t before = gm_arena_changes(arena);
	uint32_t cookie = 1;
	void *ptr = NULL, *small = NULL;

	ck_assert_uint_eq(unlisted(0), 0);
	ptr = take(MIB);
	ck_assert_uint_ne(gm_arena_changes(arena), before);
	ck_assert_uint_eq(unlisted(MIB), 1);
	ck_assert_ptr_eq(found[0].ptr, ptr);
	ck_assert_uint_eq(found[0].size, MIB);
	ck_assert_uint_eq(found[0].serial, 0);
	ck_assert_str_eq(found[0].tag, "");
	ck_assert_uint_eq(unlisted(MIB + 1), 0);
	ck_assert_int_eq(gm_arena_set_cookie(arena, &found[0], 4711), 0);
	ck_assert_uint_eq(unlisted(0), 0);
	/* One cookie is enough. */
	ck_assert_int_eq(gm_arena_set_cookie(arena, &found[0], 1), GM_ARENA_E_FREED);
	ck_assert_int_eq(gm_arena_dealloc(arena, ptr, DONE, &cookie), 0);
	ck_assert_uint_eq(cookie, 4711);
	ck_assert_int_eq(gm_arena_set_cookie(arena, &found[0], 1), GM_ARENA_E_FREED);

	/* Whoever has the place next begins without one. */
	ptr = take(MIB);
	ck_assert_ptr_eq(ptr, found[0].ptr);
	ck_assert_int_eq(gm_arena_dealloc(arena, ptr, DONE, &cookie), 0);
	ck_assert_uint_eq(cookie, 0);

	/* Of small ones those alone that asked for it. */
	ptr = take(100);
	ck_assert_uint_eq(unlisted(0), 0);
	ck_assert_int_eq(
		gm_arena_alloc(arena, 100, 0, ANY, GM_ARENA_LISTED, NULL, &small, NULL), 0);
	ck_assert_uint_eq(unlisted(0), 1);
	ck_assert_ptr_eq(found[0].ptr, small);
	ck_assert_uint_eq(found[0].size, 100);
	/* They take more room than they ask for, which does not count. */
	ck_assert_uint_eq(unlisted(101), 0);
	found[0].ptr = ptr;
	ck_assert_int_eq(gm_arena_set_cookie(arena, &found[0], 1), GM_ARENA_E_FREED);
	give(small);
	give(ptr);
}
END_TEST

START_TEST(a_tag_stays_with_its_block)
{
	static const char *const tags[] = {"weights", "kv cache"};
	char longest[GM_BOUND_NAME_BYTES + 1];
	struct gm_arena_entry stale;
	void *ptr[3];

	memset(longest, 't', sizeof(longest) - 1);
	longest[GM_BOUND_NAME_BYTES] = '\0';
	ck_assert_int_eq(gm_arena_alloc(arena, MIB, 0, ANY, 0, TAG(tags[0]), &ptr[0], NULL), 0);
	ck_assert_uint_eq(unlisted(0), 1);
	ck_assert_str_eq(found[0].tag, tags[0]);
	stale = found[0];
	give(ptr[0]);

	/* Another one of the same size at the same place is not taken for it. */
	ck_assert_int_eq(gm_arena_alloc(arena, MIB, 0, ANY, 0, TAG(tags[1]), &ptr[0], NULL), 0);
	ck_assert_ptr_eq(ptr[0], stale.ptr);
	ck_assert_int_eq(gm_arena_set_cookie(arena, &stale, 1), GM_ARENA_E_FREED);
	give(ptr[0]);
	ptr[0] = take(MIB);
	ck_assert_ptr_eq(ptr[0], stale.ptr);
	ck_assert_int_eq(gm_arena_set_cookie(arena, &stale, 1), GM_ARENA_E_FREED);
	give(ptr[0]);

	ck_assert_int_eq(gm_arena_alloc(arena, MIB, 0, ANY, 0, TAG(longest), &ptr[0], NULL), 0);
	ck_assert_uint_eq(unlisted(0), 1);
	ck_assert_str_eq(found[0].tag, longest);
	/* Small ones of a cache have none; nor does a tag remain of what could not be had. */
	ck_assert_int_eq(gm_arena_alloc(arena, 100, 0, ANY, 0, TAG(tags[0]), &ptr[1], NULL), 0);
	ck_assert_int_eq(gm_arena_alloc(arena, 2 * GIB, 0, ANY, 0, TAG(tags[0]), &ptr[2], NULL),
		GM_ARENA_E_SOURCE);
	ck_assert_uint_eq(unlisted(0), 1);
	/* The arena ends with them alive. */
}
END_TEST

START_TEST(every_one_of_many_blocks_is_found)
{
	enum { N = GM_ARENA_ENTRIES + 60 };
	void *ptr[N];

	for (int i = 0; i < N; i++)
		ptr[i] = take(64 * KIB + (uint64_t)i);
	ck_assert_uint_eq(unlisted(0), N);
	for (int i = 0; i < N; i++) {
		ck_assert_uint_lt(found[i].size - 64 * KIB, N);
		ck_assert_ptr_eq(found[i].ptr, ptr[found[i].size - 64 * KIB]);
		ck_assert_int_eq(gm_arena_set_cookie(arena, &found[i], 1 + (uint32_t)i), 0);
	}
	ck_assert_uint_eq(unlisted(0), 0);
	for (int i = 0; i < N; i++)
		give(ptr[i]);
	ck_assert_uint_eq(unlisted(0), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("arena list");
	TCase *tests = tcase_create("what is alive");

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, what_is_alive_is_found_until_it_has_a_cookie);
	tcase_add_test(tests, a_tag_stays_with_its_block);
	tcase_add_test(tests, every_one_of_many_blocks_is_found);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
