/* SPDX-License-Identifier: Apache-2.0 */
/* Ends the daemon for an administrator. The broker does it, once this request is answered. */
#include "daemon/serve/admin_stop.h"

#include "common/log.h"

void gm_admin_stop(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	bool forget = packet->stop->forget;

	if (!gm_serve_require_admin(serve, peer, packet->id, "stopping the daemon"))
		return;
	gm_peer_log(peer, GM_LOG_NOTICE,
		forget ? "stops the daemon, and all memory ends with it" : "stops the daemon");
	gm_peer_send_done(peer, packet->id);
	serve->stop(serve->ctx, forget);
}
