/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The absence of the daemon. The library's thread resumes the session; while it is busy with the
 * program's event function, a thread that waits does so. This file promises that only one thread
 * tries at a time, that none tries in a busy loop, and that a thread waits no longer than it wants.
 */
#include "client/session/reconnect.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/arith.h"
#include "common/cancel.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/lock.h"
#include "common/system/random.h"
#include "common/text/units.h"

/* A connection that lasted this long was a good one, in ns. */
#define ABSENCE_LASTED_NS (1 * GM_NS_PER_S)

void gm_reconnect_back_off(struct gm_backoff *backoff, uint64_t now_ns)
{
	uint64_t random = 0;

	(void)gm_random(&random, sizeof(random));
	gm_backoff_begin(backoff, now_ns, GM_RECONNECT_FIRST_NS);
	gm_backoff_spread(backoff, now_ns, random);
	gm_backoff_fail(backoff, now_ns);
}

bool gm_reconnect_now(struct gpumem_session *session)
{
	gm_lock(&session->lock);
	bool away = session->state == GM_SESSION_AWAY;
	gm_lock_drop(&session->lock);
	return away;
}

/* waited: "", or how long the caller waited. */
static gpumem_status reconnect_error(struct gpumem_session *session, const char *waited)
{
	char text[GM_ERROR_BYTES];

	gm_lock(&session->lock);
	snprintf(text, sizeof(text), "%s", session->away);
	gm_lock_drop(&session->lock);

	/* The reason comes last: it may be long, and only its end is cut off then. */
	bool named = strstr(text, session->path) != NULL;
	return gm_error(GPUMEM_E_DISCONNECTED,
		"gpumemd%s%s cannot be reached%s%s; memory that is held keeps working, and new "
		"memory can be had when the daemon is back: %s",
		named ? "" : " at ", named ? "" : session->path,
		*waited ? ", and did not come back within " : "", waited, text);
}

gpumem_status gm_reconnect_error(struct gpumem_session *session)
{
	return reconnect_error(session, "");
}

void gm_reconnect_begin(struct gpumem_session *session, struct gm_conn *conn, const char *reason)
{
	char why[GM_ERROR_BYTES];
	int wakeup = -1;

	/* Every call on the connection ends before the session is away, also abandoned ones. */
	gm_conn_kill(conn, reason);
	/* The connection's lock comes before the session's. */
	(void)gm_conn_reason(conn, why);
	gm_lock(&session->lock);
	bool ours = session->conn == conn;
	if (ours) {
		uint64_t now = gm_clock_ns();
		session->conn = NULL;
		session->state = GM_SESSION_AWAY;
		session->losses++;
		wakeup = gm_steal_fd(&session->wakeup);
		memcpy(session->away, why, sizeof(why));
		/* A daemon that drops every connection is no better than one that is away. */
		if (now - session->since_ns >= ABSENCE_LASTED_NS)
			session->backoff.failures = 0;
		gm_reconnect_back_off(&session->backoff, now);
		pthread_cond_broadcast(&session->changed);
	}
	gm_lock_drop(&session->lock);
	if (!ours)
		return;

	gm_close(wakeup);
	gm_conn_unref(conn);
	gm_session_wake(session);
}

uint64_t gm_reconnect_retry_at(struct gpumem_session *session)
{
	gm_lock(&session->lock);
	bool away = session->state == GM_SESSION_AWAY && !session->resuming && !session->closing;
	uint64_t at = away ? session->backoff.until_ns : UINT64_MAX;
	gm_lock_drop(&session->lock);
	return at;
}

/* Locked. */
static bool reconnect_retry_due(const struct gpumem_session *session)
{
	return session->state == GM_SESSION_AWAY && !session->resuming && !session->closing &&
	       !gm_backoff_holds(&session->backoff, gm_clock_ns());
}

void gm_reconnect_retry(struct gpumem_session *session)
{
	gm_lock(&session->lock);
	bool due = reconnect_retry_due(session);
	if (due)
		session->resuming = true;
	gm_lock_drop(&session->lock);
	if (!due)
		return;

	gpumem_status status = session->resume(session);

	gm_lock(&session->lock);
	session->resuming = false;
	struct gm_conn *greeting = gm_steal_ptr(&session->greeting);
	if (status) {
		snprintf(session->away, sizeof(session->away), "%s", gm_error_text());
		gm_reconnect_back_off(&session->backoff, gm_clock_ns());
	}
	pthread_cond_broadcast(&session->changed);
	gm_lock_drop(&session->lock);
	gm_conn_unref(greeting);
	gm_session_wake(session);
}

void gm_reconnect_stop_retrying(struct gpumem_session *session)
{
	gm_lock(&session->lock);
	session->closing = true;
	pthread_cond_broadcast(&session->changed);
	struct gm_conn *greeting = session->greeting ? gm_conn_ref(session->greeting) : NULL;
	gm_lock_drop(&session->lock);
	if (!greeting)
		return;

	gm_conn_kill(greeting, "the session ends");
	gm_conn_unref(greeting);
}

void gm_reconnect_set_busy(struct gpumem_session *session, bool busy)
{
	gm_lock(&session->lock);
	session->busy = busy;
	pthread_cond_broadcast(&session->changed);
	gm_lock_drop(&session->lock);
}

/* Locked on entry and exit. One turn of waiting: looks elsewhere, resumes the session if nobody else
 * can, or sleeps. Returns false if the caller has found what it wants. */
static bool reconnect_await_turn(
	struct gpumem_session *session, uint64_t end_ns, struct gm_wait_look *look, uint64_t *freed)
{
	if (look && (*freed != session->freed || gm_clock_ns() >= look->at_ns)) {
		*freed = session->freed;
		gm_lock_drop(&session->lock);
		look->at_ns = look->look(look->ctx);
		gm_lock(&session->lock);
		return look->at_ns != 0;
	}

	if (session->busy && reconnect_retry_due(session)) {
		gm_lock_drop(&session->lock);
		gm_reconnect_retry(session);
		gm_lock(&session->lock);
		return true;
	}

	uint64_t until = end_ns;
	if (look)
		until = gm_u64_min(until, look->at_ns);
	if (session->busy && !session->resuming)
		until = gm_u64_min(until, session->backoff.until_ns);
	(void)gm_lock_wait_until(&session->lock, &session->changed, until);
	return true;
}

/* Locked on entry and exit. Waits until the session is not away any more. Returns 0, -ETIMEDOUT, or
 * -ECANCELED if the look returned 0. */
static int reconnect_await(
	struct gpumem_session *session, uint64_t end_ns, struct gm_wait_look *look)
{
	uint64_t freed = session->freed;
	int r = 0;

	session->waiting++;
	if (look) {
		atomic_fetch_add(&session->dirty, GM_SESSION_AWAITED);
		/* The library's thread may mean to sleep for longer. */
		gm_session_wake(session);
	}

	while (r == 0 && session->state == GM_SESSION_AWAY) {
		if (session->closing || gm_clock_ns() >= end_ns)
			r = -ETIMEDOUT;
		else if (!reconnect_await_turn(session, end_ns, look, &freed))
			r = -ECANCELED;
	}

	session->waiting--;
	if (look)
		atomic_fetch_sub(&session->dirty, GM_SESSION_AWAITED);
	return r;
}

gpumem_status gm_reconnect_get_conn(struct gpumem_session *session, uint64_t end_ns,
	struct gm_wait_look *look, struct gm_conn **ret_conn, uint64_t *ret_epoch)
{
	uint64_t began = 0; /* 0: it did not wait */
	int r = 0;

	gm_lock(&session->lock);
	if (session->state == GM_SESSION_AWAY && gm_clock_ns() < end_ns) {
		began = gm_clock_ns();
		r = reconnect_await(session, end_ns, look);
	}
	bool up = r == 0 && session->state == GM_SESSION_UP;
	if (up) {
		*ret_conn = gm_conn_ref(session->conn);
		*ret_epoch = session->epoch;
	}
	gm_lock_drop(&session->lock);

	if (up)
		return GPUMEM_OK;
	if (r == -ECANCELED)
		return gm_error(GPUMEM_E_CANCELLED, "the request was cancelled");
	char waited[GM_UNITS_TEXT];
	return reconnect_error(
		session, began ? gm_format_duration(gm_clock_ns() - began, waited) : "");
}
