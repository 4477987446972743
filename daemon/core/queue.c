/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that wait. It promises what queue.h says: an order, a bound on being overtaken, an end
 * for every request, and none that waits for what nobody will ever bring back. It must never hold
 * memory for a request that waits: what it waits for stays available to whoever may take it.
 */
#include "daemon/core/table.h"
#include "daemon/core/queue.h"

#include <assert.h>

#include "common/units.h"
#include "daemon/core/admit.h"
#include "daemon/core/core_private.h"
#include "daemon/core/request.h"
#include "daemon/core/say.h"
#include "daemon/core/session.h"

/* One that may not wait is there for that many rounds of asking clients. */
#define PARKED_ROUNDS 2

static struct gm_account *account_of(const struct gm_request *request)
{
	return &request->session->accounts[request->waiting.device];
}

static uint64_t after(uint64_t ns, uint64_t more)
{
	return more < UINT64_MAX - ns ? ns + more : UINT64_MAX;
}

static uint64_t reclaim_ns(const struct gm_device *device)
{
	uint64_t ns = device->info.policy.reclaim_ns;
	return ns ? ns : GM_RECLAIM_NS;
}

static uint64_t settle_ns(const struct gm_device *device)
{
	uint64_t ns = device->info.policy.settle_ns;
	return ns ? ns : GM_SETTLE_NS;
}

/* ---- order */

static bool is_before(const struct gm_waiting *w, int32_t priority, uint64_t order)
{
	return w->priority > priority || (w->priority == priority && w->order < order);
}

static int compare(const struct gm_request *a, const struct gm_request *b)
{
	return is_before(&a->waiting, b->waiting.priority, b->waiting.order) ? -1 : 1;
}

/* Whether what the session gets is what the waiting request lacks. */
static bool wants_same(const struct gm_waiting *w, const struct gm_account *account)
{
	switch (w->block) {
	case GM_BLOCK_DEVICE:
	case GM_BLOCK_GUARANTEE:
		return true;
	case GM_BLOCK_QUOTA:
		for (unsigned i = 0; i < account->n_tallies; i++)
			if (account->tallies[i] == w->tally)
				return true;
		return false;
	case GM_BLOCK_NONE:
	case GM_BLOCK_CRITICAL: /* whoever is behind it is held back as well */
	case GM_BLOCK_TURN:     /* whom it waits for bars those behind it, too */
		break;
	}
	return false;
}

bool gm_queue_bars(const struct gm_device *device, const struct gm_session *session, uint64_t order)
{
	const struct gm_account *account = &session->accounts[device->number];
	const struct gm_request *r;
	DL_FOREACH2(device->queue.requests, r, waiting.next)
	{
		const struct gm_waiting *w = &r->waiting;
		if (!is_before(w, account->priority, order))
			break;
		if (w->overtaken >= GM_QUEUE_OVERTAKES && wants_same(w, account))
			return true;
	}
	return false;
}

void gm_queue_overtake(struct gm_device *device, const struct gm_session *session, uint64_t order)
{
	const struct gm_account *account = &session->accounts[device->number];
	struct gm_request *r;
	DL_FOREACH2(device->queue.requests, r, waiting.next)
	{
		struct gm_waiting *w = &r->waiting;
		if (!is_before(w, account->priority, order))
			break;
		if (wants_same(w, account) && ++w->overtaken == GM_QUEUE_OVERTAKES)
			device->queue.exhausted++;
	}
}

void gm_queue_sort(struct gm_device *device)
{
	DL_SORT2(device->queue.requests, compare, waiting.prev, waiting.next);
	device->queue.changes++;
}

static void insert(struct gm_device *device, struct gm_request *request)
{
	struct gm_queue *queue = &device->queue;
	struct gm_waiting *w = &request->waiting;
	struct gm_request *r;
	DL_FOREACH2(queue->requests, r, waiting.next)
	if (is_before(w, r->waiting.priority, r->waiting.order))
		break;
	if (r)
		DL_PREPEND_ELEM2(queue->requests, r, request, waiting.prev, waiting.next);
	else
		DL_APPEND2(queue->requests, request, waiting.prev, waiting.next);
	w->queued = true;
	queue->length++;
	queue->changes++;
	if (!w->parked)
		account_of(request)->waiting++;
}

static void take_out(struct gm_device *device, struct gm_request *request)
{
	struct gm_queue *queue = &device->queue;
	struct gm_waiting *w = &request->waiting;
	assert(w->queued && queue->length > 0);
	DL_DELETE2(queue->requests, request, waiting.prev, waiting.next);
	w->queued = false;
	queue->length--;
	queue->changes++;
	if (w->overtaken >= GM_QUEUE_OVERTAKES) {
		/* Those it barred have a chance now. */
		queue->exhausted--;
		device->core->woken = queue->woken = true;
	}
	if (!w->parked)
		account_of(request)->waiting--;
	gm_request_unlink(request);
}

/* ---- what is told */

static void tell(struct gm_device *device, const struct gm_request *request,
	enum gm_event_kind kind, int status, const char *text)
{
	const struct gm_waiting *w = &request->waiting;
	struct gm_event event = {
		.kind = kind,
		.device = device->number,
		.text = text,
		.session = request->session,
		.asked = w->exact,
		.held = account_of(request)->held,
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
	gm_core_tell(device->core, &event);
}

static struct gm_refusal refusal_of(const struct gm_waiting *w)
{
	return (struct gm_refusal){.block = w->block, .tally = w->tally};
}

void gm_queue_end(struct gm_request *request, gpumem_status status, const char *detail)
{
	struct gm_device *device = &request->session->core->devices[request->waiting.device];
	take_out(device, request);
	if (request->waiting.told)
		tell(device, request, GM_EVENT_REFUSED, status, detail);
	gm_request_refuse(request, status, detail);
}

static void end_by(struct gm_device *device, struct gm_request *request,
	const struct gm_refusal *refusal, const char *prefix, gpumem_status instead)
{
	char why[GM_DETAIL_BYTES], detail[GM_DETAIL_BYTES];
	gpumem_status status =
		gm_admit_say(device, request->session, request->waiting.exact, refusal, why);
	gm_say(detail, "%s%s", prefix, why);
	gm_queue_end(request, instead == GPUMEM_OK ? status : instead, detail);
}

/* ---- asking clients on behalf of a request */

/* What those before it need of the same. */
static uint64_t wanted_before(const struct gm_device *device, const struct gm_request *request)
{
	const struct gm_request *r;
	uint64_t sum = 0;
	DL_FOREACH2(device->queue.requests, r, waiting.next)
	{
		if (r == request)
			break;
		if (wants_same(&r->waiting, account_of(request)) &&
			r->waiting.tally == request->waiting.tally)
			sum += r->waiting.exact;
	}
	return sum;
}

/* Whether something may come of it. */
static bool ask(struct gm_device *device, struct gm_request *request)
{
	struct gm_waiting *w = &request->waiting;
	struct gm_refusal refusal = refusal_of(w);
	w->again_ns = after(gm_device_now(device), settle_ns(device));
	switch (w->block) {
	case GM_BLOCK_QUOTA:
	case GM_BLOCK_DEVICE:
	case GM_BLOCK_GUARANTEE:
		break;
	case GM_BLOCK_NONE:
	case GM_BLOCK_CRITICAL:
	case GM_BLOCK_TURN:
		return gm_ladder_asking(device, GM_TRIGGER_REQUEST);
	}
	uint64_t missing = gm_admit_missing(device, request->session, w->exact, &refusal) +
			   wanted_before(device, request);
	uint64_t owed = gm_ladder_owed(device);
	if (missing > owed) {
		gm_ladder_ask(device, request->session, w->tally, missing - owed, w->rounds > 0,
			w->parked);
		if (w->rounds < UINT8_MAX)
			w->rounds++;
	}
	return gm_ladder_asking(device, GM_TRIGGER_REQUEST);
}

/* ---- in */

static void tell_limit(struct gm_device *device, const struct gm_request *request, const char *text)
{
	if (request->waiting.block == GM_BLOCK_QUOTA)
		tell(device, request, GM_EVENT_LIMIT, GPUMEM_E_LIMIT, text);
}

gpumem_status gm_queue_enter(struct gm_device *device, struct gm_request *request, uint64_t exact,
	const struct gm_refusal *refusal, char detail[GM_DETAIL_BYTES])
{
	struct gm_queue *queue = &device->queue;
	struct gm_waiting *w = &request->waiting;
	const struct gm_policy *policy = &device->info.policy;
	uint64_t now = gm_device_now(device), wait = request->wait_ns;
	if (wait == 0 && policy->oom == GM_OOM_REFUSE)
		wait = GM_WAIT_NEVER;
	else if (wait == 0)
		wait = policy->wait_ns ? policy->wait_ns : GM_WAIT_NS;
	struct gm_refusal why = *refusal, never;
	if (!gm_admit_ever(device, request->session, exact, &never))
		why = never;
	*w = (struct gm_waiting){
		.parked = wait == GM_WAIT_NEVER,
		.priority = request->session->accounts[device->number].priority,
		.block = why.block,
		.tally = why.tally,
		.order = ++queue->last_order,
		.exact = exact,
		.device = device->number,
		.since_ns = now,
		.until_ns = after(
			now, wait == GM_WAIT_NEVER ? PARKED_ROUNDS * reclaim_ns(device) : wait),
	};
	gpumem_status status = gm_admit_say(device, request->session, exact, &why, detail);
	tell_limit(device, request, detail);
	if (why.never || queue->length >= GM_LIMIT_WAITING_PER_DEVICE ||
		(w->parked && w->block == GM_BLOCK_CRITICAL))
		return status;
	insert(device, request);
	gm_request_link(request);
	if (!ask(device, request) && w->parked) {
		take_out(device, request);
		return status;
	}
	if (!w->parked) {
		char text[GM_DETAIL_BYTES];
		gm_say(text, "waits: %s", detail);
		w->told = true;
		tell(device, request, GM_EVENT_QUEUED, GPUMEM_OK, text);
	}
	/* Whether somebody waits for somebody who waits is to be looked at. */
	device->core->woken = queue->woken = true;
	return GPUMEM_OK;
}

/* ---- out */

static void grant(struct gm_device *device, struct gm_request *request)
{
	char detail[GM_DETAIL_BYTES] = "", size[GM_UNITS_TEXT], waited[GM_UNITS_TEXT];
	struct gm_waiting *w = &request->waiting;
	take_out(device, request);
	gpumem_status status = gm_request_admit(request, device, detail);
	if (status != GPUMEM_OK) {
		if (w->told)
			tell(device, request, GM_EVENT_REFUSED, status, detail);
		gm_request_refuse(request, status, detail);
		return;
	}
	if (w->told) {
		w->block = GM_BLOCK_NONE;
		gm_say(detail, "granted %s after %s", gm_format_size(request->charged, size),
			gm_format_duration(gm_device_now(device) - w->since_ns, waited));
		tell(device, request, GM_EVENT_GRANTED, GPUMEM_OK, detail);
	}
	gm_request_start(request);
}

/* What becomes of one request now. Whether it left the queue. */
static bool step(struct gm_device *device, struct gm_request *request, uint64_t now)
{
	struct gm_waiting *w = &request->waiting;
	struct gm_refusal refusal = {0};
	if (!gm_admit_ever(device, request->session, w->exact, &refusal)) {
		end_by(device, request, &refusal, "", GPUMEM_OK);
		return true;
	}
	if (gm_admit_now(device, request->session, w->exact, &refusal)) {
		if (device->queue.exhausted == 0 ||
			!gm_queue_bars(device, request->session, w->order)) {
			grant(device, request);
			return true;
		}
		refusal.block = GM_BLOCK_TURN;
	}
	w->block = refusal.block;
	w->tally = refusal.tally;
	if (w->parked) {
		if (now < w->until_ns &&
			(gm_ladder_asking(device, GM_TRIGGER_REQUEST) ||
				(w->rounds < PARKED_ROUNDS && ask(device, request))))
			return false;
		end_by(device, request, &refusal, "", GPUMEM_OK);
		return true;
	}
	if (now >= w->until_ns) {
		char prefix[GM_DETAIL_BYTES], waited[GM_UNITS_TEXT];
		gm_say(prefix, "waited %s: ", gm_format_duration(now - w->since_ns, waited));
		end_by(device, request, &refusal, prefix, GPUMEM_E_TIMEOUT);
		return true;
	}
	if (now >= w->again_ns && !gm_ladder_asking(device, GM_TRIGGER_REQUEST))
		ask(device, request);
	return false;
}

/* ---- everybody waits for everybody */

/* Whether somebody who holds what is lacking does not wait; *ret_holder: there is one at all. */
static bool somebody_moves(struct gm_device *device, const struct gm_tally *tally, bool *ret_holder)
{
	struct gm_core *core = device->core;
	uint32_t d = device->number;
	*ret_holder = true;
	if (!tally && device->queue.witness) {
		const struct gm_session *s = gm_core_find_session(core, device->queue.witness);
		if (s && s->accounts[d].held > 0 && s->accounts[d].waiting == 0)
			return true;
	}
	*ret_holder = false;
	for (const struct gm_session *s = core->sessions; s; s = s->hh.next) {
		const struct gm_account *account = &s->accounts[d];
		bool counts = !tally;
		for (unsigned i = 0; i < account->n_tallies; i++)
			counts = counts || account->tallies[i] == tally;
		if (!counts || account->held == 0)
			continue;
		*ret_holder = true;
		if (account->waiting > 0)
			continue;
		if (!tally)
			device->queue.witness = s->id;
		return true;
	}
	return false;
}

/* Whether it could be granted if programs outside the broker ended. */
static bool waits_for_foreign(const struct gm_device *device, const struct gm_request *request)
{
	uint64_t taken = gm_ledger_charged(&device->ledger) +
			 gm_ledger_kept_from(&device->ledger, account_of(request));
	return taken + request->waiting.exact <= gm_device_capacity(device);
}

/* The last in the order, of those who hold something that the others lack. */
static struct gm_request *least(const struct gm_device *device, const struct gm_tally *tally)
{
	struct gm_request *r, *last = NULL;
	DL_FOREACH2(device->queue.requests, r, waiting.next)
	{
		const struct gm_account *account = account_of(r);
		bool counts = !tally;
		for (unsigned i = 0; i < account->n_tallies; i++)
			counts = counts || account->tallies[i] == tally;
		if (counts && account->held > 0 && !r->waiting.parked)
			last = r;
	}
	return last;
}

/* Refuses one request, if all who could help wait themselves. Whether it did. */
static bool break_deadlock(struct gm_device *device)
{
	const struct gm_request *r;
	bool device_seen = false, holder;
	for (unsigned t = 0; t < GM_TRIGGERS; t++)
		if (gm_ladder_asking(device, t))
			return false;
	DL_FOREACH2(device->queue.requests, r, waiting.next)
	{
		const struct gm_waiting *w = &r->waiting;
		const struct gm_tally *tally = w->block == GM_BLOCK_QUOTA ? w->tally : NULL;
		if (w->parked || (!tally && (device_seen || waits_for_foreign(device, r))))
			continue;
		device_seen = device_seen || !tally;
		if (somebody_moves(device, tally, &holder) || !holder)
			continue;
		struct gm_request *victim = least(device, tally);
		assert(victim);
		struct gm_refusal refusal = refusal_of(&victim->waiting);
		end_by(device, victim, &refusal,
			"everybody who holds memory waits for more; return some: ",
			GPUMEM_E_DEADLOCK);
		return true;
	}
	return false;
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
		bool left = step(device, r, now);
		/* done() may have changed more than this. */
		r = queue->changes == changes + left ? next : queue->requests;
	}
	if (!queue->woken && break_deadlock(device))
		device->core->woken = queue->woken = true;
	queue->due_ns = UINT64_MAX;
	DL_FOREACH2(queue->requests, r, waiting.next)
	{
		const struct gm_waiting *w = &r->waiting;
		uint64_t due = w->parked || w->until_ns < w->again_ns ? w->until_ns : w->again_ns;
		if (due < queue->due_ns)
			queue->due_ns = due;
	}
}

uint64_t gm_queue_due(const struct gm_device *device)
{
	return device->queue.length > 0 ? device->queue.due_ns : UINT64_MAX;
}

/* ---- to look at */

void gm_core_queue_each(const struct gm_core *core, uint32_t device,
	void (*visit)(void *ctx, const struct gm_queue_info *info), void *ctx)
{
	assert(device < core->n_devices);
	const struct gm_device *d = &core->devices[device];
	uint64_t now = gm_device_now(d);
	const struct gm_request *r;
	DL_FOREACH2(d->queue.requests, r, waiting.next)
	{
		const struct gm_waiting *w = &r->waiting;
		struct gm_queue_info info = {
			.request = r,
			.session = r->session,
			.bytes = w->exact,
			.priority = w->priority,
			.waited_ns = now - w->since_ns,
			.left_ns = w->until_ns == UINT64_MAX ? UINT64_MAX
				   : w->until_ns > now       ? w->until_ns - now
							     : 0,
			.overtaken = w->overtaken,
			.parked = w->parked,
			.block = w->block,
			.owner =
				w->block == GM_BLOCK_QUOTA ? gm_quota_owner(w->tally->quota) : NULL,
		};
		visit(ctx, &info);
	}
}

uint64_t gm_core_queue_length(const struct gm_core *core, uint32_t device)
{
	assert(device < core->n_devices);
	return core->devices[device].queue.length;
}
