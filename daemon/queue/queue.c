/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that wait. This file promises what queue.h says: an order, an end for every request, and
 * that no request waits for memory that nobody will ever bring back. It must never let one uid's
 * requests cost the others more than a slice of work per turn.
 */
#include "daemon/books/hash_table.h"
#include "daemon/queue/queue_private.h"

#include <assert.h>

#include "common/arith.h"
#include "common/clock.h"
#include "common/text/uid_name.h"
#include "common/text/units.h"
#include "daemon/reclaim/reclaim_run.h"
#include "daemon/device/device_plan.h"
#include "daemon/device/device_probe.h"
#include "daemon/reclaim/reclaim_ask.h"
#include "daemon/queue/queue_deadlock.h"
#include "daemon/queue/queue_user.h"
#include "daemon/reclaim/reclaim_backoff.h"

/* ---- order */

void gm_queue_requote(struct gm_device *device, const struct gm_limits *limits)
{
	struct gm_request *r;
	struct gm_queue_user *user_queue;
	for (r = gm_queue_user_each(device, NULL); r; r = gm_queue_user_each(device, r)) {
		struct gm_queue_wait *w = &r->waiting;
		w->priority = w->ask.account->priority;
		if (w->ask.tally)
			w->ask.tally = gm_limits_moved(limits, w->ask.tally, device->number);
		if (w->ask.block == GM_BLOCK_LIMIT && !w->ask.tally)
			w->ask.block = GM_BLOCK_DEVICE;
	}
	DL_FOREACH (device->queue.user_queues, user_queue) {
		gm_queue_user_sort(user_queue);
		user_queue->asker.dry_ns = 0;
	}
	/* A new limit has a clock of its own, and the policy may have changed as well. */
	gm_queue_deadlock_restart(device);
}

/* When the request must be looked at although nothing has happened. */
static uint64_t queue_due_of(const struct gm_queue_wait *w, uint64_t now)
{
	/* If its time to ask clients has come already, others are being asked. The end of that
	 * wakes the queue. */
	if (!w->ask.nowait && !w->probe && w->ask.again_ns > now)
		return gm_u64_min(w->ask.again_ns, w->ask.until_ns);
	if (w->ask.rests && w->user_queue->asker.backoff_ns > now)
		return gm_u64_min(w->user_queue->asker.backoff_ns, w->ask.until_ns);
	return w->ask.until_ns;
}

/* There must be a line for its user (see queue_refuses_more()). */
static void queue_insert(struct gm_device *device, struct gm_request *request)
{
	struct gm_queue *queue = &device->queue;
	struct gm_queue_wait *w = &request->waiting;
	struct gm_queue_user *user_queue = gm_queue_user_get(device, request->payer->user);

	gm_queue_user_add(device, user_queue, request);
	w->queued = true;
	request->payer->n_waiting++;
	queue->denied += w->ask.denied > 0;
	if (gm_queue_wait_endless(w)) {
		queue->endless++;
		w->ask.account->endless++;
		w->ask.account->endless_ns =
			gm_u64_max(w->ask.account->endless_ns, w->ask.since_ns);
		gm_queue_deadlock_look_by(device, w->ask.since_ns);
	}
	gm_queue_head_note(request);
	gm_request_link(request);
}

static void queue_take_out(struct gm_device *device, struct gm_request *request)
{
	struct gm_queue *queue = &device->queue;
	struct gm_queue_wait *w = &request->waiting;
	assert(w->queued);
	gm_queue_head_leave(device, request);
	gm_queue_user_remove(device, request);
	w->queued = false;
	request->payer->n_waiting--;
	queue->denied -= w->ask.denied > 0;

	if (gm_queue_wait_endless(w)) {
		queue->endless--;
		w->ask.account->endless--;
	}
	gm_request_unlink(request);
}

/* ---- reports, and the end without success */

static struct gm_request_refusal queue_refusal_of(const struct gm_queue_wait *w)
{
	return (struct gm_request_refusal){
		.block = w->ask.block, .tally = w->ask.tally, .denied = w->ask.denied};
}

/* Refuses a request that is not in the queue any more. */
static void queue_refuse(struct gm_request *request, gpumem_status status, const char *detail)
{
	/* A client that takes its request back may have got the memory otherwise. */
	bool cancelled = status == GPUMEM_E_CANCELLED;
	enum gm_event_kind kind = cancelled || gm_request_host_will_do(request, status)
					  ? GM_EVENT_CANCELLED
					  : GM_EVENT_REFUSED;
	if (request->waiting.told)
		gm_queue_tell(request->waiting.device, request, kind, status,
			cancelled                  ? "cancelled"
			: kind == GM_EVENT_REFUSED ? "refused"
						   : "waits no longer, as host memory will do",
			detail);
	else if (kind == GM_EVENT_REFUSED)
		gm_queue_tell_refused(request->waiting.device, request, status, detail);
	request->calls->refuse(request, status, detail);
}

void gm_queue_end(struct gm_request *request, gpumem_status status, const char *detail)
{
	gm_reclaim_backoff_failed(request->waiting.device, &request->waiting.ask);
	queue_take_out(request->waiting.device, request);
	queue_refuse(request, status, detail);
}

/* Ends a request for this reason. instead: the status to report; GPUMEM_OK: the refusal's own. */
static void queue_end_by(struct gm_device *device, struct gm_request *request,
	const struct gm_request_refusal *refusal, const char *prefix, gpumem_status instead)
{
	char why[GM_DETAIL_BYTES], rest[GM_DETAIL_BYTES] = "", detail[GM_DETAIL_BYTES];
	const struct gm_queue_wait *w = &request->waiting;
	gpumem_status status =
		gm_device_admit_say(device, request->payer, w->ask.exact, refusal, why);
	if (!refusal->never)
		gm_reclaim_backoff_say(device, &w->ask, rest);
	gm_text_say(detail, "%s%s%s%s", prefix, rest, rest[0] ? "; " : "", why);
	gm_queue_end(request, instead == GPUMEM_OK ? status : instead, detail);
}

/* Ends a request whose time is over. */
static void queue_end_late(struct gm_device *device, struct gm_request *request,
	const struct gm_request_refusal *refusal, uint64_t now)
{
	char prefix[GM_DETAIL_BYTES], waited[GM_UNITS_TEXT];
	const struct gm_queue_wait *w = &request->waiting;

	if (w->ask.nowait) {
		queue_end_by(device, request, refusal, "", GPUMEM_OK);
		return;
	}
	gm_text_say(prefix, "waited %s: ", gm_format_duration(now - w->arrived_ns, waited));
	queue_end_by(device, request, refusal, prefix, GPUMEM_E_TIMEOUT);
}

/* ---- in */

static void queue_note_arrival(struct gm_device *device, struct gm_request *request)
{
	request->waiting.order = ++device->queue.last_order;
	request->waiting.arrived_ns = gm_u64_minus(gm_device_now(device), request->waited_ns);
}

/* Fills all of the request's place but the reason why it waits. A bound that the client set counts from the arrival;
 * everything else from now on. */
static void queue_set_up(
	struct gm_device *device, struct gm_request *request, uint64_t exact, uint64_t arrived_ns)
{
	const struct gm_policy *policy = &device->info.policy;
	struct gm_account *account = &request->payer->accounts[device->number];
	uint64_t since = arrived_ns, wait = request->wait_ns;
	if (wait == 0 && policy->oom == GM_POLICY_OOM_REFUSE)
		wait = GM_WAIT_NEVER;
	else if (wait == 0)
		wait = policy->wait_ns ? policy->wait_ns : GM_WAIT_NS;
	bool nowait = wait == GM_WAIT_NEVER;
	if (nowait)
		wait = GM_TCACHE_ROUNDS * gm_policy_reclaim_ns(policy);
	if (nowait || wait == GM_WAIT_FOREVER)
		since = gm_device_now(device);

	request->waiting = (struct gm_queue_wait){
		.priority = account->priority,
		.order = request->waiting.order,
		.arrived_ns = request->waiting.arrived_ns,
		.device = device,
		.ask = {.nowait = nowait,
			.exact = exact,
			.account = account,
			.since_ns = since,
			.until_ns = gm_u64_plus(since, wait)},
	};
}

/* By what is known now, the request does not fit: asks clients, and reports that it waits. Returns
 * whether the request stays in the queue. */
static bool queue_begin(struct gm_device *device, struct gm_request *request, const char *why)
{
	struct gm_queue_wait *w = &request->waiting;
	w->begun = true;
	if (!gm_queue_user_ask(device, request) && w->ask.nowait &&
		w->ask.block != GM_BLOCK_OVERTAKEN)
		return false;

	if (w->told_limit)
		gm_queue_tell(device, request, GM_EVENT_LIMIT, GPUMEM_E_LIMIT,
			w->ask.nowait ? "refused unless clients return memory" : "reached a limit",
			why);
	if (!w->ask.nowait) {
		w->told = true;
		gm_queue_tell(device, request, GM_EVENT_QUEUED, GPUMEM_OK, "waits", why);
	}
	gm_queue_tell_rest(device, request);
	return true;
}

/* Whether the request may fit once core knows what is foreign now. */
static bool queue_may_fit(const struct gm_device *device, const struct gm_request *request)
{
	const struct gm_queue_wait *w = &request->waiting;
	return gm_reclaim_ask_wants_device(&w->ask) &&
	       gm_device_probe_helps(device, w->ask.account, w->ask.exact);
}

/* Whether no request of its user may be added. Then detail, which says what the request lacks, says
 * so, too, and *status is what to refuse it with. */
static bool queue_refuses_more(struct gm_device *device, const struct gm_request *request,
	gpumem_status *status, char detail[GM_DETAIL_BYTES])
{
	char lacks[GM_DETAIL_BYTES], user[GM_UID_NAME_PAYER_TEXT];
	const struct gm_account_payer *payer = request->payer;
	if (gm_queue_user_length(device, payer->user) >= GM_BOUND_WAITING_PER_UID) {
		gm_text_say(lacks, "%s", detail);
		gm_text_say(detail,
			"%s has %d requests that wait for device %u, which is the most; try "
			"again later: %s",
			gm_uid_name_say_payer(payer->payer_uid, payer->uid, user),
			GM_BOUND_WAITING_PER_UID, device->number, lacks);
		return true;
	}
	if (gm_queue_user_get(device, payer->user))
		return false;
	*status = gm_text_refuse(GPUMEM_E_HOST_MEMORY, detail,
		"the daemon has no memory for another request that waits");
	return true;
}

/* Refuses a request that was never in the queue. */
static gpumem_status queue_refuse_at_once(struct gm_device *device,
	const struct gm_request *request, gpumem_status status, const char *detail)
{
	if (request->waiting.told_limit)
		gm_queue_tell(device, request, GM_EVENT_LIMIT, GPUMEM_E_LIMIT, "refused", detail);
	else
		gm_queue_tell_refused(device, request, status, detail);
	return status;
}

gpumem_status gm_queue_enter(struct gm_device *device, struct gm_request *request, uint64_t exact,
	const struct gm_request_refusal *refusal, char detail[GM_DETAIL_BYTES])
{
	struct gm_queue_wait *w = &request->waiting;
	struct gm_request_refusal why = *refusal, never;
	queue_note_arrival(device, request);
	queue_set_up(device, request, exact, gm_device_now(device));
	if (!gm_device_admit_ever(device, w->ask.account, exact, &never))
		why = never;
	w->ask.block = why.block;
	w->ask.tally = why.tally;
	gpumem_status status = gm_device_admit_say(device, request->payer, exact, &why, detail);
	if (request->at_once)
		return status;
	w->told_limit = w->ask.block == GM_BLOCK_LIMIT && !request->again && !request->host_will_do;
	if (why.never || (w->ask.nowait && w->ask.block == GM_BLOCK_CRITICAL) ||
		queue_refuses_more(device, request, &status, detail))
		return queue_refuse_at_once(device, request, status, detail);

	queue_insert(device, request);
	if (queue_may_fit(device, request)) {
		w->probe = gm_device_probe_want(device);
	} else if (!queue_begin(device, request, detail)) {
		queue_take_out(device, request);
		return queue_refuse_at_once(device, request, status, detail);
	}
	/* The queue's next due time depends on it. */
	gm_device_wake_queue(device);
	return GPUMEM_OK;
}

void gm_queue_note(struct gm_device *device, struct gm_request *request)
{
	if (request->waiting.order != UINT64_MAX)
		return;
	request->waiting =
		(struct gm_queue_wait){.device = device, .ask.since_ns = gm_device_now(device)};
	queue_note_arrival(device, request);
}

void gm_queue_deny(
	struct gm_device *device, struct gm_request *request, uint64_t bytes, uint64_t doomed)
{
	struct gm_queue_wait *w = &request->waiting;
	char detail[GM_DETAIL_BYTES];
	if (w->ask.exact == 0)
		queue_set_up(
			device, request, gm_device_plan_exact(request->bytes), w->ask.since_ns);
	w->priority = w->ask.account->priority;
	w->ask.block = GM_BLOCK_DEVICE;
	w->ask.tally = NULL;
	w->ask.denied = bytes;
	w->freed = device->freed + doomed;
	w->returns = device->pool.returns;

	struct gm_request_refusal refusal = queue_refusal_of(w);
	gpumem_status status =
		gm_device_admit_say(device, request->payer, w->ask.exact, &refusal, detail);
	if (request->at_once || queue_refuses_more(device, request, &status, detail)) {
		queue_refuse(request, status, detail);
		return;
	}

	queue_insert(device, request);
	/* The backend has just said what it has: no probe is needed. */
	w->probe = 0;
	uint64_t now = gm_device_now(device);
	if (now >= w->ask.until_ns)
		queue_end_late(device, request, &refusal, now);
	else if (!queue_begin(device, request, detail))
		gm_queue_end(request, status, detail);
	gm_device_wake_queue(device);
}

/* ---- out */

static void queue_grant(struct gm_device *device, struct gm_request *request)
{
	char detail[GM_DETAIL_BYTES] = "", size[GM_UNITS_TEXT], waited[GM_UNITS_TEXT];
	uint64_t ms = (gm_device_now(device) - request->waiting.arrived_ns) / GM_NS_PER_MS;
	struct gm_queue_wait *w = &request->waiting;
	struct gm_queue_user *user_queue = w->user_queue;

	queue_take_out(device, request);
	gpumem_status status = gm_request_admit(request, device, detail);
	if (status != GPUMEM_OK) {
		w->ask.block = GM_BLOCK_NONE; /* it does not lack memory any more */
		queue_refuse(request, status, detail);
		return;
	}

	device->queue.granted++;
	gm_reclaim_backoff_granted(device, &user_queue->asker, &w->ask);
	w->ask.denied = 0;
	if (w->told) {
		w->ask.block = GM_BLOCK_NONE;
		if (ms >= 1000 && ms < 60000)
			gm_text_say(detail, "granted after %u.%u s", (unsigned)(ms / 1000),
				(unsigned)(ms / 100 % 10));
		else
			gm_text_say(detail, "granted after %s",
				gm_format_duration(ms * GM_NS_PER_MS, waited));
		gm_queue_tell(device, request, GM_EVENT_GRANTED, GPUMEM_OK, detail,
			gm_format_size(request->charged, size));
	}
	gm_request_start(request);
}

/* Whether a denied request may be tried again: something came back since, or it is time. */
static bool queue_came_back(
	const struct gm_device *device, const struct gm_queue_wait *w, uint64_t now)
{
	return device->freed > w->freed || device->pool.returns != w->returns ||
	       (!w->ask.nowait && now >= w->ask.again_ns && now < w->ask.until_ns);
}

/* Decides about a request that may not wait that does not fit. Returns whether it left the queue. */
static bool queue_step_parked(struct gm_device *device, struct gm_request *request,
	const struct gm_request_refusal *refusal, uint64_t now)
{
	struct gm_queue_wait *w = &request->waiting;
	/* It fits, and the request that holds it back may be gone before its time is over. */
	if (now < w->ask.until_ns && w->ask.block == GM_BLOCK_OVERTAKEN)
		return false;
	if (now < w->ask.until_ns && gm_reclaim_ask_for_user_under_way(device, &w->ask))
		return false;
	/* Memory that clients return for other users' requests may help it, but it asks whom it can meanwhile. */
	if (now < w->ask.until_ns && gm_reclaim_ask_is_due(device, &w->ask) &&
		gm_queue_user_ask(device, request)) {
		gm_queue_tell_rest(device, request);
		return false;
	}
	if (now < w->ask.until_ns && gm_reclaim_ask_under_way(device, &w->ask))
		return false;
	/* Clients have had time to free memory since the last probe. */
	if (now < w->ask.until_ns && w->ask.rounds > 0 && !w->last_probe &&
		queue_may_fit(device, request)) {
		w->last_probe = true;
		w->probe = gm_device_probe_want(device);
		return false;
	}
	queue_end_by(device, request, refusal, "", GPUMEM_OK);
	return true;
}

/* Decides about one request. Returns whether it left the queue. */
static bool queue_step(struct gm_device *device, struct gm_request *request, uint64_t now)
{
	struct gm_queue_wait *w = &request->waiting;
	struct gm_request_refusal refusal = {0};
	if (!gm_device_admit_ever(device, w->ask.account, w->ask.exact, &refusal)) {
		w->ask.block = refusal.block;
		w->ask.tally = refusal.tally;
		queue_end_by(device, request, &refusal, "", GPUMEM_OK);
		return true;
	}
	if (gm_device_admit_now(device, w->ask.account, w->ask.exact, &refusal)) {
		if (w->ask.denied && !queue_came_back(device, w, now)) {
			refusal.block = GM_BLOCK_DEVICE;
		} else if (now >= w->ask.until_ns ||
			   !gm_queue_head_bars(
				   device, w->ask.account->payer, w->ask.exact, w->order)) {
			/* To be held back is no reason to fail. */
			queue_grant(device, request);
			return true;
		} else {
			refusal.block = GM_BLOCK_OVERTAKEN;
		}
	}

	w->ask.block = refusal.block;
	w->ask.tally = refusal.tally;
	refusal.denied = w->ask.denied;
	gm_queue_head_note(request);
	gm_queue_head_begin(device, request, now);
	if (w->probe && !gm_device_probe_over(device, w->probe) && now < w->ask.until_ns)
		return false;
	w->probe = 0;
	if (!w->begun && now < w->ask.until_ns) {
		char why[GM_DETAIL_BYTES];
		gm_device_admit_say(device, request->payer, w->ask.exact, &refusal, why);
		if (!queue_begin(device, request, why)) {
			queue_end_by(device, request, &refusal, "", GPUMEM_OK);
			return true;
		}
	}

	if (w->ask.nowait)
		return queue_step_parked(device, request, &refusal, now);
	if (now >= w->ask.until_ns) {
		queue_end_late(device, request, &refusal, now);
		return true;
	}
	bool due =
		now >= w->ask.again_ns || (w->ask.rests && !gm_reclaim_ask_rests(device, &w->ask));
	if (due && w->user_queue->asker.owing == 0) {
		gm_queue_user_ask(device, request);
		gm_queue_tell_rest(device, request);
	}
	return false;
}

/* Every request of the line is to be looked at. Of a long line, it goes on where the last slice
 * ended, so that each request has its turn. */
static void queue_start_over(struct gm_queue_user *user_queue)
{
	user_queue->left = gm_queue_user_count(user_queue);
	user_queue->next_due_ns = UINT64_MAX;
	user_queue->next_foreign = false;
	if (gm_queue_user_count(user_queue) <= GM_QUEUE_SLICE)
		user_queue->at = NULL;
}

/* The line's next request to be looked at in this slice; NULL: none. */
static struct gm_request *queue_next_of(struct gm_queue_user *user_queue)
{
	if (!user_queue->requests)
		user_queue->left = 0;
	if (user_queue->left == 0 || user_queue->work == 0)
		return NULL;
	if (!user_queue->at)
		user_queue->at = user_queue->requests;
	return user_queue->ahead ? user_queue->ahead : user_queue->at;
}

/* Looks at the line's next request. Returns whether the request was granted. */
static bool queue_look(struct gm_device *device, struct gm_queue_user *user_queue, uint64_t now)
{
	struct gm_request *r = queue_next_of(user_queue);
	uint64_t granted = device->queue.granted;
	if (user_queue->ahead) {
		user_queue->ahead = NULL;
	} else {
		user_queue->at = r->waiting.next;
		user_queue->left--;
	}
	user_queue->work--;
	device->queue.steps++;

	if (!queue_step(device, r, now)) {
		user_queue->next_due_ns =
			gm_u64_min(user_queue->next_due_ns, queue_due_of(&r->waiting, now));
		user_queue->next_foreign =
			user_queue->next_foreign || (!r->waiting.probe && queue_may_fit(device, r));
	}
	if (user_queue->left == 0) {
		user_queue->due_ns = user_queue->next_due_ns;
		user_queue->foreign = user_queue->next_foreign;
	}
	return device->queue.granted != granted;
}

/* The highest priority of those to be looked at. */
static bool queue_top_level(const struct gm_device *device, int32_t *ret_priority)
{
	struct gm_queue_user *user_queue;
	bool any = false;
	DL_FOREACH (device->queue.user_queues, user_queue) {
		const struct gm_request *r = queue_next_of(user_queue);
		if (!r || (any && r->waiting.priority <= *ret_priority))
			continue;
		*ret_priority = r->waiting.priority;
		any = true;
	}
	return any;
}

/* Goes through the lines. Among requests of equal priority, the uid that was granted something goes
 * to the end, and the next one has its turn. */
static void queue_go_through(struct gm_device *device, uint64_t now)
{
	struct gm_queue *queue = &device->queue;
	struct gm_queue_user *user_queue, *next;
	int32_t priority = 0;
	while (queue_top_level(device, &priority)) {
		DL_FOREACH_SAFE (queue->user_queues, user_queue, next) {
			const struct gm_request *r;
			bool granted = false;
			while (!granted && (r = queue_next_of(user_queue)) &&
				r->waiting.priority == priority)
				granted = queue_look(device, user_queue, now);
			if (!granted || !user_queue->next)
				continue;
			next = user_queue->next;
			DL_DELETE(queue->user_queues, user_queue);
			DL_APPEND(queue->user_queues, user_queue);
		}
	}
}

/* Works out when the queue must be gone through although nothing has happened. */
static void queue_set_due(struct gm_device *device, uint64_t now)
{
	struct gm_queue *queue = &device->queue;
	const struct gm_queue_user *user_queue;
	bool foreign = false;
	queue->due_ns = gm_queue_head_due(device);

	DL_FOREACH (queue->user_queues, user_queue) {
		/* The next slice comes as soon as the loop has served others. */
		uint64_t due = user_queue->left > 0 ? gm_u64_plus(now, 1) : user_queue->due_ns;
		if (gm_queue_user_count(user_queue) > 0)
			queue->due_ns = gm_u64_min(queue->due_ns, due);
		foreign = foreign || (gm_queue_user_count(user_queue) > 0 && user_queue->foreign);
	}

	if (foreign)
		queue->due_ns = gm_u64_min(queue->due_ns, gm_device_probe_retry(device, now));
	/* If the time to look for a deadlock has come already, a request holds others back. The end of
	 * that wakes the queue. */
	if (queue->endless > 0 && queue->look_ns > now)
		queue->due_ns = gm_u64_min(queue->due_ns, queue->look_ns);
}

/* Ends one request that is in a deadlock, if there is any. */
static void queue_end_deadlock(struct gm_device *device)
{
	char prefix[GM_DETAIL_BYTES], quiet[GM_UNITS_TEXT];
	struct gm_request *r = gm_queue_deadlock_find(device);
	if (!r)
		return;

	/* It may be behind the slices so far, and fit since a turn ended or pressure fell. Then one of the
	 * next slices grants it. */
	const struct gm_queue_wait *w = &r->waiting;
	struct gm_request_refusal refusal = queue_refusal_of(w);
	if (gm_device_admit_now(device, w->ask.account, w->ask.exact, &refusal) &&
		w->user_queue->left > 0 && !w->ask.denied)
		return;
	refusal.denied = w->ask.denied;

	gm_text_say(prefix,
		"everybody who holds memory waits for more, and nobody returned any for "
		"%s; free some: ",
		gm_format_duration(gm_policy_deadlock_ns(&device->info.policy), quiet));
	queue_end_by(device, r, &refusal, prefix, GPUMEM_E_DEADLOCK);
}

void gm_queue_run(struct gm_device *device)
{
	struct gm_queue *queue = &device->queue;
	uint64_t now = gm_device_now(device);
	struct gm_queue_user *user_queue;
	queue->running = true;

	gm_queue_head_look(device, now);
	bool news = queue->news;
	queue->woken = queue->news = false;
	DL_FOREACH (queue->user_queues, user_queue) {
		if (news)
			queue_start_over(user_queue);
		user_queue->work = GM_QUEUE_SLICE;
		/* However long the line, the one that others overtake is looked at each time. */
		user_queue->ahead =
			gm_queue_user_count(user_queue) > GM_QUEUE_SLICE ? user_queue->first : NULL;
	}

	queue_go_through(device, now);
	if (!queue->woken)
		queue_end_deadlock(device);
	queue_set_due(device, now);
	queue->running = false;
}

void gm_queue_tick(struct gm_device *device)
{
	struct gm_queue *queue = &device->queue;
	uint64_t now = gm_device_now(device);
	struct gm_queue_user *user_queue;
	if (gm_queue_due(device) > now)
		return;

	DL_FOREACH (queue->user_queues, user_queue)
		if (user_queue->left == 0 && user_queue->due_ns <= now)
			queue_start_over(user_queue);
	device->env->woken = queue->woken = true;
}

uint64_t gm_queue_due(const struct gm_device *device)
{
	return device->queue.length > 0 ? device->queue.due_ns : UINT64_MAX;
}

/* ---- the list */

bool gm_queue_each(const struct gm_device *device, const struct gm_limits *limits,
	struct gm_queue_place *place, bool (*visit)(void *ctx, const struct gm_queue_info *info),
	void *ctx)
{
	uint64_t now = gm_device_now(device);
	/* Looking at all limits for each request would take too long. */
	struct gm_limit_most last = {0};
	const struct gm_request *r;
	gm_queue_user_seek(device, place);
	while ((r = gm_queue_user_next_listed(device))) {
		const struct gm_queue_wait *w = &r->waiting;
		struct gm_queue_info info = {
			.request = r,
			.session = r->payer->session,
			.bytes = w->ask.exact,
			.priority = w->priority,
			.waited_ns = now - w->arrived_ns,
			.left_ns = w->ask.until_ns == UINT64_MAX
					   ? UINT64_MAX
					   : gm_u64_minus(w->ask.until_ns, now),
			.overtaken = w->overtaken,
			.nowait = w->ask.nowait,
			.block = w->ask.block,
			.owner = gm_request_blocker(device, limits, r, &last),
			.rests_ns = gm_reclaim_backoff_left_ns(device, &w->ask),
		};

		if (!visit(ctx, &info)) {
			*place =
				(struct gm_queue_place){.priority = w->priority, .order = w->order};
			return true;
		}
	}
	return false;
}
