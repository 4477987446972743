/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See retired.h. This file must never wait for the device, except in gm_retired_end_all(), for the session's
 * end, and for the moment that an idle device needs to say that it is idle. What an item's end() waits for is the
 * owner's business, within the caller's permission.
 */
#include "client/device/retired.h"

#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "client/device/map_await.h"
#include "client/map/map.h"
#include "common/clock.h"

#define POLL_NS (5 * GM_NS_PER_MS)
/* The same, if no item waits for an event. */
#define POLL_IDLE_NS (50 * GM_NS_PER_MS)
/* An event that is recorded while nothing is launched should pass within this time. */
#define IDLE_NS (200 * GM_NS_PER_US)

int gm_retired_init(struct gpumem_session *session)
{
	struct gm_retired_list *list = calloc(1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	gm_lock_init(&list->settling, GM_LOCK_SETTLING);
	gm_lock_init(&list->unpinning, GM_LOCK_UNPINNING);
	session->retired = list;
	return 0;
}

void gm_retired_deinit(struct gpumem_session *session)
{
	struct gm_retired_list *list = session->retired;

	if (!list)
		return;
	gm_lock_deinit(&list->settling);
	gm_lock_deinit(&list->unpinning);
	free(list);
	session->retired = NULL;
}

bool gm_retired_needed(const struct gm_session_device *device)
{
	return device->map->record != NULL;
}

/* Records the event, if there is none. If the driver refuses, the next look tries again. */
static void retired_try_record(struct gm_retired *item)
{
	const struct gm_session_device *d = item->device;

	if (!item->event && d->map->record(d->backend, &item->event) < 0)
		item->event = NULL;
}

static void retired_forget(struct gm_retired *item)
{
	item->device->map->forget(item->device->backend, item->event);
	item->event = NULL;
}

static void retired_put(struct gpumem_session *session, struct gm_retired *list)
{
	gm_lock(&session->lock);
	LL_CONCAT(session->retired->items, list);
	gm_lock_drop(&session->lock);
}

void gm_retired_add(struct gpumem_session *session, struct gm_retired *item,
	const struct gm_session_device *device, enum gm_retired_when when)
{
	item->device = device;
	item->event = NULL;
	item->when = when;
	item->next = NULL;
	if (when == GM_RETIRED_EVENT)
		retired_try_record(item);

	/* This thread counts first: a thread that finds nothing to settle must be right. */
	atomic_fetch_add(&session->retired->n, 1);
	gm_lock(&session->lock);
	LL_PREPEND(session->retired->items, item);
	gm_lock_drop(&session->lock);
	gm_session_wake(session);
}

void gm_retired_renew(struct gm_retired *item)
{
	if (item->event)
		retired_forget(item);
	retired_try_record(item);
}

/* Takes all items with this condition out of the list. They still count. */
static struct gm_retired *retired_take(struct gpumem_session *session, enum gm_retired_when when)
{
	struct gm_retired *taken = NULL, **end = &taken, **at = &session->retired->items, *item;

	gm_lock(&session->lock);
	while ((item = *at)) {
		if (item->when != when) {
			at = &item->next;
			continue;
		}
		*at = item->next;
		item->next = NULL;
		*end = item;
		end = &item->next;
	}
	gm_lock_drop(&session->lock);
	return taken;
}

/* Takes the items whose events have passed. */
static struct gm_retired *retired_take_passed(struct gpumem_session *session)
{
	struct gm_retired *list = retired_take(session, GM_RETIRED_EVENT), *item, *tmp;
	struct gm_retired *passed = NULL, *waiting = NULL;

	LL_FOREACH_SAFE (list, item, tmp) {
		const struct gm_session_device *d = item->device;

		retired_try_record(item);
		if (item->event && gm_map_take_passed(d->map, d->backend, &item->event) == 1)
			LL_PREPEND(passed, item);
		else
			LL_PREPEND(waiting, item);
	}
	retired_put(session, waiting);
	return passed;
}

/* Takes the items of GM_RETIRED_IDLE, if no work is under way. They stay in the list while this function looks, for
 * gm_retired_take_back(). */
static struct gm_retired *retired_take_if_idle(struct gpumem_session *session)
{
	const struct gm_retired *item;

	gm_lock(&session->lock);
	LL_SEARCH_SCALAR(session->retired->items, item, when, GM_RETIRED_IDLE);
	const struct gm_session_device *d = item ? item->device : NULL;
	gm_lock_drop(&session->lock);

	if (!d || gm_map_await_stream_until(d, GPUMEM_STREAM_ANY, gm_clock_ns() + IDLE_NS) < 0)
		return NULL;
	return retired_take(session, GM_RETIRED_IDLE);
}

struct gm_retired *gm_retired_take_back(struct gpumem_session *session,
	bool (*fits)(const struct gm_retired *item, const void *ctx), const void *ctx)
{
	struct gm_retired *item;

	gm_lock(&session->lock);
	LL_FOREACH (session->retired->items, item)
		if (item->when == GM_RETIRED_IDLE && fits(item, ctx))
			break;
	if (item)
		LL_DELETE(session->retired->items, item);
	gm_lock_drop(&session->lock);
	if (item)
		atomic_fetch_sub(&session->retired->n, 1);
	return item;
}

/* Ends what the permission allows, and returns a list of the rest, which is ready. */
static struct gm_retired *retired_end(
	struct gpumem_session *session, struct gm_retired *list, enum gm_retired_may may)
{
	struct gm_retired *rest = NULL, *item, *tmp;

	LL_FOREACH_SAFE (list, item, tmp) {
		if (item->end(item, may)) {
			atomic_fetch_sub(&session->retired->n, 1);
			continue;
		}
		item->when = GM_RETIRED_READY;
		LL_PREPEND(rest, item);
	}
	return rest;
}

void gm_retired_settle(struct gpumem_session *session, enum gm_retired_may may)
{
	struct gm_retired *rest, *idle, *ready;

	if (!atomic_load(&session->retired->n))
		return;
	gm_lock(&session->retired->settling);
	rest = retired_end(session, retired_take_passed(session), GM_RETIRED_NO_WAIT);
	idle = retired_end(session, retired_take_if_idle(session), GM_RETIRED_NO_WAIT);
	/* With the items that the two calls above have added again. */
	ready = retired_end(session, retired_take(session, GM_RETIRED_READY), GM_RETIRED_NO_WAIT);
	LL_CONCAT(rest, idle);
	LL_CONCAT(rest, ready);
	if (may == GM_RETIRED_NO_WAIT)
		retired_put(session, rest);
	gm_lock_drop(&session->retired->settling);
	if (may == GM_RETIRED_NO_WAIT)
		return;

	/* Threads that need other memory must not wait for the driver. A thread that needs this memory waits for the
	 * thread that gives the memory back. */
	gm_lock(&session->retired->unpinning);
	retired_put(session, retired_end(session, rest, may));
	gm_lock_drop(&session->retired->unpinning);
}

bool gm_retired_end_idle(struct gpumem_session *session)
{
	struct gm_retired *list = retired_take(session, GM_RETIRED_IDLE);
	const bool any = list;

	retired_put(session, retired_end(session, list, GM_RETIRED_LAST));
	return any;
}

void gm_retired_end_all(struct gpumem_session *session)
{
	struct gm_retired *list, *item;

	/* The end of an item may add other items. */
	for (;;) {
		gm_lock(&session->lock);
		list = session->retired->items;
		session->retired->items = NULL;
		gm_lock_drop(&session->lock);
		if (!list)
			return;

		LL_FOREACH (list, item) {
			if (item->when != GM_RETIRED_EVENT)
				continue;
			retired_try_record(item);
			if (!item->event)
				continue;
			(void)gm_map_await_event(item->device, item->event);
			retired_forget(item);
		}
		retired_put(session, retired_end(session, list, GM_RETIRED_LAST));
	}
}

uint64_t gm_retired_next(struct gpumem_session *session, uint64_t now_ns)
{
	const struct gm_retired *item;
	size_t others = 0;

	/* With those that a thread has taken out to look at them. */
	size_t n = atomic_load(&session->retired->n);
	if (n == 0)
		return UINT64_MAX;
	gm_lock(&session->lock);
	LL_FOREACH (session->retired->items, item)
		others += item->when != GM_RETIRED_EVENT;
	gm_lock_drop(&session->lock);
	return now_ns + (others >= n ? POLL_IDLE_NS : POLL_NS);
}
