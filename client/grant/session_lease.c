/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The leases of a session: their list, the requests that make and grow them, and their return. This file
 * promises that the session lists a lease from before it is asked for until it has gone back.
 * lease_call.c reads the answers.
 */
#include "client/grant/session_lease.h"

#include <stdlib.h>
#include <utlist.h>

#include "client/session/session_call.h"
#include "client/grant/session_lease_private.h"
#include "client/grant/lease_unclaimed.h"
#include "common/cleanup.h"
#include "common/text/share_name.h"

/* ---- the list of leases */

struct gm_session_lease *gm_session_lease_make(struct gpumem_session *session, bool opened)
{
	struct gm_session_lease *lease = calloc(1, sizeof(*lease));
	if (!lease)
		return NULL;
	lease->control = -1;
	gm_lock(&session->lock);
	DL_APPEND(session->leases, lease);
	lease->opened = opened;
	session->views += opened;
	gm_lock_drop(&session->lock);
	return lease;
}

void gm_session_lease_return(struct gpumem_session *session, struct gm_lease_held *list, bool now)
{
	if (now)
		gm_lease_returns_send(session, NULL, list);
	else
		gm_lease_returns_keep(session, list);
}

/*
 * A lease that was made here has no name in a Return. If it is open here, too, a Return without a name
 * could end any of them, and a second time another one. So the view gives its name, and the lease is
 * that view's from now on. The session is locked.
 */
static void lease_name(struct gpumem_session *session, struct gm_session_lease *lease)
{
	struct gm_session_lease *other;
	if (!session->views || !lease->held.lease || lease->held.view)
		return;

	DL_FOREACH (session->leases, other) {
		if (other->held.lease != lease->held.lease || !other->held.view ||
			other->held.epoch != lease->held.epoch)
			continue;
		lease->held.view = other->held.view;
		other->held.view = 0;
		return;
	}
}

void gm_session_lease_end(struct gpumem_session *session, struct gm_session_lease *lease, bool now)
{
	gm_lock(&session->lock);
	DL_DELETE(session->leases, lease);
	session->views -= lease->opened;
	lease_name(session, lease);
	gm_lock_drop(&session->lock);

	lease->control = gm_close(lease->control);
	lease->held.next = NULL;
	if (lease->held.lease)
		gm_session_lease_return(session, &lease->held, now);
	else
		free(lease);
}

struct gm_session_lease *gm_session_lease_new(
	struct gpumem_session *session, uint32_t device, enum gm_transport transport)
{
	struct gm_session_lease *lease = gm_session_lease_make(session, false);
	if (!lease)
		return NULL;
	lease->device = device;
	lease->transport = transport;
	return lease;
}

void gm_session_lease_give(struct gpumem_session *session, struct gm_session_lease *lease)
{
	while (lease) {
		struct gm_session_lease *also = lease->also;
		gm_session_lease_end(session, lease, true);
		lease = also;
	}
}

void gm_session_lease_give_later(struct gpumem_session *session, struct gm_session_lease *lease)
{
	gm_session_lease_end(session, lease, false);
	gm_session_wake(session);
}

void gm_session_chunks_free(struct gm_session_chunk *chunks)
{
	struct gm_session_chunk *chunk, *tmp;
	LL_FOREACH_SAFE (chunks, chunk, tmp) {
		gm_close(chunk->fd);
		free(chunk);
	}
}

struct gm_lease_held *gm_session_chunks_held(struct gm_session_chunk *chunks)
{
	struct gm_lease_held *list = NULL;
	struct gm_session_chunk *chunk, *tmp;

	LL_FOREACH_SAFE (chunks, chunk, tmp) {
		chunk->fd = gm_close(chunk->fd);
		LL_PREPEND(list, &chunk->held);
	}
	return list;
}

void gm_session_chunks_give(struct gpumem_session *session, struct gm_session_chunk *chunks)
{
	gm_lease_returns_send(session, NULL, gm_session_chunks_held(chunks));
}

/* ---- requests */

/* Sends a Lease, Grow or Open and completes it. Takes ownership of the call. */
static gpumem_status lease_ask_whole(struct gpumem_session *session, struct gm_lease_call *call,
	Gm__Wire__Packet *packet, struct gm_session_lease **ret_lease,
	struct gm_session_chunk **ret_chunks)
{
	struct gm_conn_request *base = &call->call;
	gpumem_status status = gm_session_call(session, NULL, packet, &base);
	return gm_lease_call_finish(
		session, (struct gm_lease_call *)base, status, ret_lease, ret_chunks);
}

static gpumem_status lease_ask(struct gpumem_session *session, struct gm_lease_call *call,
	Gm__Wire__Packet *packet, struct gm_session_lease **ret_lease,
	struct gm_session_chunk **ret_chunks)
{
	/* The call may be gone before it has ended. */
	struct gm_lease_unclaimed_ask ask;

	gm_lease_returns_first(session);
	gm_lease_unclaimed_begin(session, &ask);
	gpumem_status status = lease_ask_whole(session, call, packet, ret_lease, ret_chunks);
	gm_lease_unclaimed_end(session, &ask);
	return status;
}

/* Passes the status on. */
static gpumem_status lease_note_refused(
	const struct gm_lease_wait *wait, const Gm__Wire__Packet *packet, gpumem_status status)
{
	if (status && wait->refused)
		*wait->refused = packet->id;
	return status;
}

gpumem_status gm_session_lease_take(struct gpumem_session *session,
	const struct gm_lease_what *what, const struct gm_lease_wait *wait,
	struct gm_session_lease **ret_lease, struct gm_session_chunk **ret_chunks)
{
	struct gm_lease_call *call = gm_lease_call_new(session, GM_LEASE_LEASE, sizeof(*call));
	if (!call)
		return gm_lease_no_memory();
	Gm__Wire__Lease body = GM__WIRE__LEASE__INIT;
	body.device = what->device;
	body.bytes = what->bytes;
	body.transport = (Gm__Wire__Transport)what->transport;
	body.tag = (char *)(what->tag ? what->tag : "");
	body.for_others = what->for_others;
	body.signals = what->signals;
	body.fallback = what->fallback;
	body.one_chunk = call->one_chunk = what->one_chunk;
	body.at_once = wait->at_once;
	body.host_will_do = wait->host_will_do;
	gm_lease_call_set_patience(
		session, call, wait, &body.wait_ms, &body.waited_ms, &body.no_wait);
	body.again_of = wait->refused ? *wait->refused : 0;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(LEASE, lease, &body);
	return lease_note_refused(
		wait, &packet, lease_ask(session, call, &packet, ret_lease, ret_chunks));
}

gpumem_status gm_session_lease_open(struct gpumem_session *session,
	const uint8_t token[GM_TOKEN_BYTES], uint32_t index, struct gm_session_lease **ret_lease,
	struct gm_session_chunk **ret_chunks)
{
	struct gm_lease_call *call = gm_lease_call_new(session, GM_LEASE_OPEN, sizeof(*call));
	if (!call)
		return gm_lease_no_memory();
	Gm__Wire__Open body = GM__WIRE__OPEN__INIT;
	body.token.data = (uint8_t *)token;
	body.token.len = GM_TOKEN_BYTES;
	body.index = index;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(OPEN, open, &body);
	return lease_ask(session, call, &packet, ret_lease, ret_chunks);
}

gpumem_status gm_session_lease_attach(struct gpumem_session *session,
	const struct gm_token_name *name, uint64_t wait_ns, struct gm_session_lease **ret_lease,
	struct gm_session_chunk **ret_chunks)
{
	struct gm_lease_call *call = gm_lease_call_new(session, GM_LEASE_OPEN, sizeof(*call));
	if (!call)
		return gm_lease_no_memory();
	call->call.wait_ns = wait_ns;
	Gm__Wire__Attach body = GM__WIRE__ATTACH__INIT;
	body.name = (char *)name->name;
	body.foreign = name->foreign;
	body.owner = name->owner;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(ATTACH, attach, &body);
	return lease_ask(session, call, &packet, ret_lease, ret_chunks);
}

static gpumem_status lease_grow(struct gpumem_session *session,
	const struct gm_session_lease *lease, struct gm_session_lease *grown, uint64_t bytes,
	uint64_t user_bytes, const struct gm_lease_wait *wait, struct gm_session_chunk **ret_chunks)
{
	struct gm_lease_call *call = gm_lease_call_new(session, GM_LEASE_GROW, sizeof(*call));
	if (!call)
		return gm_lease_no_memory();
	call->lease_id = lease->held.lease;
	call->call.of_epoch = lease->held.epoch;
	call->grown = grown;
	Gm__Wire__Grow body = GM__WIRE__GROW__INIT;
	body.lease = lease->held.lease;
	body.bytes = bytes;
	body.user_bytes = user_bytes;
	body.host_will_do = wait->host_will_do;
	gm_lease_call_set_patience(
		session, call, wait, &body.wait_ms, &body.waited_ms, &body.no_wait);
	body.again_of = wait->refused ? *wait->refused : 0;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(GROW, grow, &body);
	return lease_note_refused(
		wait, &packet, lease_ask(session, call, &packet, NULL, ret_chunks));
}

gpumem_status gm_session_lease_grow(struct gpumem_session *session, struct gm_session_lease *lease,
	uint64_t bytes, const struct gm_lease_wait *wait, struct gm_session_chunk **ret_chunks)
{
	return lease_grow(session, lease, lease, bytes, 0, wait, ret_chunks);
}

gpumem_status gm_session_lease_resize(struct gpumem_session *session,
	const struct gm_session_lease *lease, uint64_t bytes, uint64_t user_bytes,
	const struct gm_lease_wait *wait, struct gm_session_chunk **ret_chunks)
{
	return lease_grow(session, lease, NULL, bytes, user_bytes, wait, ret_chunks);
}

gpumem_status gm_session_lease_set_size(
	struct gpumem_session *session, const struct gm_session_lease *lease, uint64_t user_bytes)
{
	Gm__Wire__Grow body = GM__WIRE__GROW__INIT;
	body.lease = lease->held.lease;
	body.user_bytes = user_bytes;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(GROW, grow, &body);
	return gm_session_tell(session, NULL, &packet, lease->held.epoch, false);
}
