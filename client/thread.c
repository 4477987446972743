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

struct gm_thread {
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

static void thread_emit(struct gm_thread *thread, gpumem_event event)
{
	event.size = sizeof(event);
	pthread_mutex_lock(&thread->calling);
	if (thread->fn)
		thread->fn(thread->user, &event);
	pthread_mutex_unlock(&thread->calling);
}

bool gm_thread_inside(struct gpumem_session *session)
{
	return session->thread && pthread_equal(session->thread->thread, pthread_self());
}

gpumem_status gpumem_on_event(gpumem_session *session, gpumem_event_fn fn, void *user)
{
	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (gm_thread_inside(session))
		return gm_error(GPUMEM_E_BUSY,
			"the function that events are told to cannot be changed from within it");
	struct gm_thread *thread = session->thread;
	pthread_mutex_lock(&thread->calling);
	thread->fn = fn;
	thread->user = user;
	pthread_mutex_unlock(&thread->calling);
	return GPUMEM_OK;
}

/* ---- events of the daemon */

static gpumem_level thread_level(uint32_t value)
{
	return value > GPUMEM_LEVEL_CRITICAL ? GPUMEM_LEVEL_CRITICAL : (gpumem_level)value;
}

static void thread_heard(struct gm_thread *thread, const Gm__Wire__Packet *packet)
{
	gpumem_event event = {0};
	switch (packet->body_case) {
	case GM__WIRE__PACKET__BODY_PRESSURE_EVENT:
		event.kind = GPUMEM_EVENT_PRESSURE;
		event.device =
			gm_session_device_name(thread->session, packet->pressure_event->device);
		event.level = thread_level(packet->pressure_event->level);
		event.pressure = packet->pressure_event->pressure_ppm / 1e6;
		break;
	case GM__WIRE__PACKET__BODY_RECLAIM_EVENT:
		event.kind = GPUMEM_EVENT_RECLAIM;
		event.device =
			gm_session_device_name(thread->session, packet->reclaim_event->device);
		event.urgent = packet->reclaim_event->urgent;
		/* First what can be done at once, then what the program makes of it. */
		gm_buffer_settle(thread->session);
		event.bytes = gm_alloc_trim(thread->session, packet->reclaim_event->device,
			packet->reclaim_event->urgent || !packet->reclaim_event->bytes
				? UINT64_MAX
				: packet->reclaim_event->bytes);
		break;
	case GM__WIRE__PACKET__BODY_LIMITS_EVENT:
		event.kind = GPUMEM_EVENT_LIMITS;
		event.device =
			gm_session_device_name(thread->session, packet->limits_event->device);
		event.bytes = packet->limits_event->max;
		break;
	case GM__WIRE__PACKET__BODY_GOODBYE_EVENT:
		event.kind = GPUMEM_EVENT_GOODBYE;
		event.text = packet->goodbye_event->reason;
		break;
	default:
		return; /* of a newer daemon */
	}
	thread_emit(thread, event);
}

/* Reads what is there. A negative errno: the channel is over. */
static int thread_listen_once(struct gm_thread *thread)
{
	for (;;) {
		struct gm_packet_in in;
		int r = gm_seqpacket_receive(
			thread->socket, thread->packet, sizeof(thread->packet), &in);
		if (r == -EAGAIN)
			return 0;
		if (r < 0)
			return r;
		gm_fdlist_deinit(&in.fds);
		Gm__Wire__Packet *packet;
		if (in.data_cut)
			return -EBADMSG;
		r = gm_wire_unpack(&thread->arena, thread->packet, in.n, &packet);
		if (r < 0)
			return r;
		thread_heard(thread, packet);
		if (atomic_load(&thread->stop))
			return 0;
	}
}

/* ---- the connection's end, and its return */

static void thread_go_away(struct gm_thread *thread, const char *reason)
{
	struct gpumem_session *session = thread->session;
	/* Every call on it ends before the session is told to be away, late ones included. */
	struct gm_conn *conn = session->conn;
	gm_conn_kill(conn, reason);
	pthread_mutex_lock(&session->lock);
	session->conn = NULL;
	session->state = GM_SESSION_AWAY;
	(void)gm_conn_reason(conn, session->away);
	pthread_mutex_unlock(&session->lock);
	gm_conn_unref(conn);
	thread->socket = gm_close(thread->socket);
	thread->away = true;
	thread->retry_ns = RETRY_FIRST_NS;
	thread->retry_at = gm_clock_ns() + thread->retry_ns;
	thread_emit(thread, (gpumem_event){.kind = GPUMEM_EVENT_LOST, .text = session->away});
}

static void thread_come_back(struct gm_thread *thread)
{
	struct gpumem_session *session = thread->session;
	bool resumed;
	if (gm_resume(session, &thread->socket, &resumed)) {
		pthread_mutex_lock(&session->lock);
		snprintf(session->away, sizeof(session->away), "%s", gm_error_text());
		pthread_mutex_unlock(&session->lock);
		thread->retry_ns *= 2;
		if (thread->retry_ns > RETRY_MOST_NS)
			thread->retry_ns = RETRY_MOST_NS;
		thread->retry_at = gm_clock_ns() + thread->retry_ns;
		return;
	}
	thread->away = false;
	thread->retry_at = NEVER;
	thread->return_at = gm_clock_ns();
	thread->publish_at = gm_clock_ns();
	thread_emit(thread,
		(gpumem_event){
			.kind = GPUMEM_EVENT_RESTORED,
			.text = resumed ? "the session goes on"
					: "gpumemd was started anew: what was held works on, but "
					  "stands in no book of it and cannot be shared",
		});
}

/* ---- times */

static void thread_publish(struct gm_thread *thread, uint64_t now)
{
	struct gpumem_session *session = thread->session;
	bool moved = false;
	/* First the flag: what moves after the figures were read sets it again. */
	atomic_store_explicit(&session->stirred, false, memory_order_seq_cst);
	for (uint32_t i = 0; i < session->devices; i++) {
		gm_listing_publish(session, i);
		moved |= gm_use_publish(session, i);
	}
	thread->publish_at = NEVER;
	if (moved) {
		atomic_store_explicit(&session->stirred, true, memory_order_relaxed);
		thread->publish_at = now + PUBLISH_NS;
	}
}

static int thread_poll_ms(const struct gm_thread *thread, uint64_t now)
{
	uint64_t at = thread->tick_at;
	at = thread->publish_at < at ? thread->publish_at : at;
	at = thread->retry_at < at ? thread->retry_at : at;
	at = thread->return_at < at ? thread->return_at : at;
	if (at == NEVER)
		return -1;
	if (at <= now)
		return 0;
	uint64_t ms = (at - now + GM_NS_PER_MS - 1) / GM_NS_PER_MS;
	return ms > 3600000 ? 3600000 : (int)ms;
}

static void thread_on_time(struct gm_thread *thread, bool woken)
{
	struct gpumem_session *session = thread->session;
	uint64_t now = gm_clock_ns();
	if (woken)
		gm_buffer_settle(session);
	if (woken || now >= thread->tick_at)
		thread->tick_at = gm_alloc_tick(session, now);
	if (woken && thread->publish_at == NEVER &&
		atomic_load_explicit(&session->stirred, memory_order_relaxed))
		thread->publish_at = now + PUBLISH_FIRST_NS;
	if (now >= thread->publish_at)
		thread_publish(thread, now);
	if (!thread->away && (woken || now >= thread->return_at))
		thread->return_at = gm_returns_flush(session, NULL) ? now + RETURN_NS : NEVER;
	if (thread->away && now >= thread->retry_at)
		thread_come_back(thread);
}

static void *thread_run(void *ctx)
{
	struct gm_thread *thread = ctx;
	struct gpumem_session *session = thread->session;
	while (!atomic_load(&thread->stop)) {
		struct gm_conn *conn = thread->away ? NULL : session->conn;
		struct pollfd p[3] = {
			{.fd = session->wake, .events = POLLIN},
			{.fd = thread->socket, .events = POLLIN},
			{.fd = conn ? gm_conn_fd(conn) : -1,
				.events = conn && gm_conn_unread(conn) ? POLLIN : 0},
		};
		int n = poll(p, 3, thread_poll_ms(thread, gm_clock_ns()));
		if (n < 0 && errno != EINTR)
			break; /* no descriptor of ours is any good: nothing can be done here */
		if (atomic_load(&thread->stop))
			break;
		bool woken = n > 0 && p[0].revents;
		if (woken) {
			eventfd_t count;
			(void)eventfd_read(session->wake, &count);
		}
		if (conn && n > 0 && p[1].revents && thread_listen_once(thread) < 0) {
			/* What it still said to requests is worth hearing. */
			gm_conn_drain(conn);
			gm_conn_kill(conn, "the daemon closed the event channel");
		}
		if (conn && n > 0 && p[2].revents)
			gm_conn_drain(conn);
		if (conn && gm_conn_dead(conn))
			thread_go_away(thread, "the connection ended");
		thread_on_time(thread, woken);
	}
	return NULL;
}

/* ---- beginning and end */

static void thread_free(struct gm_thread *thread)
{
	if (!thread)
		return;
	gm_close(thread->socket);
	gm_wire_arena_deinit(&thread->arena);
	pthread_mutex_destroy(&thread->calling);
	free(thread);
}

int gm_thread_start(struct gpumem_session *session, int socket)
{
	struct gm_thread *thread = calloc(1, sizeof(*thread));
	if (!thread) {
		gm_close(socket);
		return -ENOMEM;
	}
	thread->session = session;
	thread->socket = socket;
	thread->tick_at = thread->publish_at = thread->retry_at = thread->return_at = NEVER;
	gm_wire_arena_init(&thread->arena);
	pthread_mutex_init(&thread->calling, NULL);

	/* Before the thread is: it must know itself from its first callback on. */
	session->thread = thread;
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int r = pthread_create(&thread->thread, NULL, thread_run, thread);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r) {
		session->thread = NULL;
		thread_free(thread);
		return -r;
	}
	(void)pthread_setname_np(thread->thread, "gpumem");
	return 0;
}

void gm_thread_stop(struct gpumem_session *session)
{
	struct gm_thread *thread = session->thread;
	if (!thread)
		return;
	atomic_store(&thread->stop, true);
	gm_session_wake(session);
	pthread_join(thread->thread, NULL);
	session->thread = NULL;
	thread_free(thread);
}
