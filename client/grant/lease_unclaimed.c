/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grants whose answers were lost: see lease_unclaimed.h. This file promises that nothing goes back which
 * an answer may still bring, and that nothing stays behind when no answer can bring it any more.
 */
#include "client/grant/lease_unclaimed.h"

#include <stdlib.h>
#include <utlist.h>

#include "common/cleanup.h"

void gm_lease_unclaimed_begin(struct gpumem_session *session, struct gm_lease_unclaimed_ask *ask)
{
	gm_lock(&session->lock);
	session->asking++;
	ask->resumes = session->resumes;
	gm_lock_drop(&session->lock);
}

void gm_lease_unclaimed_end(
	struct gpumem_session *session, const struct gm_lease_unclaimed_ask *ask)
{
	struct gm_lease_return_item *left = NULL;

	gm_lock(&session->lock);
	session->asking--;
	if (ask->resumes != session->resumes && --session->asking_older == 0)
		left = gm_steal_ptr(&session->unclaimed);
	gm_lock_drop(&session->lock);
	if (!left)
		return;

	gm_lease_returns_keep(session, left);
	gm_session_wake(session);
}

void gm_lease_unclaimed_resumed(struct gpumem_session *session, struct gm_lease_return_item *list)
{
	gm_lock(&session->lock);
	session->resumes++;
	session->asking_older = session->asking;
	LL_CONCAT(session->unclaimed, list);
	struct gm_lease_return_item *left =
		session->asking ? NULL : gm_steal_ptr(&session->unclaimed);
	gm_lock_drop(&session->lock);

	gm_lease_returns_keep(session, left);
}

void gm_lease_unclaimed_add(struct gpumem_session *session, struct gm_lease_return_item *list)
{
	struct gm_lease_return_item *held, *tmp;

	gm_lock(&session->lock);
	LL_FOREACH_SAFE (list, held, tmp) {
		/* A daemon that does not know the session has nothing of it, either. */
		if (held->epoch == session->epoch)
			LL_PREPEND(session->unclaimed, held);
		else
			free(held);
	}
	gm_lock_drop(&session->lock);
}

bool gm_lease_unclaimed_any(struct gpumem_session *session)
{
	gm_lock(&session->lock);
	bool any = session->unclaimed != NULL;
	gm_lock_drop(&session->lock);
	return any;
}

void gm_lease_unclaimed_claim(struct gpumem_session *session, uint64_t lease, uint64_t chunk)
{
	struct gm_lease_return_item *held, *tmp;

	gm_lock(&session->lock);
	LL_FOREACH_SAFE (session->unclaimed, held, tmp) {
		if (held->lease == lease && (!chunk || held->chunk == chunk)) {
			LL_DELETE(session->unclaimed, held);
			free(held);
		}
	}
	gm_lock_drop(&session->lock);
}

void gm_lease_unclaimed_drop(struct gpumem_session *session)
{
	struct gm_lease_return_item *held, *tmp;
	LL_FOREACH_SAFE (session->unclaimed, held, tmp)
		free(held);
	session->unclaimed = NULL;
}
