/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reserve: which chunks it should hold, and when to start making them. It promises to ask for
 * nothing that would pass the ceiling or the pool's size, and to wait longer and longer after
 * failures. It must never make a request wait: its jobs belong to no session's
 * turn.
 */
#include "daemon/device/reserve.h"

#include <assert.h>
#include <string.h>

#include "common/arith.h"
#include "daemon/books/fds.h"

#define RETRY_FIRST_NS UINT64_C(1000000000)

void gm_reserve_set(struct gm_device *device, uint64_t bytes)
{
	struct gm_reserve *reserve = &device->reserve;
	uint64_t left = gm_u64_min(bytes, device->info.total);
	memset(reserve->wanted, 0, sizeof(reserve->wanted));
	while (left >= 2 * GM_CHUNK_MIN) {
		unsigned c = gm_chunk_class(gm_u64_min(left / 2, GM_CHUNK_MAX));
		reserve->wanted[c]++;
		left -= GM_CHUNK_MIN << c;
	}
	if (left >= GM_CHUNK_MIN)
		reserve->wanted[0]++;
	gm_pool_set_reserve(&device->pool, reserve->wanted);

	reserve->short_of = true;
	reserve->retry = (struct gm_backoff){0};
}

/* Used chunks make room for it in the pool. */
static bool reserve_fits(const struct gm_device *device, uint64_t bytes)
{
	const struct gm_ledger *l = &device->ledger;
	uint64_t more = l->unclaimed + bytes;
	return gm_pool_fresh_bytes(&device->pool) + more <= device->pool.max_bytes &&
	       !gm_fd_budget_spare_full(device->env->fds) && device->env->fds->waiting == 0 &&
	       gm_fd_budget_may_open(device->env->fds) &&
	       l->pooled + more + gm_ledger_charged(l) <= gm_device_ceiling(device);
}

/* Whether chunks should be made for it, when it is time. */
static bool reserve_is_wanted(const struct gm_device *device)
{
	const struct gm_env *env = device->env;
	return device->reserve.short_of && !env->stopping && !env->adopting && !device->drain.on &&
	       device->info.transport_fd && device->pressure.level == GM_PRESSURE_LEVEL_LOW;
}

uint64_t gm_reserve_due(const struct gm_device *device)
{
	uint64_t retry_ns = device->reserve.retry.until_ns;
	return reserve_is_wanted(device) && retry_ns ? retry_ns : UINT64_MAX;
}

void gm_reserve_refill(struct gm_device *device)
{
	struct gm_reserve *reserve = &device->reserve;
	if (!reserve_is_wanted(device))
		return;
	if (gm_backoff_holds(&reserve->retry, gm_device_now(device)))
		return;
	reserve->retry.until_ns = 0;

	bool all = true;
	for (unsigned c = GM_CHUNK_CLASSES; c-- > 0;) {
		uint64_t size = GM_CHUNK_MIN << c;
		uint64_t have = reserve->coming[c];
		if (have < reserve->wanted[c])
			have += gm_pool_count(
				&device->pool, GM_TRANSPORT_FD, size, GM_DOMAIN_FRESH);
		uint64_t want = reserve->wanted[c];
		if (device->pool.max_per_bucket)
			want = gm_u64_min(want, device->pool.max_per_bucket);
		for (; have < want; have++) {
			if (!reserve_fits(device, size)) {
				all = false;
				break;
			}
			struct gm_chunk *chunk = gm_device_new_chunk(device, GM_TRANSPORT_FD, size);
			if (!chunk)
				return;
			chunk->reserve = true;
			reserve->coming[c]++;
			gm_ledger_begin_unclaimed(&device->ledger, size);
			gm_fds_move(device->env, chunk, GM_FDS_SPARE, NULL);
			gm_device_create(device, chunk, 0);
		}
	}
	reserve->short_of = !all;
}

void gm_reserve_settle(struct gm_device *device)
{
	gm_device_settle(device);
	gm_reserve_refill(device);
}

void gm_reserve_back_off(struct gm_device *device)
{
	struct gm_reserve *reserve = &device->reserve;
	uint64_t now = gm_device_now(device);
	gm_backoff_begin(&reserve->retry, now, RETRY_FIRST_NS);
	gm_backoff_fail(&reserve->retry, now);
	reserve->short_of = true;
}

void gm_reserve_created(struct gm_device *device, struct gm_chunk *chunk, bool ok)
{
	struct gm_reserve *reserve = &device->reserve;
	unsigned c = gm_chunk_class(chunk->bytes);
	assert(chunk->reserve && reserve->coming[c] > 0);
	chunk->reserve = false;
	reserve->coming[c]--;
	if (!ok) {
		gm_reserve_back_off(device);
		return;
	}
	reserve->retry = (struct gm_backoff){0};
}
