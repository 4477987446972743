/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

#include "client/session/capture.h"

#include "tests/tap.h"

static struct gm_captures captures;
static char a, b, c;
static unsigned freed;

static void set_up(void)
{
	freed = 0;
	gm_captures_init(&captures);
}

static void tear_down(void)
{
	gm_captures_deinit(&captures);
}

static void count(void *ctx, void *ptr, uint32_t device)
{
	ck_assert_ptr_eq(ctx, &freed);
	ck_assert_uint_eq(device, 3);
	ck_assert(ptr == &a || ptr == &b || ptr == &c);
	freed++;
}

START_TEST(what_no_graph_uses_is_freed_as_ever)
{
	ck_assert(!gm_captures_any(&captures));
	ck_assert_int_eq(gm_captures_free(&captures, &a, 3, 0), 0);
	ck_assert(!gm_captures_any(&captures));
}
END_TEST

START_TEST(what_is_freed_in_a_capture_stays_until_its_graph_is_gone)
{
	ck_assert_int_eq(gm_captures_free(&captures, &a, 3, 7), GM_CAPTURE_KEPT);
	ck_assert(gm_captures_any(&captures));
	ck_assert_int_eq(gm_captures_free(&captures, &a, 3, 7), GM_CAPTURE_E_FREED);
	ck_assert_int_eq(gm_captures_free(&captures, &a, 3, 0), GM_CAPTURE_E_FREED);
	ck_assert_uint_eq(gm_captures_gone(&captures, 8, count, &freed), 0);
	ck_assert_uint_eq(freed, 0);
	ck_assert_uint_eq(gm_captures_gone(&captures, 7, count, &freed), 1);
	ck_assert_uint_eq(freed, 1);
	ck_assert(!gm_captures_any(&captures));
}
END_TEST

START_TEST(what_is_allocated_in_a_capture_stays_when_freed_later)
{
	ck_assert_int_eq(gm_captures_add(&captures, &a, 3, 7), 0);
	ck_assert_int_eq(gm_captures_add(&captures, &b, 3, 7), 0);
	ck_assert_int_eq(gm_captures_free(&captures, &a, 3, 0), GM_CAPTURE_KEPT);
	/* b is in use: it goes on as an ordinary block. */
	ck_assert_uint_eq(gm_captures_gone(&captures, 7, count, &freed), 2);
	ck_assert_uint_eq(freed, 1);
	ck_assert_int_eq(gm_captures_free(&captures, &b, 3, 0), 0);
}
END_TEST

START_TEST(what_two_graphs_use_goes_with_the_later_one)
{
	/* Whichever of them that is. */
	uint64_t first = _i ? 9 : 7, later = _i ? 7 : 9;
	ck_assert_int_eq(gm_captures_add(&captures, &a, 3, 7), 0);
	ck_assert_int_eq(gm_captures_free(&captures, &a, 3, 9), GM_CAPTURE_KEPT);
	ck_assert_uint_eq(gm_captures_gone(&captures, first, count, &freed), 1);
	ck_assert_uint_eq(freed, 0);
	ck_assert(gm_captures_any(&captures));
	ck_assert_int_eq(gm_captures_free(&captures, &a, 3, 0), GM_CAPTURE_E_FREED);
	ck_assert_uint_eq(gm_captures_gone(&captures, first, count, &freed), 0);
	ck_assert_uint_eq(gm_captures_gone(&captures, later, count, &freed), 1);
	ck_assert_uint_eq(freed, 1);
	ck_assert(!gm_captures_any(&captures));
}
END_TEST

START_TEST(what_one_graph_allocates_and_frees_goes_with_it)
{
	ck_assert_int_eq(gm_captures_add(&captures, &a, 3, 7), 0);
	ck_assert_int_eq(gm_captures_free(&captures, &a, 3, 7), GM_CAPTURE_KEPT);
	ck_assert_uint_eq(gm_captures_gone(&captures, 7, count, &freed), 1);
	ck_assert_uint_eq(freed, 1);
	ck_assert(!gm_captures_any(&captures));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("capture");
	TCase *tc = tcase_create("capture");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, what_no_graph_uses_is_freed_as_ever);
	tcase_add_test(tc, what_is_freed_in_a_capture_stays_until_its_graph_is_gone);
	tcase_add_test(tc, what_is_allocated_in_a_capture_stays_when_freed_later);
	tcase_add_loop_test(tc, what_two_graphs_use_goes_with_the_later_one, 0, 2);
	tcase_add_test(tc, what_one_graph_allocates_and_frees_goes_with_it);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
