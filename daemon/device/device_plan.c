/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans a lease: which chunks it gets, and which of them come from the pool. This file promises
 * that whatever fits the budget gets a plan (powers of two from 2 MiB make up any size), that no
 * plan passes the budget, and that a plan has few chunks, because mapping costs the client by the
 * chunk. It must never change the pool.
 */
#include "daemon/device/device_plan.h"

#include <assert.h>

#include "common/arith.h"

#define SLACK_PART 64

uint64_t gm_device_plan_exact(uint64_t bytes)
{
	return gm_round_up(bytes, GM_CHUNK_MIN);
}

uint64_t gm_device_plan_ipc_class(uint64_t bytes)
{
	uint64_t exact = gm_device_plan_exact(bytes);
	uint64_t quarter = (UINT64_C(1) << (63 - __builtin_clzll(exact))) / 4;
	return gm_round_up(exact, quarter > GM_CHUNK_MIN ? quarter : GM_CHUNK_MIN);
}

/* The fewest powers of two that add up to bytes, which are whole 2 MiB. */
static uint64_t device_plan_chunks_of(uint64_t bytes)
{
	return bytes / GM_CHUNK_MAX + (uint64_t)__builtin_popcountll(bytes % GM_CHUNK_MAX);
}

/* Rounds up by at most 1/64 where that saves chunks, within the budget. */
static uint64_t device_plan_round(uint64_t exact, uint64_t budget)
{
	uint64_t best = exact;
	for (unsigned shift = GM_CHUNK_MIN_SHIFT + 1; shift <= GM_CHUNK_MAX_SHIFT; shift++) {
		uint64_t rounded = gm_round_up(exact, UINT64_C(1) << shift);
		if (rounded - exact > exact / SLACK_PART || rounded > budget)
			break;
		if (device_plan_chunks_of(rounded) < device_plan_chunks_of(best))
			best = rounded;
	}
	return best;
}

static void device_plan_ipc(const struct gm_pool *pool, gm_domain domain, uint64_t bytes,
	uint64_t budget, struct gm_device_plan *plan)
{
	plan->classes = 1;
	plan->bytes = gm_device_plan_ipc_class(bytes);
	if (plan->bytes > budget)
		plan->bytes = gm_device_plan_exact(bytes);

	plan->size[0] = plan->bytes;
	if (gm_pool_count(pool, GM_TRANSPORT_IPC, plan->bytes, domain))
		plan->n_pooled = plan->pooled[0] = 1;
	else
		plan->n_created = plan->created[0] = 1;
}

static void device_plan_fd(const struct gm_pool *pool, gm_domain domain, uint64_t bytes,
	uint64_t budget, struct gm_device_plan *plan)
{
	plan->bytes = device_plan_round(gm_device_plan_exact(bytes), budget);
	plan->classes = gm_chunk_class(gm_u64_min(plan->bytes, GM_CHUNK_MAX)) + 1;

	uint64_t left = plan->bytes;
	uint64_t have[GM_CHUNK_CLASSES] = {0};
	for (unsigned c = plan->classes; c-- > 0;) {
		uint64_t size = plan->size[c] = GM_CHUNK_MIN << c;
		if (size > left || pool->chunks == 0)
			continue;
		have[c] = gm_pool_count(pool, GM_TRANSPORT_FD, size, domain);
		if (size < plan->bytes / SLACK_PART)
			continue;
		uint64_t n = gm_u64_min(left / size, have[c]);
		plan->pooled[c] += (uint32_t)n;
		plan->n_pooled += (uint32_t)n;
		have[c] -= n;
		left -= n * size;
	}

	for (unsigned c = plan->classes; c-- > 0 && left > 0;) {
		uint64_t size = plan->size[c];
		uint64_t n = left / size;
		uint64_t from_pool = gm_u64_min(n, have[c]);
		plan->pooled[c] += (uint32_t)from_pool;
		plan->n_pooled += (uint32_t)from_pool;
		plan->created[c] += (uint32_t)(n - from_pool);
		plan->n_created += (uint32_t)(n - from_pool);
		left -= n * size;
	}
	assert(left == 0);
}

void gm_device_plan_one(uint64_t bytes, struct gm_device_plan *ret_plan)
{
	assert(bytes > 0 && bytes % GM_CHUNK_MIN == 0);
	*ret_plan = (struct gm_device_plan){.bytes = bytes, .classes = 1, .n_created = 1};
	ret_plan->size[0] = bytes;
	ret_plan->created[0] = 1;
}

int gm_device_plan_make(const struct gm_pool *pool, enum gm_transport transport, gm_domain domain,
	uint64_t bytes, uint64_t budget, struct gm_device_plan *ret_plan)
{
	assert(bytes > 0 && bytes <= GM_LEASE_BYTES_MAX);
	if (gm_device_plan_exact(bytes) > budget)
		return GM_DEVICE_PLAN_E_NO_ROOM;

	*ret_plan = (struct gm_device_plan){0};
	if (transport == GM_TRANSPORT_IPC)
		device_plan_ipc(pool, domain, bytes, budget, ret_plan);
	else
		device_plan_fd(pool, domain, bytes, budget, ret_plan);
	return 0;
}
