/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_ADMIN_LIMITS_H
#define GM_DAEMON_ADMIN_LIMITS_H

#include "daemon/serve/dispatch.h"

/* Requests about limits and the queue. */
void gm_admin_get_limits(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_admin_set_limit(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_admin_reset_limit(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_admin_get_queue(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);

/* The configuration's limits, as core wants them, and the policies it makes for the devices (NULL:
 * they have them already). On failure detail says what contradicts what, and nothing changed. */
gpumem_status gm_admin_configure(struct gm_core *core, const struct gm_config *config,
	const struct gm_policy *policies, char detail[GM_DETAIL_BYTES]);

#endif
