/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_EVENTS_H
#define GM_DAEMON_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/core.h"
#include "daemon/net/peer.h"
#include "daemon/tenant/pages.h"

/*
 * A client's events. They are on the daemon's page, the latest of each kind and device, and a wakeup
 * tells the client to look. So a slow client may miss steps in between but learns the latest state,
 * and costs no more than a fast one. Nothing here waits for a client or depends on what it does with
 * its wakeup. Events are written on the turn of the client's user: what one client causes for 1,000
 * clients of another user delays nobody else.
 */
struct gm_events;

/* *ret_bell is for the client. The caller owns it. flow and pages are the client's and must outlive
 * the events. Returns 0, or -EMFILE or another negative errno. */
int gm_events_new(struct gm_hub *hub, struct gm_hub_flow *flow, const struct gm_core *core,
	struct gm_pages *pages, int *ret_wakeup, struct gm_events **ret_events);
void gm_events_free(struct gm_events *events);

void gm_events_pressure(struct gm_events *events, uint32_t device);
/* Asks for bytes, or for everything unused if bytes is 0. If the client has not read the last one yet, the larger
 * of the two counts. */
void gm_events_reclaim(
	struct gm_events *events, uint32_t device, bool urgent, uint64_t bytes, uint64_t spill);
/* Tells the client to move the buffer of a row, or (0) all of them, to host memory or back. -EBUSY: it has not
 * read the last such event yet, which is about another row. */
int gm_events_evict(struct gm_events *events, uint32_t device, uint32_t row, bool restore);
/* Tells the client how much it may hold from now on. */
void gm_events_limits(struct gm_events *events, uint32_t device, uint64_t max);
/* Tells the client that a lease with signals that it opened has no maker any more. */
void gm_events_makers(struct gm_events *events);
/* Tells the client at once that the daemon stops, and everything that waits to be told. */
void gm_events_goodbye(struct gm_events *events, const char *reason, bool restart);

#endif
