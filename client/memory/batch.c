/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches: one buffer whose maker sees only the pieces. The daemon knows one lease and its tag; the
 * sizes and tags of the pieces stay here, except that larger pieces have rows in the client's page,
 * as all memory has.
 *
 * The buffer goes back as a whole. So freeing a piece costs nothing but its row, and only one event
 * has to be recorded: when the last piece is freed, for all work that was launched before.
 */
#include "client/memory/alloc.h"
#include "client/memory/alloc_lists.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "client/buffer/buffer.h"
#include "client/buffer/buffer_make.h"
#include "client/device/account_use.h"
#include "client/map/map.h"
#include "client/session/session_stacks.h"
#include "common/arith.h"
#include "common/cancel.h"
#include "common/text/units.h"

#define LEAST_ALIGNMENT 256

struct gm_alloc_batch_piece {
	uint64_t offset;
	size_t size; /* as requested */
	const char *tag;
	uint32_t row; /* in the client's page; 0: not listed */
	bool freed;
};

struct gpumem_batch {
	struct gpumem_session *session;
	uint32_t device;
	uint8_t *base;
	size_t count;
	struct gpumem_batch *prev, *next; /* in the session's list */

	/* The session's lock protects these fields, and which pieces are freed. */
	gpumem_buffer *buffer; /* NULL: it went back, because all pieces are freed */
	size_t live;           /* pieces that are not freed */
	bool used;             /* the device may still use freed pieces */
	bool captured;         /* a graph may use freed pieces until the batch is destroyed */

	struct gm_alloc_batch_piece pieces[]; /* and then their tags */
};

/* The entries that the program asked for, while the library makes the batch. */
struct batch_request {
	const gpumem_batch_entry *entries;
	size_t count;
	const char *tag; /* of entries without one */
	const char *type, *precision;
	size_t tag_bytes;
	uint64_t bytes; /* of all pieces, where they will lie */
	size_t failed;  /* the entry to blame */
};

/* ---- checking */

static uint64_t batch_place(const gpumem_batch_entry *entry, uint64_t from)
{
	return gm_round_up(from, gm_u64_max(entry->alignment, (size_t)LEAST_ALIGNMENT));
}

static gpumem_status batch_check_entry(const gpumem_batch_entry *entry, size_t index)
{
	if (!entry->bytes || entry->bytes > GM_LEASE_BYTES_MAX)
		return gm_error(GPUMEM_E_INVALID,
			"entry %zu of the batch: bytes must be from 1 to %llu, and is %zu", index,
			(unsigned long long)GM_LEASE_BYTES_MAX, entry->bytes);
	if ((entry->alignment & (entry->alignment - 1)) || entry->alignment > GM_CHUNK_MIN)
		return gm_error(GPUMEM_E_INVALID,
			"entry %zu of the batch: alignment must be a power of two of at most %llu, "
			"and is %zu",
			index, (unsigned long long)GM_CHUNK_MIN, entry->alignment);
	if (gm_buffer_tag_check(entry->tag))
		return gm_error(
			GPUMEM_E_INVALID, "entry %zu of the batch: %s", index, gm_error_text());
	return GPUMEM_OK;
}

/* Checks all entries, and finds out how much memory they take. */
static gpumem_status batch_check(struct batch_request *request)
{
	if (!request->entries)
		return gm_error(GPUMEM_E_INVALID, "entries must not be NULL");
	if (!request->count || request->count > GPUMEM_BATCH_MOST)
		return gm_error(GPUMEM_E_INVALID,
			"count must be from 1 to %d, the most entries that a batch can have, and "
			"is %zu",
			GPUMEM_BATCH_MOST, request->count);

	for (size_t i = 0; i < request->count; i++) {
		const gpumem_batch_entry *entry = &request->entries[i];
		gpumem_status status = batch_check_entry(entry, i);

		request->failed = i;
		if (status)
			return status;
		request->bytes = batch_place(entry, request->bytes) + entry->bytes;
		request->tag_bytes += entry->tag ? strlen(entry->tag) + 1 : 0;
		if (request->bytes > GM_LEASE_BYTES_MAX)
			return gm_error(GPUMEM_E_INVALID,
				"entry %zu of the batch: with it, the batch has more than %llu "
				"bytes",
				i, (unsigned long long)GM_LEASE_BYTES_MAX);
	}

	request->tag_bytes += strlen(request->tag) + 1;
	request->failed = GPUMEM_BATCH_NO_ENTRY;
	return GPUMEM_OK;
}

/* The daemon refused the whole batch. Names the first entry that does not fit into what the daemon
 * says this process could get now. There is none if something else is the reason. */
static gpumem_status batch_refused(struct gpumem_session *session, uint32_t device,
	struct batch_request *request, gpumem_status status)
{
	struct gm_page_device page;
	char text[GM_UNITS_TEXT];
	uint64_t end = 0;

	if (status != GPUMEM_E_NO_MEMORY && status != GPUMEM_E_LIMIT &&
		status != GPUMEM_E_TIMEOUT && status != GPUMEM_E_DEADLOCK)
		return status;
	/* In version 1, the page does not say. */
	if (session->pages.daemon->header.version < 2 ||
		gm_session_pages_device(&session->pages, device, &page) < 0)
		return status;

	for (size_t i = 0; i < request->count; i++) {
		const gpumem_batch_entry *entry = &request->entries[i];

		end = batch_place(entry, end) + entry->bytes;
		if (gm_round_up(end, GM_CHUNK_MIN) <= page.room)
			continue;
		request->failed = i;
		gm_format_size(entry->bytes, text);
		return gm_error(status, "entry %zu of the batch (%s%s%s) does not fit: %s", i,
			entry->tag ? entry->tag : "", entry->tag ? ", " : "", text,
			gm_error_text());
	}
	return status;
}

/* ---- making */

static struct gpumem_batch *batch_alloc(const struct batch_request *request)
{
	const size_t pieces = request->count * sizeof(struct gm_alloc_batch_piece);
	struct gpumem_batch *batch = calloc(1, sizeof(*batch) + pieces + request->tag_bytes);

	if (batch)
		batch->count = batch->live = request->count;
	return batch;
}

static void batch_carve(struct gpumem_batch *batch, const struct batch_request *request)
{
	const char *common = (const char *)&batch->pieces[batch->count];
	char *text = stpcpy((char *)common, request->tag) + 1;
	uint64_t end = 0;

	for (size_t i = 0; i < batch->count; i++) {
		const gpumem_batch_entry *entry = &request->entries[i];
		struct gm_alloc_batch_piece *piece = &batch->pieces[i];

		piece->offset = batch_place(entry, end);
		piece->size = entry->bytes;
		end = piece->offset + piece->size;

		piece->tag = common;
		if (entry->tag) {
			piece->tag = text;
			text = stpcpy(text, entry->tag) + 1;
		}
	}
}

/* Gives a piece its row. The pieces have one stack in common. */
static void batch_enlist_piece(struct gpumem_batch *batch, struct gm_alloc_batch_piece *piece,
	const struct batch_request *request, uint32_t stack)
{
	struct gm_session_pages *pages = &batch->session->pages;

	piece->row = gm_session_pages_row_add(pages, batch->device, piece->size, piece->tag);
	gm_session_stacks_ref(pages->stacks, stack);
	gm_session_pages_row_note(pages, piece->row,
		&(struct gm_pages_about){
			.ptr = batch->base + piece->offset,
			.type = request->type,
			.precision = request->precision,
			.stack = stack,
		});
}

static void batch_enlist(struct gpumem_batch *batch, const struct batch_request *request)
{
	struct gpumem_session *session = batch->session;
	struct gm_session_device *d = &session->device[batch->device];
	uint64_t from = atomic_load_explicit(&session->track_from, memory_order_relaxed);
	uint32_t stack = gm_session_stacks_take(session->pages.stacks);
	uint64_t bytes = 0;

	for (size_t i = 0; i < batch->count; i++) {
		struct gm_alloc_batch_piece *piece = &batch->pieces[i];

		bytes += piece->size;
		if (piece->size >= from)
			batch_enlist_piece(batch, piece, request, stack);
	}
	gm_session_stacks_drop(session->pages.stacks, stack);

	gm_lock(&session->lock);
	DL_APPEND(session->allocated->batches, batch);
	d->buffer_in_use += bytes;
	d->buffers += batch->count;
	gm_lock_drop(&session->lock);
	(void)gm_page_publish_use(session, batch->device);
}

/* Shows the backend the calling thread's context, so that an event covers the streams in it. */
static void batch_show_context(const struct gm_session_device *d)
{
	if (d->map->here)
		(void)d->map->here(d->backend);
}

static gpumem_status batch_make(struct gpumem_session *session, uint32_t device,
	struct batch_request *request, const gpumem_batch_options *options,
	gpumem_batch **ret_batch)
{
	gpumem_status status = gm_buffer_tag_check(options->tag);
	if (!status)
		status = gm_buffer_kinds_check(options->type, options->precision);
	if (status)
		return status;
	request->tag = options->tag ? options->tag : "";
	request->type = options->type;
	request->precision = options->precision;
	status = batch_check(request);
	if (status)
		return status;

	struct gpumem_batch *batch = batch_alloc(request);
	if (!batch)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a batch");
	batch->session = session;
	batch->device = device;

	gpumem_buffer_options wanted = GPUMEM_BUFFER_OPTIONS_INIT;
	wanted.tag = options->tag;
	wanted.transport = options->transport;
	wanted.wait_ms = options->wait_ms;
	status = gm_buffer_make(
		session, device, request->bytes, &wanted, GM_BUFFER_CARVED, &batch->buffer);
	if (status) {
		free(batch);
		return batch_refused(session, device, request, status);
	}

	batch->base = gpumem_buffer_ptr(batch->buffer);
	batch_show_context(&session->device[device]);
	batch_carve(batch, request);
	batch_enlist(batch, request);
	*ret_batch = batch;
	return GPUMEM_OK;
}

gpumem_status gpumem_batch_create(gpumem_session *session, uint32_t name,
	const gpumem_batch_entry *entries, size_t count, const gpumem_batch_options *options,
	gpumem_batch **ret_batch)
{
	gpumem_batch_options given = GPUMEM_BATCH_OPTIONS_INIT;
	struct batch_request request = {
		.entries = entries, .count = count, .failed = GPUMEM_BATCH_NO_ENTRY};
	uint32_t device;
	GM_UNCANCELLED;

	if (!gm_session_ok(session))
		return gm_session_refused(session);
	gpumem_status status = gm_sized_in(&given, sizeof(given), options);
	if (status)
		return status;

	if (!ret_batch)
		status = gm_error(GPUMEM_E_INVALID, "ret_batch must not be NULL");
	else if (!gm_session_find_device(session, name, &device))
		status = gm_session_no_device(session, name);
	else
		status = batch_make(session, device, &request, &given, ret_batch);
	if (status && given.ret_failed)
		*given.ret_failed = request.failed;
	return status;
}

/* ---- freeing */

/* Locked. Returns the piece's row, which the caller removes without the lock. */
static uint32_t batch_count_out(struct gpumem_batch *batch, struct gm_alloc_batch_piece *piece)
{
	struct gm_session_device *d = &batch->session->device[batch->device];

	d->buffer_in_use -= piece->size;
	d->buffers--;
	batch->live--;
	piece->freed = true;
	return piece->row;
}

/* Whether the stream is being captured, so that a graph will use the memory later. */
static bool batch_is_captured(const struct gm_session_device *d, gpumem_stream stream)
{
	return stream && stream != GPUMEM_STREAM_ANY && stream != GPUMEM_STREAM_DONE &&
	       d->map->captured_into && d->map->captured_into(d->backend, stream);
}

gpumem_status gpumem_batch_free_entry(gpumem_batch *batch, size_t index, gpumem_stream stream)
{
	GM_UNCANCELLED; /* the driver may reach a cancellation point while it records */

	if (!batch)
		return gm_error(GPUMEM_E_INVALID, "batch must not be NULL");
	struct gpumem_session *session = batch->session;
	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (index >= batch->count)
		return gm_error(GPUMEM_E_INVALID,
			"there is no entry %zu in this batch: it has %zu, counted from 0", index,
			batch->count);

	const struct gm_session_device *d = &session->device[batch->device];
	bool captured = batch_is_captured(d, stream);
	if (stream != GPUMEM_STREAM_DONE)
		batch_show_context(d);

	struct gm_alloc_batch_piece *piece = &batch->pieces[index];
	gpumem_buffer *buffer = NULL;
	uint32_t row = 0;
	gm_lock(&session->lock);
	bool freed = piece->freed;
	if (!freed) {
		row = batch_count_out(batch, piece);
		batch->used |= stream != GPUMEM_STREAM_DONE;
		batch->captured |= captured;
		if (!batch->live && !batch->captured) {
			buffer = batch->buffer;
			batch->buffer = NULL;
		}
	}
	gm_lock_drop(&session->lock);
	if (freed)
		return gm_error(GPUMEM_E_INVALID, "entry %zu of the batch was freed before", index);

	gm_session_pages_row_remove(&session->pages, batch->device, row);
	if (buffer)
		gm_buffer_leave(buffer, !batch->used);
	gm_session_dirty(session);
	return GPUMEM_OK;
}

void gpumem_batch_destroy(gpumem_batch *batch)
{
	GM_UNCANCELLED;

	/* In a forked child there is nothing to end. */
	if (!batch || !gm_session_ok(batch->session))
		return;
	struct gpumem_session *session = batch->session;

	gm_lock(&session->lock);
	DL_DELETE(session->allocated->batches, batch);
	for (size_t i = 0; i < batch->count; i++) {
		struct gm_alloc_batch_piece *piece = &batch->pieces[i];
		piece->row = piece->freed ? 0 : batch_count_out(batch, piece);
	}
	gm_lock_drop(&session->lock);

	for (size_t i = 0; i < batch->count; i++)
		gm_session_pages_row_remove(&session->pages, batch->device, batch->pieces[i].row);
	if (batch->buffer) {
		batch_show_context(&session->device[batch->device]);
		gm_buffer_leave(batch->buffer, false);
		gm_session_dirty(session);
	}
	free(batch);
}

void gm_alloc_batch_drop_all(struct gpumem_session *session)
{
	struct gpumem_batch *batch, *tmp;

	DL_FOREACH_SAFE (session->allocated->batches, batch, tmp) {
		if (batch->buffer && batch->used)
			gm_buffer_leave(batch->buffer, false);
		free(batch);
	}
	session->allocated->batches = NULL;
}

/* ---- properties */

size_t gpumem_batch_count(const gpumem_batch *batch)
{
	return batch ? batch->count : 0;
}

static const struct gm_alloc_batch_piece *batch_piece(const gpumem_batch *batch, size_t index)
{
	return batch && index < batch->count ? &batch->pieces[index] : NULL;
}

void *gpumem_batch_ptr(const gpumem_batch *batch, size_t index)
{
	const struct gm_alloc_batch_piece *piece = batch_piece(batch, index);
	return piece && !piece->freed ? batch->base + piece->offset : NULL;
}

size_t gpumem_batch_size(const gpumem_batch *batch, size_t index)
{
	const struct gm_alloc_batch_piece *piece = batch_piece(batch, index);
	return piece ? piece->size : 0;
}

const char *gpumem_batch_tag(const gpumem_batch *batch, size_t index)
{
	const struct gm_alloc_batch_piece *piece = batch_piece(batch, index);
	return piece ? piece->tag : "";
}

uint32_t gpumem_batch_device(const gpumem_batch *batch)
{
	return batch ? gm_session_device_name(batch->session, batch->device) : 0;
}
