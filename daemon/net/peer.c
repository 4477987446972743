/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection. libuv cannot pass fds, so the socket is a uv_poll_t with our own sendmsg and
 * recvmsg. A packet is sent at once; the peer waits for writability only after EAGAIN. Everything
 * that the other end can make the daemon keep is bounded:
 *
 *   requests in flight           at the bound, the peer is not read
 *   fds that it has not read     at the bound, handles wait
 *   bytes that it does not read  past the bound, the peer is dropped
 *
 * The daemon reads a bounded number of packets per wakeup and makes answers for a bounded time, so
 * that one busy client does not starve the others.
 *
 * Answers with fds are streams. Their packets are made when they can be sent, and their fds are
 * owned elsewhere, so no fd is duplicated and no queue holds one. Packets without fds go ahead of
 * streams. Both get their number when they are packed, so the numbers on a connection always grow.
 *
 * libuv handles are freed only in their close callbacks, and so is the peer.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/sockios.h>

#include <utlist.h>

#include "common/seqpacket.h"
#include "daemon/net/peer_private.h"

#define GM_PEER_PACKETS_PER_WAKEUP 16
/* How long the daemon makes answers for one client before it is the turn of others. The packet that
 * was begun is finished first. */
#define GM_PEER_TURN_NS 1000000
/* How long to wait when the kernel takes no more fds from the daemon, until other peers have read
 * theirs. */
#define GM_PEER_RETRY_MS 20
/* A request past the bound of those in flight counts as this many bytes not read: more than it
 * costs. */
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
	int socket;
	uv_poll_t poll;
	uv_timer_t timer; /* the hello's deadline, later the retry of a send */
	int open_handles;
	int polled; /* events asked for */

	bool greeted;
	bool doomed;
	bool closed;
	bool want_write;
	bool pumping;
	bool starved;                /* an answer waits until the other end says it read fds */
	struct gm_peer *prev, *next; /* in hub->doomed */

	uint32_t pending; /* requests read and not answered */
	uint64_t fds_sent, fds_seen;
	uint64_t fds_gone; /* of those sent, how many the kernel says were read */
	struct queued *first, *last;
	size_t queue_bytes;
	struct gm_stream *streams;
};

static void peer_pump(struct gm_peer *peer);

struct gm_identity *gm_peer_identity(const struct gm_peer *peer)
{
	return peer->identity;
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

void gm_peer_set_greeted(struct gm_peer *peer)
{
	peer->greeted = true;
	if (!peer->closed)
		uv_timer_stop(&peer->timer);
}

void gm_peer_log(struct gm_peer *peer, enum gm_log_level level, const char *format, ...)
{
	char pid[32], uid[32], message[512];
	const char *const fields[] = {pid, uid, NULL};
	va_list args;
	snprintf(pid, sizeof(pid), "GPUMEM_PID=%d", (int)peer->identity->pid);
	snprintf(uid, sizeof(uid), "GPUMEM_UID=%u", peer->identity->uid);
	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	gm_log_fields(level, fields, "pid %d, uid %u: %s", (int)peer->identity->pid,
		peer->identity->uid, message);
}

/* ---- the end */

static void peer_on_handle_closed(uv_handle_t *handle)
{
	struct gm_peer *peer = handle->data;
	if (--peer->open_handles > 0)
		return;
	gm_identity_unref(peer->identity);
	free(peer);
}

void gm_peer_drop(struct gm_peer *peer)
{
	if (peer->doomed || peer->closed)
		return;
	peer->doomed = true;
	uv_poll_stop(&peer->poll);
	DL_APPEND(peer->hub->doomed, peer);
	gm_hub_doom(peer->hub);
}

void gm_peer_close(struct gm_peer *peer)
{
	if (peer->closed)
		return;

	peer->closed = true;
	if (peer->doomed)
		DL_DELETE(peer->hub->doomed, peer);
	peer->doomed = true;
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

	uv_close((uv_handle_t *)&peer->poll, peer_on_handle_closed);
	uv_close((uv_handle_t *)&peer->timer, peer_on_handle_closed);
	close(peer->socket);
	peer->socket = -1;
}

/* ---- sending */

static void peer_on_poll(uv_poll_t *poll, int status, int events);

/*
 * Whether the next packet of the peer may be read. While answers wait for it to acknowledge fds,
 * that acknowledgement must get through. So the requests before it are read, too, and count as
 * answers that the peer does not read.
 */
static bool peer_may_read(const struct gm_peer *peer)
{
	return peer->pending < GM_LIMIT_REQUESTS_IN_FLIGHT || peer->starved;
}

static bool peer_too_many_waiting(const struct gm_peer *peer)
{
	return peer->pending > GM_LIMIT_REQUESTS_IN_FLIGHT &&
	       peer->queue_bytes + (size_t)(peer->pending - GM_LIMIT_REQUESTS_IN_FLIGHT) *
					   GM_PEER_WAITING_BYTES >
		       GM_LIMIT_SEND_QUEUE_BYTES;
}

static void peer_update_poll(struct gm_peer *peer)
{
	if (peer->doomed)
		return;
	int events = UV_DISCONNECT;
	if (peer_may_read(peer))
		events |= UV_READABLE;
	if (peer->want_write)
		events |= UV_WRITABLE;
	if (events == peer->polled)
		return;
	peer->polled = events;
	if (uv_poll_start(&peer->poll, events, peer_on_poll) < 0)
		gm_peer_drop(peer);
}

static void peer_on_retry(uv_timer_t *timer)
{
	peer_pump(timer->data);
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
		uv_timer_start(&peer->timer, peer_on_retry, GM_PEER_RETRY_MS, 0);
		return -EAGAIN;
	default:
		return r;
	}
}

static void peer_answered(struct gm_peer *peer)
{
	if (peer->pending > 0)
		peer->pending--;
}

static int peer_flush_queue(struct gm_peer *peer)
{
	while (peer->first) {
		struct queued *queued = peer->first;
		int r = gm_seqpacket_send(peer->socket, queued->bytes, queued->n, NULL, 0);
		if (r < 0)
			return peer_send_failed(peer, r);
		peer->first = queued->next;
		if (!peer->first)
			peer->last = NULL;
		peer->queue_bytes -= queued->n;
		free(queued);
	}
	return 0;
}

/* Sends what can be sent: first the queue, then one packet of each stream in turn. */
static void peer_pump(struct gm_peer *peer)
{
	if (peer->doomed || peer->pumping)
		return;

	peer->pumping = true;
	peer->want_write = false;
	peer->starved = false;
	int r = peer_flush_queue(peer);
	uint64_t began = uv_hrtime();
	for (bool first = true; r == 0 && peer->streams && !peer->doomed; first = false) {
		struct gm_stream *stream = peer->streams;
		if (!first && uv_hrtime() - began > GM_PEER_TURN_NS) {
			peer->want_write = true; /* the socket is writable: the loop comes back */
			break;
		}
		r = stream->next(stream, peer);
		if (r < 0)
			break;
		DL_DELETE2(peer->streams, stream, list_prev, list_next);
		if (r > 0) {
			DL_APPEND2(peer->streams, stream, list_prev, list_next);
			r = 0;
			continue;
		}
		if (!stream->parted)
			peer_answered(peer);
		peer->queue_bytes -= stream->bytes;
		stream->free(stream);
	}

	peer->pumping = false;
	if (r < 0 && r != -EAGAIN)
		gm_peer_drop(peer);
	else
		peer_update_poll(peer);
}

/*
 * Whether the kernel confirms that the peer reads its fds. The client's own word is not enough: the
 * kernel counts fds that nobody has read against the daemon's user, and past a bound it takes no
 * more of them, for any client. The proof is an empty socket, and the peer has another
 * GM_LIMIT_FDS_IN_FLIGHT fds' time to show one.
 */
static bool peer_really_reads(struct gm_peer *peer, size_t n_fds)
{
	uint64_t unsure = peer->fds_sent - peer->fds_gone + n_fds;
	int unread;
	if (unsure <= GM_LIMIT_FDS_IN_FLIGHT)
		return true;
	if (ioctl(peer->socket, SIOCOUTQ, &unread) == 0 && unread == 0) {
		peer->fds_gone = peer->fds_sent;
		return true;
	}
	return unsure <= 2 * GM_LIMIT_FDS_IN_FLIGHT;
}

int gm_peer_emit(struct gm_peer *peer, Gm__Wire__Packet *packet, const int *fds, size_t n_fds)
{
	if (peer->doomed)
		return -EPIPE;

	/* The peer's acknowledgement starts peer_pump() again. */
	if (n_fds && peer->fds_sent - peer->fds_seen + n_fds > GM_LIMIT_FDS_IN_FLIGHT) {
		peer->starved = true;
		return -EAGAIN;
	}
	if (n_fds && !peer_really_reads(peer, n_fds)) {
		uv_timer_start(&peer->timer, peer_on_retry, GM_PEER_RETRY_MS, 0);
		return -EAGAIN;
	}

	size_t n;
	int r = gm_hub_pack(peer->hub, packet, n_fds, &n);
	if (r < 0)
		return r;

	r = gm_seqpacket_send(peer->socket, peer->hub->out, n, fds, n_fds);
	if (r < 0)
		return peer_send_failed(peer, r);

	peer->fds_sent += n_fds;
	return 0;
}

void gm_peer_start(struct gm_peer *peer, struct gm_stream *stream)
{
	if (!peer->doomed && stream->bytes &&
		peer->queue_bytes + stream->bytes > GM_LIMIT_SEND_QUEUE_BYTES) {
		gm_peer_log(peer, GM_LOG_WARNING, "does not read its answers; dropped");
		gm_peer_drop(peer);
	}
	if (peer->doomed) {
		stream->free(stream);
		return;
	}
	peer->queue_bytes += stream->bytes;
	DL_APPEND2(peer->streams, stream, list_prev, list_next);
	if (!peer->want_write)
		peer_pump(peer);
}

static int peer_enqueue(struct gm_peer *peer, const uint8_t *bytes, size_t n)
{
	if (peer->queue_bytes + n > GM_LIMIT_SEND_QUEUE_BYTES)
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
	peer->queue_bytes += n;
	return 0;
}

void gm_peer_send(struct gm_peer *peer, Gm__Wire__Packet *packet)
{
	if (peer->doomed)
		return;

	size_t n;
	int r = gm_hub_pack(peer->hub, packet, 0, &n);
	if (r < 0) {
		gm_peer_log(peer, GM_LOG_ERROR, "an answer does not fit into a packet; dropped");
		gm_peer_drop(peer);
		return;
	}
	if (packet->id && !packet->more)
		peer_answered(peer);
	r = -EAGAIN;
	if (!peer->first) {
		r = gm_seqpacket_send(peer->socket, peer->hub->out, n, NULL, 0);
		if (r < 0)
			r = peer_send_failed(peer, r);
	}

	if (r == -EAGAIN) {
		r = peer_enqueue(peer, peer->hub->out, n);
		if (r < 0)
			gm_peer_log(peer, GM_LOG_WARNING, "%s; dropped",
				r == -ENOMEM ? "the daemon has no memory to keep its answers"
					     : "does not read its answers");
	}

	if (r < 0)
		gm_peer_drop(peer);
	else
		peer_update_poll(peer);
}

void gm_peer_send_failure(
	struct gm_peer *peer, uint64_t id, gpumem_status status, const char *detail)
{
	Gm__Wire__Failure failure = GM__WIRE__FAILURE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	failure.status = status;
	failure.detail = (char *)detail;
	packet.id = id;
	packet.body_case = GM__WIRE__PACKET__BODY_FAILURE;
	packet.failure = &failure;
	gm_peer_send(peer, &packet);
}

void gm_peer_send_done(struct gm_peer *peer, uint64_t id)
{
	Gm__Wire__Done done = GM__WIRE__DONE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	packet.id = id;
	packet.body_case = GM__WIRE__PACKET__BODY_DONE;
	packet.done = &done;
	gm_peer_send(peer, &packet);
}

void gm_peer_refuse(struct gm_peer *peer, uint64_t id, gpumem_status status, const char *detail)
{
	if (peer->doomed)
		return;
	gm_peer_log(peer, GM_LOG_NOTICE, "dropped: %s", detail);
	gm_peer_send_failure(peer, id, status, detail);
	gm_peer_drop(peer);
}

/* ---- receiving */

static void peer_take_packet(struct gm_peer *peer, size_t n)
{
	Gm__Wire__Packet *packet;
	int r = gm_wire_unpack(&peer->hub->arena, peer->hub->in, n, &packet);
	if (r == -ENOMEM) {
		gm_peer_refuse(peer, 0, GPUMEM_E_SYSTEM, "the daemon is out of memory");
		return;
	}
	if (r < 0) {
		gm_peer_refuse(peer, 0, GPUMEM_E_PROTOCOL,
			r == -E2BIG ? "the packet unpacks to more than is allowed"
				    : "this is not a packet of the protocol");
		return;
	}
	if (packet->fds_seen > peer->fds_sent) {
		gm_peer_refuse(peer, packet->id, GPUMEM_E_PROTOCOL,
			"the client acknowledged more file descriptors than it was sent");
		return;
	}
	if (packet->fds_seen > peer->fds_seen) {
		peer->fds_seen = packet->fds_seen;
		if (peer->streams)
			peer_pump(peer);
	}

	if (packet->body_case == GM__WIRE__PACKET__BODY_ACK || peer->doomed)
		return;
	if (packet->id == 0) {
		gm_peer_refuse(peer, 0, GPUMEM_E_PROTOCOL, "a request needs an id other than 0");
		return;
	}

	peer->pending++;
	if (peer_too_many_waiting(peer)) {
		gm_peer_refuse(peer, packet->id, GPUMEM_E_LIMIT,
			"too many requests wait until this client acknowledges its handles");
		return;
	}
	if (r == GM_WIRE_E_UNKNOWN)
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_UNSUPPORTED,
			"this daemon does not know the request; it may be older than the client");
	else
		peer->ops->packet(peer->ctx, peer, packet);
	peer_update_poll(peer);
}

/* Returns false if there is nothing more to read now. */
static bool peer_receive_one(struct gm_peer *peer)
{
	struct gm_packet_in in;
	int r = gm_seqpacket_receive(peer->socket, peer->hub->in, GM_LIMIT_PACKET_BYTES, &in);
	if (r == -EAGAIN)
		return false;
	if (r == -EBADMSG) {
		gm_peer_refuse(peer, 0, GPUMEM_E_PROTOCOL, "a packet of length 0");
		return false;
	}
	if (r < 0) {
		gm_peer_drop(peer);
		return false;
	}

	bool with_fds = in.fds.n > 0 || in.fds_cut;
	gm_fdlist_deinit(&in.fds);
	if (with_fds)
		gm_peer_refuse(peer, 0, GPUMEM_E_PROTOCOL, "clients do not send file descriptors");
	else if (in.data_cut)
		gm_peer_refuse(peer, 0, GPUMEM_E_PROTOCOL, "a packet of more than 65536 bytes");
	else
		peer_take_packet(peer, in.n);
	return !peer->doomed;
}

static void peer_on_poll(uv_poll_t *poll, int status, int events)
{
	struct gm_peer *peer = poll->data;
	if (status < 0) {
		gm_peer_drop(peer);
		return;
	}
	if (events & UV_WRITABLE)
		peer_pump(peer);
	if (events & UV_READABLE) {
		for (int i = 0; i < GM_PEER_PACKETS_PER_WAKEUP && !peer->doomed; i++) {
			if (!peer_may_read(peer))
				break;
			if (!peer_receive_one(peer))
				return;
		}
	} else if (events & UV_DISCONNECT) {
		/* The peer may not be read now, or there is nothing left to read. */
		gm_peer_drop(peer);
	}
}

static void peer_on_hello_deadline(uv_timer_t *timer)
{
	struct gm_peer *peer = timer->data;
	char byte;

	/* A packet has arrived and the loop was too busy to read it: that comes next. */
	if (recv(peer->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0) {
		uv_timer_start(timer, peer_on_hello_deadline, GM_PEER_RETRY_MS, 0);
		return;
	}
	gm_peer_refuse(peer, 0, GPUMEM_E_TIMEOUT, "no hello within the deadline");
}

int gm_peer_new(struct gm_hub *hub, int socket, struct gm_identity *identity, uint64_t hello_ms,
	const struct gm_peer_ops *ops, void *ctx, struct gm_peer **ret_peer)
{
	struct gm_peer *peer = calloc(1, sizeof(*peer));
	if (!peer)
		return -ENOMEM;

	peer->hub = hub;
	peer->ops = ops;
	peer->ctx = ctx;
	peer->socket = socket;
	int r = uv_poll_init(hub->loop, &peer->poll, socket);
	if (r < 0) {
		free(peer);
		return r;
	}

	peer->poll.data = peer;
	peer->timer.data = peer;
	peer->identity = gm_identity_ref(identity);
	uv_timer_init(hub->loop, &peer->timer); /* cannot fail */
	peer->open_handles = 2;
	peer->polled = UV_READABLE | UV_DISCONNECT;
	r = uv_poll_start(&peer->poll, peer->polled, peer_on_poll);
	if (r < 0) {
		uv_close((uv_handle_t *)&peer->poll, peer_on_handle_closed);
		uv_close((uv_handle_t *)&peer->timer, peer_on_handle_closed);
		return r;
	}

	uv_timer_start(&peer->timer, peer_on_hello_deadline, hello_ms, 0);
	*ret_peer = peer;
	return 0;
}
