/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the configuration again for an administrator, and says what became of it. The broker does it. */
#include "daemon/serve/admin_reload.h"

#include "common/log.h"

void gm_admin_reload(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	char detail[GM_DETAIL_BYTES];

	if (!gm_serve_require_admin(serve, peer, packet->id, "a reload"))
		return;
	gm_peer_log(peer, GM_LOG_INFO, "reloads the configuration");
	gm_serve_answer_status(peer, packet->id,
		serve->reload(serve->ctx, detail) ? GPUMEM_OK : GPUMEM_E_INVALID, detail);
}
