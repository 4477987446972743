/* SPDX-License-Identifier: Apache-2.0 */
/* See map_await.h. */
#include "client/device/map_await.h"

#include <errno.h>

int gm_map_await_event(const struct gm_session_device *device, struct gm_map_event *event)
{
	return gm_map_await(device->map, device->backend, event, UINT64_MAX);
}

int gm_map_await_stream(const struct gm_session_device *device, gpumem_stream stream)
{
	return gm_map_await_stream_until(device, stream, UINT64_MAX);
}

int gm_map_await_stream_until(
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
	r = gm_map_await(map, device->backend, event, end_ns);
	map->forget(device->backend, event);
	return r;
}

gpumem_status gm_map_await_captured(const char *what, const char *or_else)
{
	return gm_error(GPUMEM_E_BUSY,
		GM_MAP_AWAIT_CAPTURED
		", so nobody can know when its work is done; %s after the capture%s",
		what, or_else);
}
