/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_SERVE_SESSION_H
#define GM_DAEMON_SERVE_SESSION_H

#include "daemon/serve/dispatch.h"

/* Requests that begin and end a session, and the devices it finds. */
void gm_serve_hello(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_serve_goodbye(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_serve_get_devices(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);

#endif
