/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The regions of a session: their list, their states, what they count as, and what others see of them in
 * the client's page. This file must never ask the daemon for memory, nor give any back.
 */
#include "client/region/region_state.h"

#include <string.h>
#include <utlist.h>

#include "client/device/account_use.h"
#include "client/heap/arena.h"
#include "common/arith.h"
#include "common/wire/page.h"
#include "common/status_table.h"

static struct gm_session_device *region_state_device(const struct gpumem_region *region)
{
	return &region->session->device[region->device];
}

/* ---- figures and rows */

struct gpumem_region *gm_region_find(struct gpumem_session *session, const char *tag)
{
	struct gpumem_region *region;

	DL_FOREACH (session->regions->first, region)
		if (strcmp(region->tag, tag) == 0)
			return region;
	return NULL;
}

static gpumem_status region_no_such(const char *tag)
{
	return gm_error(
		GPUMEM_E_NOT_FOUND, "this session has no region \"%.63s\": create it first", tag);
}

/* Locked: the session. The row of a paused region says how much its content takes in host memory or, if
 * that was dropped, how much the region will need; 1 stands for nothing, because a row without bytes is
 * none. An active region without memory has no row. */
static void region_relist(struct gpumem_region *region)
{
	struct gm_session_pages *pages = &region->session->pages;
	bool paused = region->paused && !region->counted;
	uint64_t gone = region->kept ? region->kept : gm_u64_max(region->needed, 1);
	uint64_t bytes = paused ? gone : region->counted;
	const struct gm_page_growth growth = {
		.used = gm_u64_min(region->in_use, bytes),
		.max = (uint32_t)(region->max / GM_CHUNK_MIN),
		.use_known = 1,
	};

	if (!bytes) {
		gm_session_pages_row_remove(pages, region->device, region->row);
		region->row = 0;
		return;
	}
	if (!region->row) {
		region->row = gm_session_pages_row_add(pages, region->device, bytes, region->tag);
		gm_session_pages_row_note(pages, region->row,
			&(struct gm_pages_about){.ptr = region->ground.base, .type = "region"});
	}
	gm_session_pages_row_size(pages, region->row, region->ground.base, bytes, &growth);
	gm_session_pages_row_place(pages, region->row,
		(paused ? GM_PAGE_PLACE_PAUSED : 0) |
			(paused && region->kept ? GM_PAGE_PLACE_HOST : 0));
}

/* Locked: the session. */
static void region_count_kept(struct gpumem_region *region, uint64_t kept, uint64_t held)
{
	struct gm_session_device *host = &region->session->device[region->session->counted];

	if (kept == region->kept && held == region->kept_held)
		return;
	host->buffer_held += held - region->kept_held;
	host->buffer_in_use += kept - region->kept;
	region->kept = kept;
	region->kept_held = held;
}

void gm_region_count(struct gpumem_region *region)
{
	struct gpumem_session *session = region->session;
	struct gm_session_device *d = region_state_device(region);
	const struct gm_spill *content = region->content;
	uint64_t bytes = region->ground.mapped;
	uint64_t used = bytes ? gm_arena_range_used(region->arena) : 0;
	uint64_t spare = gm_region_backing_spare(&region->ground, gm_u64_max(used, region->least));

	gm_lock(&session->lock);
	if (bytes > region->counted)
		d->buffer_misses++;
	else if (bytes < region->counted)
		d->buffer_returns += region->counted_chunks - region->ground.chunks;
	d->buffer_held += bytes - region->counted;
	d->buffer_in_use += (bytes - spare) - (region->counted - region->spare);
	d->buffer_unused += spare - region->spare;
	region->counted = bytes;
	region->counted_chunks = region->ground.chunks;
	region->spare = spare;
	region_count_kept(region, content ? content->bytes : 0, content ? content->mapped : 0);
	region_relist(region);
	gm_lock_drop(&session->lock);

	(void)gm_page_publish_use(session, region->device);
	if (session->counted < session->devices)
		(void)gm_page_publish_use(session, session->counted);
}

void gm_region_tally(struct gpumem_region *region, uint64_t size, int sign)
{
	struct gpumem_session *session = region->session;

	gm_lock(&session->lock);
	region->in_use = sign > 0 ? region->in_use + size : region->in_use - size;
	region->peak = gm_u64_max(region->peak, region->in_use);
	region->allocations += sign > 0 ? 1 : UINT64_MAX;
	region_relist(region);
	gm_lock_drop(&session->lock);
}

/* ---- the list */

gpumem_status gm_region_enlist(struct gpumem_region *region)
{
	struct gpumem_session *session = region->session;

	gm_lock(&session->regions->walking);
	gm_lock(&session->lock);
	bool taken = gm_region_find(session, region->tag) != NULL;
	if (!taken) {
		DL_APPEND(session->regions->first, region);
		region_state_device(region)->buffers++;
	}
	gm_lock_drop(&session->lock);
	gm_lock_drop(&session->regions->walking);
	if (taken)
		return gm_error(GPUMEM_E_BUSY,
			"this session has a region \"%s\" already: destroy it first, or use "
			"another tag",
			region->tag);
	return GPUMEM_OK;
}

void gm_region_unlist(struct gpumem_region *region)
{
	struct gpumem_session *session = region->session;
	struct gm_session_device *d = region_state_device(region);

	gm_lock(&session->regions->walking);
	gm_lock(&session->lock);
	DL_DELETE(session->regions->first, region);
	d->buffers--;
	d->buffer_held -= region->counted;
	d->buffer_in_use -= region->counted - region->spare;
	d->buffer_unused -= region->spare;
	d->buffer_returns += region->counted_chunks;
	region_count_kept(region, 0, 0);
	gm_session_pages_row_remove(&session->pages, region->device, region->row);
	gm_lock_drop(&session->lock);
	gm_lock_drop(&session->regions->walking);

	(void)gm_page_publish_use(session, region->device);
	if (session->counted < session->devices)
		(void)gm_page_publish_use(session, session->counted);
}

/* ---- states */

static gpumem_status region_not_in(const struct gpumem_region *region, gpumem_region_state state)
{
	switch (state) {
	case GPUMEM_REGION_PAUSING:
	case GPUMEM_REGION_RESUMING:
		return gm_error(GPUMEM_E_BUSY, "another thread is %s the region \"%s\"",
			!region->made                    ? "making"
			: state == GPUMEM_REGION_PAUSING ? "pausing"
							 : "resuming",
			region->tag);
	case GPUMEM_REGION_PAUSED:
		return gm_error(
			GPUMEM_E_INVALID, "the region \"%s\" is paused already", region->tag);
	default:
		return gm_error(GPUMEM_E_INVALID,
			"the region \"%s\" is not paused, so it cannot be resumed", region->tag);
	}
}

gpumem_status gm_region_begin(struct gpumem_session *session, const char *tag,
	gpumem_region_state from, gpumem_region_state to, struct gpumem_region **ret_region)
{
	gm_lock(&session->lock);
	struct gpumem_region *region = gm_region_find(session, tag);
	gpumem_status status = GPUMEM_OK;
	if (!region)
		status = region_no_such(tag);
	else if (atomic_load(&region->state) != from)
		status = region_not_in(region, atomic_load(&region->state));
	else
		atomic_store(&region->state, to);
	gm_lock_drop(&session->lock);
	if (status)
		return status;

	/* A thread that allocates has seen the new state, or has finished. */
	gm_lock(&region->lock);
	gm_lock_drop(&region->lock);
	*ret_region = region;
	return GPUMEM_OK;
}

void gm_region_end(struct gpumem_region *region, gpumem_region_state state)
{
	struct gpumem_session *session = region->session;

	gm_lock(&session->lock);
	if (state == GPUMEM_REGION_PAUSED && atomic_load(&region->state) == GPUMEM_REGION_PAUSING)
		region->pauses++;
	region->paused = state == GPUMEM_REGION_PAUSED;
	region->needed = region->paused ? region->handed : 0;
	gm_lock_drop(&session->lock);
	gm_region_count(region);

	/* From here on, the region is no longer this thread's. */
	gm_lock(&session->lock);
	region->made = true;
	atomic_store(&region->state, state);
	gm_lock_drop(&session->lock);
}

gpumem_status gpumem_region_stats(
	gpumem_session *session, const char *tag, gpumem_region_stats_t *ret_stats)
{
	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!tag || !ret_stats)
		return gm_error(GPUMEM_E_INVALID, "%s must not be NULL", tag ? "ret_stats" : "tag");

	gpumem_region_stats_t stats = GPUMEM_REGION_STATS_INIT;
	gm_lock(&session->lock);
	const struct gpumem_region *region = gm_region_find(session, tag);
	if (region) {
		stats.state = atomic_load(&region->state);
		stats.device = gm_session_device_name(session, region->device);
		stats.max_size = region->max;
		stats.held = region->counted;
		stats.in_use = region->in_use;
		stats.peak = region->peak;
		stats.needed = region->needed;
		stats.kept = region->kept;
		stats.allocations = region->allocations;
		stats.pauses = region->pauses;
	}
	gm_lock_drop(&session->lock);
	return region ? gm_sized_out(ret_stats, &stats, sizeof(stats)) : region_no_such(tag);
}
