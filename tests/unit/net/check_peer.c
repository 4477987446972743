/* SPDX-License-Identifier: Apache-2.0 */

/* A connection over a real socket, against an other end that keeps to nothing. */

#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/wire/seqpacket.h"
#include "daemon/net/peer.h"
#include "tests/bound.h"
#include "tests/tap.h"
#include "tests/unit/net/peer_fixture.h"

/* One Failure of that kind, then the end. */
static void expect_refusal(gpumem_status status)
{
	Gm__Wire__Packet *packet = receive(far);
	ck_assert_ptr_nonnull(packet);
	ck_assert_int_eq(packet->body_case, GM__WIRE__PACKET__BODY_FAILURE);
	ck_assert_uint_eq(packet->failure->status, status);
	ck_assert(strlen(packet->failure->detail) > 0);
	ck_assert_ptr_null(receive(far));
	ck_assert_uint_eq(n_closed, 1);
}

START_TEST(a_request_is_passed_on_and_answered_with_its_id)
{
	answer_at_once = true;
	send_request(far, 5, 0);
	Gm__Wire__Packet *packet = receive(far);
	ck_assert_uint_eq(n_packets, 1);
	ck_assert_uint_eq(packet->id, 5);
	ck_assert_int_eq(packet->body_case, GM__WIRE__PACKET__BODY_DONE);
}
END_TEST

START_TEST(a_packet_of_length_0_is_refused)
{
	struct iovec nothing = {.iov_base = room, .iov_len = 0};
	struct msghdr message = {.msg_iov = &nothing, .msg_iovlen = 1};
	ck_assert_int_eq(sendmsg(far, &message, 0), 0);
	expect_refusal(GPUMEM_E_PROTOCOL);
}
END_TEST

START_TEST(a_packet_that_is_too_long_is_refused)
{
	GM_BOUND_TEST(PACKET_BYTES);
	static uint8_t bytes[GM_BOUND_PACKET_BYTES + 1];
	int large = 4 << 20;
	setsockopt(far, SOL_SOCKET, SO_SNDBUF, &large, sizeof(large));
	ck_assert_int_eq(send(far, bytes, sizeof(bytes), 0), (ssize_t)sizeof(bytes));
	expect_refusal(GPUMEM_E_PROTOCOL);
}
END_TEST

START_TEST(what_is_no_packet_is_refused)
{
	ck_assert_int_eq(send(far, "\xff\xff\xff\xff", 4, 0), 4);
	expect_refusal(GPUMEM_E_PROTOCOL);
}
END_TEST

START_TEST(a_packet_that_unpacks_to_too_much_is_refused)
{
	GM_BOUND_TEST(ARENA_BYTES);
	/* A devices reply full of empty devices: two bytes on the wire, a struct each in memory. */
	static uint8_t bytes[60000];
	size_t n = 0, body = 50000;
	bytes[n++] = ((63 << 3 | 2) & 0x7f) | 0x80;
	bytes[n++] = (63 << 3 | 2) >> 7;
	bytes[n++] = (uint8_t)((body & 0x7f) | 0x80);
	bytes[n++] = (uint8_t)(((body >> 7) & 0x7f) | 0x80);
	bytes[n++] = (uint8_t)(body >> 14);
	for (size_t i = 0; i < body; i += 2) {
		bytes[n++] = 1 << 3 | 2;
		bytes[n++] = 0;
	}
	ck_assert_int_eq(send(far, bytes, n, 0), (ssize_t)n);
	expect_refusal(GPUMEM_E_PROTOCOL);
}
END_TEST

START_TEST(a_request_with_too_many_fields_is_refused)
{
	GM_BOUND_TEST(REQUEST_FIELDS);
	/* The id, the return and its lease are three fields. */
	enum { MOST = GM_BOUND_REQUEST_FIELDS - 3 };
	static uint64_t many[MOST + 1];
	static uint8_t bytes[GM_BOUND_PACKET_BYTES];
	Gm__Wire__Return body = GM__WIRE__RETURN__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	size_t n;
	body.lease = 1;
	body.chunks = many;
	packet.id = 1;
	packet.body_case = GM__WIRE__PACKET__BODY_RETURN_CHUNKS;
	packet.return_chunks = &body;

	/* The list is a field, too. */
	body.n_chunks = MOST - 1;
	ck_assert_int_eq(gm_wire_pack(&packet, bytes, sizeof(bytes), &n), 0);
	ck_assert_int_eq(send(far, bytes, n, 0), (ssize_t)n);
	while (n_packets == 0)
		uv_run(&loop, UV_RUN_ONCE);
	body.n_chunks = MOST;
	ck_assert_int_eq(gm_wire_pack(&packet, bytes, sizeof(bytes), &n), 0);
	ck_assert_int_eq(send(far, bytes, n, 0), (ssize_t)n);
	expect_refusal(GPUMEM_E_PROTOCOL);
}
END_TEST

START_TEST(fds_from_a_client_are_closed_and_refused)
{
	size_t before = count_fds();
	int fds[2] = {0, 1};
	Gm__Wire__GetStatus body = GM__WIRE__GET_STATUS__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	uint8_t bytes[64];
	size_t n;
	packet.id = 1;
	packet.body_case = GM__WIRE__PACKET__BODY_GET_STATUS;
	packet.get_status = &body;
	ck_assert_int_eq(gm_wire_pack(&packet, bytes, sizeof(bytes), &n), 0);
	ck_assert_int_eq(gm_seqpacket_send(far, bytes, n, fds, 2), 0);
	expect_refusal(GPUMEM_E_PROTOCOL);
	ck_assert_uint_eq(n_packets, 0);
	uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(count_fds(), before - 2); /* less the connection and its flow */
}
END_TEST

START_TEST(a_request_without_an_id_is_refused)
{
	Gm__Wire__GetStatus body = GM__WIRE__GET_STATUS__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	uint8_t bytes[64];
	size_t n;
	packet.body_case = GM__WIRE__PACKET__BODY_GET_STATUS;
	packet.get_status = &body;
	ck_assert_int_eq(gm_wire_pack(&packet, bytes, sizeof(bytes), &n), 0);
	ck_assert_int_eq(gm_seqpacket_send(far, bytes, n, NULL, 0), 0);
	expect_refusal(GPUMEM_E_PROTOCOL);
}
END_TEST

START_TEST(acknowledging_fds_that_were_never_sent_is_refused)
{
	send_request(far, 1, 1);
	expect_refusal(GPUMEM_E_PROTOCOL);
}
END_TEST

START_TEST(an_unknown_request_is_answered_and_the_connection_goes_on)
{
	/* Field 1: id 9; field 1000, which nobody has: an empty message. */
	static const uint8_t bytes[] = {0x08, 9, 0xc2, 0x3e, 0};
	ck_assert_int_eq(send(far, bytes, sizeof(bytes), 0), (ssize_t)sizeof(bytes));
	Gm__Wire__Packet *packet = receive(far);
	ck_assert_uint_eq(packet->id, 9);
	ck_assert_int_eq(packet->body_case, GM__WIRE__PACKET__BODY_FAILURE);
	ck_assert_uint_eq(packet->failure->status, GPUMEM_E_UNSUPPORTED);
	answer_at_once = true;
	send_request(far, 10, 0);
	ck_assert_uint_eq(receive(far)->id, 10);
}
END_TEST

START_TEST(who_says_no_hello_is_dropped_at_the_deadline)
{
	int late;
	struct gm_peer *other = new_peer(&late, 1);
	Gm__Wire__Packet *packet = receive(late);
	ck_assert_ptr_nonnull(other);
	ck_assert_int_eq(packet->body_case, GM__WIRE__PACKET__BODY_FAILURE);
	ck_assert_uint_eq(packet->failure->status, GPUMEM_E_TIMEOUT);
	ck_assert_ptr_null(receive(late));
	ck_assert_uint_eq(n_closed, 1);
	n_closed = 0;
	close(late);
}
END_TEST

/* Behind the requests may be what makes room for them: a Cancel, a Return, an Ack. */
START_TEST(past_the_bound_on_requests_in_flight_a_client_is_still_read)
{
	GM_BOUND_TEST(REQUESTS_IN_FLIGHT);
	for (uint64_t id = 1; id <= GM_BOUND_REQUESTS_IN_FLIGHT + 1; id++)
		send_request(far, id, 0);
	while (n_packets <= GM_BOUND_REQUESTS_IN_FLIGHT)
		uv_run(&loop, UV_RUN_ONCE);
	ck_assert_uint_eq(ids[GM_BOUND_REQUESTS_IN_FLIGHT], GM_BOUND_REQUESTS_IN_FLIGHT + 1);
	/* The one past the bound counts as an answer that is not read, until one is answered. */
	ck_assert_uint_gt(hub_unread(), 0);
	gm_peer_send_done(peer, 1);
	ck_assert_uint_eq(hub_unread(), 0);
	ck_assert_uint_eq(n_closed, 0);
}
END_TEST

START_TEST(a_client_that_asks_on_while_nothing_is_answered_is_dropped)
{
	enum { BOUND = GM_BOUND_REQUESTS_IN_FLIGHT + GM_BOUND_SEND_QUEUE_BYTES / 1024 };
	uint64_t id = 0;
	/* A socket holds fewer than that. */
	for (; id < BOUND; uv_run(&loop, UV_RUN_NOWAIT))
		if (id < n_packets + 8)
			send_request(far, ++id, 0);
	while (n_packets < BOUND)
		uv_run(&loop, UV_RUN_ONCE);
	ck_assert_uint_eq(n_closed, 0);
	send_request(far, BOUND + 1, 0);
	Gm__Wire__Packet *packet = receive(far);
	ck_assert_int_eq(packet->body_case, GM__WIRE__PACKET__BODY_FAILURE);
	ck_assert_uint_eq(packet->failure->status, GPUMEM_E_LIMIT);
	ck_assert_ptr_null(receive(far));
	ck_assert_uint_eq(n_packets, BOUND);
	ck_assert_uint_eq(n_closed, 1);
	ck_assert_uint_eq(hub_unread(), 0);
}
END_TEST

START_TEST(a_client_with_many_unanswered_requests_is_seen_to_leave)
{
	for (uint64_t id = 1; id <= GM_BOUND_REQUESTS_IN_FLIGHT + 1; id++)
		send_request(far, id, 0);
	for (int i = 0; i < GM_BOUND_REQUESTS_IN_FLIGHT + 20; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	shutdown(far, SHUT_RDWR);
	while (n_closed == 0)
		uv_run(&loop, UV_RUN_ONCE);
}
END_TEST

START_TEST(one_busy_client_does_not_starve_another)
{
	int second;
	struct gm_peer *other = new_peer(&second, 60000);
	int large = 4 << 20;
	answer_at_once = true;
	setsockopt(far, SOL_SOCKET, SO_SNDBUF, &large, sizeof(large));
	for (uint64_t id = 1; id <= 200; id++)
		send_request(far, id, 0);
	send_request(second, 9999, 0);
	uv_run(&loop, UV_RUN_NOWAIT);
	uv_run(&loop, UV_RUN_NOWAIT);
	bool seen = false;
	for (size_t i = 0; i < n_packets; i++)
		seen = seen || ids[i] == 9999;
	ck_assert(seen);
	ck_assert_uint_lt(n_packets, 200);
	gm_peer_close(other);
	n_closed = 0;
	close(second);
}
END_TEST

START_TEST(a_client_that_does_not_read_its_answers_is_dropped)
{
	GM_BOUND_TEST(SEND_QUEUE_BYTES);
	char detail[40001];
	size_t sent = 0;
	memset(detail, 'x', sizeof(detail) - 1);
	detail[sizeof(detail) - 1] = '\0';
	send_request(far, 1, 0);
	while (n_packets == 0)
		uv_run(&loop, UV_RUN_ONCE);
	/* What the kernel takes, and what is kept: not more than the bound. */
	for (int i = 0; i < 1000 && n_closed == 0; i++) {
		gm_peer_send_failure(peer, 1, GPUMEM_E_BUSY, detail);
		sent += sizeof(detail);
		uv_run(&loop, UV_RUN_NOWAIT);
	}
	ck_assert_uint_eq(n_closed, 1);
	ck_assert_uint_gt(sent, GM_BOUND_SEND_QUEUE_BYTES);
	ck_assert_uint_lt(sent, 4 * GM_BOUND_SEND_QUEUE_BYTES);
}
END_TEST

START_TEST(queued_answers_arrive_in_order_once_the_client_reads)
{
	char detail[30001];
	memset(detail, 'x', sizeof(detail) - 1);
	detail[sizeof(detail) - 1] = '\0';
	for (uint64_t id = 1; id <= 20; id++)
		gm_peer_send_failure(peer, id, GPUMEM_E_BUSY, detail);
	for (uint64_t id = 1; id <= 20; id++)
		ck_assert_uint_eq(receive(far)->id, id);
	ck_assert_uint_eq(n_closed, 0);
}
END_TEST

START_TEST(who_said_hello_in_time_is_not_dropped_because_the_loop_was_late)
{
	int late;
	struct gm_peer *other = new_peer(&late, 1);
	answer_at_once = true;
	send_request(late, 7, 0);
	for (uint64_t began = uv_hrtime(); uv_hrtime() - began < 5000000;)
		;
	uv_update_time(&loop);
	last_sequence = 0;
	ck_assert_uint_eq(receive(late)->id, 7);
	ck_assert_uint_eq(n_closed, 0);
	gm_peer_close(other);
	n_closed = 0;
	close(late);
}
END_TEST

START_TEST(nothing_is_read_while_a_hello_takes_several_turns)
{
	gm_peer_set_greeting(peer);
	gm_peer_send_done(peer, 1); /* the peer asks its flow anew for what it waits for */
	send_request(far, 7, 0);
	for (int turn = 0; turn < 10; turn++)
		uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(n_packets, 0);
	gm_peer_set_greeted(peer);
	gm_peer_send_done(peer, 2);
	while (n_packets == 0)
		uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(ids[0], 7);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("peer");
	TCase *tests = tcase_create("peer");
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, a_request_is_passed_on_and_answered_with_its_id);
	tcase_add_test(tests, a_packet_of_length_0_is_refused);
	tcase_add_test(tests, a_packet_that_is_too_long_is_refused);
	tcase_add_test(tests, what_is_no_packet_is_refused);
	tcase_add_test(tests, a_packet_that_unpacks_to_too_much_is_refused);
	tcase_add_test(tests, a_request_with_too_many_fields_is_refused);
	tcase_add_test(tests, fds_from_a_client_are_closed_and_refused);
	tcase_add_test(tests, a_request_without_an_id_is_refused);
	tcase_add_test(tests, acknowledging_fds_that_were_never_sent_is_refused);
	tcase_add_test(tests, an_unknown_request_is_answered_and_the_connection_goes_on);
	tcase_add_test(tests, who_says_no_hello_is_dropped_at_the_deadline);
	tcase_add_test(tests, past_the_bound_on_requests_in_flight_a_client_is_still_read);
	tcase_add_test(tests, a_client_that_asks_on_while_nothing_is_answered_is_dropped);
	tcase_add_test(tests, a_client_with_many_unanswered_requests_is_seen_to_leave);
	tcase_add_test(tests, one_busy_client_does_not_starve_another);
	tcase_add_test(tests, a_client_that_does_not_read_its_answers_is_dropped);
	tcase_add_test(tests, queued_answers_arrive_in_order_once_the_client_reads);
	tcase_add_test(tests, who_said_hello_in_time_is_not_dropped_because_the_loop_was_late);
	tcase_add_test(tests, nothing_is_read_while_a_hello_takes_several_turns);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
