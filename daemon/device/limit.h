/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DEVICE_LIMIT_H
#define GM_DEVICE_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/text/limit_values.h"
#include "daemon/books/owner.h"

/*
 * Limits of owners, per device (common/text/limit_values.h lists their values).
 *
 * There are two layers. A reload replaces the configuration's layer as a whole. What was set at run
 * time lies over it, value by value, and survives a reload until it is reset. If several limits
 * match a client, every max applies. All that the owner's clients are charged counts against a
 * limit: leased, quarantined and admitted, in whole chunks. A limit of a client's name is counted for
 * each user by itself, because anybody may choose that name. The limit of a run comes with its clients, is a user's own, and
 * is not one of GM_BOUND_LIMITS: there are no more of them than sessions.
 *
 * A guarantee is kept free for its owner. To all others,
 *     available = available - sum of (guarantee - held, where positive).
 * Guarantees can be given to one kind of owner only. They add up to no more than the device's
 * capacity, and they are never given to a client's name (which anybody may choose). A capacity that
 * is lowered later is no error: then whatever there is is kept.
 *
 * A client's priority is that of the first of its session, container, unit, uid and gid that has
 * one, else 0. A priority given to its name or its run can only lower it. More is better.
 *
 * Charges can pass a max in one way only, which is shown as over: the limit was set below what was
 * held.
 */

#define GM_ALL_DEVICES UINT32_MAX

/* One row of the configuration. */
struct gm_limit_rule {
	struct gm_owner owner;
	uint32_t device; /* or GM_ALL_DEVICES; a rule for one device overrides one for all */
	struct gm_limit_values values;
	/* The line of each kind's value, "FILE:LINE", for a refusal; NULL: not known */
	const char *sources[GM_LIMIT_N_KINDS];
};

/* One limit on one device, as it stands. */
struct gm_limit_info {
	struct gm_owner owner;
	const char *label; /* of a run: the name that people know it by; "": none */
	uint32_t device;
	struct gm_limit_values values;   /* the values in force */
	struct gm_limit_values run_time; /* those of them that were set at run time */
	uint64_t held;
	uint64_t clients; /* that the limit applies to */
	bool over;        /* held > max; of a client's name: for one of its users */
};
/* A place in the list of limits, for a caller that goes through it in several calls. All 0 is the
 * first place. A place stays valid whatever happens to the limits. */
struct gm_limit_place {
	uint64_t age;
	uint32_t device;
	/* Set by the caller: a uid + 1, to see of a client's name only what its clients of this user
	 * hold. */
	uint64_t user;
};

#endif
