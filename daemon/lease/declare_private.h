/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_LEASE_DECLARE_PRIVATE_H
#define GM_LEASE_DECLARE_PRIVATE_H

#include "daemon/lease/declare.h"
#include "daemon/lease/session_private.h"

/* What a request does that declares memory. */
extern const struct gm_request_calls gm_declare_calls;
/* The session ends, and with it all that it declared. */
void gm_declare_end(struct gm_session *session);
/* Puts back what was declared to an earlier daemon. Returns false if it cannot be. */
bool gm_declare_adopt(
	struct gm_session *session, uint32_t place, const struct gm_record_declared *record);
/* Finds out how much of what was declared on the device the last count shows. The orphaned mappings of that count must have been
 * worked out before. */
void gm_declare_count(struct gm_device *device);

#endif
