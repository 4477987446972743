/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_LISTENER_H
#define GM_DAEMON_LISTENER_H

#include <stdint.h>
#include <uv.h>

#include "daemon/net/peer.h"

/*
 * Accepts connections and counts them: a bound for all and one per uid, so that one user cannot keep
 * the others out. Nor can several: at the bound for all, a user without a connection gets the place
 * of one that has no session, of the user that has most. A client that is refused is told why before
 * the connection is closed.
 *
 * The administrators' listener has its own socket, so its own backlog, and its own bound. It keeps
 * descriptors in reserve, which let an administrator in when everybody else has used up the rest.
 */
struct gm_listener;

/* The caller keeps the socket. Every peer gets ops and ctx. */
int gm_listener_new(struct gm_hub *hub, int socket, const struct gm_peer_ops *ops, void *ctx,
	struct gm_listener **ret_listener);
/* The same for administrators: admits() decides who is one. */
int gm_listener_new_admin(struct gm_hub *hub, int socket, const struct gm_peer_ops *ops, void *ctx,
	bool (*admits)(void *ctx, const struct gm_identity *identity),
	struct gm_listener **ret_listener);
/* Sets the bounds for connections from now on; those for administrators have their own most and
 * per_uid. listener may be NULL. */
void gm_listener_set_bounds(
	struct gm_listener *listener, uint32_t most, uint32_t per_uid, uint64_t hello_ms);
/* Closes all connections and the listener. The loop frees the memory when it has closed the
 * handles. listener may be NULL. */
void gm_listener_close(struct gm_listener *listener);

#endif
