/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_ADMIN_H
#define GM_DAEMON_ADMIN_H

#include "daemon/dispatch.h"

/*
 * Requests of gpumemctl. Everybody sees everybody's totals and the details of their own clients
 * (the same uid, in the same container); who may administer sees all, and alone may change things.
 * Long answers come in several packets.
 */
void gm_admin_get_status(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_admin_get_pools(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_admin_get_clients(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_admin_get_buffers(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_admin_trim(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_admin_get_config(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);

#endif
