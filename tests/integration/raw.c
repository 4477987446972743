/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The raw peer: the wire by hand, for tests that say what no library would. Here are connections and
 * packets; raw_lease.c has what a client asks for, raw_figures.c what an observer is told.
 *
 * Promises to show exactly what came, fds included, and to wait for it without a fixed time. Must
 * never hide a wrong answer by repairing it.
 */

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/raw.h"

/* Each connection has ids of its own: none comes twice when a session is resumed. */
static _Atomic uint64_t connections;

int gm_raw_connect(struct gm_raw *raw, const char *path)
{
	*raw = (struct gm_raw){.socket = -1,
		.wakeup = -1,
		.daemon_page = -1,
		.client_page = -1,
		.next_id = (connections++ << 24) + 1};
	gm_wire_arena_init(&raw->arena);
	gm_fdlist_init(&raw->fds);
	raw->bytes = malloc(GM_BOUND_PACKET_BYTES);
	GM_REQUIRE(raw->bytes);
	int r = gm_seqpacket_connect(path, 10000, &raw->socket);
	if (r < 0)
		gm_raw_close(raw);
	return r;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void gm_raw_close(struct gm_raw *raw)
{
	close_fd(&raw->socket);
	gm_hearing_end(&raw->hearing);
	close_fd(&raw->wakeup);
	close_fd(&raw->daemon_page);
	close_fd(&raw->client_page);
	gm_fdlist_deinit(&raw->fds);
	gm_fdlist_init(&raw->fds);
	gm_wire_arena_deinit(&raw->arena);
	gm_wire_arena_init(&raw->arena);
	free(raw->bytes);
	raw->bytes = NULL;
	raw->packet = NULL;
}

void gm_raw_hang_up(struct gm_raw *raw)
{
	raw->client_page = -1; /* stays open until the process ends */
	gm_raw_close(raw);
}

int gm_raw_send_bytes(struct gm_raw *raw, const void *bytes, size_t n, const int *fds, size_t n_fds)
{
	for (;;) {
		int r = gm_seqpacket_send(raw->socket, bytes, n, fds, n_fds);
		if (r != -EAGAIN)
			return r;
		struct pollfd fd = {.fd = raw->socket, .events = POLLOUT};
		if (poll(&fd, 1, GM_PATIENCE_MS) != 1)
			GM_FAIL("the daemon does not read");
	}
}

uint64_t gm_raw_send(struct gm_raw *raw, const Gm__Wire__Packet *packet)
{
	Gm__Wire__Packet p = *packet;
	if (p.id == 0 && p.body_case != GM__WIRE__PACKET__BODY_ACK)
		p.id = raw->next_id++;
	if (!raw->mute)
		p.fds_seen = raw->fds_seen;
	uint8_t bytes[4096];
	uint8_t *room = bytes;
	size_t size = sizeof(bytes), n;
	if (gm__wire__packet__get_packed_size(&p) > size) {
		size = GM_BOUND_PACKET_BYTES;
		room = malloc(size);
		GM_REQUIRE(room);
	}
	GM_REQUIRE(gm_wire_pack(&p, room, size, &n) == 0);
	int r = gm_raw_send_bytes(raw, room, n, NULL, 0);
	if (r < 0 && r != -EPIPE && r != -ECONNRESET)
		GM_FAIL("send: %s", strerror(-r));
	if (room != bytes)
		free(room);
	return p.id;
}

bool gm_raw_readable(int socket)
{
	struct pollfd fd = {.fd = socket, .events = POLLIN};
	return poll(&fd, 1, 0) == 1;
}

bool gm_raw_receive(struct gm_raw *raw)
{
	struct gm_conn_packet in;
	int r;
	raw->packet = NULL;
	for (;;) {
		struct pollfd fd = {.fd = raw->socket, .events = POLLIN};
		if (poll(&fd, 1, GM_PATIENCE_MS) != 1)
			GM_FAIL("the daemon said nothing");
		r = gm_seqpacket_receive(raw->socket, raw->bytes, GM_BOUND_PACKET_BYTES, &in);
		if (r != -EAGAIN)
			break;
	}
	if (r == -EPIPE || r == -ECONNRESET)
		return false;
	if (r < 0)
		GM_FAIL("receive: %s", strerror(-r));
	GM_REQUIRE(!in.data_cut);
	gm_fdlist_deinit(&raw->fds);
	raw->fds = in.fds;
	raw->n_fds_got = in.fds.n;
	raw->fds_cut = in.fds_cut;
	GM_REQUIRE(gm_wire_unpack(&raw->arena, raw->bytes, in.n, &raw->packet) == 0);
	GM_REQUIRE(raw->packet->fds >= in.fds.n);
	raw->fds_seen += raw->packet->fds;
	raw->sequence = raw->packet->sequence;
	raw->generation = raw->packet->generation;
	return true;
}

bool gm_raw_has_event(const struct gm_raw *raw)
{
	return gm_hearing_waits(&raw->hearing);
}

bool gm_raw_receive_event(struct gm_raw *raw)
{
	int r = gm_hearing_next(&raw->hearing, raw->socket, GM_PATIENCE_MS, &raw->event);
	if (r < 0)
		GM_FAIL("the daemon rang no wakeup");
	if (r == 0)
		return false;
	raw->sequence = raw->event.sequence;
	return true;
}

static gpumem_status outcome(const struct gm_raw *raw)
{
	if (!raw->packet)
		return GPUMEM_E_DISCONNECTED;
	if (raw->packet->body_case == GM__WIRE__PACKET__BODY_FAILURE) {
		GM_REQUIRE(raw->packet->failure->status != GPUMEM_OK);
		/* A refusal says cause and remedy. */
		GM_REQUIRE(strlen(raw->packet->failure->detail) > 0);
		return (gpumem_status)raw->packet->failure->status;
	}
	return GPUMEM_OK;
}

const char *gm_raw_detail(const struct gm_raw *raw)
{
	GM_REQUIRE(raw->packet && raw->packet->body_case == GM__WIRE__PACKET__BODY_FAILURE);
	return raw->packet->failure->detail;
}

gpumem_status gm_raw_call(struct gm_raw *raw, const Gm__Wire__Packet *packet)
{
	/* The rest of a list, whose first packet was enough. */
	while (raw->packet && raw->packet->more)
		GM_REQUIRE(gm_raw_receive(raw));
	uint64_t id = gm_raw_send(raw, packet);
	/* A connection that is refused as a whole is told so by a Failure without an id. */
	if (gm_raw_receive(raw) && raw->packet->id != id &&
		!(raw->packet->id == 0 && raw->packet->body_case == GM__WIRE__PACKET__BODY_FAILURE))
		GM_FAIL("asked as %llu, answered as %llu", (unsigned long long)id,
			(unsigned long long)raw->packet->id);
	return outcome(raw);
}

size_t gm_raw_drain(struct gm_raw *raw, gpumem_status *ret_last_failure)
{
	size_t n = 0;
	*ret_last_failure = GPUMEM_OK;
	while (gm_raw_receive(raw)) {
		n++;
		if (raw->packet->body_case == GM__WIRE__PACKET__BODY_FAILURE)
			*ret_last_failure = (gpumem_status)raw->packet->failure->status;
	}
	return n;
}

gpumem_status gm_raw_hello(struct gm_raw *raw, const char *path, const Gm__Wire__Hello *hello)
{
	int r = gm_raw_connect(raw, path);
	if (r < 0)
		GM_FAIL("connect to %s: %s", path, strerror(-r));
	gpumem_status status =
		gm_raw_call(raw, GM_RAW_PACKET(HELLO, hello, (Gm__Wire__Hello *)(uintptr_t)hello));
	if (status != GPUMEM_OK)
		return status;
	GM_REQUIRE(raw->packet->body_case == GM__WIRE__PACKET__BODY_HELLO_REPLY);
	const Gm__Wire__HelloReply *reply = raw->packet->hello_reply;
	raw->session = reply->session;
	raw->resumed = reply->resumed;
	GM_REQUIRE_EQ(reply->major, GM_WIRE_MAJOR);
	if (hello->observer) {
		GM_REQUIRE_EQ(raw->packet->fds, 0);
		return status;
	}
	GM_REQUIRE_EQ(raw->packet->fds, 3);
	GM_REQUIRE(reply->session != 0);
	GM_REQUIRE_EQ(reply->token.len, GM_TOKEN_BYTES);
	memcpy(raw->token, reply->token.data, GM_TOKEN_BYTES);
	/* The kernel may let the sender of a Unix socket wait, whatever its flags. */
	for (size_t i = 0; i < raw->fds.n; i++) {
		struct stat st;
		GM_REQUIRE(fstat(raw->fds.fds[i], &st) == 0);
		GM_REQUIRE(!S_ISSOCK(st.st_mode));
	}
	raw->wakeup = gm_fdlist_steal(&raw->fds, 0);
	raw->daemon_page = gm_fdlist_steal(&raw->fds, 1);
	raw->client_page = gm_fdlist_steal(&raw->fds, 2);
	if (raw->daemon_page >= 0)
		GM_REQUIRE(gm_hearing_begin(&raw->hearing, raw->wakeup, raw->daemon_page));
	return status;
}

gpumem_status gm_raw_resume(
	struct gm_raw *ret, const struct gm_daemon *daemon, const struct gm_raw *before)
{
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	uint8_t token[GM_TOKEN_BYTES];

	memcpy(token, before->token, sizeof(token));
	hello.major = GM_WIRE_MAJOR;
	hello.minor = GM_WIRE_MINOR;
	hello.name = (char *)"raw";
	hello.session = before->session;
	hello.token = (ProtobufCBinaryData){.data = token, .len = sizeof(token)};
	return gm_raw_hello(ret, daemon->socket, &hello);
}

/* The last hello was refused. */
static void fail_hello(const struct gm_raw *raw, gpumem_status status)
{
	GM_FAIL("hello: status %d: %s", (int)status, raw->packet ? gm_raw_detail(raw) : "hung up");
}

void gm_raw_come_back(struct gm_raw *raw, const struct gm_daemon *daemon)
{
	int page = raw->client_page;

	gm_raw_hang_up(raw);
	gpumem_status status = gm_raw_resume(raw, daemon, raw);
	if (status != GPUMEM_OK)
		fail_hello(raw, status);
	GM_REQUIRE(raw->resumed);
	close_fd(&page);
}

static void hello_must_do(struct gm_raw *raw, const struct gm_daemon *daemon, bool observer)
{
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	hello.major = GM_WIRE_MAJOR;
	hello.minor = GM_WIRE_MINOR;
	hello.name = (char *)(observer ? "observer" : "raw");
	hello.observer = observer;
	gpumem_status status = gm_raw_hello(raw, daemon->socket, &hello);
	if (status != GPUMEM_OK)
		fail_hello(raw, status);
}

void gm_raw_join(struct gm_raw *raw, const struct gm_daemon *daemon)
{
	hello_must_do(raw, daemon, false);
}

void gm_raw_observe(struct gm_raw *raw, const struct gm_daemon *daemon)
{
	hello_must_do(raw, daemon, true);
}
