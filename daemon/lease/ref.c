/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views of leases: how often a session opened a lease, and by which of its client's packets. This file
 * promises that each Open has a record of its own with the id of its packet, so that the next daemon
 * knows a repeated one, and that a view which is returned by its name ends only once. It must never
 * decide who may open a lease: lease_token.c does that.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/lease_private.h"
#include "daemon/lease/commit.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "common/arith.h"
#include "common/step.h"
#include "common/zeroed.h"

static struct gm_ref_entry *ref_find(const struct gm_ref *ref, uint64_t asked)
{
	struct gm_ref_entry *open;
	DL_SEARCH_SCALAR(ref->opens, open, asked, asked);
	return open;
}

/* Returns a view of which nobody knows which packet opened it, or NULL. */
static struct gm_ref_entry *ref_find_unnamed(const struct gm_ref *ref)
{
	struct gm_ref_entry *open;
	DL_FOREACH (ref->opens, open)
		if (open->asked == 0)
			return open;
	return NULL;
}

/* Puts the open into the hold. The session holds the lease from now on, if it did not. -ENOMEM */
static int ref_add(struct gm_lease *lease, struct gm_session *session, struct gm_ref_entry *open)
{
	struct gm_ref *ref = gm_lease_find_ref(lease, session);
	int r = 0;
	if (!ref) {
		ref = gm_zeroed(sizeof(*ref));
		if (!ref)
			return -ENOMEM;
		ref->read_only = true;
		r = gm_lease_join(lease, session, ref);
	}
	if (r < 0) {
		free(ref);
		return r;
	}

	open->ref = ref;
	DL_APPEND(ref->opens, open);
	ref->count++;
	ref->read_only = ref->read_only && open->read_only;
	lease->n_opens++;
	session->last_asked = gm_u64_max(session->last_asked, open->asked);
	session->n_views++;
	gm_lease_count_bare(session);
	return 0;
}

int gm_ref_open(struct gm_lease *lease, struct gm_session *session, bool read_only, uint64_t asked)
{
	const struct gm_env *env = lease->device->env;
	struct gm_ref_entry *open = gm_zeroed(sizeof(*open));
	if (!open)
		return -ENOMEM;

	open->id = env->ops.record ? env->ops.new_id(env->ctx) : 0;
	open->asked = asked;
	open->read_only = read_only;
	int r = gm_commit_open(open, lease, session);
	if (r == 0)
		r = ref_add(lease, session, open);
	if (r < 0) {
		gm_env_erase(env, &open->place);
		free(open);
	}
	return r;
}

int gm_ref_adopt(struct gm_lease *lease, struct gm_session *session, uint64_t id, uint32_t place,
	const struct gm_record_ref *record)
{
	struct gm_ref_entry *open = gm_zeroed(sizeof(*open));
	if (!open)
		return -ENOMEM;

	open->id = id;
	open->place = place;
	open->asked = record->request;
	open->read_only = record->read_only;
	int r = ref_add(lease, session, open);
	if (r < 0)
		free(open);
	return r;
}

static void ref_end(struct gm_ref_entry *open)
{
	struct gm_ref *ref = open->ref;
	DL_DELETE(ref->opens, open);
	gm_env_erase(ref->lease->device->env, &open->place);
	GM_STEP("close: hold's record erased");
	gm_lease_uncount_bare(ref->session);
	ref->session->n_views--;
	free(open);
}

void gm_ref_end_some(struct gm_ref *ref, uint64_t *slice)
{
	for (; ref->opens && *slice > 0; --*slice)
		ref_end(ref->opens);
}

void gm_ref_end_all(struct gm_ref *ref)
{
	uint64_t all = UINT64_MAX;
	gm_ref_end_some(ref, &all);
}

bool gm_ref_has(const struct gm_ref *ref, uint64_t view)
{
	/* What the maker made has no name, so it must not end with the name of a view that has ended
	 * before. */
	bool made = ref == &ref->lease->own && ref->lease->made > 1;
	return view == 0 || ref->loose || made || ref_find(ref, view) || ref_find_unnamed(ref);
}

void gm_ref_end_one(struct gm_ref *ref, uint64_t view)
{
	struct gm_lease *lease = ref->lease;
	struct gm_ref_entry *open = view ? ref_find(ref, view) : NULL;
	assert(ref->count > 1);
	ref->count--;
	lease->n_opens--;

	/* A view without a name goes first, and then the oldest one: the client may repeat the others. */
	if (!open && ref == &lease->own && lease->made > 1) {
		lease->made--;
		gm_commit_lease(lease);
		return;
	}
	if (!open)
		open = ref_find_unnamed(ref);
	if (!open) {
		open = ref->opens;
		ref->loose = true;
	}
	ref_end(open);
}
