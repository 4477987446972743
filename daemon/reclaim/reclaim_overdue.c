/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Users that are overdue. An account knows what its own client has promised and not returned (ledger.h).
 * This file keeps that for the user when the client goes, in a table of a fixed size: a user costs one
 * place for each device. When all places are taken, a new entry takes that of the oldest one.
 */
#include "daemon/reclaim/reclaim_overdue.h"

#include <utlist.h>

#include "common/arith.h"

static bool reclaim_overdue_holds(
	const struct gm_device *device, const struct gm_reclaim_overdue *overdue)
{
	return overdue->broken > 0 && gm_device_now(device) < overdue->until_ns;
}

static void reclaim_overdue_forget(struct gm_reclaim_overdue *overdue)
{
	gm_user_unref(overdue->user);
	*overdue = (struct gm_reclaim_overdue){0};
}

void gm_reclaim_overdue_forget_all(struct gm_device *device)
{
	for (size_t i = 0; i < GM_RECLAIM_OVERDUE; i++)
		reclaim_overdue_forget(&device->reclaim.overdues[i]);
}

/* The user's place in the table, or else the one that it can have. */
static struct gm_reclaim_overdue *reclaim_overdue_place(
	struct gm_device *device, struct gm_user *user)
{
	struct gm_reclaim_overdue *overdues = device->reclaim.overdues, *first = &overdues[0];

	for (size_t i = 0; i < GM_RECLAIM_OVERDUE; i++) {
		if (!reclaim_overdue_holds(device, &overdues[i]))
			reclaim_overdue_forget(&overdues[i]);
		if (overdues[i].user == user)
			return &overdues[i];
		if (overdues[i].until_ns < first->until_ns)
			first = &overdues[i];
	}
	reclaim_overdue_forget(first);
	first->user = gm_user_ref(user);
	return first;
}

void gm_reclaim_overdue_remember(struct gm_device *device, const struct gm_account *account)
{
	if (account->asked.quiet.failures == 0)
		return;

	struct gm_reclaim_overdue *overdue = reclaim_overdue_place(device, account->payer->user);
	overdue->broken = gm_u64_max(overdue->broken, account->asked.broken);
	overdue->until_ns = gm_u64_plus(gm_device_now(device), GM_RECLAIM_OVERDUE_NS);
}

void gm_reclaim_overdue_mend(struct gm_device *device, const struct gm_user *user, uint64_t bytes)
{
	for (size_t i = 0; i < GM_RECLAIM_OVERDUE; i++) {
		struct gm_reclaim_overdue *overdue = &device->reclaim.overdues[i];
		if (overdue->user == user)
			overdue->broken -= gm_u64_min(overdue->broken, bytes);
	}
}

uint64_t gm_reclaim_overdue_look(struct gm_device *device)
{
	uint64_t look = ++device->env->users->looks;
	const struct gm_account *account;

	for (size_t i = 0; i < GM_RECLAIM_OVERDUE; i++)
		if (reclaim_overdue_holds(device, &device->reclaim.overdues[i]))
			device->reclaim.overdues[i].user->overdue = look;
	DL_FOREACH (device->ledger.holders, account)
		if (account->asked.quiet.failures > 0)
			account->payer->user->overdue = look;
	return look;
}
