/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event channel. A bit per kind and device says what waits to be sent. The packet is made when
 * there is room for it, from the figures of that moment. The socket is watched only while it has no
 * room. A client that closes its end, or never reads, loses its events and nothing else.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/seqpacket.h"
#include "daemon/tenant/events.h"

_Static_assert(GM_LIMIT_DEVICES <= 32, "a bit per device");

struct gm_events {
	struct gm_hub *hub;
	const struct gm_core *core;
	struct gm_lane_fd socket;                   /* in the lane only while it has no room */
	uint32_t pressure, reclaim, urgent, limits; /* a bit per device */
	uint64_t wanted[GM_LIMIT_DEVICES];          /* bytes, by a reclaim that waits; 0: all */
	uint64_t max[GM_LIMIT_DEVICES];
	bool goodbye, restart;
	const char *reason;
	bool broken;
	struct gm_lane *lane;
	struct gm_lane_task task; /* posted while something waits and the socket may have room */
};

static void events_on_turn(struct gm_lane_task *task);
static void events_on_writable(struct gm_lane_fd *socket, uint32_t what);

void gm_events_free(struct gm_events *events)
{
	if (!events)
		return;
	gm_lane_withdraw(&events->task);
	gm_lane_remove(&events->socket);
	close(events->socket.fd);
	free(events);
}

int gm_events_new(struct gm_hub *hub, struct gm_lane *lane, const struct gm_core *core,
	int *ret_client_end, struct gm_events **ret_events)
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
	/* The client has nothing to say here. What it left, even descriptors, would have to be
	 * closed with the socket; see closer.h. */
	(void)shutdown(ends[0], SHUT_RD);
	gm_seqpacket_set_room(ends[0], GM_LIMIT_EVENT_SOCKET_BYTES);
	events->hub = hub;
	events->core = core;
	events->lane = lane;
	events->task.run = events_on_turn;
	events->socket.fd = ends[0];
	events->socket.events = EPOLLOUT;
	events->socket.ready = events_on_writable;
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
	return gm_seqpacket_send(events->socket.fd, events->hub->out, n, NULL, 0);
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

static void events_pump(struct gm_events *events)
{
	if (events->broken)
		return;
	int r = events_send_waiting(events);
	if (r == -EAGAIN) {
		if (events->socket.lane || gm_lane_add(events->lane, &events->socket) == 0)
			return;
		r = -EIO;
	}
	gm_lane_remove(&events->socket);
	/* If the kernel is out of memory, what waits is sent along with the next event. */
	events->broken = r < 0 && r != -ENOBUFS && r != -ENOMEM;
}

static void events_on_turn(struct gm_lane_task *task)
{
	events_pump((struct gm_events *)((char *)task - offsetof(struct gm_events, task)));
}

static void events_on_writable(struct gm_lane_fd *socket, uint32_t what)
{
	struct gm_events *events =
		(struct gm_events *)((char *)socket - offsetof(struct gm_events, socket));

	if (what & EPOLLERR) {
		gm_lane_remove(socket);
		events->broken = true;
		return;
	}
	events_pump(events);
}

/* Sends what waits on the lane's turn. If the socket has no room, it is in the lane already. */
static void events_post(struct gm_events *events)
{
	if (!events->broken && !events->socket.lane)
		gm_lane_post(events->lane, &events->task);
}

void gm_events_pressure(struct gm_events *events, uint32_t device)
{
	events->pressure |= UINT32_C(1) << device;
	events_post(events);
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
	events_post(events);
}

void gm_events_limits(struct gm_events *events, uint32_t device, uint64_t max)
{
	events->limits |= UINT32_C(1) << device;
	events->max[device] = max;
	events_post(events);
}

void gm_events_goodbye(struct gm_events *events, const char *reason, bool restart)
{
	events->goodbye = true;
	events->reason = reason;
	events->restart = restart;
	events_pump(events);
}
