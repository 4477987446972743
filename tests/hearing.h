/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_HEARING_H
#define GM_TESTS_HEARING_H

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "common/wire/wakeup.h"
#include "common/wire/page_event.h"

/* A client's side of the events, for tests that speak the wire by hand: waits for the wakeup, and reads
 * the page. All fields 0 is one that hears nothing. */
struct gm_hearing {
	const struct gm_page_daemon *page;
	int wakeup;
	bool cleared; /* the wakeup was, and the page may have more */
	struct gm_page_heard heard;
};

/* Both descriptors stay the caller's. Returns false if the page cannot be mapped. */
static inline bool gm_hearing_begin(struct gm_hearing *hearing, int wakeup, int page)
{
	void *at = mmap(NULL, sizeof(struct gm_page_daemon), PROT_READ, MAP_SHARED, page, 0);

	if (at == MAP_FAILED)
		return false;
	*hearing = (struct gm_hearing){.page = at, .wakeup = wakeup};
	return true;
}

static inline void gm_hearing_end(struct gm_hearing *hearing)
{
	if (hearing->page)
		munmap((void *)hearing->page, sizeof(*hearing->page));
	*hearing = (struct gm_hearing){0};
}

/* Whether there is an event that was not heard yet. */
static inline bool gm_hearing_waits(const struct gm_hearing *hearing)
{
	struct gm_page_heard heard = hearing->heard;
	struct gm_page_event event;

	return gm_page_event_next(hearing->page, &heard, &event) == 1;
}

/* Waits for an event. Returns 1 and the event; 0 if socket, the connection, has ended and nothing was
 * said before; or -ETIMEDOUT. */
static inline int gm_hearing_next(
	struct gm_hearing *hearing, int socket, int timeout_ms, struct gm_page_event *ret_event)
{
	for (;;) {
		int r = hearing->cleared
				? gm_page_event_next(hearing->page, &hearing->heard, ret_event)
				: 0;
		if (r == 1)
			return 1;
		if (r == -EAGAIN)
			continue;

		struct pollfd p[2] = {{.fd = hearing->wakeup, .events = POLLIN}, {.fd = socket}};
		hearing->cleared = false;
		r = poll(p, 2, timeout_ms);
		if (r == 0)
			return -ETIMEDOUT;
		if (r > 0 && (p[0].revents || p[1].revents)) {
			if (gm_wakeup_clear(hearing->wakeup) < 0)
				return 0;
			hearing->cleared = true;
		}
		if (r > 0 && p[1].revents && !gm_hearing_waits(hearing))
			return 0;
	}
}

#endif
