/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases and shares on the wire. Whether a request is granted is core's to say; this checks what
 * the wire lets through, and sends handles: a stream that walks the lease by index and attaches up
 * to 64 fds to a packet, straight from the chunks. It keeps the lease's id, not the lease, because
 * a lease can end between two packets; then the answer ends with a Failure.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "common/clock.h"
#include "common/fdlist.h"
#include "common/units.h"
#include "daemon/serve/serve_lease.h"

/* ---- handles */

struct handles {
	struct gm_stream stream;
	struct gm_dispatch *dispatch;
	uint64_t lease;
	uint64_t from, to; /* indexes; to itself is not meant */
	bool opening;      /* the answer to an Open: if it fails, the view ends with it */
};

static void serve_lease_handles_free(struct gm_stream *stream)
{
	free(stream);
}

/* The answer ends here, not as it should. */
static int serve_lease_emit_failure(
	struct gm_stream *stream, struct gm_peer *peer, gpumem_status status, const char *detail)
{
	Gm__Wire__Failure failure = GM__WIRE__FAILURE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	failure.status = status;
	failure.detail = (char *)detail;
	packet.id = stream->id;
	packet.body_case = GM__WIRE__PACKET__BODY_FAILURE;
	packet.failure = &failure;
	return gm_peer_emit(peer, &packet, NULL, 0);
}

/* Read-only copies are made for the packet and closed with it. 1: the answer ended with a failure.
 */
static int serve_lease_emit_handles(struct handles *handles, struct gm_peer *peer,
	Gm__Wire__Packet *packet, bool read_only, const int *fds, size_t n)
{
	const struct gm_dispatch *dispatch = handles->dispatch;
	if (!read_only || !dispatch->ops->read_only_fd)
		return gm_peer_emit(peer, packet, fds, n);
	struct gm_fdlist copies;
	gm_fdlist_init(&copies);
	int r = 0;
	for (size_t i = 0; i < n && r == 0; i++) {
		const struct gm_handle handle = {.fd = fds[i]};
		int fd;
		r = dispatch->ops->read_only_fd(dispatch->backend, &handle, &fd);
		if (r == 0)
			r = gm_fdlist_add(&copies, fd);
	}
	if (r == 0) {
		r = gm_peer_emit(peer, packet, copies.fds, n);
	} else {
		r = serve_lease_emit_failure(&handles->stream, peer, GPUMEM_E_LIMIT,
			"the daemon has no file descriptors left; raise its LimitNOFILE=");
		r = r < 0 ? r : 1;
	}
	gm_fdlist_deinit(&copies);
	return r;
}

static int serve_lease_handles_next(struct gm_stream *stream, struct gm_peer *peer)
{
	struct handles *handles = (struct handles *)stream;
	struct gm_client *client = gm_peer_user(peer);
	struct gm_lease *lease =
		client ? gm_session_find_lease(client->session, handles->lease) : NULL;
	if (!lease)
		return serve_lease_emit_failure(stream, peer, GPUMEM_E_NOT_FOUND,
			"the lease was returned while its handles were being sent");

	struct gm_lease_info info;
	gm_lease_info(lease, client->session, &info);
	Gm__Wire__Chunk chunks[GM_LIMIT_PACKET_FDS];
	Gm__Wire__Chunk *list[GM_LIMIT_PACKET_FDS];
	int fds[GM_LIMIT_PACKET_FDS];
	size_t n = 0, n_fds = 0;
	const struct gm_chunk *chunk = gm_lease_chunk(lease, handles->from);
	uint64_t last = handles->from;
	if (chunk && chunk->index >= handles->to)
		chunk = NULL;
	while (chunk && n < GM_LIMIT_PACKET_FDS) {
		gm__wire__chunk__init(&chunks[n]);
		chunks[n].id = chunk->id;
		chunks[n].index = chunk->index;
		chunks[n].bytes = chunk->bytes;
		if (chunk->transport == GM_TRANSPORT_IPC) {
			chunks[n].ipc_handle.data = (uint8_t *)chunk->handle.ipc;
			chunks[n].ipc_handle.len = GM_IPC_HANDLE_BYTES;
		} else {
			fds[n_fds++] = chunk->handle.fd;
		}
		last = chunk->index;
		list[n] = &chunks[n];
		n++;
		chunk = chunk->next && chunk->next->index < handles->to ? chunk->next : NULL;
	}
	Gm__Wire__LeaseReply reply = GM__WIRE__LEASE_REPLY__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	reply.lease = info.id;
	reply.device = info.device;
	reply.transport = (Gm__Wire__Transport)info.transport;
	reply.bytes = info.bytes;
	reply.n_chunks = n;
	reply.chunks = list;
	reply.read_only = info.read_only;
	reply.tag = (char *)(info.tag ? info.tag : "");
	reply.user_bytes = info.user_bytes;
	packet.id = stream->id;
	packet.more = chunk != NULL;
	packet.body_case = GM__WIRE__PACKET__BODY_LEASE_REPLY;
	packet.lease_reply = &reply;
	int r = serve_lease_emit_handles(handles, peer, &packet, info.read_only, fds, n_fds);
	if (r < 0)
		return r;
	if (r > 0) {
		if (handles->opening)
			gm_lease_return(client->session, lease);
		return 0;
	}
	handles->from = last + 1;
	return chunk != NULL;
}

static int serve_lease_send_handles(struct gm_dispatch *dispatch, struct gm_peer *peer, uint64_t id,
	uint64_t lease, uint64_t from, uint64_t to, bool opening)
{
	struct handles *handles = calloc(1, sizeof(*handles));
	if (!handles)
		return -ENOMEM;
	handles->stream.id = id;
	handles->stream.next = serve_lease_handles_next;
	handles->stream.free = serve_lease_handles_free;
	handles->dispatch = dispatch;
	handles->lease = lease;
	handles->from = from;
	handles->to = to;
	handles->opening = opening;
	gm_peer_start(peer, &handles->stream);
	return 0;
}

static void serve_lease_fail_memory(struct gm_peer *peer, uint64_t id)
{
	gm_peer_send_failure(peer, id, GPUMEM_E_SYSTEM, "the daemon is out of memory");
}

static void serve_lease_fail_no_lease(struct gm_peer *peer, uint64_t id, uint64_t lease)
{
	char detail[GM_DETAIL_BYTES];
	snprintf(
		detail, sizeof(detail), "this client has no lease %llu", (unsigned long long)lease);
	gm_peer_send_failure(peer, id, GPUMEM_E_NOT_FOUND, detail);
}

/* ---- asking for memory */

struct gm_serve_asked {
	struct gm_request request;
	struct gm_dispatch *dispatch;
	struct gm_client *client; /* both outlive the request: the end of a connection cancels it */
	struct gm_peer *peer;
	uint64_t id;
	bool waits;                         /* it may */
	char tag[GM_LIMIT_NAME_BYTES + 1];  /* while it waits the packet is gone */
	struct gm_serve_asked *prev, *next; /* of the client */
};

/* Who says that much means for ever. */
#define GM_ASK_FOREVER_MS (UINT64_C(1000) * 3600 * 24 * 365)

static void serve_lease_on_done(
	struct gm_request *request, gpumem_status status, const char *detail)
{
	struct gm_serve_asked *asked = (struct gm_serve_asked *)request;
	struct gm_dispatch *dispatch = asked->dispatch;
	struct gm_peer *peer = asked->peer;
	uint64_t id = asked->id;
	DL_DELETE(asked->client->asked, asked);
	asked->client->n_waiting -= asked->waits;
	if (status != GPUMEM_OK) {
		free(asked);
		gm_peer_send_failure(peer, id, status, detail);
		return;
	}
	struct gm_lease_info info;
	gm_lease_info(request->lease, request->session, &info);
	/* What another request adds to the lease before the last packet of this answer is that
	 * one's to tell: a chunk told twice would be used twice. */
	uint64_t from = request->first_index, to = from;
	for (const struct gm_chunk *c = gm_lease_chunk(request->lease, from); c; c = c->next)
		to = c->index + 1;
	free(asked);
	/* Without an answer the client could not know what it holds: off it goes, and its chunks
	 * with it when it ends. */
	if (serve_lease_send_handles(dispatch, peer, id, info.id, from, to, false) < 0)
		gm_peer_refuse(peer, id, GPUMEM_E_SYSTEM, "the daemon is out of memory");
}

/* Whether it waits if it does not fit, and for how long. */
static bool serve_lease_set_wait(const struct gm_dispatch *dispatch, uint32_t device,
	uint64_t wait_ms, bool no_wait, struct gm_request *request)
{
	if (no_wait) {
		request->wait_ns = GM_WAIT_NEVER;
		return false;
	}
	if (wait_ms) {
		request->wait_ns =
			wait_ms < GM_ASK_FOREVER_MS ? wait_ms * GM_NS_PER_MS : GM_WAIT_FOREVER;
		return true;
	}
	const struct gm_config *config = dispatch->config;
	enum gm_oom oom = dispatch->devices[device].pinned ? config->pinned.policy.oom
							   : config->devices[device].policy.oom;
	return oom != GM_OOM_REFUSE;
}

static void serve_lease_ask(struct gm_dispatch *dispatch, struct gm_peer *peer, uint64_t id,
	const struct gm_request *what, uint64_t wait_ms, bool no_wait)
{
	struct gm_client *client = gm_peer_user(peer);
	char detail[GM_DETAIL_BYTES];
	if (what->bytes == 0 || what->bytes > GM_LEASE_BYTES_MAX) {
		snprintf(detail, sizeof(detail), "a lease of %llu bytes: must be 1 to %llu",
			(unsigned long long)what->bytes, (unsigned long long)GM_LEASE_BYTES_MAX);
		gm_peer_send_failure(peer, id, GPUMEM_E_INVALID, detail);
		return;
	}
	struct gm_serve_asked *asked = calloc(1, sizeof(*asked));
	if (!asked) {
		serve_lease_fail_memory(peer, id);
		return;
	}
	asked->request = *what;
	asked->request.session = client->session;
	asked->request.done = serve_lease_on_done;
	if (what->tag)
		strncpy(asked->tag, what->tag, sizeof(asked->tag) - 1);
	asked->request.tag = asked->tag;
	asked->dispatch = dispatch;
	asked->client = client;
	asked->peer = peer;
	asked->id = id;
	asked->waits =
		serve_lease_set_wait(dispatch, what->device, wait_ms, no_wait, &asked->request);
	/* Requests without an answer are bounded, and returns come the same way as they do: what
	 * may wait for long must leave room for what it waits for. */
	if (asked->waits && client->n_waiting >= GM_LIMIT_WAITING_PER_CLIENT) {
		snprintf(detail, sizeof(detail),
			"%d requests of this client wait already; cancel one, or ask without waiting",
			GM_LIMIT_WAITING_PER_CLIENT);
		free(asked);
		gm_peer_send_failure(peer, id, GPUMEM_E_LIMIT, detail);
		return;
	}
	client->n_waiting += asked->waits;
	DL_APPEND(client->asked, asked);
	gm_core_request(dispatch->core, &asked->request);
}

void gm_serve_cancel(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const struct gm_client *client = gm_peer_user(peer);
	struct gm_serve_asked *asked = NULL;
	DL_SEARCH_SCALAR(client->asked, asked, id, packet->cancel->request);
	if (!asked) {
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_NOT_FOUND,
			"no request of this connection with this id is without an answer");
		return;
	}
	gm_core_cancel(dispatch->core, &asked->request);
	gm_peer_send_done(peer, packet->id);
}

static bool serve_lease_device_ok(
	struct gm_dispatch *dispatch, struct gm_peer *peer, uint64_t id, uint32_t n)
{
	if (n < dispatch->n_devices)
		return true;
	gm_dispatch_no_device(dispatch, peer, id, n);
	return false;
}

/* Why a device does not do what was asked of it, and what to do. */
static void serve_lease_no_transport(const struct gm_dispatch *dispatch,
	const Gm__Wire__Lease *lease, enum gm_transport transport, char detail[GM_DETAIL_BYTES])
{
	const struct gm_backend_device *device = &dispatch->devices[lease->device];
	bool ipc = transport == GM_TRANSPORT_IPC;
	const char *remedy = ipc ? "ask for fd or auto" : "ask for ipc or auto";
	/* A client's heap asks by name for what it was told is used here. */
	if (lease->transport == GM__WIRE__TRANSPORT__TRANSPORT_AUTO ||
		dispatch->config->transport == transport)
		remedy = "gpumemd.conf asks for it: set transport = auto";
	if (!device->transport_fd && !device->transport_ipc)
		remedy = "it can share memory in no way; see gpumemctl doctor";
	snprintf(detail, GM_DETAIL_BYTES, "device %u has no %s transport: %s; %s", lease->device,
		ipc ? "ipc" : "fd", ipc ? device->ipc_why : device->fd_why, remedy);
}

void gm_serve_lease(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__Lease *lease = packet->lease;
	if (!serve_lease_device_ok(dispatch, peer, packet->id, lease->device))
		return;
	if (!gm_name_ok(lease->tag)) {
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_INVALID,
			"a tag is printable UTF-8 of at most 63 bytes");
		return;
	}
	const struct gm_backend_device *device = &dispatch->devices[lease->device];
	enum gm_transport transport = GM_TRANSPORT_AUTO;
	switch (lease->transport) {
	case GM__WIRE__TRANSPORT__TRANSPORT_AUTO:
		transport = gm_dispatch_auto(dispatch, lease->device);
		break;
	case GM__WIRE__TRANSPORT__TRANSPORT_FD:
		transport = GM_TRANSPORT_FD;
		break;
	case GM__WIRE__TRANSPORT__TRANSPORT_IPC:
		transport = GM_TRANSPORT_IPC;
		break;
	default:
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_INVALID, "no such transport");
		return;
	}
	if (!(transport == GM_TRANSPORT_FD ? device->transport_fd : device->transport_ipc)) {
		char detail[GM_DETAIL_BYTES];
		serve_lease_no_transport(dispatch, lease, transport, detail);
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_UNSUPPORTED, detail);
		return;
	}
	const struct gm_request what = {
		.device = lease->device,
		.bytes = lease->bytes,
		.transport = transport,
		.tag = lease->tag,
	};
	serve_lease_ask(dispatch, peer, packet->id, &what, lease->wait_ms, lease->no_wait);
}

/* The lease a request names, or NULL when its answer was sent. */
static struct gm_lease *serve_lease_find(struct gm_peer *peer, uint64_t id, uint64_t name)
{
	struct gm_client *client = gm_peer_user(peer);
	struct gm_lease *lease = gm_session_find_lease(client->session, name);
	if (!lease)
		serve_lease_fail_no_lease(peer, id, name);
	return lease;
}

static struct gm_session *serve_lease_session_of(struct gm_peer *peer)
{
	return ((struct gm_client *)gm_peer_user(peer))->session;
}

void gm_serve_grow(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	struct gm_lease *lease = serve_lease_find(peer, packet->id, packet->grow->lease);
	if (!lease)
		return;
	struct gm_lease_info info;
	gm_lease_info(lease, serve_lease_session_of(peer), &info);
	const struct gm_request what = {
		.lease = lease, .device = info.device, .bytes = packet->grow->bytes};
	serve_lease_ask(
		dispatch, peer, packet->id, &what, packet->grow->wait_ms, packet->grow->no_wait);
}

static void serve_lease_answer_status(
	struct gm_peer *peer, uint64_t id, gpumem_status status, const char *detail)
{
	if (status == GPUMEM_OK)
		gm_peer_send_done(peer, id);
	else
		gm_peer_send_failure(peer, id, status, detail);
}

void gm_serve_return(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__Return *what = packet->return_chunks;
	struct gm_lease *lease = serve_lease_find(peer, packet->id, what->lease);
	if (!lease)
		return;
	if (what->n_chunks == 0) {
		gm_lease_return(serve_lease_session_of(peer), lease);
		gm_peer_send_done(peer, packet->id);
		return;
	}
	gpumem_status status = gm_lease_return_chunks(
		serve_lease_session_of(peer), lease, what->chunks, what->n_chunks);
	const char *detail = "the chunks cannot be returned";
	if (status == GPUMEM_E_NOT_FOUND)
		detail = "a chunk is not (or no longer) in the lease, or is named twice; none was "
			 "returned";
	else if (status == GPUMEM_E_BUSY)
		detail = "the lease is shared: it goes back as a whole";
	serve_lease_answer_status(peer, packet->id, status, detail);
}

void gm_serve_get_handles(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	if (!serve_lease_find(peer, packet->id, packet->get_handles->lease))
		return;
	if (serve_lease_send_handles(dispatch, peer, packet->id, packet->get_handles->lease,
		    packet->get_handles->from, UINT64_MAX, false) < 0)
		serve_lease_fail_memory(peer, packet->id);
}

/* ---- sharing */

void gm_serve_share(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__Share *share = packet->share;
	struct gm_lease *lease = serve_lease_find(peer, packet->id, share->lease);
	if (!lease)
		return;
	struct gm_share_options options = {
		.id = share->audience_id,
		.read_only = share->read_only,
	};
	switch (share->audience) {
	case GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN:
		options.audience = GM_AUDIENCE_DOMAIN;
		break;
	case GM__WIRE__AUDIENCE__AUDIENCE_UID:
		options.audience = GM_AUDIENCE_UID;
		break;
	case GM__WIRE__AUDIENCE__AUDIENCE_GID:
		options.audience = GM_AUDIENCE_GID;
		break;
	default:
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_INVALID, "no such audience");
		return;
	}
	uint8_t token[GM_TOKEN_BYTES];
	gpumem_status status = gm_lease_share(serve_lease_session_of(peer), lease, &options, token);
	if (status != GPUMEM_OK) {
		const char *detail = "the lease cannot be shared";
		if (status == GPUMEM_E_LIMIT)
			detail = "this client has as many shares as it may have; unshare some";
		else if (status == GPUMEM_E_DENIED)
			detail = "only the maker of a lease can share it";
		gm_peer_send_failure(peer, packet->id, status, detail);
		return;
	}
	Gm__Wire__ShareReply reply = GM__WIRE__SHARE_REPLY__INIT;
	Gm__Wire__Packet answer = GM__WIRE__PACKET__INIT;
	reply.token.data = token;
	reply.token.len = sizeof(token);
	answer.id = packet->id;
	answer.body_case = GM__WIRE__PACKET__BODY_SHARE_REPLY;
	answer.share_reply = &reply;
	gm_peer_send(peer, &answer);
	explicit_bzero(token, sizeof(token));
}

void gm_serve_open(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__Open *open = packet->open;
	const struct gm_identity *identity = gm_peer_identity(peer);
	struct gm_lease *lease;
	if (open->token.len != GM_TOKEN_BYTES) {
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_INVALID, "a token has 16 bytes");
		return;
	}
	gpumem_status status = gm_session_open(serve_lease_session_of(peer), open->token.data,
		identity->groups, identity->n_groups, &lease);
	if (status != GPUMEM_OK) {
		const char *detail = "the lease cannot be opened";
		if (status == GPUMEM_E_NOT_FOUND)
			detail = "nothing is shared under this token with this client: it may have "
				 "ended, or be meant for somebody else";
		else if (status == GPUMEM_E_LIMIT)
			detail = "the lease was opened as often as it may be, or this client holds "
				 "as many leases as it may";
		gm_peer_send_failure(peer, packet->id, status, detail);
		return;
	}
	struct gm_lease_info info;
	gm_lease_info(lease, serve_lease_session_of(peer), &info);
	if (serve_lease_send_handles(dispatch, peer, packet->id, info.id, 0, UINT64_MAX, true) <
		0) {
		gm_lease_return(serve_lease_session_of(peer), lease);
		serve_lease_fail_memory(peer, packet->id);
	}
}

void gm_serve_unshare(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	struct gm_lease *lease = serve_lease_find(peer, packet->id, packet->unshare->lease);
	if (!lease)
		return;
	serve_lease_answer_status(peer, packet->id,
		gm_lease_unshare(serve_lease_session_of(peer), lease),
		"only the maker of a lease can end its sharing");
}
