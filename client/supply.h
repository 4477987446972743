/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_SUPPLY_H
#define GM_CLIENT_SUPPLY_H

#include "client/session.h"
#include "client/source.h"

/* Where a device's heap gets its chunks from: one lease of the session, grown and shrunk chunk by
 * chunk; on the ipc transport one lease for each. */
struct gm_supply;

/* 0; -ENOMEM. */
int gm_supply_new(
	struct gpumem_session *session, uint32_t device, bool ipc, struct gm_supply **ret_supply);
/* Without a message: the session's end gives back what is held. */
void gm_supply_free(struct gm_supply *supply);
struct gm_source gm_supply_source(struct gm_supply *supply);

#endif
