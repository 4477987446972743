/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which request brought which chunks. A client that lost its connection, or whose daemon ended, cannot
 * know whether its last requests were granted, and repeats them. This file promises to find what
 * they brought, at a bounded cost: after a resume, the first repeated request makes an index of all
 * grants of the session. It must never grant anything.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/lease_private.h"

#include <stdlib.h>

/* The chunks of a lease with these indexes, without to itself, or a view of it. */
struct gm_lease_grant {
	uint64_t asked;
	uint64_t lease;
	uint64_t from, to;
	bool opened;
};

/* Writes the opens of the session to grants (NULL: only counts them). */
static size_t grant_list_opens(const struct gm_ref *ref, struct gm_lease_grant *grants)
{
	size_t n = 0;
	for (const struct gm_ref_entry *open = ref->opens; open; open = open->next, n++)
		if (grants)
			grants[n] = (struct gm_lease_grant){
				.asked = open->asked, .lease = ref->lease_id, .opened = true};
	return n;
}

/* Writes the grants of all leases that the session made or opened to grants (NULL: only counts
 * them). */
static size_t grant_list(const struct gm_session *session, struct gm_lease_grant *grants)
{
	size_t n = 0;
	for (const struct gm_ref *ref = session->refs; ref; ref = ref->hh.next) {
		const struct gm_lease *lease = ref->lease;
		const struct gm_chunk *before = NULL;
		n += grant_list_opens(ref, grants ? grants + n : NULL);
		if (lease->maker != session)
			continue;
		for (const struct gm_chunk *c = lease->chunks; c; before = c, c = c->next) {
			bool first = !before || before->asked != c->asked;
			n += first;
			if (!grants)
				continue;
			if (first)
				grants[n - 1] = (struct gm_lease_grant){
					.asked = c->asked, .lease = lease->id, .from = c->index};
			grants[n - 1].to = c->index + 1;
		}
	}
	return n;
}

static int grant_compare(const void *a, const void *b)
{
	const struct gm_lease_grant *x = a, *y = b;
	return x->asked < y->asked ? -1 : x->asked > y->asked;
}

static bool grant_index(struct gm_session *session)
{
	size_t n = grant_list(session, NULL);
	if (n > 0) {
		session->grants = malloc(n * sizeof(session->grants[0]));
		if (!session->grants)
			return false;
		grant_list(session, session->grants);
		qsort(session->grants, n, sizeof(session->grants[0]), grant_compare);
	}
	session->n_grants = n;
	session->indexed = true;
	return true;
}

static const struct gm_lease_grant *grant_find(
	struct gm_session *session, uint64_t asked, bool opened)
{
	/* Ids grow, so this is a new request. */
	if (asked == 0 || asked > session->last_asked)
		return NULL;
	if (!session->indexed && !grant_index(session))
		return NULL;

	const struct gm_lease_grant key = {.asked = asked};
	const struct gm_lease_grant *grant =
		session->n_grants == 0 ? NULL
				       : bsearch(&key, session->grants, session->n_grants,
						 sizeof(key), grant_compare);
	return grant && grant->opened == opened ? grant : NULL;
}

bool gm_session_find_grant(struct gm_session *session, uint64_t asked, struct gm_lease **ret_lease,
	uint64_t *ret_from, uint64_t *ret_to)
{
	const struct gm_lease_grant *grant = grant_find(session, asked, false);
	struct gm_lease *lease = grant ? gm_session_find_lease(session, grant->lease) : NULL;
	const struct gm_chunk *chunk = lease ? gm_lease_chunk(lease, grant->from) : NULL;
	if (!chunk || chunk->index >= grant->to)
		return false;

	*ret_lease = lease;
	*ret_from = grant->from;
	*ret_to = grant->to;
	return true;
}

bool gm_session_find_open(struct gm_session *session, uint64_t asked, struct gm_lease **ret_lease)
{
	const struct gm_lease_grant *grant = grant_find(session, asked, true);
	struct gm_lease *lease = grant ? gm_session_find_lease(session, grant->lease) : NULL;
	const struct gm_ref_entry *open = NULL;
	if (lease)
		DL_SEARCH_SCALAR(gm_lease_find_ref(lease, session)->opens, open, asked, asked);
	if (open)
		*ret_lease = lease;
	return open;
}
