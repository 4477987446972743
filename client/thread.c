/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread behind a session. It waits for three things at once: the event socket, the end of the
 * connection (and answers that nobody waits for), and being woken; and for the earliest of its
 * times, of which there is none in a program that is idle and connected.
 *
 * It must never hold a lock while it calls the program, but for the one that gpumem_on_event()
 * takes, so that NULL there can promise what it does.
 */
#include "client/thread.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "client/memory/alloc.h"
#include "client/memory/buffer.h"
#include "client/memory/listing.h"
#include "client/session/resume.h"
#include "client/session/returns.h"
#include "client/memory/use.h"
#include "common/cleanup.h"
#include "common/clock.h"

#define NEVER UINT64_MAX

/* Between tries to reach a daemon that is away, doubling. */
#define RETRY_FIRST_NS (100 * GM_NS_PER_MS)
#define RETRY_MOST_NS  (5 * GM_NS_PER_S)
/* How soon figures are published after something moved, and how often while they move. */
#define PUBLISH_FIRST_NS (50 * GM_NS_PER_MS)
#define PUBLISH_NS       (1 * GM_NS_PER_S)
/* Before returns that were not taken are sent again on a connection that stands. */
#define RETURN_NS (1 * GM_NS_PER_S)

struct gm_events {
	struct gpumem_session *session;
	pthread_t thread;
	_Atomic bool stop;

	/* The thread's own. */
	int socket; /* -1 while away */
	bool away;
	uint64_t tick_at, publish_at, retry_at, return_at;
	uint64_t retry_ns;
	struct gm_wire_arena arena;
	uint8_t packet[GM_LIMIT_PACKET_BYTES];

	pthread_mutex_t calling; /* held while fn runs */
	gpumem_event_fn fn;
	void *user;
};

/* ---- telling the program */

static void emit(struct gm_events *events, gpumem_event event)
{
	event.size = sizeof(event);
	pthread_mutex_lock(&events->calling);
	if (events->fn)
		events->fn(events->user, &event);
	pthread_mutex_unlock(&events->calling);
}

bool gm_events_inside(struct gpumem_session *session)
{
	return session->events && pthread_equal(session->events->thread, pthread_self());
}

gpumem_status gpumem_on_event(gpumem_session *session, gpumem_event_fn fn, void *user)
{
	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (gm_events_inside(session))
		return gm_error(GPUMEM_E_BUSY,
			"the function that events are told to cannot be changed from within it");
	struct gm_events *events = session->events;
	pthread_mutex_lock(&events->calling);
	events->fn = fn;
	events->user = user;
	pthread_mutex_unlock(&events->calling);
	return GPUMEM_OK;
}

/* ---- events of the daemon */

static gpumem_level level(uint32_t value)
{
	return value > GPUMEM_LEVEL_CRITICAL ? GPUMEM_LEVEL_CRITICAL : (gpumem_level)value;
}

static void heard(struct gm_events *events, const Gm__Wire__Packet *packet)
{
	gpumem_event event = {0};
	switch (packet->body_case) {
	case GM__WIRE__PACKET__BODY_PRESSURE_EVENT:
		event.kind = GPUMEM_EVENT_PRESSURE;
		event.device =
			gm_session_device_name(events->session, packet->pressure_event->device);
		event.level = level(packet->pressure_event->level);
		event.pressure = packet->pressure_event->pressure_ppm / 1e6;
		break;
	case GM__WIRE__PACKET__BODY_RECLAIM_EVENT:
		event.kind = GPUMEM_EVENT_RECLAIM;
		event.device =
			gm_session_device_name(events->session, packet->reclaim_event->device);
		event.urgent = packet->reclaim_event->urgent;
		/* First what can be done at once, then what the program makes of it. */
		gm_buffer_settle(events->session);
		event.bytes = gm_alloc_trim(events->session, packet->reclaim_event->device,
			packet->reclaim_event->urgent || !packet->reclaim_event->bytes
				? UINT64_MAX
				: packet->reclaim_event->bytes);
		break;
	case GM__WIRE__PACKET__BODY_LIMITS_EVENT:
		event.kind = GPUMEM_EVENT_LIMITS;
		event.device =
			gm_session_device_name(events->session, packet->limits_event->device);
		event.bytes = packet->limits_event->max;
		break;
	case GM__WIRE__PACKET__BODY_GOODBYE_EVENT:
		event.kind = GPUMEM_EVENT_GOODBYE;
		event.text = packet->goodbye_event->reason;
		break;
	default:
		return; /* of a newer daemon */
	}
	emit(events, event);
}

/* Reads what is there. A negative errno: the channel is over. */
static int listen_once(struct gm_events *events)
{
	for (;;) {
		struct gm_packet_in in;
		int r = gm_seqpacket_receive(
			events->socket, events->packet, sizeof(events->packet), &in);
		if (r == -EAGAIN)
			return 0;
		if (r < 0)
			return r;
		gm_fdlist_deinit(&in.fds);
		Gm__Wire__Packet *packet;
		if (in.data_cut)
			return -EBADMSG;
		r = gm_wire_unpack(&events->arena, events->packet, in.n, &packet);
		if (r < 0)
			return r;
		heard(events, packet);
		if (atomic_load(&events->stop))
			return 0;
	}
}

/* ---- the connection's end, and its return */

static void go_away(struct gm_events *events, const char *reason)
{
	struct gpumem_session *session = events->session;
	/* Every call on it ends before the session is told to be away, late ones included. */
	struct gm_conn *conn = session->conn;
	gm_conn_kill(conn, reason);
	pthread_mutex_lock(&session->lock);
	session->conn = NULL;
	session->state = GM_SESSION_AWAY;
	(void)gm_conn_reason(conn, session->away);
	pthread_mutex_unlock(&session->lock);
	gm_conn_unref(conn);
	events->socket = gm_close(events->socket);
	events->away = true;
	events->retry_ns = RETRY_FIRST_NS;
	events->retry_at = gm_clock_ns() + events->retry_ns;
	emit(events, (gpumem_event){.kind = GPUMEM_EVENT_LOST, .text = session->away});
}

static void come_back(struct gm_events *events)
{
	struct gpumem_session *session = events->session;
	bool resumed;
	if (gm_resume(session, &events->socket, &resumed)) {
		pthread_mutex_lock(&session->lock);
		snprintf(session->away, sizeof(session->away), "%s", gm_error_text());
		pthread_mutex_unlock(&session->lock);
		events->retry_ns *= 2;
		if (events->retry_ns > RETRY_MOST_NS)
			events->retry_ns = RETRY_MOST_NS;
		events->retry_at = gm_clock_ns() + events->retry_ns;
		return;
	}
	events->away = false;
	events->retry_at = NEVER;
	events->return_at = gm_clock_ns();
	events->publish_at = gm_clock_ns();
	emit(events,
		(gpumem_event){
			.kind = GPUMEM_EVENT_RESTORED,
			.text = resumed ? "the session goes on"
					: "gpumemd was started anew: what was held works on, but "
					  "stands in no book of it and cannot be shared",
		});
}

/* ---- times */

static void publish(struct gm_events *events, uint64_t now)
{
	struct gpumem_session *session = events->session;
	bool moved = false;
	/* First the flag: what moves after the figures were read sets it again. */
	atomic_store_explicit(&session->stirred, false, memory_order_seq_cst);
	for (uint32_t i = 0; i < session->devices; i++) {
		gm_listing_publish(session, i);
		moved |= gm_use_publish(session, i);
	}
	events->publish_at = NEVER;
	if (moved) {
		atomic_store_explicit(&session->stirred, true, memory_order_relaxed);
		events->publish_at = now + PUBLISH_NS;
	}
}

static int poll_ms(const struct gm_events *events, uint64_t now)
{
	uint64_t at = events->tick_at;
	at = events->publish_at < at ? events->publish_at : at;
	at = events->retry_at < at ? events->retry_at : at;
	at = events->return_at < at ? events->return_at : at;
	if (at == NEVER)
		return -1;
	if (at <= now)
		return 0;
	uint64_t ms = (at - now + GM_NS_PER_MS - 1) / GM_NS_PER_MS;
	return ms > 3600000 ? 3600000 : (int)ms;
}

static void on_time(struct gm_events *events, bool woken)
{
	struct gpumem_session *session = events->session;
	uint64_t now = gm_clock_ns();
	if (woken)
		gm_buffer_settle(session);
	if (woken || now >= events->tick_at)
		events->tick_at = gm_alloc_tick(session, now);
	if (woken && events->publish_at == NEVER &&
		atomic_load_explicit(&session->stirred, memory_order_relaxed))
		events->publish_at = now + PUBLISH_FIRST_NS;
	if (now >= events->publish_at)
		publish(events, now);
	if (!events->away && (woken || now >= events->return_at))
		events->return_at = gm_returns_flush(session, NULL) ? now + RETURN_NS : NEVER;
	if (events->away && now >= events->retry_at)
		come_back(events);
}

static void *run(void *ctx)
{
	struct gm_events *events = ctx;
	struct gpumem_session *session = events->session;
	while (!atomic_load(&events->stop)) {
		struct gm_conn *conn = events->away ? NULL : session->conn;
		struct pollfd p[3] = {
			{.fd = session->wake, .events = POLLIN},
			{.fd = events->socket, .events = POLLIN},
			{.fd = conn ? gm_conn_fd(conn) : -1,
				.events = conn && gm_conn_unread(conn) ? POLLIN : 0},
		};
		int n = poll(p, 3, poll_ms(events, gm_clock_ns()));
		if (n < 0 && errno != EINTR)
			break; /* no descriptor of ours is any good: nothing can be done here */
		if (atomic_load(&events->stop))
			break;
		bool woken = n > 0 && p[0].revents;
		if (woken) {
			eventfd_t count;
			(void)eventfd_read(session->wake, &count);
		}
		if (conn && n > 0 && p[1].revents && listen_once(events) < 0) {
			/* What it still said to requests is worth hearing. */
			gm_conn_drain(conn);
			gm_conn_kill(conn, "the daemon closed the event channel");
		}
		if (conn && n > 0 && p[2].revents)
			gm_conn_drain(conn);
		if (conn && gm_conn_dead(conn))
			go_away(events, "the connection ended");
		on_time(events, woken);
	}
	return NULL;
}

/* ---- beginning and end */

static void events_free(struct gm_events *events)
{
	if (!events)
		return;
	gm_close(events->socket);
	gm_wire_arena_deinit(&events->arena);
	pthread_mutex_destroy(&events->calling);
	free(events);
}

int gm_events_start(struct gpumem_session *session, int socket)
{
	struct gm_events *events = calloc(1, sizeof(*events));
	if (!events) {
		gm_close(socket);
		return -ENOMEM;
	}
	events->session = session;
	events->socket = socket;
	events->tick_at = events->publish_at = events->retry_at = events->return_at = NEVER;
	gm_wire_arena_init(&events->arena);
	pthread_mutex_init(&events->calling, NULL);

	/* Before the thread is: it must know itself from its first callback on. */
	session->events = events;
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int r = pthread_create(&events->thread, NULL, run, events);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r) {
		session->events = NULL;
		events_free(events);
		return -r;
	}
	(void)pthread_setname_np(events->thread, "gpumem");
	return 0;
}

void gm_events_stop(struct gpumem_session *session)
{
	struct gm_events *events = session->events;
	if (!events)
		return;
	atomic_store(&events->stop, true);
	gm_session_wake(session);
	pthread_join(events->thread, NULL);
	session->events = NULL;
	events_free(events);
}
