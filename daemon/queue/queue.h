/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_QUEUE_QUEUE_H
#define GM_QUEUE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/books/event.h"

/*
 * This folder keeps requests in the order in which they wait, and says whose turn it is, and when they
 * wait for one another. It must never know a session, and never grant or end a request:
 * daemon/lease/queue.c does.
 *
 * Requests that wait, one queue per device. It has a line for each uid, so that one uid's requests
 * cost the others little: of each line, GM_QUEUE_SLICE requests are looked at each time the queue
 * runs. (The search for deadlocks, and new limits, look at all requests.)
 *
 * Order: by priority (more first), then by arrival. Whenever memory comes back, a limit is raised
 * or the level falls, core goes through the lines and grants whatever fits, before the call that
 * brought the memory returns. (A line that is longer than a slice goes on in the next turns.) The
 * requests of the highest priority come first. Among equals the uids take turns, one grant each,
 * and each uid's requests are served by arrival.
 *
 * Core grants a request that fits even if others wait for more. So that a large request is not overtaken for
 * ever, it may hold others back. Then nothing behind it in the order is granted, except from what
 * is guaranteed to the other owner. This is for the first request of a uid that waits for room on
 * the device, and only
 *   - once GM_TURN_OVERTAKES requests behind it were granted;
 *   - within the limits of its owner: a request that waits for a limit holds nobody back;
 *   - while what is free, pooled, being destroyed, or cached by the word of clients covers it. A
 *     client that has just let a deadline pass is not believed. If only the clients of its own uid
 *     cover it, it holds back nobody but that uid;
 *   - for GM_TURN_HOLD_NS at most. Then its uid rests for six times as long as it held others back,
 *     and no request holds others back for as long as this one did.
 * Requests of a higher priority are before it by definition. They are not held back, and they do
 * not count as overtaking it. No request fails because it was held back: when its time is over and
 * it fits, it is granted.
 *
 * A request leaves the queue
 *   - granted;
 *   - when its time is over: GPUMEM_E_TIMEOUT. A request that must not wait is there only while the
 *     device is probed (probe.h) and clients are asked for what it lacks, and leaves as
 *     GPUMEM_E_NO_MEMORY or GPUMEM_E_LIMIT;
 *   - as soon as it can never be granted any more (a lower limit, a new policy): GPUMEM_E_LIMIT or
 *     GPUMEM_E_NO_MEMORY;
 *   - when its session is quarantined or gone, its lease is returned, or gm_core_cancel() is
 *     called: GPUMEM_E_CANCELLED;
 *   - with GPUMEM_E_DEADLOCK, if it has no deadline, when every client that holds the missing
 *     memory (on the device, or under the limit) has waited for more of it without a deadline for
 *     gm_policy_deadlock_ns(), none of them returned anything in that time, and none of them is being
 *     asked for memory. Then the last of their requests in the order is refused, and so on until
 *     something moves. The time is there because another thread of a client that waits may be about
 *     to free memory. A quarantined session does not wait. A request with a deadline waits until
 *     then, and its client moves at that time at the latest.
 *
 * A request that can never be granted is not queued at all.
 *
 * A granted request comes back, to its old place, when the backend has no memory for it although it
 * fits (others took it since the last sample, or the device cannot use what is free). It lacks what
 * could not be made, and clients are asked for that as for any other request. It is tried again
 * when something came back to the device or the pool, and after settle_ns.
 */

#define GM_QUEUE_SLICE    64
#define GM_TURN_OVERTAKES 16
#define GM_TURN_HOLD_NS   UINT64_C(10000000000)

struct gm_owner;
struct gm_request;
struct gm_session;

struct gm_queue_info {
	const struct gm_request *request;
	const struct gm_session *session;
	uint64_t bytes; /* whole 2 MiB */
	int32_t priority;
	uint64_t waited_ns;
	uint64_t left_ns; /* UINT64_MAX: no end */
	uint32_t overtaken;
	bool parked; /* it may not wait: it is there while clients are asked */
	enum gm_block block;
	/* GM_BLOCK_QUOTA: the owner of the limit; GM_BLOCK_GUARANTEE: that of the largest guarantee */
	const struct gm_owner *owner;
	uint64_t
		rests_ns; /* other users' clients are left alone for so long at most; 0: they are not */
};
/* A place in a device's queue, for a caller that goes through it in several calls. A place stays
 * valid whatever happens to the requests. A request whose priority changes between two calls may be
 * visited twice, or not at all. */
struct gm_queue_place {
	int32_t priority;
	uint64_t order;
};
#define GM_QUEUE_FIRST ((struct gm_queue_place){.priority = INT32_MAX})

#endif
