/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hello, goodbye and the list of devices. The answer to a hello carries three fds (the wakeup,
 * the daemon's page, the client's page), so it may have to wait for room like any packet
 * with fds. It owns the fds until it is sent. A resume token is written into packets and nowhere
 * else.
 */
#include "autoconf.h"

#include "daemon/serve/handlers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/arith.h"
#include "common/clock.h"
#include "common/step.h"
#include "common/text/uid_name.h"
#include "common/text/units.h"
#include "daemon/serve/answer.h"

/* A packed lease id takes at most 10 bytes. Further packets take the rest of a long list. */
#define GM_CONN_HELLO_LEASES_PER_PACKET 4096

struct hello_answer {
	struct gm_answer head;
	struct gm_client_welcome welcome;
	uint64_t n_leases, at;
	uint64_t leases[];
};

static void serve_hello_free(struct gm_stream *stream)
{
	struct hello_answer *answer = (struct hello_answer *)stream;

	gm_client_welcome_deinit(&answer->welcome);
	explicit_bzero(answer->welcome.token, sizeof(answer->welcome.token));
	free(answer);
}

static void serve_fill_hello(const struct gm_serve *serve, Gm__Wire__HelloReply *reply)
{
	reply->major = GM_WIRE_MAJOR;
	reply->minor = GM_WIRE_MINOR;
	reply->version = (char *)PACKAGE_VERSION;
	reply->track = (Gm__Wire__Track)serve->config->track;
	reply->decay_ms = serve->config->decay_ns / GM_NS_PER_MS;
	for (uint32_t i = 0; i < serve->n_devices; i++) {
		struct gm_device_figures figures;
		gm_core_device_figures(serve->core, i, &figures);
		uint64_t wait_ms = (figures.policy.wait_ns ? figures.policy.wait_ns : GM_WAIT_NS) /
				   GM_NS_PER_MS;
		if (figures.policy.oom != GM_POLICY_OOM_REFUSE && wait_ms > reply->wait_ms)
			reply->wait_ms = wait_ms;
	}
}

static int serve_hello_next(struct gm_stream *stream, struct gm_peer *peer)
{
	struct hello_answer *answer = (struct hello_answer *)stream;
	struct gm_client *client = gm_peer_user(peer);
	const int fds[] = {
		answer->welcome.wakeup, answer->welcome.daemon_page, answer->welcome.client_page};
	uint64_t left = answer->n_leases - answer->at;
	Gm__Wire__HelloReply reply = GM__WIRE__HELLO_REPLY__INIT;

	if (!client)
		return -EPIPE;
	serve_fill_hello(answer->head.serve, &reply);
	reply.session = client->id;
	reply.token.data = answer->welcome.token;
	reply.token.len = sizeof(answer->welcome.token);
	reply.resumed = answer->welcome.resumed;
	reply.n_leases = gm_u64_min(left, GM_CONN_HELLO_LEASES_PER_PACKET);
	reply.leases = answer->leases + answer->at;
	int r = gm_answer_emit_fds(stream, peer, left > reply.n_leases,
		GM__WIRE__PACKET__BODY_HELLO_REPLY, &reply, fds, answer->at ? 0 : 3);
	if (r >= 0)
		answer->at += reply.n_leases;
	GM_STEP("hello: answered");
	return r;
}

static int serve_answer_hello(struct gm_serve *serve, struct gm_peer *peer, uint64_t id,
	struct gm_client *client, const struct gm_client_welcome *welcome)
{
	uint64_t n = welcome->resumed ? gm_session_lease_count(client->session) : 0;
	struct hello_answer *answer = gm_answer_new(
		serve, peer, id, serve_hello_next, sizeof(*answer) + n * sizeof(uint64_t));
	struct gm_lease *lease = NULL;

	if (!answer)
		return -ENOMEM;
	answer->head.stream.free = serve_hello_free;
	answer->welcome = *welcome;
	while (n && (lease = gm_session_next_lease(client->session, lease))) {
		struct gm_lease_info info;
		gm_lease_info(lease, client->session, &info);
		/* The client may not know yet that it has this one: see "Sharing chunks" in
		 * doc/protocol.md. */
		if (info.piece)
			continue;
		answer->leases[answer->n_leases++] = info.id;
	}
	gm_peer_start(peer, &answer->head.stream);
	return 0;
}

static void serve_refuse_join(struct gm_peer *peer, uint64_t id, int error)
{
	char detail[GM_DETAIL_BYTES], user[GM_UID_NAME_PAYER_TEXT];
	const struct gm_identity *identity = gm_peer_identity(peer);

	gm_uid_name_say_payer(identity->payer_uid, identity->uid, user);
	switch (error) {
	case -EACCES:
		gm_peer_refuse(peer, id, GPUMEM_E_DENIED,
			"the session to resume belongs to another process, or the token is wrong");
		break;
	case -EUSERS:
		snprintf(detail, sizeof(detail),
			"%s has as many sessions as allowed, counting those that its processes left "
			"without a goodbye; end such a process, or raise connections_per_uid",
			user);
		gm_peer_refuse(peer, id, GPUMEM_E_LIMIT, detail);
		break;
	case -ENOSPC:
		snprintf(detail, sizeof(detail),
			"%s has as many sessions as it leaves to others; the most is %d for all; "
			"end some of its clients",
			user, GM_BOUND_SESSIONS);
		gm_peer_refuse(peer, id, GPUMEM_E_LIMIT, detail);
		break;
	case -EMLINK:
		gm_text_say(detail,
			"%s has clients, or has left memory, in too many units, containers and "
			"groups; the most is %d, and %d for all; start the client where the user has one",
			user, GM_BOUND_ORPHANS_PER_UID, GM_BOUND_ORPHANS);
		gm_peer_refuse(peer, id, GPUMEM_E_LIMIT, detail);
		break;
	case -EDQUOT:
		snprintf(detail, sizeof(detail),
			"%s has as many connections and sessions as the daemon's file descriptors "
			"allow one user; close some, or raise LimitNOFILE= of the daemon",
			user);
		gm_peer_refuse(peer, id, GPUMEM_E_LIMIT, detail);
		break;
	case -EMFILE:
	case -ENFILE:
		gm_peer_refuse(peer, id, GPUMEM_E_LIMIT,
			"the daemon has no file descriptors left; raise its LimitNOFILE=");
		break;
	default:
		snprintf(detail, sizeof(detail), "the daemon cannot make the session: %s",
			strerror(-error));
		gm_peer_refuse(peer, id, GPUMEM_E_SYSTEM, detail);
	}
}

static bool serve_run_ok(const char *run)
{
	size_t n = strspn(run, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");

	return run[n] == 0 && n <= GM_BOUND_RUN_BYTES;
}

static struct gm_limit_values serve_run_limit(const Gm__Wire__Hello *hello)
{
	struct gm_limit_values limit = {0};

	if (hello->run_max) {
		limit.set |= GM_LIMIT_MAX;
		limit.max = hello->run_max;
	}
	if (hello->run_priority < 0) {
		limit.set |= GM_LIMIT_PRIORITY;
		limit.priority = hello->run_priority;
	}
	return limit;
}

/* A hello on its way. To make the pages, the session and the answer takes a turn each. */
struct hello_greeting {
	struct gm_answer head;
	struct gm_pages pages;
	bool opened;
	uint32_t page_version;
	uint8_t token[GM_TOKEN_BYTES];
	char name[GM_BOUND_NAME_BYTES + 1], run[GM_BOUND_RUN_BYTES + 1];
	char run_name[GM_BOUND_NAME_BYTES + 1];
	struct gm_client_hello hello; /* points to the above */
};

static void serve_greeting_free(struct gm_stream *stream)
{
	struct hello_greeting *greeting = (struct hello_greeting *)stream;

	gm_pages_deinit(&greeting->pages);
	explicit_bzero(greeting->token, sizeof(greeting->token));
	free(greeting);
}

static int serve_join(struct hello_greeting *greeting, struct gm_peer *peer)
{
	struct gm_serve *serve = greeting->head.serve;
	struct gm_client *client;
	struct gm_client_welcome welcome;
	greeting->hello.trust = serve->config->trust;
	int r = gm_clients_join(serve->clients, peer, &greeting->hello, &client, &welcome);
	if (r < 0)
		return r;

	gm_session_name_run(client->session, greeting->run_name);
	gm_peer_set_greeted(peer);
	r = serve_answer_hello(serve, peer, greeting->head.stream.id, client, &welcome);
	if (r < 0) {
		gm_client_welcome_deinit(&welcome);
		if (welcome.resumed)
			gm_session_keep_token(client->session, greeting->token);
	}
	explicit_bzero(welcome.token, sizeof(welcome.token));
	return r;
}

static int serve_greeting_next(struct gm_stream *stream, struct gm_peer *peer)
{
	struct hello_greeting *greeting = (struct hello_greeting *)stream;
	const struct gm_clients *clients = greeting->head.serve->clients;
	int r = 0;

	if (!greeting->opened) {
		r = gm_pages_open(&greeting->pages, greeting->page_version,
			clients->hub->generation, 0, clients->devices);
		greeting->opened = r == 0;
		if (r == 0 && gm_peer_time_is_up(peer))
			return 1;
	}
	if (r == 0)
		r = serve_join(greeting, peer);
	if (r < 0)
		serve_refuse_join(peer, stream->id, r);
	return 0;
}

static void serve_begin_greeting(
	struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__Hello *hello = packet->hello;
	struct hello_greeting *greeting =
		gm_answer_new(serve, peer, packet->id, serve_greeting_next, sizeof(*greeting));
	if (!greeting) {
		serve_refuse_join(peer, packet->id, -ENOMEM);
		return;
	}

	greeting->head.stream.free = serve_greeting_free;
	greeting->head.stream.parted = true;
	gm_pages_init(&greeting->pages);
	greeting->page_version = GM_PAGE_VERSION_AT(hello->minor);
	if (hello->session)
		memcpy(greeting->token, hello->token.data, sizeof(greeting->token));
	strcpy(greeting->name, hello->name);
	strcpy(greeting->run, hello->run);
	strcpy(greeting->run_name, hello->run_name);
	greeting->hello = (struct gm_client_hello){
		.name = greeting->name,
		.run = greeting->run,
		.run_limit = serve_run_limit(hello),
		.pages = &greeting->pages,
		.unique_ids = hello->minor >= GM_WIRE_MINOR_UNIQUE_IDS,
		.resume_id = hello->session,
		.held = hello->held,
		.resume_token = greeting->token,
	};
	gm_peer_set_greeting(peer);
	gm_peer_start(peer, &greeting->head.stream);
}

void gm_serve_hello(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__Hello *hello = packet->hello;

	if (gm_peer_greeted(peer)) {
		gm_peer_refuse(peer, packet->id, GPUMEM_E_PROTOCOL,
			"this connection has said hello already");
		return;
	}
	if (hello->major != GM_WIRE_MAJOR) {
		char detail[GM_DETAIL_BYTES];
		snprintf(detail, sizeof(detail),
			"the client speaks protocol %u.%u, the daemon (gpumemd %s) %u.%u; use versions "
			"of the same major",
			hello->major, hello->minor, PACKAGE_VERSION, GM_WIRE_MAJOR, GM_WIRE_MINOR);
		gm_peer_refuse(peer, packet->id, GPUMEM_E_VERSION, detail);
		return;
	}
	if (!gm_name_ok(hello->name)) {
		gm_peer_refuse(peer, packet->id, GPUMEM_E_INVALID,
			"a name must be printable UTF-8 of at most 63 bytes");
		return;
	}
	if (hello->observer) {
		Gm__Wire__HelloReply reply = GM__WIRE__HELLO_REPLY__INIT;
		gm_peer_set_greeted(peer);
		serve_fill_hello(serve, &reply);
		gm_answer_send(peer, packet->id, GM__WIRE__PACKET__BODY_HELLO_REPLY, &reply);
		return;
	}
	if (hello->session && hello->token.len != GM_TOKEN_BYTES) {
		gm_peer_refuse(peer, packet->id, GPUMEM_E_INVALID, "a token must have 16 bytes");
		return;
	}

	if (!serve_run_ok(hello->run) || !gm_name_ok(hello->run_name)) {
		gm_peer_refuse(peer, packet->id, GPUMEM_E_INVALID,
			"a run is named by at most 32 letters and digits, and for people by printable UTF-8 of at most 63 bytes");
		return;
	}
	if (hello->run_priority < -GM_PRIORITY_MAX || hello->run_priority > 0) {
		char detail[GM_DETAIL_BYTES];
		snprintf(detail, sizeof(detail), "the priority of a run is from %d to 0",
			-GM_PRIORITY_MAX);
		gm_peer_refuse(peer, packet->id, GPUMEM_E_INVALID, detail);
		return;
	}

	serve_begin_greeting(serve, peer, packet);
}

/* The client may have left very much, which ends in slices. Its goodbye is answered when all of that is back. */
static int serve_goodbye_next(struct gm_stream *stream, struct gm_peer *peer)
{
	const struct gm_serve *serve = ((struct gm_answer *)stream)->serve;
	uid_t payer_uid = gm_peer_identity(peer)->payer_uid;
	Gm__Wire__Done done = GM__WIRE__DONE__INIT;

	while (gm_core_work(serve->core, payer_uid))
		if (gm_peer_time_is_up(peer))
			return 1;
	int r = gm_answer_emit(stream, peer, false, GM__WIRE__PACKET__BODY_DONE, &done);
	GM_STEP("end: answered");
	return r;
}

void gm_serve_goodbye(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	struct gm_answer *answer =
		gm_answer_new(serve, peer, packet->id, serve_goodbye_next, sizeof(*answer));

	gm_client_goodbye(gm_peer_user(peer));
	if (answer)
		gm_peer_start(peer, &answer->stream);
	else
		gm_peer_send_done(peer, packet->id);
}

void gm_serve_get_devices(
	struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	Gm__Wire__DevicesReply reply = GM__WIRE__DEVICES_REPLY__INIT;
	struct gm_serve_devices devices;

	gm_serve_list_devices(serve, &devices);
	reply.n_devices = serve->n_devices;
	reply.devices = devices.list;
	gm_answer_send(peer, packet->id, GM__WIRE__PACKET__BODY_DEVICES, &reply);
}
