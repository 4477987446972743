/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_QUOTA_H
#define GM_CORE_QUOTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uthash.h>

#include "gpumem/status.h"
#include "daemon/core/core.h"
#include "daemon/core/owner.h"

/*
 * Limits of owners, per device: max, guarantee, priority. (A limit is called quota in the code:
 * common/limits.h has the daemon's own bounds.)
 *
 * There are two layers. The configuration's is replaced as a whole by a reload; what was set at run
 * time lies over it, value by value, and stays over a reload until it is reset. Of several limits
 * that match a client every max applies. What counts against a limit is all that the owner's
 * clients are charged: leased, quarantined and admitted, whole chunks.
 *
 * A guarantee is kept free for its owner: to the others,
 *     available = available - sum of (guarantee - held, where positive).
 * Guarantees are given to one kind of owner only, add up to no more than the device's capacity, and
 * never to a client's name (which anybody may choose). A later, lower capacity is no error: then
 * what there is is kept.
 *
 * The priority of a client is that of the first of its session, container, unit, uid and gid that
 * has one, else 0; one given to its name can only lower it. More is better.
 *
 * Charges can pass a max in two ways only, both shown as over: the limit was set below what was
 * held, or a shared lease's payer went and its oldest opener pays now.
 */

enum {
	GM_QUOTA_MAX = 1,
	GM_QUOTA_GUARANTEE = 2,
	GM_QUOTA_PRIORITY = 4,
};
struct gm_quota_values {
	unsigned set; /* which of them are */
	uint64_t max; /* UINT64_MAX: none, which also lifts a configured one */
	uint64_t guarantee;
	int32_t priority;
};

#define GM_ALL_DEVICES UINT32_MAX

/* One row of the configuration. */
struct gm_quota_rule {
	struct gm_owner owner;
	uint32_t device; /* or GM_ALL_DEVICES; one for a device goes over one for all */
	struct gm_quota_values values;
};

/*
 * All of these change everything or nothing; on failure detail (GM_DETAIL_BYTES) says what
 * contradicts what. GPUMEM_E_INVALID: guarantees beyond the capacity, max below guarantee,
 * guarantees for two kinds of owner or for a client's name, nothing set. GPUMEM_E_NOT_FOUND: no
 * such device, session, or (reset) nothing was set for it. GPUMEM_E_LIMIT: too many
 * (GM_LIMIT_QUOTAS). GPUMEM_E_HOST_MEMORY.
 *
 * A max below what is held is no failure: see gm_quota_info.over.
 */
/* The configuration's layer, as a whole, and with it the policies of all devices (NULL: they stay),
 * by whose capacities guarantees are measured. What names a device that is not there is passed
 * over. */
gpumem_status gm_core_configure(struct gm_core *core, const struct gm_policy *policies,
	const struct gm_quota_rule *rules, size_t n_rules, char detail[GM_DETAIL_BYTES]);
/* The run-time layer: adds to what was set there before for this owner. */
gpumem_status gm_core_set_quota(struct gm_core *core, const struct gm_owner *owner, uint32_t device,
	const struct gm_quota_values *values, char detail[GM_DETAIL_BYTES]);
/* Forgets what was set at run time. owner NULL: of all of them. */
gpumem_status gm_core_reset_quota(struct gm_core *core, const struct gm_owner *owner,
	uint32_t device, char detail[GM_DETAIL_BYTES]);

/* One limit on one device, as it stands. */
struct gm_quota_info {
	struct gm_owner owner;
	uint32_t device;
	struct gm_quota_values values;   /* those in force */
	struct gm_quota_values run_time; /* of them, what was set at run time */
	uint64_t held;
	uint64_t clients; /* that it applies to */
	bool over;        /* held > max */
};
/* A place in the list of limits, for who does not go through it in one call; all 0: the first. It
 * stays good whatever becomes of limits. */
struct gm_quota_place {
	uint64_t age;
	uint32_t device;
};
/*
 * In the order in which owners were first named, each with its devices, from a place on. visit()
 * returns false where it takes no more: then that limit's place is written, and the result is true.
 */
bool gm_core_quota_each(struct gm_core *core, struct gm_quota_place *place,
	bool (*visit)(void *ctx, const struct gm_quota_info *info), void *ctx);

/* ---- core's own */

struct gm_session;
struct gm_account;
struct gm_tally;
struct gm_quota;

struct gm_quotas {
	struct gm_quota *by_owner; /* in order of age */
	uint64_t last_age;
};
void gm_quotas_deinit(struct gm_quotas *quotas);
/* A session's limits, found once and kept with its accounts until limits change. Before it holds
 * anything. */
void gm_quotas_join(struct gm_core *core, struct gm_session *session);
/* It holds nothing any more. Limits for it alone go. */
void gm_quotas_leave(struct gm_core *core, struct gm_session *session);
/* The highest priority of all sessions there are; INT32_MIN: there is none. */
int32_t gm_quotas_top(struct gm_core *core, uint32_t device);
const struct gm_owner *gm_quota_owner(const struct gm_quota *quota);

#endif
