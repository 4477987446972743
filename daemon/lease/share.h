/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_LEASE_SHARE_H
#define GM_LEASE_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "gpumem/status.h"
#include "common/limits.h"
#include "daemon/books/say.h"

/* Sharing a lease by token. */

struct gm_lease;
struct gm_session;

enum gm_audience { GM_AUDIENCE_DOMAIN, GM_AUDIENCE_UID, GM_AUDIENCE_GID };

struct gm_share_options {
	enum gm_audience audience;
	uint32_t id; /* uid or gid */
	bool read_only;
};
/*
 * Makes a token for a lease. Only the session that made the lease may do so: GPUMEM_E_DENIED.
 * Audiences beyond the trust domain need a lease that was made for others: GPUMEM_E_UNSUPPORTED.
 */
gpumem_status gm_lease_share(struct gm_session *session, struct gm_lease *lease,
	const struct gm_share_options *options, uint8_t ret_token[GM_TOKEN_BYTES]);
/* The same for the client's packet of this id. again: the packet may have been here before. The token
 * that it made then ends: the client never saw it, and nobody else can know it. */
gpumem_status gm_lease_share_by(struct gm_session *session, struct gm_lease *lease,
	const struct gm_share_options *options, uint64_t asked, bool again,
	uint8_t ret_token[GM_TOKEN_BYTES]);
/* Opens the lease of a token. An unknown token and the wrong audience look the same:
 * GPUMEM_E_NOT_FOUND. Opening it twice counts twice. */
gpumem_status gm_session_open(struct gm_session *session, const uint8_t token[GM_TOKEN_BYTES],
	const gid_t *groups, size_t n_groups, struct gm_lease **ret_lease);
/* The same for the client's packet of this id. again: the packet may have been here before, and if it
 * opened the lease then, it does not count twice. */
gpumem_status gm_session_open_by(struct gm_session *session, const uint8_t token[GM_TOKEN_BYTES],
	const gid_t *groups, size_t n_groups, uint64_t asked, bool again,
	struct gm_lease **ret_lease);
/* Say which bound was reached when one of these two returned GPUMEM_E_LIMIT. */
void gm_session_say_share_limit(const struct gm_session *session, char detail[GM_DETAIL_BYTES]);
void gm_session_say_open_limit(const struct gm_session *session, char detail[GM_DETAIL_BYTES]);
/* Ends all tokens of a lease. Sessions that opened it keep it. */
gpumem_status gm_lease_unshare(struct gm_session *session, struct gm_lease *lease);

#endif
