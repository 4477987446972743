/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_SERVE_SERVE_DISPATCH_H
#define GM_DAEMON_SERVE_SERVE_DISPATCH_H

#include "daemon/serve/serve.h"

/* gm_peer_ops.packet and .closed: lead a request to its handler, and tell every module that waits for a
 * peer that it has gone. ctx is the struct gm_serve. */
void gm_serve_dispatch_packet(void *ctx, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_serve_dispatch_closed(void *ctx, struct gm_peer *peer);

#endif
