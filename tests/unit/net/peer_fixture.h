/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_NET_PEER_FIXTURE_H
#define GM_TESTS_UNIT_NET_PEER_FIXTURE_H

/* A connection over a real socket, and the client at its other end. */

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/wire/seqpacket.h"
#include "daemon/net/peer.h"
#include "tests/bound.h"
#include "tests/tap.h"

static uv_loop_t loop;
static struct gm_hub hub;
static struct gm_identity *identity;
static struct gm_peer *peer;
static int far; /* the client's end */
static size_t n_packets, n_closed, streams_alive;
static uint64_t ids[4096];
static bool answer_at_once;
static struct gm_wire_arena arena;
static uint8_t room[GM_BOUND_PACKET_BYTES];
static struct gm_conn_packet in;
static uint64_t last_sequence;

static inline void on_packet(void *ctx, struct gm_peer *from, const Gm__Wire__Packet *packet)
{
	ids[n_packets++ % 4096] = packet->id;
	gm_peer_set_greeted(from);
	if (answer_at_once)
		gm_peer_send_done(from, packet->id);
}

static inline void on_closed(void *ctx, struct gm_peer *from)
{
	n_closed++;
}

static const struct gm_peer_ops ops = {.packet = on_packet, .closed = on_closed};

static inline struct gm_peer *new_peer(int *ret_far, uint64_t hello_ms)
{
	int ends[2];
	struct gm_peer *made;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	if (!identity) {
		char why[256];
		ck_assert_int_eq(gm_identity_read(ends[0], &identity, why), 0);
	}
	ck_assert_int_eq(
		gm_peer_new(&hub, ends[0], identity, identity->uid, hello_ms, &ops, NULL, &made),
		0);
	*ret_far = ends[1];
	return made;
}

static inline void setup(void)
{
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	ck_assert_int_eq(gm_hub_init(&hub, &loop, 77), 0);
	gm_wire_arena_init(&arena);
	peer = new_peer(&far, 60000);
}

static inline void teardown(void)
{
	if (n_closed == 0)
		gm_peer_close(peer);
	close(far);
	gm_hub_close(&hub);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	gm_hub_deinit(&hub);
	gm_wire_arena_deinit(&arena);
	gm_identity_unref(identity);
	ck_assert_uint_eq(streams_alive, 0);
}

static inline size_t count_fds(void)
{
	size_t n = 0;
	DIR *folder = opendir("/proc/self/fd");
	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

static inline size_t hub_unread(void)
{
	return hub.users.all[GM_USER_BYTES_UNREAD];
}

static inline void send_request(int to, uint64_t id, uint64_t fds_seen)
{
	Gm__Wire__GetStatus body = GM__WIRE__GET_STATUS__INIT;
	Gm__Wire__Ack ack = GM__WIRE__ACK__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	uint8_t bytes[64];
	size_t n;
	packet.id = id;
	packet.fds_seen = fds_seen;
	if (id) {
		packet.body_case = GM__WIRE__PACKET__BODY_GET_STATUS;
		packet.get_status = &body;
	} else {
		packet.body_case = GM__WIRE__PACKET__BODY_ACK;
		packet.ack = &ack;
	}
	ck_assert_int_eq(gm_wire_pack(&packet, bytes, sizeof(bytes), &n), 0);
	ck_assert_int_eq(gm_seqpacket_send(to, bytes, n, NULL, 0), 0);
}

static inline bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return poll(&p, 1, 0) == 1;
}

/* The loop turns until the client has something to read. */
static inline Gm__Wire__Packet *receive(int from)
{
	Gm__Wire__Packet *packet;
	while (!readable(from))
		uv_run(&loop, UV_RUN_ONCE);
	int r = gm_seqpacket_receive(from, room, sizeof(room), &in);
	if (r == -EPIPE)
		return NULL;
	ck_assert_int_eq(r, 0);
	ck_assert_int_eq(gm_wire_unpack(&arena, room, in.n, &packet), 0);
	ck_assert_uint_eq(packet->generation, 77);
	ck_assert_uint_gt(packet->sequence, last_sequence);
	ck_assert_uint_eq(packet->fds, in.fds.n);
	last_sequence = packet->sequence;
	return packet;
}

#endif
