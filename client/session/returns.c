/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives chunks and leases back. Nothing that was granted is forgotten: if the daemon cannot be
 * reached or does not answer, the return is kept and sent later. Sending it twice does no harm,
 * because ids are never reused, and an opened lease is named by its Open. The daemon does not know leases of an older epoch, so those need no
 * message.
 */
#include "client/session/returns.h"

#include <stdlib.h>
#include <utlist.h>

#include "client/session/session_call.h"
#include "common/cancel.h"
#include "common/cleanup.h"

/* Chunks in one message. Each takes at most about 11 bytes, so the packet stays far below its
 * limit. */
#define BATCH 512

static void returns_free(struct gm_held *list)
{
	struct gm_held *held, *tmp;
	LL_FOREACH_SAFE (list, held, tmp)
		free(held);
}

void gm_returns_keep(struct gpumem_session *session, struct gm_held *list)
{
	if (!list)
		return;
	pthread_mutex_lock(&session->lock);
	bool closed = session->state == GM_SESSION_CLOSED;
	if (!closed)
		LL_CONCAT(session->returning, list);
	pthread_mutex_unlock(&session->lock);
	if (closed)
		returns_free(list);
}

gpumem_status gm_returns_tell(struct gpumem_session *session, struct gm_conn *via,
	const struct gm_held *held, uint64_t *chunks, size_t n)
{
	Gm__Wire__Return body = GM__WIRE__RETURN__INIT;
	body.lease = held->lease;
	body.chunks = chunks;
	body.n_chunks = n;
	body.view = held->view;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(RETURN_CHUNKS, return_chunks, &body);
	/* Nobody waits for an absent daemon only to give something back. */
	return gm_session_tell(session, via, &packet, held->epoch, true);
}

bool gm_returns_later(gpumem_status status)
{
	return status == GPUMEM_E_DISCONNECTED || status == GPUMEM_E_TIMEOUT ||
	       status == GPUMEM_E_HOST_MEMORY;
}

/* Cuts off the head of the list: as many returns as fit into one message. */
static struct gm_held *returns_cut_batch(struct gm_held **list, uint64_t *chunks, size_t *ret_n)
{
	struct gm_held *batch = *list, *last = batch;
	size_t n = 0;

	if (batch->chunk)
		chunks[n++] = batch->chunk;
	while (batch->chunk && last->next && n < BATCH && last->next->chunk &&
		last->next->lease == batch->lease && last->next->epoch == batch->epoch) {
		last = last->next;
		chunks[n++] = last->chunk;
	}

	*list = last->next;
	last->next = NULL;
	*ret_n = n;
	return batch;
}

void gm_returns_send(struct gpumem_session *session, struct gm_conn *via, struct gm_held *list)
{
	while (list) {
		uint64_t chunks[BATCH];
		size_t n;
		struct gm_held *batch = returns_cut_batch(&list, chunks, &n);

		pthread_mutex_lock(&session->lock);
		bool ours = batch->epoch == session->epoch && session->state != GM_SESSION_CLOSED;
		pthread_mutex_unlock(&session->lock);
		if (!ours) {
			returns_free(batch);
			continue;
		}

		gpumem_status status = gm_returns_tell(session, via, batch, chunks, n);
		if (gm_returns_later(status)) {
			LL_CONCAT(batch, list);
			gm_returns_keep(session, batch);
			/* The library's thread reads the late answer, or tries again. */
			gm_session_wake(session);
			return;
		}
		if (!status || n <= 1) {
			returns_free(batch);
			continue;
		}

		/* The daemon takes all chunks of a message or none. If it got one of them before,
		 * it refuses them all, so they are sent one by one. */
		while (batch) {
			struct gm_held *one = batch;
			batch = one->next;
			one->next = NULL;
			if (gm_returns_later(gm_returns_tell(session, via, one, &one->chunk, 1)))
				gm_returns_keep(session, one);
			else
				returns_free(one);
		}
	}
}

bool gm_returns_flush(struct gpumem_session *session, struct gm_conn *via)
{
	GM_UNCANCELLED;

	pthread_mutex_lock(&session->flushing);
	pthread_mutex_lock(&session->lock);
	struct gm_held *list = gm_steal_ptr(&session->returning);
	session->flush = list != NULL;
	pthread_mutex_unlock(&session->lock);

	gm_returns_send(session, via, list);

	pthread_mutex_lock(&session->lock);
	session->flush = false;
	bool kept = session->returning != NULL;
	pthread_mutex_unlock(&session->lock);
	pthread_mutex_unlock(&session->flushing);
	return kept;
}

void gm_returns_first(struct gpumem_session *session)
{
	pthread_mutex_lock(&session->lock);
	bool kept = session->state == GM_SESSION_UP && (session->returning || session->flush);
	pthread_mutex_unlock(&session->lock);
	if (kept)
		(void)gm_returns_flush(session, NULL);
}

void gm_returns_drop(struct gpumem_session *session)
{
	pthread_mutex_lock(&session->lock);
	struct gm_held *list = gm_steal_ptr(&session->returning);
	pthread_mutex_unlock(&session->lock);
	returns_free(list);
}
