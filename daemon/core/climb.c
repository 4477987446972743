/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ladder under pressure: which rung to climb now, and when the next. This file promises:
 *   - A higher level acts at once. Otherwise settle_ns pass between two actions, so that the first
 *     has time to work.
 *   - Nothing is done about a level that pressure has left.
 *   - A client is terminated only where the administrator chose that, after everything else.
 *
 * It must never act below high: medium only keeps the reserve from being filled.
 */
#include "daemon/core/climb.h"

#include <errno.h>

#include "common/arith.h"
#include "common/units.h"
#include "daemon/core/ladder_private.h"

/* What is done at critical: one stage per action, in this order. */
enum climb_stage { CLEANUP, SPILL, TERMINATE };

/* Whether pressure is below the level. (The level itself may still wait for its dwell.) */
static bool climb_has_left(const struct gm_device *device, enum gm_level level)
{
	return gm_policy_level(&device->info.policy, gm_device_pressure(device), level) < level;
}

/* How much less must be charged for the level to fall. */
static uint64_t climb_excess(const struct gm_device *device, enum gm_level level)
{
	const struct gm_policy *policy = &device->info.policy;
	uint64_t threshold = gm_minus(policy->level_ppm[level - 1], policy->hysteresis_ppm);
	uint64_t capacity = gm_device_capacity(device);
	uint64_t used = capacity - gm_device_available(device);
	uint64_t allowed = (uint64_t)((unsigned __int128)capacity * threshold / GM_PPM);
	uint64_t charged = gm_ledger_charged(&device->ledger);

	/* Pressure must go below the threshold, not just reach it. */
	uint64_t bytes = used >= allowed ? used - allowed + GM_CHUNK_MIN : 0;
	return gm_min(bytes, charged);
}

/* When the level rises, all of the pool goes. Later, while the level lasts, the chunks go that
 * nobody took since the last action. */
static void climb_at_high(struct gm_device *device, bool rising)
{
	struct gm_ladder_plan plan;
	struct gm_ladder_run *run = &device->ladder.runs[GM_TRIGGER_PRESSURE];
	gm_ladder_plan_init(
		device, GM_TRIGGER_PRESSURE, climb_excess(device, GM_LEVEL_HIGH), &plan);

	uint64_t idle = 0;
	int r = 0;
	if (rising)
		r = gm_ladder_plan_pool(device, &plan, UINT64_MAX);
	else
		idle = gm_pool_clear_idle(&device->pool,
			gm_device_now(device) - gm_policy_settle_ns(&device->info.policy));
	if (r == 0)
		r = gm_ladder_plan_clients(device, NULL, NULL, GM_RUNG_CACHED, plan.need, &plan);

	plan.rungs[GM_RUNG_POOL] += idle;
	if (r == 0 && plan.planned + idle > 0) {
		gm_ladder_carry_out(device, &plan);
		run->rungs[GM_RUNG_POOL] += idle;
	}
	gm_ladder_plan_deinit(&plan);
}

/* All of the pool goes, and every client returns what it does not use. */
static void climb_clean_up(struct gm_device *device, bool rising)
{
	const struct gm_env *env = device->env;
	struct gm_ladder_plan plan;
	uint64_t deadline =
		gm_plus(gm_device_now(device), gm_policy_reclaim_ns(&device->info.policy));

	gm_ladder_plan_init(
		device, GM_TRIGGER_PRESSURE, climb_excess(device, GM_LEVEL_CRITICAL), &plan);
	int r = gm_ladder_plan_pool(device, &plan, UINT64_MAX);
	size_t pool_steps = plan.n_steps;
	if (r == 0)
		r = gm_ladder_plan_clients(device, NULL, NULL, GM_RUNG_CACHED, UINT64_MAX, &plan);

	/* Clients must return all that they say they have, and whatever else they find: so this is
	 * the urgent rung. */
	plan.rungs[GM_RUNG_UNUSED] = plan.rungs[GM_RUNG_CACHED];
	plan.rungs[GM_RUNG_CACHED] = 0;
	for (size_t i = pool_steps; i < plan.n_steps; i++)
		plan.steps[i].rung = GM_RUNG_UNUSED;
	if (r == 0 && (rising || plan.n_steps > 0))
		gm_ladder_carry_out(device, &plan);
	gm_ladder_plan_deinit(&plan);

	if (!rising || !env->ops.reclaim)
		return;
	/* A client that says it has nothing is told as well, but it owes nothing. */
	for (const struct gm_payer *p = env->payers; p; p = p->hh.next) {
		const struct gm_account *account = &p->accounts[device->number];
		if (p->ending || p->quarantined || account->asked.owing ||
			account->held == account->admitted)
			continue;
		env->ops.reclaim(env->ctx, p->session,
			&(struct gm_reclaim){
				.device = device->number,
				.trigger = GM_TRIGGER_PRESSURE,
				.rung = GM_RUNG_UNUSED,
				.bytes = account->held - account->admitted,
				.urgent = true,
				.deadline_ns = deadline,
			});
	}
}

/* Returns whether there was anything to spill. Reserved: no client has evictable memory yet. */
static bool climb_spill(struct gm_device *device)
{
	struct gm_ladder_plan plan;
	gm_ladder_plan_init(
		device, GM_TRIGGER_PRESSURE, climb_excess(device, GM_LEVEL_CRITICAL), &plan);
	int r = gm_ladder_plan_clients(device, NULL, NULL, GM_RUNG_SPILL, plan.need, &plan);

	bool any = r == 0 && plan.n_steps > 0;
	if (any)
		gm_ladder_carry_out(device, &plan);
	gm_ladder_plan_deinit(&plan);
	return any;
}

/* ---- the last rung */

/* The client of the lowest priority, then the largest, then the youngest. A client whose owner
 * holds no more than its guarantee is spared. */
static const struct gm_payer *climb_find_victim(const struct gm_device *device)
{
	const struct gm_policy *policy = &device->info.policy;
	uint32_t d = device->number;
	const struct gm_payer *victim = NULL;

	/* If the device would be critical without any client, ending one helps nobody. */
	uint32_t at_best =
		gm_policy_pressure(gm_device_capacity(device), gm_device_ceiling(device));
	if (gm_policy_level(policy, at_best, GM_LEVEL_CRITICAL) == GM_LEVEL_CRITICAL)
		return NULL;

	for (const struct gm_payer *p = device->env->payers; p; p = p->hh.next) {
		const struct gm_account *a = &p->accounts[d];
		const struct gm_account *v = victim ? &victim->accounts[d] : NULL;
		if (p->ending || p->estate || a->held == 0)
			continue;
		if (a->guaranteed && a->guaranteed->held <= a->guaranteed->guarantee)
			continue;
		if (!v || a->priority < v->priority ||
			(a->priority == v->priority && a->held >= v->held))
			victim = p;
	}
	return victim;
}

static void climb_terminate(struct gm_device *device)
{
	const struct gm_env *env = device->env;
	struct gm_ladder *ladder = &device->ladder;
	if (!env->ops.terminate || ladder->powerless || ladder->victim)
		return;
	const struct gm_payer *victim = climb_find_victim(device);
	if (!victim)
		return;

	const struct gm_account *account = &victim->accounts[device->number];
	char text[GM_DETAIL_BYTES], size[GM_UNITS_TEXT];
	int r = env->ops.terminate(env->ctx, victim->session, device->number);
	ladder->powerless = r < 0 && r != -ESRCH;
	ladder->victim = ladder->powerless ? 0 : victim->id;
	/* The process ended by itself, and its session is about to. */
	if (r == -ESRCH)
		return;

	gm_say(text, "device %u is at critical pressure: client %llu (priority %d, holds %s) %s",
		device->number, (unsigned long long)victim->id, account->priority,
		gm_format_size(account->held, size),
		r == 0        ? "is terminated"
		: r == -EPERM ? "should be terminated, but the daemon has no right to"
			      : "should be terminated, but cannot be");
	gm_env_tell(env, &(struct gm_event){.kind = GM_EVENT_VICTIM,
				 .device = device->number,
				 .text = text,
				 .session = victim->session,
				 .held = account->held,
				 .priority = account->priority,
				 .trigger = GM_TRIGGER_PRESSURE,
				 .error = r});
}

static void climb_at_critical(struct gm_device *device, bool rising)
{
	struct gm_ladder *ladder = &device->ladder;
	if (rising)
		ladder->stage = CLEANUP;

	switch (ladder->stage) {
	case CLEANUP:
		climb_clean_up(device, rising);
		ladder->stage = SPILL;
		return;
	case SPILL:
		ladder->stage = TERMINATE;
		if (climb_spill(device))
			return;
		/* fall through */
	case TERMINATE:
		ladder->stage = CLEANUP;
		if (device->info.policy.oom == GM_OOM_TERMINATE)
			climb_terminate(device);
		else
			climb_at_critical(device, false);
		return;
	}
}

void gm_climb_act(struct gm_device *device)
{
	struct gm_ladder *ladder = &device->ladder;
	enum gm_level level = device->pressure.level;
	gm_ladder_end_runs(device);
	if (device->env->stopping)
		return;

	if (level != GM_LEVEL_CRITICAL)
		ladder->powerless = false;
	if (level < GM_LEVEL_HIGH) {
		ladder->level = level;
		ladder->next_ns = UINT64_MAX;
		return;
	}

	bool rising = level > ladder->level;
	ladder->level = level;
	uint64_t now = gm_device_now(device);
	if (!rising && now < ladder->next_ns)
		return;
	ladder->next_ns = gm_plus(now, gm_policy_settle_ns(&device->info.policy));
	if (!rising && climb_has_left(device, level))
		return;

	if (level == GM_LEVEL_CRITICAL)
		climb_at_critical(device, rising);
	else
		climb_at_high(device, rising);
	/* A run that waits for no client is over already. */
	gm_ladder_end_runs(device);
}

uint64_t gm_climb_due(const struct gm_device *device)
{
	uint64_t due = device->ladder.next_ns;
	for (unsigned t = 0; t < GM_TRIGGERS; t++) {
		const struct gm_ladder_run *run = &device->ladder.runs[t];
		if (run->active && run->deadline_ns < due)
			due = run->deadline_ns;
	}
	return due;
}
