/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The figures of a device: the sums of what the heap and the buffers count. They are read when
 * somebody asks for them. They are published in the client's page when buffers come and go, and by
 * the library's thread while they change. The hot path has no part in this.
 */
#include "client/device/use.h"

#include <string.h>

#include "client/heap/arena.h"

/* What a program learns, and what only the daemon does. */
struct use_figures {
	gpumem_stats_t stats;
	uint64_t opened; /* part of in_use: bytes that other processes pay for */
	uint64_t evictable, in_host, passed;
};

static void use_collect(
	struct gpumem_session *session, uint32_t device, struct use_figures *ret_figures)
{
	struct gm_session_device *d = &session->device[device];
	struct gm_arena *arena = atomic_load_explicit(&d->arena, memory_order_acquire);
	struct gm_arena_stats heap = {0};

	if (arena)
		gm_arena_stats(arena, &heap);

	gpumem_stats_t stats = {.size = sizeof(stats)};
	pthread_mutex_lock(&session->lock);
	stats.allocated = heap.held + d->buffer_held;
	stats.in_use = heap.in_use + d->buffer_in_use;
	stats.pooled = heap.cached + d->buffer_unused;
	stats.slack = heap.slack + d->buffer_held - d->buffer_unused -
		      (d->buffer_in_use - d->buffer_opened);
	/* The peaks of heap and buffers may lie at different times, so they are not added: only
	 * sums that were really seen count. */
	if (stats.in_use > d->peak)
		d->peak = stats.in_use;
	if (heap.peak > d->peak)
		d->peak = heap.peak;
	stats.peak = d->peak;
	stats.hits = heap.hits;
	stats.misses = heap.misses + d->buffer_misses;
	stats.returns = heap.returns + d->buffer_returns;
	stats.active_buffers = heap.active + d->buffers;
	ret_figures->opened = d->buffer_opened;
	ret_figures->evictable = d->evictable;
	ret_figures->in_host = d->in_host;
	ret_figures->passed = d->passed;
	stats.cpu_fallbacks = d->fallbacks;
	pthread_mutex_unlock(&session->lock);

	uint64_t asked = stats.hits + stats.misses;
	stats.hit_rate = asked ? (double)stats.hits / (double)asked : 0;
	ret_figures->stats = stats;
}

void gm_use_read(struct gpumem_session *session, uint32_t device, gpumem_stats_t *ret_stats)
{
	struct use_figures figures;

	use_collect(session, device, &figures);
	*ret_stats = figures.stats;
}

bool gm_use_publish(struct gpumem_session *session, uint32_t device)
{
	struct use_figures figures;
	const gpumem_stats_t *stats = &figures.stats;

	use_collect(session, device, &figures);
	struct gm_page_use use = {
		.in_use = stats->in_use - figures.opened,
		.cached = stats->pooled,
		.peak = stats->peak,
		.hits = stats->hits,
		.misses = stats->misses,
		.returns = stats->returns,
		.active_buffers = stats->active_buffers,
		.slack = stats->slack,
		.opened = figures.opened,
		.evictable = figures.evictable,
		.in_host = figures.in_host,
		.cpu_fallbacks = stats->cpu_fallbacks,
		.passed = figures.passed,
	};
	return gm_session_pages_use(&session->pages, device, &use);
}

gpumem_status gpumem_count_passed(gpumem_session *session, uint32_t name, uint64_t calls)
{
	uint32_t device;

	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!gm_session_find_device(session, name, &device))
		return gm_session_no_device(session, name);
	pthread_mutex_lock(&session->lock);
	session->device[device].passed += calls;
	pthread_mutex_unlock(&session->lock);
	gm_session_stir(session);
	return GPUMEM_OK;
}
