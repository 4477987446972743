/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The figures of a device: the sums of what the heap and the buffers count. They are read when
 * somebody asks for them. They are published in the client's page when buffers come and go, and by
 * the library's thread while they change. The hot path has no part in this.
 */
#include "client/device/account_use.h"

#include "client/heap/arena.h"
#include "common/arith.h"

/* Returns the figures that the daemon gets, and how much the client is charged for. */
static struct gm_page_use account_use_collect(
	struct gpumem_session *session, uint32_t device, uint64_t *ret_allocated)
{
	struct gm_session_device *d = &session->device[device];
	struct gm_arena *arena = atomic_load_explicit(&d->arena, memory_order_acquire);
	struct gm_arena_stats heap = {0};

	if (arena)
		gm_arena_stats(arena, &heap);

	gm_lock(&session->lock);
	uint64_t in_use = heap.in_use + d->buffer_in_use;
	/* The peaks of heap and buffers may lie at different times, so they are not added: only
	 * sums that were really seen count. */
	d->peak = gm_u64_max(d->peak, gm_u64_max(in_use, heap.peak));
	struct gm_page_use use = {
		.in_use = in_use - d->buffer_opened,
		.cached = heap.cached + d->buffer_unused,
		.peak = d->peak,
		.hits = heap.hits,
		.misses = heap.misses + d->buffer_misses,
		.returns = heap.returns + d->buffer_returns,
		.cpu_fallbacks = d->fallbacks,
		.active_buffers = heap.active + d->buffers,
		.slack = heap.slack + d->buffer_held - d->buffer_unused -
			 (d->buffer_in_use - d->buffer_opened),
		.opened = d->buffer_opened,
		.evictable = d->evictable,
		.in_host = d->in_host,
		.passed = d->passed,
	};
	*ret_allocated = heap.held + d->buffer_held;
	gm_lock_drop(&session->lock);
	return use;
}

void gm_page_read_use(struct gpumem_session *session, uint32_t device, gpumem_stats_t *ret_stats)
{
	uint64_t allocated;
	const struct gm_page_use use = account_use_collect(session, device, &allocated);
	uint64_t asked = use.hits + use.misses;

	*ret_stats = (gpumem_stats_t){
		.size = sizeof(*ret_stats),
		.allocated = allocated,
		.in_use = use.in_use + use.opened,
		.pooled = use.cached,
		.peak = use.peak,
		.hits = use.hits,
		.misses = use.misses,
		.hit_rate = asked ? (double)use.hits / (double)asked : 0,
		.returns = use.returns,
		.cpu_fallbacks = use.cpu_fallbacks,
		.active_buffers = use.active_buffers,
		.slack = use.slack,
	};
}

bool gm_page_publish_use(struct gpumem_session *session, uint32_t device)
{
	uint64_t allocated;
	const struct gm_page_use use = account_use_collect(session, device, &allocated);

	return gm_session_pages_use(&session->pages, device, &use);
}

gpumem_status gpumem_count_passed(gpumem_session *session, uint32_t name, uint64_t calls)
{
	uint32_t device;

	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!gm_session_find_device(session, name, &device))
		return gm_session_no_device(session, name);
	gm_lock(&session->lock);
	session->device[device].passed += calls;
	gm_lock_drop(&session->lock);
	gm_session_dirty(session);
	return GPUMEM_OK;
}
