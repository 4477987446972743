/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Events on the daemon's page. The events of a device are part of its block, so they are read under
 * its sequence count. The goodbye is written only once: first the reason, then the word that says
 * that it is there.
 */

#include <errno.h>
#include <string.h>

#include "common/arith.h"
#include "common/wire/page_event.h"

/* Whether an event was not heard yet, and is older than the one that was found before. */
static bool page_event_is_next(uint64_t sequence, uint64_t heard, const struct gm_page_event *found)
{
	return sequence > heard && (found->sequence == 0 || sequence < found->sequence);
}

static void page_event_of_device(const struct gm_page_device *block, uint32_t device,
	const struct gm_page_heard *heard, struct gm_page_event *found)
{
	if (page_event_is_next(block->pressure_event, heard->pressure[device], found))
		*found = (struct gm_page_event){.kind = GM_PAGE_EVENT_PRESSURE,
			.device = device,
			.sequence = block->pressure_event,
			.level = block->level,
			.pressure_ppm = block->pressure_ppm};
	if (page_event_is_next(block->reclaim_event, heard->reclaim[device], found))
		*found = (struct gm_page_event){.kind = GM_PAGE_EVENT_RECLAIM,
			.device = device,
			.sequence = block->reclaim_event,
			.epoch = block->reclaim_epoch,
			.urgent = block->urgent,
			.bytes = block->wanted,
			.spill = block->spill};
	if (page_event_is_next(block->limits_event, heard->limits[device], found))
		*found = (struct gm_page_event){.kind = GM_PAGE_EVENT_LIMITS,
			.device = device,
			.sequence = block->limits_event,
			.bytes = block->max};
	if (page_event_is_next(block->evict_event, heard->evict[device], found))
		*found = (struct gm_page_event){.kind = GM_PAGE_EVENT_EVICT,
			.device = device,
			.sequence = block->evict_event,
			.row = block->evict_row,
			.restore = block->restore};
}

static void page_event_note(struct gm_page_heard *heard, const struct gm_page_event *event)
{
	if (event->kind == GM_PAGE_EVENT_PRESSURE)
		heard->pressure[event->device] = event->sequence;
	else if (event->kind == GM_PAGE_EVENT_RECLAIM)
		heard->reclaim[event->device] = event->sequence;
	else if (event->kind == GM_PAGE_EVENT_EVICT)
		heard->evict[event->device] = event->sequence;
	else
		heard->limits[event->device] = event->sequence;
}

static bool page_event_is_makers(const struct gm_page_header *header, struct gm_page_heard *heard,
	struct gm_page_event *event)
{
	uint32_t makers = atomic_load_explicit(&header->makers_left, memory_order_acquire);

	if (makers == heard->makers)
		return false;
	heard->makers = makers;
	event->kind = GM_PAGE_EVENT_MAKERS;
	return true;
}

static bool page_event_is_goodbye(const struct gm_page_header *header, struct gm_page_heard *heard,
	struct gm_page_event *event)
{
	uint32_t goodbye = atomic_load_explicit(&header->goodbye, memory_order_acquire);

	if (goodbye == GM_PAGE_STAYS || heard->goodbye)
		return false;
	heard->goodbye = true;
	event->kind = GM_PAGE_EVENT_GOODBYE;
	event->restart = goodbye == GM_PAGE_RESTARTS;
	memcpy(event->reason, header->reason, sizeof(event->reason));
	event->reason[sizeof(event->reason) - 1] = '\0';
	return true;
}

int gm_page_event_next(const struct gm_page_daemon *page, struct gm_page_heard *heard,
	struct gm_page_event *ret_event)
{
	uint32_t devices = (uint32_t)gm_u64_min(page->header.devices, GM_BOUND_DEVICES);
	struct gm_page_event event = {0};
	bool busy = false;

	if (page->header.version < GM_PAGE_VERSION_EVENTS)
		return 0;

	for (uint32_t i = 0; i < devices; i++) {
		struct gm_page_device block;
		if (gm_page_read(&page->devices[i], sizeof(block), &block) < 0)
			busy = true;
		else
			page_event_of_device(&block, i, heard, &event);
	}
	if (event.sequence)
		page_event_note(heard, &event);
	else if (busy)
		return -EAGAIN;
	else if (!page_event_is_makers(&page->header, heard, &event) &&
		 !page_event_is_goodbye(&page->header, heard, &event))
		return 0;

	*ret_event = event;
	return 1;
}

void gm_page_event_makers(struct gm_page_daemon *page)
{
	atomic_fetch_add_explicit(&page->header.makers_left, 1, memory_order_release);
}

void gm_page_event_goodbye(struct gm_page_daemon *page, bool restart, const char *reason)
{
	struct gm_page_header *header = &page->header;

	if (atomic_load_explicit(&header->goodbye, memory_order_relaxed) != GM_PAGE_STAYS)
		return;
	strncpy(header->reason, reason, sizeof(header->reason) - 1);
	atomic_store_explicit(
		&header->goodbye, restart ? GM_PAGE_RESTARTS : GM_PAGE_STOPS, memory_order_release);
}
