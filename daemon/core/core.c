/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core as the daemon sees it: devices, what their threads tell, figures and counters. What core
 * promises stands in core.h; this file only hands each call to the part that keeps the promise. It
 * must never hold a rule of its own about memory.
 */
#include "daemon/core/hash_table.h"
#include "daemon/core/core.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/core_private.h"
#include "daemon/core/request.h"
#include "daemon/core/session.h"

int gm_core_new(const struct gm_core_ops *ops, void *ctx, struct gm_core **ret_core)
{
	struct gm_core *core = calloc(1, sizeof(*core));
	if (!core)
		return -ENOMEM;
	core->ops = *ops;
	core->ctx = ctx;
	core->armed_ns = UINT64_MAX;
	core->ops.random(ctx, &core->token_key, sizeof(core->token_key));
	*ret_core = core;
	return 0;
}

void gm_core_free(struct gm_core *core)
{
	if (!core)
		return;
	assert(!core->sessions && !core->shares && core->n_leases == 0);
	for (uint32_t d = 0; d < core->n_devices; d++)
		gm_device_deinit(&core->devices[d]);
	assert(!core->chunks);
	gm_quotas_deinit(&core->quotas);
	explicit_bzero(&core->token_key, sizeof(core->token_key));
	free(core);
}

void gm_core_shutdown(struct gm_core *core)
{
	gm_core_enter(core);
	core->stopping = true;
	for (uint32_t d = 0; d < core->n_devices; d++)
		core->devices[d].stopping = true;
	/* Nothing is pooled any more, so how they end makes no difference to their chunks. */
	while (core->sessions)
		gm_session_end_died(core->sessions);
	for (uint32_t d = 0; d < core->n_devices; d++) {
		gm_pool_clear(&core->devices[d].pool);
		gm_device_settle(&core->devices[d]);
	}
	gm_core_leave(core);
}

bool gm_core_idle(const struct gm_core *core)
{
	for (uint32_t d = 0; d < core->n_devices; d++)
		if (core->devices[d].jobs > 0)
			return false;
	return true;
}

int gm_core_add_device(
	struct gm_core *core, const struct gm_core_device_info *info, uint32_t *ret_device)
{
	if (core->n_devices >= GM_LIMIT_DEVICES)
		return -E2BIG;
	if (core->sessions || core->quotas.by_owner) /* they have an account per device */
		return -EBUSY;
	uint32_t number = core->n_devices++;
	struct gm_device *device = &core->devices[number];
	gm_device_init(device, core, number, info);
	/* Before the reserve is made: it must leave to others what they use. */
	if (info->measured)
		gm_ledger_sample(&device->ledger, info->free_bytes);
	*ret_device = number;
	gm_core_enter(core);
	gm_device_settle(device);
	gm_reserve_refill(device);
	gm_core_leave(core);
	return 0;
}

uint32_t gm_core_device_count(const struct gm_core *core)
{
	return core->n_devices;
}

static struct gm_device *core_device_of(struct gm_core *core, uint32_t device)
{
	assert(device < core->n_devices);
	return &core->devices[device];
}

void gm_core_set_policy(struct gm_core *core, uint32_t device, const struct gm_policy *policy)
{
	struct gm_device *d = core_device_of(core, device);
	gm_core_enter(core);
	gm_device_set_policy(d, policy);
	gm_device_settle(d);
	gm_reserve_refill(d);
	gm_core_leave(core);
}

void gm_core_sample(struct gm_core *core, uint32_t device, uint64_t free_bytes)
{
	struct gm_device *d = core_device_of(core, device);
	uint64_t foreign = d->ledger.foreign;
	if (!gm_ledger_sample(&d->ledger, free_bytes))
		return;
	if (d->ledger.foreign < foreign)
		d->freed += foreign - d->ledger.foreign;
	gm_core_enter(core);
	uint64_t pooled = d->pool.bytes;
	gm_device_settle(d);
	if (free_bytes < d->info.policy.min_free && d->pool.bytes < pooled)
		gm_ladder_min_free(d, d->info.policy.min_free - free_bytes, pooled - d->pool.bytes);
	gm_reserve_refill(d);
	gm_core_leave(core);
}

void gm_core_sample_failed(struct gm_core *core, uint32_t device)
{
	core_device_of(core, device)->ledger.measured = false;
}

void gm_core_looked(struct gm_core *core, uint32_t device)
{
	gm_core_enter(core);
	gm_look_told(core_device_of(core, device));
	gm_core_leave(core);
}

/* ---- time */

static uint64_t core_due_of(const struct gm_device *d)
{
	uint64_t due = gm_pressure_due(&d->pressure, &d->info.policy, gm_device_pressure(d));
	uint64_t queue = gm_queue_due(d), ladder = gm_ladder_due(d), reserve = gm_reserve_due(d);
	if (queue < due)
		due = queue;
	if (ladder < due)
		due = ladder;
	return reserve < due ? reserve : due;
}

static uint64_t core_next_due(const struct gm_core *core)
{
	uint64_t next = UINT64_MAX;
	for (uint32_t n = 0; n < core->n_devices; n++) {
		uint64_t due = core_due_of(&core->devices[n]);
		if (due < next)
			next = due;
	}
	return next;
}

/* One that grants, whose done() asks again, could go on for ever: then the rest waits for a tick.
 */
#define PUMP_ROUNDS 1024

void gm_core_pump(struct gm_core *core)
{
	unsigned rounds = 0;
	/* What done() does in here is looked at in the next round. */
	core->depth++;
	for (; core->woken && rounds < PUMP_ROUNDS; rounds++) {
		core->woken = false;
		for (uint32_t n = 0; n < core->n_devices; n++) {
			struct gm_device *d = &core->devices[n];
			gm_ladder_act(d);
			if (d->queue.woken)
				gm_queue_run(d);
		}
	}
	core->depth--;
	uint64_t next = core->woken ? core->ops.now_ns(core->ctx) : core_next_due(core);
	if (next < core->armed_ns) {
		core->armed_ns = next;
		if (core->ops.wake_at)
			core->ops.wake_at(core->ctx, next);
	}
}

uint64_t gm_core_tick(struct gm_core *core)
{
	gm_core_enter(core);
	for (uint32_t n = 0; n < core->n_devices; n++) {
		struct gm_device *d = &core->devices[n];
		uint64_t now = gm_device_now(d);
		if (gm_pressure_due(&d->pressure, &d->info.policy, gm_device_pressure(d)) <= now)
			gm_device_settle(d);
		if (gm_queue_due(d) <= now)
			core->woken = d->queue.woken = true;
		if (gm_ladder_due(d) <= now)
			core->woken = true;
		gm_reserve_refill(d);
	}
	gm_core_leave(core);
	core->armed_ns = core->woken ? core->ops.now_ns(core->ctx) : core_next_due(core);
	return core->armed_ns;
}

void gm_core_device_figures(
	const struct gm_core *core, uint32_t device, struct gm_device_figures *ret)
{
	assert(device < core->n_devices);
	const struct gm_device *d = &core->devices[device];
	*ret = (struct gm_device_figures){
		.total = d->info.total,
		.foreign = d->ledger.foreign,
		.capacity = gm_device_capacity(d),
		.ceiling = gm_device_ceiling(d),
		.available = gm_device_available(d),
		.leased = d->ledger.leased,
		.quarantined = d->ledger.quarantined,
		.admitted = d->ledger.admitted,
		.pooled = d->ledger.pooled,
		.created = gm_ledger_created(&d->ledger),
		.free = gm_ledger_free(&d->ledger),
		.measured = d->ledger.measured,
		.peak_charged = d->ledger.peak_charged,
		.chunks = d->chunks,
		.pressure_ppm = gm_device_pressure(d),
		.level = d->pressure.level,
		.reclaim_epoch = d->reclaim_epoch,
		.policy = d->info.policy,
	};
}

void gm_core_pool_totals(const struct gm_core *core, uint32_t device, struct gm_pool_totals *ret)
{
	assert(device < core->n_devices);
	const struct gm_device *d = &core->devices[device];
	*ret = (struct gm_pool_totals){
		.pooled = d->pool.bytes,
		.peak = d->pool.peak,
		.max_pool = d->pool.max_bytes,
		.reserve = d->info.policy.reserve,
		.hits = d->pool.hits,
		.misses = d->pool.misses,
		.returns = d->pool.returns,
		.released = d->pool.released,
	};
}

void gm_core_pool_each(const struct gm_core *core, uint32_t device,
	void (*visit)(void *ctx, const struct gm_pool_bucket_info *bucket), void *ctx)
{
	assert(device < core->n_devices);
	const struct gm_device *d = &core->devices[device];
	gm_pool_each(&d->pool, gm_device_now(d), visit, ctx);
}

uint64_t gm_core_trim(struct gm_core *core, uint32_t device)
{
	struct gm_device *d = core_device_of(core, device);
	gm_core_enter(core);
	uint64_t released = gm_pool_clear(&d->pool);
	d->reclaim_epoch++;
	gm_device_settle(d);
	gm_reserve_refill(d);
	gm_core_leave(core);
	return released;
}

void gm_core_created(struct gm_core *core, struct gm_chunk *chunk, int result)
{
	struct gm_device *d = core_device_of(core, chunk->device);
	assert(chunk->state == GM_CHUNK_CREATING && d->jobs > 0);
	d->jobs--;
	gm_core_enter(core);
	if (chunk->request) {
		gm_request_created(chunk->request, chunk, result);
	} else {
		gm_device_created_unclaimed(d, chunk, result);
		gm_device_settle(d);
		gm_reserve_refill(d);
	}
	gm_core_leave(core);
}

void gm_core_destroyed(struct gm_core *core, struct gm_chunk *chunk)
{
	struct gm_device *d = core_device_of(core, chunk->device);
	assert(chunk->state == GM_CHUNK_DOOMED && d->jobs > 0);
	d->jobs--;
	gm_ledger_destroyed(&d->ledger, chunk->bytes);
	d->freed += chunk->bytes;
	free(chunk);
	/* One that was denied memory may get it now. */
	if (d->queue.denied > 0) {
		gm_core_enter(core);
		core->woken = d->queue.woken = true;
		gm_core_leave(core);
	}
}

uint64_t gm_core_lease_count(const struct gm_core *core)
{
	return core->n_leases;
}

void gm_core_counters(const struct gm_core *core, struct gm_core_counters *ret)
{
	*ret = core->counters;
}
