/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_QUEUE_QUEUE_USER_H
#define GM_QUEUE_QUEUE_USER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/device/device_private.h"
#include "daemon/queue/request.h"

/* Lines: the requests of one user that wait for one device, and their order. */

/* Whether the waiting request is before this place in the order: by priority, then by arrival. */
static inline bool gm_queue_wait_before(
	const struct gm_queue_wait *w, int32_t priority, uint64_t order)
{
	return w->priority > priority || (w->priority == priority && w->order < order);
}

/* The requests of one user that wait for the device. Kept by queue_user.c, and by queue_head.c and queue.c where it says so. */
struct gm_queue_user {
	struct gm_reclaim_user asker; /* whose they are, and what clients did for them */
	struct gm_request *requests;  /* in order */
	/* Kept by queue_head.c: the first in order that waits for room on the device. It counts who
	 * overtakes it, and it may hold others back, but not before this time. */
	struct gm_request *first;
	uint64_t rest_ns;
	/* Kept by queue.c: going through the line, in slices if it is long. */
	struct gm_request *at;           /* the next request to be looked at; NULL: the first one */
	struct gm_request *ahead;        /* looked at before that; NULL: none */
	uint32_t left;                   /* requests still to be looked at */
	uint32_t work;                   /* what is left of the slice */
	uint64_t due_ns;                 /* when to go through it although nothing has happened */
	uint64_t next_due_ns;            /* the same, of the requests that were looked at so far */
	bool foreign, next_foreign;      /* one of them lacks what foreign programs have */
	const struct gm_request *listed; /* the next one of a list that is being made */
	struct gm_queue_user *prev, *next;
};

/* How many requests of the line wait. */
static inline uint32_t gm_queue_user_count(const struct gm_queue_user *user_queue)
{
	return user_queue->asker.asks;
}

/* The line of a user, which is made if there is none. NULL: no memory. */
struct gm_queue_user *gm_queue_user_get(struct gm_device *device, struct gm_user *user);
uint32_t gm_queue_user_length(const struct gm_device *device, const struct gm_user *user);
/* Frees the lines. They must be empty. */
void gm_queue_user_free_all(struct gm_device *device);
/* Puts the request into the line at its place in the order, or takes it out of its line. */
void gm_queue_user_add(
	struct gm_device *device, struct gm_queue_user *user_queue, struct gm_request *request);
void gm_queue_user_remove(struct gm_device *device, struct gm_request *request);
/* Asks clients for what the request and those before it lack. Returns whether something may come. */
bool gm_queue_user_ask(struct gm_device *device, struct gm_request *request);
/* The priorities of its requests changed. */
void gm_queue_user_sort(struct gm_queue_user *user_queue);
/* Goes through all requests of a device, line by line. after: the last one; NULL: from the start. */
struct gm_request *gm_queue_user_each(
	const struct gm_device *device, const struct gm_request *after);
/* Goes through all requests of a device in the order, from a place on. No request may come or go
 * meanwhile. NULL: that was the last one. */
void gm_queue_user_seek(const struct gm_device *device, const struct gm_queue_place *place);
const struct gm_request *gm_queue_user_next_listed(const struct gm_device *device);

#endif
