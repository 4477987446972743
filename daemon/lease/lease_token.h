/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_LEASE_LEASE_TOKEN_H
#define GM_LEASE_LEASE_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "gpumem/status.h"
#include "common/bounds.h"
#include "daemon/books/text_say.h"
#include "daemon/lease/name_audience.h"

/* Sharing a lease by token. */

struct gm_lease;
struct gm_session;

/*
 * Makes a token for a lease. Only the session that made the lease may do so: GPUMEM_E_DENIED.
 * Audiences beyond the trust domain need a lease that was made for others: GPUMEM_E_UNSUPPORTED.
 */
gpumem_status gm_lease_share(struct gm_session *session, struct gm_lease *lease,
	const struct gm_token_options *options, uint8_t ret_token[GM_TOKEN_BYTES]);
/* The same for the client's packet of this id. again: the packet may have been here before. The token
 * that it made then ends: the client never saw it, and nobody else can know it. */
gpumem_status gm_lease_share_by(struct gm_session *session, struct gm_lease *lease,
	const struct gm_token_options *options, uint64_t asked, bool again,
	uint8_t ret_token[GM_TOKEN_BYTES]);
/* Opens the lease of a token. An unknown token and the wrong audience look the same:
 * GPUMEM_E_NOT_FOUND. Opening it twice counts twice. */
gpumem_status gm_session_open(struct gm_session *session, const uint8_t token[GM_TOKEN_BYTES],
	const gid_t *groups, size_t n_groups, struct gm_lease **ret_lease);
/* The same for the client's packet of this id. again: the packet may have been here before, and if it
 * opened the lease then, it does not count twice. index: which chunk of a token for several. */
gpumem_status gm_session_open_by(struct gm_session *session, const uint8_t token[GM_TOKEN_BYTES],
	uint32_t index, const gid_t *groups, size_t n_groups, uint64_t asked, bool again,
	struct gm_lease **ret_lease);
/* Say which bound was reached when one of these two returned GPUMEM_E_LIMIT. */
void gm_session_say_share_limit(const struct gm_session *session, char detail[GM_DETAIL_BYTES]);
void gm_session_say_open_limit(const struct gm_session *session, char detail[GM_DETAIL_BYTES]);
/* Ends all tokens of a lease. Sessions that opened it keep it. */
gpumem_status gm_lease_unshare(struct gm_session *session, struct gm_lease *lease);

/*
 * Sharing chunks: piece.c. The heap of a client has one lease with very many chunks, and its
 * allocations lie in some of them, which need not be neighbours in the lease. So a chunk that is to be
 * shared leaves that lease and becomes a lease of its own: it is opened, counted, kept and returned as
 * any other, and the maker goes on using it where it is mapped. One token stands for a sequence of such
 * leases; an opener names each by its index. A chunk may be under several tokens.
 */
struct gm_token_chunks {
	const uint64_t *leases,
		*chunks; /* chunk 0: the lease has one chunk and is shared as it is */
	size_t n;
	uint32_t first; /* the index of the first; not 0: the token is there already */
	uint64_t asked; /* the id of the packet */
	bool again;     /* the packet may have been here before */
	/* Progress of gm_session_share_some(): 0 at first. */
	bool begun;
	size_t n_split, n_shared;
};
/* At most this many at a time. */
#define GM_TOKEN_CHUNKS_MOST 256
/* Number of chunks that are split, shared or unshared in one go: some 10 microseconds' work. */
#define GM_TOKEN_SLICE 4
/*
 * Shares some chunks of leases that the session made with its trust domain. Returns whether there is more to do; if not,
 * *ret_status is the result. Between two calls, the session may do anything. token: with first 0 the result, else that of
 * the first. A result other than GPUMEM_OK comes with its detail:
 *   GPUMEM_E_NOT_FOUND  A chunk is not in its lease, or the session did not make the token, or has ended it.
 *   GPUMEM_E_BUSY       A lease of several chunks is shared itself.
 *   GPUMEM_E_LIMIT, GPUMEM_E_HOST_MEMORY
 * Nothing is shared then, but some chunks may have become leases: ret_leases has the lease of each
 * chunk in any case, and 0 where that is not known.
 */
bool gm_session_share_some(struct gm_session *session, struct gm_token_chunks *what,
	uint8_t token[GM_TOKEN_BYTES], uint64_t *ret_leases, gpumem_status *ret_status,
	char detail[GM_DETAIL_BYTES]);
/* Returns a chunk that became a lease of its own, and that the session still names by its index in the lease where it
 * was before (origin). GPUMEM_E_NOT_FOUND: the chunk has not left that lease, or has come back since, or the session
 * knows the lease that it is in. */
gpumem_status gm_session_return_piece(
	struct gm_session *session, uint64_t origin, uint64_t id, uint64_t index);
/* Ends some chunks of a token of n chunks that the session made, from *at on, which it moves. Returns whether there is more
 * to do. Sessions that opened them keep them. */
bool gm_session_unshare_some(
	struct gm_session *session, const uint8_t token[GM_TOKEN_BYTES], uint32_t *at, uint32_t n);

#endif
