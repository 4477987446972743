/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks clients on behalf of an account. This file promises that clients are asked for no more than the account and
 * those before it lack, and that many asks of one user do not ask in vain over and over. reclaim_backoff.c decides whom it may
 * ask.
 */
#include "daemon/books/hash_table.h"
#include "daemon/reclaim/reclaim_ask.h"

#include "common/arith.h"
#include "daemon/device/device_admit.h"
#include "daemon/reclaim/reclaim_plan.h"
#include "daemon/reclaim/reclaim_run.h"
#include "daemon/reclaim/reclaim_backoff.h"

/* Whether memory that clients return for this trigger helps the request. Room on the device helps
 * every request that lacks it. */
static bool reclaim_ask_helps(const struct gm_reclaim_ask *ask, enum gm_reclaim_trigger trigger)
{
	return trigger == GM_RECLAIM_TRIGGER_REQUEST || gm_reclaim_ask_wants_device(ask);
}

/* The bytes that clients still owe for no user's request, and that help this one. */
static uint64_t reclaim_ask_owed_to_all(
	const struct gm_device *device, const struct gm_reclaim_ask *ask)
{
	uint64_t sum = 0;
	for (unsigned t = 0; t < GM_TRIGGERS; t++)
		if (t != GM_RECLAIM_TRIGGER_REQUEST && reclaim_ask_helps(ask, t))
			sum += gm_reclaim_owed(device, t);
	return sum;
}

/*
 * How much clients must be asked for, so that a request that lacks so many bytes gets them after those before it.
 * Clients that owe memory for other users' requests owe it to those alone. A user whose requests come and go could
 * otherwise keep others waiting for what its own clients promise, and never return.
 */
static uint64_t reclaim_ask_needed(const struct gm_device *device, const struct gm_reclaim_ask *ask,
	struct gm_reclaim_ask_ahead ahead, uint64_t lacks)
{
	uint64_t own = ask->user->owed, owed = gm_reclaim_owed(device, GM_RECLAIM_TRIGGER_REQUEST);
	/* One that may not wait asks for itself alone. If it fits, it overtakes those that wait for more. */
	uint64_t others = ask->nowait ? 0 : gm_u64_minus(ahead.others, owed - own);

	return gm_u64_minus(lacks + ahead.own + others, own + reclaim_ask_owed_to_all(device, ask));
}

void gm_reclaim_ask_join(struct gm_reclaim_ask *ask, struct gm_reclaim_user *user)
{
	ask->user = user;
	user->asks++;
	user->disturbing += ask->disturbed;
}

void gm_reclaim_ask_leave(struct gm_reclaim_ask *ask)
{
	ask->user->asks--;
	ask->user->disturbing -= ask->disturbed;
	ask->user = NULL;
}

bool gm_reclaim_ask_for_user_under_way(
	const struct gm_device *device, const struct gm_reclaim_ask *ask)
{
	for (unsigned t = 0; t < GM_TRIGGERS; t++)
		if (t != GM_RECLAIM_TRIGGER_REQUEST && reclaim_ask_helps(ask, t) &&
			gm_reclaim_asking(device, t))
			return true;
	return ask->user->owing > 0;
}

bool gm_reclaim_ask_under_way(const struct gm_device *device, const struct gm_reclaim_ask *ask)
{
	return gm_reclaim_asking(device, GM_RECLAIM_TRIGGER_REQUEST) ||
	       gm_reclaim_ask_for_user_under_way(device, ask);
}

bool gm_reclaim_ask_rests(const struct gm_device *device, const struct gm_reclaim_ask *ask)
{
	return ask->rests && ask->settled == device->reclaim.settled &&
	       gm_reclaim_backoff_rests(device, ask);
}

bool gm_reclaim_ask_is_due(const struct gm_device *device, const struct gm_reclaim_ask *ask)
{
	if (ask->rounds >= GM_TCACHE_ROUNDS)
		return false;
	return ask->rests || ask->settled != device->reclaim.settled ||
	       !gm_reclaim_ask_under_way(device, ask);
}

/* A request that may not wait for which content is copied has the time for that in each of its rounds. If the
 * first round brings too little, it must not be refused before others were asked. What is copied for other users
 * gives it no more time: else they could keep it from being refused. */
static void reclaim_ask_extend(const struct gm_device *device, struct gm_reclaim_ask *ask)
{
	uint64_t round = gm_reclaim_spill_ns(&device->info.policy);

	if (ask->user->moving > 0)
		ask->until_ns = gm_u64_max(
			ask->until_ns, gm_u64_plus(ask->since_ns, GM_TCACHE_ROUNDS * round));
}

/* The request waits until others may be asked, even if it may not wait, since it is not their fault. It does not
 * wait for what they do not have by what they say. */
static void reclaim_ask_wait_for_peace(
	struct gm_device *device, struct gm_reclaim_ask *ask, uint64_t lacks)
{
	const struct gm_policy *policy = &device->info.policy;
	uint64_t backoff = ask->user->backoff_ns;
	uint64_t latest = gm_u64_plus(ask->since_ns, gm_policy_settle_ns(policy));
	uint64_t rounds_ns = GM_TCACHE_ROUNDS * gm_policy_reclaim_ns(policy);

	if (ask->nowait && !gm_reclaim_backoff_is_worth_it(device, ask, lacks))
		return;
	ask->rests = true;
	ask->again_ns = gm_u64_min(ask->again_ns, backoff);
	/* However long its user disturbs others meanwhile. */
	if (ask->nowait)
		ask->until_ns = gm_u64_max(
			ask->until_ns, gm_u64_plus(gm_u64_min(backoff, latest), rounds_ns));
}

/* ---- asking */

/* Asks for so many bytes, of whomever it may ask. lacks: what the account itself lacks. */
static void reclaim_ask_for(
	struct gm_device *device, struct gm_reclaim_ask *ask, uint64_t bytes, uint64_t lacks)
{
	struct gm_reclaim_user *user = ask->user;
	struct gm_reclaim_ways ways = {.later = ask->rounds > 0, .user = user, .lacks = lacks};

	/* The daemon must not refuse it because those before it lack more. */
	if (ask->nowait)
		ways.least = gm_u64_min(lacks, bytes);

	ways.reach = gm_reclaim_backoff_reach(device, ask);
	struct gm_reclaim_outcome asked =
		gm_reclaim_request(device, ask->account, ask->tally, bytes, ways);
	if (ways.reach == GM_REACH_OWN) {
		reclaim_ask_wait_for_peace(device, ask, gm_u64_min(lacks, bytes));
		return;
	}

	ask->spares = asked.spares;
	if (asked.others)
		gm_reclaim_backoff_disturb(ask);
	if (asked.bytes == 0 && !ask->nowait) {
		user->dry_for = ask->account->held ? ask->account : NULL;
		user->dry = ask->tally;
		user->dry_ns = ask->again_ns;
	}
	/* A ask that may not wait has few rounds. One in which all clients were asked for other users was none. */
	bool none = ask->nowait && asked.bytes == 0 && gm_reclaim_ask_under_way(device, ask);
	if (!none && ask->rounds < UINT8_MAX)
		ask->rounds++;
}

/* Whether nobody had anything for it a moment ago. */
static bool reclaim_ask_is_dry(const struct gm_reclaim_ask *ask, uint64_t now)
{
	const struct gm_reclaim_user *user = ask->user;

	return now < user->dry_ns && user->dry == ask->tally &&
	       (!user->dry_for || user->dry_for == ask->account);
}

bool gm_reclaim_ask_begin(const struct gm_device *device, struct gm_reclaim_ask *ask)
{
	uint64_t now = gm_device_now(device);
	ask->again_ns = gm_u64_plus(now, gm_policy_settle_ns(&device->info.policy));
	ask->rests = ask->spares = false;

	if (!gm_reclaim_ask_lacks_memory(ask))
		return false;
	/* Nobody had anything a moment ago. To find that out again, for each of many asks, would cost the
	 * other uids time. */
	if (!ask->nowait && ask->rounds > 0 && reclaim_ask_is_dry(ask, now)) {
		ask->again_ns = ask->user->dry_ns;
		return false;
	}
	return true;
}

bool gm_reclaim_ask_clients(
	struct gm_device *device, struct gm_reclaim_ask *ask, struct gm_reclaim_ask_ahead ahead)
{
	struct gm_request_refusal refusal = {
		.block = ask->block, .tally = ask->tally, .denied = ask->denied};
	uint64_t missing = gm_device_admit_missing(device, ask->account, ask->exact, &refusal);

	if (missing < ask->denied)
		missing = ask->denied;
	ask->lacked = gm_u64_max(ask->lacked, missing);
	uint64_t needed = reclaim_ask_needed(device, ask, ahead, missing);

	if (needed > 0)
		reclaim_ask_for(device, ask, needed, missing);
	ask->settled = device->reclaim.settled;
	if (ask->nowait)
		reclaim_ask_extend(device, ask);
	return needed > 0;
}
