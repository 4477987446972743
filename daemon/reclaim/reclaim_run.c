/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carrying out plans: asking the clients, how long they have, and what came of it. This file promises
 * that it carries out the plan that it was given, that no client is asked twice at once, and that each
 * reclaim is reported once, with its trigger. It must never take memory by force.
 *
 * reclaim_pressure.c decides when reclaim acts on a pressure level.
 */
#include "daemon/reclaim/reclaim_run.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include <utlist.h>

#include "common/arith.h"
#include "common/text/uid_name.h"
#include "common/text/units.h"
#include "daemon/reclaim/reclaim_user.h"
#include "daemon/reclaim/reclaim_overdue.h"
#include "daemon/reclaim/reclaim_plan.h"
#include "daemon/device/limit_private.h"

/* How much longer a client has because it must copy content first. One that needs still longer is asked
 * again later. This is short because other requests of the same user that wait ask nobody meanwhile, and the
 * client may be lying. */
#define SPILL_NS UINT64_C(2000000000)

void gm_reclaim_init(struct gm_reclaim *reclaim)
{
	*reclaim = (struct gm_reclaim){.next_ns = UINT64_MAX};
}

/* ---- carrying out */

static const char *const reclaim_triggers[GM_TRIGGERS] = {
	"a request", "pressure", "min_free = ", "a cleanup by hand"};

static const char *reclaim_format_need(uint64_t need, char text[GM_UNITS_TEXT])
{
	if (need != UINT64_MAX)
		return gm_format_size(need, text);
	snprintf(text, GM_UNITS_TEXT, "all there is");
	return text;
}

static uint64_t reclaim_of_clients(const uint64_t stages[GM_STAGES])
{
	return stages[GM_STAGE_CACHED] + stages[GM_STAGE_UNUSED] + stages[GM_STAGE_SPILL];
}

/* Writes for what the reclaim is, and how much is wanted. */
static void reclaim_say_cause(const struct gm_device *device, const struct gm_reclaim_plan *plan,
	char text[GM_DETAIL_BYTES])
{
	char need[GM_UNITS_TEXT], min_free[GM_UNITS_TEXT], owner[GM_OWNER_TEXT];

	if (plan->self) {
		gm_text_say(text, "reclaim for a request that lacks %s on device %u%s%s",
			gm_format_size(plan->lacks, need), device->number,
			plan->tally ? " under the limit of " : "",
			plan->tally ? gm_limit_say(plan->tally->limit, owner) : "");
		return;
	}
	gm_format_size(device->info.policy.min_free, min_free);
	gm_text_say(text, "device %u: reclaim for %s%s: %s wanted", device->number,
		reclaim_triggers[plan->trigger],
		plan->trigger == GM_RECLAIM_TRIGGER_MIN_FREE ? min_free : "",
		reclaim_format_need(plan->need, need));
}

/* Reports that a run begins with this plan. */
static void reclaim_tell_started(struct gm_device *device, const struct gm_reclaim_plan *plan)
{
	uint64_t of_pool = plan->stages[GM_STAGE_POOL],
		 of_clients = reclaim_of_clients(plan->stages);
	char text[GM_DETAIL_BYTES], cause[GM_DETAIL_BYTES], pool[GM_UNITS_TEXT],
		clients[GM_UNITS_TEXT];
	struct gm_event event = {
		.kind = GM_EVENT_RECLAIM_STARTED,
		.device = device->number,
		.text = text,
		.trigger = plan->trigger,
		.payer_uid = device->reclaim.runs[plan->trigger].payer_uid,
		.need = plan->need,
	};

	reclaim_say_cause(device, plan, cause);
	gm_text_say(text, "%s%s%s%s%s%s%s", cause, plan->self ? ": " : "; ",
		of_pool ? gm_format_size(of_pool, pool) : "",
		of_pool ? " of the pool are released" : "", of_pool && of_clients ? ", " : "",
		of_clients ? gm_format_size(of_clients, clients) : "",
		of_clients ? " are asked of clients"
		: of_pool  ? ""
			   : "there is nothing to get back");
	if (plan->self) {
		event.session = plan->self->payer->session;
		event.asked = plan->lacks;
		event.held = plan->self->held;
	}
	if (plan->self && plan->tally) {
		event.owner = gm_limit_owner(plan->tally->limit);
		event.held = plan->tally->held;
		event.max = plan->tally->max;
	}
	memcpy(event.stages, plan->stages, sizeof(event.stages));
	gm_env_tell(device->env, &event);
}

static void reclaim_tell_ended(
	struct gm_device *device, enum gm_reclaim_trigger trigger, bool reached)
{
	const struct gm_reclaim_run *run = &device->reclaim.runs[trigger];
	char text[GM_DETAIL_BYTES], need[GM_UNITS_TEXT], pool[GM_UNITS_TEXT],
		clients[GM_UNITS_TEXT], first[GM_UNITS_TEXT], whose[GM_UID_NAME_TEXT + 16];
	/* Whether more was wanted while it ran than the event of its start said. */
	bool grew = run->need != run->first_need;

	gm_format_size(run->stages[GM_STAGE_POOL], pool);
	gm_format_size(reclaim_of_clients(run->stages), clients);
	whose[0] = '\0';
	if (trigger == GM_RECLAIM_TRIGGER_MIN_FREE)
		gm_format_size(device->info.policy.min_free, whose);
	else if (trigger == GM_RECLAIM_TRIGGER_REQUEST && run->payer_uid == GM_EVENT_NOBODY)
		strcpy(whose, "s of several users");
	else if (trigger == GM_RECLAIM_TRIGGER_REQUEST)
		gm_uid_name_say(run->payer_uid, stpcpy(whose, "s of "));

	gm_text_say(text,
		"device %u: reclaim for %s%s ended: %s wanted%s%s%s; %s of the pool released, "
		"%s returned by clients; %s",
		device->number,
		trigger == GM_RECLAIM_TRIGGER_REQUEST ? "request" : reclaim_triggers[trigger],
		whose, reclaim_format_need(run->need, need), grew ? " in all, " : "",
		grew ? gm_format_size(run->first_need, first) : "", grew ? " at first" : "", pool,
		clients, reached ? "enough" : "not enough");

	struct gm_event event = {
		.kind = GM_EVENT_RECLAIM_ENDED,
		.device = device->number,
		.text = text,
		.trigger = trigger,
		.payer_uid = run->payer_uid,
		.need = run->need,
		.reached = reached,
	};
	memcpy(event.stages, run->stages, sizeof(event.stages));
	gm_env_tell(device->env, &event);
}

/* The account owes so many bytes less. */
static void reclaim_count_paid(
	struct gm_device *device, struct gm_reclaim_asked *asked, uint64_t bytes)
{
	struct gm_reclaim_run *run = &device->reclaim.runs[asked->trigger];

	asked->bytes -= bytes;
	if (asked->overdue)
		return;
	assert(run->owed >= bytes);
	run->owed -= bytes;
	if (asked->user)
		asked->user->owed -= bytes;
}

/* One more client owes something, or (-1) one less. */
static void reclaim_count_owing(struct gm_device *device, struct gm_account *account, int n)
{
	struct gm_reclaim_run *run = &device->reclaim.runs[account->asked.trigger];
	struct gm_reclaim_user *user = account->asked.user;

	assert(n > 0 || run->owing > 0);
	run->owing += n;
	if (!user)
		return;
	user->owing += n;
	if (account->payer->user != user->user)
		user->owing_others += n;
	if (account->asked.stage == GM_STAGE_SPILL)
		user->moving += n;
}

/* The account owes nothing any more, whatever it was asked for. */
static void reclaim_settle_account(struct gm_device *device, struct gm_account *account)
{
	if (!account->asked.owing)
		return;

	reclaim_count_paid(device, &account->asked, account->asked.bytes);
	reclaim_count_owing(device, account, -1);
	device->reclaim.settled++;
	account->asked.owing = false;
	account->asked.user = NULL; /* it may be gone soon */
	DL_DELETE2(device->reclaim.owing, account, owing_prev, owing_next);
	device->env->woken = true; /* it may have been the last one of the run */
}

/* What the client says now that it could give of the step. */
static uint64_t reclaim_promise(const struct gm_device *device, const struct gm_reclaim_step *step)
{
	const struct gm_reclaim_claim *said = gm_reclaim_look(device, step->account);
	return gm_u64_min(step->bytes, said->cached + gm_u64_min(said->evictable, step->spill));
}

static void reclaim_ask_client(struct gm_device *device, const struct gm_reclaim_plan *plan,
	const struct gm_reclaim_step *step, uint64_t deadline)
{
	const struct gm_env *env = device->env;
	struct gm_reclaim_run *run = &device->reclaim.runs[plan->trigger];
	struct gm_account *account = step->account;

	reclaim_settle_account(device, account);
	account->asked.owing = true;
	DL_APPEND2(device->reclaim.owing, account, owing_prev, owing_next);
	/* The plan may rest on an older look. A client that has used its memory since must not be
	 * blamed for it. */
	account->asked.promised = step->claimed ? reclaim_promise(device, step) : 0;
	account->asked.claimed = account->asked.promised > 0;
	account->asked.trigger = (uint8_t)plan->trigger;
	account->asked.stage = (uint8_t)step->stage;
	account->asked.wanted = account->asked.bytes = step->bytes;
	account->asked.overdue = step->overdue;
	account->asked.user = plan->user;
	account->asked.deadline_ns = deadline;
	reclaim_count_owing(device, account, 1);
	run->owed += step->overdue ? 0 : step->bytes;
	if (plan->user)
		plan->user->owed += step->overdue ? 0 : step->bytes;

	env->ops.reclaim(env->ctx, step->session,
		&(struct gm_reclaim_message){
			.device = device->number,
			.trigger = plan->trigger,
			.stage = step->stage,
			.bytes = step->bytes,
			.spill = step->spill,
			.urgent = step->stage >= GM_STAGE_UNUSED,
			.deadline_ns = deadline,
		});
}

void gm_reclaim_carry_out(struct gm_device *device, const struct gm_reclaim_plan *plan)
{
	struct gm_reclaim_run *run = &device->reclaim.runs[plan->trigger];
	const struct gm_policy *policy = &device->info.policy;
	uint64_t allowed = plan->stages[GM_STAGE_SPILL] ? gm_reclaim_spill_ns(policy)
							: gm_policy_reclaim_ns(policy);
	uint64_t deadline = gm_u64_plus(gm_device_now(device), allowed);
	uid_t payer_uid = plan->user ? plan->user->user->uid : GM_EVENT_NOBODY;

	if (run->active && plan->trigger == GM_RECLAIM_TRIGGER_PRESSURE) {
		/* What is missing is measured anew each time, and includes what was missing before.
		 */
		run->need = plan->need > run->need ? plan->need : run->need;
		run->level =
			device->reclaim.level > run->level ? device->reclaim.level : run->level;
	} else if (run->active) {
		run->need = gm_u64_plus(run->need, plan->need);
		if (run->payer_uid != payer_uid)
			run->payer_uid = GM_EVENT_NOBODY;
	} else {
		memset(run->stages, 0, sizeof(run->stages));
		run->active = true;
		run->payer_uid = payer_uid;
		run->spills = false;
		run->deadline_ns = 0;
		run->need = run->first_need = plan->need;
		run->level = device->reclaim.level;
		reclaim_tell_started(device, plan);
	}

	/* For requests, each client has its own deadline, and this is the first one. For anything else, whoever was
	 * asked before may have longer now. */
	if (plan->trigger == GM_RECLAIM_TRIGGER_REQUEST)
		run->deadline_ns = run->owing ? gm_u64_min(run->deadline_ns, deadline) : deadline;
	else
		run->deadline_ns = gm_u64_max(run->deadline_ns, deadline);
	run->spills = run->spills || plan->stages[GM_STAGE_SPILL] > 0;
	device->reclaim_epoch++;

	for (size_t i = 0; i < plan->n_steps; i++) {
		const struct gm_reclaim_step *step = &plan->steps[i];
		if (step->stage == GM_STAGE_POOL)
			run->stages[GM_STAGE_POOL] +=
				gm_pool_shrink(&device->pool, step->bytes, GM_DOMAIN_FRESH);
		else
			reclaim_ask_client(device, plan, step, deadline);
	}

	device->env->woken = true;
	gm_device_settle(device);
}

/* ---- what came of it */

uint64_t gm_reclaim_owed(const struct gm_device *device, enum gm_reclaim_trigger trigger)
{
	return device->reclaim.runs[trigger].owed;
}

bool gm_reclaim_asking(const struct gm_device *device, enum gm_reclaim_trigger trigger)
{
	return device->reclaim.runs[trigger].owing > 0;
}

uint64_t gm_reclaim_spill_until(const struct gm_device *device, enum gm_reclaim_trigger trigger)
{
	const struct gm_reclaim_run *run = &device->reclaim.runs[trigger];

	return run->active && run->spills ? run->deadline_ns : 0;
}

uint64_t gm_reclaim_spill_ns(const struct gm_policy *policy)
{
	return gm_policy_reclaim_ns(policy) + SPILL_NS;
}

/* Whether half of what the client promised came, at least. A few bytes would prove nothing. */
static bool reclaim_kept_its_word(const struct gm_reclaim_asked *asked)
{
	return asked->wanted - asked->bytes >= asked->promised / 2;
}

static void reclaim_break_word(struct gm_reclaim_asked *asked, uint64_t now)
{
	asked->broken = gm_u64_max(asked->broken, asked->promised / 2);
	gm_backoff_fail(&asked->quiet, now);
}

/* The client returned bytes that it had promised. */
static void reclaim_mend_word(struct gm_reclaim_asked *asked, uint64_t bytes)
{
	if (!asked->claimed)
		return;
	asked->broken -= gm_u64_min(asked->broken, bytes);
	if (asked->broken == 0)
		asked->quiet.failures = 0;
}

/* The client moves buffers because of pressure, and is not asked to do so again for a while. */
static void reclaim_let_rest(const struct gm_device *device, struct gm_reclaim_asked *asked)
{
	uint64_t settle = gm_policy_settle_ns(&device->info.policy), now = gm_device_now(device);

	if (asked->trigger != GM_RECLAIM_TRIGGER_PRESSURE || asked->stage != GM_STAGE_SPILL ||
		asked->bytes < asked->wanted)
		return;
	gm_backoff_forget_old(&asked->pressed, now, settle);
	gm_backoff_begin(&asked->pressed, now, settle);
	gm_backoff_fail(&asked->pressed, now);
}

bool gm_reclaim_returned(struct gm_device *device, struct gm_account *account, uint64_t bytes)
{
	struct gm_reclaim_asked *asked = &account->asked;
	struct gm_reclaim_run *run = &device->reclaim.runs[asked->trigger];
	uint64_t of_it = gm_u64_min(bytes, asked->bytes);

	reclaim_let_rest(device, asked);
	run->stages[asked->stage] += bytes;
	reclaim_count_paid(device, asked, of_it);
	reclaim_mend_word(asked, of_it);
	if (asked->claimed)
		gm_reclaim_overdue_mend(device, account->payer->user, of_it);
	if (asked->bytes == 0)
		reclaim_settle_account(device, account);
	return run != &device->reclaim.runs[GM_RECLAIM_TRIGGER_REQUEST];
}

void gm_reclaim_gone(struct gm_device *device, struct gm_account_payer *payer)
{
	reclaim_settle_account(device, &payer->accounts[device->number]);
	if (payer->ending)
		gm_reclaim_overdue_remember(device, &payer->accounts[device->number]);
	if (device->reclaim.victim == payer->id && payer->ending) {
		/* Wait and see what its end brings before the next action. */
		device->reclaim.victim = 0;
		device->reclaim.next_ns = gm_u64_plus(
			gm_device_now(device), gm_policy_settle_ns(&device->info.policy));
	}
}

/* Of what the client owes, what it could have returned: it says that it still caches that much. It
 * may have used the rest since, or the rest never could come back. */
static uint64_t reclaim_kept_back(const struct gm_device *device, struct gm_account *account)
{
	const struct gm_reclaim_asked *asked = &account->asked;
	if (!asked->owing || !asked->claimed)
		return 0;
	const struct gm_reclaim_claim *said = gm_reclaim_look(device, account);
	return said->rough ? 0 : gm_u64_min(asked->bytes, said->cached);
}

/* Whether the client still has some of what it owes. Nobody is blamed for evictable buffers that stay:
 * the program's work may keep them where they are. */
static bool reclaim_has_still(const struct gm_device *device, struct gm_account *account)
{
	const struct gm_reclaim_asked *asked = &account->asked;
	if (reclaim_kept_back(device, account) > 0)
		return true;
	return asked->owing && asked->claimed && asked->stage == GM_STAGE_SPILL &&
	       !account->said.rough && account->said.evictable > 0;
}

static void reclaim_give_up_on(struct gm_device *device, struct gm_account *account)
{
	const struct gm_account_payer *payer = account->payer;
	struct gm_reclaim_asked *asked = &account->asked;
	uint64_t came = asked->wanted - asked->bytes;
	uint64_t kept = reclaim_kept_back(device, account);
	uint64_t settle = gm_policy_settle_ns(&device->info.policy), now = gm_device_now(device);
	bool broken = !reclaim_kept_its_word(asked);

	reclaim_settle_account(device, account);
	if (broken) {
		/* The client had said that it has them. */
		gm_backoff_begin(&asked->quiet, now, settle);
		reclaim_break_word(asked, now);
	} else {
		asked->quiet.until_ns = gm_u64_plus(now, settle);
	}
	if (kept) {
		char text[GM_DETAIL_BYTES], wanted[GM_UNITS_TEXT], returned[GM_UNITS_TEXT];
		gm_text_say(text, "was asked for %s and returned %s of it in time, on device %u",
			gm_format_size(came + kept, wanted),
			came ? gm_format_size(came, returned) : "none", device->number);
		gm_env_tell(device->env, &(struct gm_event){.kind = GM_EVENT_IGNORED,
						 .device = device->number,
						 .text = text,
						 .session = payer->session,
						 .held = account->held,
						 .trigger = asked->trigger,
						 .asked = came + kept,
						 .bytes = came});
	}
}

static bool reclaim_reached(const struct gm_device *device, enum gm_reclaim_trigger trigger)
{
	const struct gm_reclaim_run *run = &device->reclaim.runs[trigger];
	uint64_t sum = 0;
	if (trigger == GM_RECLAIM_TRIGGER_PRESSURE)
		return gm_policy_level(&device->info.policy, gm_device_pressure(device),
			       run->level) < run->level;

	for (unsigned r = 0; r < GM_STAGES; r++)
		sum += run->stages[r];
	if (run->need != UINT64_MAX)
		return sum >= run->need;

	/* If all there is was wanted, it came if no client still has what it owes. */
	struct gm_account *account;
	DL_FOREACH2 (device->reclaim.owing, account, owing_next)
		if (account->asked.trigger == trigger && reclaim_has_still(device, account))
			return false;
	return true;
}

static void reclaim_end_run(struct gm_device *device, enum gm_reclaim_trigger trigger)
{
	struct gm_reclaim_run *run = &device->reclaim.runs[trigger];
	bool ok = reclaim_reached(device, trigger);
	struct gm_account *account, *next;
	DL_FOREACH_SAFE2 (device->reclaim.owing, account, next, owing_next)
		if (account->asked.trigger == trigger)
			reclaim_give_up_on(device, account);

	assert(run->owing == 0 && run->owed == 0);
	run->active = false;
	reclaim_tell_ended(device, trigger, ok);
	if (device->queue.length > 0)
		gm_device_wake_queue(device);
}

/*
 * Gives up on the clients whose time to return something for a request is over. Each has its own: requests follow
 * each other, so that their run need not end for as long as a user likes, and nobody who owes something is asked again.
 */
static void reclaim_expire(struct gm_device *device)
{
	struct gm_reclaim_run *run = &device->reclaim.runs[GM_RECLAIM_TRIGGER_REQUEST];
	uint64_t now = gm_device_now(device);
	struct gm_account *account, *next;
	if (!run->active || now < run->deadline_ns)
		return;

	uint64_t first = UINT64_MAX;
	DL_FOREACH_SAFE2 (device->reclaim.owing, account, next, owing_next) {
		if (account->asked.trigger != GM_RECLAIM_TRIGGER_REQUEST)
			continue;
		if (now >= account->asked.deadline_ns)
			reclaim_give_up_on(device, account);
		else
			first = gm_u64_min(first, account->asked.deadline_ns);
	}
	run->deadline_ns = first;
	if (device->queue.length > 0)
		gm_device_wake_queue(device);
}

void gm_reclaim_end_runs(struct gm_device *device)
{
	reclaim_expire(device);
	for (unsigned t = 0; t < GM_TRIGGERS; t++) {
		struct gm_reclaim_run *run = &device->reclaim.runs[t];
		if (run->active && (run->owing == 0 || gm_device_now(device) >= run->deadline_ns))
			reclaim_end_run(device, t);
	}
}

/* ---- the triggers request and min_free */

static void reclaim_plan_request(struct gm_device *device, uint64_t bytes,
	enum gm_reclaim_reach reach, struct gm_reclaim_plan *plan)
{
	gm_reclaim_plan_init(device, GM_RECLAIM_TRIGGER_REQUEST, bytes, plan);
	plan->reach = reach;
}

/* The plan to ask for what clients say that they have. */
static int reclaim_plan_offers(struct gm_device *device, const struct gm_account *self,
	const struct gm_ledger_tally *tally, uint64_t bytes, struct gm_reclaim_plan *plan)
{
	int r = gm_reclaim_plan_clients(device, self, tally, GM_STAGE_CACHED, bytes, plan);
	if (r == 0 && gm_reclaim_plan_sure(plan) < bytes)
		r = gm_reclaim_plan_clients(device, self, tally, GM_STAGE_SPILL,
			bytes - gm_reclaim_plan_sure(plan), plan);
	return r;
}

uint64_t gm_reclaim_offered(struct gm_device *device, const struct gm_account *self,
	const struct gm_ledger_tally *tally, uint64_t bytes, enum gm_reclaim_reach reach)
{
	struct gm_reclaim_plan plan;
	reclaim_plan_request(device, bytes, reach, &plan);
	int r = reclaim_plan_offers(device, self, tally, bytes, &plan);
	uint64_t offered = r == 0 ? gm_reclaim_plan_sure(&plan) : 0;

	gm_reclaim_plan_deinit(&plan);
	return offered;
}

/* Whether the plan asks clients of other users. */
static bool reclaim_asks_others(const struct gm_reclaim_plan *plan, const struct gm_user *user)
{
	for (size_t i = 0; i < plan->n_steps; i++)
		if (plan->steps[i].account && plan->steps[i].account->payer->user != user)
			return true;
	return false;
}

struct gm_reclaim_outcome gm_reclaim_request(struct gm_device *device,
	const struct gm_account *self, const struct gm_ledger_tally *tally, uint64_t bytes,
	struct gm_reclaim_ways ways)
{
	struct gm_reclaim_plan plan;
	reclaim_plan_request(device, bytes, ways.reach, &plan);
	plan.later = ways.later;
	int r = reclaim_plan_offers(device, self, tally, bytes, &plan);
	bool wide = r == 0 && gm_reclaim_plan_sure(&plan) < bytes;
	/* By what clients say, there is not enough. But what they say may be old. */
	if (wide)
		r = gm_reclaim_plan_clients(device, self, tally, GM_STAGE_UNUSED,
			bytes - gm_reclaim_plan_sure(&plan), &plan);

	struct gm_reclaim_outcome asked = {.spares = wide && plan.spares};
	if (r == 0 && plan.planned > 0 && plan.planned >= ways.least) {
		asked.bytes = plan.planned;
		asked.others = reclaim_asks_others(&plan, self->payer->user);
		plan.user = ways.user;
		plan.self = self;
		plan.tally = tally;
		plan.lacks = ways.lacks;
		gm_reclaim_carry_out(device, &plan);
	}
	gm_reclaim_plan_deinit(&plan);
	return asked;
}

void gm_reclaim_min_free(struct gm_device *device, uint64_t need, uint64_t bytes)
{
	struct gm_reclaim_plan plan;
	struct gm_reclaim_run *run = &device->reclaim.runs[GM_RECLAIM_TRIGGER_MIN_FREE];
	gm_reclaim_plan_init(device, GM_RECLAIM_TRIGGER_MIN_FREE, need, &plan);
	plan.stages[GM_STAGE_POOL] = bytes;
	gm_reclaim_carry_out(device, &plan);
	run->stages[GM_STAGE_POOL] += bytes;
}
