/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases and declarations on the wire: asking for memory and giving it back. Core checks
 * a request and decides whether it is granted.
 */
#include "daemon/serve/handlers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "common/arith.h"
#include "common/clock.h"
#include "common/step.h"
#include "common/text/units.h"
#include "common/zeroed.h"
#include "daemon/lease/declare.h"
#include "daemon/serve/answer.h"
#include "daemon/serve/serve_handles.h"
#include "daemon/tenant/client_news.h"
#include "daemon/queue/request.h"

/* The wire has the same numbers as core. */
_Static_assert((int)GM_TRANSPORT_AUTO == (int)GM__WIRE__TRANSPORT__TRANSPORT_AUTO, "auto");
_Static_assert((int)GM_TRANSPORT_FD == (int)GM__WIRE__TRANSPORT__TRANSPORT_FD, "fd");
_Static_assert((int)GM_TRANSPORT_IPC == (int)GM__WIRE__TRANSPORT__TRANSPORT_IPC, "ipc");

/* A wait that is at least this long counts as forever. */
#define GM_SERVE_FOREVER_MS (UINT64_C(1000) * 3600 * 24 * 365)

/* ---- asking for memory */

/* A request for memory that is not answered yet. It is cancelled when its connection ends, so its
 * client and its peer outlive it. */
struct gm_serve_asked {
	struct gm_request request;
	struct gm_serve *serve;
	struct gm_client *client;
	struct gm_peer *peer;
	uint64_t id;
	uint32_t repeats; /* which follower of a refused request it is; 0: none */
	bool waits;       /* it may wait for room */
	char tag[GM_BOUND_NAME_BYTES +
		 2]; /* a copy, because the packet is gone by then; one that is too long stays so */
	struct gm_serve_asked *prev, *next; /* of the client */
};

/* Whether a request follows one that was refused. Returns which follower it is; 0: none. */
static uint32_t serve_repeats(struct gm_client *client, uint64_t again_of)
{
	for (size_t i = 0; again_of && i < GM_CLIENT_REFUSED; i++) {
		struct gm_client_refused *refused = &client->refused[i];

		if (refused->id != again_of)
			continue;
		/* Another one cannot follow it. */
		refused->id = 0;
		return refused->repeats < GM_BOUND_REPEATS ? refused->repeats + 1 : 0;
	}
	return 0;
}

static void serve_note_refused(struct gm_client *client, uint64_t id, uint32_t repeats)
{
	client->refused[client->next_refused++ % GM_CLIENT_REFUSED] =
		(struct gm_client_refused){.id = id, .repeats = repeats};
}

/* Answers with what the session has declared on the device now. */
static void serve_answer_declared(
	struct gm_peer *peer, uint64_t id, const struct gm_session *session, uint32_t device)
{
	Gm__Wire__DeclareReply reply = GM__WIRE__DECLARE_REPLY__INIT;
	reply.bytes = gm_declare_sum(session, device);
	gm_answer_send(peer, id, GM__WIRE__PACKET__BODY_DECLARE_REPLY, &reply);
}

static void serve_end_asked(struct gm_request *request, gpumem_status status, const char *detail)
{
	struct gm_serve_asked *asked = (struct gm_serve_asked *)request;
	struct gm_serve *serve = asked->serve;
	struct gm_peer *peer = asked->peer;
	uint64_t id = asked->id;

	DL_DELETE(asked->client->asked, asked);
	asked->client->n_waiting -= asked->waits;
	if (status != GPUMEM_OK) {
		if (status != GPUMEM_E_CANCELLED) {
			serve_note_refused(asked->client, id, asked->repeats);
			/* The client may look at its page to see how much it could have had. */
			gm_clients_session_changed(request->session, request->device);
		}
		free(asked);
		gm_peer_send_failure(peer, id, status, detail);
		return;
	}

	if (request->declares) {
		serve_answer_declared(peer, id, request->session, request->device);
		free(asked);
		return;
	}

	/* Another request may add chunks to the lease before the last packet of this answer. Only
	 * that request's answer names them: the client would use a chunk named twice for two
	 * purposes. */
	uint64_t lease = gm_lease_id(request->lease), from = request->first_index, to = from;
	for (const struct gm_chunk *c = gm_lease_chunk(request->lease, from); c; c = c->next)
		to = c->index + 1;
	free(asked);
	/* Without an answer the client cannot know what it holds. Its connection ends, and its
	 * chunks are released when its process does. */
	if (!gm_serve_send_handles(serve, peer, id, lease, from, to, false))
		gm_peer_refuse(peer, id, GPUMEM_E_SYSTEM, "the daemon is out of memory");
}

/* A request may end in the turn of another user, or in a tick: whoever asked pays for its answer. */
static void serve_on_done(struct gm_request *request, gpumem_status status, const char *detail)
{
	struct gm_hub_flow *flow = gm_peer_flow(((struct gm_serve_asked *)request)->peer);
	uint64_t began_ns = gm_hub_flow_begin_work(flow->flows);

	serve_end_asked(request, status, detail);
	gm_hub_flow_end_work(flow, began_ns);
}

/* Decides whether a request waits if it does not fit, and for how long. */
static bool serve_set_wait(const struct gm_serve *serve, uint32_t device, uint64_t wait_ms,
	bool no_wait, struct gm_request *request)
{
	if (no_wait) {
		request->wait_ns = GM_WAIT_NEVER;
		return false;
	}
	if (wait_ms) {
		request->wait_ns =
			wait_ms < GM_SERVE_FOREVER_MS ? wait_ms * GM_NS_PER_MS : GM_WAIT_FOREVER;
		return true;
	}
	const struct gm_config *config = serve->config;
	enum gm_policy_oom oom = serve->devices[device].pinned ? config->pinned.policy.oom
							       : config->devices[device].policy.oom;
	return oom != GM_POLICY_OOM_REFUSE;
}

/* Begins a request of a client. The caller fills in what it is for, and calls serve_ask(). Returns NULL if there is no
 * memory, after an answer that says so. */
static struct gm_serve_asked *serve_new_asked(
	struct gm_serve *serve, struct gm_peer *peer, uint64_t id)
{
	struct gm_serve_asked *asked = gm_zeroed(sizeof(*asked));

	if (!asked) {
		gm_serve_fail_memory(peer, id);
		return NULL;
	}
	asked->serve = serve;
	asked->client = gm_peer_user(peer);
	asked->peer = peer;
	asked->id = asked->request.id = id;
	asked->request.session = asked->client->session;
	asked->request.done = serve_on_done;
	return asked;
}

/* How long a request has waited for an earlier daemon, by its client's word, and at most since the client joined. */
static uint64_t serve_waited(const struct gm_client *client, uint64_t waited_ms)
{
	if (!client->resumed || !waited_ms)
		return 0;
	uint64_t joined_ns =
		gm_u64_minus(gm_clock_ns(), gm_session_info(client->session)->since_ns);
	return waited_ms < joined_ns / GM_NS_PER_MS ? waited_ms * GM_NS_PER_MS : joined_ns;
}

/* Hands the request to core. Takes ownership of it. */
static void serve_ask(
	struct gm_serve_asked *asked, uint64_t wait_ms, bool no_wait, uint64_t again_of)
{
	struct gm_client *client = asked->client;
	struct gm_request *request = &asked->request;
	char detail[GM_DETAIL_BYTES];

	if (request->tag)
		memcpy(asked->tag, request->tag, strnlen(request->tag, sizeof(asked->tag) - 1));
	request->tag = asked->tag;
	asked->waits = serve_set_wait(asked->serve, request->device, wait_ms, no_wait, request);

	/* A client may have a bounded number of requests without an answer, and returning memory is
	 * a request too. So requests that may wait for long must leave room for the returns that
	 * they wait for. */
	if (asked->waits && client->n_waiting >= GM_BOUND_WAITING_PER_CLIENT) {
		snprintf(detail, sizeof(detail),
			"%d requests of this client wait already; cancel one, or ask without waiting",
			GM_BOUND_WAITING_PER_CLIENT);
		gm_peer_send_failure(asked->peer, asked->id, GPUMEM_E_LIMIT, detail);
		free(asked);
		return;
	}

	asked->repeats = serve_repeats(client, again_of);
	request->again = asked->repeats > 0;
	client->n_waiting += asked->waits;
	DL_APPEND(client->asked, asked);
	gm_core_request(asked->serve->core, request);
}

/*
 * A client that was resumed repeats the requests that were not answered, with their ids. If this one
 * was granted before, answers with what it brought, and returns true. lease: the one to grow, or NULL.
 */
static bool serve_repeat(
	struct gm_serve *serve, struct gm_peer *peer, uint64_t id, const struct gm_lease *lease)
{
	const struct gm_client *client = gm_peer_user(peer);
	struct gm_lease *found;
	uint64_t from, to;

	if (!client->resumed || !gm_session_find_grant(client->session, id, &found, &from, &to) ||
		(lease && lease != found))
		return false;
	if (!gm_serve_send_handles(serve, peer, id, gm_lease_id(found), from, to, false))
		gm_serve_fail_memory(peer, id);
	return true;
}

void gm_serve_cancel(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const struct gm_client *client = gm_peer_user(peer);
	struct gm_serve_asked *asked = NULL;

	DL_SEARCH_SCALAR(client->asked, asked, id, packet->cancel->request);
	if (!asked) {
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_NOT_FOUND,
			"this connection has no unanswered request with this id");
		return;
	}
	gm_core_cancel(serve->core, &asked->request);
	gm_peer_send_done(peer, packet->id);
}

/* Whether pinned host memory may stand in for a device; if not, answers. */
static bool serve_check_fallback(
	const struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	if (!serve->devices[packet->lease->device].pinned) {
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_INVALID,
			"only pinned host memory can stand in for a device");
		return false;
	}
	if (!serve->config->cpu_fallback) {
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_DENIED,
			"gpumemd.conf does not allow host memory in place of a device's "
			"(cpu_fallback = no)");
		return false;
	}
	return true;
}

void gm_serve_lease(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__Lease *lease = packet->lease;

	if (!gm_serve_require_device(serve, peer, packet->id, lease->device))
		return;
	if (lease->fallback && !serve_check_fallback(serve, peer, packet))
		return;
	if (serve_repeat(serve, peer, packet->id, NULL))
		return;
	struct gm_serve_asked *asked = serve_new_asked(serve, peer, packet->id);
	if (!asked)
		return;
	struct gm_request *request = &asked->request;
	request->device = lease->device;
	request->bytes = lease->bytes;
	request->signals = lease->signals;
	request->transport = (enum gm_transport)lease->transport;
	request->tag = lease->tag;
	request->for_others = lease->for_others;
	request->at_once = lease->at_once;
	request->host_will_do = lease->host_will_do;
	request->waited_ns = serve_waited(asked->client, lease->waited_ms);
	request->one_chunk = lease->one_chunk;
	serve_ask(asked, lease->wait_ms, lease->no_wait || lease->at_once, lease->again_of);
}

void gm_serve_grow(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	struct gm_lease *lease = gm_serve_find_lease(peer, packet->id, packet->grow->lease);

	if (!lease)
		return;

	struct gm_lease_info info;
	gm_lease_info(lease, gm_serve_session_of(peer), &info);
	if (info.signals) {
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_UNSUPPORTED,
			"a lease with signals cannot grow; ask for a larger one");
		return;
	}

	if (packet->grow->bytes == 0 && packet->grow->user_bytes) {
		char detail[GM_DETAIL_BYTES];
		gpumem_status status = gm_lease_set_size(
			gm_serve_session_of(peer), lease, packet->grow->user_bytes, detail);
		gm_serve_answer_status(peer, packet->id, status, detail);
		return;
	}

	if (serve_repeat(serve, peer, packet->id, lease))
		return;
	struct gm_serve_asked *asked = serve_new_asked(serve, peer, packet->id);
	if (!asked)
		return;
	asked->request.lease = lease;
	asked->request.device = info.device;
	asked->request.bytes = packet->grow->bytes;
	asked->request.user_bytes = packet->grow->user_bytes;
	asked->request.host_will_do = packet->grow->host_will_do;
	asked->request.waited_ns = serve_waited(asked->client, packet->grow->waited_ms);
	serve_ask(asked, packet->grow->wait_ms, packet->grow->no_wait, packet->grow->again_of);
}

/* ---- declared memory */

/* A client that resumes its session says first how much it has declared, so a request that it repeats is
 * not charged twice. */
void gm_serve_declare(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__Declare *declare = packet->declare;
	struct gm_session *session = gm_serve_session_of(peer);

	if (!gm_serve_require_device(serve, peer, packet->id, declare->device))
		return;
	uint64_t has = gm_declare_sum(session, declare->device), more = declare->bytes;
	switch (declare->how) {
	case GM__WIRE__DECLARE_HOW__DECLARE_MORE:
		break;
	case GM__WIRE__DECLARE_HOW__DECLARE_LESS:
		gm_declare_less(session, declare->device, gm_u64_minus(has, declare->bytes));
		serve_answer_declared(peer, packet->id, session, declare->device);
		return;
	case GM__WIRE__DECLARE_HOW__DECLARE_EXACTLY:
		more = gm_u64_minus(
			declare->bytes, gm_declare_less(session, declare->device, declare->bytes));
		if (more > 0)
			break;
		serve_answer_declared(peer, packet->id, session, declare->device);
		return;
	default:
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_INVALID,
			"memory is declared as more, as less, or as a sum");
		return;
	}

	struct gm_serve_asked *asked = serve_new_asked(serve, peer, packet->id);
	if (!asked)
		return;
	asked->request.device = declare->device;
	asked->request.bytes = more;
	asked->request.declares = true;
	asked->request.waited_ns = serve_waited(asked->client, declare->waited_ms);
	serve_ask(asked, declare->wait_ms, declare->no_wait, 0);
}

/* ---- returns */

/* The answer to the return of very many chunks: a whole lease, or some of it. */
struct serve_returning {
	struct gm_answer head;
	uint64_t lease;
	uint64_t view; /* of a whole lease: which one of several; 0: any */
};

/* These release one part of the chunks on each turn of the client's user. There is no packet before
 * the last. */
static int serve_return_more(struct gm_stream *stream, struct gm_peer *peer)
{
	const struct serve_returning *returning = (const struct serve_returning *)stream;
	struct gm_client *client = gm_peer_user(peer);
	struct gm_lease *lease =
		client ? gm_session_find_lease(client->session, returning->lease) : NULL;
	Gm__Wire__Done done = GM__WIRE__DONE__INIT;

	while (lease && gm_lease_return_more(client->session, lease))
		if (gm_peer_time_is_up(peer))
			return 1;
	return gm_answer_emit(stream, peer, false, GM__WIRE__PACKET__BODY_DONE, &done);
}

static int serve_return_next(struct gm_stream *stream, struct gm_peer *peer)
{
	const struct serve_returning *returning = (const struct serve_returning *)stream;
	struct gm_client *client = gm_peer_user(peer);
	struct gm_lease *lease =
		client ? gm_session_find_lease(client->session, returning->lease) : NULL;
	Gm__Wire__Done done = GM__WIRE__DONE__INIT;

	while (lease && gm_lease_return_some(client->session, lease))
		if (gm_peer_time_is_up(peer))
			return 1;
	int r = gm_answer_emit(stream, peer, false, GM__WIRE__PACKET__BODY_DONE, &done);
	if (r == 0 && lease)
		gm_lease_return_view(client->session, lease, returning->view);
	return r;
}

/* Begins an answer that returns the lease, or some of it. Returns false if there is no memory to do it
 * in parts. */
static bool serve_start_return(struct gm_serve *serve, struct gm_peer *peer, uint64_t id,
	const struct gm_lease *lease, uint64_t view,
	int (*next)(struct gm_stream *stream, struct gm_peer *peer))
{
	struct serve_returning *returning =
		gm_answer_new(serve, peer, id, next, sizeof(*returning));
	if (!returning)
		return false;

	returning->lease = gm_lease_id(lease);
	returning->view = view;
	gm_peer_start(peer, &returning->head.stream);
	return true;
}

static void serve_return_lease(struct gm_serve *serve, struct gm_peer *peer, uint64_t id,
	struct gm_lease *lease, uint64_t view)
{
	struct gm_session *session = gm_serve_session_of(peer);

	if (!gm_lease_has_view(session, lease, view)) {
		gm_peer_send_failure(peer, id, GPUMEM_E_NOT_FOUND,
			"this client has returned this view of the lease already");
		return;
	}
	if (gm_lease_return_some(session, lease) &&
		serve_start_return(serve, peer, id, lease, view, serve_return_next))
		return;
	gm_lease_return_view(session, lease, view);
	GM_STEP("return: a lease came back");
	gm_peer_send_done(peer, id);
	GM_STEP("return: answered");
}

static void serve_return_rest(
	struct gm_serve *serve, struct gm_peer *peer, uint64_t id, struct gm_lease *lease)
{
	if (serve_start_return(serve, peer, id, lease, 0, serve_return_more))
		return;
	while (gm_lease_return_more(gm_serve_session_of(peer), lease))
		;
	gm_peer_send_done(peer, id);
}

void gm_serve_return(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__Return *what = packet->return_chunks;
	struct gm_lease *lease = gm_serve_find_lease(peer, packet->id, what->lease);

	if (!lease)
		return;
	if (what->n_chunks == 0) {
		serve_return_lease(serve, peer, packet->id, lease, what->view);
		return;
	}

	if (!gm_serve_require_list(peer, packet->id, what->n_chunks))
		return;
	if (what->n_indexes && what->n_indexes != what->n_chunks) {
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_INVALID,
			"the chunks need one index each, or none of them has one");
		return;
	}
	gpumem_status status = gm_lease_return_chunks_at(gm_serve_session_of(peer), lease,
		what->chunks, what->n_indexes ? what->indexes : NULL, what->n_chunks);
	/* The client may not know that the chunk is a lease of its own, which ends then. */
	bool piece = status == GPUMEM_E_NOT_FOUND && what->n_indexes == 1;
	if (piece)
		status = gm_session_return_piece(
			gm_serve_session_of(peer), what->lease, what->chunks[0], what->indexes[0]);
	GM_STEP("return: chunks came back");
	if (status == GPUMEM_OK && !piece && gm_lease_is_leaving(lease)) {
		serve_return_rest(serve, peer, packet->id, lease);
		return;
	}
	const char *detail = "the chunks cannot be returned";
	if (status == GPUMEM_E_NOT_FOUND)
		detail = "a chunk is not (or no longer) in the lease, or is named twice; none was "
			 "returned";
	else if (status == GPUMEM_E_BUSY)
		detail = "the lease is shared, so it can only be returned as a whole";
	gm_serve_answer_status(peer, packet->id, status, detail);
}

void gm_serve_get_handles(
	struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	if (!gm_serve_find_lease(peer, packet->id, packet->get_handles->lease))
		return;
	if (!gm_serve_send_handles(serve, peer, packet->id, packet->get_handles->lease,
		    packet->get_handles->from, UINT64_MAX, false))
		gm_serve_fail_memory(peer, packet->id);
}
