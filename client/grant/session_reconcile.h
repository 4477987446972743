/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_GRANT_SESSION_RECONCILE_H
#define GM_CLIENT_GRANT_SESSION_RECONCILE_H

#include "client/session/conn.h"
#include "client/session/gpumem_session.h"

/*
 * Finds memory that the daemon granted to this session and that nobody here knows about, because the
 * answer was lost. Repeated requests may claim it; the library gives the rest back. leases is the daemon's
 * list. Must be called while the session is being resumed, before other threads may send. If it
 * fails, resuming must fail.
 */
gpumem_status gm_session_reconcile(
	struct gpumem_session *session, struct gm_conn *via, const uint64_t *leases, size_t n);

#endif
