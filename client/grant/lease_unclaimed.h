/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_GRANT_LEASE_UNCLAIMED_H
#define GM_CLIENT_GRANT_LEASE_UNCLAIMED_H

#include "client/grant/lease_returns.h"

/*
 * Memory that the daemon granted while the connection ended, so that no answer named it. After the
 * session is resumed, the library repeats the requests that were under way, and their answers claim what
 * belongs to them. When all of them have ended, the library gives back what is left.
 *
 * A request that asks for memory is between gm_lease_unclaimed_begin() and gm_lease_unclaimed_end() from before
 * it is sent until its answer has claimed everything.
 */
struct gm_lease_unclaimed_ask {
	uint64_t resumes; /* how often the session had been resumed */
};
void gm_lease_unclaimed_begin(struct gpumem_session *session, struct gm_lease_unclaimed_ask *ask);
void gm_lease_unclaimed_end(
	struct gpumem_session *session, const struct gm_lease_unclaimed_ask *ask);

/* The session is being resumed, and the list is what the daemon has and nobody here knows about.
 * Takes ownership of the list. Every request that is under way now may claim from it. */
void gm_lease_unclaimed_resumed(struct gpumem_session *session, struct gm_lease_return_item *list);
/* Adds what a request got before its connection ended. Only for a request that is under way. Takes
 * ownership of the list. */
void gm_lease_unclaimed_add(struct gpumem_session *session, struct gm_lease_return_item *list);
bool gm_lease_unclaimed_any(struct gpumem_session *session);
/* An answer brought a chunk, or a whole lease if chunk is 0. */
void gm_lease_unclaimed_claim(struct gpumem_session *session, uint64_t lease, uint64_t chunk);
/* Sends nothing: the session ends. */
void gm_lease_unclaimed_drop(struct gpumem_session *session);

#endif
