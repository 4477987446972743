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
#include "common/cleanup.h"

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

void gm_session_lease_return(
	struct gpumem_session *session, struct gm_lease_return_item *list, bool now)
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

struct gm_lease_return_item *gm_session_chunks_returned(struct gm_session_chunk *chunks)
{
	struct gm_lease_return_item *list = NULL;
	struct gm_session_chunk *chunk, *tmp;

	LL_FOREACH_SAFE (chunks, chunk, tmp) {
		chunk->fd = gm_close(chunk->fd);
		LL_PREPEND(list, &chunk->held);
	}
	return list;
}

void gm_session_chunks_give(struct gpumem_session *session, struct gm_session_chunk *chunks)
{
	gm_lease_returns_send(session, NULL, gm_session_chunks_returned(chunks));
}

/* ---- requests */

gpumem_status gm_session_lease_set_size(
	struct gpumem_session *session, const struct gm_session_lease *lease, uint64_t user_bytes)
{
	Gm__Wire__Grow body = GM__WIRE__GROW__INIT;
	body.lease = lease->held.lease;
	body.user_bytes = user_bytes;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(GROW, grow, &body);
	return gm_session_tell(session, NULL, &packet, lease->held.epoch, GM_WAIT_FOR_DAEMON);
}
