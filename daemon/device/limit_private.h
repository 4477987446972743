/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DEVICE_LIMIT_PRIVATE_H
#define GM_DEVICE_LIMIT_PRIVATE_H

#include <stddef.h>

#include "daemon/device/device_private.h"
#include "daemon/books/record.h"
#include "daemon/device/limit.h"

/*
 * The table of all limits, for core's own modules.
 *
 * A change takes three steps, so that the modules above can take part in it. First,
 * gm_limits_configured(), gm_limits_with() or gm_limits_without() makes a changed copy of the table
 * and checks it as a whole. Second, gm_limits_replace() puts the copy in force, which cannot fail.
 * Third, whoever points to a tally of the old table looks for the new one with gm_limits_moved().
 */
struct gm_limits {
	struct gm_env *env;
	/* The owner of this kind that a payer counts for. Returns false if it has none. The
	 * session module sets this: limits cannot look into a session or an orphaned account. */
	bool (*owner_of)(const struct gm_account_payer *payer, enum gm_owner_kind kind,
		struct gm_owner *ret_owner);
	struct gm_limit *by_owner; /* in order of age */
	uint64_t last_age;
};
void gm_limits_deinit(struct gm_limits *limits);

/* The configuration's layer. */
struct gm_limit_config {
	const struct gm_policy
		*policies; /* those that the devices will have; NULL: those they have */
	const struct gm_limit_rule *rules;
	size_t n_rules;
};

/*
 * Each makes a changed copy of the table. On failure, *ret_next stays untouched and detail says
 * why; see gm_core_configure(), gm_core_set_limit() and gm_core_reset_limit() for the outcomes.
 */
gpumem_status gm_limits_configured(const struct gm_limits *limits,
	const struct gm_limit_config *config, struct gm_limits *ret_next,
	char detail[GM_DETAIL_BYTES]);
gpumem_status gm_limits_with(const struct gm_limits *limits, const struct gm_owner *owner,
	uint32_t device, const struct gm_limit_values *values, struct gm_limits *ret_next,
	char detail[GM_DETAIL_BYTES]);
gpumem_status gm_limits_without(const struct gm_limits *limits, const struct gm_owner *owner,
	uint32_t device, struct gm_limits *ret_next, char detail[GM_DETAIL_BYTES]);
/* Where the record of what is set for this owner at run time is; 0: there is none. */
uint32_t gm_limits_place(const struct gm_limits *limits, const struct gm_owner *owner);
/* Notes that the run-time limit of this owner already has a record, which an earlier daemon wrote. */
void gm_limits_adopt(
	struct gm_limits *limits, const struct gm_owner *owner, uint64_t id, uint32_t place);
/* Reads what a record of a limit set on the device at this place of the record. Returns the key of the device. */
uint64_t gm_limits_read(
	const struct gm_record_limit *record, uint64_t device, struct gm_limit_values *ret);
/* Writes the record of an owner that has a run-time limit. -ENOSPC, … */
int gm_limits_record(struct gm_limits *limits, const struct gm_owner *owner);
/* Puts the table in force and lets every payer join it. Afterwards *next is the old table. */
void gm_limits_replace(struct gm_limits *limits, struct gm_limits *next);
/* The tally in force of the owner whose tally in the old table is given. NULL: the owner has no
 * limit any more. */
const struct gm_ledger_tally *gm_limits_moved(
	const struct gm_limits *limits, const struct gm_ledger_tally *old, uint32_t device);

/* Makes the limit of the payer's run, if it has one and is the first of it: before gm_limits_join().
 * -ENOMEM. */
int gm_limits_begin_run(struct gm_limits *limits, struct gm_account_payer *payer);
/* Gives the limit of the payer's run the name that people know the run by: the first one that is not "". */
void gm_limits_name_run(
	struct gm_limits *limits, const struct gm_account_payer *payer, const char *name);
/* Finds a payer's limits and keeps them with its accounts until limits change. The payer must not
 * hold anything yet. */
void gm_limits_join(struct gm_limits *limits, struct gm_account_payer *payer);
/* The payer holds nothing any more. Limits for it alone, and for a run that it was the last of, are
 * removed. */
void gm_limits_leave(struct gm_limits *limits, struct gm_account_payer *payer);
/* See gm_core_limit_each(). */
bool gm_limits_each(const struct gm_limits *limits, struct gm_limit_place *place,
	bool (*visit)(void *ctx, const struct gm_limit_info *info), void *ctx);

const struct gm_owner *gm_limit_owner(const struct gm_limit *limit);
/* The answer for the account asked about last: it holds for all accounts of the same owner. */
struct gm_limit_most {
	bool known;
	const struct gm_ledger_tally *guaranteed;
	const struct gm_owner *owner;
};
/* Returns the owner for whom most of the device is kept free from the account, or NULL. */
const struct gm_owner *gm_limits_most_kept(const struct gm_limits *limits, uint32_t device,
	const struct gm_account *account, struct gm_limit_most *last);
/* Names the owner in a sentence; a run by the name of its first client. Returns text. */
const char *gm_limit_say(const struct gm_limit *limit, char text[GM_OWNER_TEXT]);

/* ---- for limit.c and limit_check.c only */

struct gm_limit_on_device {
	struct gm_limit_values configured, run_time;
	struct gm_ledger_tally tally;
};

struct gm_limit {
	struct gm_owner owner;
	uint64_t age; /* survives a change of the table */
	uint64_t id;  /* of the record of what was set at run time */
	uint32_t place;
	uint64_t clients;
	/* Display name of a run: the argument of gpumem-run --name if named is set, otherwise the name of its first client. */
	char label[GM_BOUND_NAME_BYTES + 1];
	bool named;
	/* A limit of a client's name has an account for each user whose clients have that name. In
	 * one of these: the limit, and the next account of it. In the limit: the first one. */
	struct gm_limit *model, *next_user, *users;
	UT_hash_handle hh;
	struct gm_limit_on_device devices[];
};

/* Lays one layer of values over another. */
void gm_limit_put(struct gm_limit_values *values, const struct gm_limit_values *over);
struct gm_limit_values gm_limit_in_force(const struct gm_limit_on_device *on);

/* Checks all guarantees, and changes nothing. config: the configuration that made the table; NULL: a change at run time did. Then
 * detail does not name the layers of the values that contradict one another. */
gpumem_status gm_limit_check(const struct gm_limits *limits, const struct gm_limit_config *config,
	char detail[GM_DETAIL_BYTES]);

#endif
