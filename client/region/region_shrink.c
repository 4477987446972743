/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives back what regions no longer use. A region has memory from its start on, without a hole, so only
 * whole leases at its end can go. This file promises that no memory goes back that is allocated, or
 * that the device may still use. It must never wait for the device.
 */
#include "client/region/region_shrink.h"

#include <utlist.h>

#include "client/heap/arena.h"
#include "client/region/region_state.h"
#include "common/arith.h"
#include "common/clock.h"

void gm_region_cut(struct gpumem_region *region)
{
	region->handed = gm_arena_range_cut(region->arena);
	region->last = 0;
}

static uint64_t region_shrink(struct gpumem_region *region, uint64_t bytes)
{
	struct gm_region_backing_lease *gone = NULL;
	uint64_t returned = 0;
	size_t n = 0;

	gm_lock(&region->lock);
	if (gm_region_active(region) && region->ground.mapped) {
		(void)gm_arena_range_settle(region->arena, gm_clock_ns());
		gm_region_cut(region);
		returned = gm_region_backing_shrink(&region->ground,
			gm_u64_max(region->handed, region->least), bytes, &gone, &n);
		gm_region_count(region);
	}
	gm_lock_drop(&region->lock);

	gm_region_backing_give(region->session, gone, n);
	return returned;
}

uint64_t gm_region_trim(struct gpumem_session *session, uint32_t device, uint64_t bytes)
{
	struct gpumem_region *region;
	uint64_t returned = 0;

	gm_lock(&session->regions->walking);
	DL_FOREACH (session->regions->first, region)
		if (region->device == device && returned < bytes)
			returned += region_shrink(region, bytes - returned);
	gm_lock_drop(&session->regions->walking);
	return returned;
}

/* Counts what a region could give back, if that has changed. */
static void region_shrink_recount(struct gpumem_region *region)
{
	gm_lock(&region->lock);
	if (gm_region_active(region) && region->ground.mapped) {
		uint64_t used = gm_arena_range_used(region->arena);

		/* Only threads that have the region's lock change its spare. */
		if (region->spare !=
			gm_region_backing_spare(&region->ground, gm_u64_max(used, region->least)))
			gm_region_count(region);
	}
	gm_lock_drop(&region->lock);
}

void gm_region_recount(struct gpumem_session *session, uint32_t device)
{
	struct gpumem_region *region;

	gm_lock(&session->regions->walking);
	DL_FOREACH (session->regions->first, region)
		if (region->device == device)
			region_shrink_recount(region);
	gm_lock_drop(&session->regions->walking);
}

uint64_t gm_region_tick(struct gpumem_session *session, uint64_t now_ns)
{
	struct gpumem_region *region;
	uint64_t next = GM_ARENA_NEVER;

	gm_lock(&session->regions->walking);
	DL_FOREACH (session->regions->first, region) {
		next = gm_u64_min(next, gm_arena_range_tick(region->arena, now_ns));
		region_shrink_recount(region);
	}
	gm_lock_drop(&session->regions->walking);
	return next;
}
