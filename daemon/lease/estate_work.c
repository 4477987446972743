/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work that is done in slices: sessions and leases that have ended are taken apart. This file promises that one call does no
 * more than it was told to, that everything ends at last, and that users do not do each other's work. It must never decide
 * what ends.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"

#include "daemon/device/reserve.h"

uint64_t gm_estate_work_slice(const struct gm_env *env)
{
	return env->ops.slice ? env->ops.slice : GM_LEASE_SLICE;
}

/* Asks for turns of the user, unless it has been asked already. */
static void estate_work_begin(struct gm_core *core, struct gm_estate_user *user)
{
	struct gm_env *env = &core->env;

	if (user->working)
		return;
	user->working = true;
	DL_APPEND(core->working, user);
	user->ticking =
		env->stopping || !env->ops.work || env->ops.work(env->ctx, user->payer_uid) < 0;
	if (user->ticking) {
		core->n_ticking++;
		gm_env_need_tick(env, 0);
	}
}

static void estate_work_end(struct gm_core *core, struct gm_estate_user *user)
{
	DL_DELETE(core->working, user);
	core->n_ticking -= user->ticking;
	user->working = user->ticking = false;
}

void gm_estate_work_add_lease(struct gm_lease *lease)
{
	struct gm_estate_user *user = lease->estate->user;

	if (!lease->ending)
		DL_APPEND(user->ending, lease);
	lease->ending = true;
	estate_work_begin(lease->core, user);
}

void gm_estate_work_remove_lease(struct gm_lease *lease)
{
	if (lease->ending)
		DL_DELETE(lease->estate->user->ending, lease);
	lease->ending = false;
}

void gm_estate_work_add_session(struct gm_session *session)
{
	DL_APPEND(session->estate->user->leaving, session);
}

/* Takes a slice off the oldest lease. The others come first then, so that a long one does not hold them up. */
static void estate_work_on_lease(struct gm_estate_user *user, uint64_t *slice)
{
	struct gm_lease *lease = user->ending;
	struct gm_device *device = lease->device;

	gm_estate_work_remove_lease(lease);
	if (gm_lease_end_some(lease, slice))
		gm_estate_work_add_lease(lease);
	gm_reserve_settle(device);
}

/* Takes a slice off the session that ended first. */
static void estate_work_on_session(struct gm_estate_user *user, uint64_t *slice)
{
	struct gm_session *session = user->leaving;

	if (session->holds) {
		struct gm_device *device = session->holds->lease->device;
		gm_lease_drop_some(session->holds, session->died, slice);
		gm_reserve_settle(device);
	}
	if (!session->holds) {
		DL_DELETE(user->leaving, session);
		gm_session_finish(session);
	}
}

bool gm_estate_work_do(struct gm_estate_user *user, uint64_t *slice)
{
	/* The user lives as long as one of its estates. */
	struct gm_estate *estate = gm_estate_ref(user->list);
	struct gm_core *core = estate->session->core;

	while ((user->ending || user->leaving) && *slice > 0) {
		uint64_t before = *slice;
		if (user->ending)
			estate_work_on_lease(user, slice);
		else
			estate_work_on_session(user, slice);
		/* A lease without chunks counts towards the slice as well. */
		*slice -= *slice == before;
	}
	bool more = user->ending || user->leaving;
	if (more)
		estate_work_begin(core, user);
	else if (user->working)
		estate_work_end(core, user);
	gm_estate_unref(estate);
	return more;
}

void gm_estate_work_tick(struct gm_core *core)
{
	struct gm_estate_user *user, *next;

	if (core->n_ticking == 0)
		return;
	DL_FOREACH_SAFE (core->working, user, next) {
		uint64_t slice = gm_estate_work_slice(&core->env);
		if (user->ticking)
			gm_estate_work_do(user, &slice);
	}
}

void gm_estate_work_finish(struct gm_core *core)
{
	uint64_t all = UINT64_MAX;

	while (core->working)
		gm_estate_work_do(core->working, &all);
}
