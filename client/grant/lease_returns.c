/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives chunks and leases back. Nothing that was granted is forgotten: if the daemon cannot be
 * reached or does not answer, the return is kept and sent later. Sending it twice does no harm: no lease gets the
 * id of another, an opened lease is named by its Open, and a chunk that the daemon has granted again since is there
 * under another index. The daemon does not know leases of an older epoch, so those need no message.
 */
#include "client/grant/lease_returns.h"

#include <stdlib.h>
#include <utlist.h>

#include "client/session/session_call.h"
#include "common/cancel.h"
#include "common/cleanup.h"

/* Chunks in one message. Each takes at most about 22 bytes, so the packet stays far below its
 * limit. */
#define BATCH 512

struct lease_returns_chunks {
	uint64_t ids[BATCH], indexes[BATCH];
	size_t n;
};

static void lease_returns_free(struct gm_lease_return_item *list)
{
	struct gm_lease_return_item *held, *tmp;
	LL_FOREACH_SAFE (list, held, tmp)
		free(held);
}

void gm_lease_returns_keep(struct gpumem_session *session, struct gm_lease_return_item *list)
{
	if (!list)
		return;
	gm_lock(&session->lock);
	bool closed = session->state == GM_SESSION_CLOSED;
	if (!closed)
		LL_CONCAT(session->returning, list);
	gm_lock_drop(&session->lock);
	if (closed)
		lease_returns_free(list);
}

/* Sends one Return: of the chunks, or of what held says if there are none. */
static gpumem_status lease_returns_tell(struct gpumem_session *session, struct gm_conn *via,
	const struct gm_lease_return_item *held, struct lease_returns_chunks *chunks)
{
	Gm__Wire__Return body = GM__WIRE__RETURN__INIT;
	body.lease = held->lease;
	body.chunks = chunks->ids;
	body.indexes = chunks->indexes;
	body.n_chunks = body.n_indexes = chunks->n;
	body.view = held->view;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(RETURN_CHUNKS, return_chunks, &body);
	/* Nobody waits for an absent daemon only to give something back. */
	return gm_session_tell(session, via, &packet, held->epoch, GM_WAIT_NOT);
}

bool gm_lease_returns_later(gpumem_status status)
{
	return status == GPUMEM_E_DISCONNECTED || status == GPUMEM_E_TIMEOUT ||
	       status == GPUMEM_E_HOST_MEMORY;
}

static void lease_returns_add(
	struct lease_returns_chunks *chunks, const struct gm_lease_return_item *held)
{
	chunks->ids[chunks->n] = held->chunk;
	chunks->indexes[chunks->n++] = held->index;
}

/* Cuts off the head of the list: as many returns as fit into one message. */
static struct gm_lease_return_item *lease_returns_cut_batch(
	struct gm_lease_return_item **list, struct lease_returns_chunks *ret_chunks)
{
	struct gm_lease_return_item *batch = *list, *last = batch;

	ret_chunks->n = 0;
	if (batch->chunk)
		lease_returns_add(ret_chunks, batch);
	while (batch->chunk && last->next && ret_chunks->n < BATCH && last->next->chunk &&
		last->next->lease == batch->lease && last->next->epoch == batch->epoch) {
		last = last->next;
		lease_returns_add(ret_chunks, last);
	}

	*list = last->next;
	last->next = NULL;
	return batch;
}

/* Sends chunks one by one, which the daemon refused together. Returns those that must be sent later. */
static struct gm_lease_return_item *lease_returns_try_each(
	struct gpumem_session *session, struct gm_conn *via, struct gm_lease_return_item *batch)
{
	struct lease_returns_chunks chunks;

	while (batch) {
		struct gm_lease_return_item *rest = batch->next;
		chunks.n = 0;
		lease_returns_add(&chunks, batch);
		if (gm_lease_returns_later(lease_returns_tell(session, via, batch, &chunks)))
			break;
		batch->next = NULL;
		lease_returns_free(batch);
		batch = rest;
	}
	return batch;
}

/* Sends one message. Returns what of it must be sent later. */
static struct gm_lease_return_item *lease_returns_try(struct gpumem_session *session,
	struct gm_conn *via, struct gm_lease_return_item *batch,
	struct lease_returns_chunks *chunks)
{
	gm_lock(&session->lock);
	bool ours = batch->epoch == session->epoch && session->state != GM_SESSION_CLOSED;
	gm_lock_drop(&session->lock);

	gpumem_status status = ours ? lease_returns_tell(session, via, batch, chunks) : GPUMEM_OK;
	if (gm_lease_returns_later(status))
		return batch;
	/* The daemon takes all chunks of a message or none. If it got one of them before, it refuses
	 * them all. */
	if (status && chunks->n > 1)
		return lease_returns_try_each(session, via, batch);
	lease_returns_free(batch);
	return NULL;
}

/* Sends the list, and keeps the rest from the first return on that did not work. Returns true if it kept some. */
static bool lease_returns_send(
	struct gpumem_session *session, struct gm_conn *via, struct gm_lease_return_item *list)
{
	while (list) {
		struct lease_returns_chunks chunks;
		struct gm_lease_return_item *batch = lease_returns_cut_batch(&list, &chunks);
		struct gm_lease_return_item *later =
			lease_returns_try(session, via, batch, &chunks);

		if (later) {
			LL_CONCAT(later, list);
			gm_lease_returns_keep(session, later);
			return true;
		}
	}
	return false;
}

void gm_lease_returns_send(
	struct gpumem_session *session, struct gm_conn *via, struct gm_lease_return_item *list)
{
	/* The library's thread reads the late answer, or tries again. */
	if (lease_returns_send(session, via, list))
		gm_session_wake(session);
}

bool gm_lease_returns_flush(struct gpumem_session *session, struct gm_conn *via)
{
	GM_UNCANCELLED;

	gm_lock(&session->flushing);
	gm_lock(&session->lock);
	struct gm_lease_return_item *list = gm_steal_ptr(&session->returning);
	session->flush = list != NULL;
	gm_lock_drop(&session->lock);

	(void)lease_returns_send(session, via, list);

	gm_lock(&session->lock);
	session->flush = false;
	bool kept = session->returning != NULL;
	gm_lock_drop(&session->lock);
	gm_lock_drop(&session->flushing);
	return kept;
}

void gm_lease_returns_first(struct gpumem_session *session)
{
	gm_lock(&session->lock);
	bool kept = session->state == GM_SESSION_UP && (session->returning || session->flush);
	gm_lock_drop(&session->lock);
	if (kept && gm_lease_returns_flush(session, NULL))
		gm_session_wake(session);
}

void gm_lease_returns_drop(struct gpumem_session *session)
{
	gm_lock(&session->lock);
	struct gm_lease_return_item *list = gm_steal_ptr(&session->returning);
	gm_lock_drop(&session->lock);
	lease_returns_free(list);
}
