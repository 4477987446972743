/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes: see device_probe.h. This file promises that a probe which ended began after it was wanted, and
 * that no device has two under way. It must never decide about a request: it only wakes the queue.
 */
#include "daemon/device/device_probe.h"

bool gm_device_probe_helps(
	const struct gm_device *device, const struct gm_account *account, uint64_t bytes)
{
	const struct gm_ledger *ledger = &device->ledger;
	if (ledger->foreign == 0 || !device->env->ops.probe)
		return false;
	return gm_ledger_charged(ledger) + gm_ledger_kept_from(ledger, account) + bytes <=
	       gm_device_capacity(device);
}

static void device_probe_begin(struct gm_device *device)
{
	const struct gm_env *env = device->env;
	device->probe.begun++;
	env->ops.probe(env->ctx, device->number);
}

uint64_t gm_device_probe_want(struct gm_device *device)
{
	struct gm_device_probe *probe = &device->probe;
	probe->wanted = probe->begun + 1;
	if (probe->told == probe->begun)
		device_probe_begin(device);
	return probe->wanted;
}

bool gm_device_probe_over(const struct gm_device *device, uint64_t number)
{
	return number <= device->probe.told;
}

void gm_device_probe_told(struct gm_device *device)
{
	struct gm_device_probe *probe = &device->probe;
	if (probe->told == probe->begun)
		return;

	probe->told = probe->begun;
	probe->told_ns = gm_device_now(device);
	if (probe->wanted > probe->begun)
		device_probe_begin(device);
	if (device->queue.length > 0)
		gm_device_wake_queue(device);
}

uint64_t gm_device_probe_retry(struct gm_device *device, uint64_t now)
{
	const struct gm_device_probe *probe = &device->probe;
	if (probe->told != probe->begun)
		return UINT64_MAX;
	if (now < probe->told_ns + GM_DEVICE_PROBE_NS)
		return probe->told_ns + GM_DEVICE_PROBE_NS;
	gm_device_probe_want(device);
	return UINT64_MAX;
}
