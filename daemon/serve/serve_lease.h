/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_SERVE_LEASE_H
#define GM_DAEMON_SERVE_LEASE_H

#include "daemon/serve/dispatch.h"

/* Requests about leases and sharing: the wire's words to core's and back. */
void gm_serve_lease(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_serve_grow(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_serve_cancel(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_serve_return(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_serve_get_handles(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_serve_share(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_serve_open(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_serve_unshare(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);

#endif
