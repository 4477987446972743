/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See region_backing.h. This file promises that memory goes back only after it was unmapped. It maps all chunks
 * of a lease before it lets the device use them, and unmaps all that goes in one call: each call of the
 * driver costs as much as a large chunk.
 */
#include "client/region/region_backing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <utlist.h>

#include "client/device/map_chunks.h"
#include "client/map/map.h"
#include "common/arith.h"
#include "common/cleanup.h"
#include "common/status_table.h"

static const struct gm_session_device *region_backing_device(const struct gm_region_backing *ground)
{
	return &ground->session->device[ground->device];
}

gpumem_status gm_region_backing_init(struct gm_region_backing *ground,
	struct gpumem_session *session, uint32_t device, uint64_t reach)
{
	const struct gm_session_device *d = &session->device[device];
	/* The daemon may round up by 1/64, and then to whole chunks. */
	uint64_t room = gm_round_up(reach + reach / 64 + GM_CHUNK_MIN, GM_CHUNK_MIN);
	void *addr;

	*ground = (struct gm_region_backing){.session = session, .device = device};
	int r = d->map->reserve(d->backend, room, &addr);
	if (r < 0)
		return gm_map_chunks_failed(
			region_backing_device(ground), r, "reserve addresses for", room);
	ground->base = addr;
	ground->room = room;
	return GPUMEM_OK;
}

struct gm_lease_what gm_region_backing_what(const struct gm_region_backing *ground, const char *tag)
{
	return (struct gm_lease_what){
		.device = ground->device,
		.transport = GM_TRANSPORT_FD,
		.tag = tag,
	};
}

void gm_region_backing_refuse(const struct gm_region_backing *ground,
	struct gm_session_lease *lease, struct gm_session_chunk *chunks)
{
	char text[GM_ERROR_BYTES];

	/* The daemon pools only what nobody has open. */
	gm_session_chunks_free(chunks);
	if (!lease)
		return;
	snprintf(text, sizeof(text), "%s", gm_error_text());
	gm_session_lease_give(ground->session, lease);
	(void)gm_error(GPUMEM_OK, "%s", text);
}

/* Makes room in the list of leases, so that adding one cannot fail later. */
static int region_backing_make_space(struct gm_region_backing *ground)
{
	if (ground->n < ground->space)
		return 0;
	size_t space = ground->space ? 2 * ground->space : 4;
	void *leases = reallocarray(ground->leases, space, sizeof(*ground->leases));
	if (!leases)
		return -ENOMEM;
	ground->leases = leases;
	ground->space = space;
	return 0;
}

gpumem_status gm_region_backing_add(struct gm_region_backing *ground,
	struct gm_session_lease **lease, struct gm_session_chunk *chunks)
{
	uint64_t bytes = (*lease)->bytes, mapped = 0;
	const struct gm_session_chunk *chunk;
	bool stuck = false;
	size_t n;
	int r = region_backing_make_space(ground);

	if (r == 0)
		r = gm_map_chunks_add_chunks(region_backing_device(ground),
			ground->base + ground->mapped, ground->room - ground->mapped, chunks,
			&mapped, &stuck);
	LL_COUNT(chunks, chunk, n);
	gm_session_chunks_free(chunks);
	if (r == 0) {
		ground->leases[ground->n++] = (struct gm_region_backing_lease){*lease, mapped, n};
		ground->mapped += mapped;
		ground->chunks += n;
		return GPUMEM_OK;
	}

	if (stuck) {
		/* They stay leased: the session's end cannot unmap them either. */
		atomic_store(&ground->session->kept, true);
		*lease = NULL;
	}
	return gm_map_chunks_failed(region_backing_device(ground), r, "map", bytes);
}

/* Unmaps the last bytes of what is mapped. */
static int region_backing_unmap(struct gm_region_backing *ground, uint64_t bytes)
{
	const struct gm_session_device *d = region_backing_device(ground);
	uint8_t *from = ground->base + ground->mapped - bytes;
	int r = bytes ? d->map->unmap(d->backend, from, bytes) : 0;

	if (r == 0)
		ground->mapped -= bytes;
	return r;
}

/* How many leases are left if those go that lie behind keep, until so many bytes are gone. */
static size_t region_backing_left(
	const struct gm_region_backing *ground, uint64_t keep, uint64_t bytes, uint64_t *ret_spare)
{
	uint64_t end = ground->mapped;
	size_t left = ground->n;

	while (left && ground->mapped - end < bytes && end - ground->leases[left - 1].bytes >= keep)
		end -= ground->leases[--left].bytes;
	*ret_spare = ground->mapped - end;
	return left;
}

uint64_t gm_region_backing_spare(const struct gm_region_backing *ground, uint64_t keep)
{
	uint64_t spare;

	(void)region_backing_left(ground, keep, UINT64_MAX, &spare);
	return spare;
}

uint64_t gm_region_backing_shrink(struct gm_region_backing *ground, uint64_t keep, uint64_t bytes,
	struct gm_region_backing_lease **ret_gone, size_t *ret_n)
{
	uint64_t spare;
	size_t left = region_backing_left(ground, keep, bytes, &spare), n = ground->n - left;
	struct gm_region_backing_lease *gone = n ? calloc(n, sizeof(*gone)) : NULL;

	if (!gone || region_backing_unmap(ground, spare) < 0) {
		free(gone);
		*ret_gone = NULL;
		*ret_n = 0;
		return 0;
	}
	for (size_t i = 0; i < n; i++) {
		gone[i] = ground->leases[left + i];
		ground->chunks -= gone[i].chunks;
	}
	ground->n = left;
	*ret_gone = gone;
	*ret_n = n;
	return spare;
}

void gm_region_backing_give(
	struct gpumem_session *session, struct gm_region_backing_lease *gone, size_t n)
{
	for (size_t i = 0; i < n; i++)
		gm_session_lease_give(session, gone[i].lease);
	free(gone);
}

/* Gives all leases back, which are unmapped. */
static void region_backing_give_all(struct gm_region_backing *ground)
{
	for (size_t i = 0; i < ground->n; i++)
		gm_session_lease_give(ground->session, ground->leases[i].lease);
	ground->n = ground->chunks = 0;
}

gpumem_status gm_region_backing_clear(struct gm_region_backing *ground)
{
	uint64_t bytes = ground->mapped;
	int r = region_backing_unmap(ground, bytes);

	if (r < 0)
		return gm_map_chunks_failed(region_backing_device(ground), r, "unmap", bytes);
	region_backing_give_all(ground);
	return GPUMEM_OK;
}

void gm_region_backing_deinit(struct gm_region_backing *ground, bool give)
{
	if (!ground->base)
		return;
	const struct gm_session_device *d = region_backing_device(ground);

	if (region_backing_unmap(ground, ground->mapped) < 0) {
		atomic_store(&ground->session->kept, true);
	} else {
		d->map->unreserve(d->backend, ground->base, ground->room);
		if (give)
			region_backing_give_all(ground);
	}
	free(ground->leases);
	*ground = (struct gm_region_backing){0};
}
