/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* Call stacks in the client's page: equal ones share a place, and places come free again. */

#include <stdlib.h>
#include <string.h>

#include "client/session/session_stacks.h"
#include "tests/bound.h"
#include "tests/tap.h"

#define DEPTH 10
#define OUTER 8

static struct gm_page_client *page;
static struct gm_session_stacks *stacks;

static void set_up(void)
{
	page = aligned_alloc(64, (sizeof(*page) + 63) & ~(size_t)63);
	ck_assert_ptr_nonnull(page);
	memset(page, 0, sizeof(*page));
	stacks = gm_session_stacks_new(page);
	ck_assert_ptr_nonnull(stacks);
}

static void tear_down(void)
{
	gm_session_stacks_free(stacks);
	free(page);
}

/* Takes the stack of a way that the bits of a number choose. What stands around each call keeps the
 * compiler from joining the two. */
static __attribute__((noinline)) uint32_t go(unsigned way, unsigned depth)
{
	uint32_t id;

	if (!depth)
		return gm_session_stacks_take(stacks);
	if (way & 1) {
		__asm__ volatile("/* one */");
		id = go(way >> 1, depth - 1);
		__asm__ volatile("/* one */");
	} else {
		__asm__ volatile("/* other */");
		id = go(way >> 1, depth - 1);
		__asm__ volatile("/* other */");
	}
	return id;
}

/* So deep that the callers of this function are left out. Only the last calls differ. */
static uint32_t take_way(unsigned way)
{
	return go(way << OUTER, OUTER + DEPTH);
}

START_TEST(equal_stacks_share_a_place)
{
	uint32_t ids[2];

	ids[0] = take_way(5);
	ids[1] = take_way(5);
	ck_assert_uint_ne(ids[0], 0);
	ck_assert_uint_eq(ids[0], ids[1]);
	ck_assert_uint_gt(page->stacks[ids[0] - 1].frames, 3);
	ck_assert_uint_eq(page->stacks[ids[0] - 1].seq % 2, 0);

	/* The module is this program. */
	uint64_t frame = page->stacks[ids[0] - 1].frame[0];
	ck_assert_uint_lt(frame >> GM_PAGE_FRAME_SHIFT, GM_BOUND_STACK_MODULES);
	ck_assert_ptr_nonnull(
		strstr(page->modules[frame >> GM_PAGE_FRAME_SHIFT].path, "check_session_stacks"));
	ck_assert_uint_ne(page->modules[frame >> GM_PAGE_FRAME_SHIFT].id_bytes, 0);

	static char text[GM_STACK_TEXT];
	gm_session_stacks_text(stacks, ids[0], text);
	ck_assert_ptr_nonnull(strstr(text, "check_session_stacks+0x"));

	/* Both references go before the place does. */
	gm_session_stacks_drop(stacks, ids[0]);
	ck_assert_uint_ne(page->stacks[ids[0] - 1].frames, 0);
	gm_session_stacks_ref(stacks, ids[0]);
	gm_session_stacks_drop(stacks, ids[0]);
	gm_session_stacks_drop(stacks, ids[0]);
	ck_assert_uint_eq(page->stacks[ids[0] - 1].frames, 0);
	gm_session_stacks_text(stacks, ids[0], text);
	ck_assert_str_eq(text, "");
}
END_TEST

START_TEST(further_stacks_find_no_place_until_one_is_free)
{
	GM_BOUND_TEST(STACKS);
	static uint32_t ids[1U << DEPTH];
	unsigned n = 0, first_without = 0;

	for (unsigned way = 0; way < 1U << DEPTH; way++) {
		ids[way] = take_way(way);
		n += ids[way] != 0;
		if (!ids[way] && !first_without)
			first_without = way;
	}
	ck_assert_uint_eq(n, GM_BOUND_STACKS);
	ck_assert_uint_eq(first_without, GM_BOUND_STACKS);
	for (unsigned i = 0; i < GM_BOUND_STACKS; i++)
		ck_assert_uint_ne(page->stacks[i].frames, 0);

	gm_session_stacks_drop(stacks, ids[7]);
	ck_assert_uint_eq(take_way(first_without), ids[7]);
	ck_assert_uint_eq(take_way(first_without + 1), 0);
	/* Those that are there are found all the same. */
	ck_assert_uint_eq(take_way(8), ids[8]);
}
END_TEST

START_TEST(without_stacks_nothing_happens)
{
	static char text[GM_STACK_TEXT] = "old";

	ck_assert_uint_eq(gm_session_stacks_take(NULL), 0);
	gm_session_stacks_ref(NULL, 1);
	gm_session_stacks_drop(NULL, 1);
	gm_session_stacks_drop(stacks, 0);
	gm_session_stacks_ref(stacks, 0);
	gm_session_stacks_hold(NULL);
	gm_session_stacks_release(NULL);
	gm_session_stacks_text(NULL, 1, text);
	ck_assert_str_eq(text, "");
	gm_session_stacks_free(NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("session stacks");
	TCase *tc = tcase_create("session stacks");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, equal_stacks_share_a_place);
	tcase_add_test(tc, further_stacks_find_no_place_until_one_is_free);
	tcase_add_test(tc, without_stacks_nothing_happens);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
