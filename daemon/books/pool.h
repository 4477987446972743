/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_BOOKS_POOL_H
#define GM_BOOKS_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/clock.h"
#include "common/bounds.h"
#include "daemon/books/chunk.h"

/*
 * A device's free chunks, in buckets keyed by transport, size and trust domain. The pool knows
 * nothing of charges: its caller keeps the ledger.
 *
 * Putting, taking or evicting one chunk costs the same however many chunks, buckets and domains
 * there are. A bucket hands out the chunk that came last (its pages are warm). Eviction takes the
 * chunk that came first, from the domain that has not used the pool for longest.
 *
 * A domain does not push out what others use: while it has more than the average of all domains, its own chunks
 * make room for it, and otherwise those of others that have more. Chunks of a domain that has put none in for GM_POOL_UNUSED_NS have no such protection.
 *
 * A chunk that nobody took for decay_ns is due to be released. The reserve is not: as many fresh
 * chunks of each size as gm_pool_set_reserve() says.
 */
struct gm_pool_bucket;
struct gm_pool_domain;

#define GM_POOL_IDLE_DOMAINS 64
#define GM_POOL_UNUSED_NS    (60 * GM_NS_PER_S)

struct gm_pool {
	/* Takes ownership of every chunk that the pool releases. It is out of the pool by then. */
	void (*release)(void *ctx, struct gm_chunk *chunk);
	void *ctx;

	struct gm_pool_bucket *buckets; /* by key */
	struct gm_pool_domain *domains; /* by id */
	struct gm_pool_domain *busy;    /* with chunks, longest unused first; without fresh */
	struct gm_pool_domain *idle;    /* without chunks, longest unused first */
	struct gm_pool_domain *fresh;   /* NULL: no fresh chunk was ever here */
	size_t n_idle, n_busy;
	uint64_t put_at;           /* when the last chunk was put in */
	struct gm_chunk *decaying; /* oldest first; all chunks but the reserve */

	uint64_t max_bytes;      /* of all that is pooled */
	uint32_t max_per_bucket; /* chunks; 0: no bound */
	uint64_t decay_ns;       /* 0: chunks stay until their room is needed */
	uint32_t reserve[GM_CHUNK_CLASSES];

	uint64_t bytes, chunks, peak;
	/* In chunks: taken for a request; created for one because the pool had none; put in after
	 * use; released. */
	uint64_t hits, misses, returns, released;
};

void gm_pool_init(
	struct gm_pool *pool, void (*release)(void *ctx, struct gm_chunk *chunk), void *ctx);
/* The pool must be empty. */
void gm_pool_deinit(struct gm_pool *pool);

#define GM_POOL_E_FULL 1

/*
 * Puts a chunk in, for chunk->domain. If the pool is full, older chunks are released to make room, as
 * gm_pool_evict() does; but a fresh chunk is never released for a used one. GM_POOL_E_FULL: its bucket is full, or it
 * does not fit beside what other domains use. -ENOMEM: no memory for a bucket. On failure the caller keeps the chunk.
 */
int gm_pool_put(struct gm_pool *pool, struct gm_chunk *chunk, uint64_t now_ns);

uint64_t gm_pool_fresh_bytes(const struct gm_pool *pool);
/* How many chunks of this size a domain could take: its own and fresh ones. */
uint64_t gm_pool_count(
	const struct gm_pool *pool, enum gm_transport transport, uint64_t bytes, gm_domain domain);
/* Takes one of the domain's own used chunks, else a fresh one. Returns NULL if there is neither. */
struct gm_chunk *gm_pool_take(
	struct gm_pool *pool, enum gm_transport transport, uint64_t bytes, gm_domain domain);

/* Releases one chunk: of other domains first, then of the one to spare, fresh ones last. While the others use theirs, a domain
 * that has more than the average comes first, and then it is not spared, either. Returns false if there is none. */
bool gm_pool_evict(struct gm_pool *pool, gm_domain spare);
/* Releases chunks of at least so many bytes, or all. Returns the bytes released. */
uint64_t gm_pool_shrink(struct gm_pool *pool, uint64_t bytes, gm_domain spare);
uint64_t gm_pool_clear(struct gm_pool *pool);
/* What gm_pool_shrink() would release, sparing no domain. */
uint64_t gm_pool_shrinkable(const struct gm_pool *pool, uint64_t bytes);
/* Releases chunks that were put in before this time. Returns the bytes released. */
uint64_t gm_pool_clear_idle(struct gm_pool *pool, uint64_t before_ns);
/* Releases all used chunks: those that are not fresh. */
void gm_pool_clear_used(struct gm_pool *pool);
/* Sets new bounds and releases what is past them. */
void gm_pool_set_bounds(struct gm_pool *pool, uint64_t max_bytes, uint32_t max_per_bucket);
/* Sets how many fresh chunks of each size are the reserve, and releases fresh chunks beyond it. */
void gm_pool_set_reserve(struct gm_pool *pool, const uint32_t chunks[GM_CHUNK_CLASSES]);

/* When the next chunk is due to be released; UINT64_MAX: none is. */
uint64_t gm_pool_decay_due(const struct gm_pool *pool);
/* Releases chunks that are due: max_chunks at most, and no further one after max_bytes. Returns how
 * many. */
unsigned gm_pool_decay(
	struct gm_pool *pool, uint64_t now_ns, unsigned max_chunks, uint64_t max_bytes);

struct gm_pool_bucket_info {
	enum gm_transport transport;
	uint64_t chunk_bytes;
	gm_domain domain;
	uint64_t chunks;
	uint64_t oldest_ns; /* how long the oldest one has been in the pool */
	uint64_t decay_ns;  /* until the next one of them decays; UINT64_MAX: never */
};
void gm_pool_each(const struct gm_pool *pool, uint64_t now_ns,
	void (*visit)(void *ctx, const struct gm_pool_bucket_info *bucket), void *ctx);

#endif
