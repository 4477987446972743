/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Getting memory back: which clients are asked for how much, how long they have, and what came of
 * it. This file promises that it carries out the plan that it made, that no client is asked twice
 * at once, and that each reclaim is reported once, with its trigger. It must never take memory by
 * force, nor believe a client more than the ledger allows.
 *
 * climb.c decides when the ladder acts on a pressure level.
 */
#include "daemon/device/ladder_private.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "common/arith.h"
#include "common/units.h"

/* How often the time doubles for which a client is left alone. */
#define QUIET_DOUBLED 6
/* How much longer a client has because it must copy content first. One that needs still longer is asked
 * again later. This is short because other requests ask nobody meanwhile, and the client may be lying. */
#define SPILL_NS UINT64_C(2000000000)

void gm_ladder_init(struct gm_ladder *ladder)
{
	*ladder = (struct gm_ladder){.next_ns = UINT64_MAX};
}

/* ---- plans */

void gm_ladder_plan_deinit(struct gm_ladder_plan *plan)
{
	free(plan->steps);
	plan->steps = NULL;
	plan->n_steps = 0;
}

void gm_ladder_plan_init(struct gm_device *device, enum gm_trigger trigger, uint64_t need,
	struct gm_ladder_plan *plan)
{
	struct gm_account *account;

	*plan = (struct gm_ladder_plan){.device = device->number, .trigger = trigger, .need = need};
	DL_FOREACH (device->ledger.holders, account)
		if (account->guaranteed)
			account->guaranteed->planned = 0;
}

/* The step of another rung that the client has already; NULL: none. */
static struct gm_ladder_step *ladder_other_step(
	const struct gm_ladder_plan *plan, const struct gm_ladder_step *step)
{
	if (!step->account || !step->account->asked.step)
		return NULL;
	return &plan->steps[step->account->asked.step - 1];
}

/* How much more the client is asked for by this step. What it does not use, it is asked for whole, so
 * moving buffers only helps to return as much. */
static uint64_t ladder_more(const struct gm_ladder_plan *plan, const struct gm_ladder_step *step)
{
	const struct gm_ladder_step *other = ladder_other_step(plan, step);

	if (!other)
		return step->bytes;
	return other->rung == GM_RUNG_UNUSED ? 0 : gm_min(step->bytes, step->held - other->bytes);
}

/* The client is asked for both steps at once. */
static void ladder_join_step(struct gm_ladder_plan *plan, struct gm_ladder_step *other,
	const struct gm_ladder_step *step)
{
	uint64_t more = ladder_more(plan, step);

	plan->rungs[other->rung] -= other->bytes;
	other->rung = step->rung;
	other->bytes += more;
	other->spill = gm_min(step->bytes, other->bytes);
	other->claimed = other->claimed || step->claimed;
	plan->planned += more;
	plan->doubted += step->doubted ? more : 0;
	plan->rungs[other->rung] += other->bytes;
}

static int ladder_add_step(struct gm_ladder_plan *plan, const struct gm_ladder_step *step)
{
	struct gm_ladder_step *other = ladder_other_step(plan, step);
	if (other) {
		ladder_join_step(plan, other, step);
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
	if (step->rung == GM_RUNG_SPILL)
		plan->steps[plan->n_steps].spill = step->bytes;
	plan->n_steps++;
	plan->planned += step->bytes;
	plan->doubted += step->doubted ? step->bytes : 0;
	plan->rungs[step->rung] += step->bytes;
	return 0;
}

int gm_ladder_plan_pool(struct gm_device *device, struct gm_ladder_plan *plan, uint64_t bytes)
{
	bytes = gm_pool_shrinkable(&device->pool, bytes);
	if (bytes == 0)
		return 0;
	return ladder_add_step(plan,
		&(struct gm_ladder_step){
			.rung = GM_RUNG_POOL, .bytes = bytes, .held = bytes, .claimed = true});
}

struct ladder_candidate {
	struct gm_ladder_step step;
	uint64_t id;
	bool self;
};

/* Lower priority first, then the client that has most, then the oldest. The one that asks is last.
 */
static int ladder_compare(const void *left, const void *right)
{
	const struct ladder_candidate *a = left, *b = right;
	if (a->self != b->self)
		return a->self ? 1 : -1;
	if (a->step.priority != b->step.priority)
		return a->step.priority < b->step.priority ? -1 : 1;
	if (a->step.bytes != b->step.bytes)
		return a->step.bytes > b->step.bytes ? -1 : 1;
	return a->id < b->id ? -1 : 1;
}

/* Looks at what the client says about its use of the device, as far as it can be true. */
static const struct gm_said *ladder_look(
	const struct gm_device *device, struct gm_session *session, struct gm_account *account)
{
	const struct gm_env *env = device->env;
	uint64_t held = gm_account_in_chunks(account);
	struct gm_use use = {0};

	if (env->ops.use)
		env->ops.use(env->ctx, session, device->number, &use);
	uint64_t cached = gm_min(use.cached, held);
	account->said = (struct gm_said){
		.until_ns = gm_plus(gm_device_now(device), GM_LADDER_SAID_NS),
		.held = held,
		.cached = cached,
		.evictable = device->info.pinned ? 0 : gm_min(use.evictable, held - cached),
		.rough = use.rough,
	};
	return &account->said;
}

/* What the client says now that it could give of the step. */
static uint64_t ladder_promise(const struct gm_device *device, const struct gm_ladder_step *step)
{
	const struct gm_said *said = ladder_look(device, step->session, step->account);
	return gm_min(step->bytes, said->cached + gm_min(said->evictable, step->spill));
}

/* What the client says, by a look of not long ago if there was one, or if no more looks are left.
 * Every request that does not fit needs this of every client. */
static const struct gm_said *ladder_use_of(
	struct gm_device *device, struct gm_account *account, uint32_t *looks)
{
	struct gm_said *said = &account->said;
	uint64_t held = gm_account_in_chunks(account);
	if (gm_device_now(device) < said->until_ns && said->held == held)
		return said;
	if (*looks == 0) {
		said->cached = gm_min(said->cached, held);
		said->evictable = gm_min(said->evictable, held - said->cached);
		return said;
	}

	/* The others come first next time. */
	--*looks;
	DL_DELETE(device->ledger.holders, account);
	DL_APPEND(device->ledger.holders, account);
	return ladder_look(device, account->payer->session, account);
}

/* What the client could give on this rung; 0: there is nothing to ask it for. */
static uint64_t ladder_offer_of(struct gm_device *device, struct gm_account *account,
	enum gm_rung rung, bool self, uint32_t *looks, bool *ret_claimed)
{
	const struct gm_said *said = ladder_use_of(device, account, looks);

	*ret_claimed = !said->rough;
	switch (rung) {
	case GM_RUNG_CACHED:
		return said->cached;
	case GM_RUNG_SPILL:
		return said->evictable;
	case GM_RUNG_UNUSED:
		/* The client that asks knows what it does not use, and has tried that already. */
		*ret_claimed = said->cached > 0 && !said->rough;
		return self ? said->cached : gm_account_in_chunks(account);
	default:
		return 0;
	}
}

static int ladder_compare_uids(const void *left, const void *right)
{
	const uid_t *a = left, *b = right;
	return (*a > *b) - (*a < *b);
}

/* Marks the candidates of users that have a client which did not keep its word. A user's other clients
 * are not believed either, or it would only need more of them. */
static int ladder_mark_doubted(
	const struct gm_device *device, struct ladder_candidate *list, size_t n)
{
	const struct gm_account *account;
	size_t n_uids = 0;
	DL_FOREACH (device->ledger.holders, account)
		n_uids += account->asked.ignored > 0;
	if (n_uids == 0)
		return 0;

	uid_t *uids = malloc(n_uids * sizeof(*uids));
	if (!uids)
		return -ENOMEM;
	n_uids = 0;
	DL_FOREACH (device->ledger.holders, account)
		if (account->asked.ignored > 0)
			uids[n_uids++] = account->payer->payer_uid;
	qsort(uids, n_uids, sizeof(*uids), ladder_compare_uids);

	for (size_t i = 0; i < n; i++)
		list[i].step.doubted = bsearch(&list[i].step.account->payer->payer_uid, uids,
					       n_uids, sizeof(*uids), ladder_compare_uids) != NULL;
	free(uids);
	return 0;
}

/* Notes which accounts have a step in the plan already. */
static void ladder_note_steps(struct gm_device *device, const struct gm_ladder_plan *plan)
{
	struct gm_account *account;

	DL_FOREACH (device->ledger.holders, account)
		account->asked.step = 0;
	for (size_t i = 0; i < plan->n_steps; i++)
		if (plan->steps[i].account)
			plan->steps[i].account->asked.step = (uint32_t)i + 1;
}

/* Whether a request may make another client move its buffers, which slows that client down. */
static bool ladder_may_spill(const struct gm_ladder_plan *plan, const struct gm_account *account,
	const struct gm_account *self)
{
	if (!self)
		return true;
	return account->priority <= self->priority &&
	       (!plan->own || account->payer->payer_uid == self->payer->payer_uid);
}

/* Whether the client can be asked now, for this trigger. */
static bool ladder_may_ask(const struct gm_account *account, const struct gm_tally *tally,
	enum gm_trigger trigger, enum gm_rung rung, uint64_t now)
{
	const struct gm_payer *payer = account->payer;
	const struct gm_asked *asked = &account->asked;
	if (payer->ending || payer->quarantined || gm_account_in_chunks(account) == 0)
		return false;
	if (tally && !gm_account_counts_for(account, tally))
		return false;

	switch (trigger) {
	case GM_TRIGGER_REQUEST:
		return !asked->owing && now >= asked->quiet_ns;
	case GM_TRIGGER_PRESSURE:
		/* Whoever did not return its cache in time may still move buffers, and must be asked to
		 * before it is terminated. */
		return now >= asked->quiet_ns ||
		       (rung == GM_RUNG_SPILL && asked->rung != GM_RUNG_SPILL);
	default:
		return true;
	}
}

/* Lowers the step to what its owner holds beyond its guarantee. All steps of a plan count together. */
static void ladder_spare_guarantee(
	const struct gm_ladder_plan *plan, struct gm_ladder_step *step, struct gm_tally *kept)
{
	const struct gm_ladder_step *other = ladder_other_step(plan, step);
	uint64_t over = gm_minus(kept->held, kept->guarantee);
	uint64_t most = other && other->rung == GM_RUNG_UNUSED ? other->bytes
							       : gm_minus(over, kept->planned);

	step->bytes = gm_min(step->bytes, most);
	kept->planned += ladder_more(plan, step);
}

int gm_ladder_plan_clients(struct gm_device *device, const struct gm_account *self,
	const struct gm_tally *tally, enum gm_rung rung, uint64_t bytes,
	struct gm_ladder_plan *plan)
{
	const struct gm_env *env = device->env;
	uint64_t now = gm_device_now(device);
	/* Memory that one owner holds within its guarantee cannot help another owner's request. */
	const struct gm_tally *own = self ? self->guaranteed : NULL;
	bool guarded = (plan->trigger == GM_TRIGGER_REQUEST && !tally) ||
		       (plan->trigger == GM_TRIGGER_PRESSURE && rung == GM_RUNG_SPILL);
	uint32_t looks = plan->trigger == GM_TRIGGER_MANUAL ? UINT32_MAX : GM_LADDER_LOOKS;
	uint32_t holders = device->ledger.n_holders;
	if (!env->ops.reclaim || bytes == 0 || holders == 0)
		return 0;

	struct ladder_candidate *list = malloc(holders * sizeof(*list));
	size_t n = 0;
	if (!list)
		return -ENOMEM;
	ladder_note_steps(device, plan);

	/* An account goes to the end of the list when it is looked at, so that each comes once. */
	struct gm_account *next = device->ledger.holders;
	while (holders-- > 0) {
		struct gm_account *account = next;
		next = account->next;
		device->ladder.steps++;
		if (!ladder_may_ask(account, tally, plan->trigger, rung, now) ||
			(rung == GM_RUNG_SPILL && !ladder_may_spill(plan, account, self)))
			continue;
		struct ladder_candidate c = {.id = account->payer->id,
			.self = account == self,
			.step = {.rung = rung,
				.session = account->payer->session,
				.account = account,
				.held = gm_account_in_chunks(account),
				.priority = account->priority}};
		c.step.bytes =
			ladder_offer_of(device, account, rung, c.self, &looks, &c.step.claimed);
		if (c.step.bytes == 0)
			continue;
		list[n++] = c;
	}
	qsort(list, n, sizeof(*list), ladder_compare);

	/* Whoever cleans up by hand sees what came, and of whom. */
	int r = plan->trigger == GM_TRIGGER_MANUAL ? 0 : ladder_mark_doubted(device, list, n);
	for (size_t i = 0; i < n && bytes > 0 && r == 0; i++) {
		struct gm_ladder_step *step = &list[i].step;
		struct gm_tally *kept = step->account->guaranteed;
		step->bytes = gm_min(step->bytes, bytes);
		if (guarded && kept && kept != own)
			ladder_spare_guarantee(plan, step, kept);
		if (step->bytes == 0)
			continue;
		bytes -= step->doubted || plan->each ? 0 : step->bytes;
		r = ladder_add_step(plan, step);
	}
	free(list);
	return r;
}

uint64_t gm_ladder_claimed(struct gm_device *device, const struct gm_payer *self, bool with_own)
{
	const struct gm_tally *own = self->accounts[device->number].guaranteed;
	uint32_t looks = GM_LADDER_LOOKS, holders = device->ledger.n_holders;
	uint64_t sum = 0;
	struct gm_account *next;
	DL_FOREACH (device->ledger.holders, next)
		if (next->guaranteed)
			next->guaranteed->planned = 0;

	next = device->ledger.holders;
	while (holders-- > 0) {
		struct gm_account *account = next;
		const struct gm_payer *p = account->payer;
		next = account->next;
		device->ladder.steps++;
		if (p->ending || p->quarantined || (p->payer_uid == self->payer_uid && !with_own) ||
			account->asked.ignored > 0 || gm_account_in_chunks(account) == 0)
			continue;
		const struct gm_said *said = ladder_use_of(device, account, &looks);
		struct gm_tally *kept = account->guaranteed;
		uint64_t cached = said->cached;
		if (kept && kept != own) {
			uint64_t over = gm_minus(kept->held, kept->guarantee);
			cached = gm_min(cached, gm_minus(over, kept->planned));
			kept->planned += cached;
		}
		sum += said->rough ? 0 : cached;
	}
	return sum;
}

/* ---- carrying out */

static const char *const ladder_triggers[GM_TRIGGERS] = {
	"a request", "pressure", "min_free", "a cleanup by hand"};

static void ladder_tell_run(struct gm_device *device, enum gm_trigger trigger,
	enum gm_event_kind kind, const uint64_t rungs[GM_RUNGS], bool reached)
{
	const struct gm_ladder_run *run = &device->ladder.runs[trigger];
	char text[GM_DETAIL_BYTES], need[GM_UNITS_TEXT], pool[GM_UNITS_TEXT],
		clients[GM_UNITS_TEXT];

	gm_format_size(rungs[GM_RUNG_POOL], pool);
	gm_format_size(
		rungs[GM_RUNG_CACHED] + rungs[GM_RUNG_UNUSED] + rungs[GM_RUNG_SPILL], clients);
	if (run->need == UINT64_MAX)
		snprintf(need, sizeof(need), "all there is");
	else
		gm_format_size(run->need, need);

	if (kind == GM_EVENT_RECLAIM_STARTED)
		gm_say(text, "device %u: reclaim for %s: %s wanted; %s pooled, %s asked of clients",
			device->number, ladder_triggers[trigger], need, pool, clients);
	else
		gm_say(text,
			"device %u: reclaim for %s ended: %s wanted; %s of the pool released, %s "
			"returned by clients; %s",
			device->number, ladder_triggers[trigger], need, pool, clients,
			reached ? "enough" : "not enough");

	struct gm_event event = {
		.kind = kind,
		.device = device->number,
		.text = text,
		.trigger = trigger,
		.need = run->need,
		.reached = reached,
	};
	memcpy(event.rungs, rungs, sizeof(event.rungs));
	gm_env_tell(device->env, &event);
}

/* The account owes nothing any more, whatever it was asked for. */
static void ladder_settle_account(struct gm_device *device, struct gm_account *account)
{
	struct gm_ladder_run *run = &device->ladder.runs[account->asked.trigger];
	if (!account->asked.owing)
		return;

	uint64_t counted = account->asked.doubted ? 0 : account->asked.bytes;
	assert(run->owing > 0 && run->owed >= counted);
	run->owing--;
	run->owed -= counted;
	account->asked.owing = false;
	account->asked.bytes = 0;
	DL_DELETE2(device->ladder.owing, account, owing_prev, owing_next);
	device->env->woken = true; /* it may have been the last one of the run */
}

static void ladder_ask_client(struct gm_device *device, const struct gm_ladder_plan *plan,
	const struct gm_ladder_step *step, uint64_t deadline)
{
	const struct gm_env *env = device->env;
	struct gm_ladder_run *run = &device->ladder.runs[plan->trigger];
	struct gm_account *account = step->account;

	ladder_settle_account(device, account);
	account->asked.owing = true;
	DL_APPEND2(device->ladder.owing, account, owing_prev, owing_next);
	/* The plan may rest on an older look. A client that has used its memory since must not be
	 * blamed for it. */
	account->asked.promised = step->claimed ? ladder_promise(device, step) : 0;
	account->asked.claimed = account->asked.promised > 0;
	account->asked.trigger = (uint8_t)plan->trigger;
	account->asked.rung = (uint8_t)step->rung;
	account->asked.wanted = account->asked.bytes = step->bytes;
	account->asked.doubted = step->doubted;
	account->asked.for_uid = plan->for_uid;
	run->owing++;
	run->owed += step->doubted ? 0 : step->bytes;

	env->ops.reclaim(env->ctx, step->session,
		&(struct gm_reclaim){
			.device = device->number,
			.trigger = plan->trigger,
			.rung = step->rung,
			.bytes = step->bytes,
			.spill = step->spill,
			.urgent = step->rung >= GM_RUNG_UNUSED,
			.deadline_ns = deadline,
		});
}

void gm_ladder_carry_out(struct gm_device *device, const struct gm_ladder_plan *plan)
{
	struct gm_ladder_run *run = &device->ladder.runs[plan->trigger];
	const struct gm_policy *policy = &device->info.policy;
	uint64_t allowed = plan->rungs[GM_RUNG_SPILL] ? gm_ladder_spill_ns(policy)
						      : gm_policy_reclaim_ns(policy);
	uint64_t deadline = gm_plus(gm_device_now(device), allowed);

	if (run->active && plan->trigger == GM_TRIGGER_PRESSURE) {
		/* What is missing is measured anew each time, and includes what was missing before.
		 */
		run->need = plan->need > run->need ? plan->need : run->need;
		run->level = device->ladder.level > run->level ? device->ladder.level : run->level;
	} else if (run->active) {
		run->need = gm_plus(run->need, plan->need);
	} else {
		memset(run->rungs, 0, sizeof(run->rungs));
		run->active = true;
		run->spills = false;
		run->deadline_ns = 0;
		run->need = plan->need;
		run->level = device->ladder.level;
		ladder_tell_run(
			device, plan->trigger, GM_EVENT_RECLAIM_STARTED, plan->rungs, false);
	}

	/* Those that were asked before may have longer. */
	run->deadline_ns = gm_max(run->deadline_ns, deadline);
	run->spills = run->spills || plan->rungs[GM_RUNG_SPILL] > 0;
	device->reclaim_epoch++;

	for (size_t i = 0; i < plan->n_steps; i++) {
		const struct gm_ladder_step *step = &plan->steps[i];
		if (step->rung == GM_RUNG_POOL)
			run->rungs[GM_RUNG_POOL] +=
				gm_pool_shrink(&device->pool, step->bytes, GM_DOMAIN_FRESH);
		else
			ladder_ask_client(device, plan, step, deadline);
	}

	device->env->woken = true;
	gm_device_settle(device);
}

/* ---- what came of it */

uint64_t gm_ladder_owed(const struct gm_device *device, enum gm_trigger trigger)
{
	return device->ladder.runs[trigger].owed;
}

bool gm_ladder_asking(const struct gm_device *device, enum gm_trigger trigger)
{
	return device->ladder.runs[trigger].owing > 0;
}

uint64_t gm_ladder_spill_until(const struct gm_device *device, enum gm_trigger trigger)
{
	const struct gm_ladder_run *run = &device->ladder.runs[trigger];

	return run->active && run->spills ? run->deadline_ns : 0;
}

uint64_t gm_ladder_spill_ns(const struct gm_policy *policy)
{
	return gm_policy_reclaim_ns(policy) + SPILL_NS;
}

/* Whether half of what the client promised came, at least. A few bytes would prove nothing. */
static bool ladder_kept_its_word(const struct gm_asked *asked)
{
	return asked->wanted - asked->bytes >= asked->promised / 2;
}

static void ladder_break_word(struct gm_asked *asked)
{
	asked->broken = gm_max(asked->broken, asked->promised / 2);
	if (asked->ignored < UINT8_MAX)
		asked->ignored++;
}

/* The client returned bytes that it had promised. */
static void ladder_mend_word(struct gm_asked *asked, uint64_t bytes)
{
	if (!asked->claimed)
		return;
	asked->broken -= gm_min(asked->broken, bytes);
	if (asked->broken == 0)
		asked->ignored = 0;
}

bool gm_ladder_returned(struct gm_device *device, struct gm_account *account, uint64_t bytes)
{
	struct gm_asked *asked = &account->asked;
	struct gm_ladder_run *run = &device->ladder.runs[asked->trigger];
	uint64_t of_it = gm_min(bytes, asked->bytes);

	run->rungs[asked->rung] += bytes;
	asked->bytes -= of_it;
	run->owed -= asked->doubted ? 0 : of_it;
	ladder_mend_word(asked, of_it);
	if (asked->bytes == 0)
		ladder_settle_account(device, account);
	return run != &device->ladder.runs[GM_TRIGGER_REQUEST];
}

void gm_ladder_gone(struct gm_device *device, struct gm_payer *payer)
{
	ladder_settle_account(device, &payer->accounts[device->number]);
	if (device->ladder.victim == payer->id && payer->ending) {
		/* Wait and see what its end brings before the next action. */
		device->ladder.victim = 0;
		device->ladder.next_ns =
			gm_plus(gm_device_now(device), gm_policy_settle_ns(&device->info.policy));
	}
}

/* Of what the client owes, what it could have returned: it says that it still caches that much. It
 * may have used the rest since, or the rest never could come back. */
static uint64_t ladder_kept_back(const struct gm_device *device, struct gm_account *account)
{
	const struct gm_asked *asked = &account->asked;
	if (!asked->owing || !asked->claimed)
		return 0;
	const struct gm_said *said = ladder_look(device, account->payer->session, account);
	return said->rough ? 0 : gm_min(asked->bytes, said->cached);
}

/* Whether the client still has some of what it owes. Nobody is blamed for evictable buffers that stay:
 * the program's work may keep them where they are. */
static bool ladder_has_still(const struct gm_device *device, struct gm_account *account)
{
	const struct gm_asked *asked = &account->asked;
	if (ladder_kept_back(device, account) > 0)
		return true;
	return asked->owing && asked->claimed && asked->rung == GM_RUNG_SPILL &&
	       !account->said.rough && account->said.evictable > 0;
}

static void ladder_give_up_on(struct gm_device *device, struct gm_account *account)
{
	const struct gm_payer *payer = account->payer;
	struct gm_asked *asked = &account->asked;
	uint64_t came = asked->wanted - asked->bytes;
	uint64_t kept = ladder_kept_back(device, account);
	uint64_t quiet = gm_policy_settle_ns(&device->info.policy);
	bool broken = !ladder_kept_its_word(asked);

	ladder_settle_account(device, account);
	if (broken) {
		/* The client had said that it has them. */
		quiet <<= gm_min(asked->ignored, QUIET_DOUBLED);
		ladder_break_word(asked);
	}
	if (kept) {
		char text[GM_DETAIL_BYTES], wanted[GM_UNITS_TEXT], returned[GM_UNITS_TEXT];
		gm_say(text,
			"device %u: client %llu was asked for %s and returned %s of it in time",
			device->number, (unsigned long long)payer->id,
			gm_format_size(came + kept, wanted),
			came ? gm_format_size(came, returned) : "none");
		gm_env_tell(device->env, &(struct gm_event){.kind = GM_EVENT_IGNORED,
						 .device = device->number,
						 .text = text,
						 .session = payer->session,
						 .held = account->held,
						 .trigger = asked->trigger,
						 .asked = came + kept,
						 .bytes = came});
	}
	asked->quiet_ns = gm_plus(gm_device_now(device), quiet);
}

static bool ladder_reached(const struct gm_device *device, enum gm_trigger trigger)
{
	const struct gm_ladder_run *run = &device->ladder.runs[trigger];
	uint64_t sum = 0;
	if (trigger == GM_TRIGGER_PRESSURE)
		return gm_policy_level(&device->info.policy, gm_device_pressure(device),
			       run->level) < run->level;

	for (unsigned r = 0; r < GM_RUNGS; r++)
		sum += run->rungs[r];
	if (run->need != UINT64_MAX)
		return sum >= run->need;

	/* If all there is was wanted, it came if no client still has what it owes. */
	struct gm_account *account;
	DL_FOREACH2 (device->ladder.owing, account, owing_next)
		if (account->asked.trigger == trigger && ladder_has_still(device, account))
			return false;
	return true;
}

static void ladder_end_run(struct gm_device *device, enum gm_trigger trigger)
{
	struct gm_ladder_run *run = &device->ladder.runs[trigger];
	bool ok = ladder_reached(device, trigger);
	struct gm_account *account, *next;
	DL_FOREACH_SAFE2 (device->ladder.owing, account, next, owing_next)
		if (account->asked.trigger == trigger)
			ladder_give_up_on(device, account);

	assert(run->owing == 0 && run->owed == 0);
	run->active = false;
	ladder_tell_run(device, trigger, GM_EVENT_RECLAIM_ENDED, run->rungs, ok);
	if (device->queue.length > 0)
		gm_device_wake_queue(device);
}

void gm_ladder_end_runs(struct gm_device *device)
{
	for (unsigned t = 0; t < GM_TRIGGERS; t++) {
		struct gm_ladder_run *run = &device->ladder.runs[t];
		if (run->active && (run->owing == 0 || gm_device_now(device) >= run->deadline_ns))
			ladder_end_run(device, t);
	}
}

/* ---- the other triggers: request, min_free, manual */

static void ladder_plan_request(struct gm_device *device, const struct gm_account *self,
	uint64_t bytes, bool own, struct gm_ladder_plan *plan)
{
	gm_ladder_plan_init(device, GM_TRIGGER_REQUEST, bytes, plan);
	plan->for_uid = self->payer->payer_uid;
	plan->own = own;
}

uint64_t gm_ladder_ask(struct gm_device *device, const struct gm_account *self,
	const struct gm_tally *tally, uint64_t bytes, struct gm_ladder_ways ways)
{
	struct gm_ladder_plan plan;
	ladder_plan_request(device, self, bytes, ways.own, &plan);
	int r = 0;
	if (!ways.widely)
		r = gm_ladder_plan_clients(device, self, tally, GM_RUNG_CACHED, bytes, &plan);
	if (r == 0 && !ways.widely && gm_ladder_plan_sure(&plan) < bytes)
		r = gm_ladder_plan_clients(device, self, tally, GM_RUNG_SPILL,
			bytes - gm_ladder_plan_sure(&plan), &plan);
	if (r == 0 && gm_ladder_plan_sure(&plan) < bytes) {
		/* By what clients say, there is not enough. But what they say may be old, so all of
		 * them are asked. */
		gm_ladder_plan_deinit(&plan);
		ladder_plan_request(device, self, bytes, ways.own, &plan);
		r = gm_ladder_plan_clients(device, self, tally, GM_RUNG_UNUSED, bytes, &plan);
		if (r == 0)
			r = gm_ladder_plan_clients(
				device, self, tally, GM_RUNG_SPILL, bytes, &plan);
	}

	uint64_t asked = r == 0 && (!ways.fully || plan.planned >= bytes) ? plan.planned : 0;
	if (asked > 0)
		gm_ladder_carry_out(device, &plan);
	gm_ladder_plan_deinit(&plan);
	return asked;
}

void gm_ladder_min_free(struct gm_device *device, uint64_t need, uint64_t bytes)
{
	struct gm_ladder_plan plan;
	struct gm_ladder_run *run = &device->ladder.runs[GM_TRIGGER_MIN_FREE];
	gm_ladder_plan_init(device, GM_TRIGGER_MIN_FREE, need, &plan);
	plan.rungs[GM_RUNG_POOL] = bytes;
	gm_ladder_carry_out(device, &plan);
	run->rungs[GM_RUNG_POOL] += bytes;
}

gpumem_status gm_ladder_plan_cleanup(struct gm_device *device, uint64_t free_bytes,
	struct gm_ladder_plan *ret_plan, char detail[GM_DETAIL_BYTES])
{
	uint64_t has = gm_ledger_free(&device->ledger) + device->ledger.doomed;
	uint64_t need = free_bytes ? gm_minus(free_bytes, has) : UINT64_MAX;
	struct gm_ladder_plan plan;
	gm_ladder_plan_init(device, GM_TRIGGER_MANUAL, need, &plan);
	int r = gm_ladder_plan_pool(device, &plan, need);
	if (r == 0)
		r = gm_ladder_plan_clients(
			device, NULL, NULL, GM_RUNG_CACHED, gm_minus(need, plan.planned), &plan);
	if (r == 0)
		r = gm_ladder_plan_clients(
			device, NULL, NULL, GM_RUNG_SPILL, gm_minus(need, plan.planned), &plan);
	if (r < 0) {
		gm_ladder_plan_deinit(&plan);
		return gm_refuse(
			GPUMEM_E_HOST_MEMORY, detail, "the daemon has no memory for a plan");
	}

	*ret_plan = plan;
	if (need == UINT64_MAX || plan.planned >= need)
		return GPUMEM_OK;
	char asked[GM_UNITS_TEXT], free_text[GM_UNITS_TEXT], pool[GM_UNITS_TEXT],
		clients[GM_UNITS_TEXT];
	return gm_refuse(GPUMEM_E_NO_MEMORY, detail,
		"device %u: %s cannot be made free: %s are, the pool has %s, and clients say they "
		"could return %s; see gpumemctl clients",
		device->number, gm_format_size(free_bytes, asked), gm_format_size(has, free_text),
		gm_format_size(plan.rungs[GM_RUNG_POOL], pool),
		gm_format_size(plan.planned - plan.rungs[GM_RUNG_POOL], clients));
}
