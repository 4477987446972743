/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_EVENTS_H
#define GM_DAEMON_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/core.h"
#include "daemon/net/peer.h"

/*
 * A client's second channel, on which the daemon alone speaks. Of each kind and device at most one
 * event waits, and says what holds when it is sent: a slow reader misses steps, never the state,
 * and costs nothing more by being slow.
 */
struct gm_events;

/* *ret_client_end: the client's socket, the caller's to send and close. -EMFILE, … */
int gm_events_new(struct gm_hub *hub, const struct gm_core *core, int *ret_client_end,
	struct gm_events **ret_events);
void gm_events_free(struct gm_events *events);

void gm_events_pressure(struct gm_events *events, uint32_t device);
/* bytes: so many are wanted; 0: all. Of several that wait the largest counts. */
void gm_events_reclaim(struct gm_events *events, uint32_t device, bool urgent, uint64_t bytes);
/* max: what the client may hold from now on. */
void gm_events_limits(struct gm_events *events, uint32_t device, uint64_t max);
/* reason is kept by the caller for as long as the channel lives. */
void gm_events_goodbye(struct gm_events *events, const char *reason, bool restart);

#endif
