/* SPDX-License-Identifier: Apache-2.0 */
/* See map.h: what every user of events does with them, on any backend. */
#include "client/map/map.h"

#include <errno.h>
#include <time.h>

#include "common/arith.h"
#include "common/clock.h"

#define AWAIT_LEAST_NS (20 * GM_NS_PER_US)
#define AWAIT_MOST_NS  GM_NS_PER_MS

int gm_map_take_passed(const struct gm_map_ops *map, void *backend, struct gm_map_event **event)
{
	int r = map->passed(backend, *event);

	if (r == 1) {
		map->forget(backend, *event);
		*event = NULL;
	}
	return r;
}

int gm_map_await(
	const struct gm_map_ops *map, void *backend, struct gm_map_event *event, uint64_t end_ns)
{
	uint64_t pause_ns = AWAIT_LEAST_NS;
	int r;

	while ((r = map->passed(backend, event)) == 0) {
		if (gm_clock_ns() >= end_ns)
			return -ETIMEDOUT;
		nanosleep(&(struct timespec){.tv_nsec = (long)pause_ns}, NULL);
		pause_ns = gm_u64_min(2 * pause_ns, AWAIT_MOST_NS);
	}
	return r < 0 ? r : 0;
}
