/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens as core keeps them: SipHash-2-4 with a result of 128 bits, under a key drawn at the start.
 *
 * A token is 128 random bits, so guessing it is hopeless. What must not leak is how much of a guess
 * was right. A table keyed by the token itself would compare byte by byte, and its timing would
 * tell. In a table keyed by a hash under a secret key, a guess lands anywhere: the time of the
 * lookup says nothing about the token, and the comparison that decides takes equally long for any
 * two values. Because core keeps the hash and not the token, it also cannot print or copy a token
 * by mistake.
 *
 * The hash does not protect against somebody who reads the daemon's memory, with the key in it:
 * that reader has the handles of all memory anyway.
 */
#include "daemon/books/token_hash.h"

#include <endian.h>
#include <string.h>

static uint64_t token_hash_rotate(uint64_t x, int by)
{
	return x << by | x >> (64 - by);
}

static void token_hash_rounds(uint64_t v[4], int n)
{
	while (n-- > 0) {
		v[0] += v[1];
		v[1] = token_hash_rotate(v[1], 13) ^ v[0];
		v[0] = token_hash_rotate(v[0], 32);
		v[2] += v[3];
		v[3] = token_hash_rotate(v[3], 16) ^ v[2];
		v[0] += v[3];
		v[3] = token_hash_rotate(v[3], 21) ^ v[0];
		v[2] += v[1];
		v[1] = token_hash_rotate(v[1], 17) ^ v[2];
		v[2] = token_hash_rotate(v[2], 32);
	}
}

struct gm_token_hash gm_token_hash_make(
	const struct gm_token_hash_key *key, const uint8_t token[GM_TOKEN_BYTES])
{
	uint64_t v[4] = {
		key->k0 ^ UINT64_C(0x736f6d6570736575),
		key->k1 ^ UINT64_C(0x646f72616e646f6d) ^ 0xee,
		key->k0 ^ UINT64_C(0x6c7967656e657261),
		key->k1 ^ UINT64_C(0x7465646279746573),
	};
	for (size_t i = 0; i <= GM_TOKEN_BYTES; i += sizeof(uint64_t)) {
		uint64_t word = (uint64_t)GM_TOKEN_BYTES << 56;
		if (i < GM_TOKEN_BYTES) {
			memcpy(&word, token + i, sizeof(word));
			word = le64toh(word);
		}
		v[3] ^= word;
		token_hash_rounds(v, 2);
		v[0] ^= word;
	}
	struct gm_token_hash hash;
	v[2] ^= 0xee;
	token_hash_rounds(v, 4);
	hash.h[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
	v[1] ^= 0xdd;
	token_hash_rounds(v, 4);
	hash.h[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
	return hash;
}

struct gm_token_hash gm_token_hash_piece(
	const struct gm_token_hash_key *key, const uint8_t token[GM_TOKEN_BYTES], uint32_t index)
{
	struct gm_token_hash hash = gm_token_hash_make(key, token);
	uint8_t block[GM_TOKEN_BYTES];
	if (index == 0)
		return hash;

	hash.h[0] ^= index;
	memcpy(block, &hash, sizeof(block));
	return gm_token_hash_make(key, block);
}

struct gm_token_hash gm_token_hash_text(const struct gm_token_hash_key *key, const char *text)
{
	struct gm_token_hash hash = {{0, 0}};
	uint8_t block[GM_TOKEN_BYTES];
	_Static_assert(sizeof(block) == sizeof(hash), "each block is mixed with the last hash");

	for (size_t left = strlen(text) + 1; left > 0;) {
		size_t n = left < sizeof(block) ? left : sizeof(block);
		memcpy(block, &hash, sizeof(block));
		for (size_t i = 0; i < n; i++)
			block[i] ^= (uint8_t)text[i];
		hash = gm_token_hash_make(key, block);
		text += n;
		left -= n;
	}
	return hash;
}
