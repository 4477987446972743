/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_WAIT_PEACE_H
#define GM_WAIT_PEACE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/books/say.h"
#include "daemon/device/device_private.h"
#include "daemon/device/ladder_run.h"
#include "daemon/wait/request.h"

/*
 * How much a user's requests may cost the clients of other users. Clients do two things for a request of
 * somebody else: they return what they do not use, and they move buffers to host memory. A user that does
 * not keep what it gets by that is not helped again for some time: by what others cache for a second (the
 * policy's after_action), and by buffers for longer each time.
 *
 * ask.c asks whom it may ask. The queue says how requests end, and leases what clients return. All of this is
 * kept in the line of the user, which stays without requests for as long.
 */

/* Whether other users' clients are left alone for now: they returned something for the request's user a
 * moment ago, and it has not taken that yet, did not take it, or has given it back. */
bool gm_peace_rests(const struct gm_device *device, const struct gm_waiting *w);
/* Whom the request may ask now. GM_REACH_OWN: other users' clients have peace. */
enum gm_ladder_reach gm_peace_reach(const struct gm_device *device, const struct gm_waiting *w);
/* Other users' clients have peace: whether clients say that they have what the request lacks, and may be asked
 * for it afterwards. */
bool gm_peace_is_worth_it(struct gm_device *device, const struct gm_waiting *w, uint64_t lacks);

/* Clients of other users were asked for the request. */
void gm_peace_disturb(struct gm_waiting *w);
/* A request of the queue is charged for its memory now. */
void gm_peace_granted(struct gm_device *device, const struct gm_request *request);
/* A request leaves the queue without its memory. */
void gm_peace_failed(struct gm_device *device, const struct gm_request *request);
/* A client that owes memory returns bytes of it. */
void gm_peace_returned(struct gm_device *device, const struct gm_account *account, uint64_t bytes);

/* When gm_peace_tick() must be called although nothing has happened; UINT64_MAX: never. */
uint64_t gm_peace_due(const struct gm_device *device);
/* Time has passed: looks what users kept of the memory that others moved buffers for. */
void gm_peace_tick(struct gm_device *device);

/* How long other users' clients are left alone before they are asked for the request, or for the buffers that
 * they could move for it: no longer than this, unless they do more for its user meanwhile. 0: the request does
 * not wait for that. */
uint64_t gm_peace_left_ns(const struct gm_device *device, const struct gm_waiting *w);
/* Writes that for a person; "" if the request does not wait for that. */
void gm_peace_say(
	const struct gm_device *device, const struct gm_waiting *w, char detail[GM_DETAIL_BYTES]);

#endif
