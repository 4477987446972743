/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection. libuv cannot pass fds, so there is our own sendmsg and recvmsg, and the socket is
 * in the flow of its user (hub_flow.h). A packet is sent at once; the peer waits for writability only
 * after EAGAIN. Everything that the other end can make the daemon keep is bounded:
 *
 *   requests in flight           past the bound, each counts as bytes that it does not read
 *   fds that it has not read     at the bound, handles wait
 *   bytes that it does not read  past the bound, the peer is dropped
 *
 * In each turn of its user the daemon reads one packet, or makes one packet of a long answer. A busy
 * user does not starve the others.
 *
 * Answers with fds are streams. Their packets are made when they can be sent. Their fds are owned by
 * the stream's maker, or opened for one packet, so no queue holds one. Packets without fds go ahead of
 * streams. Both get their number when they are packed, so the numbers on a connection always grow.
 *
 * A peer that is to end is closed on a turn of its user, and never within a call: so no function finds
 * its session gone when a call into core or into a stream returns. That takes as long as a request.
 *
 * libuv handles are freed only in their close callbacks, and so is the peer.
 */
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utlist.h>

#include "common/wire/seqpacket.h"
#include "common/text/uid_name.h"
#include "daemon/net/peer_inflight.h"
#include "daemon/net/peer_private.h"

/* How long to wait for a hello that has arrived and was not read yet. */
#define GM_PEER_HELLO_GRACE_MS 20
/* A request past the bound of those in flight counts as this many bytes not read: more than it
 * costs. The peer is read on, because what makes room may come behind the requests: a Cancel, a
 * Return or an Ack. */
#define GM_PEER_WAITING_BYTES 1024

struct queued {
	struct queued *next;
	size_t n;
	uint8_t bytes[];
};

struct gm_peer {
	struct gm_hub *hub;
	const struct gm_peer_ops *ops;
	void *ctx;
	void *user;
	struct gm_identity *identity;
	struct gm_hub_flow *flow;
	struct gm_hub_flow_fd socket;
	uv_timer_t deadline;          /* of the hello */
	struct gm_hub_flow_task turn; /* tries again to send, or closes the peer */

	bool wary; /* descriptors of the other end may lie on the socket: closer.h */
	bool greeting, greeted;
	bool doomed;
	bool closed;
	bool want_write;
	bool pumping;
	bool starved; /* an answer waits until the other end says it read fds */
	bool waiting;
	struct gm_peer *prev, *next; /* in hub->waiting */

	uint32_t pending; /* requests read and not answered */
	struct gm_peer_inflight inflight;
	struct queued *first, *last;
	struct gm_user_charge connection, unread;
	struct gm_stream *streams;
};

static void peer_pump(struct gm_peer *peer);

struct gm_identity *gm_peer_identity(const struct gm_peer *peer)
{
	return peer->identity;
}

struct gm_hub_flow *gm_peer_flow(const struct gm_peer *peer)
{
	return peer->flow;
}

void *gm_peer_user(const struct gm_peer *peer)
{
	return peer->user;
}

void gm_peer_set_user(struct gm_peer *peer, void *user)
{
	peer->user = user;
}

bool gm_peer_greeted(const struct gm_peer *peer)
{
	return peer->greeted;
}

void gm_peer_set_greeting(struct gm_peer *peer)
{
	peer->greeting = true;
	if (!peer->closed)
		uv_timer_stop(&peer->deadline);
}

void gm_peer_set_greeted(struct gm_peer *peer)
{
	gm_peer_set_greeting(peer);
	peer->greeting = false;
	peer->greeted = true;
}

static void peer_write_log(struct gm_peer *peer, enum gm_log_level level, const char *message)
{
	char pid[32], uid[32], user[GM_UID_NAME_TEXT];
	const char *const fields[] = {pid, uid, NULL};

	snprintf(pid, sizeof(pid), "GPUMEM_PID=%d", (int)peer->identity->pid);
	snprintf(uid, sizeof(uid), "GPUMEM_UID=%u", peer->identity->uid);
	gm_log_fields(level, fields, "pid %d, %s: %s", (int)peer->identity->pid,
		gm_uid_name_say(peer->identity->uid, user), message);
}

void gm_peer_log(struct gm_peer *peer, enum gm_log_level level, const char *format, ...)
{
	char message[512];
	va_list args;

	if (!gm_log_limit_allows(
		    &peer->hub->quiet, peer->identity->payer_uid, level, GM_LOG_LIMIT_OTHER))
		return;
	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	peer_write_log(peer, level, message);
}

/* Logs why, and drops the peer. */
static void peer_drop_for(struct gm_peer *peer, enum gm_log_level level, const char *why)
{
	char message[512];

	snprintf(message, sizeof(message), "dropped: %s", why);
	if (gm_log_limit_allows(
		    &peer->hub->quiet, peer->identity->payer_uid, level, GM_LOG_LIMIT_CONNECTION))
		peer_write_log(peer, level, message);
	gm_peer_drop(peer);
}

/* ---- the end */

static void peer_on_deadline_closed(uv_handle_t *handle)
{
	struct gm_peer *peer = handle->data;

	gm_identity_unref(peer->identity);
	free(peer);
}

static void peer_stop_waiting(struct gm_peer *peer)
{
	if (peer->waiting)
		DL_DELETE(peer->hub->waiting, peer);
	peer->waiting = false;
	gm_hub_flow_withdraw(&peer->turn);
}

static struct gm_peer *peer_of_turn(struct gm_hub_flow_task *turn)
{
	return (struct gm_peer *)((char *)turn - offsetof(struct gm_peer, turn));
}

static void peer_on_doomed(struct gm_hub_flow_task *turn)
{
	gm_peer_close(peer_of_turn(turn));
}

void gm_peer_drop(struct gm_peer *peer)
{
	if (peer->doomed || peer->closed)
		return;
	peer->doomed = true;
	peer_stop_waiting(peer);
	gm_hub_flow_remove(&peer->socket);
	peer->turn.run = peer_on_doomed;
	gm_hub_flow_post(peer->flow, &peer->turn);
}

void gm_peer_close(struct gm_peer *peer)
{
	if (peer->closed)
		return;

	peer->closed = true;
	peer->doomed = true;
	peer_stop_waiting(peer);
	peer->ops->closed(peer->ctx, peer);
	struct gm_stream *stream, *next;
	DL_FOREACH_SAFE2 (peer->streams, stream, next, list_next) {
		DL_DELETE2(peer->streams, stream, list_prev, list_next);
		stream->free(stream);
	}

	while (peer->first) {
		struct queued *queued = peer->first;
		peer->first = queued->next;
		free(queued);
	}

	gm_hub_flow_remove(&peer->socket);
	gm_peer_inflight_deinit(&peer->inflight);
	gm_user_charge_deinit(&peer->unread);
	gm_closer_close(peer->hub->closer, peer->identity->payer_uid, peer->socket.fd, peer->wary);
	gm_user_charge_deinit(&peer->connection);
	gm_hub_flow_unref(peer->flow);
	uv_close((uv_handle_t *)&peer->deadline, peer_on_deadline_closed);
}

/* ---- sending */

/* Whether n more bytes may be kept for the other end until it reads. Past a bound, the peer is dropped. */
static bool peer_may_keep(const struct gm_peer *peer, size_t n)
{
	const struct gm_user_charge *unread = &peer->unread;

	return unread->amount + n <= GM_BOUND_SEND_QUEUE_BYTES &&
	       gm_user_check(unread->user, unread->slot, n) == 0;
}

/* Counts a request that was read. Returns false if the daemon must not keep it. */
static bool peer_count_request(struct gm_peer *peer)
{
	if (peer->pending >= GM_BOUND_REQUESTS_IN_FLIGHT) {
		if (!peer_may_keep(peer, GM_PEER_WAITING_BYTES))
			return false;
		gm_user_charge_add(&peer->unread, GM_PEER_WAITING_BYTES);
	}
	peer->pending++;
	return true;
}

static void peer_update_events(struct gm_peer *peer)
{
	if (peer->doomed)
		return;

	uint32_t events = EPOLLRDHUP | (peer->greeting ? 0 : EPOLLIN);
	if (peer->want_write)
		events |= EPOLLOUT;
	if (gm_hub_flow_change(&peer->socket, events) < 0)
		gm_peer_drop(peer);
}

static void peer_on_retry(struct gm_hub_flow_task *turn)
{
	peer_pump(peer_of_turn(turn));
}

void gm_peer_retry(struct gm_peer *peer)
{
	peer_stop_waiting(peer);
	gm_hub_flow_post(peer->flow, &peer->turn);
}

/* Pumps again in a moment, on the turn of the peer's user. */
static void peer_wait(struct gm_peer *peer)
{
	if (peer->waiting)
		return;
	peer->waiting = true;
	DL_APPEND(peer->hub->waiting, peer);
	gm_hub_wait(peer->hub);
}

/* Handles a failed send. Returns -EAGAIN if it is tried again later, which is arranged. */
static int peer_send_failed(struct gm_peer *peer, int r)
{
	switch (r) {
	case -EAGAIN:
		peer->want_write = true;
		return -EAGAIN;
	case -ETOOMANYREFS:
	case -ENOBUFS:
	case -ENOMEM:
		peer_wait(peer);
		return -EAGAIN;
	default:
		return r;
	}
}

/* Sends a packet. Returns 0, -EAGAIN if it is tried again later, or another negative errno. */
static int peer_transmit(
	struct gm_peer *peer, const void *bytes, size_t n, const int *fds, size_t n_fds)
{
	if (gm_hub_flow_rests(peer->flow))
		return peer_send_failed(peer, -EAGAIN);

	uint64_t began_ns = gm_hub_flow_begin_work(&peer->hub->flows);
	int r = gm_seqpacket_send(peer->socket.fd, bytes, n, fds, n_fds);
	gm_hub_flow_end_work(peer->flow, began_ns);
	return r < 0 ? peer_send_failed(peer, r) : 0;
}

static void peer_answered(struct gm_peer *peer)
{
	if (peer->pending > 0 && --peer->pending >= GM_BOUND_REQUESTS_IN_FLIGHT)
		gm_user_charge_remove(&peer->unread, GM_PEER_WAITING_BYTES);
}

static int peer_flush_queue(struct gm_peer *peer)
{
	while (peer->first) {
		struct queued *queued = peer->first;
		int r = peer_transmit(peer, queued->bytes, queued->n, NULL, 0);
		if (r < 0)
			return r;
		peer->first = queued->next;
		if (!peer->first)
			peer->last = NULL;
		gm_user_charge_remove(&peer->unread, sizeof(*queued) + queued->n);
		free(queued);
		if (peer->first && gm_hub_flow_time_is_up(peer->flow))
			return peer_send_failed(peer, -EAGAIN);
	}
	return 0;
}

/* Makes one packet of the stream whose turn it is. Returns 0, -EAGAIN or another negative errno. */
static int peer_pump_stream(struct gm_peer *peer)
{
	struct gm_stream *stream = peer->streams;
	int r = stream->next(stream, peer);

	if (r < 0)
		return r;
	DL_DELETE2(peer->streams, stream, list_prev, list_next);
	if (r > 0) {
		DL_APPEND2(peer->streams, stream, list_prev, list_next);
		return 0;
	}
	if (!stream->parted)
		peer_answered(peer);
	gm_user_charge_remove(&peer->unread, stream->bytes);
	stream->free(stream);
	return 0;
}

/* Sends what can be sent in one turn: the queue, and one packet of a stream. */
static void peer_pump(struct gm_peer *peer)
{
	if (peer->doomed || peer->pumping)
		return;

	peer->pumping = true;
	peer->want_write = false;
	peer->starved = false;
	int r = peer_flush_queue(peer);
	if (r == 0 && peer->streams)
		r = peer_pump_stream(peer);
	/* The socket is writable, so the peer's next turn comes soon. */
	if (r == 0 && peer->streams)
		peer->want_write = true;

	peer->pumping = false;
	if (r < 0 && r != -EAGAIN)
		gm_peer_drop(peer);
	else
		peer_update_events(peer);
}

bool gm_peer_time_is_up(const struct gm_peer *peer)
{
	return gm_hub_flow_time_is_up(peer->flow);
}

int gm_peer_may_emit(struct gm_peer *peer, size_t n_fds)
{
	if (gm_hub_flow_rests(peer->flow))
		return peer_send_failed(peer, -EAGAIN);

	int r = n_fds ? gm_peer_inflight_check(&peer->inflight, n_fds) : 0;

	if (r == GM_PEER_INFLIGHT_E_ACK)
		peer->starved = true; /* its acknowledgement starts peer_pump() again */
	else if (r == GM_PEER_INFLIGHT_E_BOUND)
		peer_wait(peer);
	return r ? -EAGAIN : 0;
}

int gm_peer_emit(struct gm_peer *peer, Gm__Wire__Packet *packet, const int *fds, size_t n_fds)
{
	if (peer->doomed)
		return -EPIPE;
	int r = gm_peer_may_emit(peer, n_fds);
	if (r < 0)
		return r;

	size_t n;
	r = gm_hub_pack(peer->hub, packet, n_fds, &n);
	if (r < 0)
		return r;

	r = peer_transmit(peer, peer->hub->out, n, fds, n_fds);
	if (r < 0)
		return r;

	gm_peer_inflight_add(&peer->inflight, n_fds);
	return 0;
}

void gm_peer_start(struct gm_peer *peer, struct gm_stream *stream)
{
	if (!peer->doomed && stream->bytes && !peer_may_keep(peer, stream->bytes)) {
		peer_drop_for(peer, GM_LOG_WARNING, "it does not read its answers");
	}
	if (peer->doomed) {
		stream->free(stream);
		return;
	}
	gm_user_charge_add(&peer->unread, stream->bytes);
	DL_APPEND2(peer->streams, stream, list_prev, list_next);
	if (!peer->want_write)
		peer_pump(peer);
}

static int peer_enqueue(struct gm_peer *peer, const uint8_t *bytes, size_t n)
{
	if (!peer_may_keep(peer, sizeof(struct queued) + n))
		return -ENOBUFS;

	struct queued *queued = malloc(sizeof(*queued) + n);
	if (!queued)
		return -ENOMEM;

	queued->next = NULL;
	queued->n = n;
	memcpy(queued->bytes, bytes, n);
	if (peer->last)
		peer->last->next = queued;
	else
		peer->first = queued;
	peer->last = queued;
	gm_user_charge_add(&peer->unread, sizeof(*queued) + n);
	return 0;
}

void gm_peer_send(struct gm_peer *peer, Gm__Wire__Packet *packet)
{
	if (peer->doomed)
		return;

	size_t n;
	int r = gm_hub_pack(peer->hub, packet, 0, &n);
	if (r < 0) {
		peer_drop_for(peer, GM_LOG_ERROR, "an answer does not fit into a packet");
		return;
	}
	if (packet->id && !packet->more)
		peer_answered(peer);
	r = -EAGAIN;
	if (!peer->first)
		r = peer_transmit(peer, peer->hub->out, n, NULL, 0);

	if (r == -EAGAIN) {
		r = peer_enqueue(peer, peer->hub->out, n);
		if (r < 0)
			peer_drop_for(peer, GM_LOG_WARNING,
				r == -ENOMEM ? "the daemon has no memory to keep its answers"
					     : "it does not read its answers");
	}

	if (r < 0)
		gm_peer_drop(peer);
	else
		peer_update_events(peer);
}

void gm_peer_send_failure(
	struct gm_peer *peer, uint64_t id, gpumem_status status, const char *detail)
{
	Gm__Wire__Failure failure = GM__WIRE__FAILURE__INIT;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(FAILURE, failure, &failure);
	failure.status = status;
	failure.detail = (char *)detail;
	packet.id = id;
	gm_peer_send(peer, &packet);
}

void gm_peer_send_done(struct gm_peer *peer, uint64_t id)
{
	Gm__Wire__Done done = GM__WIRE__DONE__INIT;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(DONE, done, &done);
	packet.id = id;
	gm_peer_send(peer, &packet);
}

void gm_peer_refuse(struct gm_peer *peer, uint64_t id, gpumem_status status, const char *detail)
{
	if (peer->doomed)
		return;
	gm_peer_send_failure(peer, id, status, detail);
	peer_drop_for(peer, GM_LOG_NOTICE, detail);
}

/* ---- receiving */

static void peer_take_packet(struct gm_peer *peer, size_t n)
{
	Gm__Wire__Packet *packet;
	int r = gm_wire_check_request(peer->hub->in, n);
	if (r == 0)
		r = gm_wire_unpack(&peer->hub->arena, peer->hub->in, n, &packet);
	if (r == -ENOMEM) {
		gm_peer_refuse(peer, 0, GPUMEM_E_SYSTEM, "the daemon is out of memory");
		return;
	}
	if (r < 0) {
		gm_peer_refuse(peer, 0, GPUMEM_E_PROTOCOL,
			r == -E2BIG
				? "the packet has more fields, or unpacks to more, than is allowed"
				: "this is not a packet of the protocol");
		return;
	}
	uint64_t seen = peer->inflight.seen;
	if (!gm_peer_inflight_acknowledge(&peer->inflight, packet->fds_seen)) {
		gm_peer_refuse(peer, packet->id, GPUMEM_E_PROTOCOL,
			"the client acknowledged more file descriptors than it was sent");
		return;
	}
	if (peer->starved && peer->inflight.seen > seen)
		peer_pump(peer);

	if (packet->body_case == GM__WIRE__PACKET__BODY_ACK || peer->doomed)
		return;
	if (packet->id == 0) {
		gm_peer_refuse(peer, 0, GPUMEM_E_PROTOCOL, "a request needs an id other than 0");
		return;
	}

	if (!peer_count_request(peer)) {
		gm_peer_refuse(peer, packet->id, GPUMEM_E_LIMIT,
			"too many requests of this client are unanswered: read the answers, and "
			"acknowledge the handles");
		return;
	}
	if (r == GM_WIRE_E_UNKNOWN)
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_UNSUPPORTED,
			"this daemon does not know the request; it may be older than the client");
	else
		peer->ops->packet(peer->ctx, peer, packet);
	peer_update_events(peer);
}

static const char peer_sent_fds[] = "clients do not send file descriptors";

static void peer_receive_one(struct gm_peer *peer)
{
	struct gm_conn_packet in;
	if (peer->wary && gm_seqpacket_has_fds(peer->socket.fd)) {
		gm_peer_refuse(peer, 0, GPUMEM_E_PROTOCOL, peer_sent_fds);
		return;
	}
	int r = gm_seqpacket_receive(peer->socket.fd, peer->hub->in, GM_BOUND_PACKET_BYTES, &in);
	if (r == -EAGAIN)
		return;
	if (r == -EBADMSG) {
		gm_peer_refuse(peer, 0, GPUMEM_E_PROTOCOL, "a packet of length 0");
		return;
	}
	if (r < 0) {
		gm_peer_drop(peer);
		return;
	}

	bool with_fds = in.fds.n > 0 || in.fds_cut;
	gm_fdlist_deinit(&in.fds);
	if (with_fds)
		gm_peer_refuse(peer, 0, GPUMEM_E_PROTOCOL, peer_sent_fds);
	else if (in.data_cut)
		gm_peer_refuse(peer, 0, GPUMEM_E_PROTOCOL, "a packet of more than 65536 bytes");
	else
		peer_take_packet(peer, in.n);
}

static void peer_on_ready(struct gm_hub_flow_fd *socket, uint32_t events)
{
	struct gm_peer *peer =
		(struct gm_peer *)((char *)socket - offsetof(struct gm_peer, socket));

	if (events & EPOLLERR) {
		gm_peer_drop(peer);
		return;
	}
	if (events & EPOLLOUT)
		peer_pump(peer);
	if (peer->doomed)
		return;
	if (events & EPOLLIN && !peer->greeting)
		peer_receive_one(peer);
	else if (events & (EPOLLHUP | EPOLLRDHUP))
		gm_peer_drop(peer);
}

static void peer_on_hello_deadline(uv_timer_t *timer)
{
	struct gm_peer *peer = timer->data;
	char byte;

	/* A packet has arrived and the loop was too busy to read it: that comes next. */
	if (recv(peer->socket.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0) {
		uv_timer_start(timer, peer_on_hello_deadline, GM_PEER_HELLO_GRACE_MS, 0);
		return;
	}
	gm_peer_refuse(peer, 0, GPUMEM_E_TIMEOUT, "no hello within the deadline");
}

int gm_peer_new(struct gm_hub *hub, int socket, struct gm_identity *identity, uint64_t flow,
	uint64_t hello_ms, const struct gm_peer_ops *ops, void *ctx, struct gm_peer **ret_peer)
{
	struct gm_peer *peer = calloc(1, sizeof(*peer));
	if (!peer)
		return -ENOMEM;

	peer->hub = hub;
	peer->ops = ops;
	peer->ctx = ctx;
	peer->socket.fd = socket;
	peer->socket.events = EPOLLIN | EPOLLRDHUP;
	gm_seqpacket_set_room(socket, GM_BOUND_SOCKET_BYTES);
	peer->socket.ready = peer_on_ready;
	peer->wary = gm_seqpacket_may_have_fds(socket);
	int r = gm_hub_flow_get(&hub->flows, flow, &peer->flow);
	if (r == 0)
		r = gm_hub_flow_add(peer->flow, &peer->socket);
	if (r < 0) {
		gm_hub_flow_unref(peer->flow);
		free(peer);
		return r;
	}

	gm_peer_inflight_init(&peer->inflight, peer->flow, socket);
	struct gm_user *user = peer->flow->user;
	gm_user_charge_init(&peer->unread, user,
		gm_hub_flow_slot(peer->flow, GM_USER_BYTES_UNREAD, GM_USER_ADMIN_BYTES_UNREAD));
	gm_user_charge_init(&peer->connection, user,
		gm_hub_flow_slot(peer->flow, GM_USER_CONNECTIONS, GM_USER_ADMIN_CONNECTIONS));
	gm_user_charge_add(&peer->connection, 1);
	peer->turn.run = peer_on_retry;
	peer->identity = gm_identity_ref(identity);
	uv_timer_init(hub->loop, &peer->deadline); /* cannot fail */
	peer->deadline.data = peer;
	uv_timer_start(&peer->deadline, peer_on_hello_deadline, hello_ms, 0);
	*ret_peer = peer;
	return 0;
}
