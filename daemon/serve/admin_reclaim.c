/* SPDX-License-Identifier: Apache-2.0 */
/* The job behind all requests that get memory back by hand. */
#include "daemon/serve/admin_reclaim.h"

#include <stdlib.h>

#include <utlist.h>

void gm_admin_reclaim_free(struct gm_admin_reclaim *job)
{
	if (job->listed)
		DL_DELETE(job->head.serve->reclaims, job);
	free(job->owned);
	free(job);
}

/* The stream has ended. A job that waits is freed by gm_admin_reclaim_peer_closed(), or becomes a stream again. */
static void reclaim_free_stream(struct gm_stream *stream)
{
	struct gm_admin_reclaim *job = (struct gm_admin_reclaim *)stream;

	if (!job->waiting)
		gm_admin_reclaim_free(job);
}

/* Does slices until the turn is over. Returns 0, or a negative errno: the request is refused. */
static int reclaim_work(struct gm_admin_reclaim *job, struct gm_peer *peer)
{
	int r;

	do
		r = job->way->slice(job, peer);
	while (r > 0 && !gm_peer_time_is_up(peer));
	job->more = r > 0;
	job->untold = r == 0 || job->way->progress;
	return r < 0 ? r : 0;
}

static int reclaim_next(struct gm_stream *stream, struct gm_peer *peer)
{
	struct gm_admin_reclaim *job = (struct gm_admin_reclaim *)stream;

	if (!job->untold && reclaim_work(job, peer) < 0) {
		stream->parted = true;
		return 0;
	}
	if (!job->untold)
		return 1;

	int r = job->way->tell(job, peer);
	if (r == GM_ADMIN_RECLAIM_WAITS) {
		job->waiting = true;
		stream->parted = true;
		return 0;
	}
	if (r >= 0)
		job->untold = !job->more;
	return r;
}

void *gm_admin_reclaim_new(struct gm_serve *serve, struct gm_peer *peer, uint64_t id,
	const struct gm_admin_reclaim_way *way, uint32_t device, size_t bytes)
{
	struct gm_admin_reclaim *job = gm_answer_new(serve, peer, id, reclaim_next, bytes);

	if (!job) {
		gm_serve_fail_memory(peer, id);
		return NULL;
	}
	job->head.stream.free = reclaim_free_stream;
	job->head.stream.bytes = bytes;
	job->way = way;
	job->peer = peer;
	job->device = device;
	job->more = way->slice;
	job->untold = !way->slice;
	return job;
}

void gm_admin_reclaim_await_core(struct gm_admin_reclaim *job)
{
	DL_APPEND(job->head.serve->reclaims, job);
	job->listed = true;
}

void gm_admin_reclaim_start(struct gm_admin_reclaim *job, size_t owned_bytes)
{
	job->head.stream.bytes += owned_bytes;
	gm_peer_start(job->peer, &job->head.stream);
}

void gm_admin_reclaim_ended(struct gm_serve *serve, const struct gm_event *event)
{
	struct gm_admin_reclaim *job;

	DL_FOREACH (serve->reclaims, job) {
		if (job->device == event->device && !job->ended) {
			job->ended = true;
			job->way->ended(job, event);
		}
	}

	/* A start may free jobs, so each one begins at the head of the list. */
	do {
		DL_FOREACH (serve->reclaims, job)
			if (job->waiting && job->ended)
				break;
		if (job) {
			job->waiting = job->head.stream.parted = false;
			job->head.stream.bytes = 0;
			gm_peer_start(job->peer, &job->head.stream);
		}
	} while (job);
}

void gm_admin_reclaim_peer_closed(struct gm_serve *serve, const struct gm_peer *peer)
{
	struct gm_admin_reclaim *job, *next;

	/* The peer frees those that are streams. */
	DL_FOREACH_SAFE (serve->reclaims, job, next)
		if (job->peer == peer && job->waiting)
			gm_admin_reclaim_free(job);
}
