/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The path of a session's requests. While the daemon is away, they wait. When it is back, they are
 * sent, and those that were sent before are repeated.
 */
#include "client/session/session_call.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/session/reconnect.h"
#include "common/arith.h"
#include "common/cancel.h"
#include "common/clock.h"
#include "common/status_table.h"
#include "common/text/units.h"

/* The caller found elsewhere what it had asked for, so the request must not wait any longer. If it
 * was answered meanwhile, the daemon refuses this, and ops->late() gives back what it granted. */
static gpumem_status session_cancel(
	struct gpumem_session *session, struct gm_conn *via, uint64_t request)
{
	Gm__Wire__Cancel body = GM__WIRE__CANCEL__INIT;
	body.request = request;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(CANCEL, cancel, &body);
	(void)gm_session_tell(session, via, &packet, 0, true);
	return gm_error(GPUMEM_E_CANCELLED, "the request was cancelled");
}

/* The connection ended, or the request could not be sent. */
static gpumem_status session_call_unsent(
	struct gpumem_session *session, struct gm_conn *conn, int error)
{
	char reason[GM_ERROR_BYTES];

	if (error != -EPIPE)
		return gm_error(gm_status_from_errno(error), "cannot send to gpumemd at %s: %s",
			session->path, strerror(-error));
	(void)gm_conn_reason(conn, reason);
	return gm_error(GPUMEM_E_DISCONNECTED, "the connection to gpumemd at %s ended: %.200s",
		session->path, reason);
}

static gpumem_status session_call_answered(
	struct gpumem_session *session, const struct gm_conn_request *call)
{
	if (call->status)
		return gm_error(call->status, "%s", call->detail);
	if (call->result == -ENOMEM)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for gpumemd's answer");
	if (call->result < 0)
		return gm_error(GPUMEM_E_PROTOCOL,
			"gpumemd at %s sent an answer that does not match the request",
			session->path);
	return GPUMEM_OK;
}

/* Sends the request on a connection and waits for the answer. Returns 0 or a negative errno, as
 * gm_conn_call() does. */
static int session_call_conn(struct gpumem_session *session, struct gm_conn *conn,
	Gm__Wire__Packet *request, struct gm_conn_request *call, uint64_t patience_ns)
{
	uint64_t (*again)(void *ctx) = call->again;

	if (!call->extra_ns)
		call->again = NULL;
	bool awaited = call->again != NULL;
	if (awaited)
		atomic_fetch_add(&session->dirty, GM_SESSION_AWAITED);
	int r = gm_conn_call(conn, request, call, gm_clock_ns() + patience_ns);
	if (awaited)
		atomic_fetch_sub(&session->dirty, GM_SESSION_AWAITED);
	/* Otherwise the call is not ours any more. */
	if (r != -ECANCELED && r != -ETIMEDOUT)
		call->again = again;
	return r;
}

/* The same, and says how it ended. *ret_lost: the connection is of no use any more. */
static gpumem_status session_call_on(struct gpumem_session *session, struct gm_conn *conn,
	Gm__Wire__Packet *request, struct gm_conn_request **call, bool *ret_lost)
{
	uint64_t patience_ns = session->timeout_ns + (*call)->extra_ns;
	int r = session_call_conn(session, conn, request, *call, patience_ns);
	/* A daemon that is about to stop refuses requests like this. */
	*ret_lost = r == -EPIPE || (r == 0 && (*call)->status == GPUMEM_E_DISCONNECTED);

	if (r == -ECANCELED) {
		*call = NULL;
		return session_cancel(session, conn, request->id);
	}
	if (r == -ETIMEDOUT) {
		char patience[GM_UNITS_TEXT];
		*call = NULL;
		return gm_error(GPUMEM_E_TIMEOUT, "gpumemd at %s did not answer within %s",
			session->path, gm_format_duration(patience_ns, patience));
	}
	return r < 0 ? session_call_unsent(session, conn, r)
		     : session_call_answered(session, *call);
}

/* Whether the request can be sent: for the first time, or once more after its connection ended. */
static gpumem_status session_call_prepare(
	struct gpumem_session *session, struct gm_conn_request *call, bool again, uint64_t epoch)
{
	if (call->of_epoch && call->of_epoch != epoch)
		return gm_error(GPUMEM_E_NOT_FOUND,
			"gpumemd at %s was restarted and does not know this memory any more",
			session->path);
	if (again && call->ops->repeat && call->ops->repeat(call) < 0)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory to repeat a request");
	if (call->ops->prepare)
		call->ops->prepare(call);
	call->epoch = epoch;
	return GPUMEM_OK;
}

gpumem_status gm_session_call(struct gpumem_session *session, struct gm_conn *via,
	Gm__Wire__Packet *request, struct gm_conn_request **call)
{
	bool lost = false;
	GM_UNCANCELLED;

	if (via) {
		(*call)->epoch = gm_session_epoch(session);
		return session_call_on(session, via, request, call, &lost);
	}

	bool impatient = (*call)->impatient;
	uint64_t bound_ns = (*call)->wait_ns ? gm_clock_ns() + (*call)->wait_ns : UINT64_MAX;
	struct gm_reconnect_patience patience = {
		.end_ns = impatient ? 0 : gm_reconnect_end(session, (*call)->wait_ns),
		.again = (*call)->again,
		.again_ctx = (*call)->again_ctx,
		.again_ns = (*call)->again_ns,
	};

	for (;;) {
		struct gm_conn *conn;
		uint64_t epoch;
		gpumem_status status = gm_reconnect_get_conn(session, &patience, &conn, &epoch);
		if (status)
			return status;

		uint64_t sent_ns = gm_clock_ns();
		status = session_call_prepare(session, *call, lost, epoch);
		lost = false;
		if (!status)
			status = session_call_on(session, conn, request, call, &lost);
		if (lost)
			gm_reconnect_begin(session, conn, gm_error_text());
		gm_conn_unref(conn);
		if (!lost || impatient)
			return status;

		/* The time for which the daemon was there does not count, and earns as much again:
		 * so a request outlasts any number of restarts, but not a daemon that it kills. */
		uint64_t now = gm_clock_ns();
		patience.end_ns = gm_u64_min(bound_ns,
			gm_u64_min(patience.end_ns + 2 * (now - sent_ns), now + session->away_ns));
	}
}

gpumem_status gm_session_begin(struct gpumem_session *session, Gm__Wire__Packet *request,
	struct gm_conn_request *call, bool again, struct gm_conn **ret_conn)
{
	struct gm_reconnect_patience none = {.end_ns = 0};
	struct gm_conn *conn;
	uint64_t epoch;
	GM_UNCANCELLED;

	gpumem_status status = gm_reconnect_get_conn(session, &none, &conn, &epoch);
	if (status)
		return status;

	status = session_call_prepare(session, call, again, epoch);
	int r = status ? 0 : gm_conn_begin(conn, request, call, false);
	if (r == -EAGAIN) {
		status = gm_error(GPUMEM_E_BUSY, "too many requests are unanswered");
	} else if (r < 0) {
		status = session_call_unsent(session, conn, r);
		if (r == -EPIPE)
			gm_reconnect_begin(session, conn, gm_error_text());
	}

	if (status)
		gm_conn_unref(conn);
	else
		*ret_conn = conn;
	return status;
}

gpumem_status gm_session_outcome(struct gpumem_session *session, struct gm_conn *conn,
	const struct gm_conn_request *call, bool *ret_lost)
{
	GM_UNCANCELLED;

	/* A daemon that is about to stop refuses requests like this. */
	*ret_lost = call->result == -EPIPE || call->status == GPUMEM_E_DISCONNECTED;
	gpumem_status status = call->result == -EPIPE ? session_call_unsent(session, conn, -EPIPE)
						      : session_call_answered(session, call);
	if (*ret_lost)
		gm_reconnect_begin(session, conn, gm_error_text());
	return status;
}

static int session_done_take(
	struct gm_conn_request *call, const Gm__Wire__Packet *packet, struct gm_conn_packet *in)
{
	return packet->body_case == GM__WIRE__PACKET__BODY_DONE ? 0 : -EPROTO;
}

static void session_done_late(struct gm_conn_request *call)
{
	free(call);
}

static const struct gm_conn_request_ops done_ops = {
	.take = session_done_take, .late = session_done_late};

gpumem_status gm_session_tell(struct gpumem_session *session, struct gm_conn *via,
	Gm__Wire__Packet *request, uint64_t of_epoch, bool impatient)
{
	struct gm_conn_request *call = calloc(1, sizeof(*call));
	if (!call)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a request");
	call->ops = &done_ops;
	call->of_epoch = of_epoch;
	call->impatient = impatient;
	gpumem_status status = gm_session_call(session, via, request, &call);
	free(call);
	return status;
}

void gm_session_call_off(
	struct gpumem_session *session, uint64_t request, struct gm_conn_request *call)
{
	Gm__Wire__Cancel body = GM__WIRE__CANCEL__INIT;
	body.request = request;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(CANCEL, cancel, &body);
	call->ops = &done_ops;

	gm_lock(&session->lock);
	bool up = session->state == GM_SESSION_UP;
	struct gm_conn *conn = up ? gm_conn_ref(session->conn) : NULL;
	gm_lock_drop(&session->lock);

	/* With its connection, the request ends by itself. The socket has room: fewer packets can be
	 * in it than there may be unanswered requests, twice. */
	if (!conn || gm_conn_begin(conn, &packet, call, true) < 0)
		free(call);
	gm_conn_unref(conn);
}

static void session_kept_late(struct gm_conn_request *call)
{
}

static const struct gm_conn_request_ops kept_ops = {
	.take = session_done_take, .late = session_kept_late};

gpumem_status gm_session_tell_with(struct gpumem_session *session, struct gm_conn *via,
	Gm__Wire__Packet *request, struct gm_conn_request *call)
{
	call->ops = &kept_ops;
	return gm_session_call(session, via, request, &call);
}

/* ---- devices */

struct session_devices_call {
	struct gm_conn_request call;
	uint32_t n;
	gpumem_device_info_t infos[GM_BOUND_DEVICES];
};

static int session_devices_take(
	struct gm_conn_request *base, const Gm__Wire__Packet *packet, struct gm_conn_packet *in)
{
	struct session_devices_call *call = (struct session_devices_call *)base;

	if (packet->body_case != GM__WIRE__PACKET__BODY_DEVICES)
		return -EPROTO;
	for (size_t i = 0; i < packet->devices->n_devices; i++) {
		const Gm__Wire__Device *device = packet->devices->devices[i];
		/* Numbers must be in order and without gaps, because they are used as indexes.
		 * Pinned memory must be the last device. */
		if (call->n >= GM_BOUND_DEVICES || device->number != call->n ||
			(call->n && call->infos[call->n - 1].number == GPUMEM_DEVICE_HOST))
			return -EPROTO;
		gpumem_device_info_t *info = &call->infos[call->n++];
		info->size = sizeof(*info);
		info->number = device->pinned ? GPUMEM_DEVICE_HOST : device->number;
		snprintf(info->name, sizeof(info->name), "%s", device->name);
		snprintf(info->backend, sizeof(info->backend), "%s", device->backend);
		snprintf(info->pci, sizeof(info->pci), "%s", device->pci);
		if (device->uuid.len == GM_UUID_BYTES)
			memcpy(info->uuid, device->uuid.data, GM_UUID_BYTES);
		info->total = device->total;
		if ((unsigned)device->visibility <= GPUMEM_VISIBILITY_EXPLICIT)
			info->visibility = (gpumem_visibility)device->visibility;
		info->capacity = device->capacity;
		info->available = device->available;
		info->transports =
			(device->transport_fd ? UINT32_C(1) << GPUMEM_TRANSPORT_FD : 0) |
			(device->transport_ipc ? UINT32_C(1) << GPUMEM_TRANSPORT_IPC : 0);
		/* An older daemon does not send its choice; it chose like this. */
		info->transport = device->transport_fd ? GPUMEM_TRANSPORT_FD : GPUMEM_TRANSPORT_IPC;
		if (device->transport == GM__WIRE__TRANSPORT__TRANSPORT_FD ||
			device->transport == GM__WIRE__TRANSPORT__TRANSPORT_IPC)
			info->transport = (gpumem_transport)device->transport;
	}
	return 0;
}

static int session_devices_repeat(struct gm_conn_request *base)
{
	((struct session_devices_call *)base)->n = 0;
	return 0;
}

static const struct gm_conn_request_ops devices_ops = {
	.take = session_devices_take, .late = session_done_late, .repeat = session_devices_repeat};

gpumem_status gm_session_devices(struct gpumem_session *session, struct gm_conn *via,
	gpumem_device_info_t *ret_infos, uint32_t *ret_n)
{
	struct session_devices_call *devices = calloc(1, sizeof(*devices));
	if (!devices)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a request");
	devices->call.ops = &devices_ops;

	Gm__Wire__GetDevices body = GM__WIRE__GET_DEVICES__INIT;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(GET_DEVICES, get_devices, &body);

	struct gm_conn_request *call = &devices->call;
	gpumem_status status = gm_session_call(session, via, &packet, &call);
	if (!status) {
		memcpy(ret_infos, devices->infos, devices->n * sizeof(*ret_infos));
		*ret_n = devices->n;
	}

	free(call);
	return status;
}
