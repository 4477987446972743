/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_REQUEST_H
#define GM_CORE_REQUEST_H

#include "daemon/core/core.h"

/* Ends what a session has pending, as cancelled: all of it, or what grows one lease. */
void gm_request_cancel_all(struct gm_session *session);
void gm_request_cancel_grows(struct gm_session *session, struct gm_lease *lease);
/* A chunk that a request waits for is there, or is not to be had. */
void gm_request_created(struct gm_request *request, struct gm_chunk *chunk, int result);

#endif
