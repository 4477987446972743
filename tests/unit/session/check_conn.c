/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's connection against a scripted other end: answers in pieces, out of order, with
 * handles cut off, and many callers at once. Each call gets what is its own.
 */
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/tap.h"
#include "tests/unit/session/conn_fixture.h"
#include "tests/unit/open_fds.h"

/* ---- one caller */

START_TEST(a_request_gets_its_answer)
{
	struct caller caller = {0};
	caller_start(&caller, 7, LONG_NS);
	struct asked asked = far_read();
	ck_assert_int_eq(asked.body, GM__WIRE__PACKET__BODY_LEASE);
	ck_assert_uint_ne(asked.id, 0);
	far_answer(&asked);
	caller_join(&caller);
	ck_assert_int_eq(caller.r, 0);
	ck_assert_int_eq(caller.probe.call.result, 0);
	ck_assert_int_eq(caller.probe.call.status, GPUMEM_OK);
	ck_assert_uint_eq(caller.probe.lease, 7);
}
END_TEST

START_TEST(a_failure_is_told_with_status_and_detail)
{
	struct caller caller = {0};
	caller_start(&caller, 7, LONG_NS);
	struct asked asked = far_read();
	far_refuse(asked.id, GPUMEM_E_LIMIT, "uid 1 may hold 2");
	caller_join(&caller);
	ck_assert_int_eq(caller.r, 0);
	ck_assert_int_eq(caller.probe.call.status, GPUMEM_E_LIMIT);
	ck_assert_str_eq(caller.probe.call.detail, "uid 1 may hold 2");
	ck_assert_uint_eq(caller.probe.packets, 0);
}
END_TEST

START_TEST(a_long_answer_comes_in_pieces)
{
	struct caller caller = {0};
	unsigned before = open_fds();
	caller_start(&caller, 7, LONG_NS);
	struct asked asked = far_read();
	far_answer_with(&asked, true, 5);
	far_answer_with(&asked, true, 0);
	ck_assert(!far_readable(0));
	far_answer_with(&asked, false, 3);
	caller_join(&caller);
	ck_assert_int_eq(caller.r, 0);
	ck_assert_uint_eq(caller.probe.packets, 3);
	ck_assert_uint_eq(caller.probe.fds, 8);
	/* What take() left in the list is closed. */
	ck_assert_uint_eq(open_fds(), before);
}
END_TEST

START_TEST(a_refusal_by_its_taker_ends_a_call_after_its_last_packet)
{
	struct caller caller = {.say = -EPROTO};
	caller_start(&caller, 7, LONG_NS);
	struct asked asked = far_read();
	far_answer_with(&asked, true, 0);
	far_answer_with(&asked, false, 0);
	caller_join(&caller);
	ck_assert_int_eq(caller.r, 0);
	ck_assert_int_eq(caller.probe.call.result, -EPROTO);
	ck_assert_uint_eq(caller.probe.packets, 2);
	ck_assert(!gm_conn_dead(conn));
}
END_TEST

START_TEST(a_request_that_is_too_long_is_not_sent)
{
	static uint64_t chunks[20000];
	for (size_t i = 0; i < 20000; i++)
		chunks[i] = UINT64_MAX;
	Gm__Wire__Return body = GM__WIRE__RETURN__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	struct probe probe;
	memset(&probe, 0, sizeof(probe));
	body.chunks = chunks;
	body.n_chunks = 20000;
	packet.body_case = GM__WIRE__PACKET__BODY_RETURN_CHUNKS;
	packet.return_chunks = &body;
	probe.call.ops = &probe_ops;
	ck_assert_int_eq(gm_conn_call(conn, &packet, &probe.call, gm_clock_ns() + LONG_NS), -E2BIG);
	ck_assert(!probe.late);
	ck_assert(!far_readable(0));
	ck_assert(!gm_conn_dead(conn));
}
END_TEST

START_TEST(an_answer_to_nobody_is_dropped_with_its_handles)
{
	struct caller caller = {0};
	unsigned before = open_fds();
	caller_start(&caller, 7, LONG_NS);
	struct asked asked = far_read(), other = asked;
	other.id = asked.id + 1000;
	far_answer_with(&other, false, 4);
	far_answer(&asked);
	caller_join(&caller);
	ck_assert_int_eq(caller.r, 0);
	ck_assert_uint_eq(caller.probe.packets, 1);
	ck_assert_uint_eq(open_fds(), before);
}
END_TEST

/* ---- many callers */

START_TEST(answers_out_of_order_find_their_callers)
{
	enum { N = 8 };
	struct caller callers[N] = {0};
	struct asked asked[N];
	for (unsigned i = 0; i < N; i++)
		caller_start(&callers[i], 100 + i, LONG_NS);
	for (unsigned i = 0; i < N; i++)
		asked[i] = far_read();
	for (unsigned i = N; i-- > 0;)
		far_answer(&asked[i]);
	for (unsigned i = 0; i < N; i++) {
		caller_join(&callers[i]);
		ck_assert_int_eq(callers[i].r, 0);
		ck_assert_uint_eq(callers[i].probe.lease, 100 + i);
	}
}
END_TEST

static void *busy_caller(void *ctx)
{
	uint64_t first = (uintptr_t)ctx;
	for (uint64_t i = 0; i < 200; i++) {
		struct probe probe;
		int r = call_for(&probe, first + i, LONG_NS);
		if (r < 0 || probe.lease != first + i)
			return (void *)1;
	}
	return NULL;
}

START_TEST(many_threads_share_one_connection)
{
	enum { THREADS = 12, EACH = 200, BATCH = 3 };
	pthread_t threads[THREADS];
	for (uintptr_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(
			pthread_create(&threads[i], NULL, busy_caller, (void *)(1 + i * 1000000)),
			0);
	/* Up to three at a time, the last first: the order of answers is never that of requests. */
	for (unsigned left = THREADS * EACH; left;) {
		struct asked asked[BATCH];
		unsigned n = 0;
		do
			asked[n++] = far_read();
		while (n < BATCH && n < left && far_readable(0));
		left -= n;
		while (n)
			far_answer(&asked[--n]);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		void *bad;
		ck_assert_int_eq(pthread_join(threads[i], &bad), 0);
		ck_assert_ptr_null(bad);
	}
}
END_TEST

START_TEST(no_more_requests_are_out_than_the_daemon_reads)
{
	/* One less than the daemon's bound: at it, the daemon would read no acknowledgement. */
	enum { N = GM_BOUND_REQUESTS_IN_FLIGHT };
	static struct caller callers[N];
	static struct asked asked[N];
	for (unsigned i = 0; i < N; i++)
		caller_start(&callers[i], 1 + i, LONG_NS);
	for (unsigned i = 0; i < N - 1; i++)
		asked[i] = far_read();
	ck_assert(!far_readable(50));
	far_answer(&asked[0]);
	asked[N - 1] = far_read();
	for (unsigned i = 1; i < N; i++)
		far_answer(&asked[i]);
	for (unsigned i = 0; i < N; i++) {
		caller_join(&callers[i]);
		ck_assert_int_eq(callers[i].r, 0);
	}
}
END_TEST

/* ---- handles */

START_TEST(handles_seen_are_told_with_the_next_request)
{
	struct caller caller = {0};
	caller_start(&caller, 7, LONG_NS);
	struct asked asked = far_read();
	ck_assert_uint_eq(asked.fds_seen, 0);
	far_answer_with(&asked, false, 31);
	caller_join(&caller);
	ck_assert(!far_readable(0));
	caller_start(&caller, 8, LONG_NS);
	asked = far_read();
	ck_assert_uint_eq(asked.fds_seen, 31);
	far_answer(&asked);
	caller_join(&caller);
}
END_TEST

START_TEST(many_handles_are_acknowledged_before_the_answer_ends)
{
	struct caller caller = {0};
	caller_start(&caller, 7, LONG_NS);
	struct asked asked = far_read();
	/* More than may be in flight: an other end that waits for acknowledgement gets it. */
	uint64_t sent = 0, seen = 0;
	for (unsigned i = 0; i < 40; i++) {
		while (sent + 16 - seen > GM_BOUND_FDS_IN_FLIGHT) {
			struct asked ack = far_read();
			ck_assert_int_eq(ack.body, GM__WIRE__PACKET__BODY_ACK);
			ck_assert_uint_eq(ack.id, 0);
			ck_assert_uint_gt(ack.fds_seen, seen);
			seen = ack.fds_seen;
		}
		far_answer_with(&asked, i + 1 < 40, 16);
		sent += 16;
	}
	caller_join(&caller);
	ck_assert_int_eq(caller.r, 0);
	ck_assert_uint_eq(caller.probe.fds, 640);
}
END_TEST

START_TEST(handles_that_found_no_room_are_counted_as_seen)
{
	struct rlimit limit, low;
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	struct caller caller = {0};
	caller_start(&caller, 7, LONG_NS);
	struct asked asked = far_read();
	int lowest = dup(0);
	close(lowest);
	low = limit;
	low.rlim_cur = (rlim_t)lowest + 3;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
	far_answer_with(&asked, false, 8);
	caller_join(&caller);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_int_eq(caller.r, 0);
	ck_assert_uint_eq(caller.probe.announced, 8);
	ck_assert_uint_eq(caller.probe.fds, 3);
	caller_start(&caller, 8, LONG_NS);
	asked = far_read();
	ck_assert_uint_eq(asked.fds_seen, 8);
	far_answer(&asked);
	caller_join(&caller);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("conn");
	TCase *tc = tcase_create("conn");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, a_request_gets_its_answer);
	tcase_add_test(tc, a_failure_is_told_with_status_and_detail);
	tcase_add_test(tc, a_long_answer_comes_in_pieces);
	tcase_add_test(tc, a_refusal_by_its_taker_ends_a_call_after_its_last_packet);
	tcase_add_test(tc, a_request_that_is_too_long_is_not_sent);
	tcase_add_test(tc, an_answer_to_nobody_is_dropped_with_its_handles);
	tcase_add_test(tc, answers_out_of_order_find_their_callers);
	tcase_add_test(tc, many_threads_share_one_connection);
	tcase_add_test(tc, no_more_requests_are_out_than_the_daemon_reads);
	tcase_add_test(tc, handles_seen_are_told_with_the_next_request);
	tcase_add_test(tc, many_handles_are_acknowledged_before_the_answer_ends);
	tcase_add_test(tc, handles_that_found_no_room_are_counted_as_seen);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
