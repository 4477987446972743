/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DEVICE_QUOTA_PRIVATE_H
#define GM_DEVICE_QUOTA_PRIVATE_H

#include <stddef.h>

#include "daemon/device/device_private.h"
#include "daemon/device/quota.h"

/*
 * The table of all limits, for core's own modules.
 *
 * A change takes three steps, so that the modules above can take part in it. First,
 * gm_quotas_configured(), gm_quotas_with() or gm_quotas_without() makes a changed copy of the table
 * and checks it as a whole. Second, gm_quotas_replace() puts the copy in force, which cannot fail.
 * Third, whoever points to a tally of the old table looks for the new one with gm_quotas_moved().
 */
struct gm_quotas {
	struct gm_env *env;
	/* The owner of this kind that a session counts for. Returns false if it has none. The
	 * session module sets this: quotas cannot look into a session. */
	bool (*owner_of)(const struct gm_session *session, enum gm_owner_kind kind,
		struct gm_owner *ret_owner);
	struct gm_quota *by_owner; /* in order of age */
	uint64_t last_age;
};
void gm_quotas_deinit(struct gm_quotas *quotas);

/*
 * Each makes a changed copy of the table. On failure, *ret_next stays untouched and detail says
 * why; see gm_core_configure(), gm_core_set_quota() and gm_core_reset_quota() for the outcomes.
 * policies: those that the devices will have; NULL: those they have.
 */
gpumem_status gm_quotas_configured(const struct gm_quotas *quotas, const struct gm_policy *policies,
	const struct gm_quota_rule *rules, size_t n_rules, struct gm_quotas *ret_next,
	char detail[GM_DETAIL_BYTES]);
gpumem_status gm_quotas_with(const struct gm_quotas *quotas, const struct gm_owner *owner,
	uint32_t device, const struct gm_quota_values *values, struct gm_quotas *ret_next,
	char detail[GM_DETAIL_BYTES]);
gpumem_status gm_quotas_without(const struct gm_quotas *quotas, const struct gm_owner *owner,
	uint32_t device, struct gm_quotas *ret_next, char detail[GM_DETAIL_BYTES]);
/* Where the record of what is set for this owner at run time is; 0: there is none. */
uint32_t gm_quotas_place(const struct gm_quotas *quotas, const struct gm_owner *owner);
/* Notes that the run-time limit of this owner already has a record, which an earlier daemon wrote. */
void gm_quotas_adopt(
	struct gm_quotas *quotas, const struct gm_owner *owner, uint64_t id, uint32_t place);
/* Puts the table in force and lets every payer join it. Afterwards *next is the old table. */
void gm_quotas_replace(struct gm_quotas *quotas, struct gm_quotas *next);
/* The tally in force of the owner whose tally in the old table is given. NULL: the owner has no
 * limit any more. */
const struct gm_tally *gm_quotas_moved(
	const struct gm_quotas *quotas, const struct gm_tally *old, uint32_t device);

/* Makes the limit of the payer's run, if it has one and is the first of it: before gm_quotas_join().
 * -ENOMEM. */
int gm_quotas_begin_run(struct gm_quotas *quotas, struct gm_payer *payer);
/* Gives the limit of the payer's run the name that people know the run by: the first one that is not "". */
void gm_quotas_name_run(struct gm_quotas *quotas, const struct gm_payer *payer, const char *name);
/* Finds a payer's limits and keeps them with its accounts until limits change. The payer must not
 * hold anything yet. */
void gm_quotas_join(struct gm_quotas *quotas, struct gm_payer *payer);
/* The payer holds nothing any more. Limits for it alone, and for a run that it was the last of, are
 * removed. */
void gm_quotas_leave(struct gm_quotas *quotas, struct gm_payer *payer);
/* See gm_core_quota_each(). */
bool gm_quotas_each(const struct gm_quotas *quotas, struct gm_quota_place *place,
	bool (*visit)(void *ctx, const struct gm_quota_info *info), void *ctx);

const struct gm_owner *gm_quota_owner(const struct gm_quota *quota);
/* Names the owner in a sentence; a run by the name of its first client. Returns text. */
const char *gm_quota_say(const struct gm_quota *quota, char text[GM_OWNER_TEXT]);

#endif
