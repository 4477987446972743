/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of one packet and of many. */
#include "daemon/serve/answer.h"

#include <stdlib.h>
#include <string.h>

#include "common/zeroed.h"

static void answer_free(struct gm_stream *stream)
{
	free(stream);
}

void *gm_answer_new(struct gm_serve *serve, const struct gm_peer *peer, uint64_t id,
	int (*next)(struct gm_stream *stream, struct gm_peer *peer), size_t bytes)
{
	struct gm_answer *answer = gm_zeroed(bytes);

	if (!answer)
		return NULL;
	answer->stream.id = id;
	answer->stream.next = next;
	answer->stream.free = answer_free;
	answer->serve = serve;
	answer->sees_all = gm_serve_sees_all(serve, peer);
	return answer;
}

bool gm_answer_may_see(
	const struct gm_answer *answer, const struct gm_peer *peer, const struct gm_client *client)
{
	return answer->sees_all || gm_identity_same_owner(gm_peer_identity(peer), client->identity);
}

static bool answer_is_of(const struct gm_client *client, const struct gm_owner *owner)
{
	switch (owner->kind) {
	case GM_OWNER_UNIT:
		return strcmp(client->identity->cgroup.unit, owner->name) == 0;
	case GM_OWNER_CONTAINER:
		return strcmp(gm_cgroup_limit_name(&client->identity->cgroup), owner->name) == 0;
	case GM_OWNER_RUN:
		return owner->id == gm_owner_run_id(client->identity->payer_uid,
					    gm_cgroup_limit_name(&client->identity->cgroup)) &&
		       strcmp(gm_session_info(client->session)->run
				       ? gm_session_info(client->session)->run
				       : "",
			       owner->name) == 0;
	default:
		return strcmp(gm_client_name(client), owner->name) == 0;
	}
}

bool gm_answer_may_see_owner(
	const struct gm_answer *answer, const struct gm_peer *peer, const struct gm_owner *owner)
{
	if (answer->sees_all || !gm_serve_is_private(owner))
		return true;
	for (const struct gm_client *c = answer->serve->clients->list; c; c = c->next)
		if (gm_answer_may_see(answer, peer, c) && answer_is_of(c, owner))
			return true;
	return false;
}

static Gm__Wire__Packet answer_packet(
	uint64_t id, bool more, Gm__Wire__Packet__BodyCase body, void *message)
{
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;

	packet.id = id;
	packet.more = more;
	packet.body_case = body;
	packet.hello = message; /* every member of the union is a pointer to a message */
	return packet;
}

int gm_answer_emit_fds(const struct gm_stream *stream, struct gm_peer *peer, bool more,
	Gm__Wire__Packet__BodyCase body, void *message, const int *fds, size_t n_fds)
{
	Gm__Wire__Packet packet = answer_packet(stream->id, more, body, message);
	int r = gm_peer_emit(peer, &packet, fds, n_fds);

	return r < 0 ? r : more;
}

int gm_answer_emit(const struct gm_stream *stream, struct gm_peer *peer, bool more,
	Gm__Wire__Packet__BodyCase body, void *message)
{
	return gm_answer_emit_fds(stream, peer, more, body, message, NULL, 0);
}

int gm_answer_emit_failure(const struct gm_stream *stream, struct gm_peer *peer,
	gpumem_status status, const char *detail)
{
	Gm__Wire__Failure failure = GM__WIRE__FAILURE__INIT;

	failure.status = status;
	failure.detail = (char *)detail;
	return gm_answer_emit(stream, peer, false, GM__WIRE__PACKET__BODY_FAILURE, &failure);
}

void gm_answer_send(
	struct gm_peer *peer, uint64_t id, Gm__Wire__Packet__BodyCase body, void *message)
{
	Gm__Wire__Packet packet = answer_packet(id, false, body, message);

	gm_peer_send(peer, &packet);
}
