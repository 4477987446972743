/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_RETURNS_H
#define GM_CLIENT_RETURNS_H

#include <stdint.h>

#include "client/session/gpumem_session.h"

/*
 * Something the daemon granted that is to go back: a chunk of a lease, or a whole lease (chunk 0).
 * It is the first member of whatever described it while it was held, so that giving back needs no
 * memory; freeing it frees that.
 */
struct gm_held {
	struct gm_held *next;
	uint64_t lease;
	uint64_t chunk;
	uint64_t epoch;
};

/*
 * Gives a list back, all of it unmapped in this process. Takes the list, in any case: what the
 * daemon cannot take now is kept and goes later; what it knows nothing of is let go. via: as of
 * gm_session_call().
 */
void gm_returns_send(struct gpumem_session *session, struct gm_conn *via, struct gm_held *list);
/* Keeps a list for later, without a message. */
void gm_returns_keep(struct gpumem_session *session, struct gm_held *list);
/* Sends what was kept. true: something is kept still. */
bool gm_returns_flush(struct gpumem_session *session, struct gm_conn *via);
/* Lets go of what was kept, without a message: the session ends. */
void gm_returns_drop(struct gpumem_session *session);

#endif
