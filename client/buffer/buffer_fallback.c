/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers in host memory because their device is full. Such a buffer is made there if the program allows
 * it, and goes to the device when there is room again. This file decides when; buffer_pin.c moves it. It
 * must never ask for device memory that is not free: a buffer that works where it is drives nobody out.
 */
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "client/buffer/buffer.h"
#include "client/buffer/buffer_make.h"
#include "client/buffer/evict_private.h"
#include "client/device/account_use.h"
#include "common/cancel.h"
#include "common/clock.h"

/* How soon to look again at buffers that the device still uses. */
#define LOOK_NS (5 * GM_NS_PER_MS)

/* ---- making one */

/* Whether the device was full. Host memory does not help against a limit of the user's. */
static bool buffer_fallback_helps(gpumem_status why)
{
	return why == GPUMEM_E_NO_MEMORY || why == GPUMEM_E_TIMEOUT || why == GPUMEM_E_DEADLOCK;
}

/* Makes a buffer in host memory that got no memory of its device, for this reason, whose sentence is this
 * thread's. */
static gpumem_status buffer_fallback_make(struct gpumem_session *session, uint32_t device,
	size_t size, const gpumem_buffer_options *options, gpumem_status why,
	gpumem_buffer **ret_buffer)
{
	const struct gm_buffer_wish wish = gm_buffer_wish_of(options);
	char full[GM_ERROR_BYTES], host[GM_ERROR_BYTES];

	snprintf(full, sizeof(full), "%s", gm_error_text());
	gpumem_status status =
		gm_buffer_new_in_host(session, device, size, options->tag, &wish, ret_buffer);
	if (status) {
		snprintf(host, sizeof(host), "%s", gm_error_text());
		return gm_error(why, "%.200s; nor can it be in host memory: %.200s", full, host);
	}

	gm_lock(&session->lock);
	session->device[device].fallbacks++;
	gm_lock_drop(&session->lock);
	(void)gm_page_publish_use(session, device);
	gm_buffer_note(*ret_buffer, options->type, options->precision);
	gm_buffer_made_here(*ret_buffer);
	return GPUMEM_OK;
}

gpumem_status gpumem_buffer_create(gpumem_session *session, uint32_t name, size_t size,
	const gpumem_buffer_options *options, gpumem_buffer **ret_buffer)
{
	gpumem_buffer_options given = GPUMEM_BUFFER_OPTIONS_INIT;
	uint32_t device;
	GM_UNCANCELLED;

	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!ret_buffer)
		return gm_error(GPUMEM_E_INVALID, "ret_buffer must not be NULL");
	if (!gm_session_find_device(session, name, &device))
		return gm_session_no_device(session, name);
	uint64_t endings = atomic_load(&session->buffers->endings);
	gpumem_status status = gm_sized_in(&given, sizeof(given), options);
	if (!status)
		status = gm_buffer_make(session, device, size, &given, GM_BUFFER_MADE, ret_buffer);
	if (gm_buffer_end_retired(session, device, status, endings, &given.wait_ms))
		status = gm_buffer_make(session, device, size, &given, GM_BUFFER_MADE, ret_buffer);
	if (given.flags & GPUMEM_BUFFER_CPU_OK && buffer_fallback_helps(status))
		status = buffer_fallback_make(session, device, size, &given, status, ret_buffer);
	return status;
}

/* ---- going to the device */

void gm_evict_on_pressure(struct gpumem_session *session, uint32_t device, uint32_t level)
{
	struct gm_session_device *d = &session->device[device];

	if (device >= session->counted)
		return;
	gm_lock(&session->lock);
	/* The library may have missed the level before. The room decides whether a buffer returns. */
	d->relieved = d->return_due = level < GPUMEM_LEVEL_HIGH;
	gm_lock_drop(&session->lock);
}

/* Claims a buffer of the device that may return by itself, needs no more than this room, and was not tried
 * in this round. */
static struct gpumem_buffer *buffer_fallback_claim(
	struct gpumem_session *session, uint32_t device, uint64_t room, uint64_t round)
{
	struct gpumem_buffer *buffer;

	gm_lock(&session->lock);
	DL_FOREACH (session->buffers->first, buffer) {
		struct gm_evict *e = &buffer->evict;
		bool there = e->state == GM_EVICT_AWAY || e->state == GM_EVICT_UNDER;
		if (buffer->wish.cpu_ok && buffer->device == device && there && !e->pins &&
			!e->holds && e->round != round && buffer->size <= room)
			break;
	}
	if (buffer) {
		buffer->evict.round = round;
		buffer->evict.state = GM_EVICT_COMING;
	}
	gm_lock_drop(&session->lock);
	return buffer;
}

/* Returns whether to look again soon, because the device still uses a buffer in host memory. */
static bool buffer_fallback_return(struct gpumem_session *session, uint32_t device)
{
	uint64_t round = ++session->spill_rounds;
	gpumem_status status = GPUMEM_OK;
	bool again = false;

	/* The driver may fail for one buffer and still bring back the next. */
	while (!status || status == GPUMEM_E_SYSTEM) {
		struct gpumem_buffer *buffer = buffer_fallback_claim(
			session, device, gm_evict_room(session, device), round);
		bool busy;
		if (!buffer)
			break;
		status = gm_evict_bring(buffer, &busy);
		again = again || busy;
	}
	return again && (!status || status == GPUMEM_E_SYSTEM);
}

uint64_t gm_evict_return_step(struct gpumem_session *session, uint64_t now_ns)
{
	bool again = false;

	for (uint32_t i = 0; i < session->counted; i++) {
		struct gm_session_device *d = &session->device[i];

		gm_lock(&session->lock);
		bool due = d->return_due;
		d->return_due = false;
		gm_lock_drop(&session->lock);
		if (!due || !buffer_fallback_return(session, i))
			continue;

		gm_lock(&session->lock);
		d->return_due = true;
		gm_lock_drop(&session->lock);
		again = true;
	}
	return again ? now_ns + LOOK_NS : UINT64_MAX;
}
