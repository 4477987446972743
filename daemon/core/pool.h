/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_POOL_H
#define GM_CORE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"
#include "daemon/core/chunk.h"

/*
 * A device's free chunks, in buckets keyed by transport, size and trust domain. Knows nothing of
 * charges: whoever puts a chunk in or takes one out keeps the ledger.
 *
 * Putting, taking and evicting one chunk cost the same however many chunks, buckets and domains
 * there are. A bucket gives back what came last (its pages are warm), eviction takes what came
 * first, from the domain that used the pool longest ago.
 */
struct gm_pool_bucket;
struct gm_pool_domain;

#define GM_POOL_IDLE_DOMAINS 64

struct gm_pool {
	/* Gets every chunk that the pool decides to part with. It is out of the pool by then. */
	void (*release)(void *ctx, struct gm_chunk *chunk);
	void *ctx;

	struct gm_pool_bucket *buckets; /* by key */
	struct gm_pool_domain *domains; /* by id */
	struct gm_pool_domain *busy;    /* those with chunks, longest unused first, without fresh */
	struct gm_pool_domain *idle;    /* those without: kept for a while, so that the next chunk
					   needs no memory */
	struct gm_pool_domain *fresh;   /* NULL: nothing fresh was ever here */
	size_t n_idle;

	uint64_t max_bytes;      /* of all that is pooled */
	uint32_t max_per_bucket; /* chunks; 0: no bound */

	uint64_t bytes, chunks, peak;
	/* In chunks: taken for a request; created for one because there was none; put in after use;
	 * parted with. */
	uint64_t hits, misses, returns, released;
};

void gm_pool_init(
	struct gm_pool *pool, void (*release)(void *ctx, struct gm_chunk *chunk), void *ctx);
/* Asserts that it is empty (clear it before). */
void gm_pool_deinit(struct gm_pool *pool);

#define GM_POOL_E_FULL 1

/*
 * Puts a chunk in, for chunk->domain. When the pool is at its size, what is idle longest makes
 * room; fresh chunks do not make room for used ones. GM_POOL_E_FULL: its bucket is full, or it does
 * not fit; -ENOMEM: no memory for a bucket. Either way the chunk stays the caller's.
 */
int gm_pool_put(struct gm_pool *pool, struct gm_chunk *chunk, uint64_t now_ns);

/* How many chunks of that size a domain could take: its own and fresh ones. */
uint64_t gm_pool_count(
	const struct gm_pool *pool, enum gm_transport transport, uint64_t bytes, gm_domain domain);
/* One of the domain's own used chunks, else a fresh one, else NULL. */
struct gm_chunk *gm_pool_take(
	struct gm_pool *pool, enum gm_transport transport, uint64_t bytes, gm_domain domain);

/* Parts with one chunk: of other domains first, then of the one given, fresh ones last. false:
 * there is none. */
bool gm_pool_evict(struct gm_pool *pool, gm_domain spare);
/* Parts with chunks of that many bytes at least, or with all. Bytes released. */
uint64_t gm_pool_shrink(struct gm_pool *pool, uint64_t bytes, gm_domain spare);
uint64_t gm_pool_clear(struct gm_pool *pool);
/* What gm_pool_shrink(), sparing nobody, would release. */
uint64_t gm_pool_shrinkable(const struct gm_pool *pool, uint64_t bytes);
/* Parts with what was put in before that time, of the domain longest unused first. Bytes released.
 */
uint64_t gm_pool_clear_idle(struct gm_pool *pool, uint64_t before_ns);
/* Parts with everything that was used. */
void gm_pool_clear_used(struct gm_pool *pool);
/* New bounds; what is past them goes. */
void gm_pool_set_bounds(struct gm_pool *pool, uint64_t max_bytes, uint32_t max_per_bucket);

struct gm_pool_bucket_info {
	enum gm_transport transport;
	uint64_t chunk_bytes;
	gm_domain domain;
	uint64_t chunks;
	uint64_t oldest_ns; /* how long the oldest one has been in the pool */
};
void gm_pool_each(const struct gm_pool *pool, uint64_t now_ns,
	void (*visit)(void *ctx, const struct gm_pool_bucket_info *bucket), void *ctx);

#endif
