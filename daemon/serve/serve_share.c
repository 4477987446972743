/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sharing on the wire: tokens and names. Core decides who may open what. This file checks what the
 * wire format lets through, and that nobody gives away more than it knows.
 */
#include "daemon/serve/handlers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/step.h"
#include "daemon/serve/answer.h"
#include "daemon/serve/serve_handles.h"

/*
 * Reads whom a lease is to be shared with. Returns false with the refusal sent: there is no such
 * audience, or other users could write to memory of a GPU, which nobody can prevent, and the client
 * does not say that it knows (readers_can_write).
 */
static bool share_read_audience(const struct gm_serve *serve, struct gm_peer *peer, uint64_t id,
	Gm__Wire__Audience audience, uint32_t audience_id, bool readers_can_write,
	struct gm_token_options *ret)
{
	bool stranger = false;

	ret->id = audience_id;
	switch (audience) {
	case GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN:
		ret->audience = GM_NAME_AUDIENCE_DOMAIN;
		break;
	case GM__WIRE__AUDIENCE__AUDIENCE_UID:
		ret->audience = GM_NAME_AUDIENCE_UID;
		stranger = audience_id != gm_peer_identity(peer)->uid;
		break;
	case GM__WIRE__AUDIENCE__AUDIENCE_GID:
		ret->audience = GM_NAME_AUDIENCE_GID;
		stranger = true;
		break;
	default:
		gm_peer_send_failure(peer, id, GPUMEM_E_INVALID,
			"no such audience; share with the domain, a uid or a gid");
		return false;
	}
	if (stranger && !serve->ops->read_only && !readers_can_write) {
		gm_peer_send_failure(peer, id, GPUMEM_E_UNSUPPORTED,
			"a GPU cannot keep other users from writing to its memory; say that "
			"readers can write if that is meant");
		return false;
	}
	return true;
}

/* Answers with a lease that the client has opened, or with why it has not. */
static void share_answer_opened(struct gm_serve *serve, struct gm_peer *peer, uint64_t id,
	gpumem_status status, struct gm_lease *lease, const char *not_found)
{
	struct gm_session *session = gm_serve_session_of(peer);
	struct gm_lease_info info;

	if (status != GPUMEM_OK) {
		char detail[GM_DETAIL_BYTES] = "the lease cannot be opened";
		if (status == GPUMEM_E_NOT_FOUND)
			gm_text_say(detail, "%s", not_found);
		else if (status == GPUMEM_E_LIMIT)
			gm_session_say_open_limit(session, detail);
		gm_peer_send_failure(peer, id, status, detail);
		return;
	}

	gm_lease_info(lease, session, &info);
	if (!gm_serve_send_handles(serve, peer, id, info.id, 0, UINT64_MAX, true)) {
		gm_lease_return_view(session, lease, id);
		gm_serve_fail_memory(peer, id);
	}
}

/* ---- tokens */

static void share_refuse(struct gm_peer *peer, uint64_t id, gpumem_status status)
{
	char detail[GM_DETAIL_BYTES] = "the lease cannot be shared";

	if (status == GPUMEM_E_LIMIT)
		gm_session_say_share_limit(gm_serve_session_of(peer), detail);
	else if (status == GPUMEM_E_DENIED)
		gm_text_say(detail, "only the client that made a lease can share it");
	else if (status == GPUMEM_E_UNSUPPORTED)
		gm_text_say(detail,
			"the buffer may have old data of its trust domain, so it cannot be shared "
			"with a uid or gid; create it for others");
	gm_peer_send_failure(peer, id, status, detail);
}

void gm_serve_share(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__Share *share = packet->share;
	struct gm_lease *lease = gm_serve_find_lease(peer, packet->id, share->lease);
	struct gm_token_options options = {.read_only = share->read_only};

	if (!lease || !share_read_audience(serve, peer, packet->id, share->audience,
			      share->audience_id, share->readers_can_write, &options))
		return;

	uint8_t token[GM_TOKEN_BYTES];
	const struct gm_client *client = gm_peer_user(peer);
	gpumem_status status = gm_lease_share_by(
		client->session, lease, &options, packet->id, client->resumed, token);
	if (status != GPUMEM_OK) {
		share_refuse(peer, packet->id, status);
		return;
	}

	Gm__Wire__ShareReply reply = GM__WIRE__SHARE_REPLY__INIT;
	reply.token.data = token;
	reply.token.len = sizeof(token);
	gm_answer_send(peer, packet->id, GM__WIRE__PACKET__BODY_SHARE_REPLY, &reply);
	GM_STEP("share: answered");
	explicit_bzero(token, sizeof(token));
}

/* The answer to ShareChunks. Some chunks are split and shared on each turn of the client's user. */
struct share_chunks {
	struct gm_answer head;
	struct gm_token_chunks what;
	uint8_t token[GM_TOKEN_BYTES];
	char detail[GM_DETAIL_BYTES];
	bool done;
	gpumem_status status;
	uint64_t ids[]; /* leases, chunks, and the leases that the chunks are in now */
};

static void share_chunks_free(struct gm_stream *stream)
{
	struct share_chunks *share = (struct share_chunks *)stream;

	explicit_bzero(share->token, sizeof(share->token));
	free(share);
}

static int share_chunks_next(struct gm_stream *stream, struct gm_peer *peer)
{
	struct share_chunks *share = (struct share_chunks *)stream;
	const struct gm_client *client = gm_peer_user(peer);
	uint64_t *leases = share->ids + 2 * share->what.n;

	if (!client)
		return -EPIPE;
	while (!share->done) {
		share->done = !gm_session_share_some(client->session, &share->what, share->token,
			leases, &share->status, share->detail);
		if (!share->done && gm_peer_time_is_up(peer))
			return 1;
	}

	Gm__Wire__ShareChunksReply reply = GM__WIRE__SHARE_CHUNKS_REPLY__INIT;
	if (share->status == GPUMEM_OK) {
		reply.token.data = share->token;
		reply.token.len = sizeof(share->token);
	}
	reply.leases = leases;
	reply.n_leases = share->what.n;
	reply.status = (uint32_t)share->status;
	reply.detail = share->detail;
	int r = gm_answer_emit(
		stream, peer, false, GM__WIRE__PACKET__BODY_SHARE_CHUNKS_REPLY, &reply);
	GM_STEP("share: answered");
	return r;
}

void gm_serve_share_chunks(
	struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__ShareChunks *from = packet->share_chunks;
	const struct gm_client *client = gm_peer_user(peer);
	size_t n = from->n_chunks;

	if (n == 0 || n != from->n_leases || n > GM_TOKEN_CHUNKS_MOST ||
		from->token.len != (from->first ? GM_TOKEN_BYTES : 0) ||
		from->first > GM_BOUND_SHARES_PER_CLIENT) {
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_INVALID,
			"1 to 256 chunks can be shared at a time, each with its lease, and a token "
			"if others come before them");
		return;
	}
	struct share_chunks *share;
	size_t bytes = sizeof(*share) + 3 * n * sizeof(uint64_t);
	share = gm_answer_new(serve, peer, packet->id, share_chunks_next, bytes);
	if (!share) {
		gm_serve_fail_memory(peer, packet->id);
		return;
	}

	share->head.stream.free = share_chunks_free;
	share->head.stream.bytes = bytes;
	if (from->first)
		memcpy(share->token, from->token.data, sizeof(share->token));
	memcpy(share->ids, from->leases, n * sizeof(uint64_t));
	memcpy(share->ids + n, from->chunks, n * sizeof(uint64_t));
	share->what = (struct gm_token_chunks){
		.leases = share->ids,
		.chunks = share->ids + n,
		.n = n,
		.first = from->first,
		.asked = packet->id,
		.again = client->resumed,
	};
	gm_peer_start(peer, &share->head.stream);
}

void gm_serve_open(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__Open *open = packet->open;
	const struct gm_identity *identity = gm_peer_identity(peer);
	const struct gm_client *client = gm_peer_user(peer);
	struct gm_lease *lease = NULL;

	if (open->token.len != GM_TOKEN_BYTES) {
		gm_peer_send_failure(
			peer, packet->id, GPUMEM_E_INVALID, "a token must have 16 bytes");
		return;
	}

	gpumem_status status = gm_session_open_by(client->session, open->token.data, open->index,
		identity->groups, identity->n_groups, packet->id, client->resumed, &lease);
	share_answer_opened(serve, peer, packet->id, status, lease,
		"this token opens nothing for this client: the sharing may have ended, or be meant "
		"for somebody else");
}

/* The answer to an Unshare of a token of many chunks. */
struct share_ending {
	struct gm_answer head;
	uint8_t token[GM_TOKEN_BYTES];
	uint32_t at, n;
};

static void share_ending_free(struct gm_stream *stream)
{
	struct share_ending *ending = (struct share_ending *)stream;

	explicit_bzero(ending->token, sizeof(ending->token));
	free(ending);
}

static int share_ending_next(struct gm_stream *stream, struct gm_peer *peer)
{
	struct share_ending *ending = (struct share_ending *)stream;
	const struct gm_client *client = gm_peer_user(peer);
	Gm__Wire__Done done = GM__WIRE__DONE__INIT;

	if (!client)
		return -EPIPE;
	while (gm_session_unshare_some(client->session, ending->token, &ending->at, ending->n))
		if (gm_peer_time_is_up(peer))
			return 1;
	return gm_answer_emit(stream, peer, false, GM__WIRE__PACKET__BODY_DONE, &done);
}

static void share_end_token(
	struct gm_serve *serve, struct gm_peer *peer, uint64_t id, const Gm__Wire__Unshare *unshare)
{
	struct share_ending *ending =
		gm_answer_new(serve, peer, id, share_ending_next, sizeof(*ending));

	if (!ending) {
		gm_serve_fail_memory(peer, id);
		return;
	}
	ending->head.stream.free = share_ending_free;
	memcpy(ending->token, unshare->token.data, sizeof(ending->token));
	ending->n = unshare->chunks;
	gm_peer_start(peer, &ending->head.stream);
}

void gm_serve_unshare(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__Unshare *unshare = packet->unshare;

	if (unshare->token.len == GM_TOKEN_BYTES) {
		share_end_token(serve, peer, packet->id, unshare);
		return;
	}

	struct gm_lease *lease = gm_serve_find_lease(peer, packet->id, unshare->lease);
	if (!lease)
		return;
	gm_serve_answer_status(peer, packet->id, gm_lease_unshare(gm_serve_session_of(peer), lease),
		"only the client that made a lease can unshare it");
}

/* ---- names */

/* Returns false, with the refusal sent, if a name cannot live that long. */
static bool share_read_lifetime(struct gm_peer *peer, uint64_t id, uint64_t lifetime_ms)
{
	if (lifetime_ms <= GM_LIFETIME_MS_MAX)
		return true;
	gm_peer_send_failure(peer, id, GPUMEM_E_INVALID,
		"the time after which a name ends (expires_s) is at most a hundred years, or 0: "
		"never");
	return false;
}

void gm_serve_publish(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__Publish *publish = packet->publish;
	const struct gm_client *client = gm_peer_user(peer);
	struct gm_lease *lease = gm_serve_find_lease(peer, packet->id, publish->lease);
	struct gm_name_publish what = {
		.text = publish->name,
		.share = {.read_only = publish->read_only},
		.until_unread = publish->until_unread,
		.replace = publish->replace,
		.asked = packet->id,
		.again = client->resumed,
		.metadata_bytes = publish->metadata_bytes,
		.lifetime_ns = publish->lifetime_ms * GM_NS_PER_MS,
	};

	if (!lease || !share_read_lifetime(peer, packet->id, publish->lifetime_ms) ||
		!share_read_audience(serve, peer, packet->id, publish->audience,
			publish->audience_id, publish->readers_can_write, &what.share))
		return;

	Gm__Wire__PublishReply reply = GM__WIRE__PUBLISH_REPLY__INIT;
	char detail[GM_DETAIL_BYTES];
	gpumem_status status =
		gm_lease_publish(client->session, lease, &what, &reply.version, detail);
	reply.resend = status == GPUMEM_E_NOT_FOUND;
	if (status == GPUMEM_OK || reply.resend)
		gm_answer_send(peer, packet->id, GM__WIRE__PACKET__BODY_PUBLISH_REPLY, &reply);
	else
		gm_peer_send_failure(peer, packet->id, status, detail);
	GM_STEP("publish: answered");
}

void gm_serve_attach(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__Attach *attach = packet->attach;
	const struct gm_identity *identity = gm_peer_identity(peer);
	const struct gm_client *client = gm_peer_user(peer);
	struct gm_lease *lease = NULL;

	gpumem_status status = gm_session_attach(client->session,
		attach->foreign ? attach->owner : identity->uid, attach->name, identity->groups,
		identity->n_groups, packet->id, client->resumed, &lease);
	share_answer_opened(serve, peer, packet->id, status, lease, GM_SERVE_NO_NAME);
}

/* Whose name it is. Returns false, with the refusal sent, if the peer may not do that to it. */
static bool share_read_owner(const struct gm_serve *serve, struct gm_peer *peer, uint64_t id,
	bool foreign, uid_t named, const char *what, uid_t *ret_owner)
{
	uid_t own = gm_peer_identity(peer)->uid;

	*ret_owner = foreign ? named : own;
	return *ret_owner == own || gm_serve_require_admin(serve, peer, id, what);
}

void gm_serve_expire_name(
	struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__ExpireName *expire = packet->expire_name;
	uid_t owner;

	if (!share_read_owner(serve, peer, packet->id, expire->foreign, expire->owner,
		    "saying when a name of another user ends", &owner) ||
		!share_read_lifetime(peer, packet->id, expire->lifetime_ms))
		return;
	const struct gm_name_asker asker = gm_serve_asker(serve, peer);
	gpumem_status status = gm_core_expire(
		serve->core, &asker, owner, expire->name, expire->lifetime_ms * GM_NS_PER_MS);
	gm_serve_answer_status(peer, packet->id, status,
		status == GPUMEM_E_NOT_FOUND ? "there is no such name"
					     : "the daemon is out of memory");
}

static void share_say_which(struct gm_serve *serve, struct gm_peer *peer, uint64_t id,
	const struct gm_name_asker *asker, uid_t owner, const char *name)
{
	Gm__Wire__PublishReply reply = GM__WIRE__PUBLISH_REPLY__INIT;
	struct gm_name_which which;
	gpumem_status status = gm_core_which_name(serve->core, asker, owner, name, &which);

	if (status != GPUMEM_OK) {
		gm_serve_answer_status(peer, id, status, "there is no such name");
		return;
	}
	reply.id = which.id;
	reply.version = which.version;
	gm_answer_send(peer, id, GM__WIRE__PACKET__BODY_PUBLISH_REPLY, &reply);
}

void gm_serve_unpublish(
	struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__Unpublish *unpublish = packet->unpublish;
	uid_t owner;

	if (!share_read_owner(serve, peer, packet->id, unpublish->foreign, unpublish->owner,
		    "removing a name of another user", &owner))
		return;
	const struct gm_name_asker asker = gm_serve_asker(serve, peer);
	struct gm_name_which which = {.id = unpublish->id, .version = unpublish->version};
	if (unpublish->look) {
		share_say_which(serve, peer, packet->id, &asker, owner, unpublish->name);
		return;
	}
	gpumem_status status =
		which.id ? gm_core_unpublish_which(
				   serve->core, &asker, owner, unpublish->name, &which)
			 : gm_core_unpublish(serve->core, &asker, owner, unpublish->name);
	gm_serve_answer_status(peer, packet->id, status, "there is no such name");
	GM_STEP("unpublish: answered");
}

/* ---- makers */

void gm_serve_get_makers(
	struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__GetMakers *ask = packet->get_makers;
	struct gm_session *session = gm_serve_session_of(peer);
	Gm__Wire__MakersReply reply = GM__WIRE__MAKERS_REPLY__INIT;
	uint64_t gone[GM_BOUND_LIST_ITEMS];

	(void)serve;
	if (!gm_serve_require_list(peer, packet->id, ask->n_leases))
		return;
	reply.gone = gone;
	for (size_t i = 0; i < ask->n_leases; i++)
		if (!gm_session_maker_holds(session, ask->leases[i]))
			gone[reply.n_gone++] = ask->leases[i];
	gm_answer_send(peer, packet->id, GM__WIRE__PACKET__BODY_MAKERS, &reply);
}
