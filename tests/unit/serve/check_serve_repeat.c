/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines that say the same again and again: how many are written, and what is said of the others. */
#include "common/clock.h"
#include "daemon/serve/serve_repeat.h"
#include "tests/tap.h"

/* Also if no two of them come within the first second, in which lines are left out. */
START_TEST(a_day_of_reclaims_takes_few_lines_and_none_is_forgotten)
{
	static const uint64_t every_ms[] = {500, 1000, 2000, 5000, 59000};
	struct gm_serve_repeat repeat = {0};
	uint64_t every = every_ms[_i] * GM_NS_PER_S / 1000;
	uint64_t lines = 0, left_out = 0, n = 86400 * GM_NS_PER_S / every;

	for (uint64_t i = 0; i < n; i++) {
		uint64_t left = 0;
		if (gm_serve_repeat_allows(&repeat, 1 + i * every, &left))
			lines++;
		left_out += left;
	}
	ck_assert_uint_le(lines, 86400 / 60 + 10);
	ck_assert_uint_ge(lines, 86400 / 60 / 2);
	ck_assert_uint_eq(lines + left_out + repeat.left_out, n);
}
END_TEST

START_TEST(after_a_calm_time_lines_are_written_at_once_again)
{
	struct gm_serve_repeat repeat = {0};
	uint64_t now = 1, left = 7;

	ck_assert(gm_serve_repeat_allows(&repeat, now, &left));
	ck_assert_uint_eq(left, 0);
	ck_assert(!gm_serve_repeat_allows(&repeat, now + 1, &left));
	ck_assert(!gm_serve_repeat_allows(&repeat, now + 2, &left));
	now += GM_SERVE_REPEAT_FIRST_NS;
	ck_assert(gm_serve_repeat_allows(&repeat, now, &left));
	ck_assert_uint_eq(left, 2);
	ck_assert(!gm_serve_repeat_allows(&repeat, now + GM_SERVE_REPEAT_FIRST_NS, &left));

	/* Two calm lines: the second one says nothing of others, and then a second is enough. */
	now += GM_SERVE_REPEAT_LAST_NS;
	ck_assert(gm_serve_repeat_allows(&repeat, now, &left));
	ck_assert_uint_eq(left, 1);
	now += GM_SERVE_REPEAT_LAST_NS;
	ck_assert(gm_serve_repeat_allows(&repeat, now, &left));
	ck_assert_uint_eq(left, 0);
	ck_assert(gm_serve_repeat_allows(&repeat, now + GM_SERVE_REPEAT_FIRST_NS, &left));
}
END_TEST

START_TEST(each_key_has_its_own_time_and_the_oldest_is_dropped)
{
	struct gm_serve_repeat_list repeats = {0};
	uint64_t left, now = 1;

	for (uint64_t i = 0; i < GM_SERVE_REPEAT_KEYS; i++)
		ck_assert(gm_serve_repeat_list_allows(
			&repeats, (uint64_t[GM_SERVE_REPEAT_PARTS]){0, i}, now + i, &left));
	ck_assert(!gm_serve_repeat_list_allows(
		&repeats, (uint64_t[GM_SERVE_REPEAT_PARTS]){0, 1}, now + 50, &left));
	/* One more takes the place of the first. */
	ck_assert(gm_serve_repeat_list_allows(
		&repeats, (uint64_t[GM_SERVE_REPEAT_PARTS]){1}, now + 60, &left));
	ck_assert(gm_serve_repeat_list_allows(
		&repeats, (uint64_t[GM_SERVE_REPEAT_PARTS]){0, 0}, now + 61, &left));
	now += 2 * GM_SERVE_REPEAT_KEY_FIRST_NS;
	ck_assert(gm_serve_repeat_list_allows(
		&repeats, (uint64_t[GM_SERVE_REPEAT_PARTS]){0, 2}, now, &left));
	ck_assert_uint_eq(left, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("repeat");
	TCase *tcase = tcase_create("repeat");
	tcase_add_loop_test(tcase, a_day_of_reclaims_takes_few_lines_and_none_is_forgotten, 0, 5);
	tcase_add_test(tcase, after_a_calm_time_lines_are_written_at_once_again);
	tcase_add_test(tcase, each_key_has_its_own_time_and_the_oldest_is_dropped);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
