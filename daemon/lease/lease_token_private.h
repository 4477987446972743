/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_LEASE_LEASE_TOKEN_PRIVATE_H
#define GM_LEASE_LEASE_TOKEN_PRIVATE_H

#include "daemon/lease/lease_token.h"
#include "daemon/lease/session_private.h"

/* Puts back a token that an earlier daemon made. -ENOMEM; -EEXIST: there is one with this hash. */
int gm_token_adopt(
	struct gm_lease *lease, uint64_t id, uint32_t place, const struct gm_record_share *record);
/* Makes the token with this hash, by the client's packet of this id. GPUMEM_E_HOST_MEMORY */
gpumem_status gm_token_make(struct gm_lease *lease, const struct gm_token_hash *hash,
	const struct gm_token_options *options, uint64_t asked);
/* Whether the session may have so many more. */
bool gm_token_has_room(const struct gm_session *session, uint64_t more);
/* Finds the share of a token by its hash. NULL: there is none. */
struct gm_token *gm_token_find(const struct gm_core *core, const struct gm_token_hash *hash);
void gm_token_end(struct gm_token *share);
/* Ends what the client's packet of this id shared of the lease. */
void gm_token_forget(struct gm_lease *lease, uint64_t asked);
/* Ends some tokens of a lease and counts them off. Its maker must still be set. */
void gm_token_end_some(struct gm_lease *lease, uint64_t *slice);
/* Ends every token of a lease whose maker still holds it. */
void gm_token_end_all(struct gm_lease *lease);
/* Whether a lease may be shared like that. */
gpumem_status gm_token_check(const struct gm_lease *lease, const struct gm_token_options *options,
	char detail[GM_DETAIL_BYTES]);
/* Whether the session belongs to the audience. */
bool gm_token_is_for(const struct gm_token_options *options, const struct gm_lease *lease,
	const struct gm_session *session, const gid_t *groups, size_t n_groups);

#endif
