/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The drain of a device. This file promises that a drain outlives the daemon, and that the pool of a
 * drained device goes, whatever its size, in slices of some 40 microseconds, one each millisecond.
 * It must never take what a client holds.
 */
#include "daemon/device/device_drain.h"

#define DRAIN_SLICE 16

static int device_drain_record(struct gm_device *device, const struct gm_device_draining *drain)
{
	struct gm_record_drain record = {.since_ns = drain->since_ns};
	gm_record_begin(&record.head, GM_RECORD_DRAIN, device->key, sizeof(record), drain->uid);
	return gm_env_record(device->env, GM_RECORD_DRAIN, device->key, &device->drain_place,
		&record, sizeof(record));
}

int gm_device_drain_begin(struct gm_device *device, uid_t uid)
{
	struct gm_device_draining drain = {
		.on = true, .uid = uid, .since_ns = gm_device_now(device)};
	if (!device->drain.on) {
		int r = device_drain_record(device, &drain);
		if (r < 0)
			return r;
		device->drain = drain;
	}
	device->reclaim_epoch++;
	gm_device_drain_release_some(device);
	gm_device_wake_queue(device);
	gm_device_settle(device);
	return 0;
}

bool gm_device_drain_end(struct gm_device *device)
{
	if (!device->drain.on)
		return false;
	device->drain = (struct gm_device_draining){0};
	gm_env_erase(device->env, &device->drain_place);
	return true;
}

void gm_device_drain_adopt(
	struct gm_device *device, const struct gm_record_drain *record, uint32_t place)
{
	device->drain = (struct gm_device_draining){
		.on = true, .uid = record->head.uid, .since_ns = record->since_ns};
	device->drain_place = place;
}

bool gm_device_drain_wants_slice(const struct gm_device *device)
{
	return device->drain.on && device->pool.bytes > 0;
}

void gm_device_drain_release_some(struct gm_device *device)
{
	if (!gm_device_drain_wants_slice(device))
		return;
	for (unsigned int n = 0; n < DRAIN_SLICE; n++)
		if (!gm_pool_evict(&device->pool, GM_DOMAIN_FRESH))
			break;
	gm_device_settle(device);
	if (gm_device_drain_wants_slice(device))
		gm_env_need_tick(device->env, 0);
}
