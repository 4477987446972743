/* SPDX-License-Identifier: Apache-2.0 */
#include "client/memory/signals.h"

#include <errno.h>

#include "client/map/map.h"
#include "client/memory/mapping.h"
#include "client/session/session_lease.h"

void gm_signals_init(struct gm_signals *signals)
{
	pthread_mutex_init(&signals->lock, NULL);
}

void gm_signals_deinit(struct gm_signals *signals)
{
	pthread_mutex_destroy(&signals->lock);
}

gpumem_status gm_signals_failed(const struct gm_session_device *d, int r, const char *what)
{
	if (r == -EAGAIN)
		return gm_error(GPUMEM_E_BUSY,
			"a stream is being captured into a graph, so nobody can know when its work is "
			"done; %s after the capture",
			what);
	if (r == -EOPNOTSUPP)
		return gm_error(GPUMEM_E_UNSUPPORTED,
			"device %u (%s) or its driver has no 64-bit memory operations on streams, "
			"which signals need",
			d->info.number, d->info.name);
	return gm_error(GPUMEM_E_SYSTEM, "cannot %s: %s", what, gm_mapping_error(d, r));
}

gpumem_status gm_signals_check(
	const struct gpumem_session *session, uint32_t device, gpumem_transport transport)
{
	if (transport == GPUMEM_TRANSPORT_IPC)
		return gm_error(GPUMEM_E_UNSUPPORTED,
			"signals need the fd transport; create the buffer with GPUMEM_TRANSPORT_FD, or "
			"without GPUMEM_BUFFER_SIGNALS");
	if (device >= session->counted)
		return gm_error(GPUMEM_E_UNSUPPORTED,
			"pinned host memory has no signals; create the buffer on a device, or without "
			"GPUMEM_BUFFER_SIGNALS");
	return GPUMEM_OK;
}

/* The memory may be what another process of this trust domain returned. */
static int signals_clear(struct gm_control *control, const struct gm_session_device *d)
{
	if (d->map->poke) {
		int r = d->map->poke(d->backend, gm_signals_word(&control->value), 0);
		return r ? r : d->map->poke(d->backend, gm_signals_word(&control->last), 0);
	}
	atomic_store(&control->value, 0);
	atomic_store(&control->last, 0);
	atomic_store(&control->bell, 0);
	return 0;
}

gpumem_status gm_signals_begin(struct gm_signals *signals, const struct gm_session_device *d,
	const struct gm_session_lease *lease, void *addr, uint64_t bytes)
{
	uint64_t offset = gm_control_offset(lease->user_bytes);

	if (!lease->signals)
		return GPUMEM_OK;
	if (offset > bytes || bytes - offset < sizeof(struct gm_control) || !d->map->signals)
		return gm_error(GPUMEM_E_PROTOCOL, "gpumemd granted signals without room for them");

	if (!signals->control)
		signals->control = (struct gm_control *)((uint8_t *)addr + offset);
	if (lease->opened) {
		atomic_store(&signals->orphaned, lease->maker_gone);
		return GPUMEM_OK;
	}
	int r = signals_clear(signals->control, d);
	return r < 0 ? gm_signals_failed(d, r, "prepare signals") : GPUMEM_OK;
}
