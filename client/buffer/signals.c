/* SPDX-License-Identifier: Apache-2.0 */
#include "client/buffer/signals.h"

#include <errno.h>

#include "client/device/map_await.h"
#include "client/device/map_chunks.h"
#include "client/map/map.h"
#include "client/grant/session_lease.h"
#include "common/cleanup.h"

void gm_signals_init(struct gm_signals *signals)
{
	gm_lock_init(&signals->lock, GM_LOCK_SIGNALS);
}

void gm_signals_deinit(struct gm_signals *signals)
{
	gm_lock_deinit(&signals->lock);
}

gpumem_status gm_signals_failed(const struct gm_session_device *d, int r, const char *what)
{
	if (r == -EAGAIN)
		return gm_map_await_captured(what, "");
	if (r == -EOPNOTSUPP)
		return gm_error(GPUMEM_E_UNSUPPORTED,
			"device %u (%s) or its driver has no 64-bit memory operations on streams, "
			"which signals need",
			d->info.number, d->info.name);
	return gm_error(GPUMEM_E_SYSTEM, "cannot %s: %s", what, gm_map_chunks_error(d, r));
}

gpumem_status gm_signals_check(
	const struct gpumem_session *session, uint32_t device, gpumem_transport transport)
{
	if (transport == GPUMEM_TRANSPORT_IPC)
		return gm_error(GPUMEM_E_UNSUPPORTED,
			"signals need the fd transport; create the buffer with transport fd, or without "
			"signals");
	if (device >= session->counted)
		return gm_error(GPUMEM_E_UNSUPPORTED,
			"pinned host memory has no signals; create the buffer on a device, or without "
			"signals");
	return GPUMEM_OK;
}

gpumem_status gm_signals_begin(struct gm_signals *signals, const struct gm_session_device *d,
	struct gm_session_lease *lease)
{
	if (!lease->signals)
		return GPUMEM_OK;
	GM_AUTO_FD int fd = gm_steal_fd(&lease->control);
	if (!d->map->word_open)
		return gm_error(GPUMEM_E_PROTOCOL, "gpumemd granted signals where there are none");

	int r = d->map->word_open(d->backend, fd, lease->read_only, &signals->word);
	if (r == -EPROTO)
		return gm_error(GPUMEM_E_PROTOCOL,
			"gpumemd granted signals without a sealed memfd for them");
	if (r < 0)
		return gm_signals_failed(d, r, "prepare signals");
	atomic_store(&signals->orphaned, lease->opened && lease->maker_gone);
	return GPUMEM_OK;
}

void gm_signals_end(struct gm_signals *signals, const struct gm_session_device *d)
{
	if (signals->word)
		d->map->word_close(d->backend, signals->word);
	signals->word = NULL;
}

/* Kernels of this process that run until a message tells them to end. */
static _Atomic uint32_t kernels;

void gm_signals_kernel_begins(void)
{
	atomic_fetch_add(&kernels, 1);
}

void gm_signals_kernel_ends(void)
{
	atomic_fetch_sub(&kernels, 1);
}

bool gm_signals_kernel_runs(void)
{
	return atomic_load(&kernels) > 0;
}

void gm_signals_settle(struct gpumem_session *session)
{
	/* The driver would wait for the kernel, and keep this process from launching anything meanwhile. */
	if (gm_signals_kernel_runs())
		return;

	for (uint32_t i = 0; i < session->devices; i++) {
		const struct gm_session_device *d = &session->device[i];
		const struct gm_map_ops *map = atomic_load_explicit(&d->map, memory_order_acquire);

		if (map && map->word_settle)
			map->word_settle(d->backend);
	}
}
