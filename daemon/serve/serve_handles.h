/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_SERVE_HANDLES_H
#define GM_DAEMON_SERVE_HANDLES_H

#include "daemon/serve/serve.h"

/* The leases of a client, and their handles. For serve_lease.c and serve_share.c. */

/* The session of a peer that has one. */
struct gm_session *gm_serve_session_of(const struct gm_peer *peer);
/* Returns the lease that a request names, or NULL with the refusal sent. */
struct gm_lease *gm_serve_find_lease(struct gm_peer *peer, uint64_t id, uint64_t name);
/*
 * Answers with the chunks of a lease from index from to index to, without to itself. opening: the
 * answer is about a lease that the client has just opened; if it fails, the client's view ends with
 * it. Returns false if the daemon is out of memory.
 */
bool gm_serve_send_handles(struct gm_serve *serve, struct gm_peer *peer, uint64_t id,
	uint64_t lease, uint64_t from, uint64_t to, bool opening);

#endif
