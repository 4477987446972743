/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_WIRE_PAGE_EVENT_H
#define GM_WIRE_PAGE_EVENT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/wire/page.h"

/*
 * Events on the daemon's page. The page has the latest event of each kind and device, so a client
 * that reads late misses steps in between, but never the current state. It costs the daemon no more
 * than a client that reads at once. The daemon sends the client's wakeup (wakeup.h) after each event.
 */

enum gm_page_event_kind {
	GM_PAGE_EVENT_PRESSURE, /* level, pressure_ppm */
	GM_PAGE_EVENT_RECLAIM,  /* epoch, urgent, bytes (0: everything unused), spill */
	GM_PAGE_EVENT_LIMITS,   /* bytes: the most that the client may hold; UINT64_MAX: no limit */
	GM_PAGE_EVENT_GOODBYE,  /* restart, reason */
	GM_PAGE_EVENT_EVICT,    /* row (0: all), restore */
	GM_PAGE_EVENT_MAKERS,   /* a lease with signals that the client opened lost its maker */
};

struct gm_page_event {
	enum gm_page_event_kind kind;
	uint32_t device;
	uint64_t sequence; /* 0 for a goodbye and for makers */
	uint32_t level, pressure_ppm;
	uint64_t epoch, bytes, spill;
	bool urgent, restart, restore;
	uint32_t row;
	char reason[GM_PAGE_REASON_BYTES];
};

/* Which events a reader has had. Begins as {0}, for each page of another run of the daemon. */
struct gm_page_heard {
	uint64_t pressure[GM_BOUND_DEVICES];
	uint64_t reclaim[GM_BOUND_DEVICES];
	uint64_t limits[GM_BOUND_DEVICES];
	uint64_t evict[GM_BOUND_DEVICES];
	uint32_t makers;
	bool goodbye;
};

/*
 * For clients: finds the oldest event that the reader has not had. The client must clear its wakeup
 * before. Returns 1 and the event; 0 if there is none, or if the page is of a version without events; or
 * -EAGAIN if there may be one, but the daemon was writing at every try: look again soon.
 */
int gm_page_event_next(const struct gm_page_daemon *page, struct gm_page_heard *heard,
	struct gm_page_event *ret_event);

/* For the daemon: another lease of the client's has no maker any more. */
void gm_page_event_makers(struct gm_page_daemon *page);
/* For the daemon: says goodbye, once in the life of a page. A longer reason is cut. */
void gm_page_event_goodbye(struct gm_page_daemon *page, bool restart, const char *reason);

#endif
