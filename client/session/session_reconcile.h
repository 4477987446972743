/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_SESSION_SESSION_RECONCILE_H
#define GM_CLIENT_SESSION_SESSION_RECONCILE_H

#include "client/session/conn.h"
#include "client/session/gpumem_session.h"

/*
 * Finds what the daemon holds for this session but nobody here knows about, because the answer was
 * lost. The requests that are repeated may claim it; the rest is given back. leases is the daemon's
 * list. Must be called while the session is being resumed, before other threads may send. If it
 * fails, resuming must fail.
 */
gpumem_status gm_session_reconcile(
	struct gpumem_session *session, struct gm_conn *via, const uint64_t *leases, size_t n);

#endif
