/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many requests from many threads over one socket. There is no thread that only reads. One of the
 * waiting callers, the leader, polls, reads, and gives each packet to the call it belongs to. When
 * the leader has its own answer, it wakes another caller to lead. So a single caller never pays for
 * a switch between threads.
 *
 * This file promises:
 *   - An answer goes to its own call or to nobody.
 *   - Every fd that arrives is in a call or closed.
 *   - Every fd that the daemon announces is counted exactly once, and the daemon is told in time
 *     for it to stay below its limit.
 *   - A caller that gives up leaves its call behind, so that what the daemon grants it is not lost.
 *   - A caller that looks for something else meanwhile does not keep others waiting for
 *     their answers.
 *   - Fewer than GM_BOUND_REQUESTS_IN_FLIGHT requests are unanswered at a time. So the daemon
 *     always reads, also acknowledgements, and a full socket drains even if nobody here reads. (Those
 *     that take a request back are sent nevertheless.)
 *   - A caller that waits until it may send reads if nobody else does.
 *
 * It must never wait while it holds the lock.
 */
#include "client/session/conn.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <utlist.h>

#include "common/arith.h"
#include "common/cancel.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/cond.h"
#include "common/lock.h"
#include "common/status_table.h"

/* An Ack is worth a packet of its own when this many handles are not acknowledged. */
#define ACK_AT 32

/* At its own limit an older daemon would stop reading, and miss the acknowledgement that it waits
 * for. */
#define IN_FLIGHT_MAX (GM_BOUND_REQUESTS_IN_FLIGHT - 1)

struct gm_conn {
	unsigned refs; /* atomic */
	int socket;
	_Atomic uint64_t *ids;
	void (*wake)(void *ctx);
	void *wake_ctx;

	struct gm_lock lock;
	struct gm_conn_request *calls; /* unanswered, abandoned ones included */
	unsigned in_flight, abandoned;
	pthread_cond_t slot; /* in_flight fell, or a caller that waits for that has to read */
	bool reading;        /* there is a leader */
	int poke; /* an eventfd that wakes the leader; -1 before the first call with a look */
	bool dead;
	gpumem_status status; /* why the daemon ended the connection, if it said so */
	char reason[GM_ERROR_BYTES];
	uint64_t fds_seen;  /* read or lost */
	uint64_t fds_acked; /* what the daemon was told */
	uint8_t out[GM_BOUND_PACKET_BYTES];

	/* Used only by the leader. */
	struct gm_wire_arena arena;
	uint8_t packet[GM_BOUND_PACKET_BYTES];
};

int gm_conn_new(int socket, _Atomic uint64_t *ids, void (*wake)(void *ctx), void *ctx,
	struct gm_conn **ret_conn)
{
	struct gm_conn *conn = calloc(1, sizeof(*conn));
	if (!conn) {
		gm_close(socket);
		return -ENOMEM;
	}

	conn->refs = 1;
	conn->socket = socket;
	conn->ids = ids;
	conn->poke = -1;
	conn->wake = wake;
	conn->wake_ctx = ctx;
	conn->status = GPUMEM_E_DISCONNECTED;
	gm_lock_init(&conn->lock, GM_LOCK_CONNECTION);
	gm_cond_init(&conn->slot);
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

static void conn_finish_late(struct gm_conn_request *late)
{
	struct gm_conn_request *call, *tmp;
	DL_FOREACH_SAFE (late, call, tmp) {
		DL_DELETE(late, call);
		call->ops->late(call);
	}
}

/* Ends a call: wakes its caller, or moves it to the late ones if the caller gave up. Locked. */
static void conn_call_end(
	struct gm_conn *conn, struct gm_conn_request *call, struct gm_conn_request **late)
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
static void conn_die(struct gm_conn *conn, const char *reason, struct gm_conn_request **late)
{
	struct gm_conn_request *call, *tmp;

	if (conn->dead)
		return;
	conn->dead = true;
	snprintf(conn->reason, sizeof(conn->reason), "%s", reason);

	/* Threads that poll the socket see the end. The fd stays open until no thread can use
	 * it. */
	shutdown(conn->socket, SHUT_RDWR);
	DL_FOREACH_SAFE (conn->calls, call, tmp) {
		call->result = -EPIPE;
		conn_call_end(conn, call, late);
	}

	pthread_cond_broadcast(&conn->slot);
}

void gm_conn_kill(struct gm_conn *conn, const char *reason)
{
	struct gm_conn_request *late = NULL;
	gm_lock(&conn->lock);
	conn_die(conn, reason, &late);
	gm_lock_drop(&conn->lock);
	conn_finish_late(late);
}

void gm_conn_unref(struct gm_conn *conn)
{
	if (!conn || __atomic_fetch_sub(&conn->refs, 1, __ATOMIC_ACQ_REL) != 1)
		return;
	gm_conn_kill(conn, "the connection was closed");
	gm_close(conn->socket);
	gm_close(conn->poke);
	gm_wire_arena_deinit(&conn->arena);
	pthread_cond_destroy(&conn->slot);
	gm_lock_deinit(&conn->lock);
	free(conn);
}

bool gm_conn_dead(struct gm_conn *conn)
{
	gm_lock(&conn->lock);
	bool dead = conn->dead;
	gm_lock_drop(&conn->lock);
	return dead;
}

gpumem_status gm_conn_reason(struct gm_conn *conn, char reason[GM_ERROR_BYTES])
{
	gm_lock(&conn->lock);
	memcpy(reason, conn->reason, GM_ERROR_BYTES);
	gpumem_status status = conn->status;
	gm_lock_drop(&conn->lock);
	return status;
}

int gm_conn_fd(const struct gm_conn *conn)
{
	return conn->socket;
}

/* ---- sending */

/* Locked, so that fds_seen never decreases from one packet to the next. Returns 0, -EAGAIN, -E2BIG,
 * -EPIPE, … */
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

static bool conn_ack_due(const struct gm_conn *conn)
{
	return conn->fds_seen - conn->fds_acked >= ACK_AT;
}

/* Locked. Acknowledges handles, if no request has done so for long. */
static void conn_ack(struct gm_conn *conn)
{
	if (conn->dead || !conn_ack_due(conn))
		return;
	Gm__Wire__Ack body = GM__WIRE__ACK__INIT;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(ACK, ack, &body);
	/* If the socket is full, the leader tries again later. If it is broken, reading shows
	 * it. */
	(void)conn_send_locked(conn, &packet);
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

/* Locked. Gives a packet to its call. Returns a reason to end the connection, or NULL: after a
 * packet that breaks the rules, nothing can be trusted. */
static const char *conn_dispatch(struct gm_conn *conn, const Gm__Wire__Packet *packet,
	struct gm_conn_packet *in, struct gm_conn_request **late)
{
	if (packet->fds > GM_BOUND_PACKET_FDS || in->fds.n > packet->fds)
		return "the daemon announced a wrong number of handles";
	conn->fds_seen += packet->fds;
	conn_ack(conn);

	/* A Failure that answers no request says why the daemon ends the connection. */
	if (!packet->id && packet->body_case == GM__WIRE__PACKET__BODY_FAILURE) {
		const Gm__Wire__Failure *failure = packet->failure;
		conn->status = conn_failure_status(failure);
		return conn_failure_text(failure);
	}

	struct gm_conn_request *call;
	DL_SEARCH_SCALAR(conn->calls, call, id, packet->id);
	if (!call)
		return NULL; /* no such call: the reader closes the fds */

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

/* Not locked; called by the leader. Reads one packet. Returns 0, -EAGAIN, or -EPIPE if the
 * connection is over. */
static int conn_read_one(struct gm_conn *conn)
{
	struct gm_conn_packet in;
	struct gm_conn_request *late = NULL;
	Gm__Wire__Packet *packet = NULL;
	const char *broken = NULL;
	char text[GM_ERROR_BYTES];

	int r = gm_seqpacket_receive(conn->socket, conn->packet, sizeof(conn->packet), &in);
	if (r == -EAGAIN)
		return r;
	if (r == 0) {
		if (in.data_cut)
			broken = "the daemon sent a packet that is too long";
		else if (gm_wire_unpack(&conn->arena, conn->packet, in.n, &packet) < 0)
			broken = "the daemon sent a packet that cannot be decoded";
	} else if (r == -EPIPE) {
		broken = "the daemon closed the connection";
	} else {
		snprintf(text, sizeof(text), "reading from the daemon failed: %s", strerror(-r));
		broken = text;
	}

	gm_lock(&conn->lock);
	if (!broken && !conn->dead)
		broken = conn_dispatch(conn, packet, &in, &late);
	if (broken)
		conn_die(conn, broken, &late);
	bool dead = conn->dead;
	gm_lock_drop(&conn->lock);

	if (r == 0)
		gm_fdlist_deinit(&in.fds);
	conn_finish_late(late);
	return dead ? -EPIPE : 0;
}

/*
 * Locked. The leader steps down and wakes another waiting caller, or else one that waits to send. A
 * caller that is still sending is not woken: it may never get to wait, and if it does, it leads when
 * there is no leader. Returns true if only abandoned calls are left: then the caller must call wake(),
 * unlocked.
 */
static bool conn_step_down(struct gm_conn *conn)
{
	conn->reading = false;
	struct gm_conn_request *call;
	DL_FOREACH (conn->calls, call) {
		if (call->state == GM_CALL_WAITED) {
			pthread_cond_signal(&call->answered);
			return false;
		}
	}
	pthread_cond_signal(&conn->slot);
	return conn->abandoned > 0;
}

/* Locked on entry and exit. Leads for one turn: polls, and reads one packet. poke: the eventfd that
 * ends the turn, or -1. */
static void conn_lead(struct gm_conn *conn, int poke, uint64_t deadline_ns)
{
	conn->reading = true;
	struct pollfd p[2] = {
		{.fd = conn->socket, .events = POLLIN}, {.fd = poke, .events = POLLIN}};
	if (conn_ack_due(conn))
		p[0].events |= POLLOUT;
	gm_lock_drop(&conn->lock);

	int n = poll(p, poke < 0 ? 1 : 2, gm_clock_poll_ms(deadline_ns));
	if (n > 0 && p[1].revents) {
		eventfd_t count;
		(void)eventfd_read(poke, &count);
	}
	if (n > 0 && (p[0].revents & ~POLLOUT))
		(void)conn_read_one(conn);

	gm_lock(&conn->lock);
	if (n > 0 && (p[0].revents & POLLOUT))
		conn_ack(conn);
	conn->reading = false;
}

void gm_conn_poke(struct gm_conn *conn)
{
	struct gm_conn_request *call;

	GM_UNCANCELLED;
	gm_lock(&conn->lock);
	DL_FOREACH (conn->calls, call) {
		if (!call->look || call->state == GM_CALL_ABANDONED)
			continue;
		call->poked = true;
		pthread_cond_signal(&call->answered);
	}
	/* The leader may be one of them. */
	if (conn->reading && conn->poke >= 0)
		(void)eventfd_write(conn->poke, 1);
	gm_lock_drop(&conn->lock);
}

void gm_conn_drain(struct gm_conn *conn)
{
	gm_lock(&conn->lock);
	if (conn->reading || conn->dead) {
		gm_lock_drop(&conn->lock);
		return;
	}

	conn->reading = true;
	gm_lock_drop(&conn->lock);
	while (conn_read_one(conn) == 0)
		;
	gm_lock(&conn->lock);
	conn_ack(conn);
	/* No wake(): this is the thread that it would wake. */
	(void)conn_step_down(conn);
	gm_lock_drop(&conn->lock);
}

bool gm_conn_unread(struct gm_conn *conn)
{
	gm_lock(&conn->lock);
	bool unread = conn->abandoned > 0 && !conn->reading && !conn->dead;
	gm_lock_drop(&conn->lock);
	return unread;
}

/* ---- calling */

/*
 * Locked on entry and exit. Waits until there are few enough unanswered requests. Leads if there is no
 * leader: perhaps nobody waits for those answers, and the thread that would drain them is this one.
 * *ret_wake: whether wake() must be called, as conn_step_down() says; unwritten if it need not wait.
 */
static int conn_wait_slot(struct gm_conn *conn, uint64_t deadline_ns, bool *ret_wake)
{
	bool waited = false, late = false;

	while (!conn->dead && conn->in_flight >= IN_FLIGHT_MAX && !late) {
		if (!conn->reading)
			conn_lead(conn, -1, deadline_ns);
		else
			(void)gm_lock_wait_until(&conn->lock, &conn->slot, deadline_ns);
		waited = true;
		late = conn->in_flight >= IN_FLIGHT_MAX && gm_clock_ns() >= deadline_ns;
	}

	/* Sending may take a while, so another one leads meanwhile. */
	if (waited && !conn->reading)
		*ret_wake = conn_step_down(conn);
	if (conn->dead)
		return -EPIPE;
	return late ? -ETIMEDOUT : 0;
}

/* Locked. Sends, and waits for room in the socket if necessary. */
static int conn_send_wait(struct gm_conn *conn, Gm__Wire__Packet *request, uint64_t deadline_ns)
{
	for (;;) {
		if (conn->dead)
			return -EPIPE;
		int r = conn_send_locked(conn, request);
		/* To callers, -ENOBUFS means no device memory; here the kernel has none. */
		if (r == -ENOBUFS)
			return -ENOMEM;
		if (r != -EAGAIN)
			return r;
		gm_lock_drop(&conn->lock);
		struct pollfd p = {.fd = conn->socket, .events = POLLOUT};
		int n = poll(&p, 1, gm_clock_poll_ms(deadline_ns));
		gm_lock(&conn->lock);
		if (n == 0 && gm_clock_ns() >= deadline_ns)
			return conn->dead ? -EPIPE : -ETIMEDOUT;
	}
}

/* Whether only this request could not be sent, and the connection is still good. */
static bool conn_unsent_error(int r)
{
	return r == -E2BIG || r == -ETIMEDOUT || r == -ENOMEM;
}

static bool conn_look_due(const struct gm_conn_request *call)
{
	return call->look && (call->poked || gm_clock_ns() >= call->look->at_ns);
}

/* Locked on entry and exit. Lets the caller look elsewhere, while another one leads. Returns whether
 * the answer is still wanted. */
static bool conn_look_elsewhere(struct gm_conn *conn, struct gm_conn_request *call)
{
	call->poked = false;
	call->state = GM_CALL_LOOKS;
	bool wake = !conn->reading && conn_step_down(conn);
	gm_lock_drop(&conn->lock);

	if (wake)
		conn->wake(conn->wake_ctx);
	call->look->at_ns = call->look->look(call->look->ctx);

	gm_lock(&conn->lock);
	if (call->state == GM_CALL_LOOKS)
		call->state = GM_CALL_WAITED;
	return call->look->at_ns != 0;
}

/* Locked. Waits until the call is done. Leads if there is no leader, and sleeps otherwise. */
static int conn_wait_answer(
	struct gm_conn *conn, struct gm_conn_request *call, uint64_t deadline_ns)
{
	while (call->state != GM_CALL_DONE) {
		if (conn_look_due(call)) {
			if (!conn_look_elsewhere(conn, call) && call->state != GM_CALL_DONE)
				return -ECANCELED;
			continue;
		}

		uint64_t until_ns =
			call->look ? gm_u64_min(call->look->at_ns, deadline_ns) : deadline_ns;
		if (!conn->reading)
			conn_lead(conn, call->look ? conn->poke : -1, until_ns);
		else if (gm_lock_wait_until(&conn->lock, &call->answered, until_ns))
			continue;
		if (call->state != GM_CALL_DONE && gm_clock_ns() >= deadline_ns)
			return -ETIMEDOUT;
	}
	return 0;
}

static void conn_call_init(struct gm_conn_request *call)
{
	call->result = 0;
	call->status = GPUMEM_OK;
	call->detail[0] = '\0';
	call->state = GM_CALL_SENDING;
	call->poked = false;
	gm_cond_init(&call->answered);
}

/* Locked. Listed before it is sent, because another thread may read the answer at once. */
static void conn_call_list(
	struct gm_conn *conn, Gm__Wire__Packet *request, struct gm_conn_request *call)
{
	if (!call->id)
		call->id = atomic_fetch_add(conn->ids, 1) + 1;
	request->id = call->id;
	DL_APPEND(conn->calls, call);
	conn->in_flight++;
}

/* Locked. The call was not sent. */
static void conn_call_unlist(struct gm_conn *conn, struct gm_conn_request *call)
{
	DL_DELETE(conn->calls, call);
	conn->in_flight--;
	pthread_cond_signal(&conn->slot);
}

static int conn_call_whole(struct gm_conn *conn, Gm__Wire__Packet *request,
	struct gm_conn_request *call, uint64_t deadline_ns)
{
	struct gm_conn_request *late = NULL;
	bool wake = false;

	conn_call_init(call);
	gm_lock(&conn->lock);
	/* Without the descriptor, the leader is not woken, and looks at at_ns. */
	if (call->look && conn->poke < 0)
		conn->poke = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int r = conn_wait_slot(conn, deadline_ns, &wake);
	if (r < 0)
		goto unsent;
	conn_call_list(conn, request, call);
	r = conn_send_wait(conn, request, deadline_ns);
	/* The daemon may have sent a reason before it closed the connection: read it first. */
	if (r == -EPIPE && !conn->dead)
		r = 0;
	if (r < 0) {
		if (!conn_unsent_error(r)) {
			conn_die(conn, "the daemon closed the connection", &late);
			r = -EPIPE;
		}
		if (call->state != GM_CALL_DONE)
			conn_call_unlist(conn, call);
		goto unsent;
	}

	if (call->state == GM_CALL_SENDING)
		call->state = GM_CALL_WAITED;
	r = conn_wait_answer(conn, call, deadline_ns);
	if (r < 0) {
		call->state = GM_CALL_ABANDONED;
		conn->abandoned++;
	}

	if (!conn->reading)
		wake = conn_step_down(conn);
	gm_lock_drop(&conn->lock);

	if (wake)
		conn->wake(conn->wake_ctx);
	if (r == 0) {
		pthread_cond_destroy(&call->answered);
		if (call->result == -EPIPE)
			r = -EPIPE;
	}
	return r;

unsent:
	gm_lock_drop(&conn->lock);
	pthread_cond_destroy(&call->answered);
	conn_finish_late(late);
	if (wake)
		conn->wake(conn->wake_ctx);
	if (r == -ETIMEDOUT) {
		call->result = -ECANCELED;
		call->ops->late(call);
	}
	return r;
}

int gm_conn_call(struct gm_conn *conn, Gm__Wire__Packet *request, struct gm_conn_request *call,
	uint64_t deadline_ns)
{
	GM_UNCANCELLED; /* the leader reads the answers of all threads */
	return conn_call_whole(conn, request, call, deadline_ns);
}

int gm_conn_begin(
	struct gm_conn *conn, Gm__Wire__Packet *request, struct gm_conn_request *call, bool urgent)
{
	struct gm_conn_request *late = NULL;
	bool wake = false;
	int r = -EPIPE;
	GM_UNCANCELLED;

	conn_call_init(call);
	gm_lock(&conn->lock);
	if (!conn->dead)
		r = urgent || conn->in_flight < IN_FLIGHT_MAX ? 0 : -EAGAIN;
	if (r == 0) {
		conn_call_list(conn, request, call);
		r = conn_send_locked(conn, request);
		/* The daemon may have sent a reason before it closed the connection: whoever reads
		 * finds it, and ends the call. */
		if (r == -EPIPE)
			r = 0;
		if (r == -ENOBUFS)
			r = -ENOMEM;
		if (r < 0)
			conn_call_unlist(conn, call);
	}

	if (r == 0) {
		call->state = GM_CALL_ABANDONED;
		conn->abandoned++;
		wake = !conn->reading;
	} else if (r != -EPIPE && r != -EAGAIN && !conn_unsent_error(r)) {
		conn_die(conn, "the daemon closed the connection", &late);
		r = -EPIPE;
	}
	gm_lock_drop(&conn->lock);

	if (r < 0)
		pthread_cond_destroy(&call->answered);
	conn_finish_late(late);
	if (wake)
		conn->wake(conn->wake_ctx);
	return r;
}
