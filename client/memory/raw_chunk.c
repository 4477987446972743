/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks that the program maps itself. Each is a lease of its own, of one chunk of exactly the size that
 * was asked for. This file never maps anything, and keeps no descriptor: a program may have more chunks
 * than it may have open files.
 */
#include "client/memory/alloc.h"
#include "client/memory/alloc_lists.h"

#include <stdlib.h>

#include <utlist.h>

#include "client/buffer/buffer.h"
#include "client/buffer/buffer_make.h"
#include "client/device/wait_elsewhere.h"
#include "client/device/account_use.h"
#include "client/grant/session_ask.h"
#include "client/session/session_pages.h"
#include "common/cancel.h"
#include "common/cleanup.h"

struct gpumem_chunk {
	struct gpumem_session *session;
	struct gm_session_lease *lease;
	uint64_t id; /* the daemon's, of the chunk */
	uint32_t device;
	uint64_t bytes;
	uint32_t row; /* in the client's page; 0: not listed */
	struct gpumem_chunk *prev, *next;
};

static gpumem_status chunk_check(
	gpumem_session *session, uint32_t name, size_t bytes, uint32_t *ret_device)
{
	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!gm_session_find_device(session, name, ret_device))
		return gm_session_no_device(session, name);
	if (bytes == 0 || bytes > GM_LEASE_BYTES_MAX || bytes % GM_CHUNK_MIN)
		return gm_error(GPUMEM_E_INVALID,
			"a chunk has 1 to %llu times %llu bytes; %llu bytes were asked for",
			(unsigned long long)(GM_LEASE_BYTES_MAX / GM_CHUNK_MIN),
			(unsigned long long)GM_CHUNK_MIN, (unsigned long long)bytes);
	return GPUMEM_OK;
}

/* ---- figures */

static void chunk_enlist(struct gpumem_chunk *chunk, const char *tag)
{
	struct gpumem_session *session = chunk->session;
	struct gm_session_device *d = &session->device[chunk->device];

	gm_lock(&session->lock);
	DL_APPEND(session->allocated->chunks, chunk);
	d->buffer_in_use += chunk->bytes;
	d->buffer_held += chunk->bytes;
	d->buffers++;
	d->buffer_misses++;
	if (chunk->bytes >= atomic_load_explicit(&session->track_from, memory_order_relaxed))
		chunk->row = gm_session_pages_row_add(
			&session->pages, chunk->device, chunk->bytes, tag ? tag : "");
	gm_lock_drop(&session->lock);
	(void)gm_page_publish_use(session, chunk->device);
}

static void chunk_unlist(struct gpumem_chunk *chunk)
{
	struct gpumem_session *session = chunk->session;
	struct gm_session_device *d = &session->device[chunk->device];

	gm_lock(&session->lock);
	DL_DELETE(session->allocated->chunks, chunk);
	d->buffer_in_use -= chunk->bytes;
	d->buffer_held -= chunk->bytes;
	d->buffers--;
	d->buffer_returns++;
	gm_lock_drop(&session->lock);

	gm_session_pages_row_remove(&session->pages, chunk->device, chunk->row);
	(void)gm_page_publish_use(session, chunk->device);
}

/* ---- life */

/* Asks the daemon for the lease, and takes the descriptor of its chunk out of the answer. */
static gpumem_status chunk_take(
	struct gpumem_chunk *chunk, const gpumem_chunk_options *options, int *ret_fd)
{
	struct gpumem_session *session = chunk->session;
	struct gm_wait_elsewhere elsewhere = {.session = session, .device = chunk->device};
	const struct gm_lease_what what = {
		.device = chunk->device,
		.bytes = chunk->bytes,
		.transport = GM_TRANSPORT_FD,
		.tag = options->tag,
		.one_chunk = true,
	};
	struct gm_session_chunk *parts;

	gm_retired_settle(session, GM_RETIRED_NO_WAIT);
	struct gm_wait wait = gm_wait_elsewhere_wait(&elsewhere, options->wait_ms);
	gpumem_status status = gm_session_lease_take(session, &what, &wait, &chunk->lease, &parts);
	if (status)
		return status;

	if (parts->next || parts->bytes != chunk->bytes) {
		gm_session_chunks_free(parts);
		gm_session_lease_give(session, chunk->lease);
		return gm_error(GPUMEM_E_UNSUPPORTED,
			"this gpumemd cannot make one chunk of a given size: update it");
	}
	chunk->id = parts->held.chunk;
	*ret_fd = gm_steal_fd(&parts->fd);
	gm_session_chunks_free(parts);
	return GPUMEM_OK;
}

gpumem_status gpumem_chunk_create(gpumem_session *session, uint32_t name, size_t bytes,
	const gpumem_chunk_options *options, gpumem_chunk **ret_chunk, int *ret_fd)
{
	gpumem_chunk_options given = GPUMEM_CHUNK_OPTIONS_INIT;
	uint32_t device = 0;
	GM_UNCANCELLED;

	gpumem_status status = chunk_check(session, name, bytes, &device);
	if (!status && (!ret_chunk || !ret_fd))
		status = gm_error(GPUMEM_E_INVALID, "%s must not be NULL",
			ret_chunk ? "ret_fd" : "ret_chunk");
	if (!status)
		status = gm_sized_in(&given, sizeof(given), options);
	if (!status)
		status = gm_buffer_tag_check(given.tag);
	if (status)
		return status;

	struct gpumem_chunk *chunk = calloc(1, sizeof(*chunk));
	if (!chunk)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a chunk");
	chunk->session = session;
	chunk->device = device;
	chunk->bytes = bytes;
	status = chunk_take(chunk, &given, ret_fd);
	if (status) {
		free(chunk);
		return status;
	}

	chunk_enlist(chunk, given.tag);
	*ret_chunk = chunk;
	return GPUMEM_OK;
}

gpumem_status gpumem_chunk_fd(gpumem_chunk *chunk, int *ret_fd)
{
	GM_UNCANCELLED;

	if (!chunk || !ret_fd)
		return gm_error(
			GPUMEM_E_INVALID, "%s must not be NULL", chunk ? "ret_fd" : "chunk");
	if (!gm_session_ok(chunk->session))
		return gm_session_refused(chunk->session);
	return gm_session_lease_fd(chunk->session, chunk->lease, chunk->id, ret_fd);
}

size_t gpumem_chunk_size(const gpumem_chunk *chunk)
{
	return chunk ? chunk->bytes : 0;
}

uint32_t gpumem_chunk_device(const gpumem_chunk *chunk)
{
	return chunk ? gm_session_device_name(chunk->session, chunk->device) : 0;
}

void gpumem_chunk_destroy(gpumem_chunk *chunk)
{
	GM_UNCANCELLED;

	/* In a forked child there is nothing to end: the connection is the parent's. */
	if (!chunk || !gm_session_ok(chunk->session))
		return;
	chunk_unlist(chunk);
	gm_session_lease_give(chunk->session, chunk->lease);
	free(chunk);
}

void gm_alloc_raw_chunk_drop_all(struct gpumem_session *session)
{
	struct gpumem_chunk *chunk, *tmp;

	DL_FOREACH_SAFE (session->allocated->chunks, chunk, tmp)
		free(chunk);
	session->allocated->chunks = NULL;
}
