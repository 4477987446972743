/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See peace.h. This file promises that no user makes others move buffers, or return what they do not use, for
 * nothing, again and again. It must never ask a client, or decide about a request.
 */
#include "daemon/books/hash_table.h"
#include "daemon/queue/peace.h"

#include "common/arith.h"
#include "common/text/units.h"
#include "daemon/device/admit.h"
#include "daemon/reclaim/ladder_plan.h"
#include "daemon/queue/line.h"

static uint64_t peace_held_by(const struct gm_device *device, uid_t payer_uid)
{
	const struct gm_account *account;
	uint64_t sum = 0;

	DL_FOREACH (device->ledger.holders, account)
		if (account->payer->payer_uid == payer_uid)
			sum += account->held;
	return sum;
}

/* ---- buffers that others move: what the user keeps of it by the end of a rest is counted in bytes */

/* How much more the user has now than when others began to move buffers for it. */
static uint64_t peace_kept_by(const struct gm_device *device, const struct gm_line *line)
{
	return gm_minus(peace_held_by(device, line->payer_uid), line->held_before);
}

/* A client of another user moved buffers to host memory. */
static void peace_note_moved(struct gm_device *device, struct gm_line *line,
	const struct gm_asked *asked, uint64_t bytes)
{
	struct gm_queue *queue = &device->queue;

	if (line->moved == 0) {
		line->held_before = peace_held_by(device, line->payer_uid);
		gm_backoff_begin(&line->spill, gm_device_now(device),
			gm_policy_settle_ns(&device->info.policy));
		if (queue->judge_ns == 0 || line->spill.until_ns < queue->judge_ns)
			queue->judge_ns = line->spill.until_ns;
	}
	line->moved += gm_min(bytes, asked->bytes);
}

/* The user did not keep what others moved for it. */
static void peace_note_waste(const struct gm_device *device, struct gm_line *line)
{
	line->moved = 0;
	gm_backoff_fail(&line->spill, gm_device_now(device));
}

/* The user's rest is over. Whoever still has then what others moved for it has used it. */
static void peace_judge_user(const struct gm_device *device, struct gm_line *line)
{
	if (line->moved > peace_kept_by(device, line)) {
		peace_note_waste(device, line);
		return;
	}
	line->moved = 0;
	line->spill.failures = 0;
}

uint64_t gm_peace_due(const struct gm_device *device)
{
	return device->queue.judge_ns ? device->queue.judge_ns : UINT64_MAX;
}

void gm_peace_tick(struct gm_device *device)
{
	struct gm_queue *queue = &device->queue;
	uint64_t now = gm_device_now(device);
	struct gm_line *line;
	if (gm_peace_due(device) > now)
		return;

	queue->judge_ns = 0;
	DL_FOREACH (queue->lines, line) {
		if (line->moved == 0)
			continue;
		/* A request that waits may get it yet. Until then, each time that it asks, it is judged. */
		if (!gm_backoff_holds(&line->spill, now) && line->length == 0)
			peace_judge_user(device, line);
		if (line->moved == 0)
			continue;
		uint64_t next = gm_max(line->spill.until_ns,
			gm_plus(now, gm_policy_settle_ns(&device->info.policy)));
		if (queue->judge_ns == 0 || next < queue->judge_ns)
			queue->judge_ns = next;
	}
}

/* How much less the request lacks than at most: what was moved for it is free for it, and not held yet. */
static uint64_t peace_gained_by(const struct gm_device *device, const struct gm_waiting *w)
{
	const struct gm_refusal refusal = {
		.block = w->block, .tally = w->tally, .denied = w->denied};
	uint64_t lacks = gm_admit_missing(device, w->account, w->exact, &refusal);

	return gm_minus(w->lacked, gm_max(lacks, w->denied));
}

/* Whether what others moved for the request's user until now is in use, or still there for the request. If they took it
 * back, as much may be moved for nothing as others could return now, and no more than the request lacks. What it found
 * free is no reason to disturb anybody. */
static bool peace_uses_moved(struct gm_device *device, const struct gm_waiting *w)
{
	uint64_t kept = peace_kept_by(device, w->line), moved = w->line->moved;

	if (moved <= gm_plus(peace_gained_by(device, w), kept))
		return true;
	if (moved > gm_plus(w->lacked, kept))
		return false;
	uint64_t offered = gm_ladder_offered(device, w->account, w->tally, w->lacked, GM_REACH_ALL);
	return moved <= gm_plus(offered, kept);
}

/* Whether other users' clients may be asked to move buffers for the request: what they moved for its user
 * until now is in use, or its rest is over. */
static bool peace_may_disturb(struct gm_device *device, const struct gm_waiting *w)
{
	struct gm_line *line = w->line;
	uint64_t now = gm_device_now(device);

	gm_backoff_forget_old(&line->spill, now, gm_policy_settle_ns(&device->info.policy));
	if (peace_uses_moved(device, w))
		return true;
	if (gm_backoff_holds(&line->spill, now))
		return false;

	peace_note_waste(device, line);
	return true;
}

/* ---- what others cache: the user has to hold as much as it held when it had got it */

/* Other users' clients have peace from now on. If it is a new one and requests wait for what those clients
 * return, what the user got before does not count. */
static void peace_begin(const struct gm_device *device, struct gm_line *line)
{
	uint64_t now = gm_device_now(device);

	if (now >= line->peace_ns && line->askers > 0)
		line->enough = 0;
	line->peace_ns = gm_plus(now, gm_policy_settle_ns(&device->info.policy));
}

/* A client of another user returned what it did not use. If no request waits for that, the user has got its
 * memory already. */
static void peace_note_gift(const struct gm_device *device, struct gm_line *line)
{
	peace_begin(device, line);
	line->untaken = line->untaken || line->askers > 0;
}

void gm_peace_granted(struct gm_device *device, const struct gm_request *request)
{
	const struct gm_waiting *w = &request->waiting;
	uid_t payer_uid = w->account->payer->payer_uid;
	struct gm_line *line = w->disturbed ? gm_line_get(device, payer_uid) : NULL;
	if (!line)
		return;

	uint64_t held = peace_held_by(device, payer_uid);
	bool peace = gm_device_now(device) < line->peace_ns;
	line->enough = peace ? gm_max(line->enough, held) : held;
	if (line->askers == 0)
		line->untaken = false;
}

void gm_peace_failed(struct gm_device *device, const struct gm_request *request)
{
	struct gm_line *line = request->waiting.line;
	if (!request->waiting.disturbed)
		return;

	/* Other users' clients that still return something for this user now may do so for nothing. */
	if (line->owing_others > 0)
		peace_begin(device, line);
	line->enough = UINT64_MAX;
}

bool gm_peace_rests(const struct gm_device *device, const struct gm_waiting *w)
{
	const struct gm_line *line = w->line;
	/* The second round of a request that must not wait belongs to the first. */
	if (gm_device_now(device) >= line->peace_ns || (w->parked && w->disturbed))
		return false;
	return line->untaken || line->enough == UINT64_MAX ||
	       peace_held_by(device, line->payer_uid) < line->enough;
}

/* ---- both */

void gm_peace_returned(struct gm_device *device, const struct gm_account *account, uint64_t bytes)
{
	const struct gm_asked *asked = &account->asked;
	struct gm_line *line = asked->line;
	if (!line || line->payer_uid == account->payer->payer_uid)
		return;

	if (asked->rung == GM_RUNG_SPILL)
		peace_note_moved(device, line, asked, bytes);
	else
		peace_note_gift(device, line);
}

enum gm_ladder_reach gm_peace_reach(struct gm_device *device, const struct gm_waiting *w)
{
	if (gm_peace_rests(device, w))
		return GM_REACH_OWN;
	return peace_may_disturb(device, w) ? GM_REACH_ALL : GM_REACH_OWN_BUFFERS;
}

bool gm_peace_is_worth_it(struct gm_device *device, const struct gm_waiting *w, uint64_t lacks)
{
	const struct gm_line *line = w->line;
	bool moves = peace_uses_moved(device, w) || line->peace_ns >= line->spill.until_ns;

	return gm_ladder_offered(device, w->account, w->tally, lacks,
		       moves ? GM_REACH_ALL : GM_REACH_OWN_BUFFERS) >= lacks;
}

void gm_peace_disturb(struct gm_waiting *w)
{
	if (w->disturbed)
		return;
	w->disturbed = true;
	w->line->askers++;
}

/* ---- telling */

uint64_t gm_peace_left_ns(const struct gm_device *device, const struct gm_waiting *w)
{
	if (!(w->rests || w->spares) || !gm_waiting_lacks_memory(w))
		return 0;
	return gm_minus(
		w->rests ? w->line->peace_ns : w->line->spill.until_ns, gm_device_now(device));
}

void gm_peace_say(
	const struct gm_device *device, const struct gm_waiting *w, char detail[GM_DETAIL_BYTES])
{
	char left[GM_UNITS_TEXT];
	uint64_t ns = gm_peace_left_ns(device, w);

	detail[0] = '\0';
	if (ns == 0)
		return;
	gm_format_duration(ns, left);
	if (w->rests)
		gm_say(detail,
			"other users' clients returned memory that this user does not hold, and are "
			"left alone for %s at most",
			left);
	else
		gm_say(detail,
			"other users' clients moved buffers for memory that this user does not hold, "
			"and move no more for %s at most",
			left);
}
