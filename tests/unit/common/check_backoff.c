/* SPDX-License-Identifier: Apache-2.0 */
/* common/backoff.h: delays that double, failures that are forgotten, and no thundering herd. */
#include "common/backoff.h"

#include "common/system/random.h"
#include "tests/tap.h"

#define FIRST   UINT64_C(1000)
#define LONGEST (FIRST << GM_BACKOFF_DOUBLINGS)
#define START   UINT64_C(1000000000)

START_TEST(delays_double_up_to_the_longest)
{
	struct gm_backoff backoff = {0};
	uint64_t now = START, delay = FIRST;

	for (unsigned i = 0; i < 300; i++) {
		ck_assert(!gm_backoff_holds(&backoff, now));
		gm_backoff_begin(&backoff, now, FIRST);
		gm_backoff_fail(&backoff, now);
		ck_assert(gm_backoff_holds(&backoff, now + delay - 1));
		ck_assert(!gm_backoff_holds(&backoff, now + delay));
		now += delay;
		delay = delay < LONGEST ? 2 * delay : LONGEST;
	}
	ck_assert_uint_eq(delay, LONGEST);
	ck_assert_uint_eq(gm_backoff_longest(FIRST), LONGEST);
}
END_TEST

START_TEST(failures_are_forgotten_after_the_longest_delay_without_one_and_no_sooner)
{
	struct gm_backoff backoff = {0};
	uint64_t now = START;

	ck_assert(!gm_backoff_remembers(&backoff, now, FIRST));
	for (unsigned i = 0; i < 10; i++) {
		gm_backoff_begin(&backoff, now, FIRST);
		gm_backoff_fail(&backoff, now);
	}
	uint64_t end = backoff.until_ns;
	gm_backoff_forget_old(&backoff, end + LONGEST - 1, FIRST);
	ck_assert(gm_backoff_remembers(&backoff, end + LONGEST - 1, FIRST));
	ck_assert_uint_eq(backoff.failures, GM_BACKOFF_DOUBLINGS);
	gm_backoff_forget_old(&backoff, end + LONGEST, FIRST);
	ck_assert_uint_eq(backoff.failures, 0);
}
END_TEST

START_TEST(a_failure_counts_from_when_it_was_noticed)
{
	struct gm_backoff backoff = {0};

	gm_backoff_begin(&backoff, START, FIRST);
	gm_backoff_fail(&backoff, START + 1000 * LONGEST);
	ck_assert(gm_backoff_remembers(&backoff, START + 1001 * LONGEST - 1, FIRST));
	ck_assert(!gm_backoff_remembers(&backoff, START + 1001 * LONGEST, FIRST));
}
END_TEST

START_TEST(a_thousand_spread_over_the_second_half_of_their_delay)
{
	enum { N = 1000, SLOTS = 10 };
	unsigned slots[SLOTS] = {0};

	/* All fail at the same moment, and as often. */
	for (unsigned i = 0; i < N; i++) {
		struct gm_backoff backoff = {.failures = 5};
		uint64_t delay = FIRST << 5, random;

		ck_assert_int_eq(gm_random(&random, sizeof(random)), 0);
		gm_backoff_begin(&backoff, START, FIRST);
		gm_backoff_spread(&backoff, START, random);
		ck_assert_uint_ge(backoff.until_ns, START + delay / 2);
		ck_assert_uint_le(backoff.until_ns, START + delay);
		slots[(backoff.until_ns - START - delay / 2) * SLOTS / (delay / 2 + 1)]++;
	}
	/* 100 in each on average. Fewer than 40, or more than 160, come by chance once in a billion runs. */
	for (unsigned i = 0; i < SLOTS; i++) {
		ck_assert_uint_gt(slots[i], 40);
		ck_assert_uint_lt(slots[i], 160);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("backoff");
	TCase *tc = tcase_create("backoff");
	tcase_add_test(tc, delays_double_up_to_the_longest);
	tcase_add_test(
		tc, failures_are_forgotten_after_the_longest_delay_without_one_and_no_sooner);
	tcase_add_test(tc, a_failure_counts_from_when_it_was_noticed);
	tcase_add_test(tc, a_thousand_spread_over_the_second_half_of_their_delay);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
