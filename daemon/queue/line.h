/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_QUEUE_LINE_H
#define GM_QUEUE_LINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/device/device_private.h"
#include "daemon/queue/request.h"

/* Lines: the requests of one user that wait for one device, and their order. */

/* Whether the waiting request is before this place in the order: by priority, then by arrival. */
static inline bool gm_waiting_before(const struct gm_waiting *w, int32_t priority, uint64_t order)
{
	return w->priority > priority || (w->priority == priority && w->order < order);
}

/* The requests of one user that wait for the device. Kept by line.c, and by turn.c and queue.c where it says so. */
struct gm_line {
	struct gm_reclaim_user asker; /* whose they are, and what clients did for them */
	struct gm_request *requests;  /* in order */
	/* Kept by turn.c: the first in order that waits for room on the device. It counts who
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
	struct gm_line *prev, *next;
};

/* How many requests of the line wait. */
static inline uint32_t gm_line_count(const struct gm_line *line)
{
	return line->asker.asks;
}

/* The line of a user, which is made if there is none. NULL: no memory. */
struct gm_line *gm_line_get(struct gm_device *device, struct gm_user *user);
uint32_t gm_line_length(const struct gm_device *device, const struct gm_user *user);
/* Frees the lines. They must be empty. */
void gm_line_free_all(struct gm_device *device);
/* Puts the request into the line at its place in the order, or takes it out of its line. */
void gm_line_add(struct gm_device *device, struct gm_line *line, struct gm_request *request);
void gm_line_remove(struct gm_device *device, struct gm_request *request);
/* Asks clients for what the request and those before it lack. Returns whether something may come. */
bool gm_line_ask(struct gm_device *device, struct gm_request *request);
/* The priorities of its requests changed. */
void gm_line_sort(struct gm_line *line);
/* Goes through all requests of a device, line by line. after: the last one; NULL: from the start. */
struct gm_request *gm_line_each(const struct gm_device *device, const struct gm_request *after);
/* Goes through all requests of a device in the order, from a place on. No request may come or go
 * meanwhile. NULL: that was the last one. */
void gm_line_seek(const struct gm_device *device, const struct gm_queue_place *place);
const struct gm_request *gm_line_next_listed(const struct gm_device *device);

#endif
