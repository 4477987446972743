/* SPDX-License-Identifier: Apache-2.0 */
/* Users: the table of all, and the rule by which each gets a share. */
#define HASH_NONFATAL_OOM 1
#include "daemon/user/user.h"

#include <stdlib.h>

#include "common/bounds.h"

/* Bounds of a slot without a bound of its own for one user. */
#define USER_SHARED(name) \
	{ \
		.own = GM_BOUND_##name, .all = GM_BOUND_##name \
	}
#define USER_UNREAD \
	.own = GM_BOUND_UNREAD_BYTES_PER_UID, .all = GM_BOUND_UNREAD_BYTES, \
	.always = GM_BOUND_PACKET_BYTES

static const struct gm_user_bound user_bounds[GM_USER_SLOTS] = {
	[GM_USER_ORPHANS] = {.own = GM_BOUND_ORPHANS_PER_UID, .all = GM_BOUND_ORPHANS},
	[GM_USER_SESSIONS] = USER_SHARED(SESSIONS),
	[GM_USER_BARE_LEASES] = USER_SHARED(BARE_LEASES),
	[GM_USER_SHARES] = USER_SHARED(SHARES),
	[GM_USER_NAMES] = USER_SHARED(NAMES),
	[GM_USER_METADATA] = {.own = GM_BOUND_METADATA_PER_UID, .all = GM_BOUND_METADATA},
	[GM_USER_LOGGED] = {.own = 1, .all = GM_BOUND_LOGGED_UIDS},
	[GM_USER_LOG_LINES] = {.own = UINT64_MAX, .all = UINT64_MAX},
	[GM_USER_LOG_WARNINGS] = {.own = UINT64_MAX, .all = UINT64_MAX},
	[GM_USER_BYTES_UNREAD] = {USER_UNREAD, .with = GM_USER_ADMIN_BYTES_UNREAD},
	[GM_USER_ADMIN_CONNECTIONS] = {.own = GM_BOUND_ADMIN_CONNECTIONS, .all = UINT64_MAX},
	[GM_USER_ADMIN_BYTES_UNREAD] = {USER_UNREAD, .with = GM_USER_BYTES_UNREAD},
	[GM_USER_CHUNK_FDS] = {.own = UINT64_MAX},
	[GM_USER_FLOWS] = {.own = UINT64_MAX},
	[GM_USER_CONNECTIONS] = {.own = GM_BOUND_CONNECTIONS},
	[GM_USER_CLIENTS] = {.own = GM_BOUND_CONNECTIONS},
};

void gm_user_table_bound_fds(struct gm_user_table *table, uint64_t own, uint64_t all)
{
	struct gm_user_bound bound = {
		.own = own, .all = all, .always = GM_BOUND_PACKET_FDS, .plain = true};

	bound.with = GM_USER_ADMIN_FDS_UNREAD;
	table->bounds[GM_USER_FDS_UNREAD] = bound;
	bound.with = GM_USER_FDS_UNREAD;
	table->bounds[GM_USER_ADMIN_FDS_UNREAD] = bound;
}

void gm_user_table_init(struct gm_user_table *table)
{
	*table = (struct gm_user_table){.fds = GM_FD_BUDGET_NONE};
	for (int slot = 0; slot < GM_USER_SLOTS; slot++)
		table->bounds[slot] = user_bounds[slot];
	gm_user_table_bound_fds(table, UINT64_MAX, UINT64_MAX);
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
	assert(!user->work && !user->quiet);
	HASH_DEL(user->table->users, user);
	free(user);
}

/* ---- descriptors */

/* Counts a connection for each client that has none. */
static uint64_t user_fds_of(uint64_t connections, uint64_t clients)
{
	return gm_u64_max(connections, clients) * GM_USER_CONNECTION_FDS +
	       clients * GM_USER_CLIENT_FDS;
}

void gm_user_count_fds(struct gm_user *user)
{
	struct gm_fd_budget *fds = &user->table->fds;
	uint64_t before = user->n_fds;

	user->n_fds = user->has[GM_USER_FLOWS] +
		      user_fds_of(user->has[GM_USER_CONNECTIONS], user->has[GM_USER_CLIENTS]);
	if (user->n_fds > before)
		gm_fd_budget_connect(fds, user->n_fds - before);
	else if (user->n_fds < before)
		gm_fd_budget_disconnect(fds, before - user->n_fds);
}

/* Whether descriptors allow so many more. A user without connections and clients needs flows, too. */
static bool user_may_open(const struct gm_user *user, uint64_t connections, uint64_t clients)
{
	uint64_t own = user_fds_of(user->has[GM_USER_CONNECTIONS], user->has[GM_USER_CLIENTS]);
	uint64_t then = user_fds_of(
		user->has[GM_USER_CONNECTIONS] + connections, user->has[GM_USER_CLIENTS] + clients);

	if (then == own) /* a client that is to be resumed keeps room for this */
		return true;
	own += own ? GM_USER_FLOW_FDS : 0;
	then += GM_USER_FLOW_FDS;
	return gm_fd_budget_allows_connection(&user->table->fds, own, then - own);
}

/* ---- the rule */

static bool user_may_have(const struct gm_user *user, enum gm_user_slot slot, uint64_t n)
{
	const struct gm_user_table *table = user->table;
	const struct gm_user_bound *bound = &table->bounds[slot];
	uint64_t own = user->has[slot] + n;
	uint64_t all = table->all[slot] + n + (bound->with ? table->all[bound->with] : 0);

	return bound->plain ? all <= bound->all
			    : gm_user_leaves_enough(own - 1, all - 1, bound->all);
}

int gm_user_check_share(const struct gm_user *user, enum gm_user_slot slot, uint64_t n)
{
	bool may;

	if (user->has[slot] + n > user->table->bounds[slot].own)
		return GM_USER_E_OWN;
	switch (slot) {
	case GM_USER_CHUNK_FDS:
		may = gm_fd_budget_allows_chunks(&user->table->fds, user->has[slot], n);
		break;
	case GM_USER_CONNECTIONS:
		may = user_may_open(user, n, 0);
		break;
	case GM_USER_CLIENTS:
		may = user_may_open(user, 0, n);
		break;
	default:
		may = user_may_have(user, slot, n);
		break;
	}
	return may ? 0 : GM_USER_E_SHARED;
}

int gm_user_charge(struct gm_user_charge *charge, uint64_t n)
{
	int r = gm_user_check(charge->user, charge->slot, n);

	if (r == 0)
		gm_user_charge_add(charge, n);
	return r;
}
