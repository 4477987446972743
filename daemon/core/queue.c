/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that wait. This file promises what queue.h says: an order, a bound on being overtaken,
 * an end for every request, and that no request waits for memory that nobody will ever bring back.
 * It must never keep memory back for a waiting request: the memory stays available to any request
 * that may take it.
 */
#include "daemon/core/hash_table.h"
#include "daemon/core/session_private.h"

#include <assert.h>

#include "common/arith.h"
#include "common/units.h"
#include "daemon/core/ladder_private.h"
#include "daemon/core/plan.h"
#include "daemon/core/probe.h"

/* A parked request stays for so many rounds of asking clients. */
#define PARKED_ROUNDS 2

/* ---- order */

static bool queue_is_before(const struct gm_waiting *w, int32_t priority, uint64_t order)
{
	return w->priority > priority || (w->priority == priority && w->order < order);
}

static int queue_compare(const struct gm_request *a, const struct gm_request *b)
{
	return queue_is_before(&a->waiting, b->waiting.priority, b->waiting.order) ? -1 : 1;
}

/* Whether an account that gets memory takes what the waiting request lacks. */
static bool queue_wants_same(const struct gm_waiting *w, const struct gm_account *account)
{
	switch (w->block) {
	case GM_BLOCK_DEVICE:
	case GM_BLOCK_GUARANTEE:
		return true;
	case GM_BLOCK_QUOTA:
		return gm_account_counts_for(account, w->tally);
	case GM_BLOCK_NONE:
	case GM_BLOCK_CRITICAL: /* holds back every request behind it as well */
	case GM_BLOCK_TURN:     /* the request it waits for bars those behind it, too */
		break;
	}
	return false;
}

bool gm_queue_bars(const struct gm_device *device, const struct gm_account *account, uint64_t order)
{
	const struct gm_request *r;
	DL_FOREACH2 (device->queue.requests, r, waiting.next) {
		const struct gm_waiting *w = &r->waiting;
		if (!queue_is_before(w, account->priority, order))
			break;
		if (w->overtaken >= GM_QUEUE_OVERTAKES && queue_wants_same(w, account))
			return true;
	}
	return false;
}

void gm_queue_overtake(struct gm_device *device, const struct gm_account *account, uint64_t order)
{
	struct gm_request *r;
	DL_FOREACH2 (device->queue.requests, r, waiting.next) {
		struct gm_waiting *w = &r->waiting;
		if (!queue_is_before(w, account->priority, order))
			break;
		if (queue_wants_same(w, account) && ++w->overtaken == GM_QUEUE_OVERTAKES)
			device->queue.exhausted++;
	}
}

void gm_queue_requote(struct gm_device *device, const struct gm_quotas *quotas)
{
	struct gm_request *r;
	DL_FOREACH2 (device->queue.requests, r, waiting.next) {
		struct gm_waiting *w = &r->waiting;
		w->priority = w->account->priority;
		if (w->tally)
			w->tally = gm_quotas_moved(quotas, w->tally, device->number);
		if (w->block == GM_BLOCK_QUOTA && !w->tally)
			w->block = GM_BLOCK_DEVICE;
	}
	DL_SORT2(device->queue.requests, queue_compare, waiting.prev, waiting.next);
	device->queue.changes++;
	/* A new limit has a clock of its own, and the policy may have changed as well. */
	gm_deadlock_restart(device);
}

static void queue_insert(struct gm_device *device, struct gm_request *request)
{
	struct gm_queue *queue = &device->queue;
	struct gm_waiting *w = &request->waiting;
	struct gm_request *r;
	DL_FOREACH2 (queue->requests, r, waiting.next)
		if (queue_is_before(w, r->waiting.priority, r->waiting.order))
			break;

	if (r)
		DL_PREPEND_ELEM2(queue->requests, r, request, waiting.prev, waiting.next);
	else
		DL_APPEND2(queue->requests, request, waiting.prev, waiting.next);
	w->queued = true;
	queue->length++;
	queue->denied += w->denied > 0;
	queue->exhausted += w->overtaken >= GM_QUEUE_OVERTAKES;
	queue->changes++;
	if (gm_waiting_endless(w)) {
		queue->endless++;
		w->account->endless++;
		w->account->endless_ns = gm_max(w->account->endless_ns, w->since_ns);
		gm_deadlock_look_by(device, w->since_ns);
	}
	gm_request_link(request);
}

static void queue_take_out(struct gm_device *device, struct gm_request *request)
{
	struct gm_queue *queue = &device->queue;
	struct gm_waiting *w = &request->waiting;
	assert(w->queued && queue->length > 0);
	DL_DELETE2(queue->requests, request, waiting.prev, waiting.next);
	w->queued = false;
	queue->length--;
	queue->denied -= w->denied > 0;
	queue->changes++;

	if (w->overtaken >= GM_QUEUE_OVERTAKES) {
		/* The requests that it barred have a chance now. */
		queue->exhausted--;
		gm_device_wake_queue(device);
	}
	if (gm_waiting_endless(w)) {
		queue->endless--;
		w->account->endless--;
	}
	gm_request_unlink(request);
}

/* ---- reports, and the end without success */

static void queue_tell(struct gm_device *device, const struct gm_request *request,
	enum gm_event_kind kind, int status, const char *text)
{
	const struct gm_waiting *w = &request->waiting;
	struct gm_event event = {
		.kind = kind,
		.device = device->number,
		.text = text,
		.session = request->session,
		.asked = w->exact,
		.held = w->account->held,
		.waited_ns = gm_device_now(device) - w->since_ns,
		.priority = w->priority,
		.block = w->block,
		.status = status,
	};
	if (w->block == GM_BLOCK_QUOTA) {
		event.owner = gm_quota_owner(w->tally->quota);
		event.max = w->tally->max;
		event.held = w->tally->held;
	}
	gm_env_tell(device->env, &event);
}

static struct gm_refusal queue_refusal_of(const struct gm_waiting *w)
{
	return (struct gm_refusal){.block = w->block, .tally = w->tally, .denied = w->denied};
}

/* Refuses a request that is not in the queue any more. */
static void queue_refuse(struct gm_request *request, gpumem_status status, const char *detail)
{
	if (request->waiting.told)
		queue_tell(request->waiting.device, request, GM_EVENT_REFUSED, status, detail);
	gm_request_refuse(request, status, detail);
}

void gm_queue_end(struct gm_request *request, gpumem_status status, const char *detail)
{
	queue_take_out(request->waiting.device, request);
	queue_refuse(request, status, detail);
}

/* Ends a request for this reason. instead: the status to report; GPUMEM_OK: the refusal's own. */
static void queue_end_by(struct gm_device *device, struct gm_request *request,
	const struct gm_refusal *refusal, const char *prefix, gpumem_status instead)
{
	char why[GM_DETAIL_BYTES], detail[GM_DETAIL_BYTES];
	const struct gm_waiting *w = &request->waiting;
	gpumem_status status = gm_admit_say(device, w->account, w->exact, refusal, why);
	gm_say(detail, "%s%s", prefix, why);
	gm_queue_end(request, instead == GPUMEM_OK ? status : instead, detail);
}

/* ---- asking clients on behalf of a request */

/* The bytes that requests ahead of it want from the same place. */
static uint64_t queue_wanted_before(
	const struct gm_device *device, const struct gm_request *request)
{
	const struct gm_request *r;
	uint64_t sum = 0;
	DL_FOREACH2 (device->queue.requests, r, waiting.next) {
		if (r == request)
			break;
		if (queue_wants_same(&r->waiting, request->waiting.account) &&
			r->waiting.tally == request->waiting.tally)
			sum += r->waiting.exact;
	}
	return sum;
}

/* Whether memory that clients return for this trigger helps the request. Room on the device helps
 * every request that lacks it. */
static bool queue_helps(const struct gm_waiting *w, enum gm_trigger trigger)
{
	return trigger == GM_TRIGGER_REQUEST || w->block == GM_BLOCK_DEVICE ||
	       w->block == GM_BLOCK_GUARANTEE;
}

/* The bytes that clients still owe and that help the request. */
static uint64_t queue_owed(const struct gm_device *device, const struct gm_waiting *w)
{
	uint64_t sum = 0;
	for (unsigned t = 0; t < GM_TRIGGERS; t++)
		if (queue_helps(w, t))
			sum += gm_ladder_owed(device, t);
	return sum;
}

static bool queue_asking(const struct gm_device *device, const struct gm_waiting *w)
{
	for (unsigned t = 0; t < GM_TRIGGERS; t++)
		if (queue_helps(w, t) && gm_ladder_asking(device, t))
			return true;
	return false;
}

/* Asks clients for what the request lacks. Returns whether something may come. */
static bool queue_ask(struct gm_device *device, struct gm_request *request)
{
	struct gm_waiting *w = &request->waiting;
	struct gm_refusal refusal = queue_refusal_of(w);
	w->again_ns = gm_plus(gm_device_now(device), gm_policy_settle_ns(&device->info.policy));

	/* For any other reason, it lacks nothing that a client could return. */
	if (w->block != GM_BLOCK_QUOTA && w->block != GM_BLOCK_DEVICE &&
		w->block != GM_BLOCK_GUARANTEE)
		return queue_asking(device, w);

	uint64_t missing = gm_admit_missing(device, w->account, w->exact, &refusal);
	if (missing < w->denied)
		missing = w->denied;
	missing += queue_wanted_before(device, request);

	uint64_t coming = queue_owed(device, w);
	if (missing > coming) {
		gm_ladder_ask(
			device, w->account, w->tally, missing - coming, w->rounds > 0, w->parked);
		if (w->rounds < UINT8_MAX)
			w->rounds++;
	}
	return queue_asking(device, w);
}

/* ---- in */

/* Fills all of the request's place but the reason why it waits. */
static void queue_set_up(struct gm_device *device, struct gm_request *request, uint64_t exact)
{
	const struct gm_policy *policy = &device->info.policy;
	struct gm_account *account = gm_session_account(request->session, device);
	uint64_t now = gm_device_now(device), wait = request->wait_ns;
	if (wait == 0 && policy->oom == GM_OOM_REFUSE)
		wait = GM_WAIT_NEVER;
	else if (wait == 0)
		wait = policy->wait_ns ? policy->wait_ns : GM_WAIT_NS;
	bool parked = wait == GM_WAIT_NEVER;
	if (parked)
		wait = PARKED_ROUNDS * gm_policy_reclaim_ns(policy);

	request->waiting = (struct gm_waiting){
		.parked = parked,
		.priority = account->priority,
		.order = request->waiting.order,
		.exact = exact,
		.device = device,
		.account = account,
		.since_ns = now,
		.until_ns = gm_plus(now, wait),
	};
}

/* By what is known now, the request does not fit: asks clients, and reports that it waits. Returns
 * whether the request stays in the queue. */
static bool queue_begin(struct gm_device *device, struct gm_request *request, const char *why)
{
	struct gm_waiting *w = &request->waiting;
	w->begun = true;
	if (!queue_ask(device, request) && w->parked)
		return false;

	if (!w->parked) {
		char text[GM_DETAIL_BYTES];
		gm_say(text, "waits: %s", why);
		w->told = true;
		queue_tell(device, request, GM_EVENT_QUEUED, GPUMEM_OK, text);
	}
	return true;
}

/* Whether the request may fit once core knows what is foreign now. */
static bool queue_may_fit(const struct gm_device *device, const struct gm_request *request)
{
	const struct gm_waiting *w = &request->waiting;
	return (w->block == GM_BLOCK_DEVICE || w->block == GM_BLOCK_GUARANTEE) &&
	       gm_probe_helps(device, w->account, w->exact);
}

/* Whether no request may be added. Then detail, which says what the request lacks, says so, too. */
static bool queue_is_full(const struct gm_device *device, char detail[GM_DETAIL_BYTES])
{
	char lacks[GM_DETAIL_BYTES];
	if (device->queue.length < GM_LIMIT_WAITING_PER_DEVICE)
		return false;
	gm_say(lacks, "%s", detail);
	gm_say(detail, "%d requests wait already, try again later: %s", GM_LIMIT_WAITING_PER_DEVICE,
		lacks);
	return true;
}

gpumem_status gm_queue_enter(struct gm_device *device, struct gm_request *request, uint64_t exact,
	const struct gm_refusal *refusal, char detail[GM_DETAIL_BYTES])
{
	struct gm_waiting *w = &request->waiting;
	struct gm_refusal why = *refusal, never;
	queue_set_up(device, request, exact);
	if (!gm_admit_ever(device, w->account, exact, &never))
		why = never;
	w->order = ++device->queue.last_order;
	w->block = why.block;
	w->tally = why.tally;
	gpumem_status status = gm_admit_say(device, w->account, exact, &why, detail);
	if (w->block == GM_BLOCK_QUOTA)
		queue_tell(device, request, GM_EVENT_LIMIT, GPUMEM_E_LIMIT, detail);
	if (why.never || (w->parked && w->block == GM_BLOCK_CRITICAL) ||
		queue_is_full(device, detail))
		return status;

	queue_insert(device, request);
	if (queue_may_fit(device, request)) {
		w->probe = gm_probe_want(device);
	} else if (!queue_begin(device, request, detail)) {
		queue_take_out(device, request);
		return status;
	}
	/* The queue's next due time depends on it. */
	gm_device_wake_queue(device);
	return GPUMEM_OK;
}

void gm_queue_note(struct gm_device *device, struct gm_request *request)
{
	if (request->waiting.order == UINT64_MAX)
		request->waiting = (struct gm_waiting){.order = ++device->queue.last_order};
}

void gm_queue_deny(
	struct gm_device *device, struct gm_request *request, uint64_t bytes, uint64_t doomed)
{
	struct gm_waiting *w = &request->waiting;
	char detail[GM_DETAIL_BYTES];
	if (w->exact == 0)
		queue_set_up(device, request, gm_plan_exact(request->bytes));
	w->priority = w->account->priority;
	w->block = GM_BLOCK_DEVICE;
	w->tally = NULL;
	w->denied = bytes;
	w->freed = device->freed + doomed;
	w->returns = device->pool.returns;

	struct gm_refusal refusal = queue_refusal_of(w);
	gpumem_status status = gm_admit_say(device, w->account, w->exact, &refusal, detail);
	if (queue_is_full(device, detail)) {
		queue_refuse(request, status, detail);
		return;
	}

	queue_insert(device, request);
	/* The backend has just said what it has: no probe is needed. */
	w->probe = 0;
	if (!queue_begin(device, request, detail))
		gm_queue_end(request, status, detail);
	gm_device_wake_queue(device);
}

/* ---- out */

static void queue_grant(struct gm_device *device, struct gm_request *request)
{
	char detail[GM_DETAIL_BYTES] = "", size[GM_UNITS_TEXT], waited[GM_UNITS_TEXT];
	struct gm_waiting *w = &request->waiting;

	queue_take_out(device, request);
	gpumem_status status = gm_request_admit(request, device, detail);
	if (status != GPUMEM_OK) {
		queue_refuse(request, status, detail);
		return;
	}

	w->denied = 0;
	if (w->told) {
		w->block = GM_BLOCK_NONE;
		gm_say(detail, "granted %s after %s", gm_format_size(request->charged, size),
			gm_format_duration(gm_device_now(device) - w->since_ns, waited));
		queue_tell(device, request, GM_EVENT_GRANTED, GPUMEM_OK, detail);
	}
	gm_request_start(request);
}

/* Whether a denied request may be tried again: something came back since, or it is time. */
static bool queue_came_back(
	const struct gm_device *device, const struct gm_waiting *w, uint64_t now)
{
	return device->freed > w->freed || device->pool.returns != w->returns ||
	       (!w->parked && now >= w->again_ns);
}

/* Decides about a parked request that does not fit. Returns whether it left the queue. */
static bool queue_step_parked(struct gm_device *device, struct gm_request *request,
	const struct gm_refusal *refusal, uint64_t now)
{
	struct gm_waiting *w = &request->waiting;
	if (now < w->until_ns && (queue_asking(device, w) ||
					 (w->rounds < PARKED_ROUNDS && queue_ask(device, request))))
		return false;
	/* Clients have had time to free memory since the last probe. */
	if (now < w->until_ns && w->rounds > 0 && !w->last_probe &&
		queue_may_fit(device, request)) {
		w->last_probe = true;
		w->probe = gm_probe_want(device);
		return false;
	}
	queue_end_by(device, request, refusal, "", GPUMEM_OK);
	return true;
}

/* Decides about one request. Returns whether it left the queue. */
static bool queue_step(struct gm_device *device, struct gm_request *request, uint64_t now)
{
	struct gm_waiting *w = &request->waiting;
	struct gm_refusal refusal = {0};
	if (!gm_admit_ever(device, w->account, w->exact, &refusal)) {
		queue_end_by(device, request, &refusal, "", GPUMEM_OK);
		return true;
	}
	if (gm_admit_now(device, w->account, w->exact, &refusal)) {
		if (w->denied && !queue_came_back(device, w, now)) {
			refusal.block = GM_BLOCK_DEVICE;
		} else if (device->queue.exhausted == 0 ||
			   !gm_queue_bars(device, w->account, w->order)) {
			queue_grant(device, request);
			return true;
		} else {
			refusal.block = GM_BLOCK_TURN;
		}
	}

	w->block = refusal.block;
	w->tally = refusal.tally;
	refusal.denied = w->denied;
	if (w->probe && !gm_probe_over(device, w->probe) && now < w->until_ns)
		return false;
	w->probe = 0;
	if (!w->begun && now < w->until_ns) {
		char why[GM_DETAIL_BYTES];
		gm_admit_say(device, w->account, w->exact, &refusal, why);
		if (!queue_begin(device, request, why)) {
			queue_end_by(device, request, &refusal, "", GPUMEM_OK);
			return true;
		}
	}

	if (w->parked)
		return queue_step_parked(device, request, &refusal, now);
	if (now >= w->until_ns) {
		char prefix[GM_DETAIL_BYTES], waited[GM_UNITS_TEXT];
		gm_say(prefix, "waited %s: ", gm_format_duration(now - w->since_ns, waited));
		queue_end_by(device, request, &refusal, prefix, GPUMEM_E_TIMEOUT);
		return true;
	}
	if (now >= w->again_ns && !gm_ladder_asking(device, GM_TRIGGER_REQUEST))
		queue_ask(device, request);
	return false;
}

/* Works out when the queue must be gone through although nothing has happened. */
static void queue_set_due(struct gm_device *device, uint64_t now)
{
	struct gm_queue *queue = &device->queue;
	const struct gm_request *r;
	bool foreign = false;
	queue->due_ns = UINT64_MAX;

	DL_FOREACH2 (queue->requests, r, waiting.next) {
		const struct gm_waiting *w = &r->waiting;
		uint64_t due = w->until_ns;
		/* If its time to ask clients has come already, others are being asked. The end of
		 * that wakes the queue. */
		if (!w->parked && !w->probe && w->again_ns > now && w->again_ns < due)
			due = w->again_ns;
		queue->due_ns = gm_min(queue->due_ns, due);
		foreign = foreign || (!w->probe && queue_may_fit(device, r));
	}

	if (foreign)
		queue->due_ns = gm_min(queue->due_ns, gm_probe_again(device, now));
	/* If the time to look for a deadlock has come already, clients are being asked. The end of
	 * that wakes the queue. */
	if (queue->endless > 0 && queue->look_ns > now)
		queue->due_ns = gm_min(queue->due_ns, queue->look_ns);
}

void gm_queue_run(struct gm_device *device)
{
	struct gm_queue *queue = &device->queue;
	uint64_t now = gm_device_now(device);
	struct gm_request *r = queue->requests;
	queue->woken = false;

	while (r) {
		struct gm_request *next = r->waiting.next;
		uint64_t changes = queue->changes;
		bool left = queue_step(device, r, now);
		/* If done() changed the list, starts again. */
		r = queue->changes == changes + left ? next : queue->requests;
	}

	r = queue->woken ? NULL : gm_deadlock_find(device);
	if (r) {
		char prefix[GM_DETAIL_BYTES], quiet[GM_UNITS_TEXT];
		struct gm_refusal refusal = queue_refusal_of(&r->waiting);
		gm_say(prefix,
			"everybody who holds memory waits for more, and nobody returned any for "
			"%s; free some: ",
			gm_format_duration(gm_policy_deadlock_ns(&device->info.policy), quiet));
		queue_end_by(device, r, &refusal, prefix, GPUMEM_E_DEADLOCK);
		gm_device_wake_queue(device);
	}
	queue_set_due(device, now);
}

uint64_t gm_queue_due(const struct gm_device *device)
{
	return device->queue.length > 0 ? device->queue.due_ns : UINT64_MAX;
}

/* ---- the list */

bool gm_queue_each(const struct gm_device *device, struct gm_queue_place *place,
	bool (*visit)(void *ctx, const struct gm_queue_info *info), void *ctx)
{
	uint64_t now = gm_device_now(device);
	const struct gm_request *r;
	DL_FOREACH2 (device->queue.requests, r, waiting.next) {
		const struct gm_waiting *w = &r->waiting;
		if (queue_is_before(w, place->priority, place->order))
			continue;
		struct gm_queue_info info = {
			.request = r,
			.session = r->session,
			.bytes = w->exact,
			.priority = w->priority,
			.waited_ns = now - w->since_ns,
			.left_ns =
				w->until_ns == UINT64_MAX ? UINT64_MAX : gm_minus(w->until_ns, now),
			.overtaken = w->overtaken,
			.parked = w->parked,
			.block = w->block,
			.owner =
				w->block == GM_BLOCK_QUOTA ? gm_quota_owner(w->tally->quota) : NULL,
		};

		if (!visit(ctx, &info)) {
			*place =
				(struct gm_queue_place){.priority = w->priority, .order = w->order};
			return true;
		}
	}
	return false;
}
