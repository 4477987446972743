/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_LEASE_REF_ENTRY_H
#define GM_LEASE_REF_ENTRY_H

#include "daemon/lease/lease_token.h"
#include "daemon/lease/session_private.h"

/* Opens a lease for a session that may, by the client's packet of this id. */
gpumem_status gm_token_open(struct gm_session *session, struct gm_lease *lease, bool read_only,
	uint64_t asked, struct gm_lease **ret_lease);

#endif
