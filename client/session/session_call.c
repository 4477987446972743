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
	(void)gm_session_tell(session, via, &packet, 0, GM_WAIT_NOT);
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

/* Returns how much longer than usual the answer may take, if the request is sent now: as long as the
 * daemon may let it wait for memory. */
static uint64_t session_call_extra_ns(
	struct gpumem_session *session, const struct gm_conn_request *call)
{
	const struct gm_wait *wait = &call->wait;

	if (wait->mode != GM_WAIT_AS_CONFIGURED && wait->mode != GM_WAIT_UNTIL)
		return 0;
	return gm_wait_memory_ns(
		wait, wait->mode == GM_WAIT_AS_CONFIGURED ? gm_session_wait_ms(session) : 0);
}

/* Sends the request on a connection and waits for the answer. Returns 0 or a negative errno, as
 * gm_conn_call() does. */
static int session_call_conn(struct gpumem_session *session, struct gm_conn *conn,
	Gm__Wire__Packet *request, struct gm_conn_request *call, uint64_t *ret_patience_ns)
{
	uint64_t extra_ns = session_call_extra_ns(session, call);
	bool looks = call->wait.look && extra_ns;

	/* A request that does not wait for memory is answered before a look would find anything. */
	call->look = looks ? call->wait.look : NULL;
	if (looks)
		atomic_fetch_add(&session->dirty, GM_SESSION_AWAITED);
	*ret_patience_ns = session->timeout_ns + extra_ns;
	int r = gm_conn_call(conn, request, call, call->patience.sent_ns + *ret_patience_ns);
	if (looks)
		atomic_fetch_sub(&session->dirty, GM_SESSION_AWAITED);
	return r;
}

/* The connection is of no use any more: it ended, or the daemon is about to stop and refuses requests
 * like this. */
static bool session_call_lost(int result, const struct gm_conn_request *call)
{
	return result == -EPIPE || (result == 0 && call->status == GPUMEM_E_DISCONNECTED);
}

/* The same, and says how it ended. The request may be gone with the call. */
static gpumem_status session_call_on(struct gpumem_session *session, struct gm_conn *conn,
	Gm__Wire__Packet *request, struct gm_conn_request **call, bool *ret_lost)
{
	uint64_t patience_ns, id = (*call)->id;
	int r = session_call_conn(session, conn, request, *call, &patience_ns);

	*ret_lost = false;
	if (r == -ECANCELED) {
		*call = NULL;
		return session_cancel(session, conn, id);
	}
	if (r == -ETIMEDOUT) {
		char patience[GM_UNITS_TEXT];
		*call = NULL;
		return gm_error(GPUMEM_E_TIMEOUT, "gpumemd at %s did not answer within %s",
			session->path, gm_format_duration(patience_ns, patience));
	}
	*ret_lost = session_call_lost(r, *call);
	return r < 0 ? session_call_unsent(session, conn, r)
		     : session_call_answered(session, *call);
}

/* Whether the request can be sent: for the first time, or once more after its connection ended. */
static gpumem_status session_call_prepare(
	struct gpumem_session *session, struct gm_conn_request *call, uint64_t epoch)
{
	bool lost = call->patience.lost;

	call->patience.lost = false;
	if (call->of_epoch && call->of_epoch != epoch)
		return gm_error(GPUMEM_E_NOT_FOUND,
			"gpumemd at %s was restarted and does not know this memory any more",
			session->path);
	if (lost && call->ops->repeat && call->ops->repeat(call) < 0) {
		call->patience.lost = true;
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory to repeat a request");
	}
	if (call->ops->prepare)
		call->ops->prepare(call);
	if (!call->id)
		call->id = atomic_fetch_add(&session->ids, 1) + 1;
	call->epoch = epoch;
	call->patience.sent_ns = gm_clock_ns();
	return GPUMEM_OK;
}

gpumem_status gm_session_call(struct gpumem_session *session, struct gm_conn *via,
	Gm__Wire__Packet *request, struct gm_conn_request **call)
{
	bool lost = false;
	GM_UNCANCELLED;

	if (via) {
		(*call)->epoch = gm_session_epoch(session);
		(*call)->patience.sent_ns = gm_clock_ns();
		return session_call_on(session, via, request, call, &lost);
	}

	gm_wait_patience_begin(&(*call)->patience, &(*call)->wait, session->away_ns, gm_clock_ns());
	for (;;) {
		struct gm_conn *conn;
		uint64_t epoch;
		gpumem_status status = gm_reconnect_get_conn(
			session, (*call)->patience.end_ns, (*call)->wait.look, &conn, &epoch);
		if (status)
			return status;

		status = session_call_prepare(session, *call, epoch);
		if (!status)
			status = session_call_on(session, conn, request, call, &lost);
		if (lost)
			gm_reconnect_begin(session, conn, gm_error_text());
		gm_conn_unref(conn);
		if (!lost || !gm_wait_for_daemon(&(*call)->wait))
			return status;

		lost = false;
		gm_wait_patience_lost(
			&(*call)->patience, &(*call)->wait, session->away_ns, gm_clock_ns());
	}
}

gpumem_status gm_session_begin(struct gpumem_session *session, Gm__Wire__Packet *request,
	struct gm_conn_request *call, struct gm_conn **ret_conn)
{
	bool lost = call->patience.lost;
	struct gm_conn *conn;
	uint64_t epoch;
	GM_UNCANCELLED;

	gpumem_status status = gm_reconnect_get_conn(session, 0, NULL, &conn, &epoch);
	if (status)
		return status;

	status = session_call_prepare(session, call, epoch);
	int r = status ? 0 : gm_conn_begin(conn, request, call, false);
	if (r == -EAGAIN) {
		status = gm_error(GPUMEM_E_BUSY, "too many requests are unanswered");
	} else if (r < 0) {
		call->patience.lost = lost;
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

uint64_t gm_session_overdue_ns(struct gpumem_session *session, const struct gm_conn_request *call)
{
	return gm_clock_ns() + session->timeout_ns + session_call_extra_ns(session, call);
}

gpumem_status gm_session_outcome(struct gpumem_session *session, struct gm_conn *conn,
	struct gm_conn_request *call, bool *ret_lost)
{
	GM_UNCANCELLED;

	*ret_lost = session_call_lost(call->result, call);
	gpumem_status status = call->result == -EPIPE ? session_call_unsent(session, conn, -EPIPE)
						      : session_call_answered(session, call);
	if (*ret_lost) {
		gm_wait_patience_lost(
			&call->patience, &call->wait, session->away_ns, gm_clock_ns());
		gm_reconnect_begin(session, conn, gm_error_text());
	}
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
	Gm__Wire__Packet *request, uint64_t of_epoch, enum gm_wait_mode mode)
{
	struct gm_conn_request *call = calloc(1, sizeof(*call));
	if (!call)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a request");
	call->ops = &done_ops;
	call->of_epoch = of_epoch;
	call->wait.mode = mode;
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
