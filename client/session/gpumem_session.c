/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a session, and the path of its requests. The session outlives its connection: while
 * the daemon cannot be reached, the session stays, held memory works, and requests fail at once
 * with GPUMEM_E_DISCONNECTED and the reason. This file does not reconnect; client/thread.c decides
 * when.
 */
#include "client/session/gpumem_session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/cancel.h"
#include "common/clock.h"
#include "common/status_table.h"
#include "common/units.h"

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
		"no device %u: there %s %u, numbered from 0; pinned host memory is GPUMEM_DEVICE_HOST",
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

	pthread_mutex_lock(&session->lock);
	if (session->state == GM_SESSION_UP)
		conn = gm_conn_ref(session->conn);
	pthread_mutex_unlock(&session->lock);
	if (!conn)
		return;

	gm_conn_poke(conn);
	gm_conn_unref(conn);
}

void gm_session_stir_now(struct gpumem_session *session)
{
	uint32_t was = atomic_fetch_or_explicit(
		&session->stirred, GM_SESSION_STIRRED, memory_order_relaxed);
	if (!(was & GM_SESSION_STIRRED))
		gm_session_wake(session);
	if (was >= GM_SESSION_AWAITED)
		session_poke(session);
}

uint64_t gm_session_epoch(struct gpumem_session *session)
{
	pthread_mutex_lock(&session->lock);
	uint64_t epoch = session->epoch;
	pthread_mutex_unlock(&session->lock);
	return epoch;
}

uint64_t gm_session_wait_ms(struct gpumem_session *session)
{
	pthread_mutex_lock(&session->lock);
	uint64_t wait_ms = session->wait_ms;
	pthread_mutex_unlock(&session->lock);
	return wait_ms;
}

/* ---- calls */

static gpumem_status session_away(struct gpumem_session *session)
{
	char text[GM_ERROR_BYTES];

	pthread_mutex_lock(&session->lock);
	snprintf(text, sizeof(text), "%s", session->away);
	pthread_mutex_unlock(&session->lock);
	return gm_error(GPUMEM_E_DISCONNECTED,
		"gpumemd at %s cannot be reached (%.200s): memory that is held keeps working, and "
		"new memory can be had when the daemon is back",
		session->path, text);
}

/* The caller found elsewhere what it had asked for, so the request must not wait any longer. If it
 * was answered meanwhile, the daemon refuses this, and ops->late() gives back what it granted. */
static gpumem_status session_cancel(
	struct gpumem_session *session, struct gm_conn *via, uint64_t request)
{
	Gm__Wire__Cancel body = GM__WIRE__CANCEL__INIT;
	body.request = request;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(CANCEL, cancel, &body);
	(void)gm_session_tell(session, via, &packet);
	return gm_error(GPUMEM_E_CANCELLED, "the request was cancelled");
}

gpumem_status gm_session_call(struct gpumem_session *session, struct gm_conn *via,
	Gm__Wire__Packet *request, struct gm_call **call)
{
	struct gm_conn *conn = via;

	pthread_mutex_lock(&session->lock);
	if (!via && session->state == GM_SESSION_UP)
		conn = gm_conn_ref(session->conn);
	(*call)->epoch = session->epoch;
	pthread_mutex_unlock(&session->lock);
	if (!conn)
		return session_away(session);

	uint64_t patience_ns = session->timeout_ns + (*call)->extra_ns;
	bool awaited = (*call)->again != NULL;
	if (awaited)
		atomic_fetch_add(&session->stirred, GM_SESSION_AWAITED);
	int r = gm_conn_call(conn, request, *call, gm_clock_ns() + patience_ns);
	if (awaited)
		atomic_fetch_sub(&session->stirred, GM_SESSION_AWAITED);

	gpumem_status status = GPUMEM_OK;
	if (r == -ECANCELED) {
		*call = NULL;
		status = session_cancel(session, conn, request->id);
	} else if (r == -ETIMEDOUT) {
		char patience[GM_UNITS_TEXT];
		*call = NULL;
		status = gm_error(GPUMEM_E_TIMEOUT, "gpumemd at %s did not answer within %s",
			session->path, gm_format_duration(patience_ns, patience));
	} else if (r == -EPIPE) {
		char reason[GM_ERROR_BYTES];
		(void)gm_conn_reason(conn, reason);
		gm_session_wake(session);
		status = gm_error(GPUMEM_E_DISCONNECTED,
			"the connection to gpumemd at %s ended: %.200s", session->path, reason);
	} else if (r < 0) {
		status = gm_error(gm_status_from_errno(r), "cannot send to gpumemd at %s: %s",
			session->path, strerror(-r));
	} else if ((*call)->status) {
		status = gm_error((*call)->status, "%s", (*call)->detail);
	} else if ((*call)->result == -ENOMEM) {
		status = gm_error(GPUMEM_E_HOST_MEMORY, "no memory for gpumemd's answer");
	} else if ((*call)->result < 0) {
		status = gm_error(GPUMEM_E_PROTOCOL,
			"gpumemd at %s sent an answer that does not match the request",
			session->path);
	}

	if (!via)
		gm_conn_unref(conn);
	return status;
}

static int session_done_take(
	struct gm_call *call, const Gm__Wire__Packet *packet, struct gm_packet_in *in)
{
	return packet->body_case == GM__WIRE__PACKET__BODY_DONE ? 0 : -EPROTO;
}

static void session_done_late(struct gm_call *call)
{
	free(call);
}

static const struct gm_call_ops done_ops = {.take = session_done_take, .late = session_done_late};

gpumem_status gm_session_tell(
	struct gpumem_session *session, struct gm_conn *via, Gm__Wire__Packet *request)
{
	struct gm_call *call = calloc(1, sizeof(*call));
	if (!call)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a request");
	call->ops = &done_ops;
	gpumem_status status = gm_session_call(session, via, request, &call);
	free(call);
	return status;
}

static void session_kept_late(struct gm_call *call)
{
}

static const struct gm_call_ops kept_ops = {.take = session_done_take, .late = session_kept_late};

gpumem_status gm_session_tell_with(struct gpumem_session *session, struct gm_conn *via,
	Gm__Wire__Packet *request, struct gm_call *call)
{
	call->ops = &kept_ops;
	return gm_session_call(session, via, request, &call);
}

/* ---- devices */

struct session_devices_call {
	struct gm_call call;
	uint32_t n;
	gpumem_device_info_t infos[GM_LIMIT_DEVICES];
};

static int session_devices_take(
	struct gm_call *base, const Gm__Wire__Packet *packet, struct gm_packet_in *in)
{
	struct session_devices_call *call = (struct session_devices_call *)base;

	if (packet->body_case != GM__WIRE__PACKET__BODY_DEVICES)
		return -EPROTO;
	for (size_t i = 0; i < packet->devices->n_devices; i++) {
		const Gm__Wire__Device *device = packet->devices->devices[i];
		/* Numbers must be in order and without gaps, because they are used as indexes.
		 * Pinned memory must be the last device. */
		if (call->n >= GM_LIMIT_DEVICES || device->number != call->n ||
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

static const struct gm_call_ops devices_ops = {
	.take = session_devices_take, .late = session_done_late};

gpumem_status gm_session_devices(struct gpumem_session *session, struct gm_conn *via,
	gpumem_device_info_t *ret_infos, uint32_t *ret_n)
{
	struct session_devices_call *devices = calloc(1, sizeof(*devices));
	if (!devices)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a request");
	devices->call.ops = &devices_ops;

	Gm__Wire__GetDevices body = GM__WIRE__GET_DEVICES__INIT;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(GET_DEVICES, get_devices, &body);

	struct gm_call *call = &devices->call;
	gpumem_status status = gm_session_call(session, via, &packet, &call);
	if (!status) {
		memcpy(ret_infos, devices->infos, devices->n * sizeof(*ret_infos));
		*ret_n = devices->n;
	}

	free(call);
	return status;
}

/* ---- hello */

gpumem_status gm_session_hello(
	struct gpumem_session *session, bool anew, struct gm_hello *ret_hello)
{
	struct gm_hello_ask ask = {
		.path = session->path,
		.why = session->why,
		.name = session->name,
		.deadline_ns = gm_clock_ns() + session->timeout_ns,
		.wake = gm_session_wake,
		.wake_ctx = session,
	};

	if (!anew) {
		pthread_mutex_lock(&session->lock);
		ask.session = session->id;
		memcpy(ask.token, session->token, sizeof(ask.token));
		pthread_mutex_unlock(&session->lock);
	}
	return gm_hello(&ask, ret_hello);
}

static uint64_t session_track_from(enum gm_track track)
{
	switch (track) {
	case GM_TRACK_OFF:
		return UINT64_MAX;
	case GM_TRACK_ALL:
		return 0;
	case GM_TRACK_LARGE:
		break;
	}
	return GM_TRACK_LARGE_BYTES;
}

void gm_session_adopt(struct gpumem_session *session, struct gm_hello *hello)
{
	atomic_store_explicit(
		&session->track_from, session_track_from(hello->track), memory_order_relaxed);
	pthread_mutex_lock(&session->lock);
	session->conn = hello->conn;
	session->id = hello->session;
	memcpy(session->token, hello->token, sizeof(session->token));
	session->generation = hello->generation;
	session->decay_ms = hello->decay_ms;
	session->wait_ms = hello->wait_ms;
	if (!hello->resumed)
		session->epoch++;
	session->state = GM_SESSION_UP;
	pthread_mutex_unlock(&session->lock);
	hello->conn = NULL;
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
