/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_LEASE_REQUEST_PRIVATE_H
#define GM_LEASE_REQUEST_PRIVATE_H

#include "daemon/queue/queue.h"
#include "daemon/lease/session_private.h"

/* See gm_core_request(). */
void gm_request_submit(struct gm_core *core, struct gm_request *request);
/* GPUMEM_E_INVALID: no request is for so many bytes. */
gpumem_status gm_request_check_bytes(uint64_t bytes, char detail[GM_DETAIL_BYTES]);
/* Chooses the transport of a new lease that asks for one, or for AUTO. GPUMEM_E_INVALID: there is no such
 * transport. GPUMEM_E_UNSUPPORTED: the device does not have it. */
gpumem_status gm_request_pick_transport(const struct gm_device *device, enum gm_transport asked,
	enum gm_transport *ret_transport, char detail[GM_DETAIL_BYTES]);
/*
 * Says how gm_core_request() would answer a request for a new lease, and changes nothing. Its transport is chosen. GPUMEM_OK: it
 * would be granted at once. Otherwise detail says why not, and so does *ret_refusal; if its block is
 * GM_BLOCK_NONE, no memory would help. Does not look at how many leases the session has.
 */
gpumem_status gm_request_foresee(const struct gm_request *request, struct gm_device *device,
	struct gm_request_refusal *ret_refusal, char detail[GM_DETAIL_BYTES]);

#endif
