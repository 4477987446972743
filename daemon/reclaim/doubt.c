/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose claims are doubted. An account knows what its own client has promised and not returned (ledger.h).
 * This file keeps that for the user when the client goes, in a table of a fixed size: a user costs one
 * place for each device. When all places are taken, a new doubt takes that of the oldest one.
 */
#include "daemon/reclaim/doubt.h"

#include <utlist.h>

#include "common/arith.h"

static bool doubt_holds(const struct gm_device *device, const struct gm_doubt *doubt)
{
	return doubt->broken > 0 && gm_device_now(device) < doubt->until_ns;
}

static void doubt_forget(struct gm_doubt *doubt)
{
	gm_user_unref(doubt->user);
	*doubt = (struct gm_doubt){0};
}

void gm_doubt_forget_all(struct gm_device *device)
{
	for (size_t i = 0; i < GM_DOUBTS; i++)
		doubt_forget(&device->ladder.doubts[i]);
}

/* The user's place in the table, or else the one that it can have. */
static struct gm_doubt *doubt_place(struct gm_device *device, struct gm_user *user)
{
	struct gm_doubt *doubts = device->ladder.doubts, *first = &doubts[0];

	for (size_t i = 0; i < GM_DOUBTS; i++) {
		if (!doubt_holds(device, &doubts[i]))
			doubt_forget(&doubts[i]);
		if (doubts[i].user == user)
			return &doubts[i];
		if (doubts[i].until_ns < first->until_ns)
			first = &doubts[i];
	}
	doubt_forget(first);
	first->user = gm_user_ref(user);
	return first;
}

void gm_doubt_remember(struct gm_device *device, const struct gm_account *account)
{
	if (account->asked.quiet.failures == 0)
		return;

	struct gm_doubt *doubt = doubt_place(device, account->payer->user);
	doubt->broken = gm_max(doubt->broken, account->asked.broken);
	doubt->until_ns = gm_plus(gm_device_now(device), GM_DOUBT_NS);
}

void gm_doubt_mend(struct gm_device *device, const struct gm_user *user, uint64_t bytes)
{
	for (size_t i = 0; i < GM_DOUBTS; i++) {
		struct gm_doubt *doubt = &device->ladder.doubts[i];
		if (doubt->user == user)
			doubt->broken -= gm_min(doubt->broken, bytes);
	}
}

uint64_t gm_doubt_look(struct gm_device *device)
{
	uint64_t look = ++device->env->users->looks;
	const struct gm_account *account;

	for (size_t i = 0; i < GM_DOUBTS; i++)
		if (doubt_holds(device, &device->ladder.doubts[i]))
			device->ladder.doubts[i].user->doubted = look;
	DL_FOREACH (device->ledger.holders, account)
		if (account->asked.quiet.failures > 0)
			account->payer->user->doubted = look;
	return look;
}
