/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deadlocks: everybody waits for everybody (see gm_queue_deadlock_find()). Core cannot know whether
 * another thread of a client that waits is about to free memory, so it gives the clients time and
 * starts again whenever one of them returned something. This file promises to find a deadlock only
 * where nothing that core could still do, or has asked clients for, would bring the memory. It must
 * never end a request itself: the queue does that.
 */
#include "daemon/books/hash_table.h"
#include "daemon/queue/queue_deadlock.h"

#include <assert.h>

#include "common/arith.h"
#include "daemon/reclaim/reclaim_run.h"
#include "daemon/queue/queue_user.h"

/* ---- the clocks */

void gm_queue_deadlock_look_by(struct gm_device *device, uint64_t since_ns)
{
	struct gm_queue *queue = &device->queue;
	uint64_t look = gm_u64_plus(since_ns, gm_policy_deadlock_ns(&device->info.policy));
	queue->look_ns = queue->endless > 1 ? gm_u64_min(queue->look_ns, look) : look;
}

void gm_queue_deadlock_returned(struct gm_device *device, const struct gm_account *account)
{
	/* A request that comes later waits from then on. */
	if (device->queue.endless == 0)
		return;

	uint64_t now = gm_device_now(device);
	device->queue.still.returned_ns = now;
	for (unsigned i = 0; i < account->n_tallies; i++)
		account->tallies[i]->still.returned_ns = now;
}

/* The group in whose way the request's memory is: all accounts, or those of the owner whose limit
 * it lacks room under. */
static struct gm_queue_standing *queue_deadlock_group_of(
	struct gm_device *device, const struct gm_request *request)
{
	const struct gm_account *account = request->waiting.ask.account;
	if (request->waiting.ask.block == GM_BLOCK_LIMIT)
		for (unsigned i = 0; i < account->n_tallies; i++)
			if (account->tallies[i] == request->waiting.ask.tally)
				return &account->tallies[i]->still;
	return &device->queue.still;
}

void gm_queue_deadlock_restart(struct gm_device *device)
{
	uint64_t now = gm_device_now(device);
	struct gm_request *r;
	for (r = gm_queue_user_each(device, NULL); r; r = gm_queue_user_each(device, r))
		queue_deadlock_group_of(device, r)->returned_ns = now;
	device->queue.look_ns = now;
}

/* ---- looking */

static void queue_deadlock_clear(struct gm_queue_standing *group)
{
	group->held = group->moves = group->asked = false;
	group->since_ns = 0;
}

static void queue_deadlock_add(struct gm_queue_standing *group, const struct gm_account *account)
{
	group->held = true;
	group->moves = group->moves || account->endless == 0;
	group->asked = group->asked || account->asked.owing;
	group->since_ns = gm_u64_max(group->since_ns, account->endless_ns);
}

/* Looks at every account that holds something once, and fills in each group that a request waits for. */
static void queue_deadlock_survey(struct gm_device *device)
{
	const struct gm_request *r;
	queue_deadlock_clear(&device->queue.still);
	for (r = gm_queue_user_each(device, NULL); r; r = gm_queue_user_each(device, r))
		queue_deadlock_clear(queue_deadlock_group_of(device, r));

	const struct gm_account *account;
	DL_FOREACH (device->ledger.holders, account) {
		queue_deadlock_add(&device->queue.still, account);
		for (unsigned i = 0; i < account->n_tallies; i++)
			queue_deadlock_add(&account->tallies[i]->still, account);
	}
}

/* Whether the request could be granted if programs outside the broker ended. */
static bool queue_deadlock_waits_for_foreign(
	const struct gm_device *device, const struct gm_request *request)
{
	uint64_t taken = gm_ledger_charged(&device->ledger) +
			 gm_ledger_kept_from(&device->ledger, request->waiting.ask.account);
	return taken + request->waiting.ask.exact <= gm_device_capacity(device);
}

/* When the first of the clients that were asked for memory has no more time. */
static uint64_t queue_deadlock_asked_until(const struct gm_device *device)
{
	uint64_t first = UINT64_MAX;

	for (unsigned t = 0; t < GM_TRIGGERS; t++)
		if (gm_reclaim_asking(device, t))
			first = gm_u64_min(first, device->reclaim.runs[t].deadline_ns);
	return gm_u64_max(first, gm_u64_plus(gm_device_now(device), 1));
}

/* When the request's group has stood still for long enough; UINT64_MAX: it can still move. */
static uint64_t queue_deadlock_due(struct gm_device *device, const struct gm_request *request)
{
	const struct gm_queue_standing *group = queue_deadlock_group_of(device, request);
	if (!group->held || group->moves)
		return UINT64_MAX;
	if (group == &device->queue.still && queue_deadlock_waits_for_foreign(device, request))
		return UINT64_MAX;
	uint64_t due = gm_u64_plus(gm_u64_max(group->since_ns, group->returned_ns),
		gm_policy_deadlock_ns(&device->info.policy));
	/* Clients outside of the group that are asked for memory do not help it. */
	return group->asked ? gm_u64_max(due, queue_deadlock_asked_until(device)) : due;
}

static bool queue_deadlock_is_in(const struct gm_device *device, const struct gm_account *account,
	const struct gm_queue_standing *group)
{
	bool in = group == &device->queue.still;
	for (unsigned i = 0; i < account->n_tallies; i++)
		in = in || group == &account->tallies[i]->still;
	return in;
}

/* The last request in the order whose session holds memory of the group. */
static struct gm_request *queue_deadlock_least(
	struct gm_device *device, const struct gm_queue_standing *group)
{
	struct gm_request *r, *last = NULL;
	for (r = gm_queue_user_each(device, NULL); r; r = gm_queue_user_each(device, r)) {
		const struct gm_account *account = r->waiting.ask.account;
		if (gm_queue_wait_endless(&r->waiting) && account->held > 0 &&
			queue_deadlock_is_in(device, account, group) &&
			(!last || gm_queue_wait_before(
					  &last->waiting, r->waiting.priority, r->waiting.order)))
			last = r;
	}
	return last;
}

struct gm_request *gm_queue_deadlock_find(struct gm_device *device)
{
	struct gm_queue *queue = &device->queue;
	uint64_t now = gm_device_now(device);
	struct gm_request *r;
	if (queue->endless == 0 || now < queue->look_ns)
		return NULL;
	/* When that ends, those that were held back may move. The end wakes the queue. */
	if (queue->holder)
		return NULL;

	/* A group that moves now can come to a standstill a moment later, but it has to stand still
	 * for this long. */
	queue->look_ns = gm_u64_plus(now, gm_policy_deadlock_ns(&device->info.policy));
	queue_deadlock_survey(device);
	for (r = gm_queue_user_each(device, NULL); r; r = gm_queue_user_each(device, r)) {
		if (!gm_queue_wait_endless(&r->waiting))
			continue;
		uint64_t due = queue_deadlock_due(device, r);
		if (due <= now) {
			struct gm_request *victim =
				queue_deadlock_least(device, queue_deadlock_group_of(device, r));
			assert(victim);
			/* The next look is a tick later, so that a long line of them does not
			 * keep the loop from the others. */
			queue->look_ns = gm_u64_plus(now, 1);
			return victim;
		}
		queue->look_ns = gm_u64_min(queue->look_ns, due);
	}
	return NULL;
}
