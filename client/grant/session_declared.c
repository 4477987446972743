/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations: see session_declared.h. The sums change when an answer is read, not when its caller looks at
 * it: so they are right whenever a connection has ended. What the daemon must still be told to give
 * back is kept as a sum, too, and is void once the session was resumed.
 *
 * A daemon that has forgotten the session may refuse the sum of a session that is resumed, although the
 * memory is there. What it refused is kept as uncharged: it is the first to be given back, and the next
 * declaration asks for it, too. So at all times what the daemon charges, less undeclared, plus uncharged
 * is what was declared.
 */
#include "client/grant/session_declared.h"

#include <errno.h>
#include <stdlib.h>

#include "client/grant/lease_returns.h"
#include "client/grant/session_lease.h"
#include "client/session/session_call.h"
#include "common/arith.h"
#include "common/cancel.h"
#include "common/clock.h"

struct session_declared_call {
	struct gm_conn_request call;
	struct gpumem_session *session;
	uint32_t device;
	uint64_t bytes;          /* more */
	uint64_t owed;           /* and uncharged ones, which the request is for as well */
	uint64_t sum;            /* that the daemon answered */
	Gm__Wire__Declare *body; /* while the caller waits */
};

static int session_declared_take_answer(
	struct gm_conn_request *base, const Gm__Wire__Packet *packet, struct gm_conn_packet *in)
{
	struct session_declared_call *call = (struct session_declared_call *)base;

	struct gm_session_device *d = &call->session->device[call->device];

	if (packet->body_case != GM__WIRE__PACKET__BODY_DECLARE_REPLY)
		return -EPROTO;
	call->sum = packet->declare_reply->bytes;
	gm_lock(&call->session->lock);
	/* Some of what it owed may have been freed or paid for by another request meanwhile. */
	uint64_t paid = gm_u64_min(call->owed, d->uncharged);
	d->declared += call->bytes;
	d->uncharged -= paid;
	d->undeclared += call->owed - paid;
	gm_lock_drop(&call->session->lock);
	if (call->owed > paid)
		gm_session_wake(call->session);
	return 0;
}

/* Sets what the request is for. The daemon that it goes to may have refused a sum just now. */
static void session_declared_prepare(struct gm_conn_request *base)
{
	struct session_declared_call *call = (struct session_declared_call *)base;

	if (call->body->how != GM__WIRE__DECLARE_HOW__DECLARE_MORE)
		return;
	gm_lock(&call->session->lock);
	call->owed = call->session->device[call->device].uncharged;
	gm_lock_drop(&call->session->lock);
	call->body->bytes = call->bytes + call->owed;
	/* The request may have waited for some time already. */
	call->body->wait_ms = gm_wait_left_ms(&base->wait);
}

/* The answer comes after its caller has given up, so what it granted goes back. */
static void session_declared_late(struct gm_conn_request *base)
{
	struct session_declared_call *call = (struct session_declared_call *)base;

	if (base->result == 0 && base->status == GPUMEM_OK && call->bytes) {
		struct gm_session_device *d = &call->session->device[call->device];
		gm_lock(&call->session->lock);
		d->declared -= call->bytes;
		d->undeclared += call->bytes;
		gm_lock_drop(&call->session->lock);
		gm_session_wake(call->session);
	}
	free(call);
}

static int session_declared_repeat(struct gm_conn_request *base)
{
	struct session_declared_call *call = (struct session_declared_call *)base;

	call->body->waited_ms = gm_wait_patience_waited_ms(&base->patience);
	return 0;
}

static const struct gm_conn_request_ops declared_ops = {.prepare = session_declared_prepare,
	.take = session_declared_take_answer,
	.late = session_declared_late,
	.repeat = session_declared_repeat};

static struct session_declared_call *session_declared_call_new(
	struct gpumem_session *session, uint32_t device)
{
	struct session_declared_call *call = calloc(1, sizeof(*call));
	if (!call)
		return NULL;
	call->call.ops = &declared_ops;
	call->session = session;
	call->device = device;
	return call;
}

static gpumem_status session_declared_no_memory(void)
{
	return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a request");
}

/* Sends the request, and frees the call unless the connection still owns it. *ret_sum, which may be
 * NULL: what the daemon charges now. */
static gpumem_status session_declared_send(struct gpumem_session *session, struct gm_conn *via,
	struct session_declared_call *call, Gm__Wire__Declare *body, uint64_t *ret_sum)
{
	Gm__Wire__Packet packet = GM_WIRE_PACKET(DECLARE, declare, body);
	struct gm_conn_request *base = &call->call;

	call->body = body;
	gpumem_status status = gm_session_call(session, via, &packet, &base);
	if (!status && ret_sum)
		*ret_sum = call->sum;
	free(base);
	return status;
}

/* Tells the daemon of a device what it must still be told. The caller holds declaring. Returns whether
 * it was told. */
static bool session_declared_flush_device(struct gpumem_session *session, uint32_t device)
{
	struct gm_session_device *d = &session->device[device];
	Gm__Wire__Declare body = GM__WIRE__DECLARE__INIT;

	gm_lock(&session->lock);
	uint64_t bytes = session->state == GM_SESSION_UP ? d->undeclared : 0;
	gm_lock_drop(&session->lock);
	if (!bytes)
		return false;
	struct session_declared_call *call = session_declared_call_new(session, device);
	if (!call)
		return false;
	call->call.wait.mode = GM_WAIT_NOT;
	body.device = device;
	body.how = GM__WIRE__DECLARE_HOW__DECLARE_LESS;
	body.bytes = bytes;
	gpumem_status status = session_declared_send(session, NULL, call, &body, NULL);
	/* If the answer is late, the daemon has read the request or will. */
	if (status != GPUMEM_OK && status != GPUMEM_E_TIMEOUT)
		return false;
	gm_lock(&session->lock);
	d->undeclared -= gm_u64_min(d->undeclared, bytes);
	gm_lock_drop(&session->lock);
	return true;
}

static bool session_declared_has_news(struct gpumem_session *session)
{
	bool any = false;

	gm_lock(&session->lock);
	for (uint32_t i = 0; i < session->devices; i++)
		any |= session->device[i].undeclared > 0;
	gm_lock_drop(&session->lock);
	return any;
}

/* wait: also for a thread that tells the daemon now. Otherwise that thread goes on with what came in
 * the meantime. */
static void session_declared_flush(struct gpumem_session *session, bool wait)
{
	bool told = true;
	GM_UNCANCELLED;

	while (told && session_declared_has_news(session)) {
		if (wait)
			gm_lock(&session->declaring);
		else if (!gm_lock_try(&session->declaring))
			return;
		told = false;
		for (uint32_t i = 0; i < session->devices; i++)
			told |= session_declared_flush_device(session, i);
		gm_lock_drop(&session->declaring);
	}
}

void gm_session_declared_flush(struct gpumem_session *session)
{
	session_declared_flush(session, false);
}

gpumem_status gm_session_declared_add(
	struct gpumem_session *session, uint32_t device, uint64_t bytes, uint32_t wait_ms)
{
	Gm__Wire__Declare body = GM__WIRE__DECLARE__INIT;
	const struct gm_wait wait = gm_wait_of(wait_ms);

	atomic_store(&session->declares, true);
	session_declared_flush(session, true);
	gm_lease_returns_first(session);
	struct session_declared_call *call = session_declared_call_new(session, device);
	if (!call)
		return session_declared_no_memory();
	body.device = device;
	body.how = GM__WIRE__DECLARE_HOW__DECLARE_MORE;
	body.no_wait = wait.mode == GM_WAIT_NOT;
	call->bytes = bytes;
	call->call.wait = wait;
	return session_declared_send(session, NULL, call, &body, NULL);
}

bool gm_session_declared_take(struct gpumem_session *session, uint32_t device, uint64_t bytes)
{
	struct gm_session_device *d = &session->device[device];

	gm_lock(&session->lock);
	bool has = d->declared >= bytes;
	if (has) {
		uint64_t unknown = gm_u64_min(d->uncharged, bytes);
		d->declared -= bytes;
		d->uncharged -= unknown;
		d->undeclared += bytes - unknown;
	}
	gm_lock_drop(&session->lock);
	if (has)
		gm_session_declared_flush(session);
	return has;
}

uint64_t gm_session_declared_sum(struct gpumem_session *session, uint32_t device)
{
	gm_lock(&session->lock);
	uint64_t bytes = session->device[device].declared;
	gm_lock_drop(&session->lock);
	return bytes;
}

/* Sends a request on the connection on which the session is being resumed. */
static gpumem_status session_declared_say(struct gpumem_session *session, struct gm_conn *via,
	uint32_t device, Gm__Wire__DeclareHow how, uint64_t bytes, uint64_t *ret_sum)
{
	Gm__Wire__Declare body = GM__WIRE__DECLARE__INIT;
	struct session_declared_call *call = session_declared_call_new(session, device);
	if (!call)
		return session_declared_no_memory();

	body.device = device;
	body.how = how;
	body.bytes = bytes;
	body.no_wait = true;
	return session_declared_send(session, via, call, &body, ret_sum);
}

/* Says the sum of a device. The caller holds declaring, so nobody says less at the same time. */
static gpumem_status session_declared_resume_device(
	struct gpumem_session *session, struct gm_conn *via, uint32_t device)
{
	struct gm_session_device *d = &session->device[device];
	uint64_t sum = 0;

	gm_lock(&session->lock);
	uint64_t undeclared = d->undeclared, bytes = d->declared;
	gm_lock_drop(&session->lock);
	gpumem_status status = session_declared_say(
		session, via, device, GM__WIRE__DECLARE_HOW__DECLARE_EXACTLY, bytes, &sum);
	/* A daemon that has forgotten the session may refuse. The memory is there all the same. To
	 * declare 0 bytes less changes nothing, and the answer has the sum. */
	if (status && status != GPUMEM_E_DISCONNECTED && status != GPUMEM_E_HOST_MEMORY &&
		status != GPUMEM_E_TIMEOUT && status != GPUMEM_E_PROTOCOL)
		status = session_declared_say(
			session, via, device, GM__WIRE__DECLARE_HOW__DECLARE_LESS, 0, &sum);
	if (status)
		return status;

	gm_lock(&session->lock);
	d->undeclared -= gm_u64_min(d->undeclared, undeclared);
	d->uncharged = gm_u64_minus(d->declared + d->undeclared, sum);
	gm_lock_drop(&session->lock);
	return GPUMEM_OK;
}

gpumem_status gm_session_declared_resume(struct gpumem_session *session, struct gm_conn *via)
{
	gpumem_status status = GPUMEM_OK;

	if (!atomic_load(&session->declares))
		return GPUMEM_OK;
	gm_lock(&session->declaring);
	for (uint32_t i = 0; i < session->devices && !status; i++)
		status = session_declared_resume_device(session, via, i);
	gm_lock_drop(&session->declaring);
	return status;
}
