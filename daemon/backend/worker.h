/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_WORKER_H
#define GM_DAEMON_WORKER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/backend/backend.h"
#include "daemon/backend/usage.h"
#include "daemon/books/chunk.h"

/*
 * The thread of one device, with a queue of jobs before it and a queue of results behind it. The
 * slow calls of the backend run only there. All functions below must be called on the loop's
 * thread.
 */
struct gm_worker;

/* Called on the loop's thread, in the order in which the device's thread did the work. */
struct gm_worker_events {
	void (*created)(void *ctx, struct gm_chunk *chunk, int result);
	void (*destroyed)(void *ctx, struct gm_chunk *chunk);
	/* A sample was taken. result is 0, or a negative errno: the device could not tell. latest:
	 * it began after every gm_worker_sample() so far. Otherwise another sample follows. */
	void (*sampled)(void *ctx, uint32_t device, int result, uint64_t free_bytes, bool latest);
	/* The thread has counted what processes have of the device. Takes ownership of the count. */
	void (*counted)(void *ctx, uint32_t device, struct gm_usage_sample *counted);
	/* A survey was made. Takes ownership of usage, which is NULL if there was no memory. */
	void (*surveyed)(void *ctx, uint32_t device, struct gm_usage *usage);
};

int gm_worker_new(uv_loop_t *loop, const struct gm_backend_ops *ops, void *backend, uint32_t number,
	const struct gm_worker_events *events, void *ctx, struct gm_worker **ret_worker);
/* Waits for the call under way, ends the thread and closes the handles. The loop frees the memory
 * on its next turn. No job may be queued. worker may be NULL. */
void gm_worker_stop(struct gm_worker *worker);

/* Maximum number of results that wait for the loop. The thread begins no other job before the loop has taken some:
 * results are taken in the order of the work, so a longer queue would be one in which users take no turns. */
#define GM_WORKER_AHEAD 2

/* Queue a job, which cannot fail. created() or destroyed() tells the result. worker_queue.h says in which
 * order they are done; turn is the session's id. */
void gm_worker_create(struct gm_worker *worker, struct gm_chunk *chunk, uint64_t turn);
void gm_worker_destroy(struct gm_worker *worker, struct gm_chunk *chunk);
/* Cancels a creation. Returns true if it had not begun: then created() is not called for it. */
bool gm_worker_call_off(struct gm_worker *worker, struct gm_chunk *chunk);
/* Has the thread sample how much is free, between two jobs. Does nothing if the backend's devices
 * are exclusive. */
void gm_worker_sample(struct gm_worker *worker);
/*
 * Has the thread count what processes have of the device, together with how much is free. The thread also counts
 * by itself before and after it destroys chunks that are watched, as often as GM_WORKER_PACE allows. Two counts
 * then show all destructions between them together. Before it destroys a chunk that is unseen, the thread always
 * counts, unless it has begun a count since the chunk was queued.
 */
void gm_worker_count(struct gm_worker *worker);
/* The device's thread does nothing else during a count. So after a count, it counts by itself only when this many
 * times as long has passed. After a pause it may count twice in a row. */
#define GM_WORKER_PACE 8
/* Has the thread take a sample and then survey who uses the device, between two jobs. Several calls
 * before surveyed() make one survey. Must not be called if the backend's devices are exclusive. */
void gm_worker_survey(struct gm_worker *worker);

#endif
