/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orphaned accounts: the accounts of what sessions left behind. This file promises that there is one orphaned account
 * for each combination of uid, gid, unit and container, that it lives as long as a session, a
 * lease or an orphaned chunk may charge something to it or an orphaned mapping does, and that a user has a bounded
 * number of them. It must never decide what is charged to an orphaned account: lease.c, orphan_chunk.c and orphan_map.c do
 * that.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/commit.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* The bytes of a name with its end; 0: none. A name that is too long for a limit counts as none. */
static size_t orphan_name_bytes(const char *name)
{
	size_t n = name ? strnlen(name, GM_OWNER_NAME_BYTES + 1) : 0;
	return n > 0 && n <= GM_OWNER_NAME_BYTES ? n + 1 : 0;
}

static bool orphan_same_name(const char *mine, const char *name)
{
	size_t n = orphan_name_bytes(name);
	return mine ? n > 0 && strcmp(mine, name) == 0 : n == 0;
}

static struct gm_orphan *orphan_find(
	const struct gm_orphan_work *work, const struct gm_orphan_info *info)
{
	struct gm_orphan *orphan;
	DL_FOREACH (work->list, orphan) {
		const struct gm_orphan_info *own = &orphan->info;
		if (own->uid == info->uid && own->gid == info->gid &&
			orphan_same_name(own->unit, info->unit) &&
			orphan_same_name(own->container, info->container))
			return orphan;
	}
	return NULL;
}

static struct gm_orphan_work *orphan_work_get(struct gm_user *user)
{
	if (user->work)
		return user->work;
	struct gm_orphan_work *work = calloc(1, sizeof(*work));
	if (!work)
		return NULL;
	work->user = gm_user_ref(user);
	user->work = work;
	return work;
}

/* Frees the work of a user without orphaned accounts. */
static void orphan_work_put(struct gm_orphan_work *work)
{
	if (work->list)
		return;
	work->user->work = NULL;
	gm_user_unref(work->user);
	free(work);
}

static int orphan_copy_names(struct gm_orphan *orphan, const struct gm_orphan_info *info)
{
	size_t unit = orphan_name_bytes(info->unit), container = orphan_name_bytes(info->container);
	if (unit + container == 0)
		return 0;
	orphan->names = malloc(unit + container);
	if (!orphan->names)
		return -ENOMEM;
	if (unit)
		orphan->info.unit = memcpy(orphan->names, info->unit, unit);
	if (container)
		orphan->info.container = memcpy(orphan->names + unit, info->container, container);
	return 0;
}

static void orphan_free(struct gm_orphan *orphan)
{
	free(orphan->names);
	free(orphan);
}

static struct gm_orphan *orphan_new(struct gm_core *core, struct gm_orphan_work *work, uint64_t id,
	uint32_t place, const struct gm_orphan_info *info)
{
	struct gm_env *env = &core->env;
	struct gm_orphan *orphan =
		calloc(1, sizeof(*orphan) + env->n_devices * sizeof(struct gm_account));
	if (!orphan)
		return NULL;

	orphan->core = core;
	orphan->place = place;
	orphan->info.uid = orphan->payer.uid = info->uid;
	orphan->info.payer_uid = orphan->payer.payer_uid = work->user->uid;
	orphan->info.subordinate = info->uid != work->user->uid;
	orphan->info.gid = info->gid;
	orphan->payer.quarantined = true;
	if (orphan_copy_names(orphan, info) < 0 ||
		gm_account_payer_begin(core, &orphan->payer, id) < 0) {
		orphan_free(orphan);
		return NULL;
	}
	if (!place && gm_commit_orphan(orphan) < 0) {
		gm_account_payer_end(core, &orphan->payer);
		orphan_free(orphan);
		return NULL;
	}
	orphan->work = work;
	DL_APPEND(work->list, orphan);
	DL_APPEND2(core->orphan_list, orphan, all_prev, all_next);
	gm_user_charge_init(&orphan->charge, work->user, GM_USER_ORPHANS);
	gm_user_charge_add(&orphan->charge, 1);
	return orphan;
}

/* id 0: an orphaned account that exists will do. */
static int orphan_get_of(struct gm_core *core, struct gm_orphan_work *work, uint64_t id,
	uint32_t place, const struct gm_orphan_info *info, struct gm_orphan **ret_orphan)
{
	struct gm_orphan *orphan = orphan_find(work, info);
	if (orphan && id)
		return -EEXIST;
	if (!orphan && !core->env.adopting && gm_user_check(work->user, GM_USER_ORPHANS, 1))
		return -EMLINK;
	if (!orphan)
		orphan = orphan_new(core, work, id, place, info);
	if (!orphan)
		return -ENOMEM;
	*ret_orphan = gm_orphan_ref(orphan);
	return 0;
}

static int orphan_get(struct gm_core *core, uint64_t id, uint32_t place,
	const struct gm_orphan_info *info, struct gm_orphan **ret_orphan)
{
	struct gm_user *user = gm_user_get(core->env.users,
		info->payer_uid || info->subordinate ? info->payer_uid : info->uid);
	struct gm_orphan_work *work = user ? orphan_work_get(user) : NULL;
	gm_user_unref(user);
	if (!work)
		return -ENOMEM;

	int r = orphan_get_of(core, work, id, place, info, ret_orphan);
	orphan_work_put(work);
	return r;
}

int gm_orphan_get(
	struct gm_core *core, const struct gm_orphan_info *info, struct gm_orphan **ret_orphan)
{
	return orphan_get(core, 0, 0, info, ret_orphan);
}

int gm_orphan_get_for(
	struct gm_core *core, const struct gm_session_info *info, struct gm_orphan **ret_orphan)
{
	const struct gm_orphan_info of = {
		.uid = info->uid,
		.payer_uid = info->payer_uid,
		.subordinate = info->subordinate,
		.gid = info->gid,
		.unit = info->unit,
		.container = gm_session_container(info),
	};
	return gm_orphan_get(core, &of, ret_orphan);
}

int gm_orphan_adopt(struct gm_core *core, uint64_t id, uint32_t place,
	const struct gm_orphan_info *info, struct gm_orphan **ret_orphan)
{
	return orphan_get(core, id, place, info, ret_orphan);
}

struct gm_orphan *gm_orphan_ref(struct gm_orphan *orphan)
{
	orphan->refs++;
	return orphan;
}

void gm_orphan_unref(struct gm_orphan *orphan)
{
	if (!orphan)
		return;
	assert(orphan->refs > 0);
	if (--orphan->refs > 0)
		return;

	struct gm_orphan_work *work = orphan->work;
	struct gm_core *core = orphan->core;
	DL_DELETE(work->list, orphan);
	DL_DELETE2(core->orphan_list, orphan, all_prev, all_next);
	gm_user_charge_deinit(&orphan->charge);
	gm_env_erase(&core->env, &orphan->place);
	gm_account_payer_end(core, &orphan->payer);
	orphan_free(orphan);
	orphan_work_put(work);
}

uint64_t gm_orphan_id(const struct gm_orphan *orphan)
{
	return orphan->payer.id;
}

const struct gm_orphan_info *gm_orphan_info(const struct gm_orphan *orphan)
{
	return &orphan->info;
}

uint64_t gm_orphan_held(const struct gm_orphan *orphan, uint32_t device)
{
	return device < orphan->core->env.n_devices ? orphan->payer.accounts[device].held : 0;
}

uint64_t gm_orphan_orphaned(const struct gm_orphan *orphan, uint32_t device)
{
	return device < orphan->core->env.n_devices ? orphan->payer.accounts[device].orphaned : 0;
}

bool gm_orphan_owner(
	const struct gm_account_payer *payer, enum gm_owner_kind kind, struct gm_owner *ret_owner)
{
	const struct gm_orphan *orphan =
		(const void *)((const char *)payer - offsetof(struct gm_orphan, payer));
	const struct gm_orphan_info *info = &orphan->info;
	switch (kind) {
	case GM_OWNER_UID:
	case GM_OWNER_GID:
		gm_owner_by_id(kind, kind == GM_OWNER_UID ? info->payer_uid : info->gid, ret_owner);
		return true;
	case GM_OWNER_UNIT:
		return gm_owner_by_name(kind, info->unit, ret_owner) == 0;
	case GM_OWNER_CONTAINER:
		return gm_owner_by_name(kind, info->container, ret_owner) == 0;
	default:
		return false;
	}
}

static bool orphan_holds(const struct gm_orphan *orphan)
{
	for (uint32_t d = 0; d < orphan->core->env.n_devices; d++)
		if (orphan->payer.accounts[d].held > 0)
			return true;
	return false;
}

bool gm_orphan_each(const struct gm_core *core, uint64_t after,
	bool (*visit)(void *ctx, const struct gm_orphan *orphan), void *ctx)
{
	const struct gm_orphan *orphan;
	DL_FOREACH2 (core->orphan_list, orphan, all_next)
		if (orphan->payer.id > after && orphan_holds(orphan) && !visit(ctx, orphan))
			return true;
	return false;
}
