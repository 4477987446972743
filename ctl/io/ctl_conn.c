/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl's end of the connection. One request is in flight at a time, so the next packet with
 * the request's id is its answer. The daemon's sequence numbers must grow from packet to packet.
 * Packets are distrusted like any input: the arena bounds their size, and anything but the expected
 * answer ends the conversation with a message. Waits for no packet longer than the timeout.
 */

#include "ctl/io/ctl_conn.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/system/path.h"
#include "common/system/reach.h"
#include "common/wire/seqpacket.h"
#include "common/text/units.h"

struct gm_ctl_conn {
	int socket;
	int timeout_ms; /* -1: none */
	char path[GM_PATH_BYTES];
	uint64_t last_id;
	bool heard; /* a packet has arrived, so last_sequence is valid */
	uint64_t last_sequence;
	struct gm_wire_arena arena;
	char *daemon_version;
	uint32_t major, minor;
	uint8_t bytes[GM_BOUND_PACKET_BYTES];
};

gpumem_status gm_trouble_set(
	struct gm_trouble *trouble, gpumem_status status, const char *format, ...)
{
	va_list list;

	trouble->status = status;
	trouble->hint[0] = '\0';
	va_start(list, format);
	int n = vsnprintf(trouble->text, sizeof(trouble->text), format, list);
	va_end(list);
	if (n >= (int)sizeof(trouble->text))
		gm_text_mend(trouble->text);
	return status;
}

/* The daemon could not be reached: says why, and what to do about it. */
static gpumem_status conn_not_reached(
	struct gm_trouble *trouble, const char *path, const char *why, int error)
{
	char other[GM_PATH_OTHER_BYTES];
	struct gm_reach reach;

	gm_reach_explain(path, error, &reach);
	gm_trouble_set(trouble,
		reach.error == -EACCES || reach.error == -EPERM ? GPUMEM_E_DENIED
								: GPUMEM_E_DISCONNECTED,
		"cannot reach gpumemd at %s (%s): %s%s", path, why, reach.cause,
		gm_path_other(why, other));
	snprintf(trouble->hint, sizeof(trouble->hint), "%s", reach.remedy);
	return trouble->status;
}

static gpumem_status conn_protocol_error(
	struct gm_trouble *trouble, const struct gm_ctl_conn *conn, const char *what)
{
	return gm_trouble_set(trouble, GPUMEM_E_PROTOCOL,
		"the program at %s does not speak the protocol of gpumemd: %s", conn->path, what);
}

static gpumem_status conn_went_away(struct gm_trouble *trouble, const struct gm_ctl_conn *conn)
{
	return gm_trouble_set(trouble, GPUMEM_E_DISCONNECTED,
		"gpumemd at %s closed the connection before it answered: it ends, or its log says why",
		conn->path);
}

/*
 * Waits until the socket is ready. Returns 0, -ETIMEDOUT or another errno. A hang-up counts as
 * ready, because the call that follows reports it.
 */
static int conn_wait_for(struct gm_ctl_conn *conn, short events)
{
	uint64_t end_ns = conn->timeout_ms < 0
				  ? UINT64_MAX
				  : gm_clock_ns() + (uint64_t)conn->timeout_ms * GM_NS_PER_MS;

	for (;;) {
		struct pollfd pollfd = {.fd = conn->socket, .events = events};

		int n = poll(&pollfd, 1, gm_clock_poll_ms(end_ns));
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		/* One wait is an hour at most. */
		if (n == 0 && gm_clock_ns() >= end_ns)
			return -ETIMEDOUT;
	}
}

static gpumem_status conn_broken(struct gm_trouble *trouble, struct gm_ctl_conn *conn, int error)
{
	char text[GM_UNITS_TEXT];

	switch (-error) {
	case EPIPE:
	case ECONNRESET:
		return conn_went_away(trouble, conn);
	case ETIMEDOUT:
		return gm_trouble_set(trouble, GPUMEM_E_TIMEOUT,
			"gpumemd at %s did not answer within %s; %s (to wait longer, use --timeout)",
			conn->path, gm_format_duration((uint64_t)conn->timeout_ms * 1000000, text),
			gm_reach_silence(conn->path));
	case EBADMSG:
		return conn_protocol_error(trouble, conn, "it sent a packet that cannot be read");
	case E2BIG:
		return conn_protocol_error(trouble, conn, "it sent a packet that is too long");
	case ENOMEM:
		return gm_trouble_set(trouble, GPUMEM_E_HOST_MEMORY,
			"out of memory while reading the answer of gpumemd");
	}
	return gm_trouble_set(trouble, GPUMEM_E_SYSTEM,
		"the connection to gpumemd at %s failed: %s", conn->path, strerror(-error));
}

static int conn_send_packet(struct gm_ctl_conn *conn, const Gm__Wire__Packet *packet)
{
	size_t n;
	int r = gm_wire_pack(packet, conn->bytes, sizeof(conn->bytes), &n);
	if (r < 0)
		return r;

	for (;;) {
		r = conn_wait_for(conn, POLLOUT);
		if (r == 0)
			r = gm_seqpacket_send(conn->socket, conn->bytes, n, NULL, 0);
		if (r != -EAGAIN)
			return r;
	}
}

static int conn_receive_packet(struct gm_ctl_conn *conn, Gm__Wire__Packet **ret_packet)
{
	struct gm_conn_packet in;
	int r;

	do {
		r = conn_wait_for(conn, POLLIN);
		if (r == 0)
			r = gm_seqpacket_receive(
				conn->socket, conn->bytes, sizeof(conn->bytes), &in);
	} while (r == -EAGAIN);
	if (r < 0)
		return r;

	/* An observer needs no file descriptors. */
	gm_fdlist_deinit(&in.fds);
	if (in.data_cut)
		return -E2BIG;
	return gm_wire_unpack(&conn->arena, conn->bytes, in.n, ret_packet);
}

/* Waits for the next packet, which must have a higher sequence number than the last. */
static gpumem_status conn_next_packet(
	struct gm_ctl_conn *conn, struct gm_trouble *trouble, Gm__Wire__Packet **ret_packet)
{
	Gm__Wire__Packet *packet;

	int r = conn_receive_packet(conn, &packet);
	if (r < 0)
		return conn_broken(trouble, conn, r);

	gm_log(GM_LOG_DEBUG, "packet: id %llu, sequence %llu, body %d%s",
		(unsigned long long)packet->id, (unsigned long long)packet->sequence,
		(int)packet->body_case, packet->more ? ", more follows" : "");
	if (conn->heard && packet->sequence <= conn->last_sequence)
		return conn_protocol_error(trouble, conn, "its packets arrive out of order");
	conn->heard = true;
	conn->last_sequence = packet->sequence;
	*ret_packet = packet;
	return GPUMEM_OK;
}

static gpumem_status conn_failure(struct gm_trouble *trouble, const Gm__Wire__Failure *body)
{
	gpumem_status status = (gpumem_status)body->status;

	/* Even a failure with the status "ok" is not the answer. */
	if (status == GPUMEM_OK)
		status = GPUMEM_E_PROTOCOL;
	if (body->detail && *body->detail)
		return gm_trouble_set(trouble, status, "%s", body->detail);
	return gm_trouble_set(trouble, status, "%s", gm_status_text(status));
}

gpumem_status gm_ctl_conn_ask(struct gm_ctl_conn *conn, Gm__Wire__Packet *request,
	Gm__Wire__Packet__BodyCase expected, gm_ctl_conn_answer_fn fn, void *user,
	struct gm_trouble *trouble)
{
	Gm__Wire__Packet *packet;

	request->id = ++conn->last_id;
	int r = conn_send_packet(conn, request);
	/* A daemon that closed the connection may have sent the reason before: read on. */
	if (r < 0 && r != -EPIPE && r != -ECONNRESET)
		return conn_broken(trouble, conn, r);

	for (;;) {
		gpumem_status status = conn_next_packet(conn, trouble, &packet);
		if (status != GPUMEM_OK)
			return status;

		if (packet->body_case == GM__WIRE__PACKET__BODY_FAILURE &&
			(packet->id == request->id || packet->id == 0))
			return conn_failure(trouble, packet->failure);
		if (packet->id == 0)
			continue; /* an event */
		if (packet->id != request->id)
			return conn_protocol_error(
				trouble, conn, "it answered a request that was never sent");
		if (packet->body_case != expected)
			return conn_protocol_error(
				trouble, conn, "it sent an answer of the wrong kind");

		if (fn)
			fn(user, packet);
		if (!packet->more)
			return GPUMEM_OK;
	}
}

/* The questions that have no fields, and their answers. */
static const struct conn_question {
	Gm__Wire__Packet__BodyCase question, answer;
	const ProtobufCMessageDescriptor *descriptor;
} questions[] = {
#define QUESTION(NAME, name, ANSWER) \
	{ \
		GM__WIRE__PACKET__BODY_##NAME, GM__WIRE__PACKET__BODY_##ANSWER, \
			&gm__wire__##name##__descriptor \
	}
	QUESTION(GET_STATUS, get_status, STATUS),
	QUESTION(GET_DEVICES, get_devices, DEVICES),
	QUESTION(GET_CLIENTS, get_clients, CLIENTS),
	QUESTION(GET_NAMES, get_names, NAMES),
	QUESTION(GET_POOLS, get_pools, POOLS),
	QUESTION(GET_PROCESSES, get_processes, PROCESSES),
	QUESTION(GET_QUEUE, get_queue, QUEUE),
	QUESTION(GET_LIMITS, get_limits, LIMITS),
	QUESTION(GET_CONFIG, get_config, CONFIG),
#undef QUESTION
};

gpumem_status gm_ctl_conn_get(struct gm_ctl_conn *conn, Gm__Wire__Packet__BodyCase question,
	gm_ctl_conn_answer_fn fn, void *user, struct gm_trouble *trouble)
{
	const struct conn_question *q = questions;

	while (q->question != question)
		q++;
	assert(q->descriptor->n_fields == 0);
	ProtobufCMessage body = PROTOBUF_C_MESSAGE_INIT(q->descriptor);
	Gm__Wire__Packet request = GM__WIRE__PACKET__INIT;
	request.body_case = question;
	request.hello = (void *)&body; /* every member of the union is a pointer to a message */
	return gm_ctl_conn_ask(conn, &request, q->answer, fn, user, trouble);
}

gpumem_status gm_ctl_conn_watch(
	struct gm_ctl_conn *conn, gm_ctl_conn_event_fn fn, void *user, struct gm_trouble *trouble)
{
	Gm__Wire__Watch body = GM__WIRE__WATCH__INIT;
	Gm__Wire__Packet request = GM_WIRE_PACKET(WATCH, watch, &body), *packet;

	gpumem_status status =
		gm_ctl_conn_ask(conn, &request, GM__WIRE__PACKET__BODY_DONE, NULL, NULL, trouble);
	if (status != GPUMEM_OK)
		return status;

	conn->timeout_ms = -1;
	for (;;) {
		status = conn_next_packet(conn, trouble, &packet);
		if (status != GPUMEM_OK)
			return status;
		if (packet->body_case == GM__WIRE__PACKET__BODY_FAILURE)
			return conn_failure(trouble, packet->failure);
		if (packet->id == 0 && !fn(user, packet))
			return GPUMEM_OK;
	}
}

static void conn_take_hello(void *user, const Gm__Wire__Packet *packet)
{
	struct gm_ctl_conn *conn = user;

	free(conn->daemon_version);
	conn->daemon_version = strdup(packet->hello_reply->version);
	conn->major = packet->hello_reply->major;
	conn->minor = packet->hello_reply->minor;
}

static gpumem_status conn_say_hello(struct gm_ctl_conn *conn, struct gm_trouble *trouble)
{
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(HELLO, hello, &hello);

	hello.major = GM_WIRE_MAJOR;
	hello.minor = GM_WIRE_MINOR;
	hello.name = (char *)"gpumemctl";
	hello.observer = true;

	gpumem_status status = gm_ctl_conn_ask(
		conn, &packet, GM__WIRE__PACKET__BODY_HELLO_REPLY, conn_take_hello, conn, trouble);
	if (status != GPUMEM_OK)
		return status;

	if (!conn->daemon_version)
		return conn_broken(trouble, conn, -ENOMEM);
	if (conn->major != GM_WIRE_MAJOR)
		return gm_trouble_set(trouble, GPUMEM_E_VERSION,
			"gpumemd %s at %s speaks protocol %u.%u, this gpumemctl speaks %d.%d; use the gpumemctl that came with the daemon",
			conn->daemon_version, conn->path, conn->major, conn->minor, GM_WIRE_MAJOR,
			GM_WIRE_MINOR);
	return GPUMEM_OK;
}

/*
 * Connects to the administrators' socket beside the one at conn->path. Returns false if this user
 * may not, or there is none. It must belong to the same user: in a folder where anybody can make
 * files, somebody else could have put it there.
 */
static bool conn_reach_admin_socket(struct gm_ctl_conn *conn)
{
	char admin[GM_PATH_BYTES];
	struct stat all, admins;

	return gm_path_admin_socket(conn->path, admin) == 0 && lstat(conn->path, &all) == 0 &&
	       lstat(admin, &admins) == 0 && all.st_uid == admins.st_uid &&
	       gm_seqpacket_connect(admin, (uint64_t)conn->timeout_ms, &conn->socket) == 0;
}

/* Connects to the daemon at conn->path and says hello: over the administrators' socket if the daemon
 * has one and lets this user in, otherwise over the socket for all. */
static gpumem_status conn_reach(
	struct gm_ctl_conn *conn, const char *why, struct gm_trouble *trouble)
{
	if (conn_reach_admin_socket(conn)) {
		gpumem_status status = conn_say_hello(conn, trouble);
		if (status != GPUMEM_E_DENIED && status != GPUMEM_E_LIMIT)
			return status;
		close(conn->socket);
		conn->socket = -1;
		conn->heard = false;
	}

	int r = gm_seqpacket_connect(conn->path, (uint64_t)conn->timeout_ms, &conn->socket);
	return r < 0 ? conn_not_reached(trouble, conn->path, why, r)
		     : conn_say_hello(conn, trouble);
}

gpumem_status gm_ctl_conn_open(const char *socket, uint64_t timeout_ms, struct gm_trouble *trouble,
	struct gm_ctl_conn **ret_conn)
{
	const char *why = "--socket";
	struct gm_ctl_conn *conn = calloc(1, sizeof(*conn));
	gpumem_status status;
	int r = 0;

	if (!conn)
		return gm_trouble_set(trouble, GPUMEM_E_HOST_MEMORY, "out of memory");
	conn->socket = -1;
	conn->timeout_ms = timeout_ms > INT32_MAX ? INT32_MAX : (int)timeout_ms;
	gm_wire_arena_init(&conn->arena);

	if (!socket)
		r = gm_path_client_socket(conn->path, &why);
	else if (strlen(socket) >= sizeof(conn->path))
		r = -ENAMETOOLONG;
	else
		strcpy(conn->path, socket);

	if (r < 0)
		status = conn_not_reached(trouble, socket ? socket : "its socket", why, r);
	else {
		gm_log(GM_LOG_DEBUG, "connecting to %s (%s)", conn->path, why);
		status = conn_reach(conn, why, trouble);
	}

	if (status != GPUMEM_OK) {
		gm_ctl_conn_free(conn);
		return status;
	}
	*ret_conn = conn;
	return GPUMEM_OK;
}

void gm_ctl_conn_free(struct gm_ctl_conn *conn)
{
	if (!conn)
		return;
	if (conn->socket >= 0)
		close(conn->socket);
	gm_wire_arena_deinit(&conn->arena);
	free(conn->daemon_version);
	free(conn);
}

const char *gm_ctl_conn_path(const struct gm_ctl_conn *conn)
{
	return conn->path;
}

const char *gm_ctl_conn_daemon_version(const struct gm_ctl_conn *conn)
{
	return conn->daemon_version;
}

uint32_t gm_ctl_conn_daemon_major(const struct gm_ctl_conn *conn)
{
	return conn->major;
}

uint32_t gm_ctl_conn_daemon_minor(const struct gm_ctl_conn *conn)
{
	return conn->minor;
}
