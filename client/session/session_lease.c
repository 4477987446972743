/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases, asked for and answered. An answer can be long (several packets), can have lost handles
 * (this process was at its limit of open files: they are asked for again), and can come after its
 * caller gave up: then it goes back by itself. The promise is that no memory is granted without
 * somebody here knowing of it, and that a lease is complete or not there at all.
 */
#include "client/session/session_lease.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <utlist.h>

#include "common/cleanup.h"
#include "common/clock.h"

enum kind { LEASE, GROW, OPEN, HANDLES };

struct lease_call {
	struct gm_call call;
	struct gpumem_session *session;
	enum kind kind;
	struct gm_session_lease *lease;  /* LEASE, OPEN: owned until it succeeded */
	struct gm_session_lease *grown;  /* GROW: lives as long as the session */
	uint64_t lease_id;               /* GROW, HANDLES */
	enum gm_transport transport;     /* as answered */
	bool cut;                        /* the kernel kept handles back that were sent */
	struct gm_session_chunk *chunks; /* collected so far */
};

/* ---- the list of leases */

static struct gm_session_lease *lease_new(struct gpumem_session *session)
{
	struct gm_session_lease *lease = calloc(1, sizeof(*lease));
	if (!lease)
		return NULL;
	pthread_mutex_lock(&session->lock);
	DL_APPEND(session->leases, lease);
	pthread_mutex_unlock(&session->lock);
	return lease;
}

static void lease_unlist(struct gpumem_session *session, struct gm_session_lease *lease)
{
	pthread_mutex_lock(&session->lock);
	DL_DELETE(session->leases, lease);
	pthread_mutex_unlock(&session->lock);
}

void gm_session_lease_give(struct gpumem_session *session, struct gm_session_lease *lease)
{
	lease_unlist(session, lease);
	lease->held.next = NULL;
	if (lease->held.lease)
		gm_returns_send(session, NULL, &lease->held);
	else
		free(lease);
}

void gm_session_chunks_free(struct gm_session_chunk *chunks)
{
	struct gm_session_chunk *chunk, *tmp;
	LL_FOREACH_SAFE (chunks, chunk, tmp) {
		gm_close(chunk->fd);
		free(chunk);
	}
}

/* As a list of what is to go back. */
static struct gm_held *lease_chunks_held(struct gm_session_chunk *chunks)
{
	struct gm_held *list = NULL;
	struct gm_session_chunk *chunk, *tmp;
	LL_FOREACH_SAFE (chunks, chunk, tmp) {
		chunk->fd = gm_close(chunk->fd);
		LL_PREPEND(list, &chunk->held);
	}
	return list;
}

void gm_session_chunks_give(struct gpumem_session *session, struct gm_session_chunk *chunks)
{
	gm_returns_send(session, NULL, lease_chunks_held(chunks));
}

/* ---- answers */

static bool lease_chunk_ok(const Gm__Wire__Chunk *chunk, bool ipc)
{
	if (!chunk->id || chunk->bytes < GM_CHUNK_MIN || chunk->index == UINT64_MAX)
		return false;
	if (ipc)
		return chunk->ipc_handle.len == GM_IPC_HANDLE_BYTES &&
		       chunk->bytes % GM_CHUNK_MIN == 0 && chunk->bytes <= 2 * GM_LEASE_BYTES_MAX;
	return chunk->ipc_handle.len == 0 && chunk->bytes <= GM_CHUNK_MAX &&
	       !(chunk->bytes & (chunk->bytes - 1));
}

static int lease_take_chunks(
	struct lease_call *call, const Gm__Wire__LeaseReply *reply, struct gm_packet_in *in)
{
	/* At once, not when the caller wakes: a resume in between must take nothing of it for news.
	 */
	struct gm_session_lease *lease = call->lease ? call->lease : call->grown;
	bool ipc = reply->transport == GM__WIRE__TRANSPORT__TRANSPORT_IPC;
	for (size_t i = 0; i < reply->n_chunks; i++) {
		const Gm__Wire__Chunk *from = reply->chunks[i];
		if (!lease_chunk_ok(from, ipc))
			return -EPROTO;
		struct gm_session_chunk *chunk = calloc(1, sizeof(*chunk));
		if (!chunk)
			return -ENOMEM;
		chunk->held.lease = reply->lease;
		chunk->held.epoch = call->call.epoch;
		chunk->held.chunk = from->id;
		chunk->index = from->index;
		chunk->bytes = from->bytes;
		chunk->fd = -1;
		if (ipc)
			memcpy(chunk->ipc, from->ipc_handle.data, sizeof(chunk->ipc));
		else /* Cut control data loses the last ones. */
			chunk->fd = gm_fdlist_steal(&in->fds, i);
		LL_PREPEND(call->chunks, chunk);
		if (lease && from->index >= lease->next_index)
			lease->next_index = from->index + 1;
	}
	return 0;
}

static int lease_take(struct gm_call *base, const Gm__Wire__Packet *packet, struct gm_packet_in *in)
{
	struct lease_call *call = (struct lease_call *)base;
	if (packet->body_case != GM__WIRE__PACKET__BODY_LEASE_REPLY)
		return -EPROTO;
	const Gm__Wire__LeaseReply *reply = packet->lease_reply;
	if (!reply->lease || (call->lease_id && reply->lease != call->lease_id))
		return -EPROTO;
	call->lease_id = reply->lease;
	if (call->lease) {
		/* Known from the first packet on, so that it can go back whatever comes. */
		call->lease->held.lease = reply->lease;
		call->lease->held.epoch = call->call.epoch;
		call->lease->device = reply->device;
		call->lease->bytes = reply->bytes;
		call->lease->user_bytes = reply->user_bytes;
		call->lease->read_only = reply->read_only;
		snprintf(call->lease->tag, sizeof(call->lease->tag), "%s", reply->tag);
	}
	switch (reply->transport) {
	case GM__WIRE__TRANSPORT__TRANSPORT_FD:
		call->transport = GM_TRANSPORT_FD;
		if (packet->fds != reply->n_chunks)
			return -EPROTO;
		call->cut = call->cut || in->fds_cut;
		break;
	case GM__WIRE__TRANSPORT__TRANSPORT_IPC:
		/* One block; anything else could not be one range of addresses. */
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

static void lease_call_free(struct lease_call *call)
{
	if (!call)
		return;
	gm_session_chunks_free(call->chunks);
	free(call);
}

/* Nobody waits for it: what it brought goes back, by the library's own thread. */
static void lease_late(struct gm_call *base)
{
	struct lease_call *call = (struct lease_call *)base;
	struct gpumem_session *session = call->session;
	if (call->kind == GROW) {
		gm_returns_keep(session, lease_chunks_held(call->chunks));
		call->chunks = NULL;
	}
	if (call->lease) {
		lease_unlist(session, call->lease);
		call->lease->held.next = NULL;
		if (call->lease->held.lease)
			gm_returns_keep(session, &call->lease->held);
		else
			free(call->lease);
		call->lease = NULL;
	}
	gm_session_wake(session);
	lease_call_free(call);
}

static const struct gm_call_ops lease_ops = {.take = lease_take, .late = lease_late};

/* ---- requests */

static struct lease_call *lease_call_new(struct gpumem_session *session, enum kind kind)
{
	struct lease_call *call = calloc(1, sizeof(*call));
	if (!call)
		return NULL;
	call->call.ops = &lease_ops;
	call->session = session;
	call->kind = kind;
	if (kind == LEASE || kind == OPEN) {
		call->lease = lease_new(session);
		if (!call->lease) {
			free(call);
			return NULL;
		}
	}
	return call;
}

static gpumem_status lease_no_memory(void)
{
	return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a request");
}

/* What a failed call had got hold of goes back, and the call is freed. Keeps the sentence. */
static void lease_call_fail(struct gpumem_session *session, struct lease_call *call)
{
	if (!call)
		return;
	char text[GM_ERROR_BYTES];
	snprintf(text, sizeof(text), "%s", gm_error_text());
	if (call->kind == GROW) {
		gm_session_chunks_give(session, call->chunks);
		call->chunks = NULL;
	}
	if (call->lease)
		gm_session_lease_give(session, call->lease);
	lease_call_free(call);
	gm_error(GPUMEM_OK, "%s", text);
}

static gpumem_status lease_get_handles(struct gpumem_session *session, struct gm_conn *via,
	uint64_t lease, uint64_t from, struct lease_call **ret_call)
{
	struct lease_call *call = lease_call_new(session, HANDLES);
	if (!call)
		return lease_no_memory();
	call->lease_id = lease;
	Gm__Wire__GetHandles body = GM__WIRE__GET_HANDLES__INIT;
	body.lease = lease;
	body.from = from;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	packet.body_case = GM__WIRE__PACKET__BODY_GET_HANDLES;
	packet.get_handles = &body;
	struct gm_call *base = &call->call;
	gpumem_status status = gm_session_call(session, via, &packet, &base);
	if (status) {
		lease_call_free((struct lease_call *)base);
		return status;
	}
	*ret_call = call;
	return GPUMEM_OK;
}

static const struct gm_session_chunk *lease_first_missing(const struct lease_call *call)
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

/* Handles were asked for again, and none of those missing came. */
static gpumem_status lease_no_handles(bool cut)
{
	struct rlimit limit = {0};
	if (!cut)
		return gm_error(GPUMEM_E_PROTOCOL,
			"gpumemd's handles of this memory did not come, though it was asked again");
	getrlimit(RLIMIT_NOFILE, &limit);
	return gm_error(GPUMEM_E_SYSTEM,
		"this process is at its limit of %llu open files, so gpumemd's handles do not "
		"reach it: close some, or raise the limit (ulimit -n)",
		(unsigned long long)limit.rlim_cur);
}

/* Asks again for handles that were lost on the way, as long as that brings some. */
static gpumem_status lease_complete(struct gpumem_session *session, struct lease_call *call)
{
	const struct gm_session_chunk *missing;
	while ((missing = lease_first_missing(call))) {
		struct lease_call *again;
		gpumem_status status =
			lease_get_handles(session, NULL, call->lease_id, missing->index, &again);
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
		bool cut = again->cut;
		lease_call_free(again);
		if (!got)
			return lease_no_handles(cut);
	}
	return GPUMEM_OK;
}

static int lease_by_index(const struct gm_session_chunk *a, const struct gm_session_chunk *b)
{
	return a->index < b->index ? -1 : a->index > b->index;
}

static int lease_by_id(const struct gm_session_chunk *a, const struct gm_session_chunk *b)
{
	return a->held.chunk < b->held.chunk ? -1 : a->held.chunk > b->held.chunk;
}

/* Used as two it would be one memory at two places. What such a list says is not to be trusted, so
 * nothing of it goes back by itself; a lease does, as a whole. */
static gpumem_status lease_check_ids(struct lease_call *call)
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

/* The common end of Lease, Grow and Open. Takes the call. */
static gpumem_status lease_ask(struct gpumem_session *session, struct lease_call *call,
	Gm__Wire__Packet *packet, struct gm_session_lease **ret_lease,
	struct gm_session_chunk **ret_chunks)
{
	struct gm_call *base = &call->call;
	gpumem_status status = gm_session_call(session, NULL, packet, &base);
	call = (struct lease_call *)base;
	if (!status)
		status = lease_complete(session, call);
	if (!status && !call->chunks)
		status = gm_error(GPUMEM_E_PROTOCOL, "gpumemd granted a lease without memory");
	if (!status)
		status = lease_check_ids(call);
	if (status) {
		lease_call_fail(session, call);
		return status;
	}
	LL_SORT(call->chunks, lease_by_index);
	*ret_chunks = gm_steal_ptr(&call->chunks);
	if (ret_lease)
		*ret_lease = gm_steal_ptr(&call->lease);
	lease_call_free(call);
	return GPUMEM_OK;
}

/* The daemon answers when it has something to say: a request that waits is not overdue. */
static void lease_set_patience(
	struct gpumem_session *session, struct lease_call *call, uint64_t wait_ms)
{
	if (wait_ms == 0)
		wait_ms = gm_session_wait_ms(session);
	if (wait_ms == GM_LEASE_NO_WAIT)
		wait_ms = 0;
	call->call.extra_ns =
		(wait_ms < GM_LEASE_WAIT_MOST ? wait_ms : GM_LEASE_WAIT_MOST) * GM_NS_PER_MS;
}

gpumem_status gm_session_lease_take(struct gpumem_session *session, uint32_t device, uint64_t bytes,
	enum gm_transport transport, const char *tag, uint64_t wait_ms,
	struct gm_session_lease **ret_lease, struct gm_session_chunk **ret_chunks)
{
	struct lease_call *call = lease_call_new(session, LEASE);
	if (!call)
		return lease_no_memory();
	Gm__Wire__Lease body = GM__WIRE__LEASE__INIT;
	body.device = device;
	body.bytes = bytes;
	body.transport = (Gm__Wire__Transport)transport;
	body.tag = (char *)(tag ? tag : "");
	body.no_wait = wait_ms == GM_LEASE_NO_WAIT;
	body.wait_ms = body.no_wait ? 0 : wait_ms;
	lease_set_patience(session, call, wait_ms);
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	packet.body_case = GM__WIRE__PACKET__BODY_LEASE;
	packet.lease = &body;
	return lease_ask(session, call, &packet, ret_lease, ret_chunks);
}

gpumem_status gm_session_lease_open(struct gpumem_session *session,
	const uint8_t token[GM_TOKEN_BYTES], struct gm_session_lease **ret_lease,
	struct gm_session_chunk **ret_chunks)
{
	struct lease_call *call = lease_call_new(session, OPEN);
	if (!call)
		return lease_no_memory();
	Gm__Wire__Open body = GM__WIRE__OPEN__INIT;
	body.token.data = (uint8_t *)token;
	body.token.len = GM_TOKEN_BYTES;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	packet.body_case = GM__WIRE__PACKET__BODY_OPEN;
	packet.open = &body;
	return lease_ask(session, call, &packet, ret_lease, ret_chunks);
}

gpumem_status gm_session_lease_grow(struct gpumem_session *session, struct gm_session_lease *lease,
	uint64_t bytes, uint64_t wait_ms, struct gm_session_chunk **ret_chunks)
{
	struct lease_call *call = lease_call_new(session, GROW);
	if (!call)
		return lease_no_memory();
	call->lease_id = lease->held.lease;
	call->grown = lease;
	Gm__Wire__Grow body = GM__WIRE__GROW__INIT;
	body.lease = lease->held.lease;
	body.bytes = bytes;
	body.no_wait = wait_ms == GM_LEASE_NO_WAIT;
	body.wait_ms = body.no_wait ? 0 : wait_ms;
	lease_set_patience(session, call, wait_ms);
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	packet.body_case = GM__WIRE__PACKET__BODY_GROW;
	packet.grow = &body;
	return lease_ask(session, call, &packet, NULL, ret_chunks);
}

/* ---- after a resume */

static int lease_by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

struct known {
	uint64_t id, next_index;
};

/* The leases this process knows, sorted by id. NULL with *ret_n > 0: no memory. */
static struct known *lease_known_leases(struct gpumem_session *session, size_t *ret_n)
{
	size_t n = 0, i = 0;
	struct gm_session_lease *lease;
	pthread_mutex_lock(&session->lock);
	DL_FOREACH (session->leases, lease)
		n += lease->held.lease && lease->held.epoch == session->epoch;
	struct known *known = n ? calloc(n, sizeof(*known)) : NULL;
	if (known) {
		DL_FOREACH (session->leases, lease) {
			if (lease->held.lease && lease->held.epoch == session->epoch)
				known[i++] = (struct known){lease->held.lease, lease->next_index};
		}
	}
	pthread_mutex_unlock(&session->lock);
	if (known)
		qsort(known, n, sizeof(*known), lease_by_value);
	*ret_n = n;
	return known;
}

static gpumem_status lease_return(struct gpumem_session *session, struct gm_conn *via, uint64_t id)
{
	Gm__Wire__Return body = GM__WIRE__RETURN__INIT;
	body.lease = id;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	packet.body_case = GM__WIRE__PACKET__BODY_RETURN_CHUNKS;
	packet.return_chunks = &body;
	return gm_session_tell(session, via, &packet);
}

static bool lease_fatal(gpumem_status status)
{
	return status == GPUMEM_E_DISCONNECTED || status == GPUMEM_E_TIMEOUT ||
	       status == GPUMEM_E_HOST_MEMORY;
}

gpumem_status gm_session_lease_reconcile(
	struct gpumem_session *session, struct gm_conn *via, const uint64_t *leases, size_t n)
{
	size_t n_known;
	GM_AUTO_FREE struct known *known = lease_known_leases(session, &n_known);
	if (n_known && !known)
		return lease_no_memory();
	for (size_t i = 0; i < n; i++) {
		const struct known *mine =
			known ? bsearch(&leases[i], known, n_known, sizeof(*known), lease_by_value)
			      : NULL;
		gpumem_status status;
		if (!mine) {
			status = lease_return(session, via, leases[i]);
		} else {
			/* Indexes are given in order: what lies past the last one seen is news. */
			struct lease_call *call;
			status = lease_get_handles(session, via, mine->id, mine->next_index, &call);
			if (!status) {
				gm_returns_send(session, via, lease_chunks_held(call->chunks));
				call->chunks = NULL;
				lease_call_free(call);
			}
		}
		if (lease_fatal(status))
			return status;
	}
	return GPUMEM_OK;
}
