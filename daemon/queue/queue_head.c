/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose turn it is. What fits is served, whoever waits for more. So that a large request is not
 * overtaken for ever, it may hold others back for a while; queue.h says when. This file promises
 * that no request holds others back for longer than GM_QUEUE_HEAD_HOLD_NS, that a uid rests afterwards,
 * and that a request holds others back only while free memory and what clients say they can return
 * would cover it. It must never keep a request from memory that is guaranteed to its owner.
 */
#include "daemon/books/hash_table.h"
#include "daemon/queue/queue_head.h"

#include "common/arith.h"
#include "daemon/device/device_admit.h"
#include "daemon/reclaim/reclaim_plan.h"
#include "daemon/queue/queue_user.h"

/* While a request holds others back, the claims that it rests on are looked at this often. */
#define TURN_LOOK_NS UINT64_C(100000000)
/* A uid rests this many times as long as it held others back. */
#define TURN_REST 6

/* ---- being overtaken */

void gm_queue_head_note(struct gm_request *request)
{
	struct gm_queue_wait *w = &request->waiting;
	struct gm_queue_user *user_queue = w->user_queue;
	bool may = !w->ask.nowait && gm_reclaim_ask_wants_device(&w->ask);
	if (user_queue->first == request)
		user_queue->first = may ? request : NULL;
	else if (may &&
		 (!user_queue->first || gm_queue_wait_before(w, user_queue->first->waiting.priority,
						user_queue->first->waiting.order)))
		user_queue->first = request;
}

void gm_queue_head_overtake(
	struct gm_device *device, const struct gm_account *account, uint64_t order)
{
	struct gm_queue_user *user_queue;
	DL_FOREACH (device->queue.user_queues, user_queue) {
		device->queue.steps++;
		if (user_queue->first &&
			gm_queue_wait_before(&user_queue->first->waiting, account->priority, order))
			user_queue->first->waiting.overtaken++;
	}
}

/* ---- holding back */

/* What would cover a request. A user could return its own memory without being asked, so its word
 * for that holds back nobody else. */
enum queue_head_cover { NOT_COVERED, BY_OWN_WORD, COVERED };

/* Whether the request could be granted from what the device has and what clients say that they
 * could return. What is free, pooled or dying is charged to nobody, so it is available. */
static enum queue_head_cover queue_head_find_cover(
	struct gm_device *device, const struct gm_request *request)
{
	const struct gm_queue_wait *w = &request->waiting;
	const struct gm_account_payer *self = w->ask.account->payer;
	struct gm_request_refusal refusal = {.block = GM_BLOCK_DEVICE};
	uint64_t missing = gm_device_admit_missing(device, w->ask.account, w->ask.exact, &refusal);

	if (missing == 0 || missing <= gm_reclaim_claimed(device, self, false))
		return COVERED;
	return missing <= gm_reclaim_claimed(device, self, true) ? BY_OWN_WORD : NOT_COVERED;
}

static void queue_head_end(struct gm_device *device, uint64_t now)
{
	struct gm_queue *queue = &device->queue;
	uint64_t held = now - queue->hold_ns;
	struct gm_queue_wait *w = &queue->holder->waiting;

	w->overtaken = 0;
	w->user_queue->rest_ns = gm_u64_plus(now, TURN_REST * held);
	/* No request holds others back for as long as this one did, so that those are served. */
	queue->rest_ns = gm_u64_plus(now, held);
	queue->holder = NULL;
	gm_device_wake_queue(device);
}

void gm_queue_head_leave(struct gm_device *device, const struct gm_request *request)
{
	if (device->queue.holder == request)
		queue_head_end(device, gm_device_now(device));
}

/* When others need not be held back any more, they are served. */
static void queue_head_set_own(struct gm_device *device, bool own)
{
	if (own && !device->queue.holds_own)
		gm_device_wake_queue(device);
	device->queue.holds_own = own;
}

void gm_queue_head_look(struct gm_device *device, uint64_t now)
{
	struct gm_queue *queue = &device->queue;
	if (!queue->holder)
		return;

	struct gm_queue_wait *w = &queue->holder->waiting;
	if (now >= queue->hold_ns + GM_QUEUE_HEAD_HOLD_NS || w->ask.block == GM_BLOCK_LIMIT ||
		w->ask.block == GM_BLOCK_CRITICAL) {
		queue_head_end(device, now);
	} else if (now >= w->look_ns) {
		w->look_ns = now + TURN_LOOK_NS;
		enum queue_head_cover cover = queue_head_find_cover(device, queue->holder);
		if (cover == NOT_COVERED)
			queue_head_end(device, now);
		else
			queue_head_set_own(device, cover == BY_OWN_WORD);
	}
}

void gm_queue_head_begin(struct gm_device *device, struct gm_request *request, uint64_t now)
{
	struct gm_queue *queue = &device->queue;
	struct gm_queue_wait *w = &request->waiting;
	if (queue->holder || w->user_queue->first != request ||
		w->overtaken < GM_QUEUE_HEAD_OVERTAKES)
		return;
	if (now < queue->rest_ns || now < w->user_queue->rest_ns || now < w->look_ns)
		return;

	w->look_ns = now + TURN_LOOK_NS;
	enum queue_head_cover cover = queue_head_find_cover(device, request);
	if (cover == NOT_COVERED)
		return;
	queue->holder = request;
	queue->holds_own = cover == BY_OWN_WORD;
	queue->hold_ns = now;
	/* What it rests on is asked for now. */
	w->ask.again_ns = now;
	w->user_queue->asker.dry_ns = 0;
}

uint64_t gm_queue_head_due(const struct gm_device *device)
{
	const struct gm_queue *queue = &device->queue;
	if (!queue->holder)
		return UINT64_MAX;
	return gm_u64_min(queue->hold_ns + GM_QUEUE_HEAD_HOLD_NS, queue->holder->waiting.look_ns);
}

bool gm_queue_head_bars(const struct gm_device *device, const struct gm_account_payer *payer,
	uint64_t bytes, uint64_t order)
{
	const struct gm_queue *queue = &device->queue;
	const struct gm_account *account = &payer->accounts[device->number];
	if (!queue->holder ||
		!gm_queue_wait_before(&queue->holder->waiting, account->priority, order))
		return false;
	if (gm_device_now(device) >= queue->hold_ns + GM_QUEUE_HEAD_HOLD_NS)
		return false;
	if (queue->holds_own && payer->user != queue->holder->waiting.user_queue->asker.user)
		return false;
	/* The request that holds others back could not have that memory anyway. */
	return !account->guaranteed || bytes > gm_ledger_tally_unmet(account->guaranteed);
}
