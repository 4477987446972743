/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hello, goodbye and the list of devices. The hello's answer brings three fds (event socket, the
 * daemon's page, the client's page) and so may have to wait for room like any other handle; it owns
 * them until it is sent. A resume token is written into packets and nowhere else.
 */
#include "autoconf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/units.h"
#include "daemon/serve/serve_session.h"

/* A lease's id takes at most 10 bytes packed. The rest of a long list comes in further packets. */
#define GM_HELLO_LEASES_PER_PACKET 4096

struct hello_answer {
	struct gm_stream stream;
	struct gm_dispatch *dispatch;
	struct gm_client_welcome welcome;
	bool first;
	uint64_t n_leases, at;
	uint64_t leases[];
};

static void serve_session_hello_free(struct gm_stream *stream)
{
	struct hello_answer *answer = (struct hello_answer *)stream;
	gm_client_welcome_deinit(&answer->welcome);
	explicit_bzero(answer->welcome.token, sizeof(answer->welcome.token));
	free(answer);
}

static void serve_session_fill_hello(
	const struct gm_dispatch *dispatch, Gm__Wire__HelloReply *reply)
{
	reply->major = GM_WIRE_MAJOR;
	reply->minor = GM_WIRE_MINOR;
	reply->version = (char *)PACKAGE_VERSION;
	reply->decay_ms = dispatch->config->decay_ns / GM_NS_PER_MS;
	for (uint32_t i = 0; i < dispatch->n_devices; i++) {
		struct gm_device_figures figures;
		gm_core_device_figures(dispatch->core, i, &figures);
		uint64_t wait_ms = (figures.policy.wait_ns ? figures.policy.wait_ns : GM_WAIT_NS) /
				   GM_NS_PER_MS;
		if (figures.policy.oom != GM_OOM_REFUSE && wait_ms > reply->wait_ms)
			reply->wait_ms = wait_ms;
	}
	reply->track = (Gm__Wire__Track)dispatch->config->track;
}

static int serve_session_hello_next(struct gm_stream *stream, struct gm_peer *peer)
{
	struct hello_answer *answer = (struct hello_answer *)stream;
	struct gm_client *client = gm_peer_user(peer);
	Gm__Wire__HelloReply reply = GM__WIRE__HELLO_REPLY__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	if (!client)
		return -EPIPE;
	serve_session_fill_hello(answer->dispatch, &reply);
	reply.session = client->id;
	reply.token.data = answer->welcome.token;
	reply.token.len = sizeof(answer->welcome.token);
	reply.resumed = answer->welcome.resumed;
	uint64_t left = answer->n_leases - answer->at;
	reply.n_leases = left < GM_HELLO_LEASES_PER_PACKET ? left : GM_HELLO_LEASES_PER_PACKET;
	reply.leases = answer->leases + answer->at;
	packet.id = stream->id;
	packet.more = left > reply.n_leases;
	packet.body_case = GM__WIRE__PACKET__BODY_HELLO_REPLY;
	packet.hello_reply = &reply;

	const int fds[] = {
		answer->welcome.events, answer->welcome.daemon_page, answer->welcome.client_page};
	int r = gm_peer_emit(peer, &packet, fds, answer->first ? 3 : 0);
	if (r < 0)
		return r;
	answer->first = false;
	answer->at += reply.n_leases;
	return answer->at < answer->n_leases;
}

static int serve_session_answer_hello(struct gm_dispatch *dispatch, struct gm_peer *peer,
	uint64_t id, struct gm_client *client, const struct gm_client_welcome *welcome)
{
	uint64_t n = welcome->resumed ? gm_session_lease_count(client->session) : 0;
	struct hello_answer *answer = calloc(1, sizeof(*answer) + n * sizeof(uint64_t));
	if (!answer)
		return -ENOMEM;
	answer->stream.id = id;
	answer->stream.next = serve_session_hello_next;
	answer->stream.free = serve_session_hello_free;
	answer->dispatch = dispatch;
	answer->welcome = *welcome;
	answer->first = true;
	struct gm_lease *lease = NULL;
	while (answer->n_leases < n && (lease = gm_session_next_lease(client->session, lease))) {
		struct gm_lease_info info;
		gm_lease_info(lease, client->session, &info);
		answer->leases[answer->n_leases++] = info.id;
	}
	gm_peer_start(peer, &answer->stream);
	return 0;
}

static void serve_session_refuse_join(struct gm_peer *peer, uint64_t id, int error)
{
	if (error == -EACCES) {
		gm_peer_refuse(peer, id, GPUMEM_E_DENIED,
			"this is not the process, or not the token, of the session to take up");
		return;
	}
	char detail[GM_DETAIL_BYTES];
	bool limit = error == -EMFILE || error == -ENFILE || error == -EUSERS;
	if (error == -EUSERS)
		snprintf(detail, sizeof(detail),
			"uid %u has as many sessions as it may have, those included that its processes "
			"left without a goodbye; see connections_per_uid",
			gm_peer_identity(peer)->uid);
	else if (limit)
		snprintf(detail, sizeof(detail),
			"the daemon has no file descriptors left; raise its LimitNOFILE=");
	else
		snprintf(
			detail, sizeof(detail), "the session cannot be made: %s", strerror(-error));
	gm_peer_refuse(peer, id, limit ? GPUMEM_E_LIMIT : GPUMEM_E_SYSTEM, detail);
}

void gm_serve_hello(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__Hello *hello = packet->hello;
	if (gm_peer_greeted(peer)) {
		gm_peer_refuse(peer, packet->id, GPUMEM_E_PROTOCOL, "a second hello");
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
			"a name is printable UTF-8 of at most 63 bytes");
		return;
	}
	if (hello->observer) {
		Gm__Wire__HelloReply reply = GM__WIRE__HELLO_REPLY__INIT;
		Gm__Wire__Packet answer = GM__WIRE__PACKET__INIT;
		gm_peer_set_greeted(peer);
		serve_session_fill_hello(dispatch, &reply);
		answer.id = packet->id;
		answer.body_case = GM__WIRE__PACKET__BODY_HELLO_REPLY;
		answer.hello_reply = &reply;
		gm_peer_send(peer, &answer);
		return;
	}
	if (hello->session && hello->token.len != GM_TOKEN_BYTES) {
		gm_peer_refuse(peer, packet->id, GPUMEM_E_INVALID, "a token has 16 bytes");
		return;
	}
	struct gm_client *client;
	struct gm_client_welcome welcome;
	int r = gm_clients_join(dispatch->clients, peer, hello->name, dispatch->config->trust,
		hello->session, hello->token.data, &client, &welcome);
	if (r < 0) {
		serve_session_refuse_join(peer, packet->id, r);
		return;
	}
	gm_peer_set_greeted(peer);
	r = serve_session_answer_hello(dispatch, peer, packet->id, client, &welcome);
	if (r < 0) {
		gm_client_welcome_deinit(&welcome);
		if (welcome.resumed)
			gm_session_keep_token(client->session, hello->token.data);
		serve_session_refuse_join(peer, packet->id, r);
	}
	explicit_bzero(welcome.token, sizeof(welcome.token));
}

void gm_serve_goodbye(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	uint64_t id = packet->id;
	gm_client_goodbye(gm_peer_user(peer));
	gm_peer_send_done(peer, id);
}

void gm_serve_get_devices(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	Gm__Wire__Device devices[GM_LIMIT_DEVICES];
	Gm__Wire__Device *list[GM_LIMIT_DEVICES];
	Gm__Wire__DevicesReply reply = GM__WIRE__DEVICES_REPLY__INIT;
	Gm__Wire__Packet answer = GM__WIRE__PACKET__INIT;
	char troubles[GM_LIMIT_DEVICES][GM_BACKEND_TROUBLE];
	for (uint32_t i = 0; i < dispatch->n_devices; i++) {
		gm_dispatch_fill_device(dispatch, i, troubles[i], &devices[i]);
		list[i] = &devices[i];
	}
	reply.n_devices = dispatch->n_devices;
	reply.devices = list;
	answer.id = packet->id;
	answer.body_case = GM__WIRE__PACKET__BODY_DEVICES;
	answer.devices = &reply;
	gm_peer_send(peer, &answer);
}
