/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_SHARE_BUFFER_SIGNAL_H
#define GM_CLIENT_SHARE_BUFFER_SIGNAL_H

#include "client/session/gpumem_session.h"

/*
 * Asks the daemon which makers of the opened buffers are gone, and releases all waits for the signals of those
 * buffers. For the library's thread. Returns when to call it again, or UINT64_MAX: not before the
 * session's makers_due is set, or the session was resumed.
 */
uint64_t gm_buffer_signal_settle(struct gpumem_session *session);

#endif
