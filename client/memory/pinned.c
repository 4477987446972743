/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of pinned host memory that are buffers of their own. A freed block waits here until all
 * work that could use it is done. Only then is its buffer destroyed, because unmapping it during a
 * copy would crash the program. This file must never wait for the device, except at the session's
 * end.
 */
#include "client/memory/pinned.h"

#include <stdlib.h>
#include <time.h>
#include <utlist.h>

#include "client/memory/buffer.h"
#include "common/cancel.h"
#include "common/clock.h"

#define POLL_NS  (5 * GM_NS_PER_MS)
#define AWAIT_NS (GM_NS_PER_MS / 5)

struct gm_pinned_block {
	gpumem_buffer *buffer;
	struct gm_map_event *event; /* the event it waits for; NULL until one is recorded */
	bool done;                  /* nothing uses it any more */
	struct gm_pinned_block *prev, *next;
};

gpumem_status gm_pinned_alloc(struct gpumem_session *session, size_t size,
	const gpumem_alloc_options *options, void **ret_ptr)
{
	gpumem_alloc_options given = GPUMEM_ALLOC_OPTIONS_INIT;
	gpumem_buffer_options wanted = GPUMEM_BUFFER_OPTIONS_INIT;
	GM_UNCANCELLED;
	gpumem_status status = gm_sized_in(&given, sizeof(given), options);
	if (status)
		return status;
	if ((given.alignment & (given.alignment - 1)) || given.alignment > GM_CHUNK_MIN)
		return gm_error(GPUMEM_E_INVALID,
			"the alignment of registered pinned memory must be a power of two of at "
			"most %llu",
			(unsigned long long)GM_CHUNK_MIN);
	struct gm_pinned_block *block = calloc(1, sizeof(*block));
	if (!block)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a block");

	/* Make room first: some freed blocks may be done by now. */
	(void)gm_pinned_tick(session, gm_clock_ns());
	wanted.tag = given.tag;
	wanted.wait_ms = given.wait_ms;
	status = gpumem_buffer_create(session, GPUMEM_DEVICE_HOST, size, &wanted, &block->buffer);
	if (status) {
		free(block);
		return status;
	}

	pthread_mutex_lock(&session->lock);
	DL_APPEND(session->blocks, block);
	pthread_mutex_unlock(&session->lock);
	*ret_ptr = gpumem_buffer_ptr(block->buffer);
	return GPUMEM_OK;
}

/* Locked. The block in use at that address, or NULL. */
static struct gm_pinned_block *pinned_find(struct gpumem_session *session, const void *ptr)
{
	struct gm_pinned_block *block;
	DL_FOREACH (session->blocks, block)
		if (gpumem_buffer_ptr(block->buffer) == ptr)
			break;
	return block;
}

bool gm_pinned_holds(struct gpumem_session *session, const void *ptr)
{
	pthread_mutex_lock(&session->lock);
	bool holds = pinned_find(session, ptr) != NULL;
	pthread_mutex_unlock(&session->lock);
	return holds;
}

/* Records the event that the block waits for, if it needs one and has none. This can fail; then it
 * is tried again later. */
static void pinned_try_record(struct gm_session_device *d, struct gm_pinned_block *block)
{
	if (!block->done && !block->event && d->map->record(d->backend, &block->event) < 0)
		block->event = NULL;
}

bool gm_pinned_free(struct gpumem_session *session, void *ptr, gpumem_stream stream)
{
	GM_UNCANCELLED; /* the driver may reach a cancellation point while it records */

	pthread_mutex_lock(&session->lock);
	struct gm_pinned_block *block = pinned_find(session, ptr);
	if (block)
		DL_DELETE(session->blocks, block);
	pthread_mutex_unlock(&session->lock);
	if (!block)
		return false;

	block->done = stream == GPUMEM_STREAM_DONE;
	pinned_try_record(&session->device[session->counted], block);
	pthread_mutex_lock(&session->lock);
	DL_APPEND(session->leaving, block);
	pthread_mutex_unlock(&session->lock);
	gm_session_wake(session);
	return true;
}

/* Whether the device no longer uses the block. */
static bool pinned_has_passed(struct gm_session_device *d, struct gm_pinned_block *block)
{
	pinned_try_record(d, block);
	if (block->event && d->map->passed(d->backend, block->event) == 1) {
		d->map->forget(d->backend, block->event);
		block->event = NULL;
		block->done = true;
	}
	return block->done;
}

uint64_t gm_pinned_tick(struct gpumem_session *session, uint64_t now_ns)
{
	struct gm_session_device *d = &session->device[session->counted];
	struct gm_pinned_block *list, *block, *tmp, *waiting = NULL;

	if (!gm_pinned_apart(session, session->counted))
		return UINT64_MAX;

	/* A thread that is about to ask for memory must wait until these blocks are given back. */
	pthread_mutex_lock(&session->settling);
	pthread_mutex_lock(&session->lock);
	list = session->leaving;
	session->leaving = NULL;
	pthread_mutex_unlock(&session->lock);

	DL_FOREACH_SAFE (list, block, tmp) {
		DL_DELETE(list, block);
		if (pinned_has_passed(d, block)) {
			gpumem_buffer_destroy(block->buffer);
			free(block);
		} else {
			DL_APPEND(waiting, block);
		}
	}

	pthread_mutex_lock(&session->lock);
	DL_CONCAT(session->leaving, waiting);
	pthread_mutex_unlock(&session->lock);
	pthread_mutex_unlock(&session->settling);
	return waiting ? now_ns + POLL_NS : UINT64_MAX;
}

/* Waits until the device no longer uses a freed block, if an event can be recorded. */
static void pinned_await(struct gm_session_device *d, struct gm_pinned_block *block)
{
	struct timespec pause = {.tv_nsec = AWAIT_NS};

	pinned_try_record(d, block);
	if (!block->event)
		return;
	while (d->map->passed(d->backend, block->event) == 0)
		nanosleep(&pause, NULL);
	d->map->forget(d->backend, block->event);
	block->event = NULL;
}

void gm_pinned_drop_all(struct gpumem_session *session)
{
	struct gm_session_device *d = &session->device[session->counted];
	struct gm_pinned_block *block, *tmp;

	DL_FOREACH (session->leaving, block)
		pinned_await(d, block);
	DL_CONCAT(session->blocks, session->leaving);
	DL_FOREACH_SAFE (session->blocks, block, tmp)
		free(block);
	session->blocks = session->leaving = NULL;
}
