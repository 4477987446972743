/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests for memory whose callers do not wait: see session_ask.h. The message is kept with the
 * request, because it may have to be sent again.
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
#include "common/clock.h"

enum ask_state { ASK_IDLE, ASK_SENT, ASK_ENDED };

struct gm_session_ask {
	struct gm_lease_call base; /* the first member: freeing the call frees the ask */
	struct gm_lease_unclaimed_ask unclaimed;
	struct gm_conn *conn; /* it was sent on; NULL if it is idle */
	struct gm_conn_request
		*cancel; /* allocated in advance, so that dropping an ask cannot fail */
	bool again;      /* the last connection ended before the answer */
	uint64_t overdue_ns;
	void (*ended)(void *ctx);
	void *ctx;

	/* Of the session's lock. */
	enum ask_state state;
	bool dropped;

	Gm__Wire__Packet packet;
	Gm__Wire__Lease lease;
	Gm__Wire__Grow grow;
	char tag[GM_BOUND_NAME_BYTES + 1];
};

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

static void ask_write_message(
	struct gm_session_ask *ask, const struct gm_session_ask_wanted *wanted)
{
	struct gpumem_session *session = ask->base.session;
	struct gm_lease_wait wait = {.ms = wanted->wait_ms};

	if (wanted->grown) {
		ask->base.lease_id = wanted->grown->held.lease;
		ask->base.call.of_epoch = wanted->grown->held.epoch;
		ask->base.grown = wanted->grown;
		ask->grow = (Gm__Wire__Grow)GM__WIRE__GROW__INIT;
		ask->grow.lease = wanted->grown->held.lease;
		ask->grow.bytes = wanted->bytes;
		gm_lease_call_set_patience(session, &ask->base, &wait, &ask->grow.wait_ms,
			&ask->grow.waited_ms, &ask->grow.no_wait);
		ask->packet = (Gm__Wire__Packet)GM_WIRE_PACKET(GROW, grow, &ask->grow);
		return;
	}

	snprintf(ask->tag, sizeof(ask->tag), "%s", wanted->tag ? wanted->tag : "");
	ask->lease = (Gm__Wire__Lease)GM__WIRE__LEASE__INIT;
	ask->lease.device = wanted->device;
	ask->lease.bytes = wanted->bytes;
	ask->lease.transport = (Gm__Wire__Transport)wanted->transport;
	ask->lease.tag = ask->tag;
	ask->lease.for_others = wanted->for_others;
	ask->lease.signals = wanted->signals;
	gm_lease_call_set_patience(session, &ask->base, &wait, &ask->lease.wait_ms,
		&ask->lease.waited_ms, &ask->lease.no_wait);
	ask->packet = (Gm__Wire__Packet)GM_WIRE_PACKET(LEASE, lease, &ask->lease);
}

gpumem_status gm_session_ask_new(struct gpumem_session *session,
	const struct gm_session_ask_wanted *wanted, struct gm_session_ask **ret_ask)
{
	struct gm_conn_request *cancel = calloc(1, sizeof(*cancel));
	struct gm_session_ask *ask =
		cancel ? (struct gm_session_ask *)gm_lease_call_new(session,
				 wanted->grown ? GM_LEASE_GROW : GM_LEASE_LEASE, sizeof(*ask))
		       : NULL;
	if (!ask) {
		free(cancel);
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a request");
	}

	ask->cancel = cancel;
	ask->base.ended = ask_on_end;
	ask->base.impatient = true;
	ask->ended = wanted->ended;
	ask->ctx = wanted->ctx;
	ask_write_message(ask, wanted);
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

	ask->overdue_ns = gm_clock_ns() + session->timeout_ns + call->extra_ns;
	/* The answer may come before the next line. */
	ask_set_state(ask, ASK_SENT);
	gpumem_status status =
		gm_session_begin(session, &ask->packet, call, ask->again, &ask->conn);
	if (status)
		ask_set_state(ask, ASK_IDLE);
	if (!status || status == GPUMEM_E_BUSY)
		ask->again = false;
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

gpumem_status gm_session_ask_finish(struct gm_session_ask *ask, bool *ret_lost,
	struct gm_session_lease **ret_lease, struct gm_session_chunk **ret_chunks)
{
	struct gpumem_session *session = ask->base.session;
	GM_UNCANCELLED;

	gpumem_status status = gm_session_outcome(session, ask->conn, &ask->base.call, ret_lost);
	gm_conn_unref(gm_steal_ptr(&ask->conn));
	if (*ret_lost) {
		ask->again = true;
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
