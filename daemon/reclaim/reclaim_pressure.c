/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reclaim under pressure: which stage comes now, and when the next. This file promises:
 *   - A higher level acts at once. Otherwise settle_ns pass between two actions, so that the first
 *     has time to work. While clients copy buffers out of the way, their deadline is awaited.
 *   - Nothing is done about a level that pressure has left.
 *   - A client is terminated only where the administrator chose that, after everything else: every
 *     client that has evictable memory was asked to move it, and had time, and too little came.
 *
 * It must never act below high: medium only keeps the reserve from being filled.
 */
#include "daemon/reclaim/reclaim_pressure.h"

#include <errno.h>
#include <stdlib.h>

#include <utlist.h>

#include "common/arith.h"
#include "common/text/units.h"
#include "daemon/reclaim/reclaim_plan.h"
#include "daemon/reclaim/reclaim_run.h"

/* What is done at critical: one stage per action, in this order. */
enum reclaim_pressure_stage { CLEANUP, SPILL, SPILL_ALL, TERMINATE };

/* Whether pressure is below the level. (The level itself may still wait for its dwell.) */
static bool reclaim_pressure_has_left(const struct gm_device *device, enum gm_pressure_level level)
{
	return gm_policy_level(&device->info.policy, gm_device_pressure(device), level) < level;
}

/* How much less must be charged for the level to fall. */
static uint64_t reclaim_pressure_excess(
	const struct gm_device *device, enum gm_pressure_level level)
{
	const struct gm_policy *policy = &device->info.policy;
	uint64_t threshold = gm_u64_minus(policy->level_ppm[level - 1], policy->hysteresis_ppm);
	uint64_t capacity = gm_device_capacity(device);
	uint64_t used = capacity - gm_device_available(device);
	uint64_t allowed = (uint64_t)((unsigned __int128)capacity * threshold / GM_PPM);
	uint64_t charged = gm_ledger_charged(&device->ledger);

	/* Pressure must go below the threshold, not just reach it. */
	uint64_t bytes = used >= allowed ? used - allowed + GM_CHUNK_MIN : 0;
	return gm_u64_min(bytes, charged);
}

/* When the level rises, all of the pool goes. Later, while the level lasts, the chunks go that
 * nobody took since the last action. */
static void reclaim_pressure_at_high(struct gm_device *device, bool rising)
{
	struct gm_reclaim_plan plan;
	struct gm_reclaim_run *run = &device->reclaim.runs[GM_RECLAIM_TRIGGER_PRESSURE];
	gm_reclaim_plan_init(device, GM_RECLAIM_TRIGGER_PRESSURE,
		reclaim_pressure_excess(device, GM_PRESSURE_LEVEL_HIGH), &plan);

	uint64_t idle = 0;
	int r = 0;
	if (rising)
		r = gm_reclaim_plan_pool(device, &plan, UINT64_MAX);
	else
		idle = gm_pool_clear_idle(&device->pool,
			gm_device_now(device) - gm_policy_settle_ns(&device->info.policy));
	if (r == 0)
		r = gm_reclaim_plan_clients(device, NULL, NULL, GM_STAGE_CACHED, plan.need, &plan);

	plan.stages[GM_STAGE_POOL] += idle;
	if (r == 0 && plan.planned + idle > 0) {
		gm_reclaim_carry_out(device, &plan);
		run->stages[GM_STAGE_POOL] += idle;
	}
	gm_reclaim_plan_deinit(&plan);
}

/* All of the pool goes, and every client returns what it does not use. */
static void reclaim_pressure_clean_up(struct gm_device *device, bool rising)
{
	const struct gm_env *env = device->env;
	struct gm_reclaim_plan plan;
	uint64_t deadline =
		gm_u64_plus(gm_device_now(device), gm_policy_reclaim_ns(&device->info.policy));

	gm_reclaim_plan_init(device, GM_RECLAIM_TRIGGER_PRESSURE,
		reclaim_pressure_excess(device, GM_PRESSURE_LEVEL_CRITICAL), &plan);
	int r = gm_reclaim_plan_pool(device, &plan, UINT64_MAX);
	size_t pool_steps = plan.n_steps;
	if (r == 0)
		r = gm_reclaim_plan_clients(device, NULL, NULL, GM_STAGE_CACHED, UINT64_MAX, &plan);

	/* Clients must return all that they say they have, and whatever else they find: so this is
	 * the urgent stage. */
	plan.stages[GM_STAGE_UNUSED] = plan.stages[GM_STAGE_CACHED];
	plan.stages[GM_STAGE_CACHED] = 0;
	for (size_t i = pool_steps; i < plan.n_steps; i++)
		plan.steps[i].stage = GM_STAGE_UNUSED;
	if (r == 0 && (rising || plan.n_steps > 0))
		gm_reclaim_carry_out(device, &plan);
	gm_reclaim_plan_deinit(&plan);

	if (!rising || !env->ops.reclaim)
		return;
	/* A client that says it has nothing is told as well, but it owes nothing. */
	const struct gm_account *account;
	DL_FOREACH (device->ledger.holders, account) {
		const struct gm_account_payer *p = account->payer;
		if (p->ending || p->quarantined || account->asked.owing ||
			gm_account_in_chunks(account) == 0)
			continue;
		env->ops.reclaim(env->ctx, p->session,
			&(struct gm_reclaim_message){
				.device = device->number,
				.trigger = GM_RECLAIM_TRIGGER_PRESSURE,
				.stage = GM_STAGE_UNUSED,
				.bytes = gm_account_in_chunks(account),
				.urgent = true,
				.deadline_ns = deadline,
			});
	}
}

/* Asks clients to move what would take the level back. each: asks every client for that much, because
 * those that were asked first did not do it. Returns whether there was anything to spill. */
static bool reclaim_pressure_spill(struct gm_device *device, bool each)
{
	struct gm_reclaim_plan plan;
	gm_reclaim_plan_init(device, GM_RECLAIM_TRIGGER_PRESSURE,
		reclaim_pressure_excess(device, GM_PRESSURE_LEVEL_CRITICAL), &plan);
	plan.each = each;
	/* Where nobody is terminated for it, a lower level is not worth moving the same buffers over and
	 * over. */
	plan.gently = device->info.policy.oom != GM_POLICY_OOM_TERMINATE;
	int r = gm_reclaim_plan_clients(device, NULL, NULL, GM_STAGE_SPILL, plan.need, &plan);

	bool any = r == 0 && plan.n_steps > 0;
	if (any)
		gm_reclaim_carry_out(device, &plan);
	gm_reclaim_plan_deinit(&plan);
	return any;
}

/* Whether the last spill brought what was needed then. If others have taken that since, there may be
 * more to move. */
static bool reclaim_pressure_spill_worked(const struct gm_device *device)
{
	const struct gm_reclaim_run *run = &device->reclaim.runs[GM_RECLAIM_TRIGGER_PRESSURE];

	return run->spills && run->stages[GM_STAGE_SPILL] >= run->need;
}

/* ---- the last stage */

struct reclaim_pressure_candidate {
	const struct gm_account_payer *payer;
	const struct gm_ledger_tally *kept; /* the guarantee that it counts for; NULL: none */
	uint64_t held;
	size_t order; /* the oldest first */
};

/* A user's or a process's part of the list of candidates. */
struct reclaim_pressure_part {
	size_t from, to;
	uint64_t bytes;
	size_t youngest;
};

static int reclaim_pressure_compare_users(const void *left, const void *right)
{
	const struct reclaim_pressure_candidate *a = left, *b = right;
	if (a->payer->payer_uid != b->payer->payer_uid)
		return a->payer->payer_uid < b->payer->payer_uid ? -1 : 1;
	if (a->kept != b->kept)
		return (uintptr_t)a->kept < (uintptr_t)b->kept ? -1 : 1;
	return 0;
}

static int reclaim_pressure_compare_processes(const void *left, const void *right)
{
	const struct reclaim_pressure_candidate *a = left, *b = right;
	return (a->payer->pid > b->payer->pid) - (a->payer->pid < b->payer->pid);
}

/* Extends the part by the candidates that are equal to the first one behind it. Returns what they
 * hold. */
static uint64_t reclaim_pressure_add_equals(const struct reclaim_pressure_candidate *list, size_t n,
	struct reclaim_pressure_part *part, int (*compare)(const void *left, const void *right))
{
	const struct reclaim_pressure_candidate *first = &list[part->to];
	uint64_t sum = 0;
	for (; part->to < n && compare(&list[part->to], first) == 0; part->to++) {
		const struct reclaim_pressure_candidate *c = &list[part->to];
		sum += c->held;
		if (c->order > part->youngest)
			part->youngest = c->order;
	}
	return sum;
}

static void reclaim_pressure_keep_larger(
	struct reclaim_pressure_part *best, const struct reclaim_pressure_part *part)
{
	if (part->bytes > best->bytes ||
		(part->bytes == best->bytes && part->youngest >= best->youngest))
		*best = *part;
}

/* The user that holds most beyond its guarantees. Sorts the list. */
static struct reclaim_pressure_part reclaim_pressure_largest_user(
	struct reclaim_pressure_candidate *list, size_t n)
{
	struct reclaim_pressure_part best = {0};
	qsort(list, n, sizeof(*list), reclaim_pressure_compare_users);

	for (size_t i = 0; i < n;) {
		struct reclaim_pressure_part user = {.from = i, .to = i};
		while (user.to < n && list[user.to].payer->payer_uid == list[i].payer->payer_uid) {
			const struct gm_ledger_tally *kept = list[user.to].kept;
			uint64_t held = reclaim_pressure_add_equals(
				list, n, &user, reclaim_pressure_compare_users);
			if (kept)
				held = gm_u64_min(held, gm_u64_minus(kept->held, kept->guarantee));
			user.bytes += held;
		}
		reclaim_pressure_keep_larger(&best, &user);
		i = user.to;
	}
	return best;
}

/* The process that holds most of a user's part of the list. Sorts that part. */
static struct reclaim_pressure_part reclaim_pressure_largest_process(
	struct reclaim_pressure_candidate *list, const struct reclaim_pressure_part *user)
{
	struct reclaim_pressure_part best = {0};
	qsort(list + user->from, user->to - user->from, sizeof(*list),
		reclaim_pressure_compare_processes);

	for (size_t i = user->from; i < user->to;) {
		struct reclaim_pressure_part process = {.from = i, .to = i};
		process.bytes = reclaim_pressure_add_equals(
			list, user->to, &process, reclaim_pressure_compare_processes);
		reclaim_pressure_keep_larger(&best, &process);
		i = process.to;
	}
	return best;
}

/* Lists the clients of the lowest priority. A client whose owner holds no more than its guarantee
 * is spared. */
static size_t reclaim_pressure_list_candidates(
	const struct gm_device *device, struct reclaim_pressure_candidate *ret_list)
{
	int32_t lowest = INT32_MAX;
	size_t n = 0, order = 0;

	for (const struct gm_account_payer *p = device->env->payers; p; p = p->hh.next, order++) {
		const struct gm_account *a = &p->accounts[device->number];
		if (p->ending || !p->session || a->held == 0 || a->priority > lowest)
			continue;
		if (a->guaranteed && a->guaranteed->held <= a->guaranteed->guarantee)
			continue;
		if (a->priority < lowest)
			n = 0;
		lowest = a->priority;
		ret_list[n++] = (struct reclaim_pressure_candidate){
			.payer = p, .kept = a->guaranteed, .held = a->held, .order = order};
	}
	return n;
}

/* Of the clients of the lowest priority, the process that holds most of the user that holds most
 * beyond its guarantee. Many small sessions must not hide a large holder behind others. Returns the
 * process's largest session, and what all its sessions hold. NULL: there is none, or no memory to
 * find it. */
static const struct gm_account_payer *reclaim_pressure_find_victim(
	const struct gm_device *device, uint64_t *ret_held)
{
	const struct gm_policy *policy = &device->info.policy;

	/* If the device would be critical without any client, ending one helps nobody. */
	uint32_t at_best =
		gm_policy_pressure(gm_device_capacity(device), gm_device_ceiling(device));
	if (gm_policy_level(policy, at_best, GM_PRESSURE_LEVEL_CRITICAL) ==
		GM_PRESSURE_LEVEL_CRITICAL)
		return NULL;

	size_t most = HASH_COUNT(device->env->payers);
	struct reclaim_pressure_candidate *list = most ? calloc(most, sizeof(*list)) : NULL;
	size_t n = list ? reclaim_pressure_list_candidates(device, list) : 0;
	const struct reclaim_pressure_candidate *victim = NULL;
	const struct gm_account_payer *payer = NULL;

	if (n > 0) {
		struct reclaim_pressure_part user = reclaim_pressure_largest_user(list, n);
		struct reclaim_pressure_part process =
			reclaim_pressure_largest_process(list, &user);
		for (size_t i = process.from; i < process.to; i++)
			if (!victim || list[i].held > victim->held ||
				(list[i].held == victim->held && list[i].order > victim->order))
				victim = &list[i];
		*ret_held = process.bytes;
		payer = victim->payer;
	}
	free(list);
	return payer;
}

static void reclaim_pressure_terminate(struct gm_device *device)
{
	const struct gm_env *env = device->env;
	struct gm_reclaim *reclaim = &device->reclaim;
	if (!env->ops.terminate || reclaim->powerless || reclaim->victim)
		return;
	uint64_t held = 0;
	const struct gm_account_payer *victim = reclaim_pressure_find_victim(device, &held);
	if (!victim)
		return;

	const struct gm_account *account = &victim->accounts[device->number];
	char text[GM_DETAIL_BYTES], size[GM_UNITS_TEXT];
	int r = env->ops.terminate(env->ctx, victim->session, device->number);
	reclaim->powerless = r < 0 && r != -ESRCH;
	reclaim->victim = reclaim->powerless ? 0 : victim->id;
	/* The process ended by itself, and its session is about to. */
	if (r == -ESRCH)
		return;

	gm_text_say(text,
		"%s: device %u is at critical pressure, and it has priority %d and holds %s",
		r == 0        ? "is terminated"
		: r == -EPERM ? "should be terminated, but the daemon has no right to"
			      : "should be terminated, but cannot be",
		device->number, account->priority, gm_format_size(held, size));
	gm_env_tell(env, &(struct gm_event){.kind = GM_EVENT_VICTIM,
				 .device = device->number,
				 .text = text,
				 .session = victim->session,
				 .held = held,
				 .priority = account->priority,
				 .trigger = GM_RECLAIM_TRIGGER_PRESSURE,
				 .error = r});
}

static void reclaim_pressure_at_critical(struct gm_device *device, bool rising)
{
	struct gm_reclaim *reclaim = &device->reclaim;
	if (rising)
		reclaim->stage = CLEANUP;

	bool terminate = device->info.policy.oom == GM_POLICY_OOM_TERMINATE;
	if (reclaim->stage > SPILL && reclaim_pressure_spill_worked(device))
		reclaim->stage = CLEANUP;

	switch (reclaim->stage) {
	case CLEANUP:
		reclaim_pressure_clean_up(device, rising);
		reclaim->stage = SPILL;
		return;
	case SPILL:
		reclaim->stage = SPILL_ALL;
		if (reclaim_pressure_spill(device, false))
			return;
		/* fall through */
	case SPILL_ALL:
		reclaim->stage = TERMINATE;
		if (terminate && reclaim_pressure_spill(device, true))
			return;
		/* fall through */
	case TERMINATE:
		reclaim->stage = CLEANUP;
		if (terminate)
			reclaim_pressure_terminate(device);
		else
			reclaim_pressure_at_critical(device, false);
		return;
	}
}

/* When the next action is due: not while clients still have time to move their buffers. */
static uint64_t reclaim_pressure_next(const struct gm_device *device)
{
	return gm_u64_max(device->reclaim.next_ns,
		gm_reclaim_spill_until(device, GM_RECLAIM_TRIGGER_PRESSURE));
}

void gm_reclaim_pressure_act(struct gm_device *device)
{
	struct gm_reclaim *reclaim = &device->reclaim;
	enum gm_pressure_level level = device->pressure.level;
	gm_reclaim_end_runs(device);
	if (device->env->stopping)
		return;

	if (level != GM_PRESSURE_LEVEL_CRITICAL)
		reclaim->powerless = false;
	if (level < GM_PRESSURE_LEVEL_HIGH) {
		reclaim->level = level;
		reclaim->next_ns = UINT64_MAX;
		return;
	}

	bool rising = level > reclaim->level;
	reclaim->level = level;
	uint64_t now = gm_device_now(device);
	if (!rising && now < reclaim_pressure_next(device))
		return;
	reclaim->next_ns = gm_u64_plus(now, gm_policy_settle_ns(&device->info.policy));
	if (!rising && reclaim_pressure_has_left(device, level)) {
		/* What was done has helped. If the level comes back, it begins again. */
		reclaim->stage = CLEANUP;
		return;
	}

	if (level == GM_PRESSURE_LEVEL_CRITICAL)
		reclaim_pressure_at_critical(device, rising);
	else
		reclaim_pressure_at_high(device, rising);
	/* A run that waits for no client is over already. */
	gm_reclaim_end_runs(device);
}

uint64_t gm_reclaim_pressure_due(const struct gm_device *device)
{
	uint64_t due = reclaim_pressure_next(device);
	for (unsigned t = 0; t < GM_TRIGGERS; t++) {
		const struct gm_reclaim_run *run = &device->reclaim.runs[t];
		if (run->active && run->deadline_ns < due)
			due = run->deadline_ns;
	}
	return due;
}
