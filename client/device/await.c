/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for the device, by asking it again and again: the driver's own waiting would need a context of
 * the caller's, and breaks captures. */
#include "client/device/await.h"

#include <errno.h>
#include <time.h>

#include "common/arith.h"
#include "common/clock.h"

#define AWAIT_LEAST_NS (20 * GM_NS_PER_US)
#define AWAIT_MOST_NS  GM_NS_PER_MS

static int await_until(
	const struct gm_session_device *device, struct gm_map_event *event, uint64_t end_ns)
{
	uint64_t pause_ns = AWAIT_LEAST_NS;
	int r;

	while ((r = device->map->passed(device->backend, event)) == 0) {
		if (gm_clock_ns() >= end_ns)
			return -ETIMEDOUT;
		nanosleep(&(struct timespec){.tv_nsec = (long)pause_ns}, NULL);
		pause_ns = gm_min(2 * pause_ns, AWAIT_MOST_NS);
	}
	return r < 0 ? r : 0;
}

int gm_await_event(const struct gm_session_device *device, struct gm_map_event *event)
{
	return await_until(device, event, UINT64_MAX);
}

int gm_await_stream(const struct gm_session_device *device, gpumem_stream stream)
{
	return gm_await_stream_until(device, stream, UINT64_MAX);
}

int gm_await_stream_until(
	const struct gm_session_device *device, gpumem_stream stream, uint64_t end_ns)
{
	const struct gm_map_ops *map = device->map;
	struct gm_map_event *event;

	if (stream == GPUMEM_STREAM_DONE || !map->record)
		return 0;
	if (map->here)
		(void)map->here(device->backend);
	if (stream && stream != GPUMEM_STREAM_ANY && map->captured_into &&
		map->captured_into(device->backend, stream))
		return -EAGAIN;

	int r = stream == GPUMEM_STREAM_ANY ? map->record(device->backend, &event)
					    : map->record_on(device->backend, stream, &event);
	if (r < 0)
		return r;
	r = await_until(device, event, end_ns);
	map->forget(device->backend, event);
	return r;
}

gpumem_status gm_await_captured(const char *what, const char *or_else)
{
	return gm_error(GPUMEM_E_BUSY,
		GM_AWAIT_CAPTURED
		", so nobody can know when its work is done; %s after the capture%s",
		what, or_else);
}
