/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of the client's connection: the daemon's, the library's own, or for what the other end
 * sent. Every call ends with it, and the first reason is the one that is told.
 */
#include <errno.h>
#include <sys/socket.h>

#include "common/cleanup.h"
#include "tests/tap.h"
#include "tests/unit/session/conn_fixture.h"
#include "tests/unit/open_fds.h"

START_TEST(the_daemons_end_ends_every_call)
{
	enum { N = 4 };
	struct caller callers[N] = {0};
	for (unsigned i = 0; i < N; i++)
		caller_start(&callers[i], 1 + i, LONG_NS);
	for (unsigned i = 0; i < N; i++)
		far_read();
	far_end = gm_close(far_end);
	for (unsigned i = 0; i < N; i++) {
		caller_join(&callers[i]);
		ck_assert_int_eq(callers[i].r, -EPIPE);
	}
	char reason[GM_ERROR_BYTES];
	gm_conn_reason(conn, reason);
	ck_assert_str_eq(reason, "the daemon closed the connection");
	struct probe probe;
	ck_assert_int_eq(call_for(&probe, 1, LONG_NS), -EPIPE);
	ck_assert(!probe.late);
}
END_TEST

START_TEST(a_daemon_that_dies_in_the_middle_of_an_answer_ends_the_call)
{
	struct caller caller = {0};
	caller_start(&caller, 7, LONG_NS);
	struct asked asked = far_read();
	far_answer_with(&asked, true, 2);
	far_end = gm_close(far_end);
	caller_join(&caller);
	ck_assert_int_eq(caller.r, -EPIPE);
	ck_assert_uint_eq(caller.probe.packets, 1);
}
END_TEST

START_TEST(a_failure_that_answers_nothing_is_why_the_connection_ends)
{
	char reason[GM_ERROR_BYTES];
	struct caller caller = {0};
	caller_start(&caller, 7, LONG_NS);
	far_read();
	far_refuse(0, GPUMEM_E_PROTOCOL, "fds from a client");
	far_end = gm_close(far_end);
	caller_join(&caller);
	ck_assert_int_eq(caller.r, -EPIPE);
	ck_assert_int_eq(gm_conn_reason(conn, reason), GPUMEM_E_PROTOCOL);
	ck_assert_str_eq(reason, "fds from a client");
}
END_TEST

START_TEST(words_said_before_the_end_are_read_though_nothing_can_be_sent)
{
	char reason[GM_ERROR_BYTES];
	struct probe probe;
	far_refuse(0, GPUMEM_E_LIMIT, "too many connections");
	far_end = gm_close(far_end);
	ck_assert_int_eq(call_for(&probe, 7, LONG_NS), -EPIPE);
	ck_assert_int_eq(gm_conn_reason(conn, reason), GPUMEM_E_LIMIT);
	ck_assert_str_eq(reason, "too many connections");
	ck_assert(!probe.late);
}
END_TEST

START_TEST(a_killed_connection_ends_its_calls_with_the_first_reason)
{
	struct caller caller = {0};
	caller_start(&caller, 7, LONG_NS);
	far_read();
	gm_conn_kill(conn, "one");
	gm_conn_kill(conn, "two");
	caller_join(&caller);
	ck_assert_int_eq(caller.r, -EPIPE);
	char reason[GM_ERROR_BYTES];
	gm_conn_reason(conn, reason);
	ck_assert_str_eq(reason, "one");
}
END_TEST

static void ends_with(const void *bytes, size_t n, const char *why)
{
	struct caller caller = {0};
	caller_start(&caller, 7, LONG_NS);
	far_read();
	ck_assert_int_eq(send(far_end, bytes, n, MSG_NOSIGNAL), (ssize_t)n);
	caller_join(&caller);
	ck_assert_int_eq(caller.r, -EPIPE);
	char reason[GM_ERROR_BYTES];
	gm_conn_reason(conn, reason);
	ck_assert_str_eq(reason, why);
}

START_TEST(nonsense_from_the_daemon_ends_the_connection)
{
	ends_with("\xff\xff\xff", 3, "the daemon sent a packet that cannot be decoded");
}
END_TEST

START_TEST(a_packet_past_the_limit_ends_the_connection)
{
	static uint8_t bytes[GM_BOUND_PACKET_BYTES + 1];
	ends_with(bytes, sizeof(bytes), "the daemon sent a packet that is too long");
}
END_TEST

START_TEST(more_handles_than_announced_end_the_connection)
{
	struct caller caller = {0};
	unsigned before = open_fds();
	caller_start(&caller, 7, LONG_NS);
	struct asked asked = far_read();
	Gm__Wire__Done body = GM__WIRE__DONE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	packet.id = asked.id;
	packet.body_case = GM__WIRE__PACKET__BODY_DONE;
	packet.done = &body;
	far_send(&packet, &far_end, 1);
	caller_join(&caller);
	ck_assert_int_eq(caller.r, -EPIPE);
	ck_assert_uint_eq(open_fds(), before);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("conn_end");
	TCase *tc = tcase_create("conn");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, the_daemons_end_ends_every_call);
	tcase_add_test(tc, a_daemon_that_dies_in_the_middle_of_an_answer_ends_the_call);
	tcase_add_test(tc, a_failure_that_answers_nothing_is_why_the_connection_ends);
	tcase_add_test(tc, words_said_before_the_end_are_read_though_nothing_can_be_sent);
	tcase_add_test(tc, a_killed_connection_ends_its_calls_with_the_first_reason);
	tcase_add_test(tc, nonsense_from_the_daemon_ends_the_connection);
	tcase_add_test(tc, a_packet_past_the_limit_ends_the_connection);
	tcase_add_test(tc, more_handles_than_announced_end_the_connection);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
