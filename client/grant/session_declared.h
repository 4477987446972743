/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_GRANT_SESSION_DECLARED_H
#define GM_CLIENT_GRANT_SESSION_DECLARED_H

#include "client/session/gpumem_session.h"

/*
 * Memory that this process has the driver make, and that the session declares to the daemon, so that the
 * daemon charges it. The session and the daemon each keep one sum for each device. A request names the
 * difference, so requests of several threads do not disturb one another. A session that is resumed sends
 * its sums first: then both sides agree again, and the library can repeat unanswered requests. If the
 * daemon refuses such a sum, the part that it did not charge stays uncharged; the next request that
 * declares more asks for that part, too.
 *
 * device is an index, as in session->device[].
 */

/* Declares more, and waits for room if it has to. On success the memory may be made. wait_ms is as in
 * the options of a buffer. */
gpumem_status gm_session_declared_add(
	struct gpumem_session *session, uint32_t device, uint64_t bytes, uint32_t wait_ms);
/* Declares less. Never waits for an absent daemon, nor for another thread. Returns false if the session
 * has not declared so much. */
bool gm_session_declared_take(struct gpumem_session *session, uint32_t device, uint64_t bytes);
uint64_t gm_session_declared_sum(struct gpumem_session *session, uint32_t device);
/* Sends the sums over the connection on which the session is being resumed. Must be called before other
 * threads may send. If it fails, resuming must fail. */
gpumem_status gm_session_declared_resume(struct gpumem_session *session, struct gm_conn *via);
/* Tells the daemon of decreases that it was not told of yet. */
void gm_session_declared_flush(struct gpumem_session *session);

#endif
