/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_WORKER_H
#define GM_DAEMON_WORKER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/backend/backend.h"
#include "daemon/core/chunk.h"
#include "daemon/backend/usage.h"

/*
 * A device's thread, the only place where the backend's slow calls run, and the queues before and
 * after it. All functions below are called on the loop's thread.
 */
struct gm_worker;

/* Called on the loop, in the order in which the thread did the work. */
struct gm_worker_events {
	void (*created)(void *ctx, struct gm_chunk *chunk, int result);
	void (*destroyed)(void *ctx, struct gm_chunk *chunk);
	/* result: 0, or a negative errno: the device could not say. latest: it began after every
	 * gm_worker_sample() so far; otherwise another one follows. */
	void (*sampled)(void *ctx, uint32_t device, int result, uint64_t free_bytes, bool latest);
	/* Takes usage; NULL: no memory for it. */
	void (*looked)(void *ctx, uint32_t device, struct gm_usage *usage);
};

int gm_worker_new(uv_loop_t *loop, const struct gm_backend_ops *ops, void *backend, uint32_t number,
	const struct gm_worker_events *events, void *ctx, struct gm_worker **ret_worker);
/*
 * Waits for the call under way, ends the thread and closes the handles; the memory goes in the
 * loop's next turn. No job may be queued: core is idle. NULL is fine.
 */
void gm_worker_stop(struct gm_worker *worker);

/* Neither can fail; the end is told by created() or destroyed(). Destructions go first, creations
 * of different turns take turns. */
void gm_worker_create(struct gm_worker *worker, struct gm_chunk *chunk, uint64_t turn);
void gm_worker_destroy(struct gm_worker *worker, struct gm_chunk *chunk);
/* A creation is not wanted any more. Whether it had not begun: then created() is not called for it.
 */
bool gm_worker_call_off(struct gm_worker *worker, struct gm_chunk *chunk);
/* Look how much is free, between two jobs. Nothing where the backend's devices are exclusive. */
void gm_worker_sample(struct gm_worker *worker);
/* Look who uses the device, and how much is free, between two jobs: a sample, then looked(). Not
 * where the backend's devices are exclusive. Asked for again before looked(), it is one look. */
void gm_worker_look(struct gm_worker *worker);

#endif
