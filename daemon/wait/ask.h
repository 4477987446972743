/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_WAIT_ASK_H
#define GM_WAIT_ASK_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/device/device_private.h"
#include "daemon/wait/request.h"

/* Asking clients to return memory for a request that waits. */

/* A parked request stays for so many rounds of asking clients. */
#define GM_PARKED_ROUNDS 2
/* Whether to ask clients for a parked request once more: another round is left, and somebody may be free to answer who
 * was not the last time. */
bool gm_ask_is_due(const struct gm_device *device, const struct gm_waiting *w);
/* Whether the request rests, and nothing has happened that would let it ask anybody. (One that may not wait must look
 * again all the same, whether its rest is worth it.) */
bool gm_ask_rests(const struct gm_device *device, const struct gm_waiting *w);
/* Asks clients for what the request lacks. Returns whether something may come. */
bool gm_ask_for(struct gm_device *device, struct gm_request *request);
/* Whether clients still have time to return something that helps the request. */
bool gm_ask_under_way(const struct gm_device *device, const struct gm_waiting *w);
/* The same, without what they were asked for other users' requests. */
bool gm_ask_for_user_under_way(const struct gm_device *device, const struct gm_waiting *w);

#endif
