/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_QUEUE_QUEUE_DEADLOCK_H
#define GM_QUEUE_QUEUE_DEADLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/device/device_private.h"
#include "daemon/queue/request.h"

/* Deadlocks: clients that wait for memory which only they themselves could return. */

/* Whether the request waits without a deadline. Only such a request can be in a deadlock. */
static inline bool gm_queue_wait_endless(const struct gm_queue_wait *w)
{
	return w->ask.until_ns == UINT64_MAX;
}

/*
 * Finds out whether everybody waits for everybody: all sessions that hold what a waiting request
 * lacks (memory of the device, or under the limit in its way) wait for more there without a
 * deadline, all of this has been so for gm_policy_deadlock_ns() without a return, none of them is being
 * asked for memory, and no request holds others back. Returns the request to refuse: the last in the order of those whose
 * session holds some of it. NULL: a session can still move, or it is too early to tell. A request
 * that waits because programs outside the broker have the memory is in no deadlock: those programs
 * can end.
 *
 * Costs nothing before queue.look_ns. Then it looks at each session and each request once, and sets
 * queue.look_ns to the next time at which a deadlock is possible.
 */
struct gm_request *gm_queue_deadlock_find(struct gm_device *device);
/* Notes that a session has waited without a deadline since this time. */
void gm_queue_deadlock_look_by(struct gm_device *device, uint64_t since_ns);
/* A session returned memory that this account was charged for. */
void gm_queue_deadlock_returned(struct gm_device *device, const struct gm_account *account);
/* The limits or the policy changed. */
void gm_queue_deadlock_restart(struct gm_device *device);

#endif
