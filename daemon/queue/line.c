/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines: the requests of one user that wait for one device. A queue is made of lines, so that the
 * work which one user causes is counted and bounded, and the users can take turns. This file promises
 * that a line stays in order, and that whoever goes through it never has a pointer to a request
 * that left. It must never decide about a request.
 */
#include "daemon/books/hash_table.h"
#include "daemon/queue/line.h"

#include <assert.h>
#include <stdlib.h>

#include "common/arith.h"
#include "daemon/reclaim/ask.h"
#include "daemon/reclaim/peace.h"

static bool line_is_before(const struct gm_request *a, const struct gm_request *b)
{
	return gm_waiting_before(&a->waiting, b->waiting.priority, b->waiting.order);
}

static int line_compare(const struct gm_request *a, const struct gm_request *b)
{
	return line_is_before(a, b) ? -1 : 1;
}

/* ---- life */

static struct gm_line *line_find(const struct gm_device *device, const struct gm_user *user)
{
	struct gm_line *line;
	DL_FOREACH (device->queue.lines, line)
		if (line->asker.user == user)
			return line;
	return NULL;
}

/* Whether the line says something about its user that nobody must escape by leaving. */
static bool line_remembers(const struct gm_device *device, const struct gm_line *line, uint64_t now)
{
	return now < line->rest_ns || gm_peace_remembers(device, &line->asker, now);
}

static void line_free(struct gm_device *device, struct gm_line *line)
{
	DL_DELETE(device->queue.lines, line);
	gm_peace_remove_user(device, &line->asker);
	free(line);
}

static void line_drop_empty(struct gm_device *device, uint64_t now)
{
	struct gm_line *line, *next;
	DL_FOREACH_SAFE (device->queue.lines, line, next) {
		if (gm_line_count(line) > 0 || line_remembers(device, line, now))
			continue;
		line_free(device, line);
	}
}

struct gm_line *gm_line_get(struct gm_device *device, struct gm_user *user)
{
	struct gm_line *line = line_find(device, user);
	if (line)
		return line;

	/* While the queue is gone through, no line may vanish. */
	if (!device->queue.running)
		line_drop_empty(device, gm_device_now(device));
	line = calloc(1, sizeof(*line));
	if (!line)
		return NULL;
	gm_peace_add_user(device, &line->asker, user);
	line->due_ns = line->next_due_ns = UINT64_MAX;
	DL_APPEND(device->queue.lines, line);
	return line;
}

uint32_t gm_line_length(const struct gm_device *device, const struct gm_user *user)
{
	const struct gm_line *line = line_find(device, user);
	return line ? gm_line_count(line) : 0;
}

void gm_line_free_all(struct gm_device *device)
{
	struct gm_line *line, *next;
	DL_FOREACH_SAFE (device->queue.lines, line, next) {
		assert(gm_line_count(line) == 0);
		line_free(device, line);
	}
}

/* ---- requests */

/* Gives a request that waited for an earlier daemon its place among those of its user. It trades orders with each that
 * arrived later, so the user's requests have the same orders as before, and no other user's waits longer. */
static void line_trade_orders(
	struct gm_device *device, const struct gm_line *line, struct gm_request *request)
{
	struct gm_waiting *own = &request->waiting;
	struct gm_request *r = line->requests ? line->requests->waiting.prev : NULL;

	while (r && r->waiting.priority <= own->priority) {
		struct gm_waiting *w = &r->waiting;
		bool same = w->priority == own->priority;

		device->queue.steps++;
		if (same && w->arrived_ns <= own->arrived_ns)
			return;
		if (same && w->order < own->order) {
			uint64_t order = w->order;
			w->order = own->order;
			own->order = order;
		}
		r = r == line->requests ? NULL : w->prev;
	}
}

void gm_line_add(struct gm_device *device, struct gm_line *line, struct gm_request *request)
{
	if (request->waited_ns)
		line_trade_orders(device, line, request);

	struct gm_request *last = line->requests ? line->requests->waiting.prev : NULL;
	/* Most often it is the youngest, so the search begins at the end. */
	while (last && line_is_before(request, last)) {
		device->queue.steps++;
		last = last == line->requests ? NULL : last->waiting.prev;
	}

	if (last)
		DL_APPEND_ELEM2(line->requests, last, request, waiting.prev, waiting.next);
	else
		DL_PREPEND2(line->requests, request, waiting.prev, waiting.next);
	request->waiting.line = line;
	gm_ask_join(&request->waiting.ask, &line->asker);
	device->queue.length++;
}

void gm_line_remove(struct gm_device *device, struct gm_request *request)
{
	struct gm_line *line = request->waiting.line;
	assert(gm_line_count(line) > 0 && device->queue.length > 0);
	if (line->at == request)
		line->at = request->waiting.next;
	if (line->ahead == request)
		line->ahead = NULL;
	if (line->first == request)
		line->first = NULL;
	DL_DELETE2(line->requests, request, waiting.prev, waiting.next);
	request->waiting.line = NULL;
	gm_ask_leave(&request->waiting.ask);
	device->queue.length--;
}

void gm_line_sort(struct gm_line *line)
{
	DL_SORT2(line->requests, line_compare, waiting.prev, waiting.next);
	line->at = line->ahead = line->first = NULL;
}

/* ---- asking clients */

/* Asking walks all clients, so it uses up this much of the line's slice. */
#define LINE_ASK_WORK 16

/* The bytes that requests ahead of it in its own line want from the same place. Looks at a bounded number of them. */
static uint64_t line_wanted_before(struct gm_device *device, const struct gm_request *request)
{
	const struct gm_reclaim_ask *ask = &request->waiting.ask;
	const struct gm_request *r = request->waiting.line->requests;
	uint64_t sum = 0;

	for (unsigned n = 0; r != request && n < GM_QUEUE_SLICE; n++, r = r->waiting.next) {
		const struct gm_reclaim_ask *before = &r->waiting.ask;
		device->queue.steps++;
		if (gm_ask_wants_device(before) == gm_ask_wants_device(ask) &&
			before->tally == ask->tally)
			sum += before->exact;
	}
	return sum;
}

/* The bytes that other users' requests ahead of it want from the device: the first one of each line, since the
 * uids take turns. */
static uint64_t line_wanted_by_others(struct gm_device *device, const struct gm_waiting *w)
{
	const struct gm_line *line;
	uint64_t sum = 0;

	if (!gm_ask_wants_device(&w->ask))
		return 0;
	DL_FOREACH (device->queue.lines, line) {
		device->queue.steps++;
		if (line == w->line || !line->first)
			continue;
		/* Others are left alone by that user now, and must not be asked on its behalf by another one. */
		const struct gm_waiting *first = &line->first->waiting;
		if (first->ask.rests || first->ask.spares)
			continue;
		if (gm_waiting_before(first, w->priority, w->order))
			sum += first->ask.exact;
	}
	return sum;
}

bool gm_line_ask(struct gm_device *device, struct gm_request *request)
{
	struct gm_waiting *w = &request->waiting;

	if (gm_ask_begin(device, &w->ask)) {
		struct gm_ask_ahead ahead = {.own = line_wanted_before(device, request)};
		if (!w->ask.parked)
			ahead.others = line_wanted_by_others(device, w);
		if (gm_ask_clients(device, &w->ask, ahead))
			w->line->work -= gm_min(w->line->work, LINE_ASK_WORK);
	}
	return w->ask.rests || gm_ask_under_way(device, &w->ask);
}

/* ---- all requests of a device */

struct gm_request *gm_line_each(const struct gm_device *device, const struct gm_request *after)
{
	const struct gm_line *line = device->queue.lines;
	if (after && after->waiting.next)
		return after->waiting.next;
	if (after)
		line = after->waiting.line->next;
	while (line && !line->requests)
		line = line->next;
	return line ? line->requests : NULL;
}

void gm_line_seek(const struct gm_device *device, const struct gm_queue_place *place)
{
	struct gm_line *line;
	DL_FOREACH (device->queue.lines, line) {
		line->listed = line->requests;
		while (line->listed &&
			gm_waiting_before(&line->listed->waiting, place->priority, place->order))
			line->listed = line->listed->waiting.next;
	}
}

const struct gm_request *gm_line_next_listed(const struct gm_device *device)
{
	struct gm_line *line, *best = NULL;
	DL_FOREACH (device->queue.lines, line)
		if (line->listed && (!best || line_is_before(line->listed, best->listed)))
			best = line;
	if (!best)
		return NULL;
	const struct gm_request *request = best->listed;
	best->listed = request->waiting.next;
	return request;
}
