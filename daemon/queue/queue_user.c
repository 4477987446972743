/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines: the requests of one user that wait for one device. A queue is made of lines, so that the
 * work which one user causes is counted and bounded, and the users can take turns. This file promises
 * that a line stays in order, and that whoever goes through it never has a pointer to a request
 * that left. It must never decide about a request.
 */
#include "daemon/books/hash_table.h"
#include "daemon/queue/queue_user.h"

#include <assert.h>
#include <stdlib.h>

#include "common/arith.h"
#include "daemon/reclaim/reclaim_ask.h"
#include "daemon/reclaim/reclaim_backoff.h"

static bool queue_user_is_before(const struct gm_request *a, const struct gm_request *b)
{
	return gm_queue_wait_before(&a->waiting, b->waiting.priority, b->waiting.order);
}

static int queue_user_compare(const struct gm_request *a, const struct gm_request *b)
{
	return queue_user_is_before(a, b) ? -1 : 1;
}

/* ---- life */

static struct gm_queue_user *queue_user_find(
	const struct gm_device *device, const struct gm_user *user)
{
	struct gm_queue_user *user_queue;
	DL_FOREACH (device->queue.user_queues, user_queue)
		if (user_queue->asker.user == user)
			return user_queue;
	return NULL;
}

/* Whether the line says something about its user that nobody must escape by leaving. */
static bool queue_user_remembers(
	const struct gm_device *device, const struct gm_queue_user *user_queue, uint64_t now)
{
	return now < user_queue->rest_ns ||
	       gm_reclaim_backoff_remembers(device, &user_queue->asker, now);
}

static void queue_user_free(struct gm_device *device, struct gm_queue_user *user_queue)
{
	DL_DELETE(device->queue.user_queues, user_queue);
	gm_reclaim_backoff_remove_user(device, &user_queue->asker);
	free(user_queue);
}

static void queue_user_drop_empty(struct gm_device *device, uint64_t now)
{
	struct gm_queue_user *user_queue, *next;
	DL_FOREACH_SAFE (device->queue.user_queues, user_queue, next) {
		if (gm_queue_user_count(user_queue) > 0 ||
			queue_user_remembers(device, user_queue, now))
			continue;
		queue_user_free(device, user_queue);
	}
}

struct gm_queue_user *gm_queue_user_get(struct gm_device *device, struct gm_user *user)
{
	struct gm_queue_user *user_queue = queue_user_find(device, user);
	if (user_queue)
		return user_queue;

	/* While the queue is gone through, no line may vanish. */
	if (!device->queue.running)
		queue_user_drop_empty(device, gm_device_now(device));
	user_queue = calloc(1, sizeof(*user_queue));
	if (!user_queue)
		return NULL;
	gm_reclaim_backoff_add_user(device, &user_queue->asker, user);
	user_queue->due_ns = user_queue->next_due_ns = UINT64_MAX;
	DL_APPEND(device->queue.user_queues, user_queue);
	return user_queue;
}

uint32_t gm_queue_user_length(const struct gm_device *device, const struct gm_user *user)
{
	const struct gm_queue_user *user_queue = queue_user_find(device, user);
	return user_queue ? gm_queue_user_count(user_queue) : 0;
}

void gm_queue_user_free_all(struct gm_device *device)
{
	struct gm_queue_user *user_queue, *next;
	DL_FOREACH_SAFE (device->queue.user_queues, user_queue, next) {
		assert(gm_queue_user_count(user_queue) == 0);
		queue_user_free(device, user_queue);
	}
}

/* ---- requests */

/* Gives a request that waited for an earlier daemon its place among those of its user. It trades orders with each that
 * arrived later, so the user's requests have the same orders as before, and no other user's waits longer. */
static void queue_user_trade_orders(struct gm_device *device,
	const struct gm_queue_user *user_queue, struct gm_request *request)
{
	struct gm_queue_wait *own = &request->waiting;
	struct gm_request *r = user_queue->requests ? user_queue->requests->waiting.prev : NULL;

	while (r && r->waiting.priority <= own->priority) {
		struct gm_queue_wait *w = &r->waiting;
		bool same = w->priority == own->priority;

		device->queue.steps++;
		if (same && w->arrived_ns <= own->arrived_ns)
			return;
		if (same && w->order < own->order) {
			uint64_t order = w->order;
			w->order = own->order;
			own->order = order;
		}
		r = r == user_queue->requests ? NULL : w->prev;
	}
}

void gm_queue_user_add(
	struct gm_device *device, struct gm_queue_user *user_queue, struct gm_request *request)
{
	if (request->waited_ns)
		queue_user_trade_orders(device, user_queue, request);

	struct gm_request *last = user_queue->requests ? user_queue->requests->waiting.prev : NULL;
	/* Most often it is the youngest, so the search begins at the end. */
	while (last && queue_user_is_before(request, last)) {
		device->queue.steps++;
		last = last == user_queue->requests ? NULL : last->waiting.prev;
	}

	if (last)
		DL_APPEND_ELEM2(user_queue->requests, last, request, waiting.prev, waiting.next);
	else
		DL_PREPEND2(user_queue->requests, request, waiting.prev, waiting.next);
	request->waiting.user_queue = user_queue;
	gm_reclaim_ask_join(&request->waiting.ask, &user_queue->asker);
	device->queue.length++;
}

void gm_queue_user_remove(struct gm_device *device, struct gm_request *request)
{
	struct gm_queue_user *user_queue = request->waiting.user_queue;
	assert(gm_queue_user_count(user_queue) > 0 && device->queue.length > 0);
	if (user_queue->at == request)
		user_queue->at = request->waiting.next;
	if (user_queue->ahead == request)
		user_queue->ahead = NULL;
	if (user_queue->first == request)
		user_queue->first = NULL;
	DL_DELETE2(user_queue->requests, request, waiting.prev, waiting.next);
	request->waiting.user_queue = NULL;
	gm_reclaim_ask_leave(&request->waiting.ask);
	device->queue.length--;
}

void gm_queue_user_sort(struct gm_queue_user *user_queue)
{
	DL_SORT2(user_queue->requests, queue_user_compare, waiting.prev, waiting.next);
	user_queue->at = user_queue->ahead = user_queue->first = NULL;
}

/* ---- asking clients */

/* Asking walks all clients, so it uses up this much of the line's slice. */
#define LINE_ASK_WORK 16

/* The bytes that requests ahead of it in its own line want from the same place. Looks at a bounded number of them. */
static uint64_t queue_user_wanted_before(struct gm_device *device, const struct gm_request *request)
{
	const struct gm_reclaim_ask *ask = &request->waiting.ask;
	const struct gm_request *r = request->waiting.user_queue->requests;
	uint64_t sum = 0;

	for (unsigned n = 0; r != request && n < GM_QUEUE_SLICE; n++, r = r->waiting.next) {
		const struct gm_reclaim_ask *before = &r->waiting.ask;
		device->queue.steps++;
		if (gm_reclaim_ask_wants_device(before) == gm_reclaim_ask_wants_device(ask) &&
			before->tally == ask->tally)
			sum += before->exact;
	}
	return sum;
}

/* The bytes that other users' requests ahead of it want from the device: the first one of each line, since the
 * uids take turns. */
static uint64_t queue_user_wanted_by_others(struct gm_device *device, const struct gm_queue_wait *w)
{
	const struct gm_queue_user *user_queue;
	uint64_t sum = 0;

	if (!gm_reclaim_ask_wants_device(&w->ask))
		return 0;
	DL_FOREACH (device->queue.user_queues, user_queue) {
		device->queue.steps++;
		if (user_queue == w->user_queue || !user_queue->first)
			continue;
		/* Others are left alone by that user now, and must not be asked on its behalf by another one. */
		const struct gm_queue_wait *first = &user_queue->first->waiting;
		if (first->ask.rests || first->ask.spares)
			continue;
		if (gm_queue_wait_before(first, w->priority, w->order))
			sum += first->ask.exact;
	}
	return sum;
}

bool gm_queue_user_ask(struct gm_device *device, struct gm_request *request)
{
	struct gm_queue_wait *w = &request->waiting;

	if (gm_reclaim_ask_begin(device, &w->ask)) {
		struct gm_reclaim_ask_ahead ahead = {
			.own = queue_user_wanted_before(device, request)};
		if (!w->ask.nowait)
			ahead.others = queue_user_wanted_by_others(device, w);
		if (gm_reclaim_ask_clients(device, &w->ask, ahead))
			w->user_queue->work -= gm_u64_min(w->user_queue->work, LINE_ASK_WORK);
	}
	return w->ask.rests || gm_reclaim_ask_under_way(device, &w->ask);
}

/* ---- all requests of a device */

struct gm_request *gm_queue_user_each(
	const struct gm_device *device, const struct gm_request *after)
{
	const struct gm_queue_user *user_queue = device->queue.user_queues;
	if (after && after->waiting.next)
		return after->waiting.next;
	if (after)
		user_queue = after->waiting.user_queue->next;
	while (user_queue && !user_queue->requests)
		user_queue = user_queue->next;
	return user_queue ? user_queue->requests : NULL;
}

void gm_queue_user_seek(const struct gm_device *device, const struct gm_queue_place *place)
{
	struct gm_queue_user *user_queue;
	DL_FOREACH (device->queue.user_queues, user_queue) {
		user_queue->listed = user_queue->requests;
		while (user_queue->listed && gm_queue_wait_before(&user_queue->listed->waiting,
						     place->priority, place->order))
			user_queue->listed = user_queue->listed->waiting.next;
	}
}

const struct gm_request *gm_queue_user_next_listed(const struct gm_device *device)
{
	struct gm_queue_user *user_queue, *best = NULL;
	DL_FOREACH (device->queue.user_queues, user_queue)
		if (user_queue->listed &&
			(!best || queue_user_is_before(user_queue->listed, best->listed)))
			best = user_queue;
	if (!best)
		return NULL;
	const struct gm_request *request = best->listed;
	best->listed = request->waiting.next;
	return request;
}
