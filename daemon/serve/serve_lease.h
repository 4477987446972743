/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_SERVE_LEASE_H
#define GM_DAEMON_SERVE_LEASE_H

#include "daemon/serve/serve.h"

/* Requests for memory, and returns. */
gm_serve_handler gm_serve_lease, gm_serve_grow, gm_serve_cancel, gm_serve_return,
	gm_serve_get_handles;

/* Asks core for memory on behalf of a client, and answers when core has decided. what has the device
 * and the bytes, and what else is to be granted. wait_ms, no_wait and again_of are as on the wire. */
void gm_serve_ask(struct gm_serve *serve, struct gm_peer *peer, uint64_t id,
	const struct gm_request *what, uint64_t wait_ms, bool no_wait, uint64_t again_of);
/* Answers with what the session has declared on the device now. */
void gm_serve_answer_declared(
	struct gm_peer *peer, uint64_t id, const struct gm_session *session, uint32_t device);

#endif
