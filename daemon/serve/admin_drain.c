/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drains a device for an administrator, or ends that. The answer comes at once: whoever wants the
 * device empty asks again until it is.
 */
#include "daemon/serve/admin_drain.h"

#include "daemon/serve/answer.h"
#include "daemon/serve/watch.h"
#include "daemon/tenant/client_news.h"

static void drain_answer(struct gm_serve *serve, struct gm_peer *peer,
	const Gm__Wire__Packet *packet, bool changed, uint64_t asked)
{
	Gm__Wire__DrainReply reply = GM__WIRE__DRAIN_REPLY__INIT;
	struct gm_device_figures figures;

	gm_core_device_figures(serve->core, packet->drain->device, &figures);
	reply.drained = figures.drain.on;
	reply.changed = changed;
	reply.clients_asked = asked;
	reply.held = figures.leased + figures.quarantined + figures.admitted + figures.declared;
	reply.going = figures.pooled + figures.dying;
	gm_answer_send(peer, packet->id, GM__WIRE__PACKET__BODY_DRAIN_REPLY, &reply);
}

void gm_admin_drain(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const struct gm_identity *who = gm_peer_identity(peer);
	const Gm__Wire__Drain *what = packet->drain;
	struct gm_device_figures before;
	uint64_t asked = 0;

	if (!gm_serve_require_admin(serve, peer, packet->id, "draining a device") ||
		!gm_serve_require_device(serve, peer, packet->id, what->device))
		return;

	gm_core_device_figures(serve->core, what->device, &before);
	bool wanted = !what->undo && (!what->again || before.drain.on);
	if (!wanted) {
		gm_core_undrain(serve->core, what->device);
	} else if (gm_core_drain(serve->core, what->device, who->uid) < 0) {
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_HOST_MEMORY,
			"the daemon's ledger has no room for the drain; let clients return some leases");
		return;
	} else {
		asked = gm_clients_reclaim(serve->clients, what->device, true);
	}

	bool changed = wanted != before.drain.on;
	if (changed)
		gm_watch_drain(serve, who, what->device, !wanted);
	drain_answer(serve, peer, packet, changed, asked);
}
