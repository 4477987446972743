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
#include <utlist.h>

#include "client/buffer/buffer_tail.h"
#include "client/buffer/buffer_transfer.h"
#include "client/buffer/evict.h"
#include "client/device/elsewhere.h"
#include "client/device/mapping.h"
#include "client/device/spill.h"
#include "client/device/use.h"
#include "client/map/map.h"
#include "client/session/session_stacks.h"
#include "common/arith.h"
#include "common/cancel.h"
#include "common/cleanup.h"
#include "common/status_table.h"
#include "common/units.h"

/* The flags that let the library move a buffer. */
#define EVICTABLE ((uint32_t)(GPUMEM_BUFFER_EVICTABLE | GPUMEM_BUFFER_CPU_OK))

gpumem_status gm_buffer_tag_check(const char *tag)
{
	if (tag && !gm_name_ok(tag))
		return gm_error(GPUMEM_E_INVALID,
			"a tag must be printable UTF-8 of at most %d bytes", GM_LIMIT_NAME_BYTES);
	return GPUMEM_OK;
}

static gpumem_status buffer_kind_check(const char *what, const char *text)
{
	if (text && (!gm_name_ok(text) || strlen(text) > GM_LIMIT_KIND_BYTES))
		return gm_error(GPUMEM_E_INVALID, "%s must be printable UTF-8 of at most %d bytes",
			what, GM_LIMIT_KIND_BYTES);
	return GPUMEM_OK;
}

gpumem_status gm_buffer_kinds_check(const char *type, const char *precision)
{
	gpumem_status status = buffer_kind_check("type", type);
	return status ? status : buffer_kind_check("precision", precision);
}

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
			grows ? gm_max(buffer_room_for(reach), buffer->bytes) : buffer->bytes;
		/* When it comes back, its chunks may be others, and more of them. */
		if (buffer->wish.evictable)
			room = gm_max(room, buffer_room_for(buffer->bytes));

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
	return gm_mapping_failed(&buffer->session->device[buffer->device], r, "map", buffer->bytes);
}

/* ---- making and ending */

static void buffer_enlist(struct gpumem_buffer *buffer)
{
	struct gpumem_session *session = buffer->session;
	uint64_t bytes;

	pthread_mutex_lock(&session->lock);
	uint32_t device = gm_evict_place(buffer, &bytes);
	struct gm_session_device *d = &session->device[device];
	DL_APPEND(session->list, buffer);
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
	pthread_mutex_unlock(&session->lock);
	(void)gm_use_publish(session, device);
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

	pthread_mutex_lock(&session->lock);
	session->device[buffer->device].buffer_in_use += size - buffer->size;
	buffer->size = size;
	buffer->growth.used = gm_min(buffer->growth.used, size);
	gm_buffer_relist(buffer);
	pthread_mutex_unlock(&session->lock);
	(void)gm_use_publish(session, buffer->device);
}

static void buffer_unlist(struct gpumem_buffer *buffer)
{
	struct gpumem_session *session = buffer->session;
	uint64_t bytes;

	pthread_mutex_lock(&session->lock);
	uint32_t device = gm_evict_place(buffer, &bytes);
	struct gm_session_device *d = &session->device[device];
	gm_evict_end(buffer);
	DL_DELETE(session->list, buffer);
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
	pthread_mutex_unlock(&session->lock);

	gm_session_pages_row_remove(&session->pages, buffer->device, buffer->row);
	(void)gm_use_publish(session, device);
	if (device != buffer->device)
		(void)gm_use_publish(session, buffer->device);
}

static void buffer_free(struct gpumem_buffer *buffer)
{
	if (!buffer)
		return;
	gm_buffer_tail_forget(buffer);
	gm_signals_deinit(&buffer->signals);
	gm_session_chunks_free(buffer->parts);
	pthread_mutex_destroy(&buffer->lock);
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

	pthread_mutex_init(&buffer->lock, NULL);
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

	status = gm_mapping_open(session, lease->device);
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

	pthread_mutex_init(&buffer->lock, NULL);
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

static gpumem_status buffer_check_evictable(
	struct gpumem_session *session, uint32_t device, const gpumem_buffer_options *options)
{
	if (options->flags & GPUMEM_BUFFER_SIGNALS)
		return gm_error(GPUMEM_E_INVALID,
			"a buffer with signals cannot be evictable: others wait for them where they are");
	if (options->transport == GPUMEM_TRANSPORT_IPC)
		return gm_error(GPUMEM_E_INVALID,
			"an evictable buffer cannot be on the ipc transport, which chooses the address "
			"itself");
	return gm_spill_check(session, device);
}

/* Checks what is asked for, and prepares the device for mapping. */
static gpumem_status buffer_prepare(struct gpumem_session *session, uint32_t device, size_t size,
	const gpumem_buffer_options *options)
{
	if (!size || size > GM_LEASE_BYTES_MAX)
		return gm_error(GPUMEM_E_INVALID,
			"a buffer has 1 to %llu bytes; %zu were asked for",
			(unsigned long long)GM_LEASE_BYTES_MAX, size);
	gpumem_status status = gm_buffer_tag_check(options->tag);
	if (!status)
		status = gm_buffer_kinds_check(options->type, options->precision);
	if (status)
		return status;
	if (options->transport != GPUMEM_TRANSPORT_AUTO &&
		options->transport != GPUMEM_TRANSPORT_FD &&
		options->transport != GPUMEM_TRANSPORT_IPC)
		return gm_error(
			GPUMEM_E_INVALID, "there is no transport %d", (int)options->transport);
	if (options->flags &
		~(uint32_t)(GPUMEM_BUFFER_FOR_OTHERS | GPUMEM_BUFFER_SIGNALS | EVICTABLE))
		return gm_error(GPUMEM_E_INVALID, "flags 0x%x are not known", options->flags);
	if (options->max_size &&
		(options->max_size < size || options->max_size > GM_LEASE_BYTES_MAX))
		return gm_error(GPUMEM_E_INVALID,
			"max_size is 0, or from size to %llu; %zu was given for a size of %zu",
			(unsigned long long)GM_LEASE_BYTES_MAX, options->max_size, size);
	if (options->max_size && options->flags & GPUMEM_BUFFER_SIGNALS)
		return gm_error(GPUMEM_E_INVALID,
			"a buffer with signals cannot grow, so max_size must be 0");
	if (options->flags & EVICTABLE)
		status = buffer_check_evictable(session, device, options);
	if (!status && options->flags & GPUMEM_BUFFER_SIGNALS)
		status = gm_signals_check(session, device, options->transport);
	return status ? status : gm_mapping_open(session, device);
}

gpumem_status gm_buffer_check(struct gpumem_session *session, uint32_t name, size_t size,
	const gpumem_buffer_options *options, gpumem_buffer_options *ret_given,
	uint32_t *ret_device)
{
	gpumem_buffer_options given = GPUMEM_BUFFER_OPTIONS_INIT;

	if (!gm_session_find_device(session, name, ret_device))
		return gm_session_no_device(session, name);
	gpumem_status status = gm_sized_in(&given, sizeof(given), options);
	if (status)
		return status;
	*ret_given = given;
	return buffer_prepare(session, *ret_device, size, &given);
}

gpumem_status gm_buffer_of_lease(struct gpumem_session *session, struct gm_session_lease *lease,
	struct gm_session_chunk *chunks, size_t size, const char *tag, enum gm_buffer_kind kind,
	const struct gm_buffer_wish *wish, gpumem_buffer **ret_buffer)
{
	/* The size that the program asked for, not the one that the daemon repeated. */
	lease->user_bytes = size;
	snprintf(lease->tag, sizeof(lease->tag), "%s", tag ? tag : "");
	return gm_buffer_new(session, lease, chunks, kind, wish, ret_buffer);
}

struct gm_buffer_wish gm_buffer_wish_of(const gpumem_buffer_options *options)
{
	return (struct gm_buffer_wish){
		.max_size = options->max_size,
		.wait_ms = options->wait_ms,
		.for_others = options->flags & GPUMEM_BUFFER_FOR_OTHERS,
		.signals = options->flags & GPUMEM_BUFFER_SIGNALS,
		.evictable = options->flags & EVICTABLE,
		.cpu_ok = options->flags & GPUMEM_BUFFER_CPU_OK,
	};
}

enum gm_transport gm_buffer_transport_of(const gpumem_buffer_options *options)
{
	/* Only the fd transport maps memory at addresses of the library's choice. */
	return options->flags & EVICTABLE ? GM_TRANSPORT_FD : (enum gm_transport)options->transport;
}

void gm_buffer_note(gpumem_buffer *buffer, const char *type, const char *precision)
{
	pthread_mutex_lock(&buffer->session->lock);
	snprintf(buffer->type, sizeof(buffer->type), "%s", type ? type : "");
	snprintf(buffer->precision, sizeof(buffer->precision), "%s", precision ? precision : "");
	buffer_note_row(buffer);
	pthread_mutex_unlock(&buffer->session->lock);
}

void gm_buffer_made_here(gpumem_buffer *buffer)
{
	struct gm_session_pages *pages = &buffer->session->pages;

	if (buffer->row && pages->stacks)
		gm_session_pages_row_stack(
			pages, buffer->row, gm_session_stacks_take(pages->stacks));
}

/* Asks for the memory of a buffer that may be had. */
static gpumem_status buffer_take(struct gpumem_session *session, uint32_t device, size_t size,
	const gpumem_buffer_options *options, enum gm_buffer_kind kind, gpumem_buffer **ret_buffer)
{
	const struct gm_buffer_wish wish = gm_buffer_wish_of(options);
	struct gm_elsewhere elsewhere = {.session = session, .device = device};
	uint64_t ms = options->wait_ms;
	struct gm_session_lease *lease;
	struct gm_session_chunk *chunks;

	gm_buffer_settle(session);
	if (ms == GPUMEM_WAIT_FOREVER)
		ms = GM_LEASE_WAIT_MOST;
	else if (!ms && wish.cpu_ok)
		ms = GM_LEASE_NO_WAIT;
	struct gm_lease_wait wait = gm_elsewhere_wait(&elsewhere, ms);
	const struct gm_lease_what what = {
		.device = device,
		.bytes = size,
		.transport = gm_buffer_transport_of(options),
		.tag = options->tag,
		.for_others = wish.for_others,
		.signals = wish.signals,
	};
	gpumem_status status = gm_session_lease_take(session, &what, &wait, &lease, &chunks);
	return status ? status
		      : gm_buffer_of_lease(session, lease, chunks, size, options->tag, kind, &wish,
				ret_buffer);
}

gpumem_status gm_buffer_make(struct gpumem_session *session, uint32_t device, size_t size,
	const gpumem_buffer_options *options, enum gm_buffer_kind kind, gpumem_buffer **ret_buffer)
{
	gpumem_status status = buffer_prepare(session, device, size, options);
	if (!status)
		status = buffer_take(session, device, size, options, kind, ret_buffer);
	if (!status) {
		gm_buffer_note(*ret_buffer, options->type, options->precision);
		gm_buffer_made_here(*ret_buffer);
	}
	return status;
}

bool gm_buffer_visible(const struct gpumem_buffer *buffer)
{
	const struct gpumem_session *session = buffer->session;

	return !session->device[buffer->device].map->record || buffer->device >= session->counted;
}

void gpumem_buffer_destroy(gpumem_buffer *buffer)
{
	/* In a forked child there is nothing to end: mapping and connection belong to the
	 * parent. */
	if (!buffer || !gm_session_ok(buffer->session))
		return;
	if (gm_buffer_transfer_doom(buffer))
		return;
	struct gpumem_session *session = buffer->session;
	buffer_unlist(buffer);
	atomic_fetch_add(&session->unsettled, 1);
	pthread_mutex_lock(&session->lock);
	LL_PREPEND(session->ended, buffer);
	pthread_mutex_unlock(&session->lock);
	gm_session_wake(session);
}

static void buffer_left(struct gm_leaver *leaver)
{
	gpumem_buffer_destroy((struct gpumem_buffer *)leaver);
}

void gm_buffer_leave(gpumem_buffer *buffer, bool idle)
{
	struct gpumem_session *session = buffer->session;
	const struct gm_session_device *d = &session->device[buffer->device];

	if (idle || !gm_leaving_needed(d)) {
		gpumem_buffer_destroy(buffer);
		return;
	}

	/* The program has freed it, so it is listed no more. */
	gm_session_pages_row_remove(&session->pages, buffer->device, buffer->row);
	buffer->row = 0;
	/* So that gm_buffer_settle() looks after it. */
	atomic_fetch_add(&session->unsettled, 1);
	buffer->leaver.left = buffer_left;
	gm_leaving_add(session, &buffer->leaver, d);
}

static void buffer_all_left(struct gpumem_session *session, struct gm_leaver *list)
{
	struct gm_leaver *leaver, *tmp;

	LL_FOREACH_SAFE (list, leaver, tmp) {
		leaver->left(leaver);
		atomic_fetch_sub(&session->unsettled, 1);
	}
}

/* Whether a thread moves the destroyed buffer; then it stays in the list of those. */
static bool buffer_is_moving(struct gpumem_buffer *buffer)
{
	struct gpumem_session *session = buffer->session;

	pthread_mutex_lock(&session->lock);
	bool moves = gm_evict_moves(buffer);
	if (moves)
		LL_PREPEND(session->ended, buffer);
	pthread_mutex_unlock(&session->lock);
	return moves;
}

void gm_buffer_settle(struct gpumem_session *session)
{
	struct gpumem_buffer *list, *buffer, *tmp;

	if (!atomic_load(&session->unsettled))
		return;
	pthread_mutex_lock(&session->settling);
	buffer_all_left(session, gm_leaving_take(session));
	pthread_mutex_lock(&session->lock);
	list = session->ended;
	session->ended = NULL;
	pthread_mutex_unlock(&session->lock);

	LL_FOREACH_SAFE (list, buffer, tmp) {
		if (buffer_is_moving(buffer))
			continue;
		gm_evict_drop(buffer, true);
		/* A buffer that cannot be unmapped stays leased and charged until the session
		 * ends. */
		if (buffer_unmap(buffer) && buffer->lease)
			gm_session_lease_give(session, buffer->lease);
		buffer_free(buffer);
		atomic_fetch_sub(&session->unsettled, 1);
	}
	pthread_mutex_unlock(&session->settling);
}

void gm_buffer_drop_all(struct gpumem_session *session)
{
	buffer_all_left(session, gm_leaving_await(session));
	gm_buffer_settle(session);
	/* The buffers' content in host memory leaves after them. */
	buffer_all_left(session, gm_leaving_await(session));
	struct gpumem_buffer *buffer, *tmp;
	DL_FOREACH_SAFE (session->list, buffer, tmp) {
		buffer_unlist(buffer);
		gm_evict_drop(buffer, false);
		(void)buffer_unmap(buffer);
		buffer_free(buffer);
	}
}

/* ---- properties */

void *gpumem_buffer_ptr(const gpumem_buffer *buffer)
{
	return buffer ? buffer->addr : NULL;
}

size_t gpumem_buffer_size(const gpumem_buffer *buffer)
{
	return buffer ? buffer->size : 0;
}

size_t gpumem_buffer_max_size(const gpumem_buffer *buffer)
{
	if (!buffer)
		return 0;
	bool fixed = buffer->opened || buffer->wish.signals;
	return fixed ? buffer->size : gm_max(buffer->reach, buffer->size);
}

uint32_t gpumem_buffer_device(const gpumem_buffer *buffer)
{
	return buffer ? gm_session_device_name(buffer->session, buffer->device) : 0;
}

gpumem_transport gpumem_buffer_transport(const gpumem_buffer *buffer)
{
	return buffer ? (gpumem_transport)buffer->transport : GPUMEM_TRANSPORT_AUTO;
}

gpumem_status gpumem_buffer_ipc_handle(
	const gpumem_buffer *buffer, unsigned char ret_handle[GPUMEM_IPC_HANDLE_BYTES])
{
	_Static_assert(GPUMEM_IPC_HANDLE_BYTES == GM_IPC_HANDLE_BYTES, "one size of handle");
	if (!buffer || !ret_handle)
		return gm_error(
			GPUMEM_E_INVALID, "%s must not be NULL", buffer ? "ret_handle" : "buffer");
	if (!gm_session_ok(buffer->session))
		return gm_session_refused(buffer->session);
	if (buffer->transport != GM_TRANSPORT_IPC)
		return gm_error(GPUMEM_E_UNSUPPORTED,
			"this buffer is on the fd transport and has no CUDA IPC handle: create it "
			"with transport GPUMEM_TRANSPORT_IPC");

	/* A move changes the lease and the handle. */
	pthread_mutex_t *lock = &((gpumem_buffer *)buffer)->lock;
	pthread_mutex_lock(lock);
	bool known = buffer->lease->held.epoch == gm_session_epoch(buffer->session);
	if (known)
		memcpy(ret_handle, buffer->ipc, GPUMEM_IPC_HANDLE_BYTES);
	pthread_mutex_unlock(lock);
	if (!known)
		return gm_error(GPUMEM_E_DISCONNECTED,
			"gpumemd was restarted, so the CUDA IPC handle of this buffer is no longer "
			"valid: the buffer keeps working here, but no other process can open it");
	return GPUMEM_OK;
}

uint64_t gpumem_buffer_version(const gpumem_buffer *buffer)
{
	return buffer ? atomic_load(&buffer->version) : 0;
}

const char *gpumem_buffer_tag(const gpumem_buffer *buffer)
{
	return buffer ? buffer->tag : "";
}

gpumem_status gpumem_buffer_set_tag(gpumem_buffer *buffer, const char *tag)
{
	if (!buffer)
		return gm_error(GPUMEM_E_INVALID, "buffer must not be NULL");
	if (!gm_session_ok(buffer->session))
		return gm_session_refused(buffer->session);
	gpumem_status status = gm_buffer_tag_check(tag);
	if (status)
		return status;
	pthread_mutex_lock(&buffer->session->lock);
	snprintf(buffer->tag, sizeof(buffer->tag), "%s", tag ? tag : "");
	gm_session_pages_row_tag(&buffer->session->pages, buffer->row, buffer->tag);
	pthread_mutex_unlock(&buffer->session->lock);
	return GPUMEM_OK;
}

gpumem_status gpumem_buffer_touch(gpumem_buffer *buffer)
{
	if (!buffer)
		return gm_error(GPUMEM_E_INVALID, "buffer must not be NULL");
	if (!gm_session_ok(buffer->session))
		return gm_session_refused(buffer->session);
	gm_session_pages_row_touch(&buffer->session->pages, buffer->row);
	return GPUMEM_OK;
}
