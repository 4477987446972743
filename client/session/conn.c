/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests with ids, many in flight from many threads, over one socket. There is no reading thread:
 * of the callers that wait, one (the leader) polls and reads and gives each packet to the call it
 * belongs to; when its own answer has come it wakes another to lead. A lone caller thus pays for no
 * hand-over at all.
 *
 * Promises: an answer is given to its call or to nobody; an fd that came is in the call or closed;
 * every fd announced is counted as seen exactly once, and the daemon is told so before it could run
 * into its bound; a caller that gives up leaves its call behind, so that what the daemon granted it
 * is still noticed. Fewer than GM_LIMIT_REQUESTS_IN_FLIGHT requests are unanswered at a time, so
 * the daemon always reads, acknowledgements too, and a full socket drains without anybody here
 * reading. Must never wait with the lock held.
 */
#include "client/session/conn.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <utlist.h>

#include "common/cancel.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/status_table.h"

/* Handles read and not yet acknowledged that make an Ack worth a packet of its own. */
#define ACK_AT 32

/* At the daemon's bound it would read no further, and miss an acknowledgement that it waits for. */
#define IN_FLIGHT_MAX (GM_LIMIT_REQUESTS_IN_FLIGHT - 1)

struct gm_conn {
	unsigned refs; /* atomic */
	int socket;
	void (*wake)(void *ctx);
	void *wake_ctx;

	pthread_mutex_t lock;
	uint64_t last_id;
	struct gm_call *calls; /* unanswered, waited for or abandoned */
	unsigned in_flight, abandoned;
	pthread_cond_t slot; /* in_flight fell */
	bool reading;        /* somebody leads */
	bool dead;
	gpumem_status status; /* of its end, as the daemon gave it */
	char reason[GM_ERROR_BYTES];
	uint64_t fds_seen;  /* read or lost */
	uint64_t fds_acked; /* as told to the daemon */
	uint8_t out[GM_LIMIT_PACKET_BYTES];

	/* Of the leader alone. */
	struct gm_wire_arena arena;
	uint8_t packet[GM_LIMIT_PACKET_BYTES];
};

static void conn_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

/* false: the time is over. */
static bool conn_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns)
{
	struct timespec until = {
		.tv_sec = (time_t)(deadline_ns / GM_NS_PER_S),
		.tv_nsec = (long)(deadline_ns % GM_NS_PER_S),
	};
	return pthread_cond_timedwait(cond, lock, &until) != ETIMEDOUT;
}

/* How long poll() may wait: rounded up, so that it does not return early for nothing. */
static int conn_poll_ms(uint64_t deadline_ns)
{
	uint64_t now = gm_clock_ns();
	if (now >= deadline_ns)
		return 0;
	uint64_t ms = (deadline_ns - now + GM_NS_PER_MS - 1) / GM_NS_PER_MS;
	return ms > 3600000 ? 3600000 : (int)ms;
}

int gm_conn_new(int socket, void (*wake)(void *ctx), void *ctx, struct gm_conn **ret_conn)
{
	struct gm_conn *conn = calloc(1, sizeof(*conn));
	if (!conn) {
		gm_close(socket);
		return -ENOMEM;
	}
	conn->refs = 1;
	conn->socket = socket;
	conn->wake = wake;
	conn->wake_ctx = ctx;
	conn->status = GPUMEM_E_DISCONNECTED;
	pthread_mutex_init(&conn->lock, NULL);
	conn_cond_init(&conn->slot);
	gm_wire_arena_init(&conn->arena);
	*ret_conn = conn;
	return 0;
}

struct gm_conn *gm_conn_ref(struct gm_conn *conn)
{
	__atomic_fetch_add(&conn->refs, 1, __ATOMIC_RELAXED);
	return conn;
}

/* ---- the end */

static void conn_finish_late(struct gm_call *late)
{
	struct gm_call *call, *tmp;
	DL_FOREACH_SAFE (late, call, tmp) {
		DL_DELETE(late, call);
		call->ops->late(call);
	}
}

/* The call is out of the connection's hands: woken, or moved to the late ones. Locked. */
static void conn_call_end(struct gm_conn *conn, struct gm_call *call, struct gm_call **late)
{
	DL_DELETE(conn->calls, call);
	conn->in_flight--;
	pthread_cond_signal(&conn->slot);
	if (call->state == GM_CALL_ABANDONED) {
		conn->abandoned--;
		call->state = GM_CALL_DONE;
		pthread_cond_destroy(&call->answered);
		DL_APPEND(*late, call);
	} else {
		call->state = GM_CALL_DONE;
		pthread_cond_signal(&call->answered);
	}
}

/* Locked. */
static void conn_die(struct gm_conn *conn, const char *reason, struct gm_call **late)
{
	if (conn->dead)
		return;
	conn->dead = true;
	snprintf(conn->reason, sizeof(conn->reason), "%s", reason);
	/* Whoever polls it sees the end; the fd stays taken until nobody can use its number. */
	shutdown(conn->socket, SHUT_RDWR);
	struct gm_call *call, *tmp;
	DL_FOREACH_SAFE (conn->calls, call, tmp) {
		call->result = -EPIPE;
		conn_call_end(conn, call, late);
	}
	pthread_cond_broadcast(&conn->slot);
}

void gm_conn_kill(struct gm_conn *conn, const char *reason)
{
	struct gm_call *late = NULL;
	pthread_mutex_lock(&conn->lock);
	conn_die(conn, reason, &late);
	pthread_mutex_unlock(&conn->lock);
	conn_finish_late(late);
}

void gm_conn_unref(struct gm_conn *conn)
{
	if (!conn || __atomic_fetch_sub(&conn->refs, 1, __ATOMIC_ACQ_REL) != 1)
		return;
	gm_conn_kill(conn, "the connection was closed");
	gm_close(conn->socket);
	gm_wire_arena_deinit(&conn->arena);
	pthread_cond_destroy(&conn->slot);
	pthread_mutex_destroy(&conn->lock);
	free(conn);
}

bool gm_conn_dead(struct gm_conn *conn)
{
	pthread_mutex_lock(&conn->lock);
	bool dead = conn->dead;
	pthread_mutex_unlock(&conn->lock);
	return dead;
}

gpumem_status gm_conn_reason(struct gm_conn *conn, char reason[GM_ERROR_BYTES])
{
	pthread_mutex_lock(&conn->lock);
	memcpy(reason, conn->reason, GM_ERROR_BYTES);
	gpumem_status status = conn->status;
	pthread_mutex_unlock(&conn->lock);
	return status;
}

int gm_conn_fd(const struct gm_conn *conn)
{
	return conn->socket;
}

/* ---- sending */

/* Locked, so that fds_seen never goes back on the wire. 0, -EAGAIN, -E2BIG, -EPIPE, … */
static int conn_send_locked(struct gm_conn *conn, Gm__Wire__Packet *packet)
{
	size_t n;
	packet->fds_seen = conn->fds_seen;
	int r = gm_wire_pack(packet, conn->out, sizeof(conn->out), &n);
	if (r < 0)
		return r;
	r = gm_seqpacket_send(conn->socket, conn->out, n, NULL, 0);
	if (r == 0)
		conn->fds_acked = packet->fds_seen;
	return r;
}

/* Locked. Says how many handles were seen, if nothing else did for long. */
static void conn_ack(struct gm_conn *conn)
{
	if (conn->dead || conn->fds_seen - conn->fds_acked < ACK_AT)
		return;
	Gm__Wire__Ack body = GM__WIRE__ACK__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	packet.body_case = GM__WIRE__PACKET__BODY_ACK;
	packet.ack = &body;
	/* A full socket: the leader tries again when there is room. Broken: its reader sees it. */
	(void)conn_send_locked(conn, &packet);
}

static bool conn_ack_due(const struct gm_conn *conn)
{
	return conn->fds_seen - conn->fds_acked >= ACK_AT;
}

/* ---- reading */

static gpumem_status conn_failure_status(const Gm__Wire__Failure *failure)
{
	return failure->status ? (gpumem_status)failure->status : GPUMEM_E_PROTOCOL;
}

static const char *conn_failure_text(const Gm__Wire__Failure *failure)
{
	return failure->detail && failure->detail[0] ? failure->detail
						     : gm_status_text(conn_failure_status(failure));
}

/* Locked. A packet that breaks the rules ends the connection: nothing after it can be trusted. */
static const char *conn_dispatch(struct gm_conn *conn, const Gm__Wire__Packet *packet,
	struct gm_packet_in *in, struct gm_call **late)
{
	if (packet->fds > GM_LIMIT_PACKET_FDS || in->fds.n > packet->fds)
		return "the daemon announced another number of handles than it sent";
	conn->fds_seen += packet->fds;
	conn_ack(conn);

	/* A failure that answers no request is why the daemon ends the connection. */
	if (!packet->id && packet->body_case == GM__WIRE__PACKET__BODY_FAILURE) {
		const Gm__Wire__Failure *failure = packet->failure;
		conn->status = conn_failure_status(failure);
		return conn_failure_text(failure);
	}
	struct gm_call *call;
	DL_SEARCH_SCALAR(conn->calls, call, id, packet->id);
	if (!call)
		return NULL; /* nobody's: its fds are closed by the reader */
	if (packet->body_case == GM__WIRE__PACKET__BODY_FAILURE) {
		const Gm__Wire__Failure *failure = packet->failure;
		call->status = conn_failure_status(failure);
		snprintf(call->detail, sizeof(call->detail), "%s", conn_failure_text(failure));
	} else {
		int r = call->ops->take(call, packet, in);
		if (r < 0 && !call->result)
			call->result = r;
	}
	if (!packet->more)
		conn_call_end(conn, call, late);
	return NULL;
}

/* Not locked; the leader. Reads one packet. 0; -EAGAIN; -EPIPE: the connection is over. */
static int conn_read_one(struct gm_conn *conn)
{
	struct gm_packet_in in;
	struct gm_call *late = NULL;
	Gm__Wire__Packet *packet = NULL;
	const char *broken = NULL;
	char text[GM_ERROR_BYTES];

	int r = gm_seqpacket_receive(conn->socket, conn->packet, sizeof(conn->packet), &in);
	if (r == -EAGAIN)
		return r;
	if (r == 0) {
		if (in.data_cut)
			broken = "the daemon sent a packet past the limit";
		else if (gm_wire_unpack(&conn->arena, conn->packet, in.n, &packet) < 0)
			broken = "the daemon sent a packet that cannot be read";
	} else if (r == -EPIPE) {
		broken = "the daemon closed the connection";
	} else {
		snprintf(text, sizeof(text), "reading from the daemon failed: %s", strerror(-r));
		broken = text;
	}

	pthread_mutex_lock(&conn->lock);
	if (!broken && !conn->dead)
		broken = conn_dispatch(conn, packet, &in, &late);
	if (broken)
		conn_die(conn, broken, &late);
	bool dead = conn->dead;
	pthread_mutex_unlock(&conn->lock);

	if (r == 0)
		gm_fdlist_deinit(&in.fds);
	conn_finish_late(late);
	return dead ? -EPIPE : 0;
}

/* Locked. The leader steps down: another that waits takes over, or, where only abandoned calls are
 * left, whoever listens. Who is still sending leads when that is done, if nobody does, but may
 * never come to that. true: call wake, unlocked. */
static bool conn_step_down(struct gm_conn *conn)
{
	conn->reading = false;
	struct gm_call *call;
	DL_FOREACH (conn->calls, call) {
		if (call->state == GM_CALL_WAITED) {
			pthread_cond_signal(&call->answered);
			return false;
		}
	}
	return conn->abandoned > 0;
}

/* Locked on entry and exit; the leader in between. One turn of reading. */
static void conn_lead(struct gm_conn *conn, uint64_t deadline_ns)
{
	conn->reading = true;
	struct pollfd p = {.fd = conn->socket, .events = POLLIN};
	if (conn_ack_due(conn))
		p.events |= POLLOUT;
	pthread_mutex_unlock(&conn->lock);
	int n = poll(&p, 1, conn_poll_ms(deadline_ns));
	if (n > 0 && (p.revents & ~POLLOUT))
		(void)conn_read_one(conn);
	pthread_mutex_lock(&conn->lock);
	if (n > 0 && (p.revents & POLLOUT))
		conn_ack(conn);
	conn->reading = false;
}

void gm_conn_drain(struct gm_conn *conn)
{
	pthread_mutex_lock(&conn->lock);
	if (conn->reading || conn->dead) {
		pthread_mutex_unlock(&conn->lock);
		return;
	}
	conn->reading = true;
	pthread_mutex_unlock(&conn->lock);
	while (conn_read_one(conn) == 0)
		;
	pthread_mutex_lock(&conn->lock);
	conn_ack(conn);
	/* No wake: it is the one that would be woken. */
	(void)conn_step_down(conn);
	pthread_mutex_unlock(&conn->lock);
}

bool gm_conn_unread(struct gm_conn *conn)
{
	pthread_mutex_lock(&conn->lock);
	bool unread = conn->abandoned > 0 && !conn->reading && !conn->dead;
	pthread_mutex_unlock(&conn->lock);
	return unread;
}

/* ---- calling */

/* Locked. Waits for a place among the unanswered ones. */
static int conn_wait_slot(struct gm_conn *conn, uint64_t deadline_ns)
{
	while (!conn->dead && conn->in_flight >= IN_FLIGHT_MAX) {
		if (!conn_cond_wait(&conn->slot, &conn->lock, deadline_ns) &&
			conn->in_flight >= IN_FLIGHT_MAX)
			return -ETIMEDOUT;
	}
	return conn->dead ? -EPIPE : 0;
}

/* Locked. Sends, waiting for room in the socket where there is none. */
static int conn_send_wait(struct gm_conn *conn, Gm__Wire__Packet *request, uint64_t deadline_ns)
{
	for (;;) {
		if (conn->dead)
			return -EPIPE;
		int r = conn_send_locked(conn, request);
		/* To callers that is a device's lack of memory; this is the kernel's. */
		if (r == -ENOBUFS)
			return -ENOMEM;
		if (r != -EAGAIN)
			return r;
		pthread_mutex_unlock(&conn->lock);
		struct pollfd p = {.fd = conn->socket, .events = POLLOUT};
		int n = poll(&p, 1, conn_poll_ms(deadline_ns));
		pthread_mutex_lock(&conn->lock);
		if (n == 0 && gm_clock_ns() >= deadline_ns)
			return conn->dead ? -EPIPE : -ETIMEDOUT;
	}
}

/* This request could not go; the next one may. */
static bool conn_unsent_error(int r)
{
	return r == -E2BIG || r == -ETIMEDOUT || r == -ENOMEM;
}

/* Locked. Until the call is done: leads when nobody does, follows otherwise. */
static int conn_wait_answer(struct gm_conn *conn, struct gm_call *call, uint64_t deadline_ns)
{
	while (call->state != GM_CALL_DONE) {
		if (!conn->reading) {
			conn_lead(conn, deadline_ns);
			if (call->state != GM_CALL_DONE && gm_clock_ns() >= deadline_ns)
				return -ETIMEDOUT;
		} else if (!conn_cond_wait(&call->answered, &conn->lock, deadline_ns) &&
			   call->state != GM_CALL_DONE) {
			return -ETIMEDOUT;
		}
	}
	return 0;
}

static int conn_call_whole(
	struct gm_conn *conn, Gm__Wire__Packet *request, struct gm_call *call, uint64_t deadline_ns)
{
	struct gm_call *late = NULL;
	bool wake = false;

	call->result = 0;
	call->status = GPUMEM_OK;
	call->detail[0] = '\0';
	call->state = GM_CALL_SENDING;
	conn_cond_init(&call->answered);

	pthread_mutex_lock(&conn->lock);
	int r = conn_wait_slot(conn, deadline_ns);
	if (r < 0)
		goto unsent;
	call->id = ++conn->last_id;
	request->id = call->id;
	/* Before it is sent: the answer may be read by another thread at once. */
	DL_APPEND(conn->calls, call);
	conn->in_flight++;
	r = conn_send_wait(conn, request, deadline_ns);
	/* What the daemon said before it closed may still be there to read, and is worth more. */
	if (r == -EPIPE && !conn->dead)
		r = 0;
	if (r < 0) {
		if (!conn_unsent_error(r)) {
			conn_die(conn, "the daemon closed the connection", &late);
			r = -EPIPE;
		}
		if (call->state != GM_CALL_DONE) {
			DL_DELETE(conn->calls, call);
			conn->in_flight--;
			pthread_cond_signal(&conn->slot);
		}
		goto unsent;
	}
	if (call->state == GM_CALL_SENDING)
		call->state = GM_CALL_WAITED;
	r = conn_wait_answer(conn, call, deadline_ns);
	if (r == -ETIMEDOUT) {
		call->state = GM_CALL_ABANDONED;
		conn->abandoned++;
	}
	if (!conn->reading)
		wake = conn_step_down(conn);
	pthread_mutex_unlock(&conn->lock);
	if (wake)
		conn->wake(conn->wake_ctx);
	if (r == 0) {
		pthread_cond_destroy(&call->answered);
		if (call->result == -EPIPE)
			r = -EPIPE;
	}
	return r;

unsent:
	pthread_mutex_unlock(&conn->lock);
	pthread_cond_destroy(&call->answered);
	conn_finish_late(late);
	if (r == -ETIMEDOUT) {
		call->result = -ECANCELED;
		call->ops->late(call);
	}
	return r;
}

int gm_conn_call(
	struct gm_conn *conn, Gm__Wire__Packet *request, struct gm_call *call, uint64_t deadline_ns)
{
	GM_UNCANCELLED; /* who leads has everybody's answers */
	return conn_call_whole(conn, request, call, deadline_ns);
}
