/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_SESSION_DECLARED_H
#define GM_CLIENT_SESSION_DECLARED_H

#include "client/session/gpumem_session.h"

/*
 * What the session has declared: memory that this process has the driver make. Both sides keep one sum
 * for each device. A request says how much more or less it is, so requests of several threads do not
 * disturb one another. A session that is resumed says its sums first: then both sides agree again, and
 * requests that were unanswered can be repeated. If the daemon refuses a sum, the rest stays uncharged
 * until something more is declared, which then asks for all of it.
 *
 * device is an index, as in session->device[].
 */

/* Declares more, and waits for room if it has to. On success the memory may be made. wait_ms is as in
 * the options of a buffer. */
gpumem_status gm_declared_add(
	struct gpumem_session *session, uint32_t device, uint64_t bytes, uint32_t wait_ms);
/* Declares less. Never waits for an absent daemon, nor for another thread. Returns false if the session
 * has not declared so much. */
bool gm_declared_take(struct gpumem_session *session, uint32_t device, uint64_t bytes);
uint64_t gm_declared_sum(struct gpumem_session *session, uint32_t device);
/* Says the sums on the connection on which the session is being resumed. Must be called before other
 * threads may send. If it fails, resuming must fail. */
gpumem_status gm_declared_resume(struct gpumem_session *session, struct gm_conn *via);
/* Tells the daemon what it could not be told before. */
void gm_declared_flush(struct gpumem_session *session);

#endif
