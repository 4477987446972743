/* SPDX-License-Identifier: Apache-2.0 */

/* Answers of several packets: their order, their turns, and descriptors that wait for the client. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/wire/seqpacket.h"
#include "daemon/net/peer.h"
#include "tests/bound.h"
#include "tests/tap.h"
#include "tests/unit/net/peer_fixture.h"

static uint64_t clock_ns = 1;

static uint64_t fake_clock(clockid_t id)
{
	(void)id;
	return clock_ns;
}

/* ---- streams */

struct fds_stream {
	struct gm_stream stream;
	unsigned int left;
	size_t fds_each;
	uint64_t takes_ns; /* to make a packet */
};

static unsigned int n_made; /* packets of streams, the ones that cannot be sent included */

static int stream_next(struct gm_stream *stream, struct gm_peer *to)
{
	struct fds_stream *own = (struct fds_stream *)stream;
	n_made++;
	int fds[GM_BOUND_PACKET_FDS];
	Gm__Wire__Done done = GM__WIRE__DONE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	for (uint64_t began = uv_hrtime(); uv_hrtime() - began < own->takes_ns;)
		;
	for (size_t i = 0; i < own->fds_each; i++)
		fds[i] = STDIN_FILENO;
	packet.id = stream->id;
	packet.more = own->left > 1;
	packet.body_case = GM__WIRE__PACKET__BODY_DONE;
	packet.done = &done;
	int r = gm_peer_emit(to, &packet, fds, own->fds_each);
	if (r < 0)
		return r;
	return --own->left > 0;
}

static void stream_free(struct gm_stream *stream)
{
	streams_alive--;
	free(stream);
}

static struct fds_stream *new_stream(uint64_t id, unsigned int packets, size_t fds_each)
{
	struct fds_stream *own = calloc(1, sizeof(*own));
	own->stream.id = id;
	own->stream.next = stream_next;
	own->stream.free = stream_free;
	own->left = packets;
	own->fds_each = fds_each;
	streams_alive++;
	return own;
}

static void start_slow_stream(uint64_t id, unsigned int packets, size_t fds_each, uint64_t takes_ns)
{
	struct fds_stream *own = new_stream(id, packets, fds_each);
	own->takes_ns = takes_ns;
	gm_peer_start(peer, &own->stream);
}

static void start_keeping_stream(uint64_t id, unsigned int packets, size_t fds_each, size_t bytes)
{
	struct fds_stream *own = new_stream(id, packets, fds_each);
	own->stream.bytes = bytes;
	gm_peer_start(peer, &own->stream);
}

static void start_stream(uint64_t id, unsigned int packets, size_t fds_each)
{
	start_slow_stream(id, packets, fds_each, 0);
}

static void let_user_rest(struct gm_hub_flow *flow)
{
	hub.flows.clock = fake_clock;
	hub.flows.cpu_ns = 0;
	uint64_t began_ns = gm_hub_flow_begin_work(&hub.flows);
	clock_ns += GM_HUB_FLOW_LEAD_NS + 1000;
	gm_hub_flow_end_work(flow, began_ns);
	ck_assert(gm_hub_flow_rests(flow));
}

START_TEST(a_connection_is_closed_on_a_turn_of_its_user)
{
	let_user_rest(gm_peer_flow(peer));
	gm_peer_drop(peer);
	for (int turn = 0; turn < 10; turn++)
		uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(n_closed, 0);
	clock_ns += GM_HUB_FLOW_REST_MAX_NS;
	while (!n_closed)
		uv_run(&loop, UV_RUN_ONCE);
}
END_TEST

START_TEST(answers_wait_in_order_while_their_user_rests)
{
	struct gm_hub_flow *flow = gm_peer_flow(peer);

	let_user_rest(flow);

	send_request(far, 1, 0);
	gm_peer_send_done(peer, 2);
	start_stream(3, 2, 1);
	gm_peer_send_done(peer, 4);
	for (int turn = 0; turn < 10; turn++)
		uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert(!readable(far));
	ck_assert_uint_eq(n_packets, 0);

	/* Packets without descriptors go ahead of streams. */
	clock_ns += GM_HUB_FLOW_REST_MAX_NS;
	ck_assert_uint_eq(receive(far)->id, 2);
	ck_assert_uint_eq(receive(far)->id, 4);
	for (int part = 0; part < 2; part++) {
		ck_assert_uint_eq(receive(far)->id, 3);
		gm_fdlist_deinit(&in.fds);
	}
	while (n_packets == 0)
		uv_run(&loop, UV_RUN_ONCE);
	ck_assert_uint_eq(n_closed, 0);
}
END_TEST

START_TEST(a_long_answer_that_takes_a_while_does_not_starve_another_client)
{
	int second;
	struct gm_peer *other = new_peer(&second, 60000);
	send_request(second, 9999, 0);
	/* Each packet takes longer than a turn; so many of them fit the socket. */
	start_slow_stream(1, 40, 0, 2000000);
	start_slow_stream(2, 40, 0, 2000000);
	ck_assert_uint_eq(streams_alive, 2);
	uv_run(&loop, UV_RUN_NOWAIT);
	uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(streams_alive, 2);
	ck_assert_uint_eq(n_packets, 1);
	ck_assert_uint_eq(ids[0], 9999);
	/* And all of it comes. */
	for (int i = 0; i < 80; i++)
		ck_assert_ptr_nonnull(receive(far));
	ck_assert_uint_eq(streams_alive, 0);
	gm_peer_close(other);
	n_closed = 0;
	close(second);
}
END_TEST

START_TEST(handles_wait_until_the_client_says_that_it_read_those_before)
{
	GM_BOUND_TEST(FDS_IN_FLIGHT);
	size_t before = count_fds();
	start_stream(1, 4, GM_BOUND_PACKET_FDS);
	for (int i = 0; i < 2; i++) {
		ck_assert_ptr_nonnull(receive(far));
		ck_assert_uint_eq(in.fds.n, GM_BOUND_PACKET_FDS);
		gm_fdlist_deinit(&in.fds);
	}
	for (int i = 0; i < 10; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert(!readable(far));
	/* Packets without fds go on meanwhile. */
	gm_peer_send_done(peer, 2);
	ck_assert_uint_eq(receive(far)->id, 2);
	send_request(far, 0, 64);
	Gm__Wire__Packet *packet = receive(far);
	ck_assert_uint_eq(packet->id, 1);
	ck_assert(packet->more);
	gm_fdlist_deinit(&in.fds);
	uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert(!readable(far));
	send_request(far, 0, 128);
	packet = receive(far);
	ck_assert(!packet->more);
	gm_fdlist_deinit(&in.fds);
	ck_assert_uint_eq(streams_alive, 0);
	ck_assert_uint_eq(count_fds(), before);
}
END_TEST

START_TEST(a_packet_that_acknowledges_nothing_costs_nothing)
{
	start_stream(1, 4, GM_BOUND_PACKET_FDS);
	for (int i = 0; i < 10; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	unsigned int before = n_made;
	for (int i = 0; i < 20; i++)
		send_request(far, 0, 0);
	for (int i = 0; i < 40; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(n_made, before);
	ck_assert_int_eq(gm_peer_may_emit(peer, 1), -EAGAIN);
	ck_assert_int_eq(gm_peer_may_emit(peer, 0), 0);
	/* One that does makes it go on. */
	send_request(far, 0, 128);
	for (int i = 0; i < 5; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_gt(n_made, before);
	ck_assert_uint_eq(streams_alive, 0);
}
END_TEST

START_TEST(handles_wait_for_a_client_that_says_that_it_read_and_did_not)
{
	enum { PACKETS = 12 };
	size_t unread = 0;
	start_stream(1, PACKETS, GM_BOUND_PACKET_FDS);
	for (uint64_t said = 1; said <= PACKETS; said++) {
		/* The most it can claim without being caught: all that may have been sent. */
		uint64_t most = 2 * GM_BOUND_FDS_IN_FLIGHT / GM_BOUND_PACKET_FDS;
		send_request(far, 0, (said < most ? said : most) * GM_BOUND_PACKET_FDS);
		for (int i = 0; i < 5; i++)
			uv_run(&loop, UV_RUN_NOWAIT);
	}
	ck_assert_uint_eq(n_closed, 0);
	ck_assert_uint_eq(streams_alive, 1);
	/* What lies in its socket is not more than twice what may be in flight. */
	while (readable(far)) {
		ck_assert_ptr_nonnull(receive(far));
		unread += in.fds.n;
		gm_fdlist_deinit(&in.fds);
	}
	ck_assert_uint_le(unread, 2 * GM_BOUND_FDS_IN_FLIGHT);
	/* It does read now, and gets the rest. */
	while (unread < PACKETS * GM_BOUND_PACKET_FDS) {
		ck_assert_ptr_nonnull(receive(far));
		unread += in.fds.n;
		gm_fdlist_deinit(&in.fds);
		send_request(far, 0, unread);
	}
	ck_assert_uint_eq(streams_alive, 0);
}
END_TEST

START_TEST(an_answer_of_more_than_a_packets_fds_is_several_packets)
{
	GM_BOUND_TEST(PACKET_FDS);
	int fds[GM_BOUND_PACKET_FDS + 1];
	Gm__Wire__Done done = GM__WIRE__DONE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	packet.id = 1;
	packet.body_case = GM__WIRE__PACKET__BODY_DONE;
	packet.done = &done;
	for (size_t i = 0; i < GM_BOUND_PACKET_FDS + 1; i++)
		fds[i] = STDIN_FILENO;
	ck_assert_int_eq(gm_peer_emit(peer, &packet, fds, GM_BOUND_PACKET_FDS + 1), -E2BIG);
	ck_assert(!readable(far));
}
END_TEST

START_TEST(streams_take_turns)
{
	char detail[30001];
	memset(detail, 'x', sizeof(detail) - 1);
	detail[sizeof(detail) - 1] = '\0';
	/* Fill the socket, so that both are queued. */
	for (int i = 0; i < 20; i++)
		gm_peer_send_failure(peer, 99, GPUMEM_E_BUSY, detail);
	start_stream(1, 3, 0);
	start_stream(2, 3, 0);
	for (int i = 0; i < 20; i++)
		ck_assert_uint_eq(receive(far)->id, 99);
	static const uint64_t order[] = {1, 2, 1, 2, 1, 2};
	for (size_t i = 0; i < 6; i++)
		ck_assert_uint_eq(receive(far)->id, order[i]);
	ck_assert_uint_eq(streams_alive, 0);
}
END_TEST

START_TEST(handles_that_the_kernel_takes_no_more_of_wait_and_arrive)
{
	enum { MOST = 8 };
	const struct rlimit few = {.rlim_cur = 300, .rlim_max = 300};
	struct gm_peer *others[MOST];
	int ends[MOST];
	/* The kernel counts fds in flight per user against this limit, but not for root. */
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	if (getuid() == 0)
		ck_assert_int_eq(setresuid(54321, 54321, 54321), 0);
	struct gm_peer *first = peer;
	for (int i = 0; i < MOST; i++) {
		others[i] = new_peer(&ends[i], 60000);
		peer = others[i];
		start_stream(1, 2, GM_BOUND_PACKET_FDS);
	}
	peer = first;
	ck_assert_uint_gt(streams_alive, 0); /* not all of 8 times 128 went out */
	for (int i = 0; i < MOST; i++) {
		last_sequence = 0;
		for (int k = 0; k < 2; k++) {
			ck_assert_ptr_nonnull(receive(ends[i]));
			ck_assert_uint_eq(in.fds.n, GM_BOUND_PACKET_FDS);
			gm_fdlist_deinit(&in.fds);
		}
	}
	ck_assert_uint_eq(streams_alive, 0);
	ck_assert_uint_eq(n_closed, 0);
	for (int i = 0; i < MOST; i++) {
		gm_peer_close(others[i]);
		close(ends[i]);
	}
	n_closed = 0;
}
END_TEST

START_TEST(what_a_stream_keeps_counts_as_an_answer_that_is_not_read)
{
	GM_BOUND_TEST(SEND_QUEUE_BYTES);
	/* One that could be sent keeps nothing any more. */
	start_keeping_stream(1, 1, 0, GM_BOUND_SEND_QUEUE_BYTES);
	start_keeping_stream(2, 2, 0, GM_BOUND_SEND_QUEUE_BYTES);
	while (streams_alive > 0)
		uv_run(&loop, UV_RUN_ONCE);
	/* These wait. */
	start_keeping_stream(3, 4, GM_BOUND_PACKET_FDS, GM_BOUND_SEND_QUEUE_BYTES - 1);
	start_keeping_stream(4, 4, GM_BOUND_PACKET_FDS, 1);
	start_stream(5, 4, GM_BOUND_PACKET_FDS);
	uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(n_closed, 0);
	ck_assert_uint_eq(streams_alive, 3);
	start_keeping_stream(6, 1, 0, 1);
	ck_assert_uint_eq(streams_alive, 3);
	while (n_closed == 0)
		uv_run(&loop, UV_RUN_ONCE);
	ck_assert_uint_eq(streams_alive, 0);
}
END_TEST

START_TEST(a_stream_that_is_a_part_of_an_answer_leaves_the_request_in_flight)
{
	struct fds_stream *part = new_stream(1, 1, 0);
	for (uint64_t id = 1; id <= GM_BOUND_REQUESTS_IN_FLIGHT + 1; id++)
		send_request(far, id, 0);
	while (n_packets <= GM_BOUND_REQUESTS_IN_FLIGHT)
		uv_run(&loop, UV_RUN_ONCE);
	size_t past = hub_unread();
	ck_assert_uint_gt(past, 0);
	part->stream.parted = true;
	gm_peer_start(peer, &part->stream);
	ck_assert_uint_eq(streams_alive, 0);
	ck_assert_uint_eq(hub_unread(), past);
	/* The rest of it is the answer. */
	gm_peer_send_done(peer, 1);
	ck_assert_uint_eq(hub_unread(), 0);
}
END_TEST

START_TEST(a_stream_ends_with_its_connection)
{
	start_stream(1, 4, GM_BOUND_PACKET_FDS);
	start_stream(2, 4, GM_BOUND_PACKET_FDS);
	ck_assert_uint_eq(streams_alive, 2);
	gm_peer_drop(peer);
	gm_peer_drop(peer);
	ck_assert_uint_eq(n_closed, 0); /* not within the call */
	/* What comes after the end is swallowed. */
	gm_peer_send_done(peer, 1);
	start_stream(3, 1, 0);
	while (n_closed == 0)
		uv_run(&loop, UV_RUN_ONCE);
	ck_assert_uint_eq(streams_alive, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("streams of a peer");
	TCase *tests = tcase_create("streams of a peer");
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, a_connection_is_closed_on_a_turn_of_its_user);
	tcase_add_test(tests, answers_wait_in_order_while_their_user_rests);
	tcase_add_test(tests, handles_wait_until_the_client_says_that_it_read_those_before);
	tcase_add_test(tests, a_packet_that_acknowledges_nothing_costs_nothing);
	tcase_add_test(tests, handles_wait_for_a_client_that_says_that_it_read_and_did_not);
	tcase_add_test(tests, an_answer_of_more_than_a_packets_fds_is_several_packets);
	tcase_add_test(tests, a_long_answer_that_takes_a_while_does_not_starve_another_client);
	tcase_add_test(tests, streams_take_turns);
	tcase_add_test(tests, handles_that_the_kernel_takes_no_more_of_wait_and_arrive);
	tcase_add_test(tests, what_a_stream_keeps_counts_as_an_answer_that_is_not_read);
	tcase_add_test(tests, a_stream_that_is_a_part_of_an_answer_leaves_the_request_in_flight);
	tcase_add_test(tests, a_stream_ends_with_its_connection);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
