/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_LISTENER_H
#define GM_DAEMON_LISTENER_H

#include <stdint.h>
#include <uv.h>

#include "daemon/net/peer.h"

/*
 * Takes connections and counts them: GM_LIMIT_CONNECTIONS in all, and a bound per uid, so that one
 * user cannot keep the others out. Whoever is refused is told why before the connection is closed.
 */
struct gm_listener;

/* socket stays the caller's. ops and ctx are those of every peer. */
int gm_listener_new(struct gm_hub *hub, int socket, const struct gm_peer_ops *ops, void *ctx,
	struct gm_listener **ret_listener);
/* May change on reload, for connections from now on. */
void gm_listener_set_bounds(struct gm_listener *listener, uint32_t per_uid, uint64_t hello_ms);
/* Takes no further connections. */
void gm_listener_stop(struct gm_listener *listener);
/* Closes all connections and itself; the memory goes when the loop has closed them. NULL is fine.
 */
void gm_listener_close(struct gm_listener *listener);

#endif
