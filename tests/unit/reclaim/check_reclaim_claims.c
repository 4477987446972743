/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/reclaim/reclaim_plan.c and reclaim_run.c, through the core: what becomes of a client's claims. Who is counted on, and who
 * is blamed, when less comes than a client claimed to have. */
#include "daemon/reclaim/reclaim.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"
#include "tests/unit/reclaim/reclaim_fixture.h"

START_TEST(a_client_that_ignores_it_costs_the_deadline_and_is_left_alone_for_a_while)
{
	no_levels();
	struct gm_lease *lease = fake_lease(&fake, a, d, 100 * GiB);
	static struct fake_request q;
	fake_says(&fake, a, d, 50 * GiB, 0);
	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(asks(), 1);
	fake_pass(&fake, 100 * MS - 1);
	ck_assert_uint_eq(q.ended, 0);
	fake_pass(&fake, 1);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_IGNORED), 1);
	ck_assert_uint_eq(fake_told(&fake, GM_EVENT_IGNORED)->session, gm_session_id(a));
	ck_assert_uint_eq(fake_told(&fake, GM_EVENT_IGNORED)->event.asked, 10 * GiB);
	ck_assert_uint_eq(fake_told(&fake, GM_EVENT_IGNORED)->event.bytes, 0);
	ck_assert_ptr_nonnull(strstr(fake_told(&fake, GM_EVENT_IGNORED)->text,
		"was asked for 10.0G and returned none of it in time"));
	ck_assert(!fake_told(&fake, GM_EVENT_RECLAIM_ENDED)->event.reached);
	/* Left alone: the next request is refused at once. */
	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	ck_assert_uint_eq(asks(), 0);
	uint64_t quiet = SECOND;
	for (int i = 0; i < 9; i++) {
		fake_pass(&fake, quiet - 1);
		fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
		ck_assert_uint_eq(asks(), 0);
		fake_pass(&fake, 1);
		fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
		ck_assert_uint_eq(asks(), 1);
		fake_pass(&fake, 100 * MS);
		ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
		quiet = quiet < 64 * SECOND ? quiet * 2 : quiet;
	}
	/* One answer makes it good again. */
	fake_pass(&fake, quiet);
	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	give_back(a, lease, 10 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	asks();
	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(asks(), 1);
}
END_TEST

START_TEST(of_who_returns_a_part_it_is_told_what_was_asked_and_what_came)
{
	no_levels();
	struct gm_lease *lease = fake_lease(&fake, a, d, 100 * GiB);
	static struct fake_request q;
	/* It says that it has more than it is asked for, which is neither figure. */
	fake_says(&fake, a, d, 50 * GiB, 0);
	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake_asked(&fake, a)->bytes, 10 * GiB);
	give_back(a, lease, 3 * GiB);
	give_back(a, lease, GiB);
	fake_pass(&fake, 100 * MS);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	const struct fake_event *e = fake_told(&fake, GM_EVENT_IGNORED);
	ck_assert_uint_eq(e->session, gm_session_id(a));
	ck_assert_uint_eq(e->event.asked, 10 * GiB);
	ck_assert_uint_eq(e->event.bytes, 4 * GiB);
	ck_assert_uint_eq(e->event.held, 96 * GiB);
	ck_assert_ptr_nonnull(
		strstr(e->text, "was asked for 10.0G and returned 4.0G of it in time"));
}
END_TEST

START_TEST(a_client_is_blamed_only_for_what_it_could_have_returned)
{
	no_levels();
	fake_lease(&fake, a, d, 100 * GiB);
	static struct fake_request q;

	/* It has used what it cached, since it said so. */
	fake_says(&fake, a, d, 10 * GiB, 0);
	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(asks(), 1);
	fake_says(&fake, a, d, 0, 0);
	fake_pass(&fake, 100 * MS);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_IGNORED), 0);

	/* It is asked for more than it caches. */
	fake_pass(&fake, 2 * SECOND);
	fake_says(&fake, a, d, 3 * GiB, 0);
	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake_asked(&fake, a)->bytes, 10 * GiB);
	fake_pass(&fake, 100 * MS);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_IGNORED), 1);
	ck_assert_uint_eq(fake_told(&fake, GM_EVENT_IGNORED)->event.asked, 3 * GiB);
	ck_assert_uint_eq(fake_told(&fake, GM_EVENT_IGNORED)->event.bytes, 0);
}
END_TEST

START_TEST(a_client_that_may_count_rounding_as_cached_is_asked_but_not_blamed)
{
	no_levels();
	fake_lease(&fake, a, d, 100 * GiB);
	static struct fake_request q;
	fake_says(&fake, a, d, 10 * GiB, 0);
	fake_says_roughly(&fake, a, d);
	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(asks(), 1);
	fake_pass(&fake, 100 * MS);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_IGNORED), 0);
}
END_TEST

/* Two clients have most, and nothing to return. They are asked first, as nobody says that it has anything, and left alone in
 * turns afterwards. */
START_TEST(a_later_round_begins_with_what_clients_say_then)
{
	no_levels();
	fake_lease(&fake, a, d, 40 * GiB);
	struct gm_session *other = fake_session(&fake, 4, 4);
	fake_lease(&fake, other, d, 40 * GiB);
	struct gm_lease *lease = fake_lease(&fake, c, d, 20 * GiB);
	static struct fake_request q;
	fake_wait(&fake, &q, b, d, 10 * GiB, GM_WAIT_FOREVER);
	ck_assert_ptr_nonnull(fake_asked(&fake, a));
	ck_assert_ptr_null(fake_asked(&fake, c));
	fake_says(&fake, c, d, 15 * GiB, 0);
	fake_pass(&fake, SECOND);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));
	ck_assert_uint_eq(fake_asked(&fake, c)->bytes, 10 * GiB);
	give_back(c, lease, 10 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

START_TEST(what_clients_say_they_have_is_asked_for_even_if_it_is_too_little)
{
	no_levels();
	fake_lease(&fake, a, d, 80 * GiB);
	fake_lease(&fake, c, d, 20 * GiB);
	static struct fake_request q;
	fake_says(&fake, c, d, 3 * GiB, 0);
	fake_wait(&fake, &q, b, d, 10 * GiB, GM_WAIT_FOREVER);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));
	ck_assert_uint_eq(fake_asked(&fake, c)->bytes, 3 * GiB);
	ck_assert_uint_eq(fake_asked(&fake, a)->bytes, 7 * GiB);
	gm_core_cancel(fake.core, &q.r);
}
END_TEST

START_TEST(when_what_was_claimed_does_not_come_everybody_else_is_asked)
{
	no_levels();
	fake_lease(&fake, a, d, 50 * GiB);
	struct gm_lease *lease = fake_lease(&fake, c, d, 50 * GiB);
	static struct fake_request q;
	fake_says(&fake, a, d, 50 * GiB, 0);
	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_ptr_null(fake_asked(&fake, c));
	fake_pass(&fake, 100 * MS);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_int_eq(fake_asked(&fake, c)->stage, GM_STAGE_UNUSED);
	give_back(c, lease, 10 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	/* And twice the deadline is the most that a request waits that may not. */
	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	fake_pass(&fake, 200 * MS);
	ck_assert_uint_eq(q.ended, 1);
}
END_TEST

START_TEST(a_claim_beyond_what_it_holds_is_not_believed)
{
	no_levels();
	fake_lease(&fake, a, d, 2 * GiB);
	fake_lease(&fake, b, d, 98 * GiB);
	fake_says(&fake, a, d, UINT64_MAX, UINT64_MAX);
	fake_says(&fake, b, d, 10 * GiB, 0);
	static struct fake_request q;
	fake_ask(&fake, &q, c, d, 12 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake_asked(&fake, a)->bytes, 2 * GiB);
	ck_assert_uint_eq(fake_asked(&fake, b)->bytes, 10 * GiB);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("reclaim claims");
	TCase *tcase = tcase_create("claims");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(
		tcase, a_client_that_ignores_it_costs_the_deadline_and_is_left_alone_for_a_while);
	tcase_add_test(tcase, of_who_returns_a_part_it_is_told_what_was_asked_and_what_came);
	tcase_add_test(tcase, a_client_is_blamed_only_for_what_it_could_have_returned);
	tcase_add_test(tcase, a_client_that_may_count_rounding_as_cached_is_asked_but_not_blamed);
	tcase_add_test(tcase, a_later_round_begins_with_what_clients_say_then);
	tcase_add_test(tcase, what_clients_say_they_have_is_asked_for_even_if_it_is_too_little);
	tcase_add_test(tcase, when_what_was_claimed_does_not_come_everybody_else_is_asked);
	tcase_add_test(tcase, a_claim_beyond_what_it_holds_is_not_believed);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
