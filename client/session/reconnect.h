/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_SESSION_RECONNECT_H
#define GM_CLIENT_SESSION_RECONNECT_H

#include "client/session/gpumem_session.h"

/*
 * The absence of the daemon: when it begins, who ends it by resuming the session and when, and how
 * requests wait for its end. session_resumption.c knows how a session is resumed.
 */

/* First delay between two tries to reach the daemon, in ns. The longest one is about a second. */
#define GM_RECONNECT_FIRST_NS (15 * GM_NS_PER_MS)
/* A try has failed, or the connection was lost: delays the next try. A session never tries in a busy loop, and a thousand
 * sessions that lost the daemon at the same moment do not all come back at the same moment. */
void gm_reconnect_back_off(struct gm_backoff *backoff, uint64_t now_ns);

/* Whether the daemon is away, as far as this process knows. */
bool gm_reconnect_now(struct gpumem_session *session);
/* GPUMEM_E_DISCONNECTED, with the sentence for a request that did not wait for the daemon. */
gpumem_status gm_reconnect_error(struct gpumem_session *session);
/* Call when the connection has ended: its calls return, and the session is away. Any thread may call it, more
 * than once. */
void gm_reconnect_begin(struct gpumem_session *session, struct gm_conn *conn, const char *reason);
/* When the session should be resumed, or UINT64_MAX if it is up or another thread is trying. */
uint64_t gm_reconnect_retry_at(struct gpumem_session *session);
/* Tries to resume the session, if it is time. */
void gm_reconnect_retry(struct gpumem_session *session);
/* For the end of the session: ends a try to resume it, and every wait for the daemon, now and later. */
void gm_reconnect_stop_retrying(struct gpumem_session *session);
/* Says whether the library's thread is busy with the program's event function. */
void gm_reconnect_set_busy(struct gpumem_session *session, bool busy);

/* Gets a reference to the connection, and the session's epoch. If the daemon is away, waits for it until
 * end_ns, and looks meanwhile; look may be NULL. Fails with GPUMEM_E_CANCELLED if the look returned 0, or
 * GPUMEM_E_DISCONNECTED, and leaves the sentence. */
gpumem_status gm_reconnect_get_conn(struct gpumem_session *session, uint64_t end_ns,
	struct gm_wait_look *look, struct gm_conn **ret_conn, uint64_t *ret_epoch);

#endif
