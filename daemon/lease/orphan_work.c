/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work that is done in slices: sessions and leases that have ended are taken apart. This file promises that one call does no
 * more than it was told to, that everything ends at last, and that users do not do each other's work. It must never decide
 * what ends.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/lease_private.h"

#include "daemon/device/reserve.h"

uint64_t gm_orphan_work_slice(const struct gm_env *env)
{
	return env->ops.slice ? env->ops.slice : GM_LEASE_SLICE;
}

/* Asks for turns of the user, unless it has been asked already. */
static void orphan_work_begin(struct gm_core *core, struct gm_orphan_work *work)
{
	struct gm_env *env = &core->env;

	if (work->working)
		return;
	work->working = true;
	DL_APPEND(core->working, work);
	work->ticking =
		env->stopping || !env->ops.work || env->ops.work(env->ctx, work->user->uid) < 0;
	if (work->ticking) {
		core->n_ticking++;
		gm_env_need_tick(env, 0);
	}
}

static void orphan_work_end(struct gm_core *core, struct gm_orphan_work *work)
{
	DL_DELETE(core->working, work);
	core->n_ticking -= work->ticking;
	work->working = work->ticking = false;
}

void gm_orphan_work_add_lease(struct gm_lease *lease)
{
	struct gm_orphan_work *work = lease->orphan->work;

	if (!lease->ending)
		DL_APPEND(work->ending, lease);
	lease->ending = true;
	orphan_work_begin(lease->core, work);
}

void gm_orphan_work_remove_lease(struct gm_lease *lease)
{
	if (lease->ending)
		DL_DELETE(lease->orphan->work->ending, lease);
	lease->ending = false;
}

void gm_orphan_work_add_session(struct gm_session *session)
{
	DL_APPEND(session->orphan->work->leaving, session);
}

/* Takes a slice off the oldest lease. The others come first then, so that a long one does not hold them up. */
static void orphan_work_on_lease(struct gm_orphan_work *work, uint64_t *slice)
{
	struct gm_lease *lease = work->ending;
	struct gm_device *device = lease->device;

	gm_orphan_work_remove_lease(lease);
	if (gm_lease_end_some(lease, slice))
		gm_orphan_work_add_lease(lease);
	gm_reserve_settle(device);
}

/* Takes a slice off the session that ended first. */
static void orphan_work_on_session(struct gm_orphan_work *work, uint64_t *slice)
{
	struct gm_session *session = work->leaving;

	if (session->refs) {
		struct gm_device *device = session->refs->lease->device;
		gm_lease_drop_some(session->refs, session->died, slice);
		gm_reserve_settle(device);
	}
	if (!session->refs) {
		DL_DELETE(work->leaving, session);
		gm_session_finish(session);
	}
}

bool gm_orphan_work_do(struct gm_orphan_work *work, uint64_t *slice)
{
	/* The work lives as long as one of its orphaned accounts. */
	struct gm_orphan *orphan = gm_orphan_ref(work->list);
	struct gm_core *core = orphan->core;

	while ((work->ending || work->leaving) && *slice > 0) {
		uint64_t before = *slice;
		if (work->ending)
			orphan_work_on_lease(work, slice);
		else
			orphan_work_on_session(work, slice);
		/* A lease without chunks counts towards the slice as well. */
		*slice -= *slice == before;
	}
	bool more = work->ending || work->leaving;
	if (more)
		orphan_work_begin(core, work);
	else if (work->working)
		orphan_work_end(core, work);
	gm_orphan_unref(orphan);
	return more;
}

void gm_orphan_work_tick(struct gm_core *core)
{
	struct gm_orphan_work *work, *next;

	if (core->n_ticking == 0)
		return;
	DL_FOREACH_SAFE (core->working, work, next) {
		uint64_t slice = gm_orphan_work_slice(&core->env);
		if (work->ticking)
			gm_orphan_work_do(work, &slice);
	}
}

void gm_orphan_work_finish(struct gm_core *core)
{
	uint64_t all = UINT64_MAX;

	while (core->working)
		gm_orphan_work_do(core->working, &all);
}
