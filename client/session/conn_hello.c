/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first contact with a daemon: from a path to a connection, with its wakeup and its two
 * pages. Every error says what to do about it, because these are the first errors that a user of
 * the library meets.
 */
#include "client/session/conn_hello.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/arith.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/system/path.h"
#include "common/system/reach.h"
#include "common/status_table.h"

enum { FD_WAKEUP, FD_DAEMON_PAGE, FD_CLIENT_PAGE, FDS };

struct conn_hello_call {
	struct gm_conn_request call;
	struct gm_conn_hello hello;
	uint32_t major, minor;
	bool answered;
	bool fds_lost;
};

static void conn_hello_init(struct gm_conn_hello *hello)
{
	*hello = (struct gm_conn_hello){.wakeup = -1, .daemon_page = -1, .client_page = -1};
}

void gm_conn_hello_deinit(struct gm_conn_hello *hello)
{
	if (!hello)
		return;
	gm_conn_unref(hello->conn);
	gm_close(hello->wakeup);
	gm_close(hello->daemon_page);
	gm_close(hello->client_page);
	free(hello->leases);
	conn_hello_init(hello);
}

static int conn_hello_take(
	struct gm_conn_request *base, const Gm__Wire__Packet *packet, struct gm_conn_packet *in)
{
	struct conn_hello_call *call = (struct conn_hello_call *)base;
	struct gm_conn_hello *hello = &call->hello;

	if (packet->body_case != GM__WIRE__PACKET__BODY_HELLO_REPLY)
		return -EPROTO;
	const Gm__Wire__HelloReply *reply = packet->hello_reply;
	if (!call->answered) {
		/* Further packets bring more leases, and repeat everything else. */
		call->answered = true;
		call->major = reply->major;
		call->minor = reply->minor;
		if (reply->major != GM_WIRE_MAJOR)
			return 0; /* the other fields may mean anything */
		if (reply->token.len != GM_TOKEN_BYTES || packet->fds != FDS || !reply->session)
			return -EPROTO;
		call->fds_lost = in->fds.n < FDS;
		hello->wakeup = gm_fdlist_steal(&in->fds, FD_WAKEUP);
		hello->daemon_page = gm_fdlist_steal(&in->fds, FD_DAEMON_PAGE);
		hello->client_page = gm_fdlist_steal(&in->fds, FD_CLIENT_PAGE);
		hello->generation = packet->generation;
		hello->session = reply->session;
		memcpy(hello->token, reply->token.data, GM_TOKEN_BYTES);
		hello->decay_ms = reply->decay_ms;
		hello->wait_ms = reply->wait_ms;
		hello->track = (enum gm_track)reply->track;
		hello->resumed = reply->resumed;
	}

	if (reply->n_leases) {
		size_t n = hello->n_leases + reply->n_leases;
		uint64_t *more = realloc(hello->leases, n * sizeof(*more));
		if (!more)
			return -ENOMEM;
		memcpy(more + hello->n_leases, reply->leases, reply->n_leases * sizeof(*more));
		hello->leases = more;
		hello->n_leases = n;
	}
	return 0;
}

static void conn_hello_call_free(struct gm_conn_request *base)
{
	struct conn_hello_call *call = (struct conn_hello_call *)base;
	if (!call)
		return;
	gm_conn_hello_deinit(&call->hello);
	free(call);
}

static const struct gm_conn_request_ops hello_ops = {
	.take = conn_hello_take, .late = conn_hello_call_free};

static gpumem_status conn_hello_connect_failed(const struct gm_conn_hello_ask *ask, int r)
{
	char other[GM_PATH_OTHER_BYTES];
	struct gm_reach reach;
	gpumem_status status;

	gm_reach_explain(ask->path, r, &reach);
	switch (-reach.error) {
	case ENOENT:
	case ECONNREFUSED:
	case ENOTDIR:
	case ENOTSOCK:
		status = GPUMEM_E_DISCONNECTED;
		break;
	case EPROTOTYPE:
		status = GPUMEM_E_PROTOCOL;
		break;
	default:
		status = gm_status_from_errno(reach.error);
	}
	/* The sentence about an absence names the path. */
	if (ask->session)
		return gm_error(status, "%s; %s", reach.cause, reach.remedy);
	return gm_error(status, "cannot reach gpumemd at %s (%s): %s%s; %s", ask->path, ask->why,
		reach.cause, gm_path_other(ask->why, other), reach.remedy);
}

static gpumem_status conn_hello_say(const struct gm_conn_hello_ask *ask, struct gm_conn *conn,
	struct conn_hello_call **ret_call, bool *ret_refused)
{
	struct conn_hello_call *call = calloc(1, sizeof(*call));
	if (!call)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a session");
	call->call.ops = &hello_ops;
	conn_hello_init(&call->hello);

	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	hello.major = GM_WIRE_MAJOR;
	hello.minor = GM_WIRE_MINOR;
	hello.name = (char *)ask->name;
	hello.run = (char *)ask->run;
	hello.run_max = ask->run_max;
	hello.run_priority = ask->run_priority;
	hello.run_name = (char *)ask->run_name;
	if (ask->session) {
		hello.session = ask->session;
		hello.token.data = (uint8_t *)ask->token;
		hello.token.len = GM_TOKEN_BYTES;
		hello.held = ask->held;
	}

	Gm__Wire__Packet packet = GM_WIRE_PACKET(HELLO, hello, &hello);

	int r = gm_conn_call(conn, &packet, &call->call, ask->deadline_ns);
	if (r == -ETIMEDOUT)
		return gm_error(GPUMEM_E_TIMEOUT, "gpumemd at %s (%s) did not answer the hello; %s",
			ask->path, ask->why, gm_reach_silence(ask->path));
	gpumem_status status;
	if (r < 0 && r != -EPIPE) {
		status = gm_error(gm_status_from_errno(r), "cannot send to gpumemd at %s (%s): %s",
			ask->path, ask->why, strerror(-r));
	} else if (r < 0) {
		char reason[GM_ERROR_BYTES];
		status = gm_conn_reason(conn, reason);
		if (status == GPUMEM_E_DISCONNECTED)
			gm_error(status,
				"gpumemd at %s (%s) ended the connection before it answered the "
				"hello: %.200s",
				ask->path, ask->why, reason);
		else
			gm_error(status, "%s", reason);
	} else if (call->call.status) {
		*ret_refused = true;
		status = gm_error(call->call.status, "%s", call->call.detail);
	} else if (call->answered && call->major != GM_WIRE_MAJOR) {
		status = gm_error(GPUMEM_E_VERSION,
			"gpumemd at %s speaks protocol %u.%u, this library %d.%d: install matching "
			"versions",
			ask->path, call->major, call->minor, GM_WIRE_MAJOR, GM_WIRE_MINOR);
	} else if (call->call.result == -ENOMEM) {
		status = gm_error(GPUMEM_E_HOST_MEMORY, "no memory for the session's leases");
	} else if (call->call.result < 0 || !call->answered) {
		status = gm_error(GPUMEM_E_PROTOCOL,
			"the answer from %s (%s) is not that of gpumemd: another program may "
			"listen there",
			ask->path, ask->why);
	} else if (call->fds_lost) {
		status = gm_error(GPUMEM_E_SYSTEM,
			"this process has reached its limit of open files: raise it (ulimit -n)");
	} else {
		*ret_call = call;
		return GPUMEM_OK;
	}

	conn_hello_call_free(&call->call);
	return status;
}

gpumem_status gm_conn_hello(
	const struct gm_conn_hello_ask *ask, struct gm_conn_hello *ret_hello, bool *ret_refused)
{
	*ret_refused = false;

	uint64_t now = gm_clock_ns();
	uint64_t left_ns = ask->deadline_ns > now ? ask->deadline_ns - now : 0;
	/* Nothing can end the wait for a place in the listener's queue, so a session that is resumed
	 * rather tries again. */
	if (ask->session)
		left_ns = gm_u64_min(left_ns, GM_NS_PER_S);
	int socket;
	int r = gm_seqpacket_connect(ask->path, left_ns / GM_NS_PER_MS, &socket);
	if (r < 0)
		return conn_hello_connect_failed(ask, r);

	struct gm_conn *conn;
	r = gm_conn_new(socket, ask->ids, ask->wake, ask->ctx, &conn);
	if (r < 0)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a connection");

	if (ask->connected)
		ask->connected(ask->ctx, conn);
	struct conn_hello_call *call;
	gpumem_status status = conn_hello_say(ask, conn, &call, ret_refused);
	if (status) {
		gm_conn_unref(conn);
		return status;
	}

	*ret_hello = call->hello;
	ret_hello->conn = conn;
	conn_hello_init(&call->hello);
	conn_hello_call_free(&call->call);
	return GPUMEM_OK;
}
