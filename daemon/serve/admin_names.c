/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/serve/handlers.h"

#include <string.h>

#include "common/arith.h"
#include "common/clock.h"
#include "daemon/serve/answer.h"

/* How many names a packet has at most. */
#define NAMES_IN_PACKET 64

struct names_listing {
	struct gm_answer head;
	uint64_t last; /* id of the last name that was looked at */
};

struct names_list {
	const struct gm_peer *peer;
	const struct gm_identity *identity;
	bool enforced; /* readers of what is read-only cannot write */
	uint64_t now, last;
	size_t n, looked_at; /* most may be somebody else's */
	bool more;
	Gm__Wire__Name names[NAMES_IN_PACKET];
	Gm__Wire__Name *list[NAMES_IN_PACKET];
};

/* Only those who may attach can see a name. */
static bool names_may_see(const struct gm_identity *identity, const struct gm_name_info *name)
{

	if (name->own)
		return true;
	switch (name->share.audience) {
	case GM_NAME_AUDIENCE_DOMAIN:
		return false;
	case GM_NAME_AUDIENCE_UID:
		return identity->uid == name->share.id;
	case GM_NAME_AUDIENCE_GID:
		for (size_t i = 0; i < identity->n_groups; i++)
			if (identity->groups[i] == name->share.id)
				return true;
		return identity->gid == name->share.id;
	}
	return false;
}

static bool names_add(void *ctx, const struct gm_name_info *name)
{
	struct names_list *out = ctx;

	if (out->n == NAMES_IN_PACKET ||
		(out->looked_at >= GM_ANSWER_LEAST && gm_peer_time_is_up(out->peer))) {
		out->more = true;
		return false;
	}
	out->looked_at++;
	out->last = name->id;
	if (!names_may_see(out->identity, name))
		return true;

	Gm__Wire__Name *row = out->list[out->n] = &out->names[out->n];
	gm__wire__name__init(row);
	row->owner = name->uid;
	row->whose = name->uid == out->identity->uid ? GM__WIRE__WHOSE__WHOSE_ASKERS
						     : GM__WIRE__WHOSE__WHOSE_ANOTHERS;
	row->name = (char *)name->text;
	row->version = name->version;
	row->device = name->device;
	row->bytes = name->bytes;
	row->user_bytes = name->user_bytes;
	row->audience = (Gm__Wire__Audience)name->share.audience;
	row->audience_id = name->share.id;
	row->read_only = name->share.read_only;
	row->advisory = name->share.read_only && !out->enforced;
	row->until_unread = name->until_unread;
	row->maker = name->made;
	row->payer = name->payer;
	row->readers = name->readers;
	row->age_ms = out->now > name->since_ns ? (out->now - name->since_ns) / GM_NS_PER_MS : 0;
	row->left_ms =
		name->expires_ns ? gm_u64_minus(name->expires_ns, out->now) / GM_NS_PER_MS + 1 : 0;
	row->metadata_bytes = name->metadata_bytes;
	row->tag = (char *)name->tag;
	out->n++;
	return true;
}

static int names_next(struct gm_stream *stream, struct gm_peer *peer)
{
	struct names_listing *listing = (struct names_listing *)stream;
	struct names_list out;
	Gm__Wire__NamesReply reply = GM__WIRE__NAMES_REPLY__INIT;

	out.peer = peer;
	out.identity = gm_peer_identity(peer);
	out.enforced = listing->head.serve->ops->read_only;
	out.now = gm_clock_ns();
	out.last = listing->last;
	out.n = out.looked_at = 0;
	out.more = false;
	const struct gm_name_asker asker = gm_serve_asker(listing->head.serve, peer);
	gm_core_name_each(listing->head.serve->core, &asker, listing->last, names_add, &out);
	reply.n_names = out.n;
	reply.names = out.list;
	int r = 1;
	if (out.n > 0 || !out.more)
		r = gm_answer_emit(stream, peer, out.more, GM__WIRE__PACKET__BODY_NAMES, &reply);
	if (r >= 0)
		listing->last = out.last;
	return r;
}

void gm_admin_get_names(
	struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	struct names_listing *listing =
		gm_answer_new(serve, peer, packet->id, names_next, sizeof(*listing));

	if (listing)
		gm_peer_start(peer, &listing->head.stream);
	else
		gm_serve_fail_memory(peer, packet->id);
}
