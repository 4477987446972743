/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_DEVICE_MAP_AWAIT_H
#define GM_CLIENT_DEVICE_MAP_AWAIT_H

#include "client/map/map.h"
#include "client/session/gpumem_session.h"

/* Waits until the device has come to an event, or to the end of a stream. Both return 0 or a negative
 * errno of the device's mapping. */

int gm_map_await_event(const struct gm_session_device *device, struct gm_map_event *event);
/* Waits for the work that was launched on the stream before; GPUMEM_STREAM_ANY: on all streams;
 * GPUMEM_STREAM_DONE: for nothing. -EAGAIN: the stream is being captured into a graph. */
int gm_map_await_stream(const struct gm_session_device *device, gpumem_stream stream);
/* The same, until end_ns at the latest: then returns -ETIMEDOUT. */
int gm_map_await_stream_until(
	const struct gm_session_device *device, gpumem_stream stream, uint64_t end_ns);

/* Refuses a call that met -EAGAIN. The sentence tells the program what to do after the capture, such as
 * "copy", and what else it can do: or_else is "" or ", or …". */
#define GM_MAP_AWAIT_CAPTURED "a stream is being captured into a graph"
gpumem_status gm_map_await_captured(const char *what, const char *or_else);

#endif
