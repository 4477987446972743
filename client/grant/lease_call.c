/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the answers to requests for leases. An answer may have several packets. It may have lost
 * handles, if this process reached its limit of open files; they are requested again. It may come
 * after its caller gave up; then what it granted is given back. It may be cut short by the end of
 * the connection; then the request is repeated, and what the first answer brought is forgotten until
 * the second one brings it again.
 *
 * This file promises that no memory is granted without being recorded here, and that a caller gets
 * a complete lease or none.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <utlist.h>

#include "client/session/session_call.h"
#include "client/grant/session_lease_private.h"
#include "client/grant/lease_unclaimed.h"
#include "common/arith.h"
#include "common/cleanup.h"
#include "common/clock.h"

/* ---- answers */

static bool lease_chunk_ok(const struct gm_lease_call *call, const Gm__Wire__Chunk *chunk, bool ipc)
{
	if (!chunk->id || chunk->bytes < GM_CHUNK_MIN || chunk->index == UINT64_MAX ||
		chunk->bytes % GM_CHUNK_MIN)
		return false;
	if (ipc)
		return chunk->ipc_handle.len == GM_IPC_HANDLE_BYTES &&
		       chunk->bytes <= 2 * GM_LEASE_BYTES_MAX;
	if (chunk->ipc_handle.len)
		return false;
	/* A lease that was made before, by whomever, may be a chunk that was made to measure. */
	if (call->one_chunk || call->kind == GM_LEASE_OPEN || call->kind == GM_LEASE_HANDLES)
		return chunk->bytes <= GM_LEASE_BYTES_MAX;
	return chunk->bytes <= GM_CHUNK_MAX && !(chunk->bytes & (chunk->bytes - 1));
}

/* Notes that chunks up to this index are known. The lease may have ended since it was to be grown. */
static void lease_reached(const struct gm_lease_call *call, uint64_t lease, uint64_t index)
{
	struct gm_session_lease *grown;

	gm_lock(&call->session->lock);
	DL_FOREACH (call->session->leases, grown)
		if (grown->held.lease == lease && grown->held.epoch == call->call.epoch &&
			!grown->opened && index >= grown->next_index)
			grown->next_index = index + 1;
	gm_lock_drop(&call->session->lock);
}

static int lease_take_chunks(
	struct gm_lease_call *call, const Gm__Wire__LeaseReply *reply, struct gm_conn_packet *in)
{
	/* next_index moves at once and not when the caller wakes, so that resuming in between does
	 * not take these chunks for unknown ones. */
	struct gm_session_lease *lease = call->lease ? call->lease : call->grown;
	bool ipc = reply->transport == GM__WIRE__TRANSPORT__TRANSPORT_IPC;
	for (size_t i = 0; i < reply->n_chunks; i++) {
		const Gm__Wire__Chunk *from = reply->chunks[i];
		if (!lease_chunk_ok(call, from, ipc))
			return -EPROTO;
		struct gm_session_chunk *chunk = calloc(1, sizeof(*chunk));
		if (!chunk)
			return -ENOMEM;
		chunk->held.lease = reply->lease;
		chunk->held.epoch = call->call.epoch;
		chunk->held.chunk = from->id;
		chunk->held.index = from->index;
		chunk->index = from->index;
		chunk->bytes = from->bytes;
		chunk->fd = -1;
		if (ipc)
			memcpy(chunk->ipc, from->ipc_handle.data, sizeof(chunk->ipc));
		else /* if the kernel dropped handles, it dropped the last ones */
			chunk->fd = gm_fdlist_steal(&in->fds, i + reply->control);
		LL_PREPEND(call->chunks, chunk);
		if (lease && from->index >= lease->next_index)
			lease->next_index = from->index + 1;
	}
	if (call->kind == GM_LEASE_GROW && !call->grown && call->chunks)
		lease_reached(call, reply->lease, call->chunks->index);
	return 0;
}

/* Once: a thread that gives the same lease back may take the name of the view. */
static void lease_take_name(const struct gm_lease_call *call, uint64_t lease, uint64_t id)
{
	struct gm_lease_return_item *held = &call->lease->held;
	gm_lock(&call->session->lock);
	if (!held->lease) {
		held->lease = lease;
		held->epoch = call->call.epoch;
		held->view = call->kind == GM_LEASE_OPEN ? id : 0;
	}
	gm_lock_drop(&call->session->lock);
}

static int lease_take(
	struct gm_conn_request *base, const Gm__Wire__Packet *packet, struct gm_conn_packet *in)
{
	struct gm_lease_call *call = (struct gm_lease_call *)base;

	if (packet->body_case != GM__WIRE__PACKET__BODY_LEASE_REPLY)
		return -EPROTO;
	const Gm__Wire__LeaseReply *reply = packet->lease_reply;
	if (!reply->lease || (call->lease_id && reply->lease != call->lease_id))
		return -EPROTO;
	call->lease_id = reply->lease;
	if (call->lease) {
		/* Known from the first packet on, so that it can be given back if a later one
		 * fails. */
		lease_take_name(call, reply->lease, packet->id);
		call->lease->device = reply->device;
		call->lease->bytes = reply->bytes;
		call->lease->user_bytes = reply->user_bytes;
		call->lease->read_only = reply->read_only;
		call->lease->version = reply->version;
		call->lease->signals = reply->signals;
		call->lease->maker_gone = reply->maker_gone;
		snprintf(call->lease->tag, sizeof(call->lease->tag), "%s", reply->tag);
	}

	switch (reply->transport) {
	case GM__WIRE__TRANSPORT__TRANSPORT_FD:
		call->transport = GM_TRANSPORT_FD;
		if (packet->fds != reply->n_chunks + reply->control)
			return -EPROTO;
		call->cut = call->cut || in->fds_cut;
		if (reply->control && call->control < 0)
			call->control = gm_fdlist_steal(&in->fds, 0);
		break;
	case GM__WIRE__TRANSPORT__TRANSPORT_IPC:
		/* The lease must be one chunk, because several would not be one range of
		 * addresses. */
		call->transport = GM_TRANSPORT_IPC;
		if (packet->fds || reply->n_chunks > 1 || call->chunks)
			return -EPROTO;
		break;
	default:
		return -EPROTO;
	}

	if (call->lease)
		call->lease->transport = call->transport;
	return lease_take_chunks(call, reply, in);
}

static void lease_call_free(struct gm_lease_call *call)
{
	if (!call)
		return;
	gm_session_chunks_free(call->chunks);
	gm_close(call->control);
	free(call);
}

void gm_lease_call_undo(struct gm_lease_call *call, bool now)
{
	if (call->kind == GM_LEASE_GROW)
		gm_session_lease_return(call->session,
			gm_session_chunks_returned(gm_steal_ptr(&call->chunks)), now);
	if (call->lease)
		gm_session_lease_end(call->session, call->lease, now);
	lease_call_free(call);
}

/* Nobody waits for the call any more. The library's thread gives back what it brought. */
static void lease_late(struct gm_conn_request *base)
{
	struct gm_lease_call *call = (struct gm_lease_call *)base;
	struct gpumem_session *session = call->session;

	if (call->ended) {
		call->ended(call);
		return;
	}
	gm_lease_call_undo(call, false);
	gm_session_wake(session);
}

/* Notes what the lost answer brought, in case the repeated request brings something else. */
static int lease_forget(struct gm_lease_call *call)
{
	if (call->lease && call->lease->held.lease) {
		struct gm_lease_return_item *whole = calloc(1, sizeof(*whole));
		if (!whole)
			return -ENOMEM;
		*whole = call->lease->held;
		whole->next = NULL;
		gm_lease_unclaimed_add(call->session, whole);

		gm_lock(&call->session->lock);
		call->lease->held.lease = 0;
		call->lease->next_index = 0;
		gm_lock_drop(&call->session->lock);
		call->lease_id = 0;
	}

	if (call->kind == GM_LEASE_GROW)
		gm_lease_unclaimed_add(
			call->session, gm_session_chunks_returned(gm_steal_ptr(&call->chunks)));
	gm_session_chunks_free(gm_steal_ptr(&call->chunks));
	call->control = gm_close(call->control);
	call->cut = false;
	return 0;
}

static int lease_repeat(struct gm_conn_request *base)
{
	struct gm_lease_call *call = (struct gm_lease_call *)base;
	int r = lease_forget(call);

	if (r == 0 && call->waited_ms)
		*call->waited_ms = gm_wait_patience_waited_ms(&base->patience);
	return r;
}

/* The request may have waited for some time already. */
static void lease_prepare(struct gm_conn_request *base)
{
	struct gm_lease_call *call = (struct gm_lease_call *)base;

	if (call->wait_ms)
		*call->wait_ms = gm_wait_left_ms(&base->wait);
}

static const struct gm_conn_request_ops lease_call_ops = {
	.take = lease_take, .late = lease_late, .repeat = lease_repeat, .prepare = lease_prepare};

/* ---- calls */

struct gm_lease_call *gm_lease_call_new(
	struct gpumem_session *session, enum gm_lease_kind kind, size_t bytes)
{
	struct gm_lease_call *call = calloc(1, bytes);
	if (!call)
		return NULL;
	call->call.ops = &lease_call_ops;
	call->session = session;
	call->kind = kind;
	call->control = -1;
	if (kind == GM_LEASE_LEASE || kind == GM_LEASE_OPEN) {
		call->lease = gm_session_lease_make(session, kind == GM_LEASE_OPEN);
		if (!call->lease) {
			free(call);
			return NULL;
		}
	}
	return call;
}

gpumem_status gm_lease_no_memory(void)
{
	return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a request");
}

/* Undoes a failed call, which may be NULL. Keeps the sentence for gpumem_error_detail(). */
static void lease_call_fail(struct gm_lease_call *call)
{
	char text[GM_ERROR_BYTES];

	if (!call)
		return;
	snprintf(text, sizeof(text), "%s", gm_error_text());
	gm_lease_call_undo(call, true);
	gm_error(GPUMEM_OK, "%s", text);
}

/* ---- handles */

static gpumem_status lease_get_handles(struct gpumem_session *session, struct gm_conn *via,
	uint64_t lease, uint64_t epoch, uint64_t from, enum gm_wait_mode mode,
	struct gm_lease_call **ret_call)
{
	struct gm_lease_call *call = gm_lease_call_new(session, GM_LEASE_HANDLES, sizeof(*call));
	if (!call)
		return gm_lease_no_memory();
	call->lease_id = lease;
	call->call.of_epoch = epoch;
	call->call.wait.mode = mode;

	Gm__Wire__GetHandles body = GM__WIRE__GET_HANDLES__INIT;
	body.lease = lease;
	body.from = from;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(GET_HANDLES, get_handles, &body);

	struct gm_conn_request *base = &call->call;
	gpumem_status status = gm_session_call(session, via, &packet, &base);
	if (status) {
		lease_call_free((struct gm_lease_call *)base);
		return status;
	}

	*ret_call = call;
	return GPUMEM_OK;
}

static const struct gm_session_chunk *lease_first_missing(const struct gm_lease_call *call)
{
	const struct gm_session_chunk *chunk, *first = NULL;

	if (call->transport == GM_TRANSPORT_IPC)
		return NULL;
	LL_FOREACH (call->chunks, chunk) {
		if (chunk->fd < 0 && (!first || chunk->index < first->index))
			first = chunk;
	}
	return first;
}

/* The handles were requested again, and none of the missing ones came. */
static gpumem_status lease_no_handles(bool cut)
{
	struct rlimit limit = {0};

	if (!cut)
		return gm_error(GPUMEM_E_PROTOCOL,
			"gpumemd did not send the handles of this memory, even when asked again");
	getrlimit(RLIMIT_NOFILE, &limit);
	return gm_error(GPUMEM_E_SYSTEM,
		"this process has reached its limit of %llu open files and cannot receive "
		"gpumemd's handles: close some, or raise the limit (ulimit -n)",
		(unsigned long long)limit.rlim_cur);
}

/* Requests lost handles again, as long as that brings some. */
static gpumem_status lease_complete(struct gpumem_session *session, struct gm_lease_call *call)
{
	const struct gm_session_chunk *missing;

	while ((missing = lease_first_missing(call))) {
		struct gm_lease_call *again;
		gpumem_status status = lease_get_handles(session, NULL, call->lease_id,
			call->call.epoch, missing->index, call->handles, &again);
		if (status)
			return status;

		size_t got = 0;
		struct gm_session_chunk *chunk, *other;
		LL_FOREACH (call->chunks, chunk) {
			if (chunk->fd >= 0)
				continue;
			LL_SEARCH_SCALAR(again->chunks, other, held.chunk, chunk->held.chunk);
			if (other && other->fd >= 0) {
				chunk->fd = gm_steal_fd(&other->fd);
				got++;
			}
		}

		/* It was the first of its packet, so it was lost only if all others were. */
		if (call->control < 0)
			call->control = gm_steal_fd(&again->control);
		bool cut = again->cut;
		lease_call_free(again);
		if (!got)
			return lease_no_handles(cut);
	}
	return GPUMEM_OK;
}

gpumem_status gm_session_lease_fd(struct gpumem_session *session,
	const struct gm_session_lease *lease, uint64_t chunk, int *ret_fd)
{
	struct gm_lease_call *call;
	struct gm_session_chunk *found;
	gpumem_status status = lease_get_handles(
		session, NULL, lease->held.lease, lease->held.epoch, 0, GM_WAIT_FOR_DAEMON, &call);
	if (status)
		return status;

	LL_SEARCH_SCALAR(call->chunks, found, held.chunk, chunk);
	if (!found || found->fd < 0)
		status = lease_no_handles(call->cut);
	else
		*ret_fd = gm_steal_fd(&found->fd);
	lease_call_free(call);
	return status;
}

gpumem_status gm_lease_list_chunks(struct gpumem_session *session, struct gm_conn *via,
	uint64_t lease, uint64_t from, struct gm_lease_return_item **ret_list)
{
	struct gm_lease_call *call;
	gpumem_status status = lease_get_handles(session, via, lease, 0, from, GM_WAIT_NOT, &call);
	if (status)
		return status;
	*ret_list = gm_session_chunks_returned(gm_steal_ptr(&call->chunks));
	lease_call_free(call);
	return GPUMEM_OK;
}

/* ---- completing */

static int lease_by_index(const struct gm_session_chunk *a, const struct gm_session_chunk *b)
{
	return a->index < b->index ? -1 : a->index > b->index;
}

static int lease_by_id(const struct gm_session_chunk *a, const struct gm_session_chunk *b)
{
	return a->held.chunk < b->held.chunk ? -1 : a->held.chunk > b->held.chunk;
}

/* Refuses an answer that lists a chunk twice: the same memory would be used for two purposes. Such
 * an answer cannot be trusted, so none of its chunks is given back; a new lease is, as a whole. */
static gpumem_status lease_check_ids(struct gm_lease_call *call)
{
	const struct gm_session_chunk *chunk;

	LL_SORT(call->chunks, lease_by_id);
	for (chunk = call->chunks; chunk && chunk->next; chunk = chunk->next) {
		if (chunk->held.chunk == chunk->next->held.chunk) {
			gm_session_chunks_free(gm_steal_ptr(&call->chunks));
			return gm_error(GPUMEM_E_PROTOCOL, "gpumemd granted one chunk twice");
		}
	}
	return GPUMEM_OK;
}

/* The daemon may have granted this before, in an answer that was lost. */
static void lease_claim(struct gpumem_session *session, const struct gm_lease_call *call)
{
	const struct gm_session_chunk *chunk;

	if (!gm_lease_unclaimed_any(session))
		return;
	if (call->lease)
		gm_lease_unclaimed_claim(session, call->lease_id, 0);
	else
		LL_FOREACH (call->chunks, chunk)
			gm_lease_unclaimed_claim(session, call->lease_id, chunk->held.chunk);
}

gpumem_status gm_lease_call_finish(struct gpumem_session *session, struct gm_lease_call *call,
	gpumem_status status, struct gm_session_lease **ret_lease,
	struct gm_session_chunk **ret_chunks)
{
	if (call)
		lease_claim(session, call);
	if (!status)
		status = lease_complete(session, call);
	if (!status && !call->chunks)
		status = gm_error(GPUMEM_E_PROTOCOL, "gpumemd granted a lease without memory");
	if (!status && call->lease && call->lease->signals && call->control < 0)
		status = gm_error(
			GPUMEM_E_PROTOCOL, "gpumemd granted signals without the memory for them");
	if (!status)
		status = lease_check_ids(call);
	if (status) {
		lease_call_fail(call);
		return status;
	}

	LL_SORT(call->chunks, lease_by_index);
	*ret_chunks = gm_steal_ptr(&call->chunks);
	if (call->lease)
		call->lease->control = gm_steal_fd(&call->control);
	if (ret_lease)
		*ret_lease = gm_steal_ptr(&call->lease);
	lease_call_free(call);
	return GPUMEM_OK;
}
