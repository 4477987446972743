/* SPDX-License-Identifier: Apache-2.0 */
/* Administrators stop the daemon, or make it reload. These functions check who asks, let the broker do it, and answer. */
#include "daemon/serve/admin_daemon.h"

#include "common/log.h"

void gm_admin_stop(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	bool forget = packet->stop->forget;

	if (!gm_serve_require_admin(serve, peer, packet->id, "stopping the daemon"))
		return;
	gm_peer_log(peer, GM_LOG_NOTICE,
		forget ? "stops the daemon, and all memory ends with it" : "stops the daemon");
	/* Before the daemon ends. */
	gm_peer_send_done(peer, packet->id);
	serve->stop(serve->ctx, forget);
}

void gm_admin_reload(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	char detail[GM_DETAIL_BYTES];

	if (!gm_serve_require_admin(serve, peer, packet->id, "a reload"))
		return;
	gm_peer_log(peer, GM_LOG_INFO, "reloads the configuration");
	if (!serve->reload(serve->ctx, detail)) {
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_INVALID, detail);
		return;
	}

	Gm__Wire__Done done = GM__WIRE__DONE__INIT;
	Gm__Wire__Packet answer = GM_WIRE_PACKET(DONE, done, &done);
	answer.id = packet->id;
	done.after_restart = detail;
	gm_peer_send(peer, &answer);
}
