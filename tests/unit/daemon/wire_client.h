/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_WIRE_CLIENT_H
#define GM_TESTS_WIRE_CLIENT_H

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpumem/status.h"
#include "common/wire/seqpacket.h"
#include "common/wire/wire.h"
#include "tests/hearing.h"

/* A client that speaks the wire by hand, one packet at a time, right or wrong as a test wants it.
 */
struct wire_client {
	int socket;
	uint64_t next_id;
	uint64_t fds_seen;
	bool no_acks; /* keeps quiet about the fds it read */
	struct gm_wire_arena arena;
	uint8_t bytes[GM_BOUND_PACKET_BYTES];
	struct gm_conn_packet in; /* of the packet received last; its fds are closed by the next */
	/* of the hello */
	uint64_t session;
	uint8_t token[GM_TOKEN_BYTES];
	int wakeup, daemon_page, client_page;
	struct gm_hearing hearing;
	struct gm_page_event event; /* the last one */
};

static inline struct wire_client *wire_connect(const char *path)
{
	struct wire_client *client = calloc(1, sizeof(*client));
	ck_assert_ptr_nonnull(client);
	gm_wire_arena_init(&client->arena);
	gm_fdlist_init(&client->in.fds);
	client->wakeup = client->daemon_page = client->client_page = -1;
	/* Ids of its own: none comes twice when a session is resumed. */
	static _Atomic uint64_t connections;
	client->next_id = connections++ << 24;
	int r = gm_seqpacket_connect(path, 10000, &client->socket);
	ck_assert_msg(r == 0, "%s: %s", path, strerror(-r));
	return client;
}

static inline void wire_close(struct wire_client *client)
{
	const int fds[] = {
		client->socket, client->wakeup, client->daemon_page, client->client_page};
	gm_hearing_end(&client->hearing);
	for (size_t i = 0; i < 4; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	gm_fdlist_deinit(&client->in.fds);
	gm_wire_arena_deinit(&client->arena);
	free(client);
}

/* The same, but this process keeps its page, as a program does that lost its connection. */
static inline void wire_hang_up(struct wire_client *client)
{
	client->client_page = -1;
	wire_close(client);
}

/* Closes the descriptors that came with the last packet: what is returned must not be open here. */
static inline void wire_drop_fds(struct wire_client *client)
{
	gm_fdlist_deinit(&client->in.fds);
	gm_fdlist_init(&client->in.fds);
}

/* The id of the request. */
static inline uint64_t wire_send(struct wire_client *client, Gm__Wire__Packet *packet)
{
	size_t n;
	packet->id = packet->body_case == GM__WIRE__PACKET__BODY_ACK ? 0 : ++client->next_id;
	packet->fds_seen = client->no_acks ? 0 : client->fds_seen;
	ck_assert_int_eq(gm_wire_pack(packet, client->bytes, sizeof(client->bytes), &n), 0);
	int r = gm_seqpacket_send(client->socket, client->bytes, n, NULL, 0);
	ck_assert_msg(r == 0 || r == -EPIPE, "%s", strerror(-r));
	return packet->id;
}

/* The next packet; NULL: the connection has ended. */
static inline Gm__Wire__Packet *wire_receive(struct wire_client *client)
{
	Gm__Wire__Packet *packet;
	struct pollfd p = {.fd = client->socket, .events = POLLIN};
	int r;
	gm_fdlist_deinit(&client->in.fds);
	gm_fdlist_init(&client->in.fds);
	do {
		while (poll(&p, 1, -1) < 0)
			ck_assert_int_eq(errno, EINTR);
		r = gm_seqpacket_receive(
			client->socket, client->bytes, sizeof(client->bytes), &client->in);
	} while (r == -EAGAIN);
	if (r == -EPIPE)
		return NULL;
	ck_assert_msg(r == 0, "%s", strerror(-r));
	ck_assert_int_eq(gm_wire_unpack(&client->arena, client->bytes, client->in.n, &packet), 0);
	client->fds_seen += packet->fds;
	return packet;
}

/* The next event; NULL: the connection has ended. */
static inline const struct gm_page_event *wire_hear(struct wire_client *client)
{
	int r = gm_hearing_next(&client->hearing, client->socket, -1, &client->event);
	return r == 1 ? &client->event : NULL;
}

/* The answer to a request, which must be the next packet. */
static inline Gm__Wire__Packet *wire_call(struct wire_client *client, Gm__Wire__Packet *packet)
{
	uint64_t id = wire_send(client, packet);
	Gm__Wire__Packet *answer = wire_receive(client);
	if (answer && answer->id)
		ck_assert_uint_eq(answer->id, id);
	return answer;
}

static inline Gm__Wire__Packet *wire_hello_as(struct wire_client *client, Gm__Wire__Hello *hello)
{
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	packet.body_case = GM__WIRE__PACKET__BODY_HELLO;
	packet.hello = hello;
	Gm__Wire__Packet *answer = wire_call(client, &packet);
	if (answer && answer->body_case == GM__WIRE__PACKET__BODY_HELLO_REPLY) {
		client->session = answer->hello_reply->session;
		if (answer->hello_reply->token.len == GM_TOKEN_BYTES)
			memcpy(client->token, answer->hello_reply->token.data, GM_TOKEN_BYTES);
		client->wakeup = gm_fdlist_steal(&client->in.fds, 0);
		client->daemon_page = gm_fdlist_steal(&client->in.fds, 1);
		client->client_page = gm_fdlist_steal(&client->in.fds, 2);
		if (client->wakeup >= 0)
			ck_assert(gm_hearing_begin(
				&client->hearing, client->wakeup, client->daemon_page));
	}
	return answer;
}

static inline struct wire_client *wire_join(const char *path, bool observer)
{
	struct wire_client *client = wire_connect(path);
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	hello.major = GM_WIRE_MAJOR;
	hello.minor = GM_WIRE_MINOR;
	hello.name = (char *)"test";
	hello.observer = observer;
	Gm__Wire__Packet *answer = wire_hello_as(client, &hello);
	ck_assert_ptr_nonnull(answer);
	ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_HELLO_REPLY);
	return client;
}

static inline uint64_t wire_send_lease(struct wire_client *client, uint32_t device, uint64_t bytes)
{
	Gm__Wire__Lease lease = GM__WIRE__LEASE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	lease.device = device;
	lease.bytes = bytes;
	packet.body_case = GM__WIRE__PACKET__BODY_LEASE;
	packet.lease = &lease;
	return wire_send(client, &packet);
}

/* A lease that must be granted, in one packet. */
static inline uint64_t wire_lease(struct wire_client *client, uint64_t bytes)
{
	uint64_t id = wire_send_lease(client, 0, bytes);
	Gm__Wire__Packet *answer = wire_receive(client);
	ck_assert_ptr_nonnull(answer);
	ck_assert_uint_eq(answer->id, id);
	ck_assert_msg(answer->body_case == GM__WIRE__PACKET__BODY_LEASE_REPLY, "%s",
		answer->body_case == GM__WIRE__PACKET__BODY_FAILURE ? answer->failure->detail : "");
	return answer->lease_reply->lease;
}

static inline Gm__Wire__Packet *wire_return(struct wire_client *client, uint64_t lease)
{
	Gm__Wire__Return body = GM__WIRE__RETURN__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	wire_drop_fds(client);
	body.lease = lease;
	packet.body_case = GM__WIRE__PACKET__BODY_RETURN_CHUNKS;
	packet.return_chunks = &body;
	return wire_call(client, &packet);
}

static inline Gm__Wire__StatusReply *wire_status(struct wire_client *client)
{
	Gm__Wire__GetStatus body = GM__WIRE__GET_STATUS__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	packet.body_case = GM__WIRE__PACKET__BODY_GET_STATUS;
	packet.get_status = &body;
	Gm__Wire__Packet *answer = wire_call(client, &packet);
	ck_assert_ptr_nonnull(answer);
	ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_STATUS);
	return answer->status;
}

static inline void wire_expect_failure(Gm__Wire__Packet *packet, gpumem_status status)
{
	ck_assert_ptr_nonnull(packet);
	ck_assert_int_eq(packet->body_case, GM__WIRE__PACKET__BODY_FAILURE);
	ck_assert_msg(packet->failure->status == (uint32_t)status, "%u: %s",
		packet->failure->status, packet->failure->detail);
	ck_assert(strlen(packet->failure->detail) > 0);
}

#endif
