/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Managed memory. This file promises that the daemon has charged memory before the driver is asked to
 * make it, and that the charge ends after the memory has been freed. Freeing waits for the device, so
 * the library's thread does it, once the work is done that was launched before, and while no kernel has an end
 * of a ring.
 */
#include "client/memory/alloc_managed.h"

#include <errno.h>
#include <stdlib.h>

#include <utlist.h>

#include "client/buffer/buffer.h"
#include "client/memory/alloc_lists.h"
#include "client/device/retired.h"
#include "client/device/map_chunks.h"
#include "client/map/map.h"
#include "client/grant/session_declared.h"
#include "common/arith.h"
#include "common/cancel.h"

struct gpumem_managed {
	struct gm_retired retired; /* first: see managed_end() */
	struct gpumem_session *session;
	uint32_t device;
	void *addr;
	uint64_t id;      /* by which its backend knows it again */
	size_t bytes;     /* that were asked for */
	uint64_t charged; /* and that the memory has: whole chunks of the smallest size */
	struct gpumem_managed *prev, *next;
};

/* ---- the beginning */

static gpumem_status alloc_managed_fail(
	const struct gm_session_device *d, const char *what, int error)
{
	const char *why = gm_map_chunks_error(d, error);

	if (error == -EOPNOTSUPP)
		return gm_error(
			GPUMEM_E_UNSUPPORTED, "device %u cannot %s: %s", d->info.number, what, why);
	if (error == -ENOBUFS || error == -ENOMEM)
		return gm_error(GPUMEM_E_NO_MEMORY, "device %u could not %s: %s", d->info.number,
			what, why);
	if (error == -EINVAL)
		return gm_error(
			GPUMEM_E_INVALID, "device %u refused to %s: %s", d->info.number, what, why);
	return gm_error(GPUMEM_E_SYSTEM, "device %u could not %s: %s", d->info.number, what, why);
}

/* The memory of something that is charged already. */
static gpumem_status alloc_managed_make(struct gpumem_managed *managed, bool attach_host)
{
	const struct gm_session_device *d = &managed->session->device[managed->device];

	if (!d->map->managed_make)
		return alloc_managed_fail(d, "make managed memory", -EOPNOTSUPP);
	int r = d->map->managed_make(
		d->backend, managed->charged, attach_host, &managed->addr, &managed->id);
	return r < 0 ? alloc_managed_fail(d, "make managed memory", r) : GPUMEM_OK;
}

static gpumem_status alloc_managed_new(
	struct gpumem_session *session, uint32_t device, size_t bytes, struct gpumem_managed **ret)
{
	struct gpumem_managed *managed = calloc(1, sizeof(*managed));
	if (!managed)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for managed memory");
	managed->session = session;
	managed->device = device;
	managed->bytes = bytes;
	managed->charged = gm_round_up((uint64_t)bytes, GM_CHUNK_MIN);
	*ret = managed;
	return GPUMEM_OK;
}

gpumem_status gpumem_managed_create(gpumem_session *session, uint32_t name, size_t bytes,
	const gpumem_managed_options *options, gpumem_managed **ret_managed)
{
	gpumem_managed_options given = GPUMEM_MANAGED_OPTIONS_INIT;
	struct gpumem_managed *managed = NULL;
	uint32_t device;
	GM_UNCANCELLED;

	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!ret_managed)
		return gm_error(GPUMEM_E_INVALID, "ret_managed must not be NULL");
	if (name == GPUMEM_DEVICE_HOST)
		return gm_error(GPUMEM_E_INVALID,
			"managed memory belongs to a device: name one, not host memory");
	if (!gm_session_find_device(session, name, &device))
		return gm_session_no_device(session, name);
	if (bytes == 0 || bytes > GM_LEASE_BYTES_MAX)
		return gm_error(GPUMEM_E_INVALID, "bytes must be from 1 to %llu, and is %llu",
			(unsigned long long)GM_LEASE_BYTES_MAX, (unsigned long long)bytes);
	gpumem_status status = gm_sized_in(&given, sizeof(given), options);
	if (!status)
		status = gm_map_chunks_open(session, device);
	if (!status)
		status = alloc_managed_new(session, device, bytes, &managed);
	if (status)
		return status;

	gm_retired_settle(session, GM_RETIRED_NO_WAIT);
	status = gm_session_declared_add(session, device, managed->charged, given.wait_ms);
	if (!status) {
		status = alloc_managed_make(managed, given.attach_host != 0);
		if (status)
			(void)gm_session_declared_take(session, device, managed->charged);
	}
	if (status) {
		free(managed);
		return status;
	}

	gm_lock(&session->lock);
	DL_APPEND(session->allocated->managed, managed);
	gm_lock_drop(&session->lock);
	*ret_managed = managed;
	return GPUMEM_OK;
}

/* ---- its use */

void *gpumem_managed_ptr(const gpumem_managed *managed)
{
	return managed ? managed->addr : NULL;
}

size_t gpumem_managed_size(const gpumem_managed *managed)
{
	return managed ? managed->bytes : 0;
}

uint32_t gpumem_managed_device(const gpumem_managed *managed)
{
	return managed ? gm_session_device_name(managed->session, managed->device) : 0;
}

static gpumem_status alloc_managed_check(
	const gpumem_managed *managed, size_t offset, size_t bytes, gpumem_managed_place place)
{
	if (!managed)
		return gm_error(GPUMEM_E_INVALID, "managed must not be NULL");
	if (!gm_session_ok(managed->session))
		return gm_session_refused(managed->session);
	if (offset > managed->bytes || bytes > managed->bytes - offset)
		return gm_error(GPUMEM_E_INVALID,
			"%llu bytes from %llu on are not inside of managed memory of %llu bytes",
			(unsigned long long)bytes, (unsigned long long)offset,
			(unsigned long long)managed->bytes);
	if (place != GPUMEM_MANAGED_ON_DEVICE && place != GPUMEM_MANAGED_ON_HOST)
		return gm_error(GPUMEM_E_INVALID, "there is no place %d", (int)place);
	return GPUMEM_OK;
}

gpumem_status gpumem_managed_prefetch(gpumem_managed *managed, size_t offset, size_t bytes,
	gpumem_managed_place place, gpumem_stream stream)
{
	gpumem_status status = alloc_managed_check(managed, offset, bytes, place);
	if (status)
		return status;
	if (stream == GPUMEM_STREAM_ANY || stream == GPUMEM_STREAM_DONE)
		return gm_error(
			GPUMEM_E_INVALID, "a prefetch needs a stream: NULL is the default stream");
	if (bytes == 0)
		return GPUMEM_OK;

	const struct gm_session_device *d = &managed->session->device[managed->device];
	int r = d->map->managed_prefetch(d->backend, (char *)managed->addr + offset, bytes,
		place == GPUMEM_MANAGED_ON_HOST, stream);
	return r < 0 ? alloc_managed_fail(d, "prefetch managed memory", r) : GPUMEM_OK;
}

gpumem_status gpumem_managed_advise(gpumem_managed *managed, size_t offset, size_t bytes,
	gpumem_managed_advice advice, gpumem_managed_place place)
{
	gpumem_status status = alloc_managed_check(managed, offset, bytes, place);
	if (status)
		return status;
	if (advice < GPUMEM_MANAGED_READ_MOSTLY || advice > GPUMEM_MANAGED_UNSET_ACCESSED_BY)
		return gm_error(GPUMEM_E_INVALID, "there is no advice %d", (int)advice);
	if (bytes == 0)
		return GPUMEM_OK;

	const struct gm_session_device *d = &managed->session->device[managed->device];
	int r = d->map->managed_advise(d->backend, (char *)managed->addr + offset, bytes,
		(int)advice, place == GPUMEM_MANAGED_ON_HOST);
	return r < 0 ? alloc_managed_fail(d, "take advice about managed memory", r) : GPUMEM_OK;
}

/* ---- the end */

/* If the driver cannot free it, it stays charged until the session ends. */
static void alloc_managed_free(struct gpumem_managed *managed)
{
	const struct gm_session_device *d = &managed->session->device[managed->device];

	if (d->map->managed_free(d->backend, managed->addr, managed->charged, managed->id) == 0)
		(void)gm_session_declared_take(managed->session, managed->device, managed->charged);
	free(managed);
}

static bool alloc_managed_end(struct gm_retired *item, enum gm_retired_may may)
{
	if (may < GM_RETIRED_THREAD || (may < GM_RETIRED_LAST && gm_signals_kernel_runs()))
		return false;
	alloc_managed_free((struct gpumem_managed *)item);
	return true;
}

void gpumem_managed_destroy(gpumem_managed *managed)
{
	GM_UNCANCELLED;

	if (!managed)
		return;
	struct gpumem_session *session = managed->session;
	if (!gm_session_ok(session)) {
		(void)gm_session_refused(session);
		return;
	}

	const struct gm_session_device *d = &session->device[managed->device];
	gm_lock(&session->lock);
	DL_DELETE(session->allocated->managed, managed);
	gm_lock_drop(&session->lock);
	if (!gm_retired_needed(d)) {
		alloc_managed_free(managed);
		return;
	}

	managed->retired.end = alloc_managed_end;
	gm_retired_add(session, &managed->retired, d, GM_RETIRED_EVENT);
}

void gm_alloc_managed_drop_all(struct gpumem_session *session)
{
	struct gpumem_managed *managed, *tmp;

	DL_FOREACH_SAFE (session->allocated->managed, managed, tmp)
		alloc_managed_free(managed);
	session->allocated->managed = NULL;
}

/* ---- declarations */

static gpumem_status alloc_managed_find_device(
	gpumem_session *session, uint32_t name, uint32_t *ret_device)
{
	if (!gm_session_ok(session))
		return gm_session_refused(session);
	return gm_session_find_device(session, name, ret_device)
		       ? GPUMEM_OK
		       : gm_session_no_device(session, name);
}

gpumem_status gpumem_declare(
	gpumem_session *session, uint32_t name, uint64_t bytes, uint32_t wait_ms)
{
	uint32_t device = 0;
	gpumem_status status = alloc_managed_find_device(session, name, &device);
	if (status)
		return status;
	if (bytes == 0 || bytes > GM_LEASE_BYTES_MAX)
		return gm_error(GPUMEM_E_INVALID, "bytes must be from 1 to %llu, and is %llu",
			(unsigned long long)GM_LEASE_BYTES_MAX, (unsigned long long)bytes);
	gm_retired_settle(session, GM_RETIRED_NO_WAIT);
	return gm_session_declared_add(session, device, bytes, wait_ms);
}

gpumem_status gpumem_undeclare(gpumem_session *session, uint32_t name, uint64_t bytes)
{
	uint32_t device = 0;
	gpumem_status status = alloc_managed_find_device(session, name, &device);
	if (status)
		return status;
	if (!gm_session_declared_take(session, device, bytes))
		return gm_error(GPUMEM_E_INVALID,
			"this session has declared %llu bytes on device %u, not %llu",
			(unsigned long long)gm_session_declared_sum(session, device), name,
			(unsigned long long)bytes);
	return GPUMEM_OK;
}

gpumem_status gpumem_declared(gpumem_session *session, uint32_t name, uint64_t *ret_bytes)
{
	uint32_t device = 0;
	gpumem_status status = alloc_managed_find_device(session, name, &device);
	if (status)
		return status;
	if (!ret_bytes)
		return gm_error(GPUMEM_E_INVALID, "ret_bytes must not be NULL");
	*ret_bytes = gm_session_declared_sum(session, device);
	return GPUMEM_OK;
}
