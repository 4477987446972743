/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_REQUEST_H
#define GM_CORE_REQUEST_H

#include "daemon/core/core.h"
#include "daemon/core/device.h"

/* Ends what a session has pending, as cancelled: all of it, or what grows one lease. */
void gm_request_cancel_all(struct gm_session *session);
void gm_request_cancel_grows(struct gm_session *session, struct gm_lease *lease);
/* A chunk that a request waits for is there, or is not to be had. */
void gm_request_created(struct gm_request *request, struct gm_chunk *chunk, int result);

/*
 * Charges a request that fits (gm_admit_now()), takes what is pooled and makes ready what is not.
 * Not linked yet. Otherwise nothing is held: GPUMEM_E_UNSUPPORTED, GPUMEM_E_LIMIT (chunks),
 * GPUMEM_E_HOST_MEMORY.
 */
gpumem_status gm_request_admit(
	struct gm_request *request, struct gm_device *device, char detail[GM_DETAIL_BYTES]);
/* Submits an admitted request, or ends it if nothing is missing. */
void gm_request_start(struct gm_request *request);
/* Ends a request that holds nothing and is in no list. */
void gm_request_refuse(struct gm_request *request, gpumem_status status, const char *detail);
/* Into and out of its session's pending ones. */
void gm_request_link(struct gm_request *request);
void gm_request_unlink(struct gm_request *request);

#endif
