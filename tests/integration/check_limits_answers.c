/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * One past each bound of common/bounds.h on what is on its way to a client: descriptors that it has not acknowledged, and
 * answers that it does not read. It happens what the table says, to the one who did it, and a witness does not notice.
 */

#include <errno.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/limits_fixture.h"

START_TEST(handles_past_a_packets_fds_come_in_further_packets)
{
	GM_BOUND_TEST(PACKET_FDS);
	struct gm_raw_lease lease, again;
	lease_chunks(&peer, GM_BOUND_PACKET_FDS + 1, &lease);
	GM_REQUIRE_EQ(gm_raw_handles(&peer, lease.id, 0, &again), GPUMEM_OK);
	GM_REQUIRE_EQ(again.n, GM_BOUND_PACKET_FDS + 1);
	/* The host backend opens a file for each handle, so it sends few in a packet. */
	GM_REQUIRE_EQ(again.packets, gm_on_gpu() ? 2 : 5);
	GM_REQUIRE(!again.fds_lost);
	for (size_t i = 0; i < lease.n; i++) {
		struct stat a, b;
		GM_REQUIRE_EQ(again.chunks[i].id, lease.chunks[i].id);
		GM_REQUIRE_EQ(again.chunks[i].index, lease.chunks[i].index);
		GM_REQUIRE(fstat(lease.chunks[i].fd, &a) == 0);
		GM_REQUIRE(fstat(again.chunks[i].fd, &b) == 0);
		GM_REQUIRE_EQ(a.st_ino, b.st_ino);
	}
	gm_raw_lease_clear(&again);
	/* From the middle; from past the end. */
	GM_REQUIRE_EQ(gm_raw_handles(&peer, lease.id, lease.chunks[60].index, &again), GPUMEM_OK);
	GM_REQUIRE_EQ(again.n, GM_BOUND_PACKET_FDS + 1 - 60);
	GM_REQUIRE_EQ(again.chunks[0].id, lease.chunks[60].id);
	gm_raw_lease_clear(&again);
	GM_REQUIRE_EQ(gm_raw_handles(&peer, lease.id, UINT64_MAX, &again), GPUMEM_OK);
	GM_REQUIRE_EQ(again.n, 0);
	gm_raw_lease_clear(&again);
	give_back(&peer, &lease);
}
END_TEST

START_TEST(handles_past_those_in_flight_wait_until_the_peer_says_that_it_read)
{
	GM_BOUND_TEST(FDS_IN_FLIGHT);
	struct gm_raw_lease lease, again = {0};
	lease_chunks(&peer, GM_BOUND_FDS_IN_FLIGHT + 1, &lease);
	peer.mute = true;
	/* What was announced until now is acknowledged; from here on nothing is. */
	Gm__Wire__GetHandles get = GM__WIRE__GET_HANDLES__INIT;
	get.lease = lease.id;
	Gm__Wire__Packet *p = GM_RAW_PACKET(GET_HANDLES, get_handles, &get);
	p->fds_seen = peer.fds_seen;
	uint64_t seen = peer.fds_seen;
	gm_raw_send(&peer, p);
	do {
		GM_REQUIRE(gm_raw_receive(&peer));
		GM_REQUIRE(peer.packet->more);
		GM_REQUIRE(peer.fds_seen - seen <= GM_BOUND_FDS_IN_FLIGHT);
	} while (peer.fds_seen - seen < GM_BOUND_FDS_IN_FLIGHT);
	/* The daemon has long served somebody else: it does wait. */
	gm_witness_served(&witness);
	GM_REQUIRE(!gm_raw_readable(peer.socket));
	/* A word that acknowledges one lets one more come. */
	Gm__Wire__Ack ack = GM__WIRE__ACK__INIT;
	p = GM_RAW_PACKET(ACK, ack, &ack);
	p->fds_seen = seen + 1;
	gm_raw_send(&peer, p);
	GM_REQUIRE(gm_raw_receive(&peer));
	GM_REQUIRE_EQ(peer.packet->fds, 1);
	GM_REQUIRE(!peer.packet->more);
	peer.mute = false;
	gm_raw_lease_clear(&again);
	give_back(&peer, &lease);
}
END_TEST

START_TEST(acknowledgements_are_heard_when_every_answer_waits_for_one)
{
	struct gm_raw_lease lease;
	enum { ASKED = GM_BOUND_REQUESTS_IN_FLIGHT + 6 };
	lease_chunks(&peer, GM_BOUND_FDS_IN_FLIGHT + 1, &lease);
	Gm__Wire__GetHandles get = GM__WIRE__GET_HANDLES__INIT;
	get.lease = lease.id;
	/* More requests than may be in flight, each with more handles than may be: all wait. The
	 * acknowledgement comes behind the requests. */
	for (int i = 0; i < ASKED; i++)
		gm_raw_send(&peer, GM_RAW_PACKET(GET_HANDLES, get_handles, &get));
	for (int answered = 0; answered < ASKED;) {
		GM_REQUIRE(gm_raw_receive(&peer));
		GM_REQUIRE_EQ(peer.packet->body_case, GM__WIRE__PACKET__BODY_LEASE_REPLY);
		answered += !peer.packet->more;
		Gm__Wire__Ack ack = GM__WIRE__ACK__INIT;
		gm_raw_send(&peer, GM_RAW_PACKET(ACK, ack, &ack));
	}
	give_back(&peer, &lease);
}
END_TEST

START_TEST(a_client_that_asks_on_and_never_acknowledges_is_dropped)
{
	struct gm_raw_lease lease;
	lease_chunks(&peer, GM_BOUND_FDS_IN_FLIGHT + 1, &lease);
	Gm__Wire__GetHandles get = GM__WIRE__GET_HANDLES__INIT;
	get.lease = lease.id;
	gm_raw_send(&peer, GM_RAW_PACKET(GET_HANDLES, get_handles, &get));
	GM_REQUIRE(gm_raw_receive(&peer));
	GM_REQUIRE(gm_raw_receive(&peer));
	peer.mute = true;
	Gm__Wire__Packet *p = GM_RAW_PACKET(GET_HANDLES, get_handles, &get);
	uint8_t bytes[64];
	size_t n;
	int r = 0;
	for (uint64_t i = 0; r == 0; i++) {
		p->id = 1000 + i;
		GM_REQUIRE(gm_wire_pack(p, bytes, sizeof(bytes), &n) == 0);
		r = gm_raw_send_bytes(&peer, bytes, n, NULL, 0);
		GM_REQUIRE(i < 1000000);
	}
	GM_REQUIRE(r == -EPIPE || r == -ECONNRESET);
	gpumem_status last;
	gm_raw_drain(&peer, &last);
	GM_REQUIRE_EQ(last, GPUMEM_E_LIMIT);
	/* What it holds waits for it, as ever. */
	GM_UNTIL(gm_figures_now(&witness.daemon).quarantined_clients == 1);
	struct gm_raw back;
	GM_REQUIRE_EQ(gm_raw_resume(&back, &witness.daemon, &peer), GPUMEM_OK);
	GM_REQUIRE(back.resumed);
	give_back(&back, &lease);
	gm_raw_close(&back);
}
END_TEST

START_TEST(who_acknowledges_more_fds_than_it_was_sent_is_told_so)
{
	Gm__Wire__GetDevices get = GM__WIRE__GET_DEVICES__INIT;
	Gm__Wire__Packet *p = GM_RAW_PACKET(GET_DEVICES, get_devices, &get);
	peer.mute = true;
	p->fds_seen = UINT64_MAX;
	GM_REQUIRE_EQ(gm_raw_call(&peer, p), GPUMEM_E_PROTOCOL);
}
END_TEST

START_TEST(a_client_that_never_acknowledges_still_gets_answers_without_fds)
{
	struct gm_raw_lease lease;
	peer.mute = true;
	size_t n = 0;
	Gm__Wire__Lease ask = GM__WIRE__LEASE__INIT;
	ask.bytes = GM_CHUNK_MIN;
	/* Until the daemon holds an answer back; GetStatus, asked by another, says that it could
	 * have sent it. */
	for (;;) {
		gm_raw_send(&peer, GM_RAW_PACKET(LEASE, lease, &ask));
		n++;
		GM_UNTIL(gm_figures_now(&witness.daemon).leases == n + 1);
		if (!gm_raw_readable(peer.socket))
			break;
		GM_REQUIRE(gm_raw_receive(&peer));
		GM_REQUIRE(n <= GM_BOUND_FDS_IN_FLIGHT);
	}
	GM_REQUIRE(n >= GM_BOUND_FDS_IN_FLIGHT - 3);
	Gm__Wire__GetDevices get = GM__WIRE__GET_DEVICES__INIT;
	GM_REQUIRE_EQ(gm_raw_call(&peer, GM_RAW_PACKET(GET_DEVICES, get_devices, &get)), GPUMEM_OK);
	Gm__Wire__Ack ack = GM__WIRE__ACK__INIT;
	peer.mute = false;
	gm_raw_send(&peer, GM_RAW_PACKET(ACK, ack, &ack));
	GM_REQUIRE(gm_raw_receive(&peer));
	lease = (struct gm_raw_lease){0};
	GM_REQUIRE_EQ(gm_raw_collect(&peer, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(lease.n, 1);
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_goodbye(&peer), GPUMEM_OK);
}
END_TEST

START_TEST(a_client_at_its_fd_limit_loses_handles_and_can_ask_again)
{
	struct gm_raw_lease lease, again;
	lease_chunks(&peer, 20, &lease);
	uint64_t id = lease.id;
	for (size_t i = 0; i < lease.n; i++) {
		close(lease.chunks[i].fd);
		lease.chunks[i].fd = -1;
	}
	gm_raw_lease_clear(&lease);
	/* Room for five more fds in this process. */
	struct rlimit before, limit;
	int next = dup(0);
	GM_REQUIRE(next >= 0);
	close(next);
	GM_REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
	limit = before;
	limit.rlim_cur = (rlim_t)next + 5;
	GM_REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	for (int i = 0; i < 3; i++) {
		GM_REQUIRE_EQ(gm_raw_handles(&peer, id, 0, &again), GPUMEM_OK);
		GM_REQUIRE(again.fds_lost);
		GM_REQUIRE_EQ(again.n, 20);
		/* What did come is of use: the first ones, in order. */
		GM_REQUIRE(again.chunks[0].fd >= 0);
		GM_REQUIRE(again.chunks[19].fd == -1);
		gm_raw_lease_clear(&again);
	}
	GM_REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
	GM_REQUIRE_EQ(gm_raw_handles(&peer, id, 0, &again), GPUMEM_OK);
	GM_REQUIRE(!again.fds_lost);
	for (size_t i = 0; i < again.n; i++)
		gm_alloc_raw_chunk_fill(&again.chunks[i], 1);
	give_back(&peer, &again);
}
END_TEST

/* Asks and asks without reading; until the daemon has had enough. */
static void ask_until_dropped(struct gm_raw *deaf)
{
	Gm__Wire__GetDevices get = GM__WIRE__GET_DEVICES__INIT;
	Gm__Wire__Packet *p = GM_RAW_PACKET(GET_DEVICES, get_devices, &get);
	uint8_t bytes[64];
	size_t n;
	int r = 0;
	for (uint64_t i = 0; r == 0; i++) {
		p->id = 1000 + i;
		GM_REQUIRE(gm_wire_pack(p, bytes, sizeof(bytes), &n) == 0);
		r = gm_raw_send_bytes(deaf, bytes, n, NULL, 0);
		if (i % 500 == 0)
			gm_witness_served(&witness);
		if (i > 1000000)
			GM_FAIL("never dropped");
	}
	GM_REQUIRE(r == -EPIPE || r == -ECONNRESET);
}

START_TEST(a_peer_that_does_not_read_is_dropped_and_others_are_served)
{
	GM_BOUND_TEST(SEND_QUEUE_BYTES);
	struct gm_raw deaf;
	gm_raw_observe(&deaf, &witness.daemon);
	uint64_t before = gm_daemon_rss(&witness.daemon);
	ask_until_dropped(&deaf);
	/* Its queue was bounded, and is gone. */
	GM_REQUIRE(gm_daemon_rss(&witness.daemon) < before + 16 * GM_BOUND_SEND_QUEUE_BYTES);
	gm_raw_close(&deaf);
}
END_TEST

START_TEST(a_peer_that_does_not_read_long_answers_holds_up_nobody)
{
	/* They are made packet by packet, as they are read. Requests past those in flight are read,
	 * too, and there is room for some hundreds of them. */
	enum { ASKED = GM_BOUND_REQUESTS_IN_FLIGHT + 500 };
	struct gm_raw deaf;
	gm_raw_observe(&deaf, &witness.daemon);
	Gm__Wire__GetConfig get = GM__WIRE__GET_CONFIG__INIT;
	Gm__Wire__Packet *p = GM_RAW_PACKET(GET_CONFIG, get_config, &get);
	uint8_t bytes[64];
	size_t n, asked = 0;
	while (asked < ASKED) {
		p->id = 1000 + asked;
		GM_REQUIRE(gm_wire_pack(p, bytes, sizeof(bytes), &n) == 0);
		int r = gm_seqpacket_send(deaf.socket, bytes, n, NULL, 0);
		GM_REQUIRE(r == 0 || r == -EAGAIN);
		asked += r == 0;
		if (asked % 20 == 0)
			gm_witness_served(&witness);
	}
	gm_witness_served(&witness);
	/* It reads after all: every question is answered, in full. */
	for (size_t answers = 0; answers < asked;) {
		GM_REQUIRE(gm_raw_receive(&deaf));
		GM_REQUIRE_EQ(deaf.packet->body_case, GM__WIRE__PACKET__BODY_CONFIG);
		answers += !deaf.packet->more;
	}
	gm_raw_close(&deaf);
}
END_TEST

START_TEST(a_client_that_does_not_read_is_dropped_with_what_it_holds_still_charged)
{
	struct gm_raw deaf;
	struct gm_raw_lease lease;
	gm_raw_join(&deaf, &witness.daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&deaf, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	ask_until_dropped(&deaf);
	GM_UNTIL(gm_figures_now(&witness.daemon).quarantined == GM_CHUNK_MIN);
	gm_alloc_raw_chunk_fill(&lease.chunks[0], 9);
	gm_raw_lease_clear(&lease);
	/* It comes back, and lets go. */
	struct gm_raw back;
	GM_REQUIRE_EQ(gm_raw_resume(&back, &witness.daemon, &deaf), GPUMEM_OK);
	GM_REQUIRE(back.resumed);
	GM_REQUIRE_EQ(gm_raw_goodbye(&back), GPUMEM_OK);
	gm_raw_close(&back);
	gm_raw_close(&deaf);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("limits of answers");
	TCase *tc = tcase_create("beside a witness");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, handles_past_a_packets_fds_come_in_further_packets);
	tcase_add_test(tc, handles_past_those_in_flight_wait_until_the_peer_says_that_it_read);
	tcase_add_test(tc, acknowledgements_are_heard_when_every_answer_waits_for_one);
	tcase_add_test(tc, a_client_that_asks_on_and_never_acknowledges_is_dropped);
	tcase_add_test(tc, who_acknowledges_more_fds_than_it_was_sent_is_told_so);
	tcase_add_test(tc, a_client_that_never_acknowledges_still_gets_answers_without_fds);
	tcase_add_test(tc, a_client_at_its_fd_limit_loses_handles_and_can_ask_again);
	tcase_add_test(tc, a_peer_that_does_not_read_is_dropped_and_others_are_served);
	tcase_add_test(tc, a_peer_that_does_not_read_long_answers_holds_up_nobody);
	tcase_add_test(tc, a_client_that_does_not_read_is_dropped_with_what_it_holds_still_charged);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
