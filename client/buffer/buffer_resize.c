/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resizes buffers. A buffer grows by chunks that are mapped behind those it has, and shrinks by
 * chunks at its end that go back (buffer_retired.h). Where that is not possible, it moves: a second
 * lease takes its place, and the device copies the content.
 *
 * This file promises that a resize which fails changes nothing, and that no chunk is unmapped or
 * given back while the device may use it. The daemon decides first, because it alone knows whether
 * others have the buffer. It must never wait for the device, except to move a buffer whose stream
 * it does not know.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "client/buffer/buffer.h"
#include "client/buffer/buffer_make.h"
#include "client/buffer/buffer_retired.h"
#include "client/buffer/buffer_transfer.h"
#include "client/buffer/evict.h"
#include "client/device/map_await.h"
#include "client/device/wait_elsewhere.h"
#include "client/device/map_chunks.h"
#include "client/device/account_use.h"
#include "client/map/map.h"
#include "client/grant/session_ask.h"
#include "common/arith.h"
#include "common/cancel.h"
#include "common/cleanup.h"
#include "common/status_table.h"

/* One resize. The buffer is locked. */
struct buffer_resize {
	struct gpumem_buffer *buffer;
	struct gpumem_session *session;
	struct gm_session_device *d;
	size_t size;
	gpumem_stream stream;
	uint32_t wait_ms;
	bool moved;
};

/* ---- checks */

static gpumem_status resize_check(const struct gpumem_buffer *buffer, size_t size)
{
	if (buffer->opened)
		return gm_error(GPUMEM_E_DENIED,
			"another process made this buffer, and only that one can resize it");
	if (buffer->wish.signals)
		return gm_error(GPUMEM_E_UNSUPPORTED,
			"a buffer with signals cannot be resized: a move would leave its signals behind");
	if (!size || size > GM_LEASE_BYTES_MAX)
		return gm_error(GPUMEM_E_INVALID, "size must be from 1 to %llu, and is %zu",
			(unsigned long long)GM_LEASE_BYTES_MAX, size);
	return GPUMEM_OK;
}

static gpumem_status resize_forgotten(void)
{
	return gm_error(GPUMEM_E_DISCONNECTED,
		"gpumemd was restarted and does not know this buffer: it keeps working here, but "
		"cannot be resized; create a new one");
}

static gpumem_status resize_transferring(void)
{
	return gm_error(GPUMEM_E_BUSY,
		"a transfer copies to or from this buffer: resize it when the copy has "
		"ended");
}

/* Passes the status of a request on, unless the daemon forgot the buffer while the request waited. */
static gpumem_status resize_status(const struct buffer_resize *r, gpumem_status status)
{
	return status == GPUMEM_E_NOT_FOUND ? resize_forgotten() : status;
}

static bool resize_names_stream(gpumem_stream stream)
{
	return stream != GPUMEM_STREAM_ANY && stream != GPUMEM_STREAM_DONE;
}

static gpumem_status resize_check_stream(const struct buffer_resize *r)
{
	const struct gm_map_ops *map = r->d->map;

	if (map->here)
		(void)map->here(r->d->backend);
	if (r->stream && resize_names_stream(r->stream) && map->captured_into &&
		map->captured_into(r->d->backend, r->stream))
		return gm_error(GPUMEM_E_BUSY,
			"the stream is being captured into a graph, which uses the buffer as it is: "
			"resize it before or after the capture");
	return GPUMEM_OK;
}

/* ---- in place */

static void resize_settle_begin(const struct buffer_resize *r)
{
	gm_lock(&r->session->retired->settling);
}

static void resize_settle_end(const struct buffer_resize *r)
{
	gm_lock_drop(&r->session->retired->settling);
}

/* Whether chunks can be added and taken away one by one. */
static bool resize_in_chunks(const struct buffer_resize *r)
{
	return r->buffer->parts && !r->d->map->whole;
}

/* How many bytes of the chunks a buffer of that size needs. */
static uint64_t resize_needs(const struct buffer_resize *r)
{
	const struct gm_session_chunk *chunk;
	uint64_t bytes = 0;

	if (!resize_in_chunks(r))
		return r->buffer->bytes;
	LL_FOREACH (r->buffer->parts, chunk) {
		if (bytes >= r->size)
			break;
		bytes += chunk->bytes;
	}
	return bytes;
}

/* The chunks that are there are enough. The tail is kept. */
static gpumem_status resize_within(struct buffer_resize *r)
{
	struct gpumem_buffer *buffer = r->buffer;
	struct gm_buffer_retired *spare = gm_buffer_retired_new(buffer);

	if (!spare)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory to resize a buffer");
	gpumem_status status =
		resize_status(r, gm_session_lease_set_size(r->session, buffer->lease, r->size));
	if (status) {
		free(spare);
		return status;
	}

	gm_buffer_set_size(buffer, r->size);
	resize_settle_begin(r);
	uint64_t needs = resize_needs(r), used = buffer->bytes - gm_buffer_retired_bytes(buffer);
	if (needs < used) {
		gm_buffer_retired_cut(buffer, used - needs, r->stream == GPUMEM_STREAM_DONE,
			gm_steal_ptr(&spare));
	} else {
		gm_buffer_retired_take_back(buffer, buffer->bytes - needs);
	}
	resize_settle_end(r);
	free(spare);
	return GPUMEM_OK;
}

/* Maps chunks behind those of the buffer. On error, says how many bytes of them stay mapped. */
static int resize_map(
	const struct buffer_resize *r, struct gm_session_chunk *chunks, uint64_t *ret_stuck)
{
	const struct gm_map_ops *map = r->d->map;
	struct gpumem_buffer *buffer = r->buffer;
	uint8_t *start = (uint8_t *)buffer->addr + buffer->bytes;
	struct gm_session_chunk *chunk;
	uint64_t mapped = 0;
	int error = 0;

	LL_FOREACH (chunks, chunk) {
		error = buffer->bytes + mapped + chunk->bytes > buffer->room
				? -ENOMEM
				: map->map(r->d->backend, start + mapped, chunk->bytes, chunk->fd);
		if (error < 0)
			break;
		chunk->fd = gm_close(chunk->fd);
		mapped += chunk->bytes;
	}
	if (error == 0)
		error = map->access(r->d->backend, start, mapped, false);

	*ret_stuck = 0;
	if (error < 0 && mapped && map->unmap(r->d->backend, start, mapped) < 0)
		*ret_stuck = mapped;
	return error;
}

/* The daemon granted the chunks, but they cannot be used. */
static gpumem_status resize_undo(
	struct buffer_resize *r, struct gm_session_chunk *chunks, int error, uint64_t stuck)
{
	struct gpumem_buffer *buffer = r->buffer;
	bool known = error == -ENOMEM || error == -ENOBUFS;
	char why[GM_ERROR_BYTES];

	snprintf(why, sizeof(why), "%s", gm_map_chunks_error(r->d, error));
	if (stuck) {
		/* They stay leased until the buffer is destroyed, which cannot unmap them either. */
		atomic_store(&r->session->kept, true);
		gm_session_chunks_free(chunks);
	} else {
		gm_session_chunks_give(r->session, chunks);
	}
	(void)gm_session_lease_set_size(r->session, buffer->lease, buffer->size);
	return gm_error(known ? gm_status_from_errno(error) : GPUMEM_E_SYSTEM,
		"cannot map what a buffer of %zu bytes needs more: %.200s", r->size, why);
}

static void resize_append(struct buffer_resize *r, struct gm_session_chunk *chunks)
{
	struct gpumem_buffer *buffer = r->buffer;
	struct gm_session_chunk *chunk;
	uint64_t bytes = 0;
	size_t n = 0;

	LL_FOREACH (chunks, chunk) {
		bytes += chunk->bytes;
		n++;
	}
	resize_settle_begin(r);
	gm_buffer_retired_take_back(buffer, 0);
	LL_CONCAT(buffer->parts, chunks);
	gm_lock(&r->session->lock);
	buffer->bytes += bytes;
	buffer->mapped += bytes;
	buffer->chunks += n;
	r->d->buffer_held += bytes;
	r->d->buffer_misses++;
	gm_lock_drop(&r->session->lock);
	resize_settle_end(r);

	gm_buffer_set_size(buffer, r->size);
}

/* More chunks are needed, and there is room for them. The tail is kept. */
static gpumem_status resize_grow(struct buffer_resize *r)
{
	struct gpumem_buffer *buffer = r->buffer;
	struct gm_session_chunk *chunks;
	struct gm_wait_elsewhere elsewhere = {.session = r->session, .device = buffer->device};
	struct gm_wait wait = gm_wait_elsewhere_wait(&elsewhere, r->wait_ms);
	uint64_t stuck;

	gm_retired_settle(r->session, GM_RETIRED_NO_WAIT);
	gpumem_status status =
		resize_status(r, gm_session_lease_resize(r->session, buffer->lease,
					 r->size - buffer->bytes, r->size, &wait, &chunks));
	if (status)
		return status;

	int error = resize_map(r, chunks, &stuck);
	if (error < 0)
		return resize_undo(r, chunks, error, stuck);
	resize_append(r, chunks);
	return GPUMEM_OK;
}

/* ---- moving */

static gpumem_status resize_not_copied(const struct buffer_resize *r, int error)
{
	return gm_error(error == -EAGAIN ? GPUMEM_E_BUSY : GPUMEM_E_SYSTEM,
		"the buffer has to move, and its content cannot be copied: %.200s",
		error == -EAGAIN ? GM_MAP_AWAIT_CAPTURED "; resize it after the capture"
				 : gm_map_chunks_error(r->d, error));
}

/*
 * Waits for what the copy has to come after. A copy without a stream of the program's is on the default
 * stream, so it waits for that one anyway. Beside the capture of a stream that waits for the default
 * stream, this is refused, where an event for all streams would break the capture.
 */
static gpumem_status resize_await(const struct buffer_resize *r)
{
	int error = resize_names_stream(r->stream) ? 0 : gm_map_await_stream(r->d, NULL);

	if (error == 0 && r->stream == GPUMEM_STREAM_ANY)
		error = gm_map_await_stream(r->d, GPUMEM_STREAM_ANY);
	return error ? resize_not_copied(r, error) : GPUMEM_OK;
}

/* If it fails, *ret_launched says whether the device may be at work in the new memory. */
static gpumem_status resize_copy(
	const struct buffer_resize *r, struct gpumem_buffer *to, bool *ret_launched)
{
	gpumem_stream stream = resize_names_stream(r->stream) ? r->stream : NULL;
	int error = r->d->map->copy(r->d->backend, to->addr, r->buffer->addr,
		gm_u64_min(r->buffer->size, r->size), stream);

	*ret_launched = error == 0;
	if (error == 0 && !resize_names_stream(r->stream))
		error = gm_map_await_stream(r->d, NULL);
	return error ? resize_not_copied(r, error) : GPUMEM_OK;
}

#define SWAP(a, b) \
	do { \
		__typeof__(a) swap_ = (a); \
		(a) = (b); \
		(b) = swap_; \
	} while (0)

/* The buffer gets the memory of the other one, which gets the old memory. Neither is in the hands
 * of another thread. */
static void resize_exchange(const struct buffer_resize *r, struct gpumem_buffer *other)
{
	struct gpumem_buffer *buffer = r->buffer;
	void *addr = buffer->addr;
	uint64_t reach = buffer->reach;

	resize_settle_begin(r);
	gm_lock(&r->session->lock);
	buffer->addr = (void *)other->addr;
	other->addr = addr;
	buffer->reach = (uint64_t)other->reach;
	other->reach = reach;
	buffer->wish.max_size = other->wish.max_size;
	/* Nobody else has the old memory, and nobody knows the new. */
	buffer->evict.shared = false;
	SWAP(buffer->lease, other->lease);
	SWAP(buffer->room, other->room);
	SWAP(buffer->bytes, other->bytes);
	SWAP(buffer->mapped, other->mapped);
	SWAP(buffer->chunks, other->chunks);
	SWAP(buffer->parts, other->parts);
	for (size_t i = 0; i < sizeof(buffer->ipc); i++)
		SWAP(buffer->ipc[i], other->ipc[i]);
	gm_buffer_retired_pass(buffer, other);
	gm_lock_drop(&r->session->lock);
	resize_settle_end(r);
}

/* Where a buffer moves because it has outgrown its place, it gets room to grow. */
static uint64_t resize_new_max(const struct buffer_resize *r)
{
	uint64_t max = r->buffer->wish.max_size;

	return r->size <= max ? max : gm_u64_min(2 * (uint64_t)r->size, GM_LEASE_BYTES_MAX);
}

static gpumem_status resize_move(struct buffer_resize *r)
{
	struct gpumem_buffer *buffer = r->buffer, *other;
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	char tag[sizeof(buffer->tag)];
	bool launched;

	gm_lock(&r->session->lock);
	memcpy(tag, buffer->tag, sizeof(tag));
	gm_lock_drop(&r->session->lock);
	options.tag = tag;
	options.transport = (gpumem_transport)buffer->transport;
	options.wait_ms = r->wait_ms;
	options.flags = (buffer->wish.for_others ? GPUMEM_BUFFER_FOR_OTHERS : 0) |
			(buffer->wish.evictable ? GPUMEM_BUFFER_EVICTABLE : 0);
	options.max_size = resize_new_max(r);

	/* Nobody else may have the buffer. */
	gpumem_status status = resize_status(
		r, gm_session_lease_set_size(r->session, buffer->lease, buffer->size));
	if (!status)
		status = resize_await(r);
	if (!status)
		status = gm_buffer_make(
			r->session, buffer->device, r->size, &options, GM_BUFFER_CARVED, &other);
	if (status)
		return status;
	status = resize_copy(r, other, &launched);
	if (status) {
		gm_buffer_leave(other, !launched);
		return status;
	}

	resize_exchange(r, other);
	gm_buffer_leave(other, !resize_names_stream(r->stream));
	gm_buffer_set_size(buffer, r->size);
	r->moved = true;
	return GPUMEM_OK;
}

/* ---- the call */

/* A buffer that is one block gives memory back only by moving. That is done where it pays, and if
 * there is room for both. */
static gpumem_status resize_smaller_block(struct buffer_resize *r)
{
	const struct gpumem_buffer *buffer = r->buffer;

	if (!resize_in_chunks(r) && r->size < buffer->size &&
		gm_round_up(r->size, GM_CHUNK_MIN) <= buffer->bytes - buffer->bytes / 4) {
		struct buffer_resize move = *r;
		move.wait_ms = 0;
		if (resize_move(&move) == GPUMEM_OK) {
			r->moved = true;
			return GPUMEM_OK;
		}
	}
	return resize_within(r);
}

static gpumem_status resize_run(struct buffer_resize *r)
{
	struct gpumem_buffer *buffer = r->buffer;

	if (buffer->lease->held.epoch != gm_session_epoch(r->session))
		return resize_forgotten();
	gpumem_status status = resize_check_stream(r);
	if (status)
		return status;

	/* From here on, only this thread changes what the buffer has. */
	resize_settle_begin(r);
	gm_buffer_retired_keep(buffer);
	resize_settle_end(r);
	if (r->size <= buffer->bytes)
		status = resize_smaller_block(r);
	else if (resize_in_chunks(r) && r->size <= buffer->reach)
		status = resize_grow(r);
	else
		status = resize_move(r);
	resize_settle_begin(r);
	gm_buffer_retired_let_go(buffer);
	resize_settle_end(r);
	return status;
}

gpumem_status gm_buffer_resize(struct gpumem_buffer *buffer, size_t size, bool grow_only,
	gpumem_stream stream, uint32_t wait_ms, int *ret_moved)
{
	struct buffer_resize resize = {
		.buffer = buffer,
		.session = buffer->session,
		.d = &buffer->session->device[buffer->device],
		.size = size,
		.stream = stream,
		.wait_ms = wait_ms,
	};
	gpumem_status status = resize_check(buffer, size);
	if (!status)
		status = gm_evict_hold(buffer);
	if (status)
		return status;

	gm_lock(&buffer->lock);
	if (size > buffer->size || (size < buffer->size && !grow_only))
		status = gm_buffer_transferring(buffer) ? resize_transferring()
							: resize_run(&resize);
	gm_lock_drop(&buffer->lock);
	gm_evict_release(buffer);
	if (!status && ret_moved)
		*ret_moved = resize.moved;
	return status;
}

gpumem_status gpumem_buffer_resize(
	gpumem_buffer *buffer, size_t size, gpumem_stream stream, int *ret_moved)
{
	GM_UNCANCELLED;

	if (!buffer)
		return gm_error(GPUMEM_E_INVALID, "buffer must not be NULL");
	if (!gm_session_ok(buffer->session))
		return gm_session_refused(buffer->session);
	return gm_buffer_resize(buffer, size, false, stream, buffer->wish.wait_ms, ret_moved);
}
