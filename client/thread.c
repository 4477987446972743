/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread behind a session. It waits for the wakeup of the events, for the connection (its end, and
 * answers whose callers gave up), for being woken, and for the earliest of its timers. In a program
 * that is idle and connected, no timer is set.
 *
 * While it calls the program's event function, it holds only one lock: the one that
 * gpumem_on_event() takes, so that gpumem_on_event(NULL) can wait for the function to return.
 */
#include "client/thread.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "client/buffer/buffer.h"
#include "client/buffer/evict.h"
#include "client/buffer/signals.h"
#include "client/device/account_use.h"
#include "client/memory/alloc.h"
#include "client/memory/alloc_listing.h"
#include "client/memory/alloc_managed.h"
#include "client/request/request_step.h"
#include "client/session/reconnect.h"
#include "client/grant/session_declared.h"
#include "client/grant/lease_returns.h"
#include "client/share/buffer_signal.h"
#include "common/arith.h"
#include "common/wire/wakeup.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/lock.h"
#include "common/stack.h"
#include "common/wire/page_event.h"

#define NEVER UINT64_MAX

/* How soon figures are published after a change, and how often while they keep changing. */
#define PUBLISH_FIRST_NS (50 * GM_NS_PER_MS)
#define PUBLISH_NS       (1 * GM_NS_PER_S)
/* How soon failed returns are sent again while the connection works. */
#define RETURN_NS (1 * GM_NS_PER_S)
/* How soon to look again at a page that the daemon was writing. */
#define LOOK_NS (1 * GM_NS_PER_MS)

struct gm_thread {
	struct gpumem_session *session;
	pthread_t thread;
	_Atomic bool stop;

	/* Used only by the thread itself. */
	int wakeup;                 /* for events; -1 while away */
	struct gm_page_heard heard; /* events that the program was told */
	uint64_t losses;            /* of the session, as far as the program was told */
	uint64_t tick_at, publish_at, return_at, look_at, request_at, makers_at, evict_at;
	uint64_t back_at; /* for buffers that may return from host memory */

	struct gm_lock calling; /* held while fn runs */
	gpumem_event_fn fn;
	void *user;
};

/* ---- events for the program */

static void thread_emit(struct gm_thread *thread, gpumem_event event)
{
	event.size = sizeof(event);
	gm_lock(&thread->calling);
	if (thread->fn) {
		gm_reconnect_set_busy(thread->session, true);
		thread->fn(thread->user, &event);
		gm_reconnect_set_busy(thread->session, false);
	}
	gm_lock_drop(&thread->calling);
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
			"gpumem_on_event() cannot be called from the event function: call it from "
			"another thread");

	struct gm_thread *thread = session->thread;
	gm_lock(&thread->calling);
	thread->fn = fn;
	thread->user = user;
	gm_lock_drop(&thread->calling);
	return GPUMEM_OK;
}

/* ---- events from the daemon */

/* Returns unused memory of a device, until so many bytes went back, or all of it if that is urgent.
 * Returns how many bytes are still wanted. UINT64_MAX: everything that is unused. spill: how many bytes
 * of evictable buffers are wanted, too, as far as the unused memory is not enough. */
static uint64_t thread_give_back(
	struct gm_thread *thread, uint32_t device, bool urgent, uint64_t wanted, uint64_t spill)
{
	struct gpumem_session *session = thread->session;
	gm_retired_settle(session, GM_RETIRED_HOST_WAIT);

	uint64_t returned = gm_alloc_trim(session, device, urgent ? UINT64_MAX : wanted);
	if (spill) {
		uint64_t spilled, most = wanted == UINT64_MAX ? spill : gm_u64_max(wanted, spill);
		gm_evict_want(session, device, gm_u64_minus(most, returned));
		thread->evict_at = gm_evict_step(session, gm_clock_ns(), &spilled);
		returned += spilled;
	}
	return wanted == UINT64_MAX ? wanted : gm_u64_minus(wanted, returned);
}

static void thread_on_event(struct gm_thread *thread, const struct gm_page_event *said)
{
	gpumem_event event = {.device = gm_session_device_name(thread->session, said->device)};

	switch (said->kind) {
	case GM_PAGE_EVENT_PRESSURE:
		event.kind = GPUMEM_EVENT_PRESSURE;
		event.level = (gpumem_level)gm_u64_min(said->level, GPUMEM_LEVEL_CRITICAL);
		event.pressure = said->pressure_ppm / 1e6;
		gm_evict_on_pressure(thread->session, said->device, event.level);
		thread->back_at = 0;
		break;
	case GM_PAGE_EVENT_RECLAIM:
		event.kind = GPUMEM_EVENT_RECLAIM;
		event.urgent = said->urgent;
		/* Return what the library itself can, before the program hears of it. */
		event.bytes = thread_give_back(thread, said->device, said->urgent,
			said->bytes ? said->bytes : UINT64_MAX, said->spill);
		break;
	case GM_PAGE_EVENT_LIMITS:
		event.kind = GPUMEM_EVENT_LIMITS;
		event.bytes = said->bytes;
		break;
	case GM_PAGE_EVENT_EVICT:
		if (said->restore)
			gm_evict_restore(thread->session, said->device, said->row);
		else
			thread->evict_at =
				gm_evict_by_hand(thread->session, said->device, said->row);
		return;
	case GM_PAGE_EVENT_MAKERS:
		/* The program hears of it where it waits. */
		atomic_store(&thread->session->makers_due, true);
		return;
	case GM_PAGE_EVENT_GOODBYE:
		event.kind = GPUMEM_EVENT_GOODBYE;
		event.device = 0;
		event.text = said->reason;
		break;
	}

	thread_emit(thread, event);

	/* The program may have freed memory when it heard of the reclaim. */
	if (event.kind == GPUMEM_EVENT_RECLAIM && event.bytes)
		thread_give_back(thread, said->device, event.urgent, event.bytes, 0);
}

/* Tells the program about all events that are new on the daemon's page. */
static void thread_look(struct gm_thread *thread)
{
	struct gm_page_event event;
	int r;

	while ((r = gm_page_event_next(thread->session->pages.daemon, &thread->heard, &event)) >
		0) {
		thread_on_event(thread, &event);
		if (atomic_load(&thread->stop))
			return;
	}
	thread->look_at = r < 0 ? gm_clock_ns() + LOOK_NS : NEVER;
}

/* ---- losing and resuming the connection */

/* Any thread may notice that the connection was lost, and may resume the session. This one tells the
 * program, and listens for the new wakeup. */
static void thread_follow(struct gm_thread *thread)
{
	struct gpumem_session *session = thread->session;
	char reason[GM_ERROR_BYTES];

	gm_lock(&session->lock);
	bool lost = thread->losses != session->losses;
	thread->losses = session->losses;
	memcpy(reason, session->away, sizeof(reason));
	gm_lock_drop(&session->lock);
	if (lost) {
		/* The last event may be a goodbye, whose wakeup the end of the connection overtook. */
		if (thread->wakeup >= 0)
			thread_look(thread);
		thread->wakeup = gm_close(thread->wakeup);
		thread->look_at = NEVER;
		thread_emit(thread, (gpumem_event){.kind = GPUMEM_EVENT_LOST, .text = reason});
	}

	gm_lock(&session->lock);
	int wakeup = thread->losses == session->losses ? gm_steal_fd(&session->wakeup) : -1;
	bool resumed = session->resumed;
	gm_lock_drop(&session->lock);
	if (wakeup < 0)
		return;

	thread->wakeup = wakeup;
	thread->heard = (struct gm_page_heard){0};
	thread->return_at = gm_clock_ns();
	thread->publish_at = gm_clock_ns();
	atomic_store(&session->makers_due, true);
	thread_emit(thread,
		(gpumem_event){
			.kind = GPUMEM_EVENT_RESTORED,
			.text = resumed ? "the session continues"
					: "gpumemd was restarted: memory that was held keeps "
					  "working, but is not charged and cannot be shared",
		});
}

/* A reference to the connection whose wakeup this thread has, or NULL: the daemon is away, or
 * thread_follow() must be called first. */
static struct gm_conn *thread_conn(struct gm_thread *thread)
{
	struct gpumem_session *session = thread->session;

	gm_lock(&session->lock);
	bool ours = session->conn && session->wakeup < 0 && thread->losses == session->losses;
	struct gm_conn *conn = ours ? gm_conn_ref(session->conn) : NULL;
	gm_lock_drop(&session->lock);
	return conn;
}

/* ---- timers */

static void thread_publish(struct gm_thread *thread, uint64_t now)
{
	struct gpumem_session *session = thread->session;
	bool moved = false;

	/* The flag is cleared first, so that a change after the figures were read sets it again. */
	uint32_t bit = gm_session_dirty_bit(session);
	atomic_fetch_and(&session->dirty, ~bit);
	for (uint32_t i = 0; i < session->devices; i++) {
		gm_alloc_listing_publish(session, i);
		moved |= gm_page_publish_use(session, i);
	}

	thread->publish_at = NEVER;
	if (moved) {
		atomic_fetch_or_explicit(&session->dirty, bit, memory_order_relaxed);
		thread->publish_at = now + PUBLISH_NS;
	}
}

static uint64_t thread_next_timer(const struct gm_thread *thread)
{
	return gm_u64_min(gm_u64_min(gm_u64_min(thread->tick_at, thread->publish_at),
				  gm_u64_min(thread->makers_at,
					  gm_u64_min(thread->evict_at, thread->back_at))),
		gm_u64_min(gm_u64_min(gm_reconnect_retry_at(thread->session), thread->request_at),
			gm_u64_min(thread->return_at, thread->look_at)));
}

static void thread_run_timers(struct gm_thread *thread, bool woken)
{
	struct gpumem_session *session = thread->session;
	uint64_t now = gm_clock_ns();

	if (woken) {
		gm_retired_settle(session, GM_RETIRED_THREAD);
		gm_signals_settle(session);
		gm_session_declared_flush(session);
	}
	if (woken || now >= thread->tick_at)
		thread->tick_at = gm_alloc_tick(session, now);

	if (woken && thread->publish_at == NEVER &&
		(atomic_load_explicit(&session->dirty, memory_order_relaxed) &
			gm_session_dirty_bit(session)))
		thread->publish_at = now + PUBLISH_FIRST_NS;
	if (now >= thread->publish_at)
		thread_publish(thread, now);

	/* While the daemon is away, nothing can be returned. */
	if (thread->wakeup < 0)
		thread->return_at = NEVER;
	else if (woken || now >= thread->return_at)
		thread->return_at = gm_lease_returns_flush(session, NULL) ? now + RETURN_NS : NEVER;
	gm_reconnect_retry(session);
	if (now >= thread->evict_at)
		thread->evict_at = gm_evict_step(session, now, NULL);
	if (woken || now >= thread->back_at)
		thread->back_at = gm_evict_return_step(session, now);
	thread->request_at = gm_requests_step(session);
	if (atomic_exchange(&session->makers_due, false) || now >= thread->makers_at)
		thread->makers_at = gm_buffer_signal_settle(session);
}

/* What there is to do: the thread was woken, the wakeup was sent, or answers arrived. */
static void thread_turn(
	struct gm_thread *thread, struct gm_conn *conn, bool woken, bool rang, bool answers)
{
	struct gpumem_session *session = thread->session;

	if (woken) {
		eventfd_t count;
		(void)eventfd_read(session->wake, &count);
	}

	if (conn && rang && gm_wakeup_clear(thread->wakeup) < 0) {
		/* First read the answers that the daemon sent before it closed. */
		gm_conn_drain(conn);
		gm_conn_kill(conn, "the daemon closed the event channel");
	}
	if (conn && (rang || gm_clock_ns() >= thread->look_at))
		thread_look(thread);
	if (conn && answers)
		gm_conn_drain(conn);
	if (conn && gm_conn_dead(conn))
		gm_reconnect_begin(session, conn, "the connection ended");
	thread_follow(thread);
	thread_run_timers(thread, woken);
}

/* The program has closed descriptors of the library, as closefrom() does. poll() would return at once for ever. The
 * connection is resumed like one that was lost, and the eventfd is made anew. The numbers of the eventfd and of the wakeup are not
 * closed: they may be the program's by now. Returns false if there is no other eventfd. */
static bool thread_replace_closed(
	struct gm_thread *thread, struct gm_conn *conn, const struct pollfd p[3])
{
	if (p[1].revents & POLLNVAL)
		thread->wakeup = -1;
	if (conn && (p[1].revents | p[2].revents) & POLLNVAL)
		gm_conn_kill(conn, "the program closed the descriptors of the connection");
	if (!(p[0].revents & POLLNVAL))
		return true;

	int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (wake < 0)
		return false;
	atomic_store(&thread->session->wake, wake);
	return true;
}

static void *thread_run(void *ctx)
{
	struct gm_thread *thread = ctx;
	struct gpumem_session *session = thread->session;

	while (!atomic_load(&thread->stop)) {
		struct gm_conn *conn = thread_conn(thread);
		struct pollfd p[3] = {
			{.fd = session->wake, .events = POLLIN},
			{.fd = thread->wakeup, .events = POLLIN},
			{.fd = conn ? gm_conn_fd(conn) : -1,
				.events = conn && gm_conn_unread(conn) ? POLLIN : 0},
		};
		int n = poll(p, 3, gm_clock_poll_ms(thread_next_timer(thread)));
		bool over = (n < 0 && errno != EINTR) || atomic_load(&thread->stop);
		if (!over && n > 0)
			over = !thread_replace_closed(thread, conn, p);
		if (!over)
			thread_turn(thread, conn, n > 0 && p[0].revents, n > 0 && p[1].revents,
				n > 0 && p[2].revents);
		gm_conn_unref(conn);
		if (over)
			break;
	}
	return NULL;
}

/* ---- beginning and end */

static void thread_free(struct gm_thread *thread)
{
	if (!thread)
		return;
	gm_close(thread->wakeup);
	gm_lock_deinit(&thread->calling);
	free(thread);
}

int gm_thread_start(struct gpumem_session *session, int wakeup)
{
	struct gm_thread *thread = calloc(1, sizeof(*thread));
	if (!thread) {
		gm_close(wakeup);
		return -ENOMEM;
	}

	thread->session = session;
	thread->wakeup = wakeup;
	thread->tick_at = thread->publish_at = thread->return_at = thread->look_at = NEVER;
	thread->request_at = thread->makers_at = thread->evict_at = thread->back_at = NEVER;
	gm_lock_init(&thread->calling, GM_LOCK_CALLING);

	/* Set before the thread runs, because its first callback may call gm_thread_inside(). */
	session->thread = thread;
	pthread_attr_t attributes;
	sigset_t all, old;
	int r = gm_stack_attr_init(&attributes);
	if (r == 0) {
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old);
		r = pthread_create(&thread->thread, &attributes, thread_run, thread);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
		pthread_attr_destroy(&attributes);
	}
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
	gm_reconnect_stop_retrying(session);
	gm_session_wake(session);
	pthread_join(thread->thread, NULL);
	session->thread = NULL;
	thread_free(thread);
}
