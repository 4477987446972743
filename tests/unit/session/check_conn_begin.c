/* SPDX-License-Identifier: Apache-2.0 */

/* Requests for which nobody waits: gm_conn_begin() sends them, and whoever reads ends them. */

#include <sched.h>

#include "tests/tap.h"
#include "tests/unit/session/conn_fixture.h"

static int begin(struct probe *probe, uint64_t bytes, bool urgent)
{
	Gm__Wire__Lease body = GM__WIRE__LEASE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	body.bytes = bytes;
	packet.body_case = GM__WIRE__PACKET__BODY_LEASE;
	packet.lease = &body;
	memset(probe, 0, sizeof(*probe));
	probe->call.ops = &probe_ops;
	return gm_conn_begin(conn, &packet, &probe->call, urgent);
}

START_TEST(a_request_that_was_begun_is_read_by_a_drain)
{
	struct probe probe;
	ck_assert_int_eq(begin(&probe, 7, false), 0);
	/* Nobody reads, so somebody is woken to do so. */
	ck_assert_int_eq(wakes, 1);
	ck_assert(gm_conn_unread(conn));
	struct asked asked = far_read();
	gm_conn_drain(conn);
	ck_assert(!probe.late);
	far_answer(&asked);
	gm_conn_drain(conn);
	ck_assert(probe.late);
	ck_assert_uint_eq(probe.lease, 7);
	ck_assert_int_eq(probe.call.result, 0);
	ck_assert(!gm_conn_unread(conn));
}
END_TEST

START_TEST(a_request_that_was_begun_is_read_by_a_caller_that_waits)
{
	struct probe probe;
	struct caller caller = {0};
	caller_start(&caller, 1, LONG_NS);
	struct asked first = far_read();
	ck_assert_int_eq(begin(&probe, 2, false), 0);
	struct asked second = far_read();
	far_answer(&second);
	while (!probe.late)
		sched_yield();
	ck_assert_uint_eq(probe.lease, 2);
	far_answer(&first);
	caller_join(&caller);
	ck_assert_int_eq(caller.r, 0);
}
END_TEST

START_TEST(past_the_bound_a_request_is_not_sent_unless_it_is_urgent)
{
	enum { N = GM_BOUND_REQUESTS_IN_FLIGHT - 1 };
	static struct probe probes[N + 2];
	for (unsigned i = 0; i < N; i++)
		ck_assert_int_eq(begin(&probes[i], 1 + i, false), 0);
	ck_assert_int_eq(begin(&probes[N], 1000, false), -EAGAIN);
	ck_assert(!probes[N].late);
	ck_assert_int_eq(begin(&probes[N + 1], 2000, true), 0);

	struct asked asked[N + 1];
	for (unsigned i = 0; i < N + 1; i++)
		asked[i] = far_read();
	for (unsigned i = 0; i < 2; i++)
		far_answer(&asked[i]);
	gm_conn_drain(conn);
	ck_assert(probes[0].late && probes[1].late && !probes[2].late);
	/* There is room again. */
	ck_assert_int_eq(begin(&probes[N], 1000, false), 0);
	gm_conn_kill(conn, "over");
	ck_assert(probes[N].late && probes[N + 1].late);
}
END_TEST

/* The library's thread is the one that reads what was begun, and it calls, too. */
START_TEST(a_caller_that_waits_to_send_reads_if_nobody_else_does)
{
	enum { N = GM_BOUND_REQUESTS_IN_FLIGHT - 1 };
	static struct probe probes[N];
	struct asked asked[N];
	struct caller caller = {0};
	for (unsigned i = 0; i < N; i++)
		ck_assert_int_eq(begin(&probes[i], 1 + i, false), 0);
	for (unsigned i = 0; i < N; i++)
		asked[i] = far_read();
	caller_start(&caller, 1000, LONG_NS);
	caller_await_sleep(&caller);
	ck_assert(!far_readable(0));
	far_answer(&asked[5]);
	struct asked last = far_read();
	ck_assert_uint_eq(last.bytes, 1000);
	ck_assert(probes[5].late && !probes[0].late);
	far_answer(&last);
	caller_join(&caller);
	ck_assert_int_eq(caller.r, 0);
	ck_assert_uint_eq(caller.probe.lease, 1000);
	gm_conn_kill(conn, "over");
}
END_TEST

START_TEST(a_leader_that_leaves_hands_the_reading_to_a_caller_that_waits_to_send)
{
	enum { N = GM_BOUND_REQUESTS_IN_FLIGHT };
	static struct probe probes[N];
	struct asked asked[N];
	struct caller leader = {0}, caller = {0};
	caller_start(&leader, 2000, LONG_NS);
	struct asked first = far_read();
	for (unsigned i = 0; i < N; i++)
		ck_assert_int_eq(begin(&probes[i], 1 + i, true), 0);
	for (unsigned i = 0; i < N; i++)
		asked[i] = far_read();
	caller_start(&caller, 1000, LONG_NS);
	caller_await_sleep(&caller);
	far_answer(&first);
	caller_join(&leader);
	ck_assert_int_eq(leader.r, 0);

	/* There are still too many. */
	ck_assert(!far_readable(0));
	far_answer(&asked[0]);
	far_answer(&asked[1]);
	struct asked last = far_read();
	ck_assert_uint_eq(last.bytes, 1000);
	far_answer(&last);
	caller_join(&caller);
	ck_assert_int_eq(caller.r, 0);
	ck_assert(probes[0].late && probes[1].late && !probes[2].late);
	gm_conn_kill(conn, "over");
}
END_TEST

/* A caller that only wants to send must not go on reading instead of those whose answers come. */
START_TEST(a_caller_that_gave_up_sending_leaves_the_reading_to_another)
{
	enum { N = GM_BOUND_REQUESTS_IN_FLIGHT - 1 };
	static struct probe probes[N];
	struct asked asked[N];
	struct caller impatient = {0}, caller = {0};
	for (unsigned i = 0; i < N; i++)
		ck_assert_int_eq(begin(&probes[i], 1 + i, false), 0);
	for (unsigned i = 0; i < N; i++)
		asked[i] = far_read();
	caller_start(&impatient, 1000, 200 * GM_NS_PER_MS);
	caller_await_sleep(&impatient);
	caller_start(&caller, 2000, LONG_NS);
	caller_join(&impatient);
	ck_assert_int_eq(impatient.r, -ETIMEDOUT);
	ck_assert(impatient.probe.late);
	ck_assert_int_eq(impatient.probe.call.result, -ECANCELED);

	far_answer(&asked[0]);
	struct asked last = far_read();
	ck_assert_uint_eq(last.bytes, 2000);
	far_answer(&last);
	caller_join(&caller);
	ck_assert_int_eq(caller.r, 0);
	gm_conn_kill(conn, "over");
}
END_TEST

START_TEST(a_full_socket_leaves_the_request_to_its_caller)
{
	static struct probe probes[4096];
	unsigned n = 0;
	int r;
	/* The far end reads nothing. */
	while ((r = begin(&probes[n], 1, true)) == 0)
		ck_assert_uint_lt(++n, 4095);
	ck_assert_int_eq(r, -EAGAIN);
	ck_assert(!probes[n].late);
	gm_conn_kill(conn, "over");
	for (unsigned i = 0; i < n; i++)
		ck_assert(probes[i].late);
	ck_assert(!probes[n].late);
}
END_TEST

START_TEST(what_was_begun_ends_with_the_connection)
{
	struct probe probe, after;
	ck_assert_int_eq(begin(&probe, 1, false), 0);
	gm_conn_kill(conn, "over");
	ck_assert(probe.late);
	ck_assert_int_eq(probe.call.result, -EPIPE);
	ck_assert_int_eq(begin(&after, 1, false), -EPIPE);
	ck_assert(!after.late);
}
END_TEST

START_TEST(a_request_to_an_end_that_has_left_ends_when_that_is_read)
{
	struct probe probe;
	far_end = gm_close(far_end);
	/* The daemon may have said why. */
	ck_assert_int_eq(begin(&probe, 1, false), 0);
	gm_conn_drain(conn);
	ck_assert(probe.late);
	ck_assert_int_eq(probe.call.result, -EPIPE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("conn_begin");
	TCase *tc = tcase_create("conn");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, a_request_that_was_begun_is_read_by_a_drain);
	tcase_add_test(tc, a_request_that_was_begun_is_read_by_a_caller_that_waits);
	tcase_add_test(tc, past_the_bound_a_request_is_not_sent_unless_it_is_urgent);
	tcase_add_test(tc, a_caller_that_waits_to_send_reads_if_nobody_else_does);
	tcase_add_test(tc, a_leader_that_leaves_hands_the_reading_to_a_caller_that_waits_to_send);
	tcase_add_test(tc, a_caller_that_gave_up_sending_leaves_the_reading_to_another);
	tcase_add_test(tc, a_full_socket_leaves_the_request_to_its_caller);
	tcase_add_test(tc, what_was_begun_ends_with_the_connection);
	tcase_add_test(tc, a_request_to_an_end_that_has_left_ends_when_that_is_read);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
