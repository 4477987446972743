/* SPDX-License-Identifier: Apache-2.0 */
/* Users: the table of all, and the rule by which each gets a share. */
#define HASH_NONFATAL_OOM 1
#include "daemon/user/user.h"

#include <stdlib.h>

#include "common/limits.h"

#define USER_BOUND(name) .own = GM_LIMIT_##name, .all = GM_LIMIT_##name

static const struct gm_user_bound user_bounds[GM_USER_SLOTS] = {
	[GM_USER_ESTATES] = {.own = GM_LIMIT_ESTATES_PER_UID, .all = GM_LIMIT_ESTATES},
	[GM_USER_SESSIONS] = {USER_BOUND(SESSIONS)},
	[GM_USER_BARE_LEASES] = {USER_BOUND(BARE_LEASES)},
	[GM_USER_SHARES] = {USER_BOUND(SHARES)},
	[GM_USER_NAMES] = {USER_BOUND(NAMES)},
	[GM_USER_METADATA] = {.own = GM_LIMIT_METADATA_PER_UID, .all = GM_LIMIT_METADATA},
};

void gm_user_table_init(struct gm_user_table *table)
{
	*table = (struct gm_user_table){0};
	for (int slot = 0; slot < GM_USER_SLOTS; slot++)
		table->bounds[slot] = user_bounds[slot];
}

void gm_user_table_deinit(struct gm_user_table *table)
{
	assert(!table->users);
	(void)table;
}

struct gm_user *gm_user_find(const struct gm_user_table *table, uid_t uid)
{
	struct gm_user *user;

	HASH_FIND(hh, table->users, &uid, sizeof(uid), user);
	return user;
}

struct gm_user *gm_user_get(struct gm_user_table *table, uid_t uid)
{
	struct gm_user *user = gm_user_find(table, uid);

	if (user)
		return gm_user_ref(user);
	user = calloc(1, sizeof(*user));
	if (!user)
		return NULL;
	user->table = table;
	user->uid = uid;
	HASH_ADD(hh, table->users, uid, sizeof(user->uid), user);
	if (!user->hh.tbl) {
		free(user);
		return NULL;
	}
	return gm_user_ref(user);
}

void gm_user_free(struct gm_user *user)
{
	for (int slot = 0; slot < GM_USER_SLOTS; slot++)
		assert(user->has[slot] == 0);
	assert(!user->work);
	HASH_DEL(user->table->users, user);
	free(user);
}

int gm_user_check(const struct gm_user *user, enum gm_user_slot slot, uint64_t n)
{
	const struct gm_user_table *table = user->table;
	const struct gm_user_bound *bound = &table->bounds[slot];
	uint64_t own = user->has[slot] + n, all = table->all[slot] + n;

	if (n == 0)
		return 0;
	if (own > bound->own)
		return GM_USER_E_OWN;
	return gm_user_leaves_enough(own - 1, all - 1, bound->all) ? 0 : GM_USER_E_SHARED;
}

int gm_user_charge(struct gm_user_charge *charge, uint64_t n)
{
	int r = gm_user_check(charge->user, charge->slot, n);

	if (r == 0)
		gm_user_charge_add(charge, n);
	return r;
}
