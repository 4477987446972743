/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_BOOKS_TOKEN_HASH_H
#define GM_BOOKS_TOKEN_HASH_H

#include <stdint.h>

#include "common/bounds.h"

/* What core keeps of a token: its keyed hash. The token opens a lease or a session; the hash is
 * worth nothing without the key. */

struct gm_token_hash_key {
	uint64_t k0, k1;
};

struct gm_token_hash {
	uint64_t h[2];
};

struct gm_token_hash gm_token_hash_make(
	const struct gm_token_hash_key *key, const uint8_t token[GM_TOKEN_BYTES]);
/* The same for one of several leases that share a token. index 0: as gm_token_hash_make(). */
struct gm_token_hash gm_token_hash_piece(
	const struct gm_token_hash_key *key, const uint8_t token[GM_TOKEN_BYTES], uint32_t index);
/* The same for a text. A client that chooses texts cannot find two with the same hash. */
struct gm_token_hash gm_token_hash_text(const struct gm_token_hash_key *key, const char *text);

#endif
