/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Callers of the client's connection who give up or are cancelled: what was theirs is handed over
 * when it comes, once, and whoever waits on reads on.
 */
#include <errno.h>
#include <pthread.h>

#include "tests/tap.h"
#include "tests/unit/session/conn_fixture.h"
#include "tests/unit/open_fds.h"

START_TEST(an_answer_that_comes_late_is_handed_to_its_owner)
{
	struct probe probe;
	unsigned before = open_fds();
	ck_assert_int_eq(call_for(&probe, 7, 1), -ETIMEDOUT);
	ck_assert(!probe.late);
	ck_assert_int_ge(wakes, 1);
	ck_assert(gm_conn_unread(conn));
	struct asked asked = far_read();
	far_answer_with(&asked, true, 3);
	gm_conn_drain(conn);
	ck_assert(!probe.late);
	far_answer_with(&asked, false, 2);
	gm_conn_drain(conn);
	ck_assert(probe.late);
	ck_assert_int_eq(probe.call.result, 0);
	ck_assert_uint_eq(probe.lease, 7);
	ck_assert_uint_eq(probe.fds, 5);
	ck_assert(!gm_conn_unread(conn));
	ck_assert_uint_eq(open_fds(), before);
}
END_TEST

START_TEST(a_call_nobody_waits_for_ends_with_the_connection)
{
	struct probe probe;
	ck_assert_int_eq(call_for(&probe, 7, 1), -ETIMEDOUT);
	ck_assert(!probe.late);
	gm_conn_kill(conn, "over");
	ck_assert(probe.late);
	ck_assert_int_eq(probe.call.result, -EPIPE);
}
END_TEST

START_TEST(who_cannot_send_is_not_left_to_read_for_others)
{
	struct probe late;
	struct caller leader = {0};
	struct caller stuck = {0};
	int room = 0;
	ck_assert_int_eq(call_for(&late, 7, 1), -ETIMEDOUT);
	struct asked first = far_read();
	caller_start(&leader, 8, LONG_NS);
	struct asked second = far_read();
	/* From here on nothing can be sent. */
	ck_assert_int_eq(
		setsockopt(gm_conn_fd(conn), SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
	while (send(gm_conn_fd(conn), "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1)
		;
	caller_start(&stuck, 9, GM_NS_PER_S / 2);
	caller_await_sleep(&stuck);
	int before = wakes;
	far_answer(&second);
	caller_join(&leader);
	ck_assert_int_eq(leader.r, 0);
	/* Nobody is left who could read what is due. */
	ck_assert_int_gt(wakes, before);
	caller_join(&stuck);
	ck_assert_int_eq(stuck.r, -ETIMEDOUT);
	ck_assert(gm_conn_unread(conn));
	far_answer(&first);
	gm_conn_drain(conn);
	ck_assert(late.late);
}
END_TEST

START_TEST(a_late_answer_is_read_by_whoever_waits)
{
	struct probe late;
	ck_assert_int_eq(call_for(&late, 7, 1), -ETIMEDOUT);
	struct asked first = far_read();
	struct caller caller = {0};
	caller_start(&caller, 8, LONG_NS);
	struct asked second = far_read();
	far_answer(&first);
	far_answer(&second);
	caller_join(&caller);
	ck_assert_int_eq(caller.r, 0);
	ck_assert_uint_eq(caller.probe.lease, 8);
	ck_assert(late.late);
	ck_assert_uint_eq(late.lease, 7);
}
END_TEST

START_TEST(a_leader_that_gives_up_leaves_the_reading_to_another)
{
	enum { N = 6 };
	struct caller impatient = {0}, callers[N] = {0};
	struct asked asked[N];
	/* The only one that waits leads. */
	caller_start(&impatient, 1, 100 * GM_NS_PER_MS);
	far_read();
	for (unsigned i = 0; i < N; i++)
		caller_start(&callers[i], 10 + i, LONG_NS);
	for (unsigned i = 0; i < N; i++)
		asked[i] = far_read();
	caller_join(&impatient);
	ck_assert_int_eq(impatient.r, -ETIMEDOUT);
	for (unsigned i = 0; i < N; i++) {
		far_answer(&asked[i]);
	}
	for (unsigned i = 0; i < N; i++) {
		caller_join(&callers[i]);
		ck_assert_int_eq(callers[i].r, 0);
	}
	gm_conn_kill(conn, "over");
	ck_assert(impatient.probe.late);
}
END_TEST

START_TEST(a_leader_that_is_cancelled_ends_after_its_call)
{
	struct caller leader = {0}, follower = {0};
	caller_start(&leader, 1, LONG_NS);
	struct asked first = far_read();
	caller_start(&follower, 2, LONG_NS);
	struct asked second = far_read();
	ck_assert_int_eq(pthread_cancel(leader.thread), 0);
	far_answer(&second);
	caller_join(&follower);
	ck_assert_int_eq(follower.r, 0);
	far_answer(&first);
	caller_join(&leader);
	ck_assert_uint_eq(leader.probe.lease, 1);
}
END_TEST

START_TEST(a_request_that_was_never_sent_ends_late_as_cancelled)
{
	enum { N = GM_BOUND_REQUESTS_IN_FLIGHT - 1 };
	static struct caller callers[N];
	for (unsigned i = 0; i < N; i++)
		caller_start(&callers[i], 1 + i, LONG_NS);
	for (unsigned i = 0; i < N; i++)
		far_read();
	struct probe probe;
	ck_assert_int_eq(call_for(&probe, 1, 1), -ETIMEDOUT);
	ck_assert(probe.late);
	ck_assert_int_eq(probe.call.result, -ECANCELED);
	gm_conn_kill(conn, "over");
	for (unsigned i = 0; i < N; i++)
		caller_join(&callers[i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("conn_late");
	TCase *tc = tcase_create("conn");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, an_answer_that_comes_late_is_handed_to_its_owner);
	tcase_add_test(tc, a_call_nobody_waits_for_ends_with_the_connection);
	tcase_add_test(tc, a_late_answer_is_read_by_whoever_waits);
	tcase_add_test(tc, who_cannot_send_is_not_left_to_read_for_others);
	tcase_add_test(tc, a_leader_that_gives_up_leaves_the_reading_to_another);
	tcase_add_test(tc, a_leader_that_is_cancelled_ends_after_its_call);
	tcase_add_test(tc, a_request_that_was_never_sent_ends_late_as_cancelled);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
