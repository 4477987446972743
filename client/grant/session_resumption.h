/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_GRANT_SESSION_RESUMPTION_H
#define GM_CLIENT_GRANT_SESSION_RESUMPTION_H

#include "client/session/gpumem_session.h"

/*
 * Tries once to resume a session whose connection ended. Only one thread may do so at a time. On
 * success the session is up again.
 *
 * If the session's field resumed is false then, the daemon was restarted, did not know the session
 * any more, and made a new one. What this process holds keeps working until it is freed, but the
 * daemon does not know about it: it is not charged and cannot be shared.
 */
gpumem_status gm_session_resumption(struct gpumem_session *session);

#endif
