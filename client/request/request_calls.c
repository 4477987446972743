/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests as the program sees them: begun, looked at, awaited, taken or dropped. request_step.c
 * makes them ready.
 *
 * This file promises that no call waits except gpumem_request_wait(), and that a request which the
 * program dropped is freed here, or by gm_requests_step() if that has it in its hands.
 */
#include "client/request/request_step.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "client/buffer/buffer.h"
#include "client/buffer/buffer_make.h"
#include "client/heap/arena.h"
#include "client/memory/supply.h"
#include "client/request/request_list.h"
#include "client/session/reconnect.h"
#include "common/arith.h"
#include "common/cancel.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/lock.h"
#include "common/status_table.h"

/* ---- completions */

gpumem_status gpumem_session_fd(gpumem_session *session, int *ret_fd)
{
	GM_UNCANCELLED;

	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!ret_fd)
		return gm_error(GPUMEM_E_INVALID, "ret_fd must not be NULL");
	struct gm_requests *q = session->requests;
	int error = 0;

	gm_lock(&session->lock);
	if (q->fd < 0) {
		q->fd = eventfd(q->n_done > 0, EFD_CLOEXEC | EFD_NONBLOCK);
		error = q->fd < 0 ? -errno : 0;
	}
	int fd = q->fd;
	gm_lock_drop(&session->lock);

	if (error)
		return gm_error(gm_status_from_errno(error),
			"cannot make a descriptor for completions: %s", strerror(-error));
	*ret_fd = fd;
	return GPUMEM_OK;
}

gpumem_status gpumem_dispatch(gpumem_session *session, uint32_t *ret_ran)
{
	if (!gm_session_ok(session))
		return gm_session_refused(session);
	struct gm_requests *q = session->requests;
	uint32_t ran = 0;
	GM_UNCANCELLED;

	gm_lock(&session->lock);
	/* A function that begins requests which are ready at once must not keep this call busy for
	 * ever. */
	for (size_t left = q->n_done; left && q->done; left--) {
		struct gpumem_request *request = q->done;
		gpumem_request_fn fn = request->fn;
		void *user = request->user;
		request->fn = NULL;
		gm_request_unannounce(request);
		gm_lock_drop(&session->lock);

		fn(user, request);
		ran++;
		gm_lock(&session->lock);
	}
	gm_lock_drop(&session->lock);

	if (ret_ran)
		*ret_ran = ran;
	return GPUMEM_OK;
}

/* ---- beginning */

static struct gpumem_request *request_new(
	struct gpumem_session *session, uint32_t device, size_t size, uint32_t wait_ms)
{
	struct gpumem_request *request = calloc(1, sizeof(*request));
	if (!request)
		return NULL;
	request->session = session;
	request->device = device;
	request->size = size;
	request->began_ns = gm_clock_ns();
	request->wait = gm_wait_of(wait_ms);
	return request;
}

static void request_begin(struct gpumem_request *request, enum gm_request_state state)
{
	struct gpumem_session *session = request->session;

	gm_lock(&session->lock);
	request->serial = ++session->requests->serials;
	gm_request_enlist(request, state);
	gm_lock_drop(&session->lock);
	if (state == GM_REQUEST_QUEUED)
		gm_requests_nudge(session);
}

static gpumem_status request_no_memory(void)
{
	return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a request");
}

gpumem_status gpumem_alloc_begin(gpumem_session *session, uint32_t device, size_t size,
	gpumem_stream stream, const gpumem_alloc_options *options, gpumem_request **ret_request)
{
	struct gm_alloc_wanted wanted;
	uint32_t wait_ms;
	GM_UNCANCELLED;

	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!ret_request)
		return gm_error(GPUMEM_E_INVALID, "ret_request must not be NULL");
	gpumem_status status =
		gm_alloc_prepare(session, device, size, stream, options, &wanted, &wait_ms);
	if (status)
		return status;
	struct gpumem_request *request = request_new(session, device, size, wait_ms);
	if (!request)
		return request_no_memory();

	struct gm_supply_offer nothing = {.supply = wanted.supply};
	wanted.flags |= GM_ARENA_HERE | GM_ARENA_EASY;
	int outcome = gm_alloc_from_offer(&wanted, &nothing, &status);
	wanted.flags &= ~(unsigned)GM_ARENA_EASY;
	if (outcome && outcome != GM_ARENA_E_SOURCE) {
		free(request);
		return gm_alloc_failed(session, device, outcome, status, size);
	}

	request->stream = stream;
	request->ptr = outcome ? NULL : wanted.ptr;
	request->wanted = wanted;
	request->wanted.end_ns = gm_request_end_ns(request);
	if (wanted.call.base.tag) {
		snprintf(request->tag, sizeof(request->tag), "%s", wanted.call.base.tag);
		request->wanted.call.base.tag = request->tag;
	}
	/* From now on another thread allocates: it must not use the program's stream, which may be
	 * gone by then. */
	request->wanted.stream = GPUMEM_STREAM_ANY;
	request_begin(request, outcome ? GM_REQUEST_QUEUED : GM_REQUEST_READY);
	*ret_request = request;
	return GPUMEM_OK;
}

gpumem_status gpumem_buffer_create_begin(gpumem_session *session, uint32_t name, size_t size,
	const gpumem_buffer_options *options, gpumem_request **ret_request)
{
	gpumem_buffer_options given;
	uint32_t device;
	GM_UNCANCELLED;

	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!ret_request)
		return gm_error(GPUMEM_E_INVALID, "ret_request must not be NULL");
	gpumem_status status = gm_buffer_check(session, name, size, options, &given, &device);
	if (!status && given.flags & GPUMEM_BUFFER_CPU_OK)
		status = gm_error(GPUMEM_E_UNSUPPORTED,
			"a request waits for memory of its device: create a buffer that may lie in host "
			"memory without one");
	if (status)
		return status;
	struct gpumem_request *request = request_new(session, device, size, given.wait_ms);
	if (!request)
		return request_no_memory();

	request->for_buffer = true;
	request->transport = gm_buffer_transport_of(&given);
	request->wish = gm_buffer_wish_of(&given);
	snprintf(request->tag, sizeof(request->tag), "%s", given.tag ? given.tag : "");
	snprintf(request->type, sizeof(request->type), "%s", given.type ? given.type : "");
	snprintf(request->precision, sizeof(request->precision), "%s",
		given.precision ? given.precision : "");
	request_begin(request, GM_REQUEST_QUEUED);
	*ret_request = request;
	return GPUMEM_OK;
}

/* ---- looking and waiting */

/* Every call on a request begins with this check. */
static gpumem_status request_check(const struct gpumem_request *request)
{
	if (!request)
		return gm_error(GPUMEM_E_INVALID, "request must not be NULL");
	return gm_session_ok(request->session) ? GPUMEM_OK : gm_session_refused(request->session);
}

gpumem_request_state gpumem_request_ready(const gpumem_request *request)
{
	if (request_check(request))
		return GPUMEM_REQUEST_FAILED;

	gm_lock(&request->session->lock);
	enum gm_request_state state = request->state;
	gm_lock_drop(&request->session->lock);

	if (state == GM_REQUEST_READY)
		return GPUMEM_REQUEST_READY;
	return state == GM_REQUEST_FAILED ? GPUMEM_REQUEST_FAILED : GPUMEM_REQUEST_PENDING;
}

gpumem_status gpumem_request_on_done(gpumem_request *request, gpumem_request_fn fn, void *user)
{
	GM_UNCANCELLED;
	gpumem_status status = request_check(request);
	if (status)
		return status;

	gm_lock(&request->session->lock);
	gm_request_unannounce(request);
	request->fn = fn;
	request->user = user;
	if (fn && !gm_request_pending(request))
		gm_request_announce(request);
	gm_lock_drop(&request->session->lock);
	return GPUMEM_OK;
}

/*
 * One turn of the library's thread, for requests only: it is busy with the program's event function,
 * which may be waiting for this thread, or may be this thread.
 */
static void request_drive(struct gpumem_session *session, uint64_t until_ns)
{
	gm_reconnect_retry(session);
	until_ns = gm_u64_min(until_ns, gm_requests_step(session));
	until_ns = gm_u64_min(until_ns, gm_reconnect_retry_at(session));

	gm_lock(&session->lock);
	struct gm_conn *conn = session->conn ? gm_conn_ref(session->conn) : NULL;
	gm_lock_drop(&session->lock);
	struct pollfd p[2] = {
		{.fd = session->requests->nudge, .events = POLLIN},
		{.fd = conn ? gm_conn_fd(conn) : -1,
			.events = conn && gm_conn_unread(conn) ? POLLIN : 0},
	};
	int n = poll(p, 2, gm_clock_poll_ms(until_ns));
	if (n > 0 && p[0].revents) {
		eventfd_t count;
		(void)!eventfd_read(session->requests->nudge, &count);
	}

	if (conn && n > 0 && p[1].revents)
		gm_conn_drain(conn);
	if (conn && gm_conn_dead(conn))
		gm_reconnect_begin(session, conn, "the connection ended");
	gm_conn_unref(conn);
}

gpumem_status gpumem_request_wait(gpumem_request *request, uint32_t timeout_ms)
{
	gpumem_status status = request_check(request);
	if (status)
		return status;
	struct gpumem_session *session = request->session;
	struct gm_requests *q = session->requests;
	uint64_t end_ns = gm_wait_of(timeout_ms).deadline_ns; /* 0: it does not wait */
	bool drove = false;
	GM_UNCANCELLED;

	gm_lock(&session->lock);
	while (gm_request_pending(request) && gm_clock_ns() < end_ns) {
		if (session->busy && !q->driving) {
			drove = q->driving = true;
			gm_lock_drop(&session->lock);
			request_drive(session, end_ns);
			gm_lock(&session->lock);
			q->driving = false;
			/* Another thread that waits may have to go on driving. */
			pthread_cond_broadcast(&session->changed);
		} else {
			(void)gm_lock_wait_until(&session->lock, &session->changed, end_ns);
		}
	}
	bool pending = gm_request_pending(request);
	gm_lock_drop(&session->lock);

	/* The library's thread goes on with the others. */
	if (drove)
		gm_session_wake(session);
	if (pending)
		return gm_error(GPUMEM_E_TIMEOUT,
			"the request is still pending after %llu ms: wait again, or cancel it",
			(unsigned long long)(end_ns ? timeout_ms : 0));
	return GPUMEM_OK;
}

/* ---- the end */

void gpumem_request_cancel(gpumem_request *request)
{
	if (!request || request_check(request))
		return;
	struct gpumem_session *session = request->session;
	GM_UNCANCELLED;

	gm_lock(&session->lock);
	gm_request_unannounce(request);
	request->fn = NULL;
	bool ours = !request->working;
	if (ours)
		gm_request_unlist(request);
	else
		request->dropped = true;
	gm_lock_drop(&session->lock);
	if (ours)
		gm_request_dispose(request);
}

/* Whether the request can be taken. If it failed, ends it. */
static gpumem_status request_take(struct gpumem_request *request, bool buffer, const void *ret)
{
	gpumem_status status = request_check(request);
	if (status)
		return status;
	if (!ret)
		return gm_error(
			GPUMEM_E_INVALID, "%s must not be NULL", buffer ? "ret_buffer" : "ret_ptr");
	if (request->for_buffer != buffer)
		return gm_error(GPUMEM_E_INVALID, "the request was begun with %s: take it with %s",
			buffer ? "gpumem_alloc_begin()" : "gpumem_buffer_create_begin()",
			buffer ? "gpumem_alloc_take()" : "gpumem_buffer_take()");

	switch (gpumem_request_ready(request)) {
	case GPUMEM_REQUEST_PENDING:
		return gm_error(
			GPUMEM_E_BUSY, "the request is still pending: wait for it, or cancel it");
	case GPUMEM_REQUEST_READY:
		return GPUMEM_OK;
	case GPUMEM_REQUEST_FAILED:
		break;
	}
	status = gm_error(request->status, "%s",
		request->detail ? request->detail : gm_status_text(request->status));
	gpumem_request_cancel(request);
	return status;
}

gpumem_status gpumem_alloc_take(gpumem_request *request, void **ret_ptr)
{
	GM_UNCANCELLED;

	gpumem_status status = request_take(request, false, ret_ptr);
	if (!status)
		status = gm_alloc_hand_over(
			request->session, request->device, request->stream, request->ptr);
	if (status)
		return status;
	*ret_ptr = gm_steal_ptr(&request->ptr);
	gpumem_request_cancel(request);
	return GPUMEM_OK;
}

gpumem_status gpumem_buffer_take(gpumem_request *request, gpumem_buffer **ret_buffer)
{
	GM_UNCANCELLED;

	gpumem_status status = request_take(request, true, ret_buffer);
	if (status)
		return status;
	gm_buffer_made_here(request->buffer);
	*ret_buffer = gm_steal_ptr(&request->buffer);
	gpumem_request_cancel(request);
	return GPUMEM_OK;
}
