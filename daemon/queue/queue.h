/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_QUEUE_QUEUE_H
#define GM_QUEUE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/books/event.h"
#include "daemon/device/device_admit.h"
#include "daemon/queue/request.h"
#include "daemon/queue/queue_head.h"

/*
 * This folder gets memory for requests: it admits them, makes their chunks, and keeps those that do not fit in an
 * order until they do; each request ends exactly once. It must never know a session or a lease: the caller's functions
 * (struct gm_request_calls) take the memory.
 *
 * Requests that wait, one queue per device. It has a line for each uid, so that one uid's requests
 * cost the others little: of each line, GM_QUEUE_SLICE requests are looked at each time the queue
 * runs. (The search for deadlocks, and new limits, look at all requests.)
 *
 * Order: by priority (more first), then by arrival. Whenever memory comes back, a limit is raised
 * or the level falls, core goes through the lines and grants whatever fits, before the call that
 * brought the memory returns. (A line that is longer than a slice goes on in the next turns.) The
 * requests of the highest priority come first. Among equals the uids take turns, one grant each,
 * and each uid's requests are served by arrival: what waited for an earlier daemon counts, by the client's word,
 * among the requests of its uid and nowhere else.
 *
 * Core grants a request that fits even if others wait for more. So that a large request is not overtaken for
 * ever, it may hold others back. Then nothing behind it in the order is granted, except from what
 * is guaranteed to the other owner. This is for the first request of a uid that waits for room on
 * the device, and only
 *   - once GM_QUEUE_HEAD_OVERTAKES requests behind it were granted;
 *   - within the limits of its owner: a request that waits for a limit holds nobody back;
 *   - while what is free, pooled, being destroyed, or cached by the word of clients covers it. A
 *     client that has just let a deadline pass is not believed. If only the clients of its own uid
 *     cover it, it holds back nobody but that uid;
 *   - for GM_QUEUE_HEAD_HOLD_NS at most. Then its uid rests for six times as long as it held others back,
 *     and no request holds others back for as long as this one did.
 * Requests of a higher priority are before it by definition. They are not held back, and they do
 * not count as overtaking it. No request fails because it was held back: when its time is over and
 * it fits, it is granted.
 *
 * A request leaves the queue
 *   - granted;
 *   - when its time is over: GPUMEM_E_TIMEOUT. A request that must not wait is there only while the
 *     device is probed (device_probe.h) and clients are asked for what it lacks, and leaves as
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
 * when something came back to the device or the pool, and after settle_ns, and ends if its time is over.
 */

struct gm_chunk;
struct gm_device;
struct gm_owner;
struct gm_account_payer;
struct gm_limits;
struct gm_session;

struct gm_queue_info {
	const struct gm_request *request;
	const struct gm_session *session;
	uint64_t bytes; /* whole 2 MiB */
	int32_t priority;
	uint64_t waited_ns;
	uint64_t left_ns; /* UINT64_MAX: no end */
	uint32_t overtaken;
	bool nowait; /* it may not wait: it is there while clients are asked */
	enum gm_block block;
	/* GM_BLOCK_LIMIT: the owner of the limit; GM_BLOCK_GUARANTEE: that of the largest guarantee */
	const struct gm_owner *owner;
	uint64_t
		rests_ns; /* other users' clients are left alone for so long at most; 0: they are not */
};
/* ---- requests */

/*
 * Grants a request that fits, or queues it. The caller has checked it, has set up calls, payer, fresh, device and
 * transport, and has cleared what the queue keeps. Any other status than GPUMEM_OK: the caller must refuse it.
 */
gpumem_status gm_request_begin(
	struct gm_device *device, struct gm_request *request, char detail[GM_DETAIL_BYTES]);
/*
 * Says how gm_request_begin() would answer, and changes nothing. GPUMEM_OK: it would be granted at once. Otherwise
 * detail says why not, and so does *ret_refusal; if its block is GM_BLOCK_NONE, no memory would help.
 */
gpumem_status gm_request_try(const struct gm_request *request, struct gm_device *device,
	struct gm_request_refusal *ret_refusal, char detail[GM_DETAIL_BYTES]);
/* Ends a request that waits or is admitted, without success. */
void gm_request_fail(struct gm_request *request, gpumem_status status, const char *detail);
void gm_request_cancel(struct gm_request *request);
/* Ends all pending requests of a payer as cancelled. */
void gm_request_cancel_all(struct gm_account_payer *payer);
/* Something that the request waits for is there. */
void gm_request_go_on(struct gm_request *request);
/* A chunk that the request waits for was created, or could not be. */
void gm_request_created(struct gm_request *request, struct gm_chunk *chunk, int result);
/* The device has destroyed something: ends all requests that wait for such room. */
void gm_request_destroyed(struct gm_device *device);
/* A creation that no request waits for ended. If it failed, requests that wait for room need that much less. */
void gm_request_created_unclaimed(struct gm_device *device, struct gm_chunk *chunk, int result);
/* Takes the request out of its payer's list of pending ones. */
void gm_request_unlink(struct gm_request *request);
/* Reports a refusal that the queue does not report: the daemon or the backend fails the request. Nothing is said of
 * requests that follow a refused one. */
void gm_request_tell(struct gm_device *device, const struct gm_request *request,
	gpumem_status status, const char *detail);

/* ---- the queue of a device */

/* Limits and priorities changed. */
void gm_queue_requote(struct gm_device *device, const struct gm_limits *limits);
/* Grants what fits, ends what is over, and asks clients again where that is due. Calls done(), so
 * it may run only at the outermost level of core. */
void gm_queue_run(struct gm_device *device);
/* When gm_queue_tick() must be called although nothing has happened; UINT64_MAX: never. */
uint64_t gm_queue_due(const struct gm_device *device);
/* Time has passed: lets the queue run if it is due. */
void gm_queue_tick(struct gm_device *device);
/* See gm_core_queue_each(). */
bool gm_queue_each(const struct gm_device *device, const struct gm_limits *limits,
	struct gm_queue_place *place, bool (*visit)(void *ctx, const struct gm_queue_info *info),
	void *ctx);

#endif
