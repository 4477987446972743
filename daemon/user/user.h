/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_USER_H
#define GM_DAEMON_USER_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <uthash.h>

#include "common/arith.h"
#include "common/fd_budget.h"

/*
 * This folder counts what each user has, promises that nobody gets more than a share by one rule, and that a charge gives
 * back what it took. It must never know what is counted: to this folder, leases and connections are numbers.
 *
 * A user is a uid that pays (daemon/net/identity.h). The object belongs to the loop's thread. It outlives connections: it
 * exists while somebody has a reference or a charge.
 *
 * The rule for a slot is a row of struct gm_user_bound. A user may have as much as the user leaves free, by
 * gm_user_leaves_enough(), and never more than the bound of one user. For descriptors the share of a user is derived from
 * how many the daemon has (common/fd_budget.h).
 */

/* What is counted. */
enum gm_user_slot {
	GM_USER_ORPHANS,
	GM_USER_SESSIONS,
	GM_USER_BARE_LEASES, /* leases that clients opened, or made and that have no chunks */
	GM_USER_SHARES,
	GM_USER_NAMES,
	GM_USER_METADATA,     /* in bytes */
	GM_USER_FDS_UNREAD,   /* descriptors on their way */
	GM_USER_BYTES_UNREAD, /* of answers that are kept */
	GM_USER_LOGGED,       /* 1 while the next two are counted */
	GM_USER_LOG_LINES,
	GM_USER_LOG_WARNINGS, /* and errors */
	/* What a user has on the administrators' socket. */
	GM_USER_ADMIN_CONNECTIONS,
	GM_USER_ADMIN_FDS_UNREAD,
	GM_USER_ADMIN_BYTES_UNREAD,
	/* What has descriptors of the daemon from here on. Other users may have as many as common/fd_budget.h says. */
	GM_USER_CHUNK_FDS,   /* chunks that are leased or are orphaned, signals and metadata */
	GM_USER_FLOWS,       /* sets of sockets */
	GM_USER_CONNECTIONS, /* sockets with a pidfd */
	GM_USER_CLIENTS,     /* clients that are connected or quarantined */
	GM_USER_SLOTS
};

/* Number of descriptors that one of these has. A connection: its socket and its pidfd. A client: its wakeup, its page and,
 * once it was resumed, the page before. A client in quarantine has no wakeup. It keeps room for a connection: otherwise other
 * clients could take that room after a restart, and the client could not resume its session. */
#define GM_USER_FLOW_FDS       2 /* of both flows of a user */
#define GM_USER_CONNECTION_FDS 2
#define GM_USER_CLIENT_FDS     3

/* Bounds of a slot. */
struct gm_user_bound {
	uint64_t own;           /* of one user */
	uint64_t all;           /* of all users together */
	uint64_t always;        /* a user may have so much, whatever others have; at most own */
	bool plain;             /* a user need not leave anything to others */
	enum gm_user_slot with; /* this slot counts towards all as well; 0: none does */
};

/* All users. There is one table for each loop. */
struct gm_user_table {
	struct gm_user *users;       /* by uid */
	uint64_t all[GM_USER_SLOTS]; /* up to GM_USER_CHUNK_FDS: fds has the others */
	struct gm_user_bound bounds[GM_USER_SLOTS];
	struct gm_fd_budget fds; /* of the daemon */
	uint64_t looks;          /* see gm_user.overdue */
};

struct gm_orphan_work;
struct gm_log_limit_user;

struct gm_user {
	struct gm_user_table *table;
	uid_t uid;
	uint32_t refs;
	uint64_t has[GM_USER_SLOTS];
	uint64_t n_fds; /* of its flows, connections and clients */
	/* What other folders keep for the user; NULL: nothing. */
	struct gm_orphan_work
		*work; /* its orphaned accounts, and what ends in slices: daemon/lease */
	struct gm_log_limit_user *quiet; /* what the log left out about it: daemon/net */
	uint64_t overdue; /* the last look that found its claims doubtful: daemon/reclaim */
	UT_hash_handle hh;
};

/* What a user has of one slot on behalf of one object, in which the charge is embedded. All fields 0: nothing. */
struct gm_user_charge {
	struct gm_user *user; /* a reference */
	uint32_t slot;
	uint32_t amount;
};

/* The bounds follow from common/bounds.h. There is no bound on descriptors, unless the caller sets fds. */
void gm_user_table_init(struct gm_user_table *table);
/* Bounds descriptors on their way to clients: of one user, and of all. */
void gm_user_table_bound_fds(struct gm_user_table *table, uint64_t own, uint64_t all);
/* All users must be gone. */
void gm_user_table_deinit(struct gm_user_table *table);

/* Returns NULL if nobody refers to the user. */
struct gm_user *gm_user_find(const struct gm_user_table *table, uid_t uid);
/* Returns a reference, or NULL if there is no memory. */
struct gm_user *gm_user_get(struct gm_user_table *table, uid_t uid);
/* Counts in the account of descriptors what the user's flows, connections and clients have. */
void gm_user_count_fds(struct gm_user *user);
/* Frees a user without references. */
void gm_user_free(struct gm_user *user);

static inline struct gm_user *gm_user_ref(struct gm_user *user)
{
	user->refs++;
	return user;
}

/* user may be NULL. */
static inline void gm_user_unref(struct gm_user *user)
{
	if (user && --user->refs == 0)
		gm_user_free(user);
}

/* Returns whether a user that has own of all things may have one more. There may be most in all, and a user
 * may not have more than it leaves free: one user gets half at most, two get three quarters, and
 * the next one always finds some left. */
static inline bool gm_user_leaves_enough(uint64_t own, uint64_t all, uint64_t most)
{
	return own < gm_u64_minus(most, all);
}

#define GM_USER_E_OWN    1 /* as much as one user may have */
#define GM_USER_E_SHARED 2 /* as much as the user leaves to others */
/* See gm_user_check(), for more than a user may always have. */
int gm_user_check_share(const struct gm_user *user, enum gm_user_slot slot, uint64_t n);

/* Returns 0 if the user may have n more, or one of the above. */
static inline int gm_user_check(const struct gm_user *user, enum gm_user_slot slot, uint64_t n)
{
	if (n == 0 || user->has[slot] + n <= user->table->bounds[slot].always)
		return 0;
	return gm_user_check_share(user, slot, n);
}

/* Returns whether the user has fewer connections than clients, so that a client may want to resume its session. */
static inline bool gm_user_awaits_clients(const struct gm_user *user)
{
	return user->has[GM_USER_CONNECTIONS] < user->has[GM_USER_CLIENTS];
}

/* Begins a charge of nothing. */
static inline void gm_user_charge_init(
	struct gm_user_charge *charge, struct gm_user *user, enum gm_user_slot slot)
{
	*charge = (struct gm_user_charge){.user = gm_user_ref(user), .slot = slot};
}

/* Charges n more, or returns why not, as gm_user_check() does. */
int gm_user_charge(struct gm_user_charge *charge, uint64_t n);

/* Charges n more without a look at the bounds: the caller has looked, or an earlier daemon has. */
static inline void gm_user_charge_add(struct gm_user_charge *charge, uint64_t n)
{
	struct gm_user *user = charge->user;

	charge->amount += (uint32_t)n;
	user->has[charge->slot] += n;
	if (charge->slot < GM_USER_CHUNK_FDS)
		user->table->all[charge->slot] += n;
	else if (charge->slot == GM_USER_CHUNK_FDS)
		user->table->fds.chunks += n;
	else
		gm_user_count_fds(user);
}

/* Gives back n. */
static inline void gm_user_charge_remove(struct gm_user_charge *charge, uint64_t n)
{
	struct gm_user *user = charge->user;

	assert(charge->amount >= n);
	charge->amount -= (uint32_t)n;
	user->has[charge->slot] -= n;
	if (charge->slot < GM_USER_CHUNK_FDS)
		user->table->all[charge->slot] -= n;
	else if (charge->slot == GM_USER_CHUNK_FDS)
		user->table->fds.chunks -= n;
	else
		gm_user_count_fds(user);
}

/* Gives back everything. Does nothing if the charge was not begun, or was ended. */
static inline void gm_user_charge_deinit(struct gm_user_charge *charge)
{
	struct gm_user *user = charge->user;

	if (!user)
		return;
	gm_user_charge_remove(charge, charge->amount);
	charge->user = NULL;
	gm_user_unref(user);
}

#endif
