/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See spill.h. This file promises that host memory goes back only after it was unmapped, and that a copy
 * which fails leaves its source as it was. It must never unmap or give back device memory.
 *
 * Host memory that the driver made is mapped like memory of the device, for the device alone: that is
 * three times as fast as letting the CPU reach it, too. Memfds must be registered with the driver, at
 * addresses of the CPU's, so they cannot lie under a range of a GPU.
 */
#include "client/device/spill.h"
#include "client/grant/session_ask.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "client/device/map_chunks.h"
#include "client/map/map.h"
#include "common/cleanup.h"
#include "common/status_table.h"

static struct gm_session_device *spill_device(const struct gm_spill *spill)
{
	return &spill->session->device[spill->device];
}

static struct gm_session_device *spill_host(struct gpumem_session *session)
{
	return &session->device[session->counted];
}

/* The device through which the host memory is mapped at its place. */
static struct gm_session_device *spill_mapper(const struct gm_spill *spill)
{
	return spill->direct ? spill_device(spill) : spill_host(spill->session);
}

static gpumem_status spill_not_direct(void)
{
	return gm_error(GPUMEM_E_UNSUPPORTED,
		"registered host memory cannot lie at addresses of a GPU (host_memory = memfd)");
}

gpumem_status gm_spill_check(struct gpumem_session *session, uint32_t device)
{
	const struct gm_session_device *d = &session->device[device];

	if (device >= session->counted)
		return gm_error(GPUMEM_E_UNSUPPORTED,
			"this is host memory already, so it cannot be moved there");
	if (session->counted == session->devices)
		return gm_error(GPUMEM_E_UNSUPPORTED,
			"gpumemd hands out no pinned host memory: set host_limit in gpumemd.conf");

	gpumem_status status = gm_map_chunks_open(session, device);
	if (!status)
		status = gm_map_chunks_open(session, session->counted);
	if (!status && !d->map->transfer)
		status = gm_error(GPUMEM_E_UNSUPPORTED,
			"content of device %u cannot be moved to host memory", d->info.number);
	return status;
}

/* Leases host memory, which is not mapped yet. */
static gpumem_status spill_lease(struct gpumem_session *session, uint32_t device, uint64_t bytes,
	const char *tag, bool fallback, const struct gm_wait *wait, struct gm_spill **ret_spill)
{
	struct gm_session_device *d = &session->device[device];
	const struct gm_lease_what what = {
		.device = session->counted,
		.bytes = bytes,
		.transport = GM_TRANSPORT_FD,
		.tag = tag,
		.fallback = fallback,
	};
	struct gm_spill *spill = calloc(1, sizeof(*spill));

	if (!spill)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory to move content");
	spill->session = session;
	spill->device = device;
	spill->bytes = bytes;
	spill->direct = !strcmp(d->info.backend, spill_host(session)->info.backend);

	gpumem_status status =
		gm_session_lease_take(session, &what, wait, &spill->lease, &spill->chunks);
	if (status)
		free(spill);
	else
		*ret_spill = spill;
	return status;
}

/* Gives the host memory back, unless it could not be unmapped. */
static void spill_free(struct gm_spill *spill, bool stuck)
{
	/* The daemon pools only what nobody has open. */
	gm_session_chunks_free(spill->chunks);
	if (stuck)
		atomic_store(&spill->session->kept, true);
	else if (spill->lease)
		gm_session_lease_give(spill->session, spill->lease);
	free(spill);
}

/* Frees a spill that could not be used. Keeps the sentence. */
static gpumem_status spill_fail(struct gm_spill *spill, gpumem_status status, bool stuck)
{
	char text[GM_ERROR_BYTES];

	snprintf(text, sizeof(text), "%s", gm_error_text());
	spill_free(spill, stuck);
	return gm_error(status, "%s", text);
}

/* Maps the host memory at its place or, if under is not NULL, under that range. On error, *ret_stuck: it
 * is mapped all the same. */
static gpumem_status spill_map(struct gm_spill *spill, void *under, uint64_t room, bool *ret_stuck)
{
	const struct gm_session_device *d = spill_mapper(spill);
	/* Through this one, the CPU can use it, too. */
	const struct gm_session_device *through = under ? spill_host(spill->session) : d;
	const struct gm_session_chunk *chunk;
	uint64_t bytes = 0;

	LL_FOREACH (spill->chunks, chunk)
		bytes += chunk->bytes;
	if (bytes < spill->bytes)
		return gm_error(GPUMEM_E_PROTOCOL,
			"gpumemd granted %llu bytes of host memory instead of %llu",
			(unsigned long long)bytes, (unsigned long long)spill->bytes);

	int r = d->map->reserve(d->backend, bytes, &spill->place);
	if (r < 0)
		return gm_map_chunks_failed(d, r, "reserve addresses for", bytes);
	r = gm_map_chunks_add_chunks(through, under ? under : spill->place, under ? room : bytes,
		spill->chunks, &spill->mapped, ret_stuck);
	if (r == 0) {
		spill->under = under;
		return GPUMEM_OK;
	}
	gpumem_status status = gm_map_chunks_failed(through, r, "map pinned host memory:", bytes);
	if (under || !*ret_stuck)
		d->map->unreserve(d->backend, spill->place, bytes);
	return status;
}

/* Unmaps the host memory, wherever it is. Returns false if it is still mapped. */
static bool spill_unmap(struct gm_spill *spill)
{
	const struct gm_session_device *d = spill_mapper(spill);
	void *at = spill->under ? spill->under : spill->place;

	if (d->map->unmap(d->backend, at, spill->mapped) < 0)
		return false;
	d->map->unreserve(d->backend, spill->place, spill->mapped);
	return true;
}

/* Copies the parts to the host memory, one after the other. */
static gpumem_status spill_copy_out(
	const struct gm_spill *spill, const struct gm_spill_part *parts, size_t n)
{
	const struct gm_session_device *d = spill_device(spill);
	uint8_t *to = spill->place;

	for (size_t i = 0; i < n; i++) {
		int r = d->map->transfer(d->backend, to, parts[i].addr, parts[i].bytes);
		if (r < 0)
			return gm_map_chunks_failed(d, r, "copy to host memory", parts[i].bytes);
		to += parts[i].bytes;
	}
	return GPUMEM_OK;
}

gpumem_status gm_spill_out(struct gpumem_session *session, uint32_t device, const void *addr,
	uint64_t bytes, const char *tag, const struct gm_wait *wait, struct gm_spill **ret_spill)
{
	const struct gm_spill_part all = {(void *)addr, bytes};

	return gm_spill_out_parts(session, device, &all, 1, tag, wait, ret_spill);
}

gpumem_status gm_spill_out_parts(struct gpumem_session *session, uint32_t device,
	const struct gm_spill_part *parts, size_t n, const char *tag, const struct gm_wait *wait,
	struct gm_spill **ret_spill)
{
	gpumem_status status = gm_spill_check(session, device);
	struct gm_spill *spill;
	bool stuck = false;
	uint64_t bytes = 0;

	for (size_t i = 0; i < n; i++)
		bytes += parts[i].bytes;
	if (!status)
		status = spill_lease(session, device, bytes, tag, false, wait, &spill);
	if (status)
		return status;

	status = spill_map(spill, NULL, 0, &stuck);
	if (status)
		return spill_fail(spill, status, stuck);
	status = spill_copy_out(spill, parts, n);
	if (status)
		return spill_fail(spill, status, !spill_unmap(spill));
	*ret_spill = spill;
	return GPUMEM_OK;
}

gpumem_status gm_spill_make(struct gpumem_session *session, uint32_t device, void *addr,
	uint64_t room, uint64_t bytes, const char *tag, struct gm_spill **ret_spill)
{
	const struct gm_wait wait = {.mode = GM_WAIT_FOR_DAEMON};
	gpumem_status status = gm_spill_check(session, device);
	struct gm_spill *spill;
	bool stuck = false;

	if (!status)
		status = spill_lease(session, device, bytes, tag, true, &wait, &spill);
	if (status)
		return status;

	spill->cpu = true;
	status = spill->direct ? spill_map(spill, addr, room, &stuck) : spill_not_direct();
	if (status)
		return spill_fail(spill, status, stuck);
	*ret_spill = spill;
	return GPUMEM_OK;
}

gpumem_status gm_spill_in(const struct gm_spill *spill, void *addr)
{
	return gm_spill_in_part(spill, 0, &(struct gm_spill_part){addr, spill->bytes});
}

gpumem_status gm_spill_in_part(
	const struct gm_spill *spill, uint64_t offset, const struct gm_spill_part *part)
{
	const struct gm_session_device *d = spill_device(spill);
	int r = d->map->transfer(
		d->backend, part->addr, (uint8_t *)spill->place + offset, part->bytes);

	return r < 0 ? gm_map_chunks_failed(d, r, "copy from host memory", part->bytes) : GPUMEM_OK;
}

/* ---- under a range */

/* Lets the device use the host memory at a place; under a range also the CPU, if it may. */
static int spill_allow(const struct gm_spill *spill, void *at)
{
	const struct gm_session_device *d =
		spill->cpu && at != spill->place ? spill_host(spill->session) : spill_device(spill);

	return d->map->access(d->backend, at, spill->mapped, false);
}

/* Moves the chunks, from the first on, and lets the device use them. On error, says how many bytes lie at
 * the new place. */
static int spill_shift(const struct gm_spill *spill, void *from, void *to, uint64_t *ret_there)
{
	const struct gm_session_device *d = spill_device(spill);
	const struct gm_session_chunk *chunk;
	uint64_t at = 0;
	int r = 0;

	LL_FOREACH (spill->chunks, chunk) {
		r = d->map->move(
			d->backend, (uint8_t *)from + at, (uint8_t *)to + at, chunk->bytes);
		if (r < 0)
			break;
		at += chunk->bytes;
	}
	if (r == 0)
		r = spill_allow(spill, to);
	*ret_there = at;
	return r;
}

/* Moves chunks back that were moved before. Returns false if some could not be. */
static bool spill_shift_back(const struct gm_spill *spill, void *from, void *to, uint64_t bytes)
{
	const struct gm_session_device *d = spill_device(spill);
	const struct gm_session_chunk *chunk;
	uint64_t at = 0;

	LL_FOREACH (spill->chunks, chunk) {
		if (at == bytes)
			break;
		if (d->map->move(
			    d->backend, (uint8_t *)from + at, (uint8_t *)to + at, chunk->bytes) < 0)
			return false;
		at += chunk->bytes;
	}
	return spill_allow(spill, to) == 0;
}

static gpumem_status spill_move(struct gm_spill *spill, void *from, void *to)
{
	const struct gm_session_device *d = spill_device(spill);
	uint64_t there;
	int r = spill_shift(spill, from, to, &there);

	if (r == 0)
		return GPUMEM_OK;
	gpumem_status status =
		gm_map_chunks_failed(d, r, "map host memory elsewhere:", spill->mapped);
	if (!spill_shift_back(spill, to, from, there))
		return gm_error(GPUMEM_E_SYSTEM,
			"the driver lost track of host memory that has content: %.200s",
			gm_map_chunks_error(d, r));
	return status;
}

gpumem_status gm_spill_lay_under(struct gm_spill *spill, void *addr, uint64_t room)
{
	if (!spill->direct)
		return spill_not_direct();
	if (spill->mapped > room)
		return gm_error(GPUMEM_E_UNSUPPORTED,
			"the host memory is larger than the range of addresses");
	gpumem_status status = spill_move(spill, spill->place, addr);
	if (!status)
		spill->under = addr;
	return status;
}

gpumem_status gm_spill_lift(struct gm_spill *spill)
{
	if (!spill->under)
		return GPUMEM_OK;
	gpumem_status status = spill_move(spill, spill->under, spill->place);
	if (!status)
		spill->under = NULL;
	return status;
}

/* ---- the end */

static bool spill_end(struct gm_retired *item, enum gm_retired_may may)
{
	struct gm_spill *spill = (struct gm_spill *)item;

	spill_free(spill, !spill_unmap(spill));
	return true;
}

void gm_spill_drop(struct gm_spill *spill)
{
	if (!spill)
		return;
	const struct gm_session_device *d = spill_mapper(spill);
	if (spill->direct || !gm_retired_needed(d)) {
		(void)spill_end(&spill->retired, GM_RETIRED_NO_WAIT);
		return;
	}

	spill->retired.end = spill_end;
	gm_retired_add(spill->session, &spill->retired, d, GM_RETIRED_EVENT);
}

void gm_spill_forget(struct gm_spill *spill)
{
	if (!spill)
		return;
	if (!spill_unmap(spill))
		atomic_store(&spill->session->kept, true);
	gm_session_chunks_free(spill->chunks);
	free(spill);
}
