/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking clients on behalf of a request that waits. This file promises that clients are asked for no
 * more than the request and those before it lack, and that a long line of requests does not ask in
 * vain over and over. Whom it may ask, peace.c says. It must never decide about a request.
 */
#include "daemon/books/hash_table.h"
#include "daemon/queue/ask.h"

#include "common/arith.h"
#include "daemon/device/admit.h"
#include "daemon/reclaim/ladder_plan.h"
#include "daemon/reclaim/ladder_run.h"
#include "daemon/queue/line.h"
#include "daemon/queue/peace.h"

/* Asking walks all clients, so it uses up this much of the line's slice. */
#define ASK_WORK 16

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
		/* Others are left alone by that user now, and must not be asked on its behalf by another one. */
		if (line->first->waiting.rests || line->first->waiting.spares)
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
 * Clients that owe memory for other users' requests owe it to those alone. A user whose requests come and go could
 * otherwise keep others waiting for what its own clients promise, and never return.
 */
static uint64_t ask_needed(
	struct gm_device *device, const struct gm_request *request, uint64_t lacks)
{
	const struct gm_waiting *w = &request->waiting;
	uint64_t own = w->line->owed, owed = gm_ladder_owed(device, GM_TRIGGER_REQUEST);
	/* A request that may not wait asks for itself alone. If it fits, it overtakes those that wait for more. */
	uint64_t others = w->parked ? 0 : gm_minus(ask_wanted_by_others(device, w), owed - own);

	return gm_minus(lacks + ask_wanted_in_line(device, request) + others,
		own + ask_owed_to_all(device, w));
}

bool gm_ask_for_user_under_way(const struct gm_device *device, const struct gm_waiting *w)
{
	for (unsigned t = 0; t < GM_TRIGGERS; t++)
		if (t != GM_TRIGGER_REQUEST && ask_helps(w, t) && gm_ladder_asking(device, t))
			return true;
	return w->line->owing > 0;
}

bool gm_ask_under_way(const struct gm_device *device, const struct gm_waiting *w)
{
	return gm_ladder_asking(device, GM_TRIGGER_REQUEST) || gm_ask_for_user_under_way(device, w);
}

bool gm_ask_rests(const struct gm_device *device, const struct gm_waiting *w)
{
	return w->rests && w->settled == device->ladder.settled && gm_peace_rests(device, w);
}

bool gm_ask_is_due(const struct gm_device *device, const struct gm_waiting *w)
{
	if (w->rounds >= GM_PARKED_ROUNDS)
		return false;
	return w->rests || w->settled != device->ladder.settled || !gm_ask_under_way(device, w);
}

/* A parked request for which content is copied has the time for that in each of its rounds. If the
 * first round brings too little, it must not be refused before others were asked. What is copied for other users
 * gives it no more time: else they could keep it from being refused. */
static void ask_extend(const struct gm_device *device, struct gm_waiting *w)
{
	uint64_t round = gm_ladder_spill_ns(&device->info.policy);

	if (w->line->moving > 0)
		w->until_ns = gm_max(w->until_ns, gm_plus(w->since_ns, GM_PARKED_ROUNDS * round));
}

/* The request waits until others may be asked, even if it is parked, since it is not their fault. It does not
 * wait for what they do not have by what they say. */
static void ask_wait_for_peace(struct gm_device *device, struct gm_waiting *w, uint64_t lacks)
{
	const struct gm_policy *policy = &device->info.policy;
	uint64_t peace = w->line->peace_ns;
	uint64_t latest = gm_plus(w->since_ns, gm_policy_settle_ns(policy));
	uint64_t rounds_ns = GM_PARKED_ROUNDS * gm_policy_reclaim_ns(policy);

	if (w->parked && !gm_peace_is_worth_it(device, w, lacks))
		return;
	w->rests = true;
	w->again_ns = gm_min(w->again_ns, peace);
	/* However long its user disturbs others meanwhile. */
	if (w->parked)
		w->until_ns = gm_max(w->until_ns, gm_plus(gm_min(peace, latest), rounds_ns));
}

/* ---- asking */

/* Asks for so many bytes, of whomever the request may ask. lacks: what it lacks itself. */
static void ask_clients(
	struct gm_device *device, struct gm_waiting *w, uint64_t bytes, uint64_t lacks)
{
	struct gm_line *line = w->line;
	struct gm_ladder_ways ways = {.widely = w->rounds > 0, .line = line, .lacks = lacks};

	/* The daemon must not refuse it because requests before it lack more. */
	if (w->parked)
		ways.least = gm_min(lacks, bytes);

	line->work -= gm_min(line->work, ASK_WORK);
	ways.reach = gm_peace_reach(device, w);
	struct gm_ladder_asked asked = gm_ladder_ask(device, w->account, w->tally, bytes, ways);
	if (ways.reach == GM_REACH_OWN) {
		ask_wait_for_peace(device, w, gm_min(lacks, bytes));
		return;
	}

	w->spares = asked.spares;
	if (asked.others)
		gm_peace_disturb(w);
	if (asked.bytes == 0 && !w->parked) {
		line->dry_for = w->account->held ? w->account : NULL;
		line->dry = w->tally;
		line->dry_ns = w->again_ns;
	}
	/* A parked request has few rounds. One in which other users' requests had all clients asked was none. */
	bool none = w->parked && asked.bytes == 0 && gm_ask_under_way(device, w);
	if (!none && w->rounds < UINT8_MAX)
		w->rounds++;
}

/* Whether nobody had anything for the request a moment ago. */
static bool ask_is_dry(const struct gm_waiting *w, uint64_t now)
{
	const struct gm_line *line = w->line;

	return now < line->dry_ns && line->dry == w->tally &&
	       (!line->dry_for || line->dry_for == w->account);
}

bool gm_ask_for(struct gm_device *device, struct gm_request *request)
{
	struct gm_waiting *w = &request->waiting;
	struct gm_refusal refusal = {.block = w->block, .tally = w->tally, .denied = w->denied};
	uint64_t now = gm_device_now(device);
	w->again_ns = gm_plus(now, gm_policy_settle_ns(&device->info.policy));
	w->rests = w->spares = false;

	if (!gm_waiting_lacks_memory(w))
		return gm_ask_under_way(device, w);
	/* Nobody had anything a moment ago. To find that out again, for each request of a long
	 * line, would cost the other uids time. */
	struct gm_line *line = w->line;
	if (!w->parked && w->rounds > 0 && ask_is_dry(w, now)) {
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
	w->settled = device->ladder.settled;
	if (w->parked)
		ask_extend(device, w);
	return w->rests || gm_ask_under_way(device, w);
}
