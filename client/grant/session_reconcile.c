/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon has and this process does not know, after a session was resumed. */
#include "client/grant/session_reconcile.h"

#include <stdlib.h>
#include <utlist.h>

#include "client/grant/session_lease_private.h"
#include "client/grant/lease_unclaimed.h"
#include "common/cleanup.h"

static int reconcile_by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

struct reconcile_known {
	uint64_t id, next_index;
};

/* The leases that this process knows, sorted by id. Returns NULL with *ret_n > 0 if there is no
 * memory for the list. */
static struct reconcile_known *reconcile_list_known(struct gpumem_session *session, size_t *ret_n)
{
	size_t n = 0, i = 0;
	struct gm_session_lease *lease;

	gm_lock(&session->lock);
	DL_FOREACH (session->leases, lease)
		n += lease->held.lease && lease->held.epoch == session->epoch;
	struct reconcile_known *known = n ? calloc(n, sizeof(*known)) : NULL;
	if (known) {
		DL_FOREACH (session->leases, lease) {
			if (lease->held.lease && lease->held.epoch == session->epoch)
				known[i++] = (struct reconcile_known){
					lease->held.lease, lease->next_index};
		}
	}
	gm_lock_drop(&session->lock);

	if (known)
		qsort(known, n, sizeof(*known), reconcile_by_value);
	*ret_n = n;
	return known;
}

/* Adds to the list what the daemon has of a lease and nobody here knows about. */
static gpumem_status reconcile_list_unknown(struct gpumem_session *session, struct gm_conn *via,
	uint64_t lease, const struct reconcile_known *mine, struct gm_lease_return_item **list)
{
	if (!mine) {
		struct gm_lease_return_item *whole = calloc(1, sizeof(*whole));
		if (!whole)
			return gm_lease_no_memory();
		whole->lease = lease;
		whole->epoch = gm_session_epoch(session);
		LL_PREPEND(*list, whole);
		return GPUMEM_OK;
	}

	/* Indexes are given in order, so chunks from next_index on are unknown. */
	struct gm_lease_return_item *chunks = NULL;
	gpumem_status status =
		gm_lease_list_chunks(session, via, mine->id, mine->next_index, &chunks);
	LL_CONCAT(*list, chunks);
	/* A lease that has just ended has no chunks. */
	return gm_lease_returns_later(status) ? status : GPUMEM_OK;
}

static void reconcile_free(struct gm_lease_return_item *list)
{
	struct gm_lease_return_item *held, *tmp;
	LL_FOREACH_SAFE (list, held, tmp)
		free(held);
}

gpumem_status gm_session_reconcile(
	struct gpumem_session *session, struct gm_conn *via, const uint64_t *leases, size_t n)
{
	size_t n_known;
	struct gm_lease_return_item *unknown = NULL;
	GM_AUTO_FREE struct reconcile_known *known = reconcile_list_known(session, &n_known);
	if (n_known && !known)
		return gm_lease_no_memory();

	for (size_t i = 0; i < n; i++) {
		const struct reconcile_known *mine =
			known ? bsearch(&leases[i], known, n_known, sizeof(*known),
					reconcile_by_value)
			      : NULL;
		gpumem_status status =
			reconcile_list_unknown(session, via, leases[i], mine, &unknown);
		if (status) {
			reconcile_free(unknown);
			return status;
		}
	}

	gm_lease_unclaimed_resumed(session, unknown);
	return GPUMEM_OK;
}
