/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decay of a device's pool. It promises that each call costs a bounded time, whatever the pool
 * holds: the pool keeps its chunks in the order in which they came, so nothing is searched for. It
 * must never take a chunk before its time: other modules release chunks for other reasons.
 */
#include "daemon/device/device_decay.h"

#include <assert.h>

/* One slice. Releasing a chunk takes a GPU some 40 µs (2 MiB) to 1 ms (1 GiB). */
#define DECAY_CHUNKS 8
#define DECAY_BYTES  (UINT64_C(64) << 20)

uint64_t gm_device_decay_due(const struct gm_device *device)
{
	if (device->decay.jobs > 0 || device->env->stopping)
		return UINT64_MAX;
	return gm_pool_decay_due(&device->pool);
}

void gm_device_decay_run(struct gm_device *device)
{
	struct gm_device_decay *decay = &device->decay;
	uint64_t now = gm_device_now(device);
	if (gm_device_decay_due(device) > now)
		return;

	decay->running = true;
	decay->jobs = gm_pool_decay(&device->pool, now, DECAY_CHUNKS, DECAY_BYTES);
	decay->running = false;
	gm_device_settle(device);
}

void gm_device_decay_destroyed(struct gm_device *device)
{
	assert(device->decay.jobs > 0);
	if (--device->decay.jobs > 0)
		return;
	gm_device_decay_run(device);
	/* The next chunk may be due long after. */
	gm_env_need_tick(device->env, gm_device_decay_due(device));
}
