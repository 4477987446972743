/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pauses and resumes regions. This file promises that a pause or a resume that fails leaves the region as
 * it was, and that no memory goes back while the device may use it. While a region is being paused
 * or resumed, its ground belongs to the thread that does so, and no lock is held.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/buffer/buffer.h"
#include "client/device/map_await.h"
#include "client/device/wait_elsewhere.h"
#include "client/device/map_chunks.h"
#include "client/heap/arena.h"
#include "client/region/region_shrink.h"
#include "client/region/region_state.h"
#include "client/grant/session_ask.h"
#include "common/arith.h"
#include "common/cancel.h"
#include "common/clock.h"

/* One copy of so many bytes takes about as long as beginning another. */
#define PAUSE_GAP (UINT64_C(4) << 20)
/* So long a pause waits for work on other GPUs at most: a kernel there may run for ever. */
#define PAUSE_OTHERS_NS (5 * GM_NS_PER_S)

static gpumem_status pause_await(const struct gpumem_region *region)
{
	const struct gm_session_device *d = &region->session->device[region->device];

	/* An event for what was freed, so that it is settled once all work is done. */
	(void)gm_arena_range_settle(region->arena, gm_clock_ns());
	int r = gm_map_await_stream(d, GPUMEM_STREAM_ANY);
	(void)gm_arena_range_settle(region->arena, gm_clock_ns());

	if (r == -EAGAIN)
		return gm_error(GPUMEM_E_BUSY,
			"a stream is being captured into a graph, so nobody can know when its work "
			"is done: pause the region \"%s\" after the capture",
			region->tag);
	if (r < 0)
		return gm_error(GPUMEM_E_SYSTEM,
			"cannot wait for the work on the region \"%s\", so it is not paused: %s",
			region->tag, gm_map_chunks_error(d, r));
	return GPUMEM_OK;
}

/* The content is on the device. The sentence about an error stays as it is. */
static void pause_forget(struct gpumem_region *region)
{
	char text[GM_ERROR_BYTES];

	snprintf(text, sizeof(text), "%s", gm_error_text());
	gm_spill_drop(region->content);
	free(region->pieces);
	region->content = NULL;
	region->pieces = NULL;
	region->n_pieces = 0;
	(void)gm_error(GPUMEM_OK, "%s", text);
}

/* Copies the pieces to host memory. */
static gpumem_status pause_copy_out(struct gpumem_region *region, const struct gm_spill_part *parts)
{
	struct gpumem_session *session = region->session;
	/* Host memory that is short now may come soon, if the daemon lets requests wait. */
	const struct gm_wait wait = {.mode = GM_WAIT_AS_CONFIGURED};

	/* The content that the last resume brought back may still have its host memory, on its way to the daemon. */
	gm_retired_settle(session, GM_RETIRED_NO_WAIT);
	/* The library's thread may bring it there just after the daemon has refused. */
	const bool coming = atomic_load(&session->retired->n);
	gpumem_status status = gm_spill_out_parts(session, region->device, parts, region->n_pieces,
		region->tag, &wait, &region->content);
	if ((status != GPUMEM_E_NO_MEMORY && status != GPUMEM_E_LIMIT) || !coming)
		return status;

	/* Work on another GPU may keep it, which this pause has not waited for yet. */
	if (gm_map_await_stream_until(&session->device[session->counted], GPUMEM_STREAM_ANY,
		    gm_clock_ns() + PAUSE_OTHERS_NS) < 0)
		return status;
	gm_retired_settle(session, GM_RETIRED_NO_WAIT);
	return gm_spill_out_parts(session, region->device, parts, region->n_pieces, region->tag,
		&wait, &region->content);
}

/* Copies what is allocated to host memory. */
static gpumem_status pause_keep(struct gpumem_region *region)
{
	struct gm_spill_part *parts = NULL;
	gpumem_status status = gm_spill_check(region->session, region->device);

	if (status)
		return status;
	int r = gm_arena_range_live(region->arena, PAUSE_GAP, &region->pieces, &region->n_pieces);
	if (r == 0 && !region->n_pieces)
		return GPUMEM_OK;
	if (r == 0)
		parts = calloc(region->n_pieces, sizeof(*parts));
	if (!parts)
		return gm_error(GPUMEM_E_HOST_MEMORY,
			"no memory to list what is allocated from the region \"%s\"", region->tag);
	for (size_t i = 0; i < region->n_pieces; i++)
		parts[i] = (struct gm_spill_part){
			region->ground.base + region->pieces[i].offset, region->pieces[i].bytes};

	status = pause_copy_out(region, parts);
	free(parts);
	return status;
}

static gpumem_status pause_run(struct gpumem_region *region, gpumem_region_content content)
{
	gpumem_status status;

	if (!region->ground.mapped)
		return GPUMEM_OK;
	status = pause_await(region);
	if (status)
		return status;
	/* What is free at the end is neither kept nor asked for again. */
	gm_region_cut(region);
	if (content == GPUMEM_REGION_KEEP)
		status = pause_keep(region);
	if (!status)
		status = gm_region_backing_clear(&region->ground);
	if (status)
		pause_forget(region);
	return status;
}

gpumem_status gpumem_region_pause(
	gpumem_session *session, const char *tag, gpumem_region_content content)
{
	struct gpumem_region *region;
	GM_UNCANCELLED;

	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!tag)
		return gm_error(GPUMEM_E_INVALID, "tag must not be NULL");
	if (content != GPUMEM_REGION_DROP && content != GPUMEM_REGION_KEEP)
		return gm_error(
			GPUMEM_E_INVALID, "content must be drop or keep, and is %d", (int)content);
	gpumem_status status =
		gm_region_begin(session, tag, GPUMEM_REGION_ACTIVE, GPUMEM_REGION_PAUSING, &region);
	if (status)
		return status;
	status = pause_run(region, content);
	gm_region_end(region, status ? GPUMEM_REGION_ACTIVE : GPUMEM_REGION_PAUSED);
	return status;
}

/* Gets memory for everything that the heap has, all or none. */
static gpumem_status pause_get_memory(struct gpumem_region *region, uint32_t wait_ms)
{
	struct gm_wait_elsewhere elsewhere = {.session = region->session, .device = region->device};
	struct gm_session_lease *lease;
	struct gm_session_chunk *chunks;

	gm_retired_settle(region->session, GM_RETIRED_NO_WAIT);
	const struct gm_wait wait = gm_wait_elsewhere_wait(&elsewhere, wait_ms);
	struct gm_lease_what what = gm_region_backing_what(&region->ground, region->tag);
	what.bytes = region->handed;
	gpumem_status status =
		gm_session_lease_take(region->session, &what, &wait, &lease, &chunks);
	if (status)
		return status;
	status = gm_region_backing_add(&region->ground, &lease, chunks);
	if (status)
		gm_region_backing_refuse(&region->ground, lease, NULL);
	return status;
}

/* The content stays where it is, and the memory that was to get it goes back. */
static gpumem_status pause_stay(struct gpumem_region *region, gpumem_status status)
{
	char text[GM_ERROR_BYTES];

	snprintf(text, sizeof(text), "%s", gm_error_text());
	if (gm_region_backing_clear(&region->ground))
		atomic_store(&region->session->kept, true);
	return gm_error(status, "%s", text);
}

/* Copies the content back. What was freed while the region was paused may have no memory any more. */
static gpumem_status pause_bring_back(struct gpumem_region *region)
{
	uint64_t at = 0;
	gpumem_status status = GPUMEM_OK;

	for (size_t i = 0; !status && i < region->n_pieces; i++) {
		const struct gm_arena_piece *piece = &region->pieces[i];
		uint64_t end = gm_u64_min(piece->offset + piece->bytes, region->ground.mapped);
		const struct gm_spill_part part = {
			region->ground.base + piece->offset, gm_u64_minus(end, piece->offset)};

		if (part.bytes)
			status = gm_spill_in_part(region->content, at, &part);
		at += piece->bytes;
	}
	return status;
}

static gpumem_status pause_undo(struct gpumem_region *region, uint32_t wait_ms)
{
	/* Something may have been freed meanwhile. */
	if (!region->ground.mapped) {
		(void)gm_arena_range_settle(region->arena, gm_clock_ns());
		gm_region_cut(region);
	}
	if (!region->handed) {
		pause_forget(region);
		return GPUMEM_OK;
	}
	/* An earlier resume may have left it, because the driver did not unmap it. */
	gpumem_status status =
		region->ground.mapped ? GPUMEM_OK : pause_get_memory(region, wait_ms);
	if (status || !region->content)
		return status;
	status = pause_bring_back(region);
	if (status)
		return pause_stay(region, status);
	pause_forget(region);
	return GPUMEM_OK;
}

gpumem_status gpumem_region_resume(gpumem_session *session, const char *tag, uint32_t wait_ms)
{
	struct gpumem_region *region;
	GM_UNCANCELLED;

	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!tag)
		return gm_error(GPUMEM_E_INVALID, "tag must not be NULL");
	gpumem_status status = gm_region_begin(
		session, tag, GPUMEM_REGION_PAUSED, GPUMEM_REGION_RESUMING, &region);
	if (status)
		return status;
	status = pause_undo(region, wait_ms);
	gm_region_end(region, status ? GPUMEM_REGION_PAUSED : GPUMEM_REGION_ACTIVE);
	return status;
}
