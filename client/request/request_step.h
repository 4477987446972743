/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_REQUEST_REQUEST_STEP_H
#define GM_CLIENT_REQUEST_REQUEST_STEP_H

#include "client/session/gpumem_session.h"

/*
 * Does what can be done now to make requests ready. The library's thread calls it; while that thread is busy
 * with the program's event function, a thread in gpumem_request_wait() does.
 *
 * Returns when to call it again at the latest (CLOCK_MONOTONIC), or UINT64_MAX. It must also be called when
 * memory was freed, when the daemon has answered, and when the connection was lost or is back. If another thread
 * is in it, it returns at once.
 */
uint64_t gm_requests_step(struct gpumem_session *session);

#endif
