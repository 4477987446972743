/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions: making and ending them, and the allocations in them. region_pause.c pauses and resumes them.
 *
 * An allocation first uses what the heap has. If that is not enough, the region asks the daemon for a
 * large lease, or for what is needed if the device has no more, maps it behind what it has, and lets the
 * heap try again. No lock is held while the daemon is asked: whoever finds the region paused afterwards
 * gives the lease back. A call that waits also takes what other threads free in the region meanwhile.
 */
#include "client/region/region.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "client/buffer/buffer.h"
#include "client/buffer/buffer_make.h"
#include "client/device/map_await.h"
#include "client/device/wait_elsewhere.h"
#include "client/device/map_chunks.h"
#include "client/heap/arena.h"
#include "client/region/region_state.h"
#include "client/grant/session_ask.h"
#include "common/arith.h"
#include "common/cancel.h"
#include "common/clock.h"
#include "common/status_table.h"
#include "common/text/units.h"

/* A region asks for so much at least, if the device has it. */
#define STEP (UINT64_C(256) << 20)

static struct gm_session_device *region_device(const struct gpumem_region *region)
{
	return &region->session->device[region->device];
}

/* ---- what the heap sees */

/* The ground maps its memory itself. */
static int region_map_nothing(void *backend, void *addr, uint64_t bytes, int fd)
{
	return 0;
}

static int region_access_nothing(void *backend, void *addr, uint64_t bytes, bool read_only)
{
	return 0;
}

static int region_unmap_nothing(void *backend, void *addr, uint64_t bytes)
{
	return 0;
}

/* Hands the next piece of the ground to the heap. The region is locked. */
static gpumem_status region_get(void *ctx, struct gm_heap_source_call *call, uint64_t bytes,
	struct gm_heap_source_chunk **ret_chunks, size_t *ret_n)
{
	struct gpumem_region *region = ctx;

	bytes = gm_round_up(bytes, GM_CHUNK_MIN);
	if (bytes > region->ground.mapped - gm_u64_min(region->handed, region->ground.mapped)) {
		region->wanted = bytes <= region->max - region->handed ? bytes : 0;
		return GPUMEM_E_NO_MEMORY;
	}
	struct gm_heap_source_chunk *chunk = calloc(1, sizeof(*chunk));
	if (!chunk)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a piece of a region");

	chunk->id = ++region->serial;
	chunk->bytes = region->last = bytes;
	chunk->fd = -1;
	region->handed += bytes;
	*ret_chunks = chunk;
	*ret_n = 1;
	return GPUMEM_OK;
}

/* Takes a piece back that the heap could not use. At its end, the heap gives all pieces back. */
static void region_put(void *ctx, const uint64_t *ids, size_t n)
{
	struct gpumem_region *region = ctx;

	if (n == 1 && ids[0] == region->serial) {
		region->handed -= region->last;
		region->last = 0;
	}
}

static int region_arena_new(struct gpumem_region *region)
{
	struct gm_session_device *d = region_device(region);

	region->ops = *d->map;
	region->ops.map = region_map_nothing;
	region->ops.access = region_access_nothing;
	region->ops.unmap = region_unmap_nothing;

	const struct gm_arena_config config = {
		.ops = &region->ops,
		.backend = d->backend,
		.source = {.ctx = region, .get = region_get, .put = region_put},
		.reserve = region->ground.room,
		.range = region->ground.base,
		.wake = gm_session_wake,
		.wake_ctx = region->session,
	};
	return gm_arena_new(&config, &region->arena);
}

/* ---- more memory */

struct region_wanted {
	size_t size;
	gpumem_stream stream;
	gpumem_alloc_options options;
	void *ptr;
	bool found; /* ptr came from what another thread freed, while the daemon was asked for more */
};

static int region_try(
	struct gpumem_region *region, struct region_wanted *w, bool easy, gpumem_status *ret_status)
{
	unsigned flags = GM_ARENA_LISTED | GM_ARENA_HERE | (easy ? GM_ARENA_EASY : 0);

	region->wanted = 0;
	return gm_arena_alloc(region->arena, w->size, w->options.alignment, w->stream, flags, NULL,
		&w->ptr, ret_status);
}

/* Another thread changed the region while this one was not looking. */
static gpumem_status region_paused(const struct gpumem_region *region)
{
	return gm_error(GPUMEM_E_BUSY,
		"the region \"%s\" is paused, so nothing can be allocated from it: resume it first",
		region->tag);
}

/* A call that waits for the daemon. */
struct region_search {
	struct gpumem_region *region;
	struct region_wanted *wanted; /* NULL: only the daemon can grant it */
	struct gm_wait_elsewhere elsewhere;
	struct gm_wait_look look;
};

/* Looks in the region, and then where all calls look. The region is not locked. */
static uint64_t region_look(void *ctx)
{
	struct region_search *search = ctx;
	struct gpumem_region *region = search->region;
	struct region_wanted *w = search->wanted;
	uint64_t settle_ns = GM_ARENA_NEVER;
	gpumem_status status;

	if (w && !w->found) {
		gm_lock(&region->lock);
		if (gm_region_active(region)) {
			settle_ns = gm_arena_range_settle(region->arena, gm_clock_ns());
			w->found = region_try(region, w, true, &status) == 0;
		}
		gm_lock_drop(&region->lock);
	}
	if (w && w->found)
		return 0;
	return gm_u64_min(search->elsewhere.look.look(&search->elsewhere), settle_ns);
}

/* Asks for a large lease and, if there is none, for what is needed. */
static gpumem_status region_ask(struct gpumem_region *region, struct region_wanted *wanted,
	uint64_t needed, uint64_t most, uint32_t wait_ms, struct gm_session_lease **ret_lease,
	struct gm_session_chunk **ret_chunks)
{
	struct gpumem_session *session = region->session;
	struct region_search search = {.region = region,
		.wanted = wanted,
		.elsewhere = {.session = session, .device = region->device}};
	uint64_t large = gm_u64_min(gm_round_up(needed, STEP), most), refused = 0;

	struct gm_lease_what what = gm_region_backing_what(&region->ground, region->tag);

	what.refused = &refused;
	gm_retired_settle(session, GM_RETIRED_NO_WAIT);
	if (large > needed) {
		const struct gm_wait brief = {
			.mode = wait_ms == GPUMEM_NO_WAIT ? GM_WAIT_NOT : GM_WAIT_FOR_DAEMON};
		what.bytes = large;
		gpumem_status status =
			gm_session_lease_take(session, &what, &brief, ret_lease, ret_chunks);
		if (status != GPUMEM_E_NO_MEMORY && status != GPUMEM_E_LIMIT)
			return status;
	}

	struct gm_wait wait = gm_wait_elsewhere_wait(&search.elsewhere, wait_ms);
	search.look = (struct gm_wait_look){
		.look = region_look, .ctx = &search, .at_ns = wait.look->at_ns};
	wait.look = &search.look;
	what.bytes = needed;
	return gm_session_lease_take(session, &what, &wait, ret_lease, ret_chunks);
}

/* Gets memory, so that the heap can have so many bytes more, unless the wanted block is found meanwhile.
 * The region is locked; the lock is let go in between. */
static gpumem_status region_grow(
	struct gpumem_region *region, uint64_t bytes, struct region_wanted *wanted)
{
	struct gm_region_backing *ground = &region->ground;
	struct gm_session_lease *lease;
	struct gm_session_chunk *chunks;
	uint64_t needed = bytes - (ground->mapped - region->handed);
	uint64_t most = gm_u64_max(region->max - gm_u64_min(ground->mapped, region->max), needed);

	gm_lock_drop(&region->lock);
	gpumem_status status =
		region_ask(region, wanted, needed, most, wanted->options.wait_ms, &lease, &chunks);
	if (!status && wanted->found)
		gm_region_backing_refuse(ground, lease, chunks);
	gm_lock(&region->lock);
	if (status || wanted->found)
		return wanted->found ? GPUMEM_OK : status;

	/* Another thread may have been faster, so that this is not needed, or is too much: then the heap
	 * says anew what it needs. */
	bool active = gm_region_active(region);
	if (!active || ground->mapped - region->handed >= bytes ||
		ground->mapped + lease->bytes > ground->room) {
		gm_lock_drop(&region->lock);
		gm_region_backing_refuse(ground, lease, chunks);
		gm_lock(&region->lock);
		return active ? GPUMEM_OK : region_paused(region);
	}
	status = gm_region_backing_add(ground, &lease, chunks);
	if (!status) {
		gm_region_count(region);
		return GPUMEM_OK;
	}
	gm_lock_drop(&region->lock);
	gm_region_backing_refuse(ground, lease, NULL);
	gm_lock(&region->lock);
	return status;
}

/* ---- allocations */

static gpumem_status region_failed(const struct gpumem_region *region,
	const struct region_wanted *w, int outcome, gpumem_status refusal)
{
	char size[GM_UNITS_TEXT], max[GM_UNITS_TEXT];
	const char *text = gm_arena_text(outcome);

	gm_format_size(w->size, size);
	gm_format_size(region->max, max);
	if (outcome == GM_ARENA_E_SOURCE && refusal != GPUMEM_E_NO_MEMORY)
		return refusal;
	if (outcome == GM_ARENA_E_SPACE || outcome == GM_ARENA_E_SOURCE)
		return gm_error(GPUMEM_E_LIMIT,
			"cannot allocate %s: the region \"%s\" has no gap that is large enough "
			"below its max_size of %s",
			size, region->tag, max);
	if (outcome < 0 && outcome != -ENOMEM)
		text = gm_map_chunks_error(region_device(region), outcome);
	return gm_error(gm_arena_status(outcome), "cannot allocate %s from the region \"%s\": %s",
		size, region->tag, text ? text : "");
}

/* Allocates, and gets memory for that. The region is locked. */
static gpumem_status region_take(struct gpumem_region *region, struct region_wanted *w)
{
	gpumem_status status = GPUMEM_OK, refusal;
	int r;

	while ((r = region_try(region, w, true, &status)) == GM_ARENA_E_SOURCE && region->wanted) {
		refusal = region_grow(region, region->wanted, w);
		if (w->found)
			return GPUMEM_OK;
		if (!refusal && gm_region_active(region))
			continue;
		if (!gm_region_active(region))
			return region_paused(region);

		/* Without more memory, the stream may have to wait for what was freed. */
		char text[GM_ERROR_BYTES];
		snprintf(text, sizeof(text), "%s", gm_error_text());
		if (region_try(region, w, false, &status) == 0)
			return GPUMEM_OK;
		return gm_error(refusal, "%s", text);
	}
	/* The region is full, but the stream may have to wait for what was freed. */
	if (r == GM_ARENA_E_SPACE || (r == GM_ARENA_E_SOURCE && status == GPUMEM_E_NO_MEMORY))
		r = region_try(region, w, false, &status);
	return r ? region_failed(region, w, r, status) : GPUMEM_OK;
}

static gpumem_status region_captured(const struct gpumem_region *region, gpumem_stream stream)
{
	const struct gm_session_device *d = region_device(region);

	if (stream && stream != GPUMEM_STREAM_ANY && stream != GPUMEM_STREAM_DONE &&
		d->map->captured_into && d->map->captured_into(d->backend, stream))
		return gm_error(GPUMEM_E_BUSY,
			"the stream is being captured into a graph: allocate from the region "
			"\"%s\" before, and free after the graph is gone",
			region->tag);
	return GPUMEM_OK;
}

gpumem_status gpumem_region_alloc(gpumem_region *region, size_t size, gpumem_stream stream,
	const gpumem_alloc_options *options, void **ret_ptr)
{
	struct region_wanted wanted = {
		.size = size, .stream = stream, .options = GPUMEM_ALLOC_OPTIONS_INIT};
	GM_UNCANCELLED;

	if (!region)
		return gm_error(GPUMEM_E_INVALID, "region must not be NULL");
	if (!gm_session_ok(region->session))
		return gm_session_refused(region->session);
	if (!ret_ptr || !size)
		return gm_error(GPUMEM_E_INVALID, "%s",
			ret_ptr ? "size must not be 0" : "ret_ptr must not be NULL");
	gpumem_status status = gm_sized_in(&wanted.options, sizeof(wanted.options), options);
	if (!status)
		status = region_captured(region, stream);
	if (status)
		return status;

	gm_lock(&region->lock);
	status = gm_region_active(region) ? region_take(region, &wanted) : region_paused(region);
	/* Memory that the region could have given back may be in use now. */
	if (!status && region->spare)
		gm_region_count(region);
	gm_lock_drop(&region->lock);
	if (status)
		return status;
	gm_region_tally(region, size, 1);
	*ret_ptr = wanted.ptr;
	return GPUMEM_OK;
}

gpumem_status gpumem_region_free(gpumem_region *region, void *ptr, gpumem_stream stream)
{
	uint64_t size = 0;
	GM_UNCANCELLED;

	if (!region)
		return gm_error(GPUMEM_E_INVALID, "region must not be NULL");
	if (!gm_session_ok(region->session))
		return gm_session_refused(region->session);
	if (!ptr)
		return GPUMEM_OK;
	gpumem_status status = region_captured(region, stream);
	if (status)
		return status;

	/* This changes the books of the heap alone, so the region may be paused. */
	int r = gm_arena_size(region->arena, ptr, &size);
	if (r == 0)
		r = gm_arena_dealloc(region->arena, ptr, stream, NULL);
	if (r)
		return gm_error(gm_arena_status(r), "cannot free %p in the region \"%s\": %s", ptr,
			region->tag, gm_arena_text(r) ? gm_arena_text(r) : "");
	gm_region_tally(region, (size_t)size, -1);
	gm_session_dirty_freed(region->session);
	return GPUMEM_OK;
}

/* ---- beginning and end */

/* Frees a region, which may be half-built. give: its memory goes back. */
static void region_free(struct gpumem_region *region, bool give)
{
	if (!region)
		return;
	/* Waits for the device, if it may still use what was freed. */
	(void)gm_arena_free(region->arena);
	gm_region_backing_deinit(&region->ground, give);
	if (give)
		gm_spill_drop(region->content);
	else
		gm_spill_forget(region->content);
	free(region->pieces);
	gm_lock_deinit(&region->lock);
	free(region);
}

static gpumem_status region_check(struct gpumem_session *session, uint32_t device, const char *tag,
	size_t max_size, const gpumem_region_options *options)
{
	if (device == GPUMEM_DEVICE_HOST)
		return gm_error(
			GPUMEM_E_INVALID, "a region lies on a device: name one, not host memory");
	if (device >= session->counted)
		return gm_session_no_device(session, device);
	if (!tag || !*tag)
		return gm_error(GPUMEM_E_INVALID, "a region needs a tag, by which it is paused");
	gpumem_status status = gm_buffer_tag_check(tag);
	if (status)
		return status;
	if (!max_size || max_size > GM_LEASE_BYTES_MAX)
		return gm_error(GPUMEM_E_INVALID, "max_size must be from 1 to %llu, and is %zu",
			(unsigned long long)GM_LEASE_BYTES_MAX, max_size);
	if (options->initial > max_size)
		return gm_error(GPUMEM_E_INVALID,
			"initial must be at most max_size, %zu, and is %zu", max_size,
			options->initial);
	if (!(session->device[device].info.transports & 1u << GPUMEM_TRANSPORT_FD))
		return gm_error(GPUMEM_E_UNSUPPORTED,
			"device %u has no fd transport, which regions need: its driver cannot map "
			"memory at given addresses",
			device);
	return gm_map_chunks_open(session, device);
}

static gpumem_status region_new(struct gpumem_session *session, uint32_t device, const char *tag,
	size_t max_size, size_t initial, struct gpumem_region **ret_region)
{
	struct gpumem_region *region = calloc(1, sizeof(*region));
	if (!region)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a region");
	gm_lock_init(&region->lock, GM_LOCK_REGION);
	region->session = session;
	region->device = device;
	region->max = gm_round_up(max_size, GM_CHUNK_MIN);
	region->least = gm_round_up(initial, GM_CHUNK_MIN);
	atomic_init(&region->state, GPUMEM_REGION_RESUMING);
	snprintf(region->tag, sizeof(region->tag), "%s", tag);

	gpumem_status status =
		gm_region_backing_init(&region->ground, session, device, region->max);
	if (!status) {
		int r = region_arena_new(region);
		if (r < 0)
			status = gm_error(gm_status_from_errno(r),
				"cannot make the heap of a region: %s", strerror(-r));
	}
	if (status) {
		region_free(region, true);
		return status;
	}
	*ret_region = region;
	return GPUMEM_OK;
}

/* Gets the memory that a new region begins with. The region is still this thread's. */
static gpumem_status region_get_first(struct gpumem_region *region, uint32_t wait_ms)
{
	struct gm_session_lease *lease;
	struct gm_session_chunk *chunks;

	if (!region->least)
		return GPUMEM_OK;
	gpumem_status status =
		region_ask(region, NULL, region->least, region->max, wait_ms, &lease, &chunks);
	if (status)
		return status;
	status = gm_region_backing_add(&region->ground, &lease, chunks);
	if (status)
		gm_region_backing_refuse(&region->ground, lease, NULL);
	return status;
}

gpumem_status gpumem_region_create(gpumem_session *session, uint32_t device, const char *tag,
	size_t max_size, const gpumem_region_options *options, gpumem_region **ret_region)
{
	gpumem_region_options given = GPUMEM_REGION_OPTIONS_INIT;
	struct gpumem_region *region = NULL;
	GM_UNCANCELLED;

	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!ret_region)
		return gm_error(GPUMEM_E_INVALID, "ret_region must not be NULL");
	gpumem_status status = gm_sized_in(&given, sizeof(given), options);
	if (!status)
		status = region_check(session, device, tag, max_size, &given);
	if (!status)
		status = region_new(session, device, tag, max_size, given.initial, &region);
	if (status)
		return status;

	status = gm_region_enlist(region);
	if (status) {
		region_free(region, true);
		return status;
	}
	status = region_get_first(region, given.wait_ms);
	if (status) {
		char text[GM_ERROR_BYTES];
		snprintf(text, sizeof(text), "%s", gm_error_text());
		gpumem_region_destroy(region);
		return gm_error(status, "%s", text);
	}
	/* From here on, others may use it by its tag. */
	gm_region_end(region, GPUMEM_REGION_ACTIVE);
	*ret_region = region;
	return GPUMEM_OK;
}

void gpumem_region_destroy(gpumem_region *region)
{
	GM_UNCANCELLED;

	/* In a forked child there is nothing to end. */
	if (!region || !gm_session_ok(region->session))
		return;
	/* If no event can be recorded, nobody can know, and this does not wait. */
	if (region->ground.mapped)
		(void)gm_map_await_stream(region_device(region), GPUMEM_STREAM_ANY);
	gm_region_unlist(region);
	region_free(region, true);
}

int gm_region_list_init(struct gpumem_session *session)
{
	session->regions = calloc(1, sizeof(*session->regions));
	if (!session->regions)
		return -ENOMEM;
	gm_lock_init(&session->regions->walking, GM_LOCK_WALKING);
	return 0;
}

void gm_region_drop_all(struct gpumem_session *session)
{
	struct gpumem_region *region, *tmp;

	if (!session->regions)
		return;
	DL_FOREACH_SAFE (session->regions->first, region, tmp)
		region_free(region, false);
	gm_lock_deinit(&session->regions->walking);
	free(session->regions);
	session->regions = NULL;
}
