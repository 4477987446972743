/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests for memory: see session_ask.h. The message is kept with the request, because it may have to be
 * sent again.
 *
 * This file promises that what the daemon grants goes to the caller or back, whichever comes first:
 * the answer, the end of the connection, or a caller that drops the request. The session's lock
 * decides.
 */
#include "client/grant/session_ask.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/session/session_call.h"
#include "client/grant/session_lease_private.h"
#include "client/grant/lease_unclaimed.h"
#include "common/cancel.h"
#include "common/cleanup.h"
#include "common/text/share_name.h"

enum ask_state { ASK_IDLE, ASK_SENT, ASK_ENDED };

/* The request that is sent. */
struct ask_message {
	Gm__Wire__Packet packet;
	union {
		Gm__Wire__Lease lease;
		Gm__Wire__Grow grow;
		Gm__Wire__Open open;
		Gm__Wire__Attach attach;
	};
};

/* A request whose caller does not wait. */
struct gm_session_ask {
	struct gm_lease_call base; /* the first member: freeing the call frees the ask */
	struct ask_message message;
	struct gm_lease_unclaimed_ask unclaimed;
	struct gm_conn *conn; /* it was sent on; NULL if it is idle */
	struct gm_conn_request
		*cancel; /* allocated in advance, so that dropping an ask cannot fail */
	uint64_t overdue_ns;
	void (*ended)(void *ctx);
	void *ctx;
	char tag[GM_BOUND_NAME_BYTES + 1];

	/* Protected by the session's lock. */
	enum ask_state state;
	bool dropped;
};

/* Whether the daemon refuses the request rather than let it wait. */
static bool ask_no_wait(const struct gm_wait *wait)
{
	return wait->mode != GM_WAIT_AS_CONFIGURED && wait->mode != GM_WAIT_UNTIL;
}

/* Runs on the thread that reads. */
static void ask_on_end(struct gm_lease_call *call)
{
	struct gm_session_ask *ask = (struct gm_session_ask *)call;
	struct gpumem_session *session = call->session;
	void (*ended)(void *ctx) = ask->ended;
	void *ctx = ask->ctx;

	gm_lock(&session->lock);
	ask->state = ASK_ENDED;
	bool dropped = ask->dropped;
	gm_lock_drop(&session->lock);

	/* If it was not dropped, another thread may have freed it by now. */
	if (dropped) {
		gm_lease_call_undo(call, false);
		gm_session_wake(session);
	} else {
		ended(ctx);
	}
}

static void ask_write_grow(struct ask_message *message, struct gm_lease_call *call,
	const struct gm_session_ask_wanted *wanted)
{
	const struct gm_session_lease *lease = wanted->grown ? wanted->grown : wanted->resized;

	call->lease_id = lease->held.lease;
	call->call.of_epoch = lease->held.epoch;
	call->grown = wanted->grown;
	call->wait_ms = &message->grow.wait_ms;
	call->waited_ms = &message->grow.waited_ms;
	message->grow = (Gm__Wire__Grow)GM__WIRE__GROW__INIT;
	message->grow.lease = lease->held.lease;
	message->grow.bytes = wanted->what.bytes;
	message->grow.user_bytes = wanted->user_bytes;
	message->grow.host_will_do = wanted->what.host_will_do;
	message->grow.no_wait = ask_no_wait(&wanted->wait);
	message->grow.again_of = wanted->what.refused ? *wanted->what.refused : 0;
	message->packet = (Gm__Wire__Packet)GM_WIRE_PACKET(GROW, grow, &message->grow);
}

static void ask_write_lease(struct ask_message *message, struct gm_lease_call *call,
	const struct gm_session_ask_wanted *wanted)
{
	const struct gm_lease_what *what = &wanted->what;

	call->one_chunk = what->one_chunk;
	call->wait_ms = &message->lease.wait_ms;
	call->waited_ms = &message->lease.waited_ms;
	message->lease = (Gm__Wire__Lease)GM__WIRE__LEASE__INIT;
	message->lease.device = what->device;
	message->lease.bytes = what->bytes;
	message->lease.transport = (Gm__Wire__Transport)what->transport;
	message->lease.tag = (char *)(what->tag ? what->tag : "");
	message->lease.for_others = what->for_others;
	message->lease.signals = what->signals;
	message->lease.fallback = what->fallback;
	message->lease.host_will_do = what->host_will_do;
	message->lease.one_chunk = what->one_chunk;
	message->lease.at_once = wanted->wait.mode == GM_WAIT_AT_ONCE;
	message->lease.no_wait = ask_no_wait(&wanted->wait);
	message->lease.again_of = what->refused ? *what->refused : 0;
	message->packet = (Gm__Wire__Packet)GM_WIRE_PACKET(LEASE, lease, &message->lease);
}

static void ask_write_open(struct ask_message *message, const struct gm_session_ask_wanted *wanted)
{
	if (wanted->token) {
		message->open = (Gm__Wire__Open)GM__WIRE__OPEN__INIT;
		message->open.token.data = (uint8_t *)wanted->token;
		message->open.token.len = GM_TOKEN_BYTES;
		message->open.index = wanted->index;
		message->packet = (Gm__Wire__Packet)GM_WIRE_PACKET(OPEN, open, &message->open);
	} else {
		message->attach = (Gm__Wire__Attach)GM__WIRE__ATTACH__INIT;
		message->attach.name = (char *)wanted->name->name;
		message->attach.foreign = wanted->name->foreign;
		message->attach.owner = wanted->name->owner;
		message->packet =
			(Gm__Wire__Packet)GM_WIRE_PACKET(ATTACH, attach, &message->attach);
	}
}

/* Makes the call and its message. bytes: of a struct whose first member is the call. NULL: no memory. */
static struct gm_lease_call *ask_call_new(
	struct gpumem_session *session, const struct gm_session_ask_wanted *wanted, size_t bytes)
{
	enum gm_lease_kind kind = GM_LEASE_LEASE;

	if (wanted->grown || wanted->resized)
		kind = GM_LEASE_GROW;
	else if (wanted->token || wanted->name)
		kind = GM_LEASE_OPEN;
	struct gm_lease_call *call = gm_lease_call_new(session, kind, bytes);
	if (!call)
		return NULL;
	call->call.wait = wanted->wait;
	call->handles = gm_wait_for_daemon(&wanted->wait) ? GM_WAIT_FOR_DAEMON : GM_WAIT_NOT;
	return call;
}

static void ask_write(struct ask_message *message, struct gm_lease_call *call,
	const struct gm_session_ask_wanted *wanted)
{
	if (call->kind == GM_LEASE_GROW)
		ask_write_grow(message, call, wanted);
	else if (call->kind == GM_LEASE_OPEN)
		ask_write_open(message, wanted);
	else
		ask_write_lease(message, call, wanted);
}

gpumem_status gm_session_ask_obtain(struct gpumem_session *session,
	const struct gm_session_ask_wanted *wanted, struct gm_session_lease **ret_lease,
	struct gm_session_chunk **ret_chunks)
{
	struct gm_lease_unclaimed_ask unclaimed;
	struct ask_message message;
	struct gm_lease_call *made = ask_call_new(session, wanted, sizeof(*made));
	if (!made)
		return gm_lease_no_memory();

	/* The call may be gone before it has ended: then the thread that reads ends it. */
	struct gm_conn_request *call = &made->call;
	ask_write(&message, made, wanted);
	gm_lease_returns_first(session);
	gm_lease_unclaimed_begin(session, &unclaimed);
	gpumem_status status = gm_session_call(session, NULL, &message.packet, &call);
	if (status && call && wanted->what.refused)
		*wanted->what.refused = call->id;
	status = gm_lease_call_finish(
		session, (struct gm_lease_call *)call, status, ret_lease, ret_chunks);
	gm_lease_unclaimed_end(session, &unclaimed);
	return status;
}

gpumem_status gm_session_lease_take(struct gpumem_session *session,
	const struct gm_lease_what *what, const struct gm_wait *wait,
	struct gm_session_lease **ret_lease, struct gm_session_chunk **ret_chunks)
{
	const struct gm_session_ask_wanted wanted = {.what = *what, .wait = *wait};
	return gm_session_ask_obtain(session, &wanted, ret_lease, ret_chunks);
}

gpumem_status gm_session_lease_open(struct gpumem_session *session,
	const uint8_t token[GM_TOKEN_BYTES], uint32_t index, struct gm_session_lease **ret_lease,
	struct gm_session_chunk **ret_chunks)
{
	const struct gm_session_ask_wanted wanted = {.token = token, .index = index};
	return gm_session_ask_obtain(session, &wanted, ret_lease, ret_chunks);
}

gpumem_status gm_session_lease_attach(struct gpumem_session *session,
	const struct gm_token_name *name, uint64_t deadline_ns, struct gm_session_lease **ret_lease,
	struct gm_session_chunk **ret_chunks)
{
	const struct gm_session_ask_wanted wanted = {.name = name, .wait.deadline_ns = deadline_ns};
	return gm_session_ask_obtain(session, &wanted, ret_lease, ret_chunks);
}

gpumem_status gm_session_lease_resize(struct gpumem_session *session,
	const struct gm_session_lease *lease, uint64_t bytes, uint64_t user_bytes,
	const struct gm_wait *wait, struct gm_session_chunk **ret_chunks)
{
	const struct gm_session_ask_wanted wanted = {
		.what.bytes = bytes, .wait = *wait, .resized = lease, .user_bytes = user_bytes};
	return gm_session_ask_obtain(session, &wanted, NULL, ret_chunks);
}

/* ---- asks whose caller does not wait */

gpumem_status gm_session_ask_new(struct gpumem_session *session,
	const struct gm_session_ask_wanted *wanted, struct gm_session_ask **ret_ask)
{
	struct gm_conn_request *cancel = calloc(1, sizeof(*cancel));
	struct gm_session_ask *ask =
		cancel ? (struct gm_session_ask *)ask_call_new(session, wanted, sizeof(*ask))
		       : NULL;
	if (!ask) {
		free(cancel);
		return gm_lease_no_memory();
	}

	ask->cancel = cancel;
	ask->base.ended = ask_on_end;
	ask->base.handles = GM_WAIT_NOT;
	ask->ended = wanted->ended;
	ask->ctx = wanted->ctx;
	ask_write(&ask->message, &ask->base, wanted);
	if (ask->base.kind == GM_LEASE_LEASE) {
		snprintf(ask->tag, sizeof(ask->tag), "%s", ask->message.lease.tag);
		ask->message.lease.tag = ask->tag;
	}
	gm_lease_unclaimed_begin(session, &ask->unclaimed);
	*ret_ask = ask;
	return GPUMEM_OK;
}

static void ask_set_state(struct gm_session_ask *ask, enum ask_state state)
{
	struct gpumem_session *session = ask->base.session;

	gm_lock(&session->lock);
	ask->state = state;
	gm_lock_drop(&session->lock);
}

gpumem_status gm_session_ask_send(struct gm_session_ask *ask)
{
	struct gpumem_session *session = ask->base.session;
	struct gm_conn_request *call = &ask->base.call;

	if (!call->patience.sent_ns)
		gm_wait_patience_begin(
			&call->patience, &call->wait, session->away_ns, gm_clock_ns());
	ask->overdue_ns = gm_session_overdue_ns(session, call);
	/* The answer may come before the next line. */
	ask_set_state(ask, ASK_SENT);
	gpumem_status status = gm_session_begin(session, &ask->message.packet, call, &ask->conn);
	if (status)
		ask_set_state(ask, ASK_IDLE);
	return status;
}

bool gm_session_ask_ended(const struct gm_session_ask *ask)
{
	return ask->state == ASK_ENDED;
}

uint64_t gm_session_ask_overdue_ns(const struct gm_session_ask *ask)
{
	return ask->overdue_ns;
}

bool gm_session_ask_lost(const struct gm_session_ask *ask, uint64_t *ret_until_ns)
{
	const struct gm_wait_patience *patience = &ask->base.call.patience;

	if (patience->lost)
		*ret_until_ns = patience->end_ns;
	return patience->lost;
}

gpumem_status gm_session_ask_finish(struct gm_session_ask *ask, bool *ret_lost,
	struct gm_session_lease **ret_lease, struct gm_session_chunk **ret_chunks)
{
	struct gpumem_session *session = ask->base.session;
	GM_UNCANCELLED;

	gpumem_status status = gm_session_outcome(session, ask->conn, &ask->base.call, ret_lost);
	gm_conn_unref(gm_steal_ptr(&ask->conn));
	if (*ret_lost) {
		ask_set_state(ask, ASK_IDLE);
		return status;
	}

	struct gm_lease_unclaimed_ask unclaimed = ask->unclaimed;
	free(ask->cancel);
	status = gm_lease_call_finish(session, &ask->base, status, ret_lease, ret_chunks);
	gm_lease_unclaimed_end(session, &unclaimed);
	return status;
}

void gm_session_ask_drop(struct gm_session_ask *ask)
{
	if (!ask)
		return;
	struct gpumem_session *session = ask->base.session;
	struct gm_lease_unclaimed_ask unclaimed = ask->unclaimed;
	struct gm_conn *conn = gm_steal_ptr(&ask->conn);
	struct gm_conn_request *cancel = ask->cancel;
	uint64_t id = ask->base.call.id;
	GM_UNCANCELLED;

	gm_lock(&session->lock);
	bool sent = ask->state == ASK_SENT;
	ask->dropped = true;
	gm_lock_drop(&session->lock);

	/* Once it was dropped, the thread that reads may free it at any time. */
	if (sent) {
		gm_session_call_off(session, id, cancel);
	} else {
		free(cancel);
		gm_lease_call_undo(&ask->base, false);
	}
	gm_lease_unclaimed_end(session, &unclaimed);
	gm_conn_unref(conn);
	gm_session_wake(session);
}
