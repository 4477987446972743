/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_BOOKS_HASH_TABLE_H
#define GM_BOOKS_HASH_TABLE_H

/*
 * uthash as core uses it: an insertion for which there is no memory leaves the table as it was
 * instead of ending the daemon. A .c file that uses a table must include this header before any
 * other that may include uthash.
 *
 * A table grows by doubling its buckets, so an insertion costs the same on average however many
 * items there are. The keys are ids and keyed hashes that the daemon makes, and uids, so no client can
 * choose keys that collide. Therefore the hash function is a quick one. Where a client can choose a part
 * of the key, the table must be given a keyed hash instead, as that of owners is (gm_owner_hash()).
 */
#if defined(UTHASH_H) && !HASH_NONFATAL_OOM
#error "include daemon/books/hash_table.h first"
#endif
#define HASH_NONFATAL_OOM 1

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Multiplies by an odd number near 2^64 divided by the golden ratio, and keeps the upper bits, which
 * depend on all bits of the key. */
static inline uint32_t gm_table_hash(const void *key, size_t n)
{
	const unsigned char *bytes = key;
	uint64_t hash = 0, word;
	for (; n >= sizeof(word); n -= sizeof(word), bytes += sizeof(word)) {
		memcpy(&word, bytes, sizeof(word));
		hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		hash ^= hash >> 29;
	}
	if (n) {
		word = 0;
		memcpy(&word, bytes, n);
		hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		hash ^= hash >> 29;
	}
	return (uint32_t)(hash >> 32);
}
#define HASH_FUNCTION(key, n, value) (value) = gm_table_hash(key, n)

#include <uthash.h>
#include <utlist.h>

/* After HASH_ADD: whether the item is in the table. */
#define GM_TABLE_ADDED(item) ((item)->hh.tbl != NULL)

#endif
