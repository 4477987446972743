/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Advice on where to ask for memory, for clients and for gpumemctl. The answer is one packet, and the
 * daemon keeps nothing of it. It tells no more than the refusal of a request would.
 */
#include "daemon/serve/handlers.h"

#include "daemon/serve/answer.h"

/* The wire has the same numbers as core. */
_Static_assert((int)GM_FIT_NOW == (int)GM__WIRE__FIT__FIT_NOW, "now");
_Static_assert((int)GM_FIT_RECLAIM == (int)GM__WIRE__FIT__FIT_RECLAIM, "reclaim");
_Static_assert((int)GM_FIT_WAIT == (int)GM__WIRE__FIT__FIT_WAIT, "wait");
_Static_assert((int)GM_FIT_NONE == (int)GM__WIRE__FIT__FIT_NONE, "none");

static void serve_fill_placement(struct gm_place_row *from, Gm__Wire__Placement *ret)
{
	gm__wire__placement__init(ret);
	ret->device = from->device;
	ret->fit = (Gm__Wire__Fit)from->fit;
	ret->room = from->room;
	ret->most = from->most;
	ret->status = from->status;
	ret->detail = from->detail;
}

void gm_serve_place(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const struct gm_identity *identity = gm_peer_identity(peer);
	struct gm_client *client = gm_peer_user(peer);
	struct gm_place_row placements[GM_BOUND_DEVICES];
	char detail[GM_DETAIL_BYTES] = "";
	/* Of an observer: a client that it may become. Nobody knows its name yet. */
	const struct gm_session_info info = {
		.pid = identity->pid,
		.uid = identity->uid,
		.payer_uid = identity->payer_uid,
		.subordinate = identity->payer_uid != identity->uid,
		.gid = identity->gid,
		.unit = identity->cgroup.unit,
		.container = identity->cgroup.container,
		.scope = identity->cgroup.scope,
		.loose = identity->cgroup.name_is_loose,
	};
	size_t n = 0;

	for (uint32_t i = 0; i < serve->n_devices; i++)
		if (!serve->devices[i].pinned)
			placements[n++] = (struct gm_place_row){.device = i};
	gpumem_status status = gm_place(serve->core, client ? client->session : NULL, &info,
		packet->place->bytes, placements, n, detail);
	if (status != GPUMEM_OK) {
		gm_peer_send_failure(peer, packet->id, status, detail);
		return;
	}

	Gm__Wire__Placement messages[GM_BOUND_DEVICES], *list[GM_BOUND_DEVICES];
	Gm__Wire__PlaceReply reply = GM__WIRE__PLACE_REPLY__INIT;
	for (size_t i = 0; i < n; i++) {
		serve_fill_placement(&placements[i], &messages[i]);
		list[i] = &messages[i];
	}
	reply.n_placements = n;
	reply.placements = list;
	gm_answer_send(peer, packet->id, GM__WIRE__PACKET__BODY_PLACE_REPLY, &reply);
}
