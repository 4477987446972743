/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the code that maps a device's chunks, by the name of the backend that the daemon sent.
 * Only this file knows all backends. What it makes lives as long as the session, and does not
 * change.
 */
#include "client/device/map_chunks.h"

#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "client/map/map_cuda.h"
#include "client/map/map_host.h"
#include "client/map/map_pinned.h"
#include "client/session/gpumem_session.h"
#include "client/grant/session_lease.h"
#include "common/cancel.h"
#include "common/cleanup.h"
#include "common/status_table.h"

static bool map_chunks_is(const struct gm_session_device *d, const char *backend)
{
	return strcmp(d->info.backend, backend) == 0;
}

static void map_chunks_open_host(struct gm_session_device *d)
{
	d->backend = NULL;
	atomic_store_explicit(&d->map, gm_map_host_ops(), memory_order_release);
}

/* GPUs that cannot reach the memory, or that this process does not see, are left out. */
static void map_chunks_add_peers(struct gpumem_session *session, struct gm_map_cuda *cuda)
{
	for (uint32_t i = 0; i < session->counted; i++)
		if (map_chunks_is(&session->device[i], "cuda"))
			(void)gm_map_cuda_add_peer(cuda, session->device[i].info.uuid);
}

static gpumem_status map_chunks_open_cuda(
	struct gpumem_session *session, struct gm_session_device *d)
{
	struct gm_map_cuda *cuda;
	char why[GM_MAP_CUDA_WHY] = "out of host memory";
	int r = gm_map_cuda_new(d->info.uuid, &cuda, why);
	if (r < 0)
		return gm_error(r == -ENOMEM ? GPUMEM_E_HOST_MEMORY : GPUMEM_E_UNSUPPORTED,
			"device %u (%s) cannot be used: %s", d->info.number, d->info.name, why);
	if (session->peers)
		map_chunks_add_peers(session, cuda);
	d->backend = cuda;
	atomic_store_explicit(&d->map, gm_map_cuda_ops(), memory_order_release);
	return GPUMEM_OK;
}

/* Whether the daemon serves GPUs. If not, host memory need not be pinned. */
static bool map_chunks_serves_gpus(const struct gpumem_session *session)
{
	for (uint32_t i = 0; i < session->counted; i++)
		if (map_chunks_is(&session->device[i], "cuda"))
			return true;
	return false;
}

static gpumem_status map_chunks_open_pinned(
	struct gpumem_session *session, struct gm_session_device *d)
{
	struct gm_map_pinned *pinned;
	char why[GM_MAP_CUDA_WHY] = "gpumemd serves no GPU";
	bool memfd = map_chunks_is(d, "host");
	int r = -ENODEV;

	if (map_chunks_serves_gpus(session))
		r = gm_map_pinned_new(memfd, &pinned, why);
	/* If no GPU is used, a memfd can be mapped without a driver. */
	if (r == -ENODEV && memfd) {
		map_chunks_open_host(d);
		return GPUMEM_OK;
	}

	if (r < 0)
		return gm_error(r == -ENOMEM ? GPUMEM_E_HOST_MEMORY : GPUMEM_E_UNSUPPORTED,
			"pinned host memory cannot be used: %s",
			r == -ENOMEM ? "out of host memory" : why);
	d->backend = pinned;
	atomic_store_explicit(&d->map, gm_map_pinned_ops(memfd), memory_order_release);
	return GPUMEM_OK;
}

gpumem_status gm_map_chunks_open(struct gpumem_session *session, uint32_t device)
{
	struct gm_session_device *d = &session->device[device];
	gpumem_status status = GPUMEM_OK;

	if (atomic_load_explicit(&d->map, memory_order_acquire))
		return GPUMEM_OK;
	GM_UNCANCELLED;
	gm_lock(&session->opening);
	if (atomic_load_explicit(&d->map, memory_order_acquire))
		;
	else if (d->info.number == GPUMEM_DEVICE_HOST &&
		 (map_chunks_is(d, "host") || map_chunks_is(d, "cuda")))
		status = map_chunks_open_pinned(session, d);
	else if (map_chunks_is(d, "host"))
		map_chunks_open_host(d);
	else if (map_chunks_is(d, "cuda"))
		status = map_chunks_open_cuda(session, d);
	else
		status = gm_error(GPUMEM_E_UNSUPPORTED,
			"this library cannot map memory of device %u, because it does not know the "
			"backend %s: install a newer one",
			device, d->info.backend);
	gm_lock_drop(&session->opening);
	return status;
}

void gm_map_chunks_close(struct gm_session_device *d)
{
	const struct gm_map_ops *map = atomic_load_explicit(&d->map, memory_order_acquire);
	if (map)
		map->close(d->backend);
}

const char *gm_map_chunks_error(const struct gm_session_device *d, int error)
{
	const struct gm_map_ops *map = atomic_load_explicit(&d->map, memory_order_acquire);
	const char *text = map && map->error ? map->error() : "";
	return *text ? text : strerror(-error);
}

gpumem_status gm_map_chunks_failed(
	const struct gm_session_device *d, int error, const char *what, uint64_t bytes)
{
	/* GPUMEM_E_INVALID would blame the program, which did nothing wrong. */
	bool known = error == -ENOMEM || error == -ENOBUFS || error == -EOPNOTSUPP;

	return gm_error(known ? gm_status_from_errno(error) : GPUMEM_E_SYSTEM,
		"cannot %s %llu bytes: %.200s", what, (unsigned long long)bytes,
		gm_map_chunks_error(d, error));
}

int gm_map_chunks_add_chunks(const struct gm_session_device *device, void *addr, uint64_t room,
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
