/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans for getting memory back: which clients could be asked for how much. This file promises that a
 * plan believes a client no more than the ledger allows, and leaves out what a guarantee covers. It
 * must never change anything but its notes on what clients said: reclaim_run.c carries a plan out.
 */
#include "daemon/reclaim/reclaim_plan.h"

#include <errno.h>
#include <stdlib.h>

#include <utlist.h>

#include "common/arith.h"
#include "common/text/units.h"
#include "daemon/reclaim/reclaim_overdue.h"

/* ---- what clients say */

const struct gm_reclaim_claim *gm_reclaim_look(
	const struct gm_device *device, struct gm_account *account)
{
	const struct gm_env *env = device->env;
	uint64_t held = gm_account_in_chunks(account);
	struct gm_account_use use = {0};

	if (env->ops.use)
		env->ops.use(env->ctx, account->payer->session, device->number, &use);
	uint64_t cached = gm_u64_min(use.cached, held);
	account->said = (struct gm_reclaim_claim){
		.until_ns = gm_u64_plus(gm_device_now(device), GM_RECLAIM_SAID_NS),
		.held = held,
		.cached = cached,
		.evictable = device->info.pinned ? 0 : gm_u64_min(use.evictable, held - cached),
		.rough = use.rough,
	};
	return &account->said;
}

/* Returns what the client says. The daemon looks again unless it did so lately, or has no looks left.
 * Every request that does not fit needs this of every client. */
static const struct gm_reclaim_claim *reclaim_use_of(
	struct gm_device *device, struct gm_account *account, uint32_t *looks)
{
	struct gm_reclaim_claim *said = &account->said;
	uint64_t held = gm_account_in_chunks(account);
	if (gm_device_now(device) < said->until_ns && said->held == held)
		return said;
	if (*looks == 0) {
		said->cached = gm_u64_min(said->cached, held);
		said->evictable = gm_u64_min(said->evictable, held - said->cached);
		return said;
	}

	/* The others come first next time. */
	--*looks;
	DL_DELETE(device->ledger.holders, account);
	DL_APPEND(device->ledger.holders, account);
	return gm_reclaim_look(device, account);
}

uint64_t gm_reclaim_claimed(
	struct gm_device *device, const struct gm_account_payer *self, bool with_own)
{
	const struct gm_ledger_tally *own = self->accounts[device->number].guaranteed;
	uint32_t looks = GM_RECLAIM_LOOKS, holders = device->ledger.n_holders;
	uint64_t look = gm_reclaim_overdue_look(device), sum = 0;
	struct gm_account *next;
	DL_FOREACH (device->ledger.holders, next)
		if (next->guaranteed)
			next->guaranteed->planned = 0;

	next = device->ledger.holders;
	while (holders-- > 0) {
		struct gm_account *account = next;
		const struct gm_account_payer *p = account->payer;
		next = account->next;
		device->reclaim.steps++;
		if (p->ending || p->quarantined || (p->user == self->user && !with_own) ||
			gm_account_in_chunks(account) == 0 || gm_reclaim_overdue_is_of(p, look))
			continue;
		const struct gm_reclaim_claim *said = reclaim_use_of(device, account, &looks);
		struct gm_ledger_tally *kept = account->guaranteed;
		uint64_t cached = said->cached;
		if (kept && kept != own) {
			uint64_t over = gm_u64_minus(kept->held, kept->guarantee);
			cached = gm_u64_min(cached, gm_u64_minus(over, kept->planned));
			kept->planned += cached;
		}
		sum += said->rough ? 0 : cached;
	}
	return sum;
}

/* ---- building a plan */

void gm_reclaim_plan_deinit(struct gm_reclaim_plan *plan)
{
	free(plan->steps);
	plan->steps = NULL;
	plan->n_steps = 0;
}

void gm_reclaim_plan_init(struct gm_device *device, enum gm_reclaim_trigger trigger, uint64_t need,
	struct gm_reclaim_plan *plan)
{
	*plan = (struct gm_reclaim_plan){
		.device = device->number, .trigger = trigger, .need = need};
}

/* The step of another stage that the client has already; NULL: none. */
static struct gm_reclaim_step *reclaim_other_step(
	const struct gm_reclaim_plan *plan, const struct gm_reclaim_step *step)
{
	if (!step->account || !step->account->asked.step)
		return NULL;
	return &plan->steps[step->account->asked.step - 1];
}

/* How much more the client is asked for by this step. */
static uint64_t reclaim_more(const struct gm_reclaim_plan *plan, const struct gm_reclaim_step *step)
{
	const struct gm_reclaim_step *other = reclaim_other_step(plan, step);

	return other ? gm_u64_min(step->bytes, step->held - other->bytes) : step->bytes;
}

/* The client is asked for both steps at once. */
static void reclaim_join_step(struct gm_reclaim_plan *plan, struct gm_reclaim_step *other,
	const struct gm_reclaim_step *step)
{
	uint64_t more = reclaim_more(plan, step);

	plan->stages[other->stage] -= other->bytes;
	other->stage = other->stage > step->stage ? other->stage : step->stage;
	other->bytes += more;
	if (step->stage == GM_STAGE_SPILL)
		other->spill = gm_u64_min(step->bytes, other->bytes);
	other->claimed = other->claimed || step->claimed;
	plan->planned += more;
	plan->overdue += step->overdue ? more : 0;
	plan->stages[other->stage] += other->bytes;
}

static int reclaim_add_step(struct gm_reclaim_plan *plan, const struct gm_reclaim_step *step)
{
	struct gm_reclaim_step *other = reclaim_other_step(plan, step);
	if (other) {
		reclaim_join_step(plan, other, step);
		return 0;
	}

	/* The room doubles whenever the number of steps is a power of two. */
	if ((plan->n_steps & (plan->n_steps - 1)) == 0) {
		size_t room = plan->n_steps ? plan->n_steps * 2 : 1;
		void *steps = realloc(plan->steps, room * sizeof(plan->steps[0]));
		if (!steps)
			return -ENOMEM;
		plan->steps = steps;
	}
	plan->steps[plan->n_steps] = *step;
	if (step->stage == GM_STAGE_SPILL)
		plan->steps[plan->n_steps].spill = step->bytes;
	plan->n_steps++;
	plan->planned += step->bytes;
	plan->overdue += step->overdue ? step->bytes : 0;
	plan->stages[step->stage] += step->bytes;
	return 0;
}

int gm_reclaim_plan_pool(struct gm_device *device, struct gm_reclaim_plan *plan, uint64_t bytes)
{
	bytes = gm_pool_shrinkable(&device->pool, bytes);
	if (bytes == 0)
		return 0;
	return reclaim_add_step(plan,
		&(struct gm_reclaim_step){
			.stage = GM_STAGE_POOL, .bytes = bytes, .held = bytes, .claimed = true});
}

struct reclaim_candidate {
	struct gm_reclaim_step step;
	uint64_t id;
	bool self;
};

/* Lower priority first, then the client that has most, then the oldest. The one that asks is last.
 */
static int reclaim_compare(const void *left, const void *right)
{
	const struct reclaim_candidate *a = left, *b = right;
	if (a->self != b->self)
		return a->self ? 1 : -1;
	if (a->step.priority != b->step.priority)
		return a->step.priority < b->step.priority ? -1 : 1;
	if (a->step.bytes != b->step.bytes)
		return a->step.bytes > b->step.bytes ? -1 : 1;
	return a->id < b->id ? -1 : 1;
}

/* Fills in what the client could give on the step's stage, beside what the plan asks it for already; 0: there is nothing
 * to ask it for. */
static void reclaim_find_offer(struct gm_device *device, const struct gm_reclaim_plan *plan,
	struct reclaim_candidate *c, uint32_t *looks)
{
	struct gm_reclaim_step *step = &c->step;
	const struct gm_reclaim_step *other = reclaim_other_step(plan, step);
	const struct gm_reclaim_claim *said = reclaim_use_of(device, step->account, looks);

	step->claimed = !said->rough;
	switch (step->stage) {
	case GM_STAGE_CACHED:
		/* A client with rough figures can say the same in each round, and is not overdue for that. */
		step->bytes = plan->later && said->rough ? 0 : said->cached;
		break;
	case GM_STAGE_SPILL:
		step->bytes = said->evictable;
		break;
	case GM_STAGE_UNUSED:
		/* The client that asks knows what it does not use, and has tried that already. */
		step->claimed = said->cached > 0 && !said->rough;
		step->bytes = gm_u64_min(c->self ? said->cached : step->held, plan->need);
		step->bytes = gm_u64_minus(step->bytes, other ? other->bytes : 0);
		break;
	default:
		break;
	}
}

/* Marks the candidates of users that are overdue. */
static void reclaim_mark_overdue(struct gm_device *device, struct reclaim_candidate *list, size_t n)
{
	if (n == 0)
		return;
	uint64_t look = gm_reclaim_overdue_look(device);

	for (size_t i = 0; i < n; i++)
		list[i].step.overdue = gm_reclaim_overdue_is_of(list[i].step.account->payer, look);
}

/* Notes which accounts have a step in the plan already. The plan has looked at all of them before. */
static void reclaim_note_steps(const struct gm_reclaim_plan *plan)
{
	for (size_t i = 0; i < plan->n_steps; i++)
		if (plan->steps[i].account)
			plan->steps[i].account->asked.step = (uint32_t)i + 1;
}

/* Clears the notes that earlier plans left on the client, and on the owner that has a guarantee. */
static void reclaim_forget_plans(struct gm_account *account)
{
	account->asked.step = 0;
	if (account->guaranteed)
		account->guaranteed->planned = 0;
}

static bool reclaim_is_own(const struct gm_account *account, const struct gm_account *self)
{
	return account->payer->user == self->payer->user;
}

/* Whether the plan may make the client move its buffers, which slows that client down. */
static bool reclaim_may_spill(const struct gm_reclaim_plan *plan, const struct gm_account *account,
	const struct gm_account *self, uint64_t now)
{
	if (!self)
		return !plan->gently || !gm_backoff_holds(&account->asked.pressed, now);
	return account->priority <= self->priority &&
	       (plan->reach == GM_REACH_ALL || reclaim_is_own(account, self));
}

/* Whether the client has buffers, by what it said last, which would help but are out of reach. */
static bool reclaim_spares(const struct gm_reclaim_plan *plan, const struct gm_account *account,
	const struct gm_account *self, const struct gm_ledger_tally *tally)
{
	return plan->reach == GM_REACH_OWN_BUFFERS && account->said.evictable > 0 &&
	       account->priority <= self->priority && !reclaim_is_own(account, self) &&
	       (!tally || gm_account_counts_for(account, tally)) && !account->payer->ending &&
	       !account->payer->quarantined;
}

/* Whether the client is left alone for a while after it did not return all that it was asked for. If it has kept
 * its word, it is asked for what it says it caches or can move now: otherwise a request that waits in vain, and asks
 * everybody each second for more than they have, would keep that from all others. */
static bool reclaim_is_quiet(
	const struct gm_reclaim_asked *asked, enum gm_stage stage, uint64_t now)
{
	return gm_backoff_holds(&asked->quiet, now) &&
	       (stage == GM_STAGE_UNUSED || asked->broken > 0);
}

/* Whether the client can be asked now, for this trigger. */
static bool reclaim_may_ask(const struct gm_account *account, const struct gm_ledger_tally *tally,
	enum gm_reclaim_trigger trigger, enum gm_stage stage, uint64_t now)
{
	const struct gm_account_payer *payer = account->payer;
	const struct gm_reclaim_asked *asked = &account->asked;
	if (payer->ending || payer->quarantined || gm_account_in_chunks(account) == 0)
		return false;
	if (tally && !gm_account_counts_for(account, tally))
		return false;

	switch (trigger) {
	case GM_RECLAIM_TRIGGER_REQUEST:
		return !asked->owing && !reclaim_is_quiet(asked, stage, now);
	case GM_RECLAIM_TRIGGER_PRESSURE:
		/* Whoever did not return its cache in time may still move buffers, and must be asked to
		 * before it is terminated. */
		return !gm_backoff_holds(&asked->quiet, now) ||
		       (stage == GM_STAGE_SPILL && asked->stage != GM_STAGE_SPILL);
	default:
		return true;
	}
}

/* Lowers the step to what its owner holds beyond its guarantee. All steps of a plan count together. */
static void reclaim_spare_guarantee(const struct gm_reclaim_plan *plan,
	struct gm_reclaim_step *step, struct gm_ledger_tally *kept)
{
	uint64_t over = gm_u64_minus(kept->held, kept->guarantee);

	step->bytes = gm_u64_min(step->bytes, gm_u64_minus(over, kept->planned));
	kept->planned += reclaim_more(plan, step);
}

int gm_reclaim_plan_clients(struct gm_device *device, const struct gm_account *self,
	const struct gm_ledger_tally *tally, enum gm_stage stage, uint64_t bytes,
	struct gm_reclaim_plan *plan)
{
	const struct gm_env *env = device->env;
	uint64_t now = gm_device_now(device);
	/* Memory that one owner holds within its guarantee cannot help another owner's request. */
	const struct gm_ledger_tally *own = self ? self->guaranteed : NULL;
	bool guarded = (plan->trigger == GM_RECLAIM_TRIGGER_REQUEST && !tally) ||
		       (plan->trigger == GM_RECLAIM_TRIGGER_PRESSURE && stage == GM_STAGE_SPILL);
	uint32_t looks =
		plan->trigger == GM_RECLAIM_TRIGGER_REQUEST ? GM_RECLAIM_LOOKS : UINT32_MAX;
	uint32_t holders = device->ledger.n_holders;
	if (!env->ops.reclaim || bytes == 0 || holders == 0)
		return 0;

	struct reclaim_candidate *list = malloc(holders * sizeof(*list));
	size_t n = 0;
	if (!list)
		return -ENOMEM;
	reclaim_note_steps(plan);

	/* An account goes to the end of the list when it is looked at, so that each comes once. */
	struct gm_account *next = device->ledger.holders;
	while (holders-- > 0) {
		struct gm_account *account = next;
		next = account->next;
		device->reclaim.steps++;
		/* Each plan walks all clients several times, so it does not do so just for this. */
		if (!plan->begun)
			reclaim_forget_plans(account);
		if (stage == GM_STAGE_SPILL && !plan->spares)
			plan->spares = reclaim_spares(plan, account, self, tally);
		if (!reclaim_may_ask(account, tally, plan->trigger, stage, now) ||
			(stage == GM_STAGE_SPILL && !reclaim_may_spill(plan, account, self, now)) ||
			(plan->reach == GM_REACH_OWN && !reclaim_is_own(account, self)))
			continue;
		struct reclaim_candidate c = {.id = account->payer->id,
			.self = account == self,
			.step = {.stage = stage,
				.session = account->payer->session,
				.account = account,
				.held = gm_account_in_chunks(account),
				.priority = account->priority}};
		reclaim_find_offer(device, plan, &c, &looks);
		if (c.step.bytes == 0)
			continue;
		list[n++] = c;
	}
	plan->begun = true;
	if (n > 1)
		qsort(list, n, sizeof(*list), reclaim_compare);

	/* Whoever cleans up by hand sees what came, and of whom. */
	int r = 0;
	if (plan->trigger != GM_RECLAIM_TRIGGER_MANUAL)
		reclaim_mark_overdue(device, list, n);
	for (size_t i = 0; i < n && bytes > 0 && r == 0; i++) {
		struct gm_reclaim_step *step = &list[i].step;
		struct gm_ledger_tally *kept = step->account->guaranteed;
		step->bytes = gm_u64_min(step->bytes, bytes);
		if (guarded && kept && kept != own)
			reclaim_spare_guarantee(plan, step, kept);
		if (step->bytes == 0)
			continue;
		bytes -= step->overdue || plan->each ? 0 : step->bytes;
		r = reclaim_add_step(plan, step);
	}
	free(list);
	return r;
}

/* ---- the plan of a cleanup by hand */

gpumem_status gm_reclaim_plan_cleanup(struct gm_device *device, uint64_t free_bytes,
	struct gm_reclaim_plan *ret_plan, char detail[GM_DETAIL_BYTES])
{
	uint64_t has = gm_ledger_free(&device->ledger) + device->ledger.doomed;
	uint64_t need = free_bytes ? gm_u64_minus(free_bytes, has) : UINT64_MAX;
	struct gm_reclaim_plan plan;
	gm_reclaim_plan_init(device, GM_RECLAIM_TRIGGER_MANUAL, need, &plan);
	int r = gm_reclaim_plan_pool(device, &plan, need);
	if (r == 0)
		r = gm_reclaim_plan_clients(device, NULL, NULL, GM_STAGE_CACHED,
			gm_u64_minus(need, plan.planned), &plan);
	if (r == 0)
		r = gm_reclaim_plan_clients(device, NULL, NULL, GM_STAGE_SPILL,
			gm_u64_minus(need, plan.planned), &plan);
	if (r < 0) {
		gm_reclaim_plan_deinit(&plan);
		return gm_text_refuse(
			GPUMEM_E_HOST_MEMORY, detail, "the daemon has no memory for a plan");
	}

	*ret_plan = plan;
	if (need == UINT64_MAX || plan.planned >= need)
		return GPUMEM_OK;
	uint64_t min_free = device->info.policy.min_free;
	char asked[GM_UNITS_TEXT], free_text[GM_UNITS_TEXT], pool[GM_UNITS_TEXT],
		clients[GM_UNITS_TEXT], kept[GM_UNITS_TEXT];
	if (free_bytes > device->ledger.total)
		return gm_text_refuse(GPUMEM_E_NO_MEMORY, detail,
			"device %u: %s can never be free: the whole device has %s", device->number,
			gm_format_size(free_bytes, asked),
			gm_format_size(device->ledger.total, free_text));
	return gm_text_refuse(GPUMEM_E_NO_MEMORY, detail,
		"device %u: %s cannot be made free: %s are free%s%s%s, the pool has %s, and clients "
		"say they could return %s; see gpumemctl clients",
		device->number, gm_format_size(free_bytes, asked), gm_format_size(has, free_text),
		min_free ? " (min_free keeps " : "", min_free ? gm_format_size(min_free, kept) : "",
		min_free ? " of it)" : "", gm_format_size(plan.stages[GM_STAGE_POOL], pool),
		gm_format_size(plan.planned - plan.stages[GM_STAGE_POOL], clients));
}
