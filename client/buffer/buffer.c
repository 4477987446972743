/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers. Each has a lease of its own, whose chunks are mapped side by side into an address range
 * of its own. So a buffer can be shared, and goes back as soon as it is destroyed. Making one needs
 * a message; programs that allocate often use gpumem_alloc().
 *
 * A destroyed buffer is unmapped before the daemon is told, because the daemon may then give the
 * memory to another process of the same trust domain.
 */
#include "client/buffer/buffer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

#include "client/buffer/buffer_retired.h"
#include "client/buffer/buffer_transfer.h"
#include "client/buffer/evict.h"
#include "client/device/map_chunks.h"
#include "client/device/spill.h"
#include "client/device/account_use.h"
#include "client/map/map.h"
#include "client/session/session_stacks.h"
#include "common/arith.h"
#include "common/cancel.h"
#include "common/cleanup.h"
#include "common/clock.h"

/* A request whose time is over waits for so long again, if memory was given back for it. */
#define BUFFER_MOMENT_MS 100

/* ---- the address range */

/* Returns false if the memory is still mapped. Then it must not go back, neither now nor by the
 * session's goodbye. */
static bool buffer_unmap(struct gpumem_buffer *buffer)
{
	const struct gm_session_device *d = &buffer->session->device[buffer->device];
	bool ipc = buffer->transport == GM_TRANSPORT_IPC;
	int r = 0;

	if (!buffer->addr)
		return true;

	if (ipc)
		r = d->map->detach(d->backend, buffer->addr);
	else if (buffer->mapped)
		r = d->map->unmap(d->backend, buffer->addr, buffer->mapped);
	if (r == 0 && !ipc)
		d->map->unreserve(d->backend, buffer->addr, buffer->room);
	gm_signals_end(&buffer->signals, d);

	if (r < 0)
		atomic_store(&buffer->session->kept, true);
	buffer->addr = NULL;
	return r == 0;
}

/* Opens the one chunk of an ipc lease, at the driver's address. */
static int buffer_open_ipc(struct gpumem_buffer *buffer, const struct gm_session_chunk *chunk)
{
	const struct gm_session_device *d = &buffer->session->device[buffer->device];
	void *addr;

	buffer->bytes = chunk->bytes;
	buffer->reach = chunk->bytes;
	buffer->chunks = 1;
	memcpy(buffer->ipc, chunk->ipc, sizeof(buffer->ipc));
	if (!d->map->attach)
		return -EOPNOTSUPP;
	int r = d->map->attach(d->backend, chunk->ipc, &addr);
	if (r == 0)
		buffer->addr = addr;
	return r;
}

/* How much address space a buffer needs to grow to so many bytes: the daemon may round what it
 * grows by up by 1/64, and then to whole chunks. */
static uint64_t buffer_room_for(uint64_t reach)
{
	return gm_round_up(reach + reach / 64 + GM_CHUNK_MIN, GM_CHUNK_MIN);
}

/* Reserves address space, as much as the buffer may need one day. If there is not that much, the
 * buffer can do with less, and moves when it needs more. */
static int buffer_reserve(struct gpumem_buffer *buffer)
{
	const struct gm_session_device *d = &buffer->session->device[buffer->device];
	uint64_t reach = gm_round_up(buffer->wish.max_size, GM_CHUNK_MIN);
	void *addr;
	int r;

	for (;;) {
		bool grows = reach > buffer->bytes && !d->map->whole;
		uint64_t room =
			grows ? gm_u64_max(buffer_room_for(reach), buffer->bytes) : buffer->bytes;
		/* When it comes back, its chunks may be others, and more of them. */
		if (buffer->wish.evictable)
			room = gm_u64_max(room, buffer_room_for(buffer->bytes));

		r = d->map->reserve(d->backend, room, &addr);
		if (r == 0) {
			buffer->addr = addr;
			buffer->room = room;
			buffer->reach = grows ? reach : buffer->bytes;
			return 0;
		}
		if (r != -ENOMEM || !grows)
			return r;
		reach = gm_round_up(reach / 2, GM_CHUNK_MIN);
	}
}

static int buffer_map(struct gpumem_buffer *buffer, struct gm_session_chunk *chunks)
{
	const struct gm_session_device *d = &buffer->session->device[buffer->device];
	struct gm_session_chunk *chunk;

	if (buffer->transport == GM_TRANSPORT_IPC)
		return buffer_open_ipc(buffer, chunks);

	LL_FOREACH (chunks, chunk) {
		buffer->bytes += chunk->bytes;
		buffer->chunks++;
	}

	int r = buffer_reserve(buffer);
	if (r < 0)
		return r;

	LL_FOREACH (chunks, chunk) {
		uint8_t *place = (uint8_t *)buffer->addr + buffer->mapped;
		r = d->map->map(d->backend, place, chunk->bytes, chunk->fd);
		if (r < 0)
			return r;
		chunk->fd = gm_close(chunk->fd);
		buffer->mapped += chunk->bytes;
	}
	return d->map->access(d->backend, buffer->addr, buffer->bytes, buffer->lease->read_only);
}

static gpumem_status buffer_map_failed(const struct gpumem_buffer *buffer, int r)
{
	return gm_map_chunks_failed(
		&buffer->session->device[buffer->device], r, "map", buffer->bytes);
}

/* ---- making and ending */

static void buffer_enlist(struct gpumem_buffer *buffer)
{
	struct gpumem_session *session = buffer->session;
	uint64_t bytes;

	gm_lock(&session->lock);
	uint32_t device = gm_evict_place(buffer, &bytes);
	struct gm_session_device *d = &session->device[device];
	DL_APPEND(session->buffers->first, buffer);
	buffer->counted = true;
	buffer->evict.able = buffer->wish.evictable && !buffer->carved;
	if (!buffer->carved) {
		d->buffer_in_use += buffer->size;
		d->buffers++;
	}
	if (buffer->opened) {
		d->buffer_opened += buffer->size;
	} else {
		d->buffer_held += bytes;
		d->buffer_misses++;
	}
	gm_buffer_relist(buffer);
	gm_lock_drop(&session->lock);
	(void)gm_page_publish_use(session, device);
}

/* The session is locked. */
static void buffer_note_row(struct gpumem_buffer *buffer)
{
	gm_session_pages_row_note(&buffer->session->pages, buffer->row,
		&(struct gm_pages_about){
			.ptr = buffer->addr, .type = buffer->type, .precision = buffer->precision});
}

/* A buffer is listed once: with the client that made it, which pays for it. */
void gm_buffer_relist(struct gpumem_buffer *buffer)
{
	struct gpumem_session *session = buffer->session;

	if (buffer->opened || buffer->carved)
		return;
	if (!buffer->row &&
		buffer->size >= atomic_load_explicit(&session->track_from, memory_order_relaxed)) {
		buffer->row = gm_session_pages_row_add(
			&session->pages, buffer->device, buffer->size, buffer->tag);
		buffer_note_row(buffer);
	}

	/* Up to its chunks any buffer can grow, but that is not what it was made for. */
	bool grows = buffer->wish.max_size && (buffer->parts || buffer->evict.able) &&
		     !session->device[buffer->device].map->whole;
	buffer->growth.max = grows ? (uint32_t)(buffer->reach / GM_CHUNK_MIN) : 0;
	gm_session_pages_row_size(
		&session->pages, buffer->row, buffer->addr, buffer->size, &buffer->growth);
	gm_evict_relist(buffer);
}

void gm_buffer_set_size(struct gpumem_buffer *buffer, size_t size)
{
	struct gpumem_session *session = buffer->session;

	gm_lock(&session->lock);
	session->device[buffer->device].buffer_in_use += size - buffer->size;
	buffer->size = size;
	buffer->growth.used = gm_u64_min(buffer->growth.used, size);
	gm_buffer_relist(buffer);
	gm_lock_drop(&session->lock);
	(void)gm_page_publish_use(session, buffer->device);
}

static void buffer_unlist(struct gpumem_buffer *buffer)
{
	struct gpumem_session *session = buffer->session;
	uint64_t bytes;

	gm_lock(&session->lock);
	uint32_t device = gm_evict_place(buffer, &bytes);
	struct gm_session_device *d = &session->device[device];
	gm_evict_end(buffer);
	DL_DELETE(session->buffers->first, buffer);
	buffer->counted = false;
	if (!buffer->carved) {
		d->buffer_in_use -= buffer->size;
		d->buffers--;
	}
	if (buffer->opened) {
		d->buffer_opened -= buffer->size;
	} else {
		d->buffer_held -= bytes;
		d->buffer_returns += buffer->chunks;
	}
	gm_lock_drop(&session->lock);

	gm_session_pages_row_remove(&session->pages, buffer->device, buffer->row);
	(void)gm_page_publish_use(session, device);
	if (device != buffer->device)
		(void)gm_page_publish_use(session, buffer->device);
}

static void buffer_free(struct gpumem_buffer *buffer)
{
	if (!buffer)
		return;
	gm_buffer_retired_forget(buffer);
	gm_signals_deinit(&buffer->signals);
	gm_session_chunks_free(buffer->parts);
	gm_lock_deinit(&buffer->lock);
	free(buffer);
}

gpumem_status gm_buffer_new(struct gpumem_session *session, struct gm_session_lease *lease,
	struct gm_session_chunk *chunks, enum gm_buffer_kind kind,
	const struct gm_buffer_wish *wish, gpumem_buffer **ret_buffer)
{
	gpumem_status status = GPUMEM_OK;
	struct gpumem_buffer *buffer = calloc(1, sizeof(*buffer));
	if (!buffer) {
		status = gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a buffer");
		goto out;
	}

	gm_lock_init(&buffer->lock, GM_LOCK_BUFFER);
	gm_signals_init(&buffer->signals);
	buffer->session = session;
	buffer->lease = lease;
	buffer->device = lease->device;
	buffer->transport = lease->transport;
	buffer->opened = kind == GM_BUFFER_OPENED;
	buffer->carved = kind == GM_BUFFER_CARVED;
	if (wish)
		buffer->wish = *wish;

	if (lease->device >= session->devices) {
		status = gm_session_no_device(session, lease->device);
		goto out;
	}

	status = gm_map_chunks_open(session, lease->device);
	if (status)
		goto out;
	snprintf(buffer->tag, sizeof(buffer->tag), "%s", lease->tag);
	atomic_init(&buffer->version, lease->version);
	int r = buffer_map(buffer, chunks);
	if (r < 0) {
		status = buffer_map_failed(buffer, r);
		goto out;
	}

	buffer->size = lease->user_bytes;
	if (!buffer->size || buffer->size > buffer->bytes) {
		status = gm_error(GPUMEM_E_PROTOCOL,
			"gpumemd granted %llu bytes for a buffer of %llu",
			(unsigned long long)buffer->bytes, (unsigned long long)lease->user_bytes);
		goto out;
	}

	if (!buffer->opened && buffer->transport == GM_TRANSPORT_FD)
		buffer->parts = gm_steal_ptr(&chunks);
	status = gm_signals_begin(&buffer->signals, &session->device[buffer->device], lease);
	if (status)
		goto out;

	buffer_enlist(buffer);
	/* Its maker may have left before the library's thread could find it in the list. */
	if (buffer->signals.word && buffer->opened) {
		atomic_store(&session->makers_due, true);
		gm_session_wake(session);
	}
	*ret_buffer = buffer;
out:
	gm_session_chunks_free(chunks);
	if (status) {
		if (!buffer || buffer_unmap(buffer))
			gm_session_lease_give(session, lease);
		buffer_free(buffer);
	}
	return status;
}

gpumem_status gm_buffer_new_in_host(struct gpumem_session *session, uint32_t device, size_t size,
	const char *tag, const struct gm_buffer_wish *wish, gpumem_buffer **ret_buffer)
{
	struct gpumem_buffer *buffer = calloc(1, sizeof(*buffer));
	if (!buffer)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a buffer");

	gm_lock_init(&buffer->lock, GM_LOCK_BUFFER);
	gm_signals_init(&buffer->signals);
	buffer->session = session;
	buffer->device = device;
	buffer->transport = GM_TRANSPORT_FD;
	buffer->wish = *wish;
	buffer->size = size;
	snprintf(buffer->tag, sizeof(buffer->tag), "%s", tag ? tag : "");

	buffer->bytes = gm_round_up(size, GM_CHUNK_MIN);
	int r = buffer_reserve(buffer);
	gpumem_status status = r < 0 ? buffer_map_failed(buffer, r) : GPUMEM_OK;
	buffer->bytes = 0; /* of the device */
	if (!status)
		status = gm_spill_make(session, device, buffer->addr, buffer->room, size,
			buffer->tag, &buffer->evict.spill);
	if (status) {
		(void)buffer_unmap(buffer);
		buffer_free(buffer);
		return status;
	}

	buffer->evict.state = GM_EVICT_UNDER;
	buffer_enlist(buffer);
	*ret_buffer = buffer;
	return GPUMEM_OK;
}

void gm_buffer_note(gpumem_buffer *buffer, const char *type, const char *precision)
{
	gm_lock(&buffer->session->lock);
	snprintf(buffer->type, sizeof(buffer->type), "%s", type ? type : "");
	snprintf(buffer->precision, sizeof(buffer->precision), "%s", precision ? precision : "");
	buffer_note_row(buffer);
	gm_lock_drop(&buffer->session->lock);
}

void gm_buffer_made_here(gpumem_buffer *buffer)
{
	struct gm_session_pages *pages = &buffer->session->pages;

	if (buffer->row && pages->stacks)
		gm_session_pages_row_stack(
			pages, buffer->row, gm_session_stacks_take(pages->stacks));
}

bool gm_buffer_visible(const struct gpumem_buffer *buffer)
{
	const struct gpumem_session *session = buffer->session;

	return !session->device[buffer->device].map->record || buffer->device >= session->counted;
}

/* Unmaps a buffer that nobody knows any more, and gives it back. */
static void buffer_give_back(struct gpumem_buffer *buffer)
{
	struct gpumem_session *session = buffer->session;

	gm_evict_drop(buffer, true);
	/* A buffer that cannot be unmapped stays leased and charged until the session ends. */
	if (buffer_unmap(buffer) && buffer->lease)
		gm_session_lease_give(session, buffer->lease);
	buffer_free(buffer);
}

/* Whether a destroyed buffer stays for now: a thread moves it, or it is registered memory. To end a registration the
 * driver waits for all launched work, with a lock held that the program needs; while a kernel runs that may wait for the
 * program, nobody may do that. */
static bool buffer_must_stay(struct gpumem_buffer *buffer, enum gm_retired_may may)
{
	struct gpumem_session *session = buffer->session;
	const struct gm_map_ops *map = session->device[buffer->device].map;

	if (may == GM_RETIRED_LAST)
		return false;
	if (map && map->whole && (may == GM_RETIRED_NO_WAIT || gm_signals_kernel_runs()))
		return true;
	gm_lock(&session->lock);
	bool moves = gm_evict_moves(buffer);
	gm_lock_drop(&session->lock);
	return moves;
}

static bool buffer_end(struct gm_retired *item, enum gm_retired_may may)
{
	struct gpumem_buffer *buffer = (struct gpumem_buffer *)item;

	if (buffer_must_stay(buffer, may))
		return false;
	buffer_give_back(buffer);
	return true;
}

void gpumem_buffer_destroy(gpumem_buffer *buffer)
{
	/* In a forked child there is nothing to end: mapping and connection belong to the
	 * parent. */
	if (!buffer || !gm_session_ok(buffer->session))
		return;
	if (gm_buffer_transfer_doom(buffer))
		return;
	buffer_unlist(buffer);
	buffer->retired.end = buffer_end;
	gm_retired_add(buffer->session, &buffer->retired, &buffer->session->device[buffer->device],
		GM_RETIRED_READY);
}

/* The device has finished with a buffer that the program still has in its list. */
static bool buffer_leave_end(struct gm_retired *item, enum gm_retired_may may)
{
	gpumem_buffer_destroy((struct gpumem_buffer *)item);
	return true;
}

void gm_buffer_leave(gpumem_buffer *buffer, bool idle)
{
	struct gpumem_session *session = buffer->session;
	const struct gm_session_device *d = &session->device[buffer->device];

	if (idle || !gm_retired_needed(d)) {
		gpumem_buffer_destroy(buffer);
		return;
	}

	/* The program has freed it, so it is listed no more. */
	gm_session_pages_row_remove(&session->pages, buffer->device, buffer->row);
	buffer->row = 0;
	buffer->retired.end = buffer_leave_end;
	gm_retired_add(session, &buffer->retired, d, GM_RETIRED_EVENT);
}

static bool buffer_aside_end(struct gm_retired *item, enum gm_retired_may may)
{
	struct gpumem_session *session = ((struct gpumem_buffer *)item)->session;

	if (!buffer_end(item, may))
		return false;
	/* The item still counts as retired: a call that finds nothing retired must see this. */
	atomic_fetch_add(&session->buffers->endings, 1);
	return true;
}

void gm_buffer_retire(gpumem_buffer *buffer)
{
	struct gpumem_session *session = buffer->session;

	buffer_unlist(buffer);
	buffer->row = 0;
	buffer->retired.end = buffer_aside_end;
	gm_retired_add(
		session, &buffer->retired, &session->device[buffer->device], GM_RETIRED_IDLE);
}

struct buffer_wanted {
	size_t size;
	const char *tag;
};

/* One that is more than twice as large as needed does not fit. */
static bool buffer_fits(const struct gm_retired *item, const void *ctx)
{
	const struct gpumem_buffer *buffer = (const struct gpumem_buffer *)item;
	const struct buffer_wanted *wanted = ctx;

	return item->end == buffer_aside_end && buffer->bytes >= wanted->size &&
	       buffer->bytes / 2 <= gm_round_up(wanted->size, GM_CHUNK_MIN) &&
	       strcmp(buffer->tag, wanted->tag) == 0;
}

gpumem_buffer *gm_buffer_take_back(struct gpumem_session *session, size_t size, const char *tag)
{
	const struct buffer_wanted wanted = {size, tag ? tag : ""};
	struct gpumem_buffer *buffer =
		(struct gpumem_buffer *)gm_retired_take_back(session, buffer_fits, &wanted);

	if (!buffer)
		return NULL;
	buffer->evict.ended = false;
	buffer->size = size;
	buffer_enlist(buffer);
	gm_buffer_made_here(buffer);
	return buffer;
}

static bool buffer_is_refusal(gpumem_status status)
{
	return status == GPUMEM_E_LIMIT || status == GPUMEM_E_NO_MEMORY ||
	       status == GPUMEM_E_TIMEOUT || status == GPUMEM_E_DEADLOCK;
}

/* Locks ending for a request that was refused. Another thread may hold the lock while the driver waits for all launched work,
 * perhaps for good. A request that may not wait does not wait for that, and one whose time is over waits a moment. Returns
 * whether the lock is held. */
static bool buffer_lock_ending(
	struct gpumem_session *session, gpumem_status refused, uint32_t wait_ms)
{
	struct timespec until;

	if (gm_lock_try(&session->buffers->ending))
		return true;
	if (wait_ms == GPUMEM_WAIT_FOREVER) {
		gm_lock(&session->buffers->ending);
		return true;
	}
	if (refused != GPUMEM_E_TIMEOUT)
		return false;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += BUFFER_MOMENT_MS * (long)GM_NS_PER_MS;
	until.tv_sec += until.tv_nsec / (long)GM_NS_PER_S;
	until.tv_nsec %= (long)GM_NS_PER_S;
	return gm_lock_timed(&session->buffers->ending, &until);
}

bool gm_buffer_end_retired(struct gpumem_session *session, uint32_t device, gpumem_status refused,
	uint64_t endings, uint32_t *wait_ms)
{
	if (device < session->counted || !buffer_is_refusal(refused))
		return false;

	GM_UNCANCELLED;
	if (!buffer_lock_ending(session, refused, *wait_ms))
		return false;
	/* The library's thread may be ending them just now. */
	if (!gm_retired_end_idle(session))
		gm_retired_settle(session, GM_RETIRED_HOST_WAIT);
	bool ended = atomic_load(&session->buffers->endings) != endings;
	gm_lock_drop(&session->buffers->ending);

	if (ended && refused == GPUMEM_E_TIMEOUT)
		*wait_ms = BUFFER_MOMENT_MS;
	return ended;
}

void gm_buffer_drop_all(struct gpumem_session *session)
{
	struct gpumem_buffer *buffer, *tmp;

	DL_FOREACH_SAFE (session->buffers->first, buffer, tmp) {
		buffer_unlist(buffer);
		gm_evict_drop(buffer, false);
		(void)buffer_unmap(buffer);
		buffer_free(buffer);
	}
}

int gm_buffer_list_init(struct gpumem_session *session)
{
	session->buffers = calloc(1, sizeof(*session->buffers));
	if (!session->buffers)
		return -ENOMEM;
	gm_lock_init(&session->buffers->ending, GM_LOCK_ENDING);
	return 0;
}

void gm_buffer_list_deinit(struct gpumem_session *session)
{
	if (!session->buffers)
		return;
	gm_lock_deinit(&session->buffers->ending);
	free(session->buffers);
	session->buffers = NULL;
}
