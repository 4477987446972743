/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_QUEUE_H
#define GM_CORE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/core.h"

/*
 * Requests that wait, one queue per device.
 *
 * Order: by priority (more first), then by arrival. Whenever memory comes back, a limit is raised
 * or the level falls, the queue is gone through in that order and whatever fits is granted, before
 * the call that brought it returns.
 *
 * A request that fits may be granted although one before it waits, or else a large request would
 * leave the device idle. But it is counted: once GM_QUEUE_OVERTAKES requests behind it in the order
 * have been granted what it waits for (room on the device, or room under the limit that blocks it),
 * nothing behind it gets any of that until it is granted, refused or gone. So nobody is overtaken
 * by equals for ever. Requests of a higher priority are before it by definition and are not
 * counted.
 *
 * A request leaves the queue
 *   - granted;
 *   - when its time is over: GPUMEM_E_TIMEOUT. One that must not wait is there only while the
 * device is looked at (look.h) and clients are asked for what it lacks, and leaves as
 * GPUMEM_E_NO_MEMORY or GPUMEM_E_LIMIT;
 *   - as soon as it can never be granted any more (a lower limit, a new policy): GPUMEM_E_LIMIT or
 *     GPUMEM_E_NO_MEMORY;
 *   - when its session is off the socket or gone, its lease returned, or gm_core_cancel() is
 * called: GPUMEM_E_CANCELLED;
 *   - with GPUMEM_E_DEADLOCK, when everybody who could bring back what is missing (who holds memory
 *     on the device, or under the limit in the way) waits for more there and nobody has been asked
 *     for memory: then the last of them in the order is refused, and so on until something moves. A
 *     session that is off the socket does not wait.
 *
 * Never by itself: what can never be granted is not queued.
 *
 * A request that was granted comes back, to its old place, when the backend has no memory for it
 * although it fits (others took it since the last sample, or the device cannot use what is free):
 * gm_queue_deny(). It lacks what could not be made, clients are asked for that as for any other,
 * and it is tried again when something came back to the device or the pool, and after settle_ns.
 */

#define GM_QUEUE_OVERTAKES 16

struct gm_queue_info {
	const struct gm_request *request;
	const struct gm_session *session;
	uint64_t bytes; /* whole 2 MiB */
	int32_t priority;
	uint64_t waited_ns;
	uint64_t left_ns; /* UINT64_MAX: no end */
	uint32_t overtaken;
	bool parked; /* may not wait: is there while clients are asked */
	enum gm_block block;
	const struct gm_owner *owner; /* GM_BLOCK_QUOTA: of the limit */
};
/* A place in a device's queue, for who does not go through it in one call. It stays good whatever
 * becomes of requests; one whose priority changes meanwhile may be met twice, or not. */
struct gm_queue_place {
	int32_t priority;
	uint64_t order;
};
#define GM_QUEUE_FIRST ((struct gm_queue_place){.priority = INT32_MAX})
/* In order, from a place on. visit() returns false where it takes no more: then that request's
 * place is written, and the result is true. */
bool gm_core_queue_each(const struct gm_core *core, uint32_t device, struct gm_queue_place *place,
	bool (*visit)(void *ctx, const struct gm_queue_info *info), void *ctx);
uint64_t gm_core_queue_length(const struct gm_core *core, uint32_t device);

/* ---- core's own */

struct gm_device;
struct gm_refusal;

struct gm_queue {
	struct gm_request *requests; /* in order */
	uint64_t length;
	uint64_t last_order;
	uint64_t changes;   /* of the list: whoever walks it sees that it moved */
	uint64_t exhausted; /* requests that may be overtaken no more */
	uint64_t denied;    /* requests that the backend had no memory for */
	bool woken;         /* something may have come back */
	uint64_t witness;   /* a session that holds and does not wait, when last looked */
	uint64_t due_ns;    /* when something in it is; good while it is not woken */
};

/*
 * A request that does not fit, and why. GPUMEM_OK: it is queued, and clients were asked for what it
 * lacks, or will be when the device has been looked at. Otherwise it is to be refused with that and
 * detail: it may not wait and nobody can be asked, it could never be granted, or too many wait
 * (GM_LIMIT_WAITING_PER_DEVICE).
 */
gpumem_status gm_queue_enter(struct gm_device *device, struct gm_request *request, uint64_t exact,
	const struct gm_refusal *refusal, char detail[GM_DETAIL_BYTES]);
/*
 * A request that was admitted, and for which nothing is held any more, because the backend has no
 * memory; bytes: what could not be made of it; doomed: what is being destroyed of what it had.
 * Queued again, or ended by done().
 */
void gm_queue_deny(
	struct gm_device *device, struct gm_request *request, uint64_t bytes, uint64_t doomed);
/* The place of a request that is admitted and has to be made, should it come to the queue later. */
void gm_queue_note(struct gm_device *device, struct gm_request *request);
/* Ends a request that waits. */
void gm_queue_end(struct gm_request *request, gpumem_status status, const char *detail);
/* Whether a request of this session must let others go first: they are before it in the order, were
 * overtaken enough, and want the same. order: its place; UINT64_MAX: it comes now. */
bool gm_queue_bars(
	const struct gm_device *device, const struct gm_session *session, uint64_t order);
/* A request of this session is granted: those it overtakes are counted. */
void gm_queue_overtake(struct gm_device *device, const struct gm_session *session, uint64_t order);
/* Priorities changed. */
void gm_queue_sort(struct gm_device *device);
/* Grants what fits, ends what is over, asks again what is due. Calls done(): only at the outermost
 * level of core. */
void gm_queue_run(struct gm_device *device);
/* When it wants to run without anything having happened. */
uint64_t gm_queue_due(const struct gm_device *device);

#endif
