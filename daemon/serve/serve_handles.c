/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends the handles of a lease. A long answer walks the lease by index and attaches up to 64 fds to a
 * packet, straight from the chunks, or up to 16 that are opened for the packet. It keeps the lease's id
 * and not the lease, because the lease may end between two packets. Then the answer ends with a
 * Failure.
 */
#include "daemon/serve/serve_handles.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/system/memfd.h"
#include "common/step.h"
#include "daemon/serve/answer.h"

/* A packet is a turn of its user, so it must not take long. It has this many handles at most where
 * each takes an open(). */
#define GM_SERVE_OPENS 16

struct gm_session *gm_serve_session_of(const struct gm_peer *peer)
{
	return ((struct gm_client *)gm_peer_user(peer))->session;
}

struct gm_lease *gm_serve_find_lease(struct gm_peer *peer, uint64_t id, uint64_t name)
{
	struct gm_lease *lease = gm_session_find_lease(gm_serve_session_of(peer), name);
	char detail[GM_DETAIL_BYTES];

	if (!lease) {
		snprintf(detail, sizeof(detail), "this client has no lease %llu",
			(unsigned long long)name);
		gm_peer_send_failure(peer, id, GPUMEM_E_NOT_FOUND, detail);
	}
	return lease;
}

struct serve_handles {
	struct gm_answer head;
	uint64_t lease;
	uint64_t from, to; /* indexes, without to itself */
	uint64_t last;     /* id of the last chunk that was sent; 0: none */
	bool begun;        /* a packet was sent */
	bool opening;      /* the answer to an Open: if it fails, the client's view ends with it */
};

static void handles_close_fds(const int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++)
		close(fds[i]);
}

/* Opens n fds once more, for the client. On failure it returns a negative errno, and nothing is
 * open. */
static int handles_open_fds(
	const struct gm_serve *serve, const int *fds, size_t n, bool read_only, int *ret_fds)
{
	for (size_t i = 0; i < n; i++) {
		const struct gm_backend_handle handle = {.fd = fds[i]};
		int r = serve->ops->open_fd(serve->backend, &handle, read_only, &ret_fds[i]);
		if (r < 0) {
			handles_close_fds(ret_fds, i);
			return r;
		}
	}
	return 0;
}

/* The chunks of one packet. */
struct serve_chunks {
	Gm__Wire__Chunk chunks[GM_BOUND_PACKET_FDS];
	Gm__Wire__Chunk *list[GM_BOUND_PACKET_FDS];
	int fds[GM_BOUND_PACKET_FDS]; /* of the chunks */
	size_t n, n_fds;
	const struct gm_chunk *last; /* NULL: there are none */
	bool more;                   /* further ones follow */
};

/* Lists the next chunks of the answer, as many as a packet may have. */
static void handles_list(const struct serve_handles *handles, const struct gm_lease *lease,
	size_t most, struct serve_chunks *ret)
{
	const struct gm_chunk *chunk = gm_lease_chunk_after(lease, handles->last, handles->from);

	ret->n = ret->n_fds = 0;
	ret->last = NULL;
	for (; chunk && chunk->index < handles->to && ret->n < most; chunk = chunk->next) {
		Gm__Wire__Chunk *c = &ret->chunks[ret->n];

		/* The client has returned it. */
		if (chunk->marked)
			continue;
		gm__wire__chunk__init(c);
		c->id = chunk->id;
		c->index = chunk->index;
		c->bytes = chunk->bytes;
		if (chunk->transport == GM_TRANSPORT_IPC) {
			c->ipc_handle.data = (uint8_t *)chunk->handle.ipc;
			c->ipc_handle.len = GM_IPC_HANDLE_BYTES;
		} else {
			ret->fds[ret->n_fds++] = chunk->handle.fd;
		}
		ret->last = chunk;
		ret->list[ret->n++] = c;
	}
	ret->more = chunk && chunk->index < handles->to;
}

/* Sends a packet. control: the fd of the control block, or -1 if this packet has none. */
static int handles_emit(struct serve_handles *handles, struct gm_peer *peer,
	const struct gm_lease_info *info, struct serve_chunks *chunks, int control, const int *fds)
{
	Gm__Wire__LeaseReply reply = GM__WIRE__LEASE_REPLY__INIT;
	int sent[GM_BOUND_PACKET_FDS];
	size_t n = 0;

	if (control >= 0)
		sent[n++] = control;
	memcpy(sent + n, fds, chunks->n_fds * sizeof(fds[0]));
	n += chunks->n_fds;

	reply.lease = info->id;
	reply.device = info->device;
	reply.transport = (Gm__Wire__Transport)info->transport;
	reply.bytes = info->bytes;
	reply.n_chunks = chunks->n;
	reply.chunks = chunks->list;
	reply.read_only = info->read_only;
	reply.tag = (char *)(info->tag ? info->tag : "");
	reply.user_bytes = info->user_bytes;
	reply.version = info->version;
	reply.signals = info->signals;
	reply.maker_gone = info->signals && !info->made;
	reply.control = control >= 0;
	int r = gm_answer_emit_fds(&handles->head.stream, peer, chunks->more,
		GM__WIRE__PACKET__BODY_LEASE_REPLY, &reply, sent, n);
	GM_STEP("grant or open: answered");
	if (r >= 0)
		handles->begun = true;
	if (r >= 0 && chunks->last) {
		handles->from = chunks->last->index + 1;
		handles->last = chunks->last->id;
	}
	return r;
}

/* The same, for a backend whose fds are opened once more for each client. */
static int handles_emit_opened(struct serve_handles *handles, struct gm_peer *peer,
	struct gm_lease *lease, const struct gm_lease_info *info, struct serve_chunks *chunks,
	int control)
{
	const struct gm_stream *stream = &handles->head.stream;
	const struct gm_serve *serve = handles->head.serve;
	GM_AUTO_FD int reader = -1;
	int copies[GM_SERVE_OPENS];

	int r = handles_open_fds(serve, chunks->fds, chunks->n_fds, info->read_only, copies);
	/* No device needs to write there, so a client that may only read cannot. */
	if (r == 0 && control >= 0 && info->read_only && serve->ops->read_only) {
		r = gm_memfd_open(control, true, &reader);
		if (r < 0)
			handles_close_fds(copies, chunks->n_fds);
		control = reader;
	}
	if (r == 0) {
		r = handles_emit(handles, peer, info, chunks, control, copies);
		handles_close_fds(copies, chunks->n_fds);
	} else if (!info->read_only) {
		/* The daemon's own descriptors will do, but nobody can see who has them. */
		gm_lease_spoil(lease);
		r = handles_emit(handles, peer, info, chunks, control, chunks->fds);
	} else {
		struct gm_client *client = gm_peer_user(peer);
		r = gm_answer_emit_failure(stream, peer, GPUMEM_E_LIMIT,
			"the daemon has no file descriptors left; raise its LimitNOFILE=");
		if (r == 0 && handles->opening)
			gm_lease_return_view(client->session, lease, stream->id);
	}
	return r;
}

static int handles_next(struct gm_stream *stream, struct gm_peer *peer)
{
	struct serve_handles *handles = (struct serve_handles *)stream;
	const struct gm_serve *serve = handles->head.serve;
	struct gm_client *client = gm_peer_user(peer);
	struct gm_lease *lease =
		client ? gm_session_find_lease(client->session, handles->lease) : NULL;
	if (!lease)
		return gm_answer_emit_failure(stream, peer, GPUMEM_E_NOT_FOUND,
			"the lease was returned while its handles were being sent");

	struct gm_lease_info info;
	struct serve_chunks chunks;
	gm_lease_info(lease, client->session, &info);
	/* The first packet of every answer has the control block, in case it was lost on the way. */
	int control = handles->begun || !info.signals ? -1 : info.word;
	if (!serve->devices[info.device].reopened) {
		handles_list(handles, lease, GM_BOUND_PACKET_FDS - (control >= 0), &chunks);
		return handles_emit(handles, peer, &info, &chunks, control, chunks.fds);
	}

	handles_list(handles, lease, GM_SERVE_OPENS, &chunks);
	int r = gm_peer_may_emit(peer, chunks.n_fds + (control >= 0));
	return r < 0 ? r : handles_emit_opened(handles, peer, lease, &info, &chunks, control);
}

bool gm_serve_send_handles(struct gm_serve *serve, struct gm_peer *peer, uint64_t id,
	uint64_t lease, uint64_t from, uint64_t to, bool opening)
{
	struct serve_handles *handles =
		gm_answer_new(serve, peer, id, handles_next, sizeof(*handles));

	if (!handles)
		return false;
	handles->lease = lease;
	handles->from = from;
	handles->to = to;
	handles->opening = opening;
	gm_peer_start(peer, &handles->head.stream);
	return true;
}
