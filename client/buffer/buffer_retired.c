/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See buffer_retired.h. This file promises that a chunk goes back only after it was unmapped, and is
 * unmapped only after the device has finished with it. It must never wait for the device.
 */
#include "client/buffer/buffer_retired.h"

#include <stdlib.h>
#include <utlist.h>

#include "client/buffer/evict.h"
#include "client/device/account_use.h"
#include "client/map/map.h"
#include "common/arith.h"

bool gm_buffer_retired_has(const struct gpumem_buffer *buffer)
{
	gm_lock(&buffer->session->retired->settling);
	bool has = buffer->tail != NULL;
	gm_lock_drop(&buffer->session->retired->settling);
	return has;
}

void gm_buffer_retired_forget(struct gpumem_buffer *buffer)
{
	struct gm_buffer_retired *tail = buffer->tail;

	buffer->tail = NULL;
	if (tail && tail->listed)
		tail->buffer = NULL;
	else
		free(tail);
}

/* Takes the chunks from this offset on out of the buffer. */
static struct gm_session_chunk *retired_chunks(
	struct gpumem_buffer *buffer, uint64_t offset, size_t *ret_n)
{
	struct gm_session_chunk **place = &buffer->parts, *list, *chunk;

	for (uint64_t at = 0; at < offset && *place; place = &(*place)->next)
		at += (*place)->bytes;
	list = *place;
	*place = NULL;
	LL_COUNT(list, chunk, *ret_n);
	return list;
}

/* Unmaps the tail and gives it back. */
static void retired_give(struct gpumem_buffer *buffer)
{
	struct gpumem_session *session = buffer->session;
	struct gm_session_device *d = &session->device[buffer->device];
	uint64_t bytes = buffer->tail->bytes, offset = buffer->bytes - bytes;
	size_t n;

	/* If the driver does not unmap it, it stays leased and charged; the buffer may take it back. */
	if (d->map->unmap(d->backend, (uint8_t *)buffer->addr + offset, bytes) < 0) {
		atomic_store(&session->kept, true);
		return;
	}

	struct gm_session_chunk *chunks = retired_chunks(buffer, offset, &n);
	gm_lock(&session->lock);
	buffer->bytes -= bytes;
	buffer->mapped -= bytes;
	buffer->chunks -= n;
	/* A buffer that was destroyed meanwhile has counted all its chunks as given back. */
	if (buffer->counted) {
		d->buffer_held -= bytes;
		d->buffer_returns += n;
	}
	gm_evict_relist(buffer);
	gm_lock_drop(&session->lock);

	gm_buffer_retired_forget(buffer);
	gm_session_chunks_give(session, chunks);
	(void)gm_page_publish_use(session, buffer->device);
}

/* The device has finished. */
static bool retired_finish(struct gm_retired *item, enum gm_retired_may may)
{
	struct gm_buffer_retired *tail = (struct gm_buffer_retired *)item;

	tail->listed = false;
	if (!tail->buffer)
		free(tail);
	else if (!tail->kept)
		retired_give(tail->buffer);
	return true;
}

struct gm_buffer_retired *gm_buffer_retired_new(struct gpumem_buffer *buffer)
{
	struct gm_buffer_retired *tail = calloc(1, sizeof(*tail));

	if (tail) {
		tail->buffer = buffer;
		tail->retired.end = retired_finish;
	}
	return tail;
}

void gm_buffer_retired_keep(struct gpumem_buffer *buffer)
{
	if (buffer->tail)
		buffer->tail->kept = true;
}

void gm_buffer_retired_let_go(struct gpumem_buffer *buffer)
{
	if (!buffer->tail)
		return;
	buffer->tail->kept = false;
	/* The device finished with it meanwhile. */
	if (!buffer->tail->listed)
		retired_give(buffer);
}

void gm_buffer_retired_cut(
	struct gpumem_buffer *buffer, uint64_t bytes, bool idle, struct gm_buffer_retired *spare)
{
	struct gpumem_session *session = buffer->session;
	const struct gm_session_device *d = &session->device[buffer->device];
	struct gm_buffer_retired *tail = buffer->tail;

	if (tail)
		free(spare);
	else
		buffer->tail = tail = spare;
	tail->bytes += bytes;

	if (tail->listed) {
		if (!idle)
			gm_retired_renew(&tail->retired);
	} else if (!idle && gm_retired_needed(d)) {
		tail->listed = true;
		gm_retired_add(session, &tail->retired, d, GM_RETIRED_EVENT);
	}
}

void gm_buffer_retired_take_back(struct gpumem_buffer *buffer, uint64_t but)
{
	if (!buffer->tail)
		return;
	buffer->tail->bytes = gm_u64_min(buffer->tail->bytes, but);
	if (!buffer->tail->bytes)
		gm_buffer_retired_forget(buffer);
}

void gm_buffer_retired_pass(struct gpumem_buffer *from, struct gpumem_buffer *to)
{
	to->tail = from->tail;
	from->tail = NULL;
	if (to->tail)
		to->tail->buffer = to;
}
