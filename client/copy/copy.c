/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transfers between host memory and buffers: checks what is asked for and chooses how to do it.
 * copy_pipe.c does the work.
 */
#include "client/copy/copy.h"
#include "client/copy/copy_slots.h"

#include <errno.h>
#include <string.h>

#include "client/buffer/buffer.h"
#include "client/buffer/buffer_transfer.h"
#include "client/buffer/evict.h"
#include "client/copy/copy_pipe.h"
#include "client/device/map_await.h"
#include "client/device/map_chunks.h"
#include "client/map/map.h"
#include "client/memory/pinned.h"
#include "common/arith.h"
#include "common/cancel.h"
#include "common/system/processors.h"

#define MIB ((size_t)1 << 20)

#define COPY_THREADS    8u
#define COPY_SLOTS      16u
#define COPY_SLOT       (4 * MIB)
#define COPY_SLOT_LEAST (MIB / 4)
/* From how many bytes on several threads pay: they have to be started, and the slots have to be got. The
 * second one is for pinned memory that has to be registered with the driver, unless slots of an earlier transfer are left. */
#define COPY_STAGE_FROM            (8 * MIB)
#define COPY_STAGE_REGISTERED_FROM (512 * MIB)
/* Pieces of what one thread or the driver copies by itself: the program hears of each. */
#define COPY_PIECE        (64 * MIB)
#define COPY_PIECE_OF_CPU (4 * MIB)

/* ---- arguments */

static gpumem_status copy_check_options(const gpumem_copy_options *options)
{
	if ((unsigned)options->strategy > GPUMEM_COPY_MANAGED)
		return gm_error(
			GPUMEM_E_INVALID, "strategy %d does not exist", (int)options->strategy);
	if (options->threads > GPUMEM_COPY_THREADS_MOST)
		return gm_error(GPUMEM_E_INVALID, "threads is %u: at most %d are allowed",
			options->threads, GPUMEM_COPY_THREADS_MOST);
	if (options->slots == 1 || options->slots > GPUMEM_COPY_SLOTS_MOST)
		return gm_error(GPUMEM_E_INVALID,
			"slots is %u: it must be from 2 to %d, or 0 for the library's choice",
			options->slots, GPUMEM_COPY_SLOTS_MOST);
	if (options->slot_bytes && (options->slot_bytes < GPUMEM_COPY_SLOT_LEAST ||
					   options->slot_bytes > GPUMEM_COPY_SLOT_MOST))
		return gm_error(GPUMEM_E_INVALID,
			"slot_bytes is %zu: it must be from %d to %d, or 0 for the library's choice",
			options->slot_bytes, GPUMEM_COPY_SLOT_LEAST, GPUMEM_COPY_SLOT_MOST);
	return GPUMEM_OK;
}

gpumem_status gm_copy_init(struct gm_copy_transfer *copy, gpumem_buffer *buffer, size_t offset,
	uint64_t bytes, bool out, gpumem_stream stream, const gpumem_copy_options *options,
	const gpumem_copy_result *result)
{
	if (!buffer)
		return gm_error(GPUMEM_E_INVALID, "buffer must not be NULL");
	if (!gm_session_ok(buffer->session))
		return gm_session_refused(buffer->session);
	*copy = (struct gm_copy_transfer){.session = buffer->session,
		.device = &buffer->session->device[buffer->device],
		.total = bytes,
		.out = out,
		.stream = stream,
		.options = GPUMEM_COPY_OPTIONS_INIT,
		.result = GPUMEM_COPY_RESULT_INIT};
	copy->visible = gm_buffer_visible(buffer);

	gpumem_status status = gm_sized_in(&copy->options, sizeof(copy->options), options);
	if (!status)
		status = copy_check_options(&copy->options);
	if (status)
		return status;
	if (result && !result->size)
		return gm_error(GPUMEM_E_INVALID,
			"the size of ret_result is 0: initialise it with GPUMEM_COPY_RESULT_INIT");

	status = gm_evict_use(buffer);
	if (status)
		return status;
	gm_lock(&buffer->lock);
	uint8_t *start = buffer->addr;
	size_t size = buffer->size;
	/* A buffer in host memory has no lease of its own. */
	bool read_only = buffer->lease && buffer->lease->read_only;
	gm_buffer_transfer_begin(buffer);
	copy->buffer = buffer;
	gm_lock_drop(&buffer->lock);

	if (offset > size || bytes > size - offset)
		return gm_error(GPUMEM_E_INVALID,
			"%llu bytes at offset %zu do not fit: the buffer has %zu bytes",
			(unsigned long long)bytes, offset, size);
	if (read_only && !out)
		return gm_error(GPUMEM_E_DENIED,
			"the buffer was opened for reading only, so nothing can be copied to it");
	copy->at = start + offset;
	copy->room = size - offset;
	return GPUMEM_OK;
}

void gm_copy_deinit(struct gm_copy_transfer *copy)
{
	if (!copy->buffer)
		return;
	gm_evict_release(copy->buffer);
	if (gm_buffer_transfer_end(copy->buffer))
		gpumem_buffer_destroy(copy->buffer);
}

/* The name of the argument with the program's memory. */
static const char *copy_side(const struct gm_copy_transfer *copy)
{
	return copy->out ? "to" : "from";
}

/* Checks the program's memory. */
static gpumem_status copy_check_memory(const struct gm_copy_transfer *copy)
{
	uintptr_t host = (uintptr_t)copy->memory, there = (uintptr_t)copy->at;

	if (!copy->total)
		return GPUMEM_OK;
	if (!copy->memory)
		return gm_error(
			GPUMEM_E_INVALID, "%s must not be NULL if bytes is not 0", copy_side(copy));
	if (copy->total > UINTPTR_MAX - host)
		return gm_error(GPUMEM_E_INVALID, "%s and bytes go beyond the end of all memory",
			copy_side(copy));
	if (host < there + copy->total && there < host + copy->total &&
		!(copy->visible && host == there))
		return gm_error(GPUMEM_E_INVALID, "%s overlaps with the place in the buffer",
			copy_side(copy));
	return GPUMEM_OK;
}

/* ---- choosing */

static uint32_t copy_threads(const struct gm_copy_transfer *copy)
{
	if (copy->serial)
		return 1;
	return copy->options.threads ? copy->options.threads
				     : (uint32_t)gm_u64_min(gm_processors(), COPY_THREADS);
}

/* The size of a slot. That of a short transfer is smaller, so that all threads have something to do. */
static size_t copy_slot_bytes(const struct gm_copy_transfer *copy)
{
	if (copy->options.slot_bytes)
		return copy->options.slot_bytes;
	uint64_t share = gm_round_up(copy->total / (4 * copy_threads(copy)), COPY_SLOT_LEAST);
	return (size_t)gm_u64_min(gm_u64_max(share, COPY_SLOT_LEAST), COPY_SLOT);
}

/* Whether the pinned memory of this session is of the kind that is registered with the driver. */
static bool copy_registers(struct gpumem_session *session)
{
	return session->counted < session->devices &&
	       gm_map_chunks_open(session, session->counted) == GPUMEM_OK &&
	       gm_pinned_apart(session, session->counted);
}

static gpumem_copy_strategy copy_choose(const struct gm_copy_transfer *copy, bool known)
{
	gpumem_copy_strategy given = copy->options.strategy;

	if (given == GPUMEM_COPY_SYNC || known)
		return GPUMEM_COPY_SYNC;
	if (given == GPUMEM_COPY_STAGED)
		return GPUMEM_COPY_STAGED;
	if (copy->total < COPY_STAGE_FROM)
		return GPUMEM_COPY_SYNC;
	/* A file has to go through slots in any case. */
	return copy->visible || !copy->memory || copy->total >= COPY_STAGE_REGISTERED_FROM ||
			       !copy_registers(copy->session)
		       ? GPUMEM_COPY_STAGED
		       : GPUMEM_COPY_SYNC;
}

/* ---- doing it */

/* Waits for the stream's work, and says so if that is not possible. */
static gpumem_status copy_await(const struct gm_copy_transfer *copy)
{
	int r = gm_map_await_stream(copy->device, copy->stream);

	if (r == -EAGAIN)
		return gm_map_await_captured("copy", ", or say that no work is left");
	if (r < 0)
		return gm_error(GPUMEM_E_SYSTEM,
			"cannot wait for the work on the stream, so nothing was copied: %s",
			gm_map_chunks_error(copy->device, r));
	return GPUMEM_OK;
}

static gpumem_status copy_run_cpu(struct gm_copy_transfer *copy)
{
	bool staged = copy->result.strategy == GPUMEM_COPY_STAGED, unused;
	size_t piece = staged ? copy_slot_bytes(copy) : COPY_PIECE_OF_CPU;
	gpumem_status status = copy_await(copy);

	return status ? status
		      : gm_copy_pipe(copy, GM_COPY_WAY_CPU, NULL, piece,
				staged ? copy_threads(copy) : 0, &unused);
}

/* Runs a transfer through slots. *ret_none: there are none, so nothing was done. */
static gpumem_status copy_run_slots(struct gm_copy_transfer *copy, bool *ret_none)
{
	bool staged = copy->result.strategy == GPUMEM_COPY_STAGED, done;
	size_t slot_bytes = copy_slot_bytes(copy);
	uint64_t pieces = (copy->total + slot_bytes - 1) / slot_bytes;
	uint32_t wanted = copy->options.slots ? copy->options.slots : COPY_SLOTS;
	struct gm_copy_slots slots;

	bool pinned = gm_copy_slots_init(&slots, copy->session,
		(uint32_t)gm_u64_min(wanted, gm_u64_max(pieces, 2)), slot_bytes);
	copy->result.ring_status = slots.refused;
	*ret_none = !pinned && copy->memory;
	if (*ret_none)
		return GPUMEM_OK;
	if (!pinned && !gm_copy_slots_init_pageable(&slots, copy->session, COPY_SLOT_LEAST))
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory to read the file into");

	if (pinned) {
		copy->result.slots = slots.n;
		copy->result.slot_bytes = slots.slot_bytes;
	} else {
		copy->result.strategy = GPUMEM_COPY_SYNC;
		staged = false;
	}
	gpumem_status status = gm_copy_pipe(copy, copy->out ? GM_COPY_WAY_OUT : GM_COPY_WAY_IN,
		&slots, slots.slot_bytes, staged ? copy_threads(copy) : 0, &done);
	gm_copy_slots_deinit(&slots, done);
	return status;
}

static gpumem_status copy_run_gpu(struct gm_copy_transfer *copy)
{
	bool none = true, unused;
	gpumem_status status = GPUMEM_OK;

	if (copy->result.strategy == GPUMEM_COPY_STAGED || !copy->memory)
		status = copy_run_slots(copy, &none);
	if (!none)
		return status;
	copy->result.strategy = GPUMEM_COPY_SYNC;
	return gm_copy_pipe(copy, GM_COPY_WAY_DRIVER, NULL, COPY_PIECE, 0, &unused);
}

/* Without a stream of the program's, the transfer gets one of its own, so that it waits for no other
 * work. */
static gpumem_status copy_run_unnamed(struct gm_copy_transfer *copy)
{
	const struct gm_session_device *d = copy->device;
	gpumem_status status = copy_await(copy);
	if (status)
		return status;

	int r = d->map->stream_open(d->backend, &copy->stream);
	if (r < 0)
		return gm_error(GPUMEM_E_SYSTEM, "no stream for the copy can be made: %s",
			gm_map_chunks_error(d, r));
	status = copy_run_gpu(copy);
	d->map->stream_close(d->backend, copy->stream);
	return status;
}

static gpumem_status copy_is_captured(void)
{
	return gm_map_await_captured("copy", ", or on another stream that has no part in it");
}

/*
 * Refuses a stream that is being captured: a graph would copy again at each launch, from memory that is not
 * there any more. Also refuses a default stream while a stream is captured that may wait for it: a copy
 * there would break the capture. Recording an event asks for both, before there are slots and threads.
 */
static gpumem_status copy_check_stream(const struct gm_copy_transfer *copy)
{
	const struct gm_session_device *d = copy->device;
	struct gm_map_event *event;

	(void)d->map->here(d->backend);
	int r = d->map->record_on(d->backend, copy->stream, &event);
	if (r == -EAGAIN)
		return copy_is_captured();
	/* Of all else, the copy itself tells. */
	if (r == 0)
		d->map->forget(d->backend, event);
	return GPUMEM_OK;
}

gpumem_status gm_copy_run(struct gm_copy_transfer *copy, bool known)
{
	copy->pageable = !known;
	copy->result.strategy = copy_choose(copy, known);
	if (copy->visible)
		return copy_run_cpu(copy);
	if (copy->stream == GPUMEM_STREAM_ANY || copy->stream == GPUMEM_STREAM_DONE)
		return copy_run_unnamed(copy);

	gpumem_status status = copy_check_stream(copy);
	return status ? status : copy_run_gpu(copy);
}

/* ---- the ways without a pipe */

static gpumem_status copy_run_managed(struct gm_copy_transfer *copy)
{
	copy->result.strategy = GPUMEM_COPY_MANAGED;
	if (!copy->visible)
		return gm_error(GPUMEM_E_UNSUPPORTED,
			"the CPU cannot see memory of device %u, so it has to be copied: use "
			"strategy auto",
			copy->device->info.number);
	if (copy->memory != copy->at)
		return gm_error(GPUMEM_E_INVALID,
			"%s is not the buffer's memory at this offset, so it has to be copied: use "
			"strategy auto",
			copy_side(copy));
	gpumem_status status = copy_await(copy);
	if (!status)
		copy->result.bytes = copy->total;
	return status;
}

static gpumem_status copy_run_async(struct gm_copy_transfer *copy)
{
	const struct gm_session_device *d = copy->device;
	uint8_t *here = copy->memory;

	if (!d->map->record) {
		copy->result.strategy = GPUMEM_COPY_SYNC;
		return copy_run_cpu(copy);
	}
	if (copy->stream == GPUMEM_STREAM_ANY || copy->stream == GPUMEM_STREAM_DONE)
		return gm_error(GPUMEM_E_INVALID,
			"stream must be a stream: an asynchronous copy has to be launched on one");
	copy->result.strategy = GPUMEM_COPY_ASYNC;
	(void)d->map->here(d->backend);

	int r = d->map->copy(d->backend, copy->out ? here : copy->at, copy->out ? copy->at : here,
		copy->total, copy->stream);
	if (r == -EAGAIN)
		return copy_is_captured();
	if (r < 0)
		return gm_error(r == -EINVAL ? GPUMEM_E_INVALID : GPUMEM_E_SYSTEM,
			"the driver refused the copy, and nothing was copied (%s): stream must be "
			"open and one of device %u, and the host memory must be there",
			gm_map_chunks_error(d, r), d->info.number);
	copy->result.bytes = copy->total;
	return GPUMEM_OK;
}

/* ---- calls */

static int copy_move_memory(void *ctx, uint64_t at, void *place, size_t n, size_t *ret_n)
{
	struct gm_copy_transfer *copy = ctx;
	uint8_t *memory = copy->memory + at;

	memcpy(copy->out ? memory : place, copy->out ? place : memory, n);
	*ret_n = n;
	return 0;
}

/* Whether the driver knows the program's memory. If it knows only one end, threads copy. */
static bool copy_is_known(const struct gm_copy_transfer *copy)
{
	const struct gm_session_device *d = copy->device;

	return !copy->visible && d->map->known && d->map->known(d->backend, copy->memory) &&
	       d->map->known(d->backend, copy->memory + copy->total - 1);
}

gpumem_status gm_copy_end(
	const struct gm_copy_transfer *copy, gpumem_status status, gpumem_copy_result *ret_result)
{
	if (ret_result)
		(void)gm_sized_out(ret_result, &copy->result, sizeof(copy->result));
	return status;
}

static gpumem_status copy_memory(gpumem_buffer *buffer, size_t offset, void *memory, size_t bytes,
	bool out, gpumem_stream stream, const gpumem_copy_options *options,
	gpumem_copy_result *ret_result)
{
	__attribute__((cleanup(gm_copy_deinit))) struct gm_copy_transfer copy = {0};
	gpumem_status status =
		gm_copy_init(&copy, buffer, offset, bytes, out, stream, options, ret_result);
	copy.memory = memory;
	copy.move = copy_move_memory;
	copy.ctx = &copy;
	if (!status)
		status = copy_check_memory(&copy);
	if (status)
		return status;

	gpumem_copy_strategy given = copy.options.strategy;
	if (!bytes)
		copy.result.strategy = given ? given : GPUMEM_COPY_SYNC;
	else if (given == GPUMEM_COPY_MANAGED || memory == copy.at)
		status = copy_run_managed(&copy);
	else if (given == GPUMEM_COPY_ASYNC)
		status = copy_run_async(&copy);
	else
		status = gm_copy_run(&copy, copy_is_known(&copy));
	return gm_copy_end(&copy, status, ret_result);
}

gpumem_status gpumem_copy_in(gpumem_buffer *buffer, size_t offset, const void *from, size_t bytes,
	gpumem_stream stream, const gpumem_copy_options *options, gpumem_copy_result *ret_result)
{
	GM_UNCANCELLED;
	return copy_memory(buffer, offset, (void *)from, bytes, false, stream, options, ret_result);
}

gpumem_status gpumem_copy_out(gpumem_buffer *buffer, size_t offset, void *to, size_t bytes,
	gpumem_stream stream, const gpumem_copy_options *options, gpumem_copy_result *ret_result)
{
	GM_UNCANCELLED;
	return copy_memory(buffer, offset, to, bytes, true, stream, options, ret_result);
}

void gpumem_copy_cancel(uint32_t *cancel)
{
	__atomic_store_n(cancel, 1, __ATOMIC_RELEASE);
}

gpumem_status gpumem_copy_set_limit(gpumem_session *session, uint64_t bytes)
{
	if (!gm_session_ok(session))
		return gm_session_refused(session);
	atomic_store(&session->copies->limit, bytes);
	return GPUMEM_OK;
}
