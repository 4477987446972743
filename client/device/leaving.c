/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that waits for the device. Unmapping it during a copy would crash the program, so it waits
 * here for an event. This file must never wait for the device, except in gm_leaving_await(), for the
 * session's end.
 */
#include "client/device/leaving.h"

#include <utlist.h>

#include "client/device/await.h"
#include "client/map/map.h"
#include "common/clock.h"

#define POLL_NS (5 * GM_NS_PER_MS)

bool gm_leaving_needed(const struct gm_session_device *device)
{
	return device->map->record != NULL;
}

/* Records the event, if there is none. If the driver refuses, the next look tries again. */
static void leaving_try_record(struct gm_leaver *leaver)
{
	const struct gm_session_device *d = leaver->device;

	if (!leaver->event && d->map->record(d->backend, &leaver->event) < 0)
		leaver->event = NULL;
}

static int leaving_passed(const struct gm_leaver *leaver)
{
	return leaver->device->map->passed(leaver->device->backend, leaver->event);
}

static void leaving_forget(struct gm_leaver *leaver)
{
	leaver->device->map->forget(leaver->device->backend, leaver->event);
	leaver->event = NULL;
}

void gm_leaving_add(struct gpumem_session *session, struct gm_leaver *leaver,
	const struct gm_session_device *device)
{
	leaver->device = device;
	leaver->event = NULL;
	leaving_try_record(leaver);

	pthread_mutex_lock(&session->lock);
	LL_PREPEND(session->leaving, leaver);
	session->n_leaving++;
	pthread_mutex_unlock(&session->lock);
	gm_session_wake(session);
}

void gm_leaving_renew(struct gm_leaver *leaver)
{
	if (leaver->event)
		leaving_forget(leaver);
	leaving_try_record(leaver);
}

static struct gm_leaver *leaving_take_all(struct gpumem_session *session)
{
	pthread_mutex_lock(&session->lock);
	struct gm_leaver *list = session->leaving;
	session->leaving = NULL;
	pthread_mutex_unlock(&session->lock);
	return list;
}

struct gm_leaver *gm_leaving_take(struct gpumem_session *session)
{
	struct gm_leaver *list = leaving_take_all(session), *leaver, *tmp;
	struct gm_leaver *done = NULL, *waiting = NULL;
	size_t n = 0;

	LL_FOREACH_SAFE (list, leaver, tmp) {
		leaving_try_record(leaver);
		if (leaver->event && leaving_passed(leaver) == 1) {
			leaving_forget(leaver);
			LL_PREPEND(done, leaver);
			n++;
		} else {
			LL_PREPEND(waiting, leaver);
		}
	}

	pthread_mutex_lock(&session->lock);
	LL_CONCAT(session->leaving, waiting);
	session->n_leaving -= n;
	pthread_mutex_unlock(&session->lock);
	return done;
}

uint64_t gm_leaving_next(struct gpumem_session *session, uint64_t now_ns)
{
	pthread_mutex_lock(&session->lock);
	bool any = session->n_leaving > 0;
	pthread_mutex_unlock(&session->lock);
	return any ? now_ns + POLL_NS : UINT64_MAX;
}

struct gm_leaver *gm_leaving_await(struct gpumem_session *session)
{
	struct gm_leaver *list = leaving_take_all(session), *leaver;
	size_t n = 0;

	LL_FOREACH (list, leaver) {
		n++;
		leaving_try_record(leaver);
		if (!leaver->event)
			continue;
		(void)gm_await_event(leaver->device, leaver->event);
		leaving_forget(leaver);
	}

	pthread_mutex_lock(&session->lock);
	session->n_leaving -= n;
	pthread_mutex_unlock(&session->lock);
	return list;
}
