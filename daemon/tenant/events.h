/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_EVENTS_H
#define GM_DAEMON_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/core.h"
#include "daemon/net/peer.h"

/*
 * A client's event channel: a second socket, on which only the daemon speaks. At most one event of
 * each kind and device waits to be sent, and an event says what holds at the moment it is sent. So
 * a slow client may miss steps in between but learns the latest state, and costs no more than a
 * fast one. Events are sent on the turn of the client's user: what one client causes for 1,000
 * clients of another user delays nobody else.
 */
struct gm_events;

/* *ret_client_end is the client's end of the channel. The caller owns it. lane is the client's and
 * must outlive the channel. Returns 0, or -EMFILE or another negative errno. */
int gm_events_new(struct gm_hub *hub, struct gm_lane *lane, const struct gm_core *core,
	int *ret_client_end, struct gm_events **ret_events);
void gm_events_free(struct gm_events *events);

void gm_events_pressure(struct gm_events *events, uint32_t device);
/* Asks for bytes, or for everything unused if bytes is 0. If several wait, the largest counts. */
void gm_events_reclaim(struct gm_events *events, uint32_t device, bool urgent, uint64_t bytes);
/* Tells the client how much it may hold from now on. */
void gm_events_limits(struct gm_events *events, uint32_t device, uint64_t max);
/* Sends the reason at once, if there is room. reason must outlive the channel. */
void gm_events_goodbye(struct gm_events *events, const char *reason, bool restart);

#endif
