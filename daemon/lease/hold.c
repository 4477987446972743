/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views of leases: how often a session opened a lease, and by which of its client's packets. This file
 * promises that each Open has a record of its own with the id of its packet, so that the next daemon
 * knows a repeated one, and that a view which is returned by its name ends only once. It must never
 * decide who may open a lease: share.c does that.
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

static struct gm_open *hold_find(const struct gm_hold *hold, uint64_t asked)
{
	struct gm_open *open;
	DL_SEARCH_SCALAR(hold->opens, open, asked, asked);
	return open;
}

/* Returns a view of which nobody knows which packet opened it, or NULL. */
static struct gm_open *hold_find_unnamed(const struct gm_hold *hold)
{
	struct gm_open *open;
	DL_FOREACH (hold->opens, open)
		if (open->asked == 0)
			return open;
	return NULL;
}

/* Puts the open into the hold. The session holds the lease from now on, if it did not. -ENOMEM */
static int hold_add(struct gm_lease *lease, struct gm_session *session, struct gm_open *open)
{
	struct gm_hold *hold = gm_lease_find_hold(lease, session);
	int r = 0;
	if (!hold) {
		hold = gm_zeroed(sizeof(*hold));
		if (!hold)
			return -ENOMEM;
		hold->read_only = true;
		r = gm_lease_join(lease, session, hold);
	}
	if (r < 0) {
		free(hold);
		return r;
	}

	open->hold = hold;
	DL_APPEND(hold->opens, open);
	hold->count++;
	hold->read_only = hold->read_only && open->read_only;
	lease->n_opens++;
	session->last_asked = gm_max(session->last_asked, open->asked);
	session->n_views++;
	gm_lease_count_bare(session);
	return 0;
}

int gm_hold_open(struct gm_lease *lease, struct gm_session *session, bool read_only, uint64_t asked)
{
	const struct gm_env *env = lease->device->env;
	struct gm_open *open = gm_zeroed(sizeof(*open));
	if (!open)
		return -ENOMEM;

	open->id = env->ops.record ? env->ops.new_id(env->ctx) : 0;
	open->asked = asked;
	open->read_only = read_only;
	int r = gm_commit_open(open, lease, session);
	if (r == 0)
		r = hold_add(lease, session, open);
	if (r < 0) {
		gm_env_erase(env, &open->place);
		free(open);
	}
	return r;
}

int gm_hold_adopt(struct gm_lease *lease, struct gm_session *session, uint64_t id, uint32_t place,
	const struct gm_record_hold *record)
{
	struct gm_open *open = gm_zeroed(sizeof(*open));
	if (!open)
		return -ENOMEM;

	open->id = id;
	open->place = place;
	open->asked = record->request;
	open->read_only = record->read_only;
	int r = hold_add(lease, session, open);
	if (r < 0)
		free(open);
	return r;
}

static void hold_end(struct gm_open *open)
{
	struct gm_hold *hold = open->hold;
	DL_DELETE(hold->opens, open);
	gm_env_erase(hold->lease->device->env, &open->place);
	GM_STEP("close: hold's record erased");
	gm_lease_uncount_bare(hold->session);
	hold->session->n_views--;
	free(open);
}

void gm_hold_end_some(struct gm_hold *hold, uint64_t *slice)
{
	for (; hold->opens && *slice > 0; --*slice)
		hold_end(hold->opens);
}

void gm_hold_end_all(struct gm_hold *hold)
{
	uint64_t all = UINT64_MAX;
	gm_hold_end_some(hold, &all);
}

bool gm_hold_has(const struct gm_hold *hold, uint64_t view)
{
	/* What the maker made has no name, so it must not end with the name of a view that has ended
	 * before. */
	bool made = hold == &hold->lease->own && hold->lease->made > 1;
	return view == 0 || hold->loose || made || hold_find(hold, view) || hold_find_unnamed(hold);
}

void gm_hold_end_one(struct gm_hold *hold, uint64_t view)
{
	struct gm_lease *lease = hold->lease;
	struct gm_open *open = view ? hold_find(hold, view) : NULL;
	assert(hold->count > 1);
	hold->count--;
	lease->n_opens--;

	/* A view without a name goes first, and then the oldest one: the client may repeat the others. */
	if (!open && hold == &lease->own && lease->made > 1) {
		lease->made--;
		gm_commit_lease(lease);
		return;
	}
	if (!open)
		open = hold_find_unnamed(hold);
	if (!open) {
		open = hold->opens;
		hold->loose = true;
	}
	hold_end(open);
}
