/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_SUPPLY_H
#define GM_CLIENT_SUPPLY_H

#include "client/session/gpumem_session.h"
#include "client/heap/source.h"

/* Where a device's heap gets its chunks from: one lease of the session, grown and shrunk chunk by
 * chunk; on the ipc transport one lease for each. As a source it never waits for room, whatever the
 * daemon is configured for: that is done outside the heap, and the chunks are offered to it. */
struct gm_supply;

/* 0; -ENOMEM. */
int gm_supply_new(
	struct gpumem_session *session, uint32_t device, bool ipc, struct gm_supply **ret_supply);
/* Without a message: the session's end gives back what is held. */
void gm_supply_free(struct gm_supply *supply);
struct gm_source gm_supply_source(struct gm_supply *supply);

struct gm_session_chunk;

/* Chunks that were waited for, on their way to the heap. */
struct gm_supply_offer {
	struct gm_supply *supply;
	struct gm_session_chunk *chunks; /* NULL: the heap has them */
	uint64_t bytes;
};
/* Asks the daemon for that much and waits for it; wait_ms as of gm_session_lease_take(). */
gpumem_status gm_supply_wait(struct gm_supply *supply, uint64_t bytes, uint64_t wait_ms,
	struct gm_supply_offer *ret_offer);
/* From here to the withdrawal the source gives this thread what is offered, and nothing else. */
void gm_supply_offer(struct gm_supply_offer *offer);
/* What the heap did not take goes back. */
void gm_supply_withdraw(struct gm_supply_offer *offer);

#endif
