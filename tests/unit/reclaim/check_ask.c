/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/queue/ask.c, through the core: what a request gets from clients that lie about evictable memory, and what it
 * gets while clients are asked for other users' requests. */
#include "daemon/reclaim/reclaim_overdue.h"
#include "daemon/lease/session_private.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"
#include "tests/unit/reclaim/reclaim_fixture.h"
#include "tests/unit/reclaim/ask_fixture.h"

/* A session of the liar's user: it is asked first, claims all it holds, and moves nothing. */
static struct gm_session *add_liar(uint64_t bytes)
{
	struct gm_session *liar = fake_session(&fake, 9, 9);

	give(9, GM_LIMIT_PRIORITY, 0, -1);
	fake_lease(&fake, liar, d, bytes);
	fake_says(&fake, liar, d, 0, bytes);
	return liar;
}

/* Lets time pass until the request is over. Whoever is asked to move buffers and is honest does. */
static void answer_until_over(
	struct fake_request *q, struct gm_session *honest, struct gm_lease *lease)
{
	for (int i = 0; i < 100 && !q->ended; i++) {
		const struct gm_reclaim_message *ask = fake_asked(&fake, honest);
		if (ask && ask->spill > 0)
			give_back(honest, lease, ask->spill);
		asks();
		fake_core_run(&fake);
		if (!q->ended)
			fake_pass(&fake, 100 * MS);
	}
	ck_assert_uint_eq(q->ended, 1);
}

/* Twice: when nobody knows the liar, and when it is known. */
START_TEST(a_liar_does_not_get_a_request_refused_that_an_honest_client_covers)
{
	no_levels();
	for (int i = 0; i < 2; i++)
		add_liar(30 * GiB);
	struct gm_lease *lease = fake_lease(&fake, c, d, 40 * GiB);
	fake_says(&fake, c, d, 0, 40 * GiB);
	static struct fake_request q;
	for (int i = 0; i < 3; i++) {
		uint64_t begin = fake.now;
		fake_ask(&fake, &q, b, d, 5 * GiB, GM_TRANSPORT_AUTO);
		answer_until_over(&q, c, lease);
		ck_assert_int_eq(q.status, GPUMEM_OK);
		/* It costs one round, once. */
		ck_assert_uint_le(fake.now - begin, i == 0 ? 2 * SECOND + 200 * MS : 0);
	}
	fake_core_check(&fake, d);
}
END_TEST

START_TEST(a_liar_that_returns_a_little_in_time_is_still_a_liar)
{
	no_levels();
	struct gm_session *liar = fake_session(&fake, 9, 9);
	struct gm_lease *bait = fake_lease(&fake, liar, d, 60 * GiB);
	struct gm_lease *lease = fake_lease(&fake, c, d, 40 * GiB);
	give(9, GM_LIMIT_PRIORITY, 0, -1);
	fake_says(&fake, liar, d, 0, 50 * GiB);
	fake_says(&fake, c, d, 0, 40 * GiB);
	static struct fake_request q;
	fake_wait(&fake, &q, b, d, 10 * GiB, 100 * SECOND);
	ck_assert_uint_eq(asks(), 1);
	fake_pass(&fake, 2 * SECOND);
	give_back(liar, bait, GiB);
	fake_pass(&fake, 100 * MS);
	ck_assert_uint_eq(q.ended, 0);
	/* From now on, whatever it claims, the others are asked as well. */
	ck_assert_uint_eq(fake_asked(&fake, c)->spill, 9 * GiB);
	give_back(c, lease, 9 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);

	fake_pass(&fake, 60 * SECOND);
	asks();
	fake_ask(&fake, &q, b, d, 8 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake_asked(&fake, liar)->spill, 8 * GiB);
	ck_assert_uint_eq(fake_asked(&fake, c)->spill, 8 * GiB);

	/* It is believed again when it has returned half of what it had promised. */
	give_back(liar, bait, 8 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	fake_pass(&fake, 60 * SECOND);
	asks();
	fake_ask(&fake, &q, b, d, 8 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake_asked(&fake, liar)->spill, 8 * GiB);
	ck_assert_uint_eq(asks(), 1);
}
END_TEST

START_TEST(what_clients_owe_for_another_users_request_is_not_waited_for)
{
	static struct fake_request lure, q;

	ask_a_liar(&lure);
	fake_ask(&fake, &q, b, d, 30 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));
	ck_assert_uint_eq(fake_asked(&fake, c)->bytes, 10 * GiB);
}
END_TEST

START_TEST(nor_is_it_when_that_request_was_taken_back)
{
	static struct fake_request lure, q;

	ask_a_liar(&lure);
	gm_core_cancel(fake.core, &lure.r);
	fake_wait(&fake, &q, b, d, 30 * GiB, 100 * SECOND);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));
	ck_assert_uint_eq(fake_asked(&fake, c)->bytes, 10 * GiB);
}
END_TEST

START_TEST(what_moves_for_another_user_keeps_no_request_from_being_refused)
{
	static struct fake_request lure, q;

	ask_a_liar(&lure);
	/* All that others have is too little. */
	fake_ask(&fake, &q, b, d, 70 * GiB, GM_TRANSPORT_AUTO);
	fake_pass(&fake, 200 * MS);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
}
END_TEST

START_TEST(a_request_that_may_not_wait_is_not_refused_for_what_another_user_waits_for)
{
	static struct fake_request vain, q;

	no_levels();
	fake_lease(&fake, c, d, 90 * GiB);
	fake_wait(&fake, &vain, a, d, 90 * GiB, 100 * SECOND);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));
	/* The client had nothing, and is left alone for a second. Then it has less than that request lacks. */
	fake_pass(&fake, 1150 * MS);
	asks();
	fake_says(&fake, c, d, 40 * GiB, 0);
	fake_ask(&fake, &q, b, d, 20 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));
}
END_TEST

START_TEST(who_had_nothing_is_asked_at_once_for_what_it_has_now)
{
	static struct fake_request vain, q;

	no_levels();
	fake_lease(&fake, c, d, 90 * GiB);
	fake_wait(&fake, &vain, a, d, 90 * GiB, 100 * SECOND);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));
	fake_pass(&fake, 150 * MS);
	asks();

	/* It is left alone as long as it says nothing else. */
	fake_ask(&fake, &q, b, d, 20 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_ptr_null(fake_asked(&fake, c));
	fake_pass(&fake, 250 * MS);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	fake_says(&fake, c, d, 40 * GiB, 0);
	fake_ask(&fake, &q, b, d, 20 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));

	/* Now it has broken its word, and nobody believes it for a while. */
	fake_pass(&fake, 250 * MS);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	asks();
	fake_ask(&fake, &q, b, d, 20 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_ptr_null(fake_asked(&fake, c));
}
END_TEST

START_TEST(a_user_that_always_has_somebody_asked_keeps_no_other_from_asking_again)
{
	static struct fake_request q;
	struct relay relay;

	no_levels();
	relay_begin(&relay);
	fake_lease(&fake, c, d, 96 * GiB);
	relay_pass(&relay);
	/* The honest client uses everything when it is asked first. */
	fake_wait(&fake, &q, b, d, 20 * GiB, 100 * SECOND);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));
	relay_pass(&relay);
	fake_says(&fake, c, d, 40 * GiB, 0);
	bool asked = false;
	for (int i = 0; i < 5; i++) {
		relay_pass(&relay);
		asked = asked || fake_asked(&fake, c);
	}
	ck_assert(asked);
}
END_TEST

/* The client that is asked first moves nothing. */
START_TEST(nor_does_it_keep_a_request_that_may_not_wait_from_its_second_round)
{
	static struct fake_request q;
	struct relay relay;

	no_levels();
	relay_begin(&relay);
	relay_pass(&relay);
	relay_pass(&relay);
	struct gm_session *liar = fake_session(&fake, 8, 8);
	fake_lease(&fake, liar, d, 76 * GiB);
	fake_says(&fake, liar, d, 0, 76 * GiB);
	struct gm_lease *lease = fake_lease(&fake, c, d, 20 * GiB);
	fake_says(&fake, c, d, 0, 20 * GiB);
	asks();

	fake_ask(&fake, &q, b, d, 20 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_ptr_nonnull(fake_asked(&fake, liar));
	ck_assert_ptr_null(fake_asked(&fake, c));
	for (int i = 0; i < 5 && !fake_asked(&fake, c); i++)
		relay_pass(&relay);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));
	give_back(c, lease, 20 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

START_TEST(nor_does_it_hide_a_deadlock_under_another_users_limit)
{
	static struct fake_request q[2];
	struct gm_session *twin = fake_session(&fake, 2, 2);
	struct relay relay;

	no_levels();
	relay_begin(&relay);
	relay_pass(&relay);
	relay_pass(&relay);
	give(2, GM_LIMIT_MAX, 10 * GiB, 0);
	fake_lease(&fake, b, d, 5 * GiB);
	fake_lease(&fake, twin, d, 5 * GiB);
	fake_wait(&fake, &q[0], b, d, 3 * GiB, GM_WAIT_FOREVER);
	fake_wait(&fake, &q[1], twin, d, 3 * GiB, GM_WAIT_FOREVER);
	for (int i = 0; i < 15 && !q[1].ended; i++)
		relay_pass(&relay);
	ck_assert_uint_eq(q[1].ended, 1);
	ck_assert_int_eq(q[1].status, GPUMEM_E_DEADLOCK);
}
END_TEST

/* The client that has enough owes something for another user's request at first. Meanwhile, there is news twice. */
START_TEST(a_request_that_may_not_wait_asks_a_client_that_has_returned_what_it_owed_another_user)
{
	static struct fake_request first, q;
	struct gm_session *other = fake_session(&fake, 4, 4);
	struct relay relay;

	no_levels();
	policy.max_pool = 0;
	gm_core_set_policy(fake.core, d, &policy);
	relay_begin(&relay);
	relay_pass(&relay);
	relay_pass(&relay);
	struct gm_lease *news = fake_lease(&fake, a, d, 56 * GiB);
	give(1, GM_LIMIT_GUARANTEE, 56 * GiB, 0);
	struct gm_lease *lease = fake_lease(&fake, c, d, 40 * GiB);
	fake_says(&fake, c, d, 30 * GiB, 0);
	fake_wait(&fake, &first, other, d, 12 * GiB, 100 * SECOND);
	ck_assert_uint_eq(fake_asked(&fake, c)->bytes, 12 * GiB);
	asks();
	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	/* As long as nobody is free to answer, nobody is looked at again. */
	uint64_t steps = fake.core->devices[d].reclaim.steps;
	for (int i = 0; i < 2; i++) {
		give_back(a, news, GiB);
		fake_core_run(&fake);
	}
	ck_assert_uint_eq(fake.core->devices[d].reclaim.steps, steps);
	ck_assert_uint_eq(asks(), 0);

	give_back(c, lease, 12 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(first.status, GPUMEM_OK);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));
	ck_assert_uint_eq(fake_asked(&fake, c)->bytes, 10 * GiB);
	give_back(c, lease, 10 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

/* A client that holds something, too: 20 requests of its own cost no more than one. */
START_TEST(if_nobody_has_anything_for_a_client_its_requests_find_that_out_once_a_second)
{
	static struct fake_request q[20];

	no_levels();
	fake_lease(&fake, b, d, 10 * GiB);
	fake_lease(&fake, a, d, 90 * GiB);
	for (int i = 0; i < 20; i++)
		fake_wait(&fake, &q[i], b, d, 10 * GiB, 100 * SECOND);
	uint64_t before = fake.core->devices[d].reclaim.steps;
	fake_pass(&fake, SECOND + MS);
	uint64_t steps = fake.core->devices[d].reclaim.steps - before;
	ck_assert_uint_gt(steps, 0);
	ck_assert_uint_lt(steps, 20);
}
END_TEST

/* Many requests may come while all clients are asked. Each has to find out, but nobody has to be found overdue for that. */
START_TEST(a_request_for_which_nobody_can_be_asked_does_not_look_for_who_is_overdue)
{
	static struct fake_request first, q[3];
	no_levels();
	fake_lease(&fake, c, d, 100 * GiB);
	fake_says(&fake, c, d, 40 * GiB, 0);
	fake_wait(&fake, &first, a, d, 40 * GiB, 100 * SECOND);
	ck_assert_uint_eq(asks(), 1);
	/* A look for who is overdue is a walk over all clients. */
	uint64_t looks = fake.core->env.users->looks;
	ck_assert_uint_gt(looks, 0);

	for (int i = 0; i < 3; i++)
		fake_ask(&fake, &q[i], b, d, GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(asks(), 0);
	ck_assert_uint_eq(fake.core->env.users->looks, looks);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ask");
	TCase *tcase = tcase_create("ask");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(
		tcase, a_request_for_which_nobody_can_be_asked_does_not_look_for_who_is_overdue);
	tcase_add_test(tcase, a_liar_does_not_get_a_request_refused_that_an_honest_client_covers);
	tcase_add_test(tcase, a_liar_that_returns_a_little_in_time_is_still_a_liar);
	tcase_add_test(tcase, what_clients_owe_for_another_users_request_is_not_waited_for);
	tcase_add_test(tcase, nor_is_it_when_that_request_was_taken_back);
	tcase_add_test(tcase, what_moves_for_another_user_keeps_no_request_from_being_refused);
	tcase_add_test(
		tcase, a_request_that_may_not_wait_is_not_refused_for_what_another_user_waits_for);
	tcase_add_test(tcase, who_had_nothing_is_asked_at_once_for_what_it_has_now);
	tcase_add_test(
		tcase, a_user_that_always_has_somebody_asked_keeps_no_other_from_asking_again);
	tcase_add_test(tcase, nor_does_it_keep_a_request_that_may_not_wait_from_its_second_round);
	tcase_add_test(tcase, nor_does_it_hide_a_deadlock_under_another_users_limit);
	tcase_add_test(tcase,
		a_request_that_may_not_wait_asks_a_client_that_has_returned_what_it_owed_another_user);
	tcase_add_test(tcase,
		if_nobody_has_anything_for_a_client_its_requests_find_that_out_once_a_second);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
