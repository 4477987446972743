/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a session. It outlives its connection: while the daemon cannot be reached, the
 * session stays, and held memory works. This file never waits, except for the answer to a hello.
 */
#include "client/session/gpumem_session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/cancel.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/status_table.h"

gpumem_status gm_session_refused(const struct gpumem_session *session)
{
	if (!session)
		return gm_error(GPUMEM_E_INVALID, "session must not be NULL");
	return gm_error(GPUMEM_E_FORKED,
		"this session belongs to the parent process: connect again in the child");
}

gpumem_status gm_session_no_device(const struct gpumem_session *session, uint32_t device)
{
	if (device == GPUMEM_DEVICE_HOST)
		return gm_error(GPUMEM_E_UNSUPPORTED,
			"gpumemd at %s hands out no pinned host memory: see host_limit in "
			"gpumemd.conf",
			session->path);
	return gm_error(GPUMEM_E_NOT_FOUND,
		"no device %u: besides pinned host memory there %s %u, numbered from 0; pinned host memory has a name instead",
		device, session->counted == 1 ? "is" : "are", session->counted);
}

void gm_session_wake(void *ctx)
{
	struct gpumem_session *session = ctx;
	GM_UNCANCELLED;
	/* If the counter is full, the thread wakes anyway. */
	(void)!eventfd_write(session->wake, 1);
}

/* Wakes the calls that wait for memory. */
static void session_poke(struct gpumem_session *session)
{
	struct gm_conn *conn = NULL;

	gm_lock(&session->lock);
	session->freed++;
	bool begun = session->begun;
	if (session->state == GM_SESSION_UP)
		conn = gm_conn_ref(session->conn);
	else
		pthread_cond_broadcast(&session->changed);
	gm_lock_drop(&session->lock);

	if (begun)
		gm_session_wake(session);
	if (!conn)
		return;

	gm_conn_poke(conn);
	gm_conn_unref(conn);
}

void gm_session_dirty_now(struct gpumem_session *session)
{
	uint32_t bit = gm_session_dirty_bit(session);
	uint32_t was = atomic_load_explicit(&session->dirty, memory_order_relaxed);

	/* A session that tracks everything comes here each time. */
	if (!(was & bit))
		was = atomic_fetch_or_explicit(&session->dirty, bit, memory_order_relaxed);
	if (!(was & bit))
		gm_session_wake(session);
	if (was >= GM_SESSION_AWAITED)
		session_poke(session);
}

uint64_t gm_session_epoch(struct gpumem_session *session)
{
	gm_lock(&session->lock);
	uint64_t epoch = session->epoch;
	gm_lock_drop(&session->lock);
	return epoch;
}

uint64_t gm_session_wait_ms(struct gpumem_session *session)
{
	gm_lock(&session->lock);
	uint64_t wait_ms = session->wait_ms;
	gm_lock_drop(&session->lock);
	return wait_ms;
}

/* ---- hello */

/* Keeps the connection at hand, so that gm_reconnect_stop_retrying() can end it. */
static void session_greet(void *ctx, struct gm_conn *conn)
{
	struct gpumem_session *session = ctx;

	gm_lock(&session->lock);
	struct gm_conn *former = session->greeting;
	session->greeting = gm_conn_ref(conn);
	bool closing = session->closing;
	gm_lock_drop(&session->lock);

	gm_conn_unref(former);
	if (closing)
		gm_conn_kill(conn, "the session ends");
}

gpumem_status gm_session_hello(struct gpumem_session *session, bool anew, uint64_t held,
	struct gm_conn_hello *ret_hello, bool *ret_refused)
{
	struct gm_conn_hello_ask ask = {
		.path = session->path,
		.why = session->why,
		.name = session->name,
		.run = session->run,
		.run_max = session->run_max,
		.run_priority = session->run_priority,
		.run_name = session->run_name,
		.deadline_ns = gm_clock_ns() + session->timeout_ns,
		.ids = &session->ids,
		.wake = gm_session_wake,
		.connected = session_greet,
		.ctx = session,
	};

	if (!anew) {
		gm_lock(&session->lock);
		ask.session = session->id;
		memcpy(ask.token, session->token, sizeof(ask.token));
		ask.held = held;
		gm_lock_drop(&session->lock);
	}
	return gm_conn_hello(&ask, ret_hello, ret_refused);
}

static uint64_t session_track_from(enum gm_track track)
{
	switch (track) {
	case GM_TRACK_OFF:
		return UINT64_MAX;
	case GM_TRACK_ALL:
	case GM_TRACK_STACKS:
		return 0;
	case GM_TRACK_LARGE:
		break;
	}
	return GM_TRACK_LARGE_BYTES;
}

void gm_session_adopt(struct gpumem_session *session, struct gm_conn_hello *hello)
{
	uint64_t from = session->tracking ? 0 : session_track_from(hello->track);
	atomic_store_explicit(&session->track_from, from, memory_order_relaxed);
	gm_lock(&session->lock);
	session->conn = gm_steal_ptr(&hello->conn);
	session->wakeup = gm_steal_fd(&hello->wakeup);
	session->resumed = hello->resumed;
	session->since_ns = gm_clock_ns();
	session->id = hello->session;
	memcpy(session->token, hello->token, sizeof(session->token));
	session->generation = hello->generation;
	session->decay_ms = hello->decay_ms;
	session->wait_ms = hello->wait_ms;
	if (!hello->resumed)
		session->epoch++;
	session->state = GM_SESSION_UP;
	struct gm_conn *greeting = gm_steal_ptr(&session->greeting);
	pthread_cond_broadcast(&session->changed);
	gm_lock_drop(&session->lock);
	gm_conn_unref(greeting);
}

/* ---- structs that grow */

/* Copies everything but the size field, which says how long the program's struct is. */
static gpumem_status session_sized_copy(
	void *to, const void *from, const void *given, size_t known_bytes)
{
	size_t bytes;

	memcpy(&bytes, given, sizeof(bytes));
	if (bytes <= sizeof(size_t))
		return gm_error(GPUMEM_E_INVALID,
			"the struct's size field is not set (it is %zu): initialise the struct "
			"with its _INIT macro",
			bytes);
	if (bytes > known_bytes)
		bytes = known_bytes;
	memcpy((char *)to + sizeof(size_t), (const char *)from + sizeof(size_t),
		bytes - sizeof(size_t));
	return GPUMEM_OK;
}

gpumem_status gm_sized_in(void *known, size_t known_bytes, const void *given)
{
	return given ? session_sized_copy(known, given, given, known_bytes) : GPUMEM_OK;
}

gpumem_status gm_sized_out(void *given, const void *known, size_t known_bytes)
{
	return session_sized_copy(given, known, given, known_bytes);
}
