/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that waits for the device. Unmapping it during a copy would crash the program, so it waits
 * here for an event. This file must never wait for the device, except in gm_leaving_await(), for the
 * session's end, and for the moment that an idle device needs to say that it is idle.
 */
#include "client/device/leaving.h"

#include <utlist.h>

#include "client/device/await.h"
#include "client/map/map.h"
#include "common/clock.h"

#define POLL_NS (5 * GM_NS_PER_MS)
/* The same, if there are only patient leavers. */
#define POLL_PATIENT_NS (50 * GM_NS_PER_MS)
/* An event that is recorded while nothing is launched should pass within this time. */
#define IDLE_NS (200 * GM_NS_PER_US)

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
	if (!leaver->patient)
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

/* Takes out all that are patient, or all that are not. They still count. */
static struct gm_leaver *leaving_take_all(struct gpumem_session *session, bool patient)
{
	struct gm_leaver *taken = NULL, **end = &taken, **at = &session->leaving, *leaver;

	pthread_mutex_lock(&session->lock);
	while ((leaver = *at)) {
		if (leaver->patient != patient) {
			at = &leaver->next;
			continue;
		}
		*at = leaver->next;
		leaver->next = NULL;
		*end = leaver;
		end = &leaver->next;
	}
	pthread_mutex_unlock(&session->lock);
	return taken;
}

/* Whether a patient leaver is there and could leave now. It stays in the list meanwhile, for
 * gm_leaving_take_back(). */
static bool leaving_patient_can(struct gpumem_session *session)
{
	const struct gm_leaver *leaver;

	pthread_mutex_lock(&session->lock);
	LL_SEARCH_SCALAR(session->leaving, leaver, patient, true);
	const struct gm_session_device *d = leaver ? leaver->device : NULL;
	pthread_mutex_unlock(&session->lock);
	return d && gm_await_stream_until(d, GPUMEM_STREAM_ANY, gm_clock_ns() + IDLE_NS) == 0;
}

struct gm_leaver *gm_leaving_take(struct gpumem_session *session)
{
	struct gm_leaver *list = leaving_take_all(session, false), *leaver, *tmp;
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

	if (leaving_patient_can(session)) {
		list = gm_leaving_take_patient(session);
		LL_CONCAT(done, list);
	}
	return done;
}

struct gm_leaver *gm_leaving_take_back(struct gpumem_session *session,
	bool (*fits)(const struct gm_leaver *leaver, const void *ctx), const void *ctx)
{
	struct gm_leaver *leaver;

	pthread_mutex_lock(&session->lock);
	LL_FOREACH (session->leaving, leaver)
		if (leaver->patient && fits(leaver, ctx))
			break;
	if (leaver) {
		LL_DELETE(session->leaving, leaver);
		session->n_leaving--;
	}
	pthread_mutex_unlock(&session->lock);
	return leaver;
}

struct gm_leaver *gm_leaving_take_patient(struct gpumem_session *session)
{
	struct gm_leaver *taken = leaving_take_all(session, true), *leaver;
	size_t n;

	LL_COUNT(taken, leaver, n);
	pthread_mutex_lock(&session->lock);
	session->n_leaving -= n;
	pthread_mutex_unlock(&session->lock);
	return taken;
}

uint64_t gm_leaving_next(struct gpumem_session *session, uint64_t now_ns)
{
	struct gm_leaver *leaver;
	size_t patient = 0;

	pthread_mutex_lock(&session->lock);
	size_t n = session->n_leaving;
	LL_FOREACH (session->leaving, leaver)
		patient += leaver->patient;
	pthread_mutex_unlock(&session->lock);
	return n == 0 ? UINT64_MAX : now_ns + (patient == n ? POLL_PATIENT_NS : POLL_NS);
}

struct gm_leaver *gm_leaving_await(struct gpumem_session *session)
{
	struct gm_leaver *list = leaving_take_all(session, false), *leaver;
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

	struct gm_leaver *patient = gm_leaving_take_patient(session);
	LL_CONCAT(list, patient);
	return list;
}
