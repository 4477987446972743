/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_RESUME_H
#define GM_CLIENT_RESUME_H

#include "client/session/gpumem_session.h"

/*
 * Tries once to take up a session whose connection ended. On success the session is up again and
 * *ret_events is the new event socket. *ret_resumed false: the daemon did not know the session any
 * more (it was started anew) and made another; what this process holds works on until it is freed,
 * but stands in no book, is not charged and cannot be shared.
 */
gpumem_status gm_resume(struct gpumem_session *session, int *ret_events, bool *ret_resumed);

#endif
