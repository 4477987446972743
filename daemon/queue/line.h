/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_QUEUE_LINE_H
#define GM_QUEUE_LINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/device/device_private.h"
#include "daemon/queue/queue.h"
#include "daemon/queue/request.h"

/* Lines: the requests of one user that wait for one device, and their order. */

/* Whether the waiting request is before this place in the order: by priority, then by arrival. */
static inline bool gm_waiting_before(const struct gm_waiting *w, int32_t priority, uint64_t order)
{
	return w->priority > priority || (w->priority == priority && w->order < order);
}

/* Whether it lacks room on the device, rather than under a limit. */
static inline bool gm_waiting_wants_device(const struct gm_waiting *w)
{
	return w->block == GM_BLOCK_DEVICE || w->block == GM_BLOCK_GUARANTEE;
}

/* Whether it lacks something that a client could return. */
static inline bool gm_waiting_lacks_memory(const struct gm_waiting *w)
{
	return w->block == GM_BLOCK_QUOTA || gm_waiting_wants_device(w);
}

/* The line of a user, which is made if there is none. NULL: no memory. */
struct gm_line *gm_line_get(struct gm_device *device, uid_t payer_uid);
uint32_t gm_line_length(const struct gm_device *device, uid_t payer_uid);
/* Frees the lines. They must be empty. */
void gm_line_free_all(struct gm_device *device);
/* Puts the request into the line at its place in the order, or takes it out of its line. */
void gm_line_add(struct gm_device *device, struct gm_line *line, struct gm_request *request);
void gm_line_remove(struct gm_device *device, struct gm_request *request);
/* The priorities of its requests changed. */
void gm_line_sort(struct gm_line *line);
/* Goes through all requests of a device, line by line. after: the last one; NULL: from the start. */
struct gm_request *gm_line_each(const struct gm_device *device, const struct gm_request *after);
/* Goes through all requests of a device in the order, from a place on. No request may come or go
 * meanwhile. NULL: that was the last one. */
void gm_line_seek(const struct gm_device *device, const struct gm_queue_place *place);
const struct gm_request *gm_line_next_listed(const struct gm_device *device);

#endif
