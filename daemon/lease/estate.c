/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Estates: the accounts of what sessions left behind. This file promises that there is one estate
 * for each combination of uid, gid, unit and container, that it lives as long as a session, a
 * lease or a lingering chunk may charge something to it or a debt does, and that a user has a bounded
 * number of them. It must never decide what is charged to an estate: lease.c, linger.c and debt.c do
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
static size_t estate_name_bytes(const char *name)
{
	size_t n = name ? strnlen(name, GM_OWNER_NAME_BYTES + 1) : 0;
	return n > 0 && n <= GM_OWNER_NAME_BYTES ? n + 1 : 0;
}

static bool estate_same_name(const char *mine, const char *name)
{
	size_t n = estate_name_bytes(name);
	return mine ? n > 0 && strcmp(mine, name) == 0 : n == 0;
}

static struct gm_estate *estate_find(
	const struct gm_estate_work *work, const struct gm_estate_info *info)
{
	struct gm_estate *estate;
	DL_FOREACH (work->list, estate) {
		const struct gm_estate_info *own = &estate->info;
		if (own->uid == info->uid && own->gid == info->gid &&
			estate_same_name(own->unit, info->unit) &&
			estate_same_name(own->container, info->container))
			return estate;
	}
	return NULL;
}

static struct gm_estate_work *estate_work_get(struct gm_user *user)
{
	if (user->work)
		return user->work;
	struct gm_estate_work *work = calloc(1, sizeof(*work));
	if (!work)
		return NULL;
	work->user = gm_user_ref(user);
	user->work = work;
	return work;
}

/* Frees the work of a user without estates. */
static void estate_work_put(struct gm_estate_work *work)
{
	if (work->list)
		return;
	work->user->work = NULL;
	gm_user_unref(work->user);
	free(work);
}

static int estate_copy_names(struct gm_estate *estate, const struct gm_estate_info *info)
{
	size_t unit = estate_name_bytes(info->unit), container = estate_name_bytes(info->container);
	if (unit + container == 0)
		return 0;
	estate->names = malloc(unit + container);
	if (!estate->names)
		return -ENOMEM;
	if (unit)
		estate->info.unit = memcpy(estate->names, info->unit, unit);
	if (container)
		estate->info.container = memcpy(estate->names + unit, info->container, container);
	return 0;
}

static void estate_free(struct gm_estate *estate)
{
	free(estate->names);
	free(estate);
}

static struct gm_estate *estate_new(struct gm_core *core, struct gm_estate_work *work, uint64_t id,
	uint32_t place, const struct gm_estate_info *info)
{
	struct gm_env *env = &core->env;
	struct gm_estate *estate =
		calloc(1, sizeof(*estate) + env->n_devices * sizeof(struct gm_account));
	if (!estate)
		return NULL;

	estate->core = core;
	estate->place = place;
	estate->info.uid = estate->payer.uid = info->uid;
	estate->info.payer_uid = estate->payer.payer_uid = work->user->uid;
	estate->info.subordinate = info->uid != work->user->uid;
	estate->info.gid = info->gid;
	estate->payer.quarantined = true;
	if (estate_copy_names(estate, info) < 0 || gm_payer_begin(core, &estate->payer, id) < 0) {
		estate_free(estate);
		return NULL;
	}
	if (!place && gm_commit_estate(estate) < 0) {
		gm_payer_end(core, &estate->payer);
		estate_free(estate);
		return NULL;
	}
	estate->work = work;
	DL_APPEND(work->list, estate);
	DL_APPEND2(core->estate_list, estate, all_prev, all_next);
	gm_user_charge_init(&estate->charge, work->user, GM_USER_ESTATES);
	gm_user_charge_add(&estate->charge, 1);
	return estate;
}

/* id 0: an estate that exists will do. */
static int estate_get_of(struct gm_core *core, struct gm_estate_work *work, uint64_t id,
	uint32_t place, const struct gm_estate_info *info, struct gm_estate **ret_estate)
{
	struct gm_estate *estate = estate_find(work, info);
	if (estate && id)
		return -EEXIST;
	if (!estate && !core->env.adopting && gm_user_check(work->user, GM_USER_ESTATES, 1))
		return -EMLINK;
	if (!estate)
		estate = estate_new(core, work, id, place, info);
	if (!estate)
		return -ENOMEM;
	*ret_estate = gm_estate_ref(estate);
	return 0;
}

static int estate_get(struct gm_core *core, uint64_t id, uint32_t place,
	const struct gm_estate_info *info, struct gm_estate **ret_estate)
{
	struct gm_user *user = gm_user_get(core->env.users,
		info->payer_uid || info->subordinate ? info->payer_uid : info->uid);
	struct gm_estate_work *work = user ? estate_work_get(user) : NULL;
	gm_user_unref(user);
	if (!work)
		return -ENOMEM;

	int r = estate_get_of(core, work, id, place, info, ret_estate);
	estate_work_put(work);
	return r;
}

int gm_estate_get(
	struct gm_core *core, const struct gm_estate_info *info, struct gm_estate **ret_estate)
{
	return estate_get(core, 0, 0, info, ret_estate);
}

int gm_estate_get_for(
	struct gm_core *core, const struct gm_session_info *info, struct gm_estate **ret_estate)
{
	const struct gm_estate_info of = {
		.uid = info->uid,
		.payer_uid = info->payer_uid,
		.subordinate = info->subordinate,
		.gid = info->gid,
		.unit = info->unit,
		.container = gm_session_container(info),
	};
	return gm_estate_get(core, &of, ret_estate);
}

int gm_estate_adopt(struct gm_core *core, uint64_t id, uint32_t place,
	const struct gm_estate_info *info, struct gm_estate **ret_estate)
{
	return estate_get(core, id, place, info, ret_estate);
}

struct gm_estate *gm_estate_ref(struct gm_estate *estate)
{
	estate->refs++;
	return estate;
}

void gm_estate_unref(struct gm_estate *estate)
{
	if (!estate)
		return;
	assert(estate->refs > 0);
	if (--estate->refs > 0)
		return;

	struct gm_estate_work *work = estate->work;
	struct gm_core *core = estate->core;
	DL_DELETE(work->list, estate);
	DL_DELETE2(core->estate_list, estate, all_prev, all_next);
	gm_user_charge_deinit(&estate->charge);
	gm_env_erase(&core->env, &estate->place);
	gm_payer_end(core, &estate->payer);
	estate_free(estate);
	estate_work_put(work);
}

uint64_t gm_estate_id(const struct gm_estate *estate)
{
	return estate->payer.id;
}

const struct gm_estate_info *gm_estate_info(const struct gm_estate *estate)
{
	return &estate->info;
}

uint64_t gm_estate_held(const struct gm_estate *estate, uint32_t device)
{
	return device < estate->core->env.n_devices ? estate->payer.accounts[device].held : 0;
}

uint64_t gm_estate_lingering(const struct gm_estate *estate, uint32_t device)
{
	return device < estate->core->env.n_devices ? estate->payer.accounts[device].lingering : 0;
}

bool gm_estate_owner(
	const struct gm_payer *payer, enum gm_owner_kind kind, struct gm_owner *ret_owner)
{
	const struct gm_estate *estate =
		(const void *)((const char *)payer - offsetof(struct gm_estate, payer));
	const struct gm_estate_info *info = &estate->info;
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

static bool estate_holds(const struct gm_estate *estate)
{
	for (uint32_t d = 0; d < estate->core->env.n_devices; d++)
		if (estate->payer.accounts[d].held > 0)
			return true;
	return false;
}

bool gm_estate_each(const struct gm_core *core, uint64_t after,
	bool (*visit)(void *ctx, const struct gm_estate *estate), void *ctx)
{
	const struct gm_estate *estate;
	DL_FOREACH2 (core->estate_list, estate, all_next)
		if (estate->payer.id > after && estate_holds(estate) && !visit(ctx, estate))
			return true;
	return false;
}
