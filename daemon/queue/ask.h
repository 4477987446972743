/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_QUEUE_ASK_H
#define GM_QUEUE_ASK_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/device/device_private.h"
#include "daemon/queue/request.h"

/* Asks clients to return memory for a request that waits. */

/* A parked request, one that may not wait, leaves the queue after this many rounds of asking clients. */
#define GM_PARKED_ROUNDS 2
/* Whether to ask clients for a parked request once more: another round is left, and a client that could not answer the
 * last time may be free now. */
bool gm_ask_is_due(const struct gm_device *device, const struct gm_waiting *w);
/* Whether the request rests (peace.h), and nothing has happened that would let it ask anybody. A request that may not
 * wait must still check again whether resting is worth it. */
bool gm_ask_rests(const struct gm_device *device, const struct gm_waiting *w);
/* Asks clients for what the request lacks. Returns whether something may come. */
bool gm_ask_for(struct gm_device *device, struct gm_request *request);
/* Whether clients still have time to return something that helps the request. */
bool gm_ask_under_way(const struct gm_device *device, const struct gm_waiting *w);
/* The same, but without what clients were asked for on behalf of other users. */
bool gm_ask_for_user_under_way(const struct gm_device *device, const struct gm_waiting *w);

#endif
