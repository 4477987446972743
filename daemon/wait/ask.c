/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking clients on behalf of a request that waits. This file promises that clients are asked for no
 * more than the request and those before it lack, and that a long line of requests does not ask in
 * vain over and over. It also promises that no user makes others move buffers, or return what they do not
 * use, for nothing, again and again. It must never decide about a request.
 */
#include "daemon/books/hash_table.h"
#include "daemon/wait/ask.h"

#include "common/arith.h"
#include "common/units.h"
#include "daemon/device/admit.h"
#include "daemon/device/ladder_plan.h"
#include "daemon/device/ladder_run.h"
#include "daemon/wait/line.h"

/* Asking walks all clients, so it uses up this much of the line's slice. */
#define ASK_WORK 16
/* How often the time doubles for which others move no buffers for a user that did not keep what they made
 * room for. */
#define ASK_REST_DOUBLED 6

/* The bytes that requests ahead of it in its own line want from the same place. Looks at a bounded number of them. */
static uint64_t ask_wanted_in_line(struct gm_device *device, const struct gm_request *request)
{
	const struct gm_waiting *w = &request->waiting;
	const struct gm_request *r = w->line->requests;
	uint64_t sum = 0;

	for (unsigned n = 0; r != request && n < GM_QUEUE_SLICE; n++, r = r->waiting.next) {
		device->queue.steps++;
		if (gm_waiting_wants_device(&r->waiting) == gm_waiting_wants_device(w) &&
			r->waiting.tally == w->tally)
			sum += r->waiting.exact;
	}
	return sum;
}

/* The bytes that other users' requests ahead of it want from the device: the first one of each line, since the
 * uids take turns. */
static uint64_t ask_wanted_by_others(struct gm_device *device, const struct gm_waiting *w)
{
	const struct gm_line *line;
	uint64_t sum = 0;

	if (!gm_waiting_wants_device(w))
		return 0;
	DL_FOREACH (device->queue.lines, line) {
		device->queue.steps++;
		if (line == w->line || !line->first)
			continue;
		if (gm_waiting_before(&line->first->waiting, w->priority, w->order))
			sum += line->first->waiting.exact;
	}
	return sum;
}

/* Whether memory that clients return for this trigger helps the request. Room on the device helps
 * every request that lacks it. */
static bool ask_helps(const struct gm_waiting *w, enum gm_trigger trigger)
{
	return trigger == GM_TRIGGER_REQUEST || gm_waiting_wants_device(w);
}

/* The bytes that clients still owe for no user's request, and that help this one. */
static uint64_t ask_owed_to_all(const struct gm_device *device, const struct gm_waiting *w)
{
	uint64_t sum = 0;
	for (unsigned t = 0; t < GM_TRIGGERS; t++)
		if (t != GM_TRIGGER_REQUEST && ask_helps(w, t))
			sum += gm_ladder_owed(device, t);
	return sum;
}

/*
 * How much clients must be asked for, so that a request that lacks so many bytes gets them after those before it.
 * What clients owe for other users' requests serves those requests alone. A user whose requests come and go could
 * otherwise keep others waiting for what its own clients promise, and never return.
 */
static uint64_t ask_needed(
	struct gm_device *device, const struct gm_request *request, uint64_t lacks)
{
	const struct gm_waiting *w = &request->waiting;
	uint64_t owed = gm_ladder_owed(device, GM_TRIGGER_REQUEST);
	uint64_t own = owed ? gm_ladder_owed_for(device, w->line->payer_uid) : 0;
	uint64_t others = gm_minus(ask_wanted_by_others(device, w), owed - own);

	return gm_minus(lacks + ask_wanted_in_line(device, request) + others,
		own + ask_owed_to_all(device, w));
}

bool gm_ask_under_way(const struct gm_device *device, const struct gm_waiting *w)
{
	for (unsigned t = 0; t < GM_TRIGGERS; t++)
		if (ask_helps(w, t) && gm_ladder_asking(device, t))
			return true;
	return false;
}

/* A parked request for which content is copied has the time for that in each of its rounds. If the
 * first round brings too little, it must not be refused before others were asked. */
static void ask_extend(const struct gm_device *device, struct gm_waiting *w)
{
	uint64_t round = gm_ladder_spill_ns(&device->info.policy);

	for (unsigned t = 0; t < GM_TRIGGERS; t++)
		if (ask_helps(w, t) && gm_ladder_spill_until(device, t) > 0)
			w->until_ns =
				gm_max(w->until_ns, gm_plus(w->since_ns, GM_PARKED_ROUNDS * round));
}

static uint64_t ask_held_by(const struct gm_device *device, uid_t payer_uid)
{
	const struct gm_account *account;
	uint64_t sum = 0;

	DL_FOREACH (device->ledger.holders, account)
		if (account->payer->payer_uid == payer_uid)
			sum += account->held;
	return sum;
}

/* What the user has now and had not when others began to move buffers for it. */
static uint64_t ask_kept_by(const struct gm_device *device, const struct gm_line *line)
{
	return gm_minus(ask_held_by(device, line->payer_uid), line->held_before);
}

static uint64_t ask_rest(const struct gm_device *device, unsigned wasted)
{
	return gm_policy_settle_ns(&device->info.policy) << wasted;
}

/* Other users' clients have peace from now on. If it is a new one and requests wait for what those clients
 * return, what the user got before does not count. */
static void ask_begin_peace(const struct gm_device *device, struct gm_line *line)
{
	uint64_t now = gm_device_now(device);

	if (now >= line->peace_ns && line->askers > 0)
		line->enough = 0;
	line->peace_ns = gm_plus(now, gm_policy_settle_ns(&device->info.policy));
}

/* A client of another user returned what it did not use. If no request waits for that, the user has got its
 * memory already. */
static void ask_note_gift(const struct gm_device *device, struct gm_line *line)
{
	ask_begin_peace(device, line);
	line->untaken = line->untaken || line->askers > 0;
}

void gm_ask_returned(struct gm_device *device, const struct gm_account *account, uint64_t bytes)
{
	const struct gm_asked *asked = &account->asked;
	if (asked->trigger != GM_TRIGGER_REQUEST || asked->for_uid == account->payer->payer_uid)
		return;

	/* Without memory for the line, nothing is counted. */
	struct gm_line *line = gm_line_get(device, asked->for_uid);
	if (!line)
		return;
	if (asked->rung != GM_RUNG_SPILL) {
		ask_note_gift(device, line);
		return;
	}
	if (line->moved == 0) {
		struct gm_queue *queue = &device->queue;
		line->held_before = ask_held_by(device, line->payer_uid);
		line->spill_ns = gm_plus(gm_device_now(device), ask_rest(device, line->wasted));
		if (queue->judge_ns == 0 || line->spill_ns < queue->judge_ns)
			queue->judge_ns = line->spill_ns;
	}
	line->moved += gm_min(bytes, asked->bytes);
}

/* What others moved for the user was for nothing: its next rest is twice as long. */
static void ask_note_waste(const struct gm_device *device, struct gm_line *line)
{
	line->moved = 0;
	if (line->wasted < ASK_REST_DOUBLED)
		line->wasted++;
	line->forget_ns = gm_plus(gm_device_now(device), ask_rest(device, ASK_REST_DOUBLED));
}

/* The user's rest is over. Whoever still has then what others moved for it has used it. */
static void ask_judge_user(const struct gm_device *device, struct gm_line *line)
{
	if (line->moved > ask_kept_by(device, line)) {
		ask_note_waste(device, line);
		return;
	}
	line->moved = line->wasted = 0;
	line->forget_ns = 0;
}

uint64_t gm_ask_due(const struct gm_device *device)
{
	return device->queue.judge_ns ? device->queue.judge_ns : UINT64_MAX;
}

void gm_ask_tick(struct gm_device *device)
{
	struct gm_queue *queue = &device->queue;
	uint64_t now = gm_device_now(device);
	struct gm_line *line;
	if (gm_ask_due(device) > now)
		return;

	queue->judge_ns = 0;
	DL_FOREACH (queue->lines, line) {
		if (line->moved == 0)
			continue;
		/* A request that waits may get it yet. Until then, each time that it asks, it is judged. */
		if (now >= line->spill_ns && line->length == 0)
			ask_judge_user(device, line);
		if (line->moved == 0)
			continue;
		uint64_t next = gm_max(line->spill_ns, gm_plus(now, ask_rest(device, 0)));
		if (queue->judge_ns == 0 || next < queue->judge_ns)
			queue->judge_ns = next;
	}
}

/* Whether what others moved for the request's user until now is in use. What the request itself lacks counts as
 * well, since what was moved for it in its first round is not held yet. What it found free is no reason to disturb
 * anybody. */
static bool ask_uses_moved(const struct gm_device *device, const struct gm_waiting *w)
{
	return w->line->moved <= gm_plus(w->lacked, ask_kept_by(device, w->line));
}

/* Whether other users' clients may be asked to move buffers for the request: what they moved for its user
 * until now is in use, or its rest is over. */
static bool ask_may_disturb(const struct gm_device *device, const struct gm_waiting *w)
{
	struct gm_line *line = w->line;
	uint64_t now = gm_device_now(device);

	if (now >= line->forget_ns)
		line->wasted = 0;
	if (ask_uses_moved(device, w))
		return true;
	if (now < line->spill_ns)
		return false;

	ask_note_waste(device, line);
	return true;
}

/* ---- leaving other users' clients alone */

void gm_ask_granted(struct gm_device *device, const struct gm_request *request)
{
	const struct gm_waiting *w = &request->waiting;
	uid_t payer_uid = w->account->payer->payer_uid;
	struct gm_line *line = w->disturbed ? gm_line_get(device, payer_uid) : NULL;
	if (!line)
		return;

	uint64_t held = ask_held_by(device, payer_uid);
	bool peace = gm_device_now(device) < line->peace_ns;
	line->enough = peace ? gm_max(line->enough, held) : held;
	if (line->askers == 0)
		line->untaken = false;
}

void gm_ask_failed(struct gm_device *device, const struct gm_request *request)
{
	struct gm_line *line = request->waiting.line;
	if (!request->waiting.disturbed)
		return;

	/* Clients that still return something now do so for nothing. */
	if (gm_ladder_asking(device, GM_TRIGGER_REQUEST))
		ask_begin_peace(device, line);
	line->enough = UINT64_MAX;
}

/* Whether other users' clients are left alone for now: they returned something for the request's user a
 * moment ago, and it has not taken that yet, did not take it, or has given it back. */
static bool ask_rests(const struct gm_device *device, const struct gm_waiting *w)
{
	const struct gm_line *line = w->line;
	/* The second round of a request that must not wait belongs to the first. */
	if (gm_device_now(device) >= line->peace_ns || (w->parked && w->disturbed))
		return false;
	return line->untaken || ask_held_by(device, line->payer_uid) < line->enough;
}

/* Whether clients say that they have what the request lacks itself, and may be asked for it after the peace. */
static bool ask_is_offered(struct gm_device *device, const struct gm_waiting *w, uint64_t lacks)
{
	const struct gm_line *line = w->line;
	bool moves = ask_uses_moved(device, w) || line->peace_ns >= line->spill_ns;

	return gm_ladder_offered(device, w->account, w->tally, lacks,
		       moves ? GM_REACH_ALL : GM_REACH_OWN_BUFFERS) >= lacks;
}

/* The request waits until others may be asked, even if it is parked, since it is not their fault. It does not
 * wait for what they do not have by what they say. */
static void ask_wait_for_peace(struct gm_device *device, struct gm_waiting *w, uint64_t lacks)
{
	const struct gm_policy *policy = &device->info.policy;
	uint64_t peace = w->line->peace_ns;
	uint64_t latest = gm_plus(w->since_ns, gm_policy_settle_ns(policy));
	uint64_t rounds_ns = GM_PARKED_ROUNDS * gm_policy_reclaim_ns(policy);

	if (w->parked && !ask_is_offered(device, w, lacks))
		return;
	w->rests = true;
	w->again_ns = gm_min(w->again_ns, peace);
	/* However long its user disturbs others meanwhile. */
	if (w->parked)
		w->until_ns = gm_max(w->until_ns, gm_plus(gm_min(peace, latest), rounds_ns));
}

/* Whether it lacks something that a client could return. */
static bool ask_lacks_memory(const struct gm_waiting *w)
{
	return w->block == GM_BLOCK_QUOTA || gm_waiting_wants_device(w);
}

uint64_t gm_ask_rest_ns(const struct gm_device *device, const struct gm_waiting *w)
{
	if (!w->rests || !ask_lacks_memory(w))
		return 0;
	return gm_minus(w->line->peace_ns, gm_device_now(device));
}

void gm_ask_say_rest(
	const struct gm_device *device, const struct gm_waiting *w, char detail[GM_DETAIL_BYTES])
{
	char left[GM_UNITS_TEXT];
	uint64_t ns = gm_ask_rest_ns(device, w);

	detail[0] = '\0';
	if (ns > 0)
		gm_say(detail,
			"other users' clients returned memory that this user does not hold, and are "
			"left alone for %s at most",
			gm_format_duration(ns, left));
}

/* ---- asking */

/* Asks for so many bytes, of whomever the request may ask. lacks: what it lacks itself. */
static void ask_clients(
	struct gm_device *device, struct gm_waiting *w, uint64_t bytes, uint64_t lacks)
{
	struct gm_ladder_ways ways = {.widely = w->rounds > 0, .fully = w->parked};
	struct gm_line *line = w->line;

	line->work -= gm_min(line->work, ASK_WORK);
	if (ask_rests(device, w)) {
		ways.reach = GM_REACH_OWN;
		gm_ladder_ask(device, w->account, w->tally, bytes, ways);
		ask_wait_for_peace(device, w, gm_min(lacks, bytes));
		return;
	}

	ways.reach = ask_may_disturb(device, w) ? GM_REACH_ALL : GM_REACH_OWN_BUFFERS;
	struct gm_ladder_asked asked = gm_ladder_ask(device, w->account, w->tally, bytes, ways);
	if (asked.others && !w->disturbed) {
		w->disturbed = true;
		line->askers++;
	}
	/* A client is not asked for what it holds itself, so another client's request may find
	 * something. */
	if (asked.bytes == 0 && !w->parked && w->account->held == 0) {
		line->dry = w->tally;
		line->dry_ns = w->again_ns;
	}
	if (w->rounds < UINT8_MAX)
		w->rounds++;
}

bool gm_ask_for(struct gm_device *device, struct gm_request *request)
{
	struct gm_waiting *w = &request->waiting;
	struct gm_refusal refusal = {.block = w->block, .tally = w->tally, .denied = w->denied};
	uint64_t now = gm_device_now(device);
	w->again_ns = gm_plus(now, gm_policy_settle_ns(&device->info.policy));
	w->rests = false;

	if (!ask_lacks_memory(w))
		return gm_ask_under_way(device, w);
	/* Nobody had anything a moment ago. To find that out again, for each request of a long
	 * line, would cost the other uids time. */
	struct gm_line *line = w->line;
	if (!w->parked && w->rounds > 0 && now < line->dry_ns && line->dry == w->tally) {
		w->again_ns = line->dry_ns;
		return gm_ask_under_way(device, w);
	}

	uint64_t missing = gm_admit_missing(device, w->account, w->exact, &refusal);
	if (missing < w->denied)
		missing = w->denied;
	w->lacked = gm_max(w->lacked, missing);
	uint64_t needed = ask_needed(device, request, missing);

	if (needed > 0)
		ask_clients(device, w, needed, missing);
	if (w->parked)
		ask_extend(device, w);
	return w->rests || gm_ask_under_way(device, w);
}
