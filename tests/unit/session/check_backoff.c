/* SPDX-License-Identifier: Apache-2.0 */
/* client/session/backoff.c: neither a busy loop nor a thundering herd. */
#include "client/session/backoff.h"

#include "tests/tap.h"

#define SECOND GM_NS_PER_S
#define START  (100 * SECOND)

START_TEST(delays_double_up_to_the_longest_and_are_never_shorter_than_half)
{
	struct gm_backoff backoff;
	gm_backoff_init(&backoff, 1);
	uint64_t now = START, delay = GM_BACKOFF_FIRST_NS;
	gm_backoff_lost(&backoff, now, 10 * SECOND);
	for (unsigned i = 0; i < 20; i++) {
		ck_assert_uint_ge(backoff.next_ns - now, delay / 2);
		ck_assert_uint_le(backoff.next_ns - now, delay);
		now = backoff.next_ns;
		gm_backoff_failed(&backoff, now);
		delay = 2 * delay < GM_BACKOFF_MOST_NS ? 2 * delay : GM_BACKOFF_MOST_NS;
	}
	ck_assert_uint_eq(delay, GM_BACKOFF_MOST_NS);
	/* A good connection begins anew. */
	gm_backoff_lost(&backoff, now, 10 * SECOND);
	ck_assert_uint_le(backoff.next_ns - now, GM_BACKOFF_FIRST_NS);
}
END_TEST

START_TEST(a_daemon_that_drops_every_connection_is_tried_less_and_less)
{
	struct gm_backoff backoff;
	gm_backoff_init(&backoff, 1);
	uint64_t now = START;
	gm_backoff_lost(&backoff, now, 10 * SECOND);
	for (unsigned i = 0; i < 20; i++)
		gm_backoff_failed(&backoff, now);
	gm_backoff_lost(&backoff, now, 1);
	ck_assert_uint_ge(backoff.next_ns - now, GM_BACKOFF_MOST_NS / 2);
}
END_TEST

START_TEST(a_request_that_waits_brings_the_next_try_forward_but_not_to_now)
{
	struct gm_backoff backoff;
	gm_backoff_init(&backoff, 1);
	uint64_t now = START;
	for (unsigned i = 0; i < 20; i++)
		gm_backoff_failed(&backoff, now);
	ck_assert_uint_gt(backoff.next_ns, now + GM_BACKOFF_AWAITED_NS);
	for (unsigned i = 0; i < 1000; i++)
		gm_backoff_hurry(&backoff);
	ck_assert_uint_le(backoff.next_ns, now + GM_BACKOFF_AWAITED_NS);
	ck_assert_uint_ge(backoff.next_ns, now + GM_BACKOFF_AWAITED_NS / 2);
	/* Short delays stay as they are. */
	gm_backoff_lost(&backoff, now, 10 * SECOND);
	uint64_t next = backoff.next_ns;
	gm_backoff_hurry(&backoff);
	ck_assert_uint_eq(backoff.next_ns, next);
}
END_TEST

START_TEST(a_thousand_sessions_spread_out)
{
	enum { N = 1000, SLOTS = 10 };
	unsigned slots[SLOTS] = {0};
	/* All lose the daemon at the same moment, and fail as often. */
	for (unsigned i = 0; i < N; i++) {
		struct gm_backoff backoff;
		gm_backoff_init(&backoff, i);
		gm_backoff_lost(&backoff, START, 10 * SECOND);
		for (unsigned k = 0; k < 5; k++)
			gm_backoff_failed(&backoff, START);
		uint64_t delay = 32 * GM_BACKOFF_FIRST_NS;
		uint64_t slot = (backoff.next_ns - START - delay / 2) * SLOTS / (delay / 2 + 1);
		ck_assert_uint_lt(slot, SLOTS);
		slots[slot]++;
	}
	for (unsigned i = 0; i < SLOTS; i++) {
		ck_assert_uint_gt(slots[i], N / SLOTS / 2);
		ck_assert_uint_lt(slots[i], N / SLOTS * 2);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("backoff");
	TCase *tc = tcase_create("backoff");
	tcase_add_test(tc, delays_double_up_to_the_longest_and_are_never_shorter_than_half);
	tcase_add_test(tc, a_daemon_that_drops_every_connection_is_tried_less_and_less);
	tcase_add_test(tc, a_request_that_waits_brings_the_next_try_forward_but_not_to_now);
	tcase_add_test(tc, a_thousand_sessions_spread_out);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
