/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drains a device for an administrator, or ends that. The answer comes at once: whoever wants the
 * device empty asks again until it is.
 */
#include <errno.h>

#include "daemon/serve/admin_reclaim.h"
#include "daemon/serve/handlers.h"
#include "daemon/serve/watch.h"
#include "daemon/tenant/client_news.h"

struct drain_job {
	struct gm_admin_reclaim job;
	Gm__Wire__Drain what;
	bool changed;
	uint64_t asked;
};

static int drain_slice(struct gm_admin_reclaim *job, struct gm_peer *peer)
{
	struct drain_job *drain = (struct drain_job *)job;
	struct gm_serve *serve = job->head.serve;
	const struct gm_identity *who = gm_peer_identity(peer);
	struct gm_device_figures before;

	gm_core_device_figures(serve->core, job->device, &before);
	bool wanted = !drain->what.undo && (!drain->what.again || before.drain.on);
	if (!wanted) {
		gm_core_undrain(serve->core, job->device);
	} else if (gm_core_drain(serve->core, job->device, who->uid) < 0) {
		gm_peer_send_failure(peer, job->head.stream.id, GPUMEM_E_HOST_MEMORY,
			"the daemon's ledger has no room for the drain; let clients return some leases");
		return -ENOMEM;
	} else {
		drain->asked = gm_clients_reclaim(serve->clients, job->device, true);
	}

	drain->changed = wanted != before.drain.on;
	if (drain->changed)
		gm_watch_drain(serve, who, job->device, !wanted);
	return 0;
}

static int drain_tell(struct gm_admin_reclaim *job, struct gm_peer *peer)
{
	const struct drain_job *drain = (struct drain_job *)job;
	Gm__Wire__DrainReply reply = GM__WIRE__DRAIN_REPLY__INIT;
	struct gm_device_figures figures;

	gm_core_device_figures(job->head.serve->core, job->device, &figures);
	reply.drained = figures.drain.on;
	reply.changed = drain->changed;
	reply.clients_asked = drain->asked;
	reply.held = figures.leased + figures.quarantined + figures.admitted + figures.declared;
	reply.going = figures.pooled + figures.dying;
	return gm_answer_emit(
		&job->head.stream, peer, false, GM__WIRE__PACKET__BODY_DRAIN_REPLY, &reply);
}

void gm_admin_drain(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	static const struct gm_admin_reclaim_way way = {.slice = drain_slice, .tell = drain_tell};
	uint32_t device = packet->drain->device;

	if (!gm_serve_require_admin(serve, peer, packet->id, "draining a device") ||
		!gm_serve_require_device(serve, peer, packet->id, device))
		return;

	struct drain_job *drain =
		gm_admin_reclaim_new(serve, peer, packet->id, &way, device, sizeof(*drain));
	if (!drain)
		return;
	drain->what = *packet->drain;
	gm_admin_reclaim_start(&drain->job, 0);
}
