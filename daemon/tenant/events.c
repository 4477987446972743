/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events. A bit per kind and device says what waits to be told. On the turn of the client's user it
 * is written on the client's page, with the figures of that moment, and the wakeup is sent.
 *
 * An event takes the place of an earlier one of its kind. For the level of pressure and for limits
 * that is all there is to know. A reclaim that the client has not heard yet counts on: the wakeup says
 * whether it has.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/arith.h"
#include "common/wire/wakeup.h"
#include "common/clock.h"
#include "common/wire/page_event.h"
#include "daemon/tenant/events.h"

_Static_assert(GM_BOUND_DEVICES <= 32, "a bit per device");

/* A client that was told less than this ago need not have heard it. */
#define GM_EVENTS_FRESH_NS GM_NS_PER_MS

struct gm_events {
	struct gm_hub *hub;
	const struct gm_core *core;
	struct gm_pages *pages;
	int wakeup;
	uint64_t rung_ns;                   /* when */
	uint32_t pressure, reclaim, limits; /* what waits: a bit per device */
	uint32_t asked;                     /* reclaims that were told, and may not be heard yet */
	uint32_t evict, evict_told;         /* the same for buffers that are to move */
	uint32_t evict_row[GM_BOUND_DEVICES];
	uint32_t restore;                  /* they are to move back: a bit per device */
	bool makers;                       /* a maker has left, which waits to be told */
	uint32_t urgent;                   /* of those that wait or were told */
	uint64_t wanted[GM_BOUND_DEVICES]; /* the same; 0: everything unused */
	uint64_t spill[GM_BOUND_DEVICES];  /* the same: bytes that evictable buffers have */
	uint64_t max[GM_BOUND_DEVICES];
	struct gm_hub_flow *flow;
	struct gm_hub_flow_task task; /* posted while something waits */
};

static void events_on_turn(struct gm_hub_flow_task *task);

void gm_events_free(struct gm_events *events)
{
	if (!events)
		return;
	gm_hub_flow_withdraw(&events->task);
	close(events->wakeup);
	free(events);
}

int gm_events_new(struct gm_hub *hub, struct gm_hub_flow *flow, const struct gm_core *core,
	struct gm_pages *pages, int *ret_wakeup, struct gm_events **ret_events)
{
	struct gm_events *events = calloc(1, sizeof(*events));
	if (!events)
		return -ENOMEM;

	int r = gm_wakeup_new(&events->wakeup);
	if (r < 0) {
		free(events);
		return r;
	}
	int wakeup = fcntl(events->wakeup, F_DUPFD_CLOEXEC, 0);
	if (wakeup < 0) {
		r = -errno;
		gm_events_free(events);
		return r;
	}

	events->hub = hub;
	events->core = core;
	events->pages = pages;
	events->flow = flow;
	events->task.run = events_on_turn;
	*ret_wakeup = wakeup;
	*ret_events = events;
	return 0;
}

static void events_write_device(struct gm_events *events, uint32_t device)
{
	uint32_t bit = UINT32_C(1) << device;
	struct gm_device_figures figures;
	struct gm_pages_event event = {
		.urgent = events->urgent & bit,
		.wanted = events->wanted[device],
		.spill = events->spill[device],
		.max = events->max[device],
		.row = events->evict_row[device],
		.restore = events->restore & bit,
	};

	/* The order in which a client hears of them. */
	if (events->pressure & bit)
		event.pressure = ++events->hub->sequence;
	if (events->reclaim & bit)
		event.reclaim = ++events->hub->sequence;
	if (events->limits & bit)
		event.limits = ++events->hub->sequence;
	if (events->evict & bit)
		event.evict = ++events->hub->sequence;
	gm_core_device_figures(events->core, device, &figures);
	gm_pages_write_event(events->pages, device, &figures, &event);
}

static void events_write_waiting(struct gm_events *events)
{
	uint32_t waiting = events->pressure | events->reclaim | events->limits | events->evict;

	for (uint32_t i = 0; i < GM_BOUND_DEVICES; i++)
		if (waiting & UINT32_C(1) << i)
			events_write_device(events, i);
	events->asked |= events->reclaim;
	events->evict_told |= events->evict;
	events->pressure = events->reclaim = events->limits = events->evict = 0;
	if (events->makers)
		gm_page_event_makers(events->pages->daemon);
	events->makers = false;
}

static void events_ring(struct gm_events *events)
{
	gm_wakeup_send(events->wakeup);
	events->rung_ns = gm_clock_ns();
}

static bool events_heard(const struct gm_events *events)
{
	return !gm_wakeup_is_sent(events->wakeup) &&
	       gm_clock_ns() - events->rung_ns > GM_EVENTS_FRESH_NS;
}

static void events_on_turn(struct gm_hub_flow_task *task)
{
	struct gm_events *events =
		(struct gm_events *)((char *)task - offsetof(struct gm_events, task));

	events_write_waiting(events);
	events_ring(events);
}

void gm_events_pressure(struct gm_events *events, uint32_t device)
{
	events->pressure |= UINT32_C(1) << device;
	gm_hub_flow_post(events->flow, &events->task);
}

void gm_events_reclaim(
	struct gm_events *events, uint32_t device, bool urgent, uint64_t bytes, uint64_t spill)
{
	uint32_t bit = UINT32_C(1) << device;

	if (events->asked && events_heard(events))
		events->asked = 0;

	bool counts_on = (events->reclaim | events->asked) & bit;
	if (!counts_on) {
		events->urgent &= ~bit;
		events->wanted[device] = bytes;
		events->spill[device] = 0;
	} else if (bytes == 0 || events->wanted[device] == 0) {
		events->wanted[device] = 0;
	} else if (bytes > events->wanted[device]) {
		events->wanted[device] = bytes;
	}

	events->reclaim |= bit;
	events->spill[device] = gm_u64_max(events->spill[device], spill);
	if (urgent)
		events->urgent |= bit;
	gm_hub_flow_post(events->flow, &events->task);
}

void gm_events_limits(struct gm_events *events, uint32_t device, uint64_t max)
{
	events->limits |= UINT32_C(1) << device;
	events->max[device] = max;
	gm_hub_flow_post(events->flow, &events->task);
}

int gm_events_evict(struct gm_events *events, uint32_t device, uint32_t row, bool restore)
{
	uint32_t bit = UINT32_C(1) << device;

	if (events->evict_told && events_heard(events))
		events->evict_told = 0;
	/* What is said later about the same buffers counts. */
	if ((events->evict | events->evict_told) & bit && events->evict_row[device] != row)
		return -EBUSY;

	events->evict |= bit;
	events->evict_row[device] = row;
	events->restore = restore ? events->restore | bit : events->restore & ~bit;
	gm_hub_flow_post(events->flow, &events->task);
	return 0;
}

void gm_events_makers(struct gm_events *events)
{
	events->makers = true;
	gm_hub_flow_post(events->flow, &events->task);
}

void gm_events_goodbye(struct gm_events *events, const char *reason, bool restart)
{
	gm_hub_flow_withdraw(&events->task);
	events_write_waiting(events);
	gm_page_event_goodbye(events->pages->daemon, restart, reason);
	events_ring(events);
}
