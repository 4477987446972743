/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks and leases on their way back. Nothing that was granted is forgotten: what cannot be told
 * to the daemon now (it is away, it does not answer) is kept and told when it is there again.
 * Telling twice does no harm, since ids are never given to anything else. Leases of an older epoch
 * are in no book any more and need no message.
 */
#include "client/session/returns.h"

#include <stdlib.h>
#include <utlist.h>

/* Chunks in one message: some 11 bytes each at most, far from a packet's bound. */
#define BATCH 512

static void returns_let_go(struct gm_held *list)
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
		returns_let_go(list);
}

static gpumem_status returns_tell(struct gpumem_session *session, struct gm_conn *via,
	uint64_t lease, uint64_t *chunks, size_t n)
{
	Gm__Wire__Return body = GM__WIRE__RETURN__INIT;
	body.lease = lease;
	body.chunks = chunks;
	body.n_chunks = n;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	packet.body_case = GM__WIRE__PACKET__BODY_RETURN_CHUNKS;
	packet.return_chunks = &body;
	return gm_session_tell(session, via, &packet);
}

/* Whether it may work another time. */
static bool returns_later(gpumem_status status)
{
	return status == GPUMEM_E_DISCONNECTED || status == GPUMEM_E_TIMEOUT ||
	       status == GPUMEM_E_HOST_MEMORY;
}

/* The first of the list and those behind it that fit one message: cut off the list. */
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
			returns_let_go(batch);
			continue;
		}
		gpumem_status status = returns_tell(session, via, batch->lease, chunks, n);
		if (returns_later(status)) {
			LL_CONCAT(batch, list);
			gm_returns_keep(session, batch);
			/* For its answer to be read, or for another try. */
			gm_session_wake(session);
			return;
		}
		/* All or nothing is the daemon's rule: one that was told before hides the others.
		 */
		if (status && n > 1) {
			for (size_t i = 0; i < n; i++) {
				struct gm_held *one = batch;
				batch = one->next;
				one->next = NULL;
				if (returns_later(
					    returns_tell(session, via, one->lease, &one->chunk, 1)))
					gm_returns_keep(session, one);
				else
					returns_let_go(one);
			}
			continue;
		}
		returns_let_go(batch);
	}
}

bool gm_returns_flush(struct gpumem_session *session, struct gm_conn *via)
{
	pthread_mutex_lock(&session->lock);
	struct gm_held *list = session->returning;
	session->returning = NULL;
	pthread_mutex_unlock(&session->lock);
	if (!list)
		return false;
	gm_returns_send(session, via, list);
	pthread_mutex_lock(&session->lock);
	bool kept = session->returning != NULL;
	pthread_mutex_unlock(&session->lock);
	return kept;
}

void gm_returns_drop(struct gpumem_session *session)
{
	pthread_mutex_lock(&session->lock);
	struct gm_held *list = session->returning;
	session->returning = NULL;
	pthread_mutex_unlock(&session->lock);
	returns_let_go(list);
}
