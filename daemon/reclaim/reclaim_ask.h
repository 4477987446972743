/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_RECLAIM_RECLAIM_ASK_H
#define GM_RECLAIM_RECLAIM_ASK_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/device/device_private.h"
#include "daemon/reclaim/reclaim_user.h"

/* Asks clients to return memory for an account that waits for it. */

/* For a ask that may not wait, one that may not wait, clients are asked in this many rounds at most. */
#define GM_TCACHE_ROUNDS 2
/* The ask waits from now on, or does so no more. */
void gm_reclaim_ask_join(struct gm_reclaim_ask *ask, struct gm_reclaim_user *user);
void gm_reclaim_ask_leave(struct gm_reclaim_ask *ask);
/* Whether to ask clients for a ask that may not wait once more: another round is left, and a client that could not answer the
 * last time may be free now. */
bool gm_reclaim_ask_is_due(const struct gm_device *device, const struct gm_reclaim_ask *ask);
/* Whether other users' clients are left alone (reclaim_backoff.h), and nothing has happened that would let it ask anybody. For an
 * ask that may not wait, the caller must still check again whether waiting for the end of that is worth it. */
bool gm_reclaim_ask_rests(const struct gm_device *device, const struct gm_reclaim_ask *ask);
/* Begins a round. Returns whether clients could have something for it: gm_reclaim_ask_clients() must follow then. */
bool gm_reclaim_ask_begin(const struct gm_device *device, struct gm_reclaim_ask *ask);
/* Bytes that asks before this one want from the same place. */
struct gm_reclaim_ask_ahead {
	uint64_t own;    /* those of the same user */
	uint64_t others; /* those of other users */
};
/* Asks clients for what is lacking. Returns whether it looked at all clients, which takes time. */
bool gm_reclaim_ask_clients(
	struct gm_device *device, struct gm_reclaim_ask *ask, struct gm_reclaim_ask_ahead ahead);
/* Whether clients still have time to return something that helps. */
bool gm_reclaim_ask_under_way(const struct gm_device *device, const struct gm_reclaim_ask *ask);
/* The same, but without what clients were asked for on behalf of other users. */
bool gm_reclaim_ask_for_user_under_way(
	const struct gm_device *device, const struct gm_reclaim_ask *ask);

#endif
