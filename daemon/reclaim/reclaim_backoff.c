/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See reclaim_backoff.h. This file promises that no user makes others move buffers, or return what they do not use, for
 * nothing, again and again. It must never ask a client, or decide about a request.
 */
#include "daemon/books/hash_table.h"
#include "daemon/reclaim/reclaim_backoff.h"

#include "common/arith.h"
#include "common/text/units.h"
#include "daemon/device/device_admit.h"
#include "daemon/reclaim/reclaim_plan.h"

static uint64_t reclaim_backoff_held_by(const struct gm_device *device, const struct gm_user *user)
{
	const struct gm_account *account;
	uint64_t sum = 0;

	DL_FOREACH (device->ledger.holders, account)
		if (account->payer->user == user)
			sum += account->held;
	return sum;
}

/* ---- users */

void gm_reclaim_backoff_add_user(
	struct gm_device *device, struct gm_reclaim_user *asker, struct gm_user *user)
{
	*asker = (struct gm_reclaim_user){.user = gm_user_ref(user)};
	DL_APPEND(device->reclaim.users, asker);
}

void gm_reclaim_backoff_remove_user(struct gm_device *device, struct gm_reclaim_user *asker)
{
	DL_DELETE(device->reclaim.users, asker);
	gm_user_unref(asker->user);
}

bool gm_reclaim_backoff_remembers(
	const struct gm_device *device, const struct gm_reclaim_user *user, uint64_t now)
{
	return user->moved > 0 || user->owing > 0 || now < user->backoff_ns ||
	       gm_backoff_remembers(&user->spill, now, gm_policy_settle_ns(&device->info.policy));
}

/* ---- buffers that others move: what the user keeps of it by the end of a rest is counted in bytes */

/* How much more the user has now than when others began to move buffers for it. */
static uint64_t reclaim_backoff_kept_by(
	const struct gm_device *device, const struct gm_reclaim_user *user)
{
	return gm_u64_minus(reclaim_backoff_held_by(device, user->user), user->held_before);
}

/* A client of another user moved buffers to host memory. */
static void reclaim_backoff_note_moved(struct gm_device *device, struct gm_reclaim_user *user,
	const struct gm_reclaim_asked *asked, uint64_t bytes)
{
	struct gm_reclaim *reclaim = &device->reclaim;

	if (user->moved == 0) {
		user->held_before = reclaim_backoff_held_by(device, user->user);
		gm_backoff_begin(&user->spill, gm_device_now(device),
			gm_policy_settle_ns(&device->info.policy));
		if (reclaim->judge_ns == 0 || user->spill.until_ns < reclaim->judge_ns)
			reclaim->judge_ns = user->spill.until_ns;
	}
	user->moved += gm_u64_min(bytes, asked->bytes);
}

/* The user did not keep what others moved for it. */
static void reclaim_backoff_note_waste(const struct gm_device *device, struct gm_reclaim_user *user)
{
	user->moved = 0;
	gm_backoff_fail(&user->spill, gm_device_now(device));
}

/* The user's rest is over. Whoever still has then what others moved for it has used it. */
static void reclaim_backoff_judge_user(const struct gm_device *device, struct gm_reclaim_user *user)
{
	if (user->moved > reclaim_backoff_kept_by(device, user)) {
		reclaim_backoff_note_waste(device, user);
		return;
	}
	user->moved = 0;
	user->spill.failures = 0;
}

uint64_t gm_reclaim_backoff_due(const struct gm_device *device)
{
	return device->reclaim.judge_ns ? device->reclaim.judge_ns : UINT64_MAX;
}

void gm_reclaim_backoff_tick(struct gm_device *device)
{
	struct gm_reclaim *reclaim = &device->reclaim;
	uint64_t now = gm_device_now(device);
	struct gm_reclaim_user *user;
	if (gm_reclaim_backoff_due(device) > now)
		return;

	reclaim->judge_ns = 0;
	DL_FOREACH (reclaim->users, user) {
		if (user->moved == 0)
			continue;
		/* A request that waits may get it yet. Until then, each time that it asks, it is judged. */
		if (!gm_backoff_holds(&user->spill, now) && user->asks == 0)
			reclaim_backoff_judge_user(device, user);
		if (user->moved == 0)
			continue;
		uint64_t next = gm_u64_max(user->spill.until_ns,
			gm_u64_plus(now, gm_policy_settle_ns(&device->info.policy)));
		if (reclaim->judge_ns == 0 || next < reclaim->judge_ns)
			reclaim->judge_ns = next;
	}
}

/* How much less the request lacks than at most: what was moved for it is free for it, and not held yet. */
static uint64_t reclaim_backoff_gained_by(
	const struct gm_device *device, const struct gm_reclaim_ask *ask)
{
	const struct gm_request_refusal refusal = {
		.block = ask->block, .tally = ask->tally, .denied = ask->denied};
	uint64_t lacks = gm_device_admit_missing(device, ask->account, ask->exact, &refusal);

	return gm_u64_minus(ask->lacked, gm_u64_max(lacks, ask->denied));
}

/* Whether what others moved for the request's user until now is in use, or still there for the request. If they took it
 * back, as much may be moved for nothing as others could return now, and no more than the request lacks. What it found
 * free is no reason to disturb anybody. */
static bool reclaim_backoff_uses_moved(struct gm_device *device, const struct gm_reclaim_ask *ask)
{
	uint64_t kept = reclaim_backoff_kept_by(device, ask->user), moved = ask->user->moved;

	if (moved <= gm_u64_plus(reclaim_backoff_gained_by(device, ask), kept))
		return true;
	if (moved > gm_u64_plus(ask->lacked, kept))
		return false;
	uint64_t offered =
		gm_reclaim_offered(device, ask->account, ask->tally, ask->lacked, GM_REACH_ALL);
	return moved <= gm_u64_plus(offered, kept);
}

/* Whether other users' clients may be asked to move buffers for the request: what they moved for its user
 * until now is in use, or its rest is over. */
static bool reclaim_backoff_may_disturb(struct gm_device *device, const struct gm_reclaim_ask *ask)
{
	struct gm_reclaim_user *user = ask->user;
	uint64_t now = gm_device_now(device);

	gm_backoff_forget_old(&user->spill, now, gm_policy_settle_ns(&device->info.policy));
	if (reclaim_backoff_uses_moved(device, ask))
		return true;
	if (gm_backoff_holds(&user->spill, now))
		return false;

	reclaim_backoff_note_waste(device, user);
	return true;
}

/* ---- what others cache: the user has to hold as much as it held when it had got it */

/* Other users' clients are exempt from now on. If it is a new one and requests wait for what those clients
 * return, what the user got before does not count. */
static void reclaim_backoff_begin(const struct gm_device *device, struct gm_reclaim_user *user)
{
	uint64_t now = gm_device_now(device);

	if (now >= user->backoff_ns && user->disturbing > 0)
		user->enough = 0;
	user->backoff_ns = gm_u64_plus(now, gm_policy_settle_ns(&device->info.policy));
}

/* A client of another user returned what it did not use. If no request waits for that, the user has got its
 * memory already. */
static void reclaim_backoff_note_gift(const struct gm_device *device, struct gm_reclaim_user *user)
{
	reclaim_backoff_begin(device, user);
	user->untaken = user->untaken || user->disturbing > 0;
}

void gm_reclaim_backoff_granted(const struct gm_device *device, struct gm_reclaim_user *user,
	const struct gm_reclaim_ask *ask)
{
	if (!ask->disturbed)
		return;

	uint64_t held = reclaim_backoff_held_by(device, user->user);
	bool backoff = gm_device_now(device) < user->backoff_ns;
	user->enough = backoff ? gm_u64_max(user->enough, held) : held;
	if (user->disturbing == 0)
		user->untaken = false;
}

void gm_reclaim_backoff_failed(const struct gm_device *device, const struct gm_reclaim_ask *ask)
{
	struct gm_reclaim_user *user = ask->user;
	if (!ask->disturbed)
		return;

	/* Other users' clients that still return something for this user now may do so for nothing. */
	if (user->owing_others > 0)
		reclaim_backoff_begin(device, user);
	user->enough = UINT64_MAX;
}

bool gm_reclaim_backoff_rests(const struct gm_device *device, const struct gm_reclaim_ask *ask)
{
	const struct gm_reclaim_user *user = ask->user;
	/* The second round of a request that must not wait belongs to the first. */
	if (gm_device_now(device) >= user->backoff_ns || (ask->nowait && ask->disturbed))
		return false;
	return user->untaken || user->enough == UINT64_MAX ||
	       reclaim_backoff_held_by(device, user->user) < user->enough;
}

/* ---- both */

void gm_reclaim_backoff_returned(
	struct gm_device *device, const struct gm_account *account, uint64_t bytes)
{
	const struct gm_reclaim_asked *asked = &account->asked;
	struct gm_reclaim_user *user = asked->user;
	if (!user || user->user == account->payer->user)
		return;

	if (asked->stage == GM_STAGE_SPILL)
		reclaim_backoff_note_moved(device, user, asked, bytes);
	else
		reclaim_backoff_note_gift(device, user);
}

enum gm_reclaim_reach gm_reclaim_backoff_reach(
	struct gm_device *device, const struct gm_reclaim_ask *ask)
{
	if (gm_reclaim_backoff_rests(device, ask))
		return GM_REACH_OWN;
	return reclaim_backoff_may_disturb(device, ask) ? GM_REACH_ALL : GM_REACH_OWN_BUFFERS;
}

bool gm_reclaim_backoff_is_worth_it(
	struct gm_device *device, const struct gm_reclaim_ask *ask, uint64_t lacks)
{
	const struct gm_reclaim_user *user = ask->user;
	bool moves =
		reclaim_backoff_uses_moved(device, ask) || user->backoff_ns >= user->spill.until_ns;

	return gm_reclaim_offered(device, ask->account, ask->tally, lacks,
		       moves ? GM_REACH_ALL : GM_REACH_OWN_BUFFERS) >= lacks;
}

void gm_reclaim_backoff_disturb(struct gm_reclaim_ask *ask)
{
	if (ask->disturbed)
		return;
	ask->disturbed = true;
	ask->user->disturbing++;
}

/* ---- telling */

uint64_t gm_reclaim_backoff_left_ns(
	const struct gm_device *device, const struct gm_reclaim_ask *ask)
{
	if (!(ask->rests || ask->spares) || !gm_reclaim_ask_lacks_memory(ask))
		return 0;
	return gm_u64_minus(ask->rests ? ask->user->backoff_ns : ask->user->spill.until_ns,
		gm_device_now(device));
}

void gm_reclaim_backoff_say(const struct gm_device *device, const struct gm_reclaim_ask *ask,
	char detail[GM_DETAIL_BYTES])
{
	char left[GM_UNITS_TEXT];
	uint64_t ns = gm_reclaim_backoff_left_ns(device, ask);

	detail[0] = '\0';
	if (ns == 0)
		return;
	gm_format_duration(ns, left);
	if (ask->rests)
		gm_text_say(detail,
			"other users' clients returned memory that this user does not hold, and are "
			"left alone for %s at most",
			left);
	else
		gm_text_say(detail,
			"other users' clients moved buffers for memory that this user does not hold, "
			"and move no more for %s at most",
			left);
}
