/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event channel. A bit per kind and device says what waits to be sent. The packet is made when
 * there is room for it, from the figures of that moment. The socket is watched only while something
 * waits. A client that closes its end, or never reads, loses its events and nothing else.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/seqpacket.h"
#include "daemon/tenant/events.h"

_Static_assert(GM_LIMIT_DEVICES <= 32, "a bit per device");

struct gm_events {
	struct gm_hub *hub;
	const struct gm_core *core;
	int socket;
	uint32_t pressure, reclaim, urgent, limits; /* a bit per device */
	uint64_t wanted[GM_LIMIT_DEVICES];          /* bytes, by a reclaim that waits; 0: all */
	uint64_t max[GM_LIMIT_DEVICES];
	bool goodbye, restart;
	const char *reason;
	bool broken;
	bool watched;
	bool poll_open;
	uv_poll_t poll;
};

static void events_on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

void gm_events_free(struct gm_events *events)
{
	if (!events)
		return;

	int socket = events->socket;
	if (events->poll_open)
		uv_close((uv_handle_t *)&events->poll, events_on_closed);
	else
		free(events);
	close(socket);
}

int gm_events_new(struct gm_hub *hub, const struct gm_core *core, int *ret_client_end,
	struct gm_events **ret_events)
{
	struct gm_events *events = calloc(1, sizeof(*events));
	int ends[2];

	if (!events)
		return -ENOMEM;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
		int error = errno;
		free(events);
		return -error;
	}
	events->hub = hub;
	events->core = core;
	events->socket = ends[0];
	*ret_client_end = ends[1];
	*ret_events = events;
	return 0;
}

static int events_send(struct gm_events *events, Gm__Wire__Packet__BodyCase body, void *message)
{
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	size_t n;

	packet.body_case = body;
	packet.hello = message; /* every member of the union is a pointer to a message */
	int r = gm_hub_pack(events->hub, &packet, 0, &n);
	if (r < 0)
		return r;
	return gm_seqpacket_send(events->socket, events->hub->out, n, NULL, 0);
}

static int events_send_pressure(struct gm_events *events, uint32_t device)
{
	Gm__Wire__PressureEvent event = GM__WIRE__PRESSURE_EVENT__INIT;
	struct gm_device_figures figures;

	gm_core_device_figures(events->core, device, &figures);
	event.device = device;
	event.pressure_ppm = figures.pressure_ppm;
	event.level = figures.level;
	return events_send(events, GM__WIRE__PACKET__BODY_PRESSURE_EVENT, &event);
}

static int events_send_reclaim(struct gm_events *events, uint32_t device, bool urgent)
{
	Gm__Wire__ReclaimEvent event = GM__WIRE__RECLAIM_EVENT__INIT;
	struct gm_device_figures figures;

	gm_core_device_figures(events->core, device, &figures);
	event.device = device;
	event.epoch = figures.reclaim_epoch;
	event.urgent = urgent;
	event.bytes = events->wanted[device];
	return events_send(events, GM__WIRE__PACKET__BODY_RECLAIM_EVENT, &event);
}

static int events_send_limits(struct gm_events *events, uint32_t device)
{
	Gm__Wire__LimitsEvent event = GM__WIRE__LIMITS_EVENT__INIT;

	event.device = device;
	event.max = events->max[device];
	return events_send(events, GM__WIRE__PACKET__BODY_LIMITS_EVENT, &event);
}

static int events_send_goodbye(struct gm_events *events)
{
	Gm__Wire__GoodbyeEvent event = GM__WIRE__GOODBYE_EVENT__INIT;

	event.reason = (char *)events->reason;
	event.restart = events->restart;
	return events_send(events, GM__WIRE__PACKET__BODY_GOODBYE_EVENT, &event);
}

static int events_send_waiting(struct gm_events *events)
{
	int r;

	for (uint32_t i = 0; i < GM_LIMIT_DEVICES; i++) {
		uint32_t bit = UINT32_C(1) << i;
		if (events->pressure & bit) {
			r = events_send_pressure(events, i);
			if (r < 0)
				return r;
			events->pressure &= ~bit;
		}
		if (events->reclaim & bit) {
			r = events_send_reclaim(events, i, events->urgent & bit);
			if (r < 0)
				return r;
			events->reclaim &= ~bit;
			events->urgent &= ~bit;
			events->wanted[i] = 0;
		}
		if (events->limits & bit) {
			r = events_send_limits(events, i);
			if (r < 0)
				return r;
			events->limits &= ~bit;
		}
	}
	if (events->goodbye) {
		r = events_send_goodbye(events);
		if (r < 0)
			return r;
		events->goodbye = false;
	}
	return 0;
}

static void events_on_writable(uv_poll_t *poll, int status, int what);

static int events_watch(struct gm_events *events)
{
	if (!events->poll_open) {
		int r = uv_poll_init(events->hub->loop, &events->poll, events->socket);
		if (r < 0)
			return r;
		events->poll.data = events;
		events->poll_open = true;
	}
	int r = uv_poll_start(&events->poll, UV_WRITABLE, events_on_writable);
	events->watched = r == 0;
	return r;
}

static void events_pump(struct gm_events *events)
{
	if (events->broken)
		return;
	int r = events_send_waiting(events);
	if (r == -EAGAIN) {
		if (events->watched || events_watch(events) == 0)
			return;
		r = -EIO;
	}
	if (events->watched)
		uv_poll_stop(&events->poll);
	events->watched = false;
	/* If the kernel is out of memory, what waits is sent along with the next event. */
	events->broken = r < 0 && r != -ENOBUFS && r != -ENOMEM;
}

static void events_on_writable(uv_poll_t *poll, int status, int what)
{
	struct gm_events *events = poll->data;

	if (status < 0) {
		uv_poll_stop(poll);
		events->watched = false;
		events->broken = true;
		return;
	}
	events_pump(events);
}

void gm_events_pressure(struct gm_events *events, uint32_t device)
{
	events->pressure |= UINT32_C(1) << device;
	events_pump(events);
}

void gm_events_reclaim(struct gm_events *events, uint32_t device, bool urgent, uint64_t bytes)
{
	uint32_t bit = UINT32_C(1) << device;
	bool all = (events->reclaim & bit) && events->wanted[device] == 0;

	if (bytes == 0 || all)
		events->wanted[device] = 0;
	else if (bytes > events->wanted[device])
		events->wanted[device] = bytes;
	events->reclaim |= bit;
	if (urgent)
		events->urgent |= bit;
	events_pump(events);
}

void gm_events_limits(struct gm_events *events, uint32_t device, uint64_t max)
{
	events->limits |= UINT32_C(1) << device;
	events->max[device] = max;
	events_pump(events);
}

void gm_events_goodbye(struct gm_events *events, const char *reason, bool restart)
{
	events->goodbye = true;
	events->reason = reason;
	events->restart = restart;
	events_pump(events);
}
