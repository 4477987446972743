/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See spill.h. This file promises that host memory goes back only after it was unmapped, and that a copy
 * which fails leaves its source as it was. It must never unmap or give back device memory.
 *
 * Host memory that the driver made is mapped like memory of the device, for the device alone: that is
 * three times as fast as letting the CPU reach it, too. Memfds must be registered with the driver, at
 * addresses of the CPU's, so they cannot lie under a range of a GPU.
 */
#include "client/memory/spill.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "client/map/map.h"
#include "client/memory/mapping.h"
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

static gpumem_status spill_failed(
	const struct gm_session_device *d, int error, uint64_t bytes, const char *what)
{
	bool known = error == -ENOMEM || error == -ENOBUFS || error == -EOPNOTSUPP;

	return gm_error(known ? gm_status_from_errno(error) : GPUMEM_E_SYSTEM,
		"cannot %s %llu bytes: %.200s", what, (unsigned long long)bytes,
		gm_mapping_error(d, error));
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

	gpumem_status status = gm_mapping_open(session, device);
	if (!status)
		status = gm_mapping_open(session, session->counted);
	if (!status && !d->map->transfer)
		status = gm_error(GPUMEM_E_UNSUPPORTED,
			"content of device %u cannot be moved to host memory", d->info.number);
	return status;
}

int gm_spill_map_chunks(const struct gm_session_device *device, void *addr, uint64_t room,
	struct gm_session_chunk *chunks, uint64_t *ret_mapped, bool *ret_stuck)
{
	const struct gm_map_ops *map = device->map;
	struct gm_session_chunk *chunk;
	uint64_t mapped = 0;
	int r = 0;

	LL_FOREACH (chunks, chunk) {
		r = mapped + chunk->bytes > room
			    ? -ENOMEM
			    : map->map(device->backend, (uint8_t *)addr + mapped, chunk->bytes,
				      chunk->fd);
		if (r < 0)
			break;
		mapped += chunk->bytes;
	}
	if (r == 0)
		r = map->access(device->backend, addr, mapped, false);
	if (r < 0) {
		*ret_stuck = mapped && map->unmap(device->backend, addr, mapped) < 0;
		return r;
	}

	LL_FOREACH (chunks, chunk)
		chunk->fd = gm_close(chunk->fd);
	*ret_mapped = mapped;
	return 0;
}

/* Gives the host memory back, unless it could not be unmapped. */
static void spill_free(struct gm_spill *spill, bool stuck)
{
	if (stuck)
		atomic_store(&spill->session->kept, true);
	else if (spill->lease)
		gm_session_lease_give(spill->session, spill->lease);
	gm_session_chunks_free(spill->chunks);
	free(spill);
}

static gpumem_status spill_map(struct gm_spill *spill, bool *ret_stuck)
{
	const struct gm_session_device *d = spill_mapper(spill);
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
		return spill_failed(d, r, bytes, "reserve addresses for");
	r = gm_spill_map_chunks(d, spill->place, bytes, spill->chunks, &spill->mapped, ret_stuck);
	if (r == 0)
		return GPUMEM_OK;
	if (!*ret_stuck)
		d->map->unreserve(d->backend, spill->place, bytes);
	return spill_failed(d, r, bytes, "map pinned host memory:");
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
			return spill_failed(d, r, parts[i].bytes, "copy to host memory");
		to += parts[i].bytes;
	}
	return GPUMEM_OK;
}

gpumem_status gm_spill_out(struct gpumem_session *session, uint32_t device, const void *addr,
	uint64_t bytes, const char *tag, const struct gm_lease_wait *wait,
	struct gm_spill **ret_spill)
{
	const struct gm_spill_part all = {(void *)addr, bytes};

	return gm_spill_out_parts(session, device, &all, 1, tag, wait, ret_spill);
}

gpumem_status gm_spill_out_parts(struct gpumem_session *session, uint32_t device,
	const struct gm_spill_part *parts, size_t n, const char *tag,
	const struct gm_lease_wait *wait, struct gm_spill **ret_spill)
{
	struct gm_session_device *d = &session->device[device];
	gpumem_status status = gm_spill_check(session, device);
	bool stuck = false;

	if (status)
		return status;
	struct gm_spill *spill = calloc(1, sizeof(*spill));
	if (!spill)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory to move content");
	spill->session = session;
	spill->device = device;
	for (size_t i = 0; i < n; i++)
		spill->bytes += parts[i].bytes;
	spill->direct = !strcmp(d->info.backend, spill_host(session)->info.backend);

	const struct gm_lease_what what = {
		.device = session->counted,
		.bytes = spill->bytes,
		.transport = GM_TRANSPORT_FD,
		.tag = tag,
	};
	status = gm_session_lease_take(session, &what, wait, &spill->lease, &spill->chunks);
	if (!status)
		status = spill_map(spill, &stuck);
	bool mapped = !status;
	if (!status)
		status = spill_copy_out(spill, parts, n);
	if (status) {
		char text[GM_ERROR_BYTES];
		snprintf(text, sizeof(text), "%s", gm_error_text());
		spill_free(spill, mapped ? !spill_unmap(spill) : stuck);
		return gm_error(status, "%s", text);
	}
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

	return r < 0 ? spill_failed(d, r, part->bytes, "copy from host memory") : GPUMEM_OK;
}

/* ---- under a range */

/* Moves so many bytes of chunks, from the first on, and lets the device use them. On error, says how
 * many bytes lie at the new place. */
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
		r = d->map->access(d->backend, to, at, false);
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
	return d->map->access(d->backend, to, spill->mapped, false) == 0;
}

static gpumem_status spill_move(struct gm_spill *spill, void *from, void *to)
{
	const struct gm_session_device *d = spill_device(spill);
	uint64_t there;
	int r = spill_shift(spill, from, to, &there);

	if (r == 0)
		return GPUMEM_OK;
	gpumem_status status = spill_failed(d, r, spill->mapped, "map host memory elsewhere:");
	if (!spill_shift_back(spill, to, from, there))
		return gm_error(GPUMEM_E_SYSTEM,
			"the driver lost track of host memory that has content: %.200s",
			gm_mapping_error(d, r));
	return status;
}

gpumem_status gm_spill_lay_under(struct gm_spill *spill, void *addr, uint64_t room)
{
	if (!spill->direct || spill->mapped > room)
		return gm_error(GPUMEM_E_UNSUPPORTED, "%s",
			spill->direct ? "the host memory is larger than the range of addresses"
				      : "registered host memory cannot lie at addresses of a GPU");
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

static void spill_left(struct gm_leaver *leaver)
{
	struct gm_spill *spill = (struct gm_spill *)leaver;

	spill_free(spill, !spill_unmap(spill));
}

void gm_spill_drop(struct gm_spill *spill)
{
	if (!spill)
		return;
	const struct gm_session_device *d = spill_mapper(spill);
	if (spill->direct || !gm_leaving_needed(d)) {
		spill_left(&spill->leaver);
		return;
	}

	/* So that gm_buffer_settle() looks after it. */
	atomic_fetch_add(&spill->session->unsettled, 1);
	spill->leaver.left = spill_left;
	gm_leaving_add(spill->session, &spill->leaver, d);
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
