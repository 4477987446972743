/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool: chunks that nobody is charged for, ready for the next request. It promises that a used
 * chunk is taken only for the trust domain that used it, that its bounds hold at every return, and
 * that an operation on one chunk costs the same whatever else the pool holds. It must never lose a
 * chunk: each one goes to release(), or to the caller that takes it.
 *
 * A domain without pooled chunks is remembered for a while, so that taking and returning one chunk
 * in turn needs no memory. GM_POOL_IDLE_DOMAINS of them are kept; the one that has not been used
 * for longest is forgotten first.
 */
#include "daemon/books/hash_table.h"
#include "daemon/books/pool.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/arith.h"

/* A size is whole 2 MiB, so the transport fits into its low bits: that halves the key to hash. */
struct pool_key {
	uint64_t kind; /* size | transport */
	gm_domain domain;
};

struct gm_pool_bucket {
	struct pool_key key;
	struct gm_pool_domain *domain;
	struct gm_chunk *chunks; /* newest first */
	uint64_t n;
	struct gm_pool_bucket *prev, *next; /* of its domain */
	UT_hash_handle hh;
};

struct gm_pool_domain {
	gm_domain id;
	uint64_t bytes;
	struct gm_chunk *by_age; /* oldest first */
	struct gm_pool_bucket *buckets;
	struct gm_pool_domain *prev, *next; /* of busy or idle */
	UT_hash_handle hh;
};

_Static_assert(sizeof(struct pool_key) == 16, "a key without padding can be hashed as it is");

void gm_pool_init(
	struct gm_pool *pool, void (*release)(void *ctx, struct gm_chunk *chunk), void *ctx)
{
	memset(pool, 0, sizeof(*pool));
	pool->release = release;
	pool->ctx = ctx;
	pool->max_bytes = UINT64_MAX;
}

/* ---- domains */

static void pool_domain_list_remove(struct gm_pool *pool, struct gm_pool_domain *domain)
{
	if (domain == pool->fresh)
		return;
	if (domain->by_age) {
		DL_DELETE(pool->busy, domain);
		pool->n_busy--;
	} else {
		DL_DELETE(pool->idle, domain);
		pool->n_idle--;
	}
}

static void pool_domain_free(struct gm_pool *pool, struct gm_pool_domain *domain)
{
	struct gm_pool_bucket *bucket, *next;
	assert(!domain->by_age);
	pool_domain_list_remove(pool, domain);
	DL_FOREACH_SAFE (domain->buckets, bucket, next) {
		assert(bucket->n == 0);
		HASH_DEL(pool->buckets, bucket);
		free(bucket);
	}
	HASH_DEL(pool->domains, domain);
	free(domain);
}

/* Appends the domain to the list that it belongs to now. */
static void pool_domain_list_append(struct gm_pool *pool, struct gm_pool_domain *domain)
{
	if (domain == pool->fresh)
		return;
	if (domain->by_age) {
		DL_APPEND(pool->busy, domain);
		pool->n_busy++;
		return;
	}
	DL_APPEND(pool->idle, domain);
	if (++pool->n_idle > GM_POOL_IDLE_DOMAINS)
		pool_domain_free(pool, pool->idle);
}

static struct gm_pool_domain *pool_domain_get(struct gm_pool *pool, gm_domain id)
{
	struct gm_pool_domain *domain;
	HASH_FIND(hh, pool->domains, &id, sizeof(id), domain);
	if (domain)
		return domain;

	domain = calloc(1, sizeof(*domain));
	if (!domain)
		return NULL;
	domain->id = id;
	HASH_ADD(hh, pool->domains, id, sizeof(domain->id), domain);
	if (!GM_TABLE_ADDED(domain)) {
		free(domain);
		return NULL;
	}

	if (id == GM_DOMAIN_FRESH)
		pool->fresh = domain;
	else
		pool_domain_list_append(pool, domain);
	return domain;
}

/* ---- buckets */

static struct pool_key pool_make_key(enum gm_transport transport, uint64_t bytes, gm_domain domain)
{
	assert((bytes & (GM_CHUNK_MIN - 1)) == 0);
	return (struct pool_key){.kind = bytes | (uint64_t)transport, .domain = domain};
}

static struct gm_pool_bucket *pool_bucket_find(
	const struct gm_pool *pool, enum gm_transport transport, uint64_t bytes, gm_domain domain)
{
	struct pool_key key = pool_make_key(transport, bytes, domain);
	struct gm_pool_bucket *bucket;
	HASH_FIND(hh, pool->buckets, &key, sizeof(key), bucket);
	return bucket;
}

static struct gm_pool_bucket *pool_bucket_get(struct gm_pool *pool, const struct gm_chunk *chunk)
{
	struct gm_pool_bucket *bucket =
		pool_bucket_find(pool, chunk->transport, chunk->bytes, chunk->domain);
	if (bucket)
		return bucket;

	struct gm_pool_domain *domain = pool_domain_get(pool, chunk->domain);
	bucket = domain ? calloc(1, sizeof(*bucket)) : NULL;
	if (!bucket)
		return NULL;

	bucket->key = pool_make_key(chunk->transport, chunk->bytes, chunk->domain);
	bucket->domain = domain;
	HASH_ADD(hh, pool->buckets, key, sizeof(bucket->key), bucket);
	if (!GM_TABLE_ADDED(bucket)) {
		free(bucket);
		return NULL;
	}
	DL_APPEND(domain->buckets, bucket);
	return bucket;
}

/* How many chunks of a bucket are the reserve. */
static uint64_t pool_bucket_reserve(const struct gm_pool *pool, const struct gm_pool_bucket *bucket)
{
	if (bucket->key.domain != GM_DOMAIN_FRESH)
		return 0;
	for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++)
		if (bucket->key.kind == ((GM_CHUNK_MIN << c) | (uint64_t)GM_TRANSPORT_FD))
			return pool->reserve[c];
	return 0;
}

static void pool_add(struct gm_pool *pool, struct gm_pool_bucket *bucket, struct gm_chunk *chunk)
{
	struct gm_pool_domain *domain = bucket->domain;
	/* Chunks of the reserve need no place among those that decay. A bucket has at least as many
	 * chunks there as it has beyond the reserve. */
	if (bucket->n >= pool_bucket_reserve(pool, bucket))
		DL_APPEND2(pool->decaying, chunk, decay_prev, decay_next);

	pool_domain_list_remove(pool, domain);
	DL_PREPEND(bucket->chunks, chunk);
	bucket->n++;
	DL_APPEND2(domain->by_age, chunk, age_prev, age_next);
	domain->bytes += chunk->bytes;
	pool_domain_list_append(pool, domain);

	chunk->state = GM_CHUNK_POOLED;
	pool->bytes += chunk->bytes;
	pool->chunks++;
	if (pool->peak < pool->bytes)
		pool->peak = pool->bytes;
}

static void pool_stop_decay(struct gm_pool *pool, struct gm_chunk *chunk)
{
	if (!chunk->decay_prev)
		return;
	DL_DELETE2(pool->decaying, chunk, decay_prev, decay_next);
	chunk->decay_prev = chunk->decay_next = NULL;
}

/* touch: the domain used the pool just now. Otherwise it keeps its place in the order of use. */
static void pool_remove_chunk(
	struct gm_pool *pool, struct gm_pool_bucket *bucket, struct gm_chunk *chunk, bool touch)
{
	struct gm_pool_domain *domain = bucket->domain;
	bool last = domain->by_age->age_next == NULL;

	pool_stop_decay(pool, chunk);
	if (touch || last)
		pool_domain_list_remove(pool, domain);
	DL_DELETE(bucket->chunks, chunk);
	assert(bucket->n > 0);
	bucket->n--;
	DL_DELETE2(domain->by_age, chunk, age_prev, age_next);
	domain->bytes -= chunk->bytes;
	if (touch || last)
		pool_domain_list_append(pool, domain);

	chunk->prev = chunk->next = NULL;
	chunk->age_prev = chunk->age_next = NULL;
	assert(pool->bytes >= chunk->bytes && pool->chunks > 0);
	pool->bytes -= chunk->bytes;
	pool->chunks--;
}

static void pool_release(struct gm_pool *pool, struct gm_chunk *chunk)
{
	struct gm_pool_bucket *bucket =
		pool_bucket_find(pool, chunk->transport, chunk->bytes, chunk->domain);
	assert(bucket);
	pool_remove_chunk(pool, bucket, chunk, false);
	pool->released++;
	pool->release(pool->ctx, chunk);
}

/* ---- who makes room for whom */

/* The domain that has not used the pool for longest, but for this one. NULL: there is none. */
static struct gm_pool_domain *pool_longest_unused(
	const struct gm_pool *pool, const struct gm_pool_domain *but)
{
	struct gm_pool_domain *domain = pool->busy;
	return domain && domain == but ? domain->next : domain;
}

/* How many domains are looked at for one that has a lot. */
#define POOL_LOOK 64

/* Of the domains that have more than so many bytes, the one that has not used the pool for longest, but for this one. NULL: there
 * is none among the first POOL_LOOK. */
static struct gm_pool_domain *pool_longest_unused_above(
	const struct gm_pool *pool, const struct gm_pool_domain *but, uint64_t bytes)
{
	struct gm_pool_domain *domain = pool->busy;
	for (unsigned i = 0; domain && i < POOL_LOOK; i++, domain = domain->next)
		if (domain != but && domain->bytes > bytes)
			return domain;
	return NULL;
}

/* Whether a domain has put nothing in for so long that others may have its room. */
static bool pool_is_unused(const struct gm_pool *pool, const struct gm_pool_domain *domain)
{
	return domain->by_age->age_prev->pooled_at + GM_POOL_UNUSED_NS < pool->put_at;
}

uint64_t gm_pool_fresh_bytes(const struct gm_pool *pool)
{
	return pool->fresh ? pool->fresh->bytes : 0;
}

/* Whether the chunk would only fit if others lost theirs, although its domain had nothing else, and each of them has less. */
static bool pool_leaves_no_room(
	const struct gm_pool *pool, const struct gm_pool_domain *own, const struct gm_chunk *chunk)
{
	uint64_t others = pool->bytes - gm_pool_fresh_bytes(pool) - own->bytes;
	struct gm_pool_domain *other = pool_longest_unused(pool, own);

	if (own == pool->fresh || !other || pool_is_unused(pool, other) ||
		others <= pool->max_bytes - gm_pool_fresh_bytes(pool) - chunk->bytes)
		return false;
	return chunk->bytes > (others + chunk->bytes) / (pool->n_busy + !own->by_age) &&
	       !pool_longest_unused_above(pool, own, chunk->bytes);
}

/* The domain that loses a chunk, so that the one to spare has room. NULL: only fresh ones are left. */
static struct gm_pool_domain *pool_choose(const struct gm_pool *pool, gm_domain spare)
{
	struct gm_pool_domain *own = NULL;

	if (spare != GM_DOMAIN_FRESH)
		HASH_FIND(hh, pool->domains, &spare, sizeof(spare), own);
	if (own && !own->by_age)
		own = NULL;
	struct gm_pool_domain *other = pool_longest_unused(pool, own);
	if (!other)
		return own;
	/* With nobody to spare, it is the order that gm_pool_shrinkable() counts in. */
	if (spare == GM_DOMAIN_FRESH || pool_is_unused(pool, other))
		return other;

	uint64_t average = (pool->bytes - gm_pool_fresh_bytes(pool)) / pool->n_busy;
	/* Its last chunk may have come just now. */
	if (own && own->by_age->age_next && own->bytes > average)
		return own;
	struct gm_pool_domain *above = pool_longest_unused_above(pool, own, average);
	return above ? above : other;
}

/* ---- operations */

int gm_pool_put(struct gm_pool *pool, struct gm_chunk *chunk, uint64_t now_ns)
{
	assert(chunk->state != GM_CHUNK_POOLED);
	if (chunk->bytes > pool->max_bytes)
		return GM_POOL_E_FULL;

	struct gm_pool_bucket *bucket = pool_bucket_get(pool, chunk);
	if (!bucket)
		return -ENOMEM;
	if (pool->max_per_bucket && bucket->n >= pool->max_per_bucket)
		return GM_POOL_E_FULL;
	/* Only used chunks can make room: the reserve is never released for a used chunk. */
	if (pool->fresh && pool->fresh->bytes > pool->max_bytes - chunk->bytes)
		return GM_POOL_E_FULL;
	pool->put_at = now_ns;
	if (pool_leaves_no_room(pool, bucket->domain, chunk))
		return GM_POOL_E_FULL;

	chunk->pooled_at = now_ns;
	pool_add(pool, bucket, chunk);
	/* A fresh one comes instead of one that was taken, most likely by the domain that used the pool last. */
	gm_domain spare = chunk->domain;
	if (spare == GM_DOMAIN_FRESH && pool->busy)
		spare = pool->busy->prev->id;
	while (pool->bytes > pool->max_bytes)
		gm_pool_evict(pool, spare);
	return 0;
}

uint64_t gm_pool_count(
	const struct gm_pool *pool, enum gm_transport transport, uint64_t bytes, gm_domain domain)
{
	const struct gm_pool_bucket *own = pool_bucket_find(pool, transport, bytes, domain);
	uint64_t n = own ? own->n : 0;
	if (domain != GM_DOMAIN_FRESH && pool->fresh && pool->fresh->by_age) {
		const struct gm_pool_bucket *fresh =
			pool_bucket_find(pool, transport, bytes, GM_DOMAIN_FRESH);
		n += fresh ? fresh->n : 0;
	}
	return n;
}

struct gm_chunk *gm_pool_take(
	struct gm_pool *pool, enum gm_transport transport, uint64_t bytes, gm_domain domain)
{
	struct gm_pool_bucket *bucket = pool_bucket_find(pool, transport, bytes, domain);
	if (!bucket || bucket->n == 0)
		bucket = pool_bucket_find(pool, transport, bytes, GM_DOMAIN_FRESH);
	if (!bucket || bucket->n == 0)
		return NULL;

	struct gm_chunk *chunk = bucket->chunks;
	pool_remove_chunk(pool, bucket, chunk, true);
	pool->hits++;
	return chunk;
}

bool gm_pool_evict(struct gm_pool *pool, gm_domain spare)
{
	struct gm_pool_domain *domain = pool_choose(pool, spare);
	if (!domain)
		domain = pool->fresh;

	if (!domain || !domain->by_age)
		return false;
	pool_release(pool, domain->by_age);
	return true;
}

uint64_t gm_pool_shrink(struct gm_pool *pool, uint64_t bytes, gm_domain spare)
{
	uint64_t before = pool->bytes;
	while (before - pool->bytes < bytes)
		if (!gm_pool_evict(pool, spare))
			break;
	return before - pool->bytes;
}

uint64_t gm_pool_clear(struct gm_pool *pool)
{
	return gm_pool_shrink(pool, UINT64_MAX, GM_DOMAIN_FRESH);
}

static uint64_t pool_count_oldest(const struct gm_pool_domain *domain, uint64_t bytes)
{
	uint64_t sum = 0;
	for (const struct gm_chunk *c = domain->by_age; c && sum < bytes; c = c->age_next)
		sum += c->bytes;
	return sum;
}

uint64_t gm_pool_shrinkable(const struct gm_pool *pool, uint64_t bytes)
{
	uint64_t sum = 0;
	if (bytes >= pool->bytes)
		return pool->bytes;
	for (const struct gm_pool_domain *d = pool->busy; d && sum < bytes; d = d->next)
		sum += pool_count_oldest(d, bytes - sum);
	if (pool->fresh && sum < bytes)
		sum += pool_count_oldest(pool->fresh, bytes - sum);
	return sum;
}

static void pool_clear_older(
	struct gm_pool *pool, struct gm_pool_domain *domain, uint64_t before_ns)
{
	/* Counts first, because the domain may be freed with its last chunk. */
	uint64_t n = 0;
	for (const struct gm_chunk *c = domain->by_age; c && c->pooled_at < before_ns;
		c = c->age_next)
		n++;
	while (n-- > 0)
		pool_release(pool, domain->by_age);
}

uint64_t gm_pool_clear_idle(struct gm_pool *pool, uint64_t before_ns)
{
	uint64_t bytes = pool->bytes;
	struct gm_pool_domain *domain, *next;
	DL_FOREACH_SAFE (pool->busy, domain, next)
		pool_clear_older(pool, domain, before_ns);
	if (pool->fresh)
		pool_clear_older(pool, pool->fresh, before_ns);
	return bytes - pool->bytes;
}

void gm_pool_clear_used(struct gm_pool *pool)
{
	while (pool->busy)
		pool_release(pool, pool->busy->by_age);
}

void gm_pool_set_bounds(struct gm_pool *pool, uint64_t max_bytes, uint32_t max_per_bucket)
{
	struct gm_pool_bucket *bucket;
	pool->max_bytes = max_bytes;
	pool->max_per_bucket = max_per_bucket;

	/* Releasing a chunk frees buckets only of a domain that has nothing left. The bound is at
	 * least one here, so nothing is freed during this walk. */
	for (bucket = max_per_bucket ? pool->buckets : NULL; bucket; bucket = bucket->hh.next)
		while (bucket->n > max_per_bucket)
			pool_release(pool, bucket->chunks->prev);

	if (pool->bytes > max_bytes)
		gm_pool_shrink(pool, pool->bytes - max_bytes, GM_DOMAIN_FRESH);
}

void gm_pool_set_reserve(struct gm_pool *pool, const uint32_t chunks[GM_CHUNK_CLASSES])
{
	memcpy(pool->reserve, chunks, sizeof(pool->reserve));
	for (unsigned c = 0; pool->fresh && c < GM_CHUNK_CLASSES; c++) {
		struct gm_pool_bucket *bucket =
			pool_bucket_find(pool, GM_TRANSPORT_FD, GM_CHUNK_MIN << c, GM_DOMAIN_FRESH);
		while (bucket && bucket->n > chunks[c])
			pool_release(pool, bucket->chunks->prev);
	}
}

/* ---- decay */

static uint64_t pool_decays_at(const struct gm_pool *pool, const struct gm_chunk *chunk)
{
	return pool->decay_ns ? gm_u64_plus(chunk->pooled_at, pool->decay_ns) : UINT64_MAX;
}

uint64_t gm_pool_decay_due(const struct gm_pool *pool)
{
	return pool->decaying ? pool_decays_at(pool, pool->decaying) : UINT64_MAX;
}

unsigned gm_pool_decay(
	struct gm_pool *pool, uint64_t now_ns, unsigned max_chunks, uint64_t max_bytes)
{
	unsigned n = 0;
	uint64_t before = pool->bytes;
	while (n < max_chunks && before - pool->bytes < max_bytes &&
		gm_pool_decay_due(pool) <= now_ns) {
		struct gm_chunk *chunk = pool->decaying;
		const struct gm_pool_bucket *bucket =
			pool_bucket_find(pool, chunk->transport, chunk->bytes, chunk->domain);
		assert(bucket);

		/* Others of its bucket went before it: now it belongs to the reserve. */
		if (bucket->n <= pool_bucket_reserve(pool, bucket)) {
			pool_stop_decay(pool, chunk);
			continue;
		}
		pool_release(pool, chunk);
		n++;
	}
	return n;
}

/* Until the next chunk of a bucket decays. */
static uint64_t pool_bucket_decay_ns(
	const struct gm_pool *pool, const struct gm_pool_bucket *bucket, uint64_t now_ns)
{
	const struct gm_chunk *chunk = bucket->chunks->prev;
	if (!pool->decay_ns || bucket->n <= pool_bucket_reserve(pool, bucket))
		return UINT64_MAX;

	while (!chunk->decay_prev)
		chunk = chunk->prev;
	return gm_u64_minus(pool_decays_at(pool, chunk), now_ns);
}

/* ---- the list */

void gm_pool_each(const struct gm_pool *pool, uint64_t now_ns,
	void (*visit)(void *ctx, const struct gm_pool_bucket_info *bucket), void *ctx)
{
	for (const struct gm_pool_bucket *b = pool->buckets; b; b = b->hh.next) {
		if (b->n == 0)
			continue;
		uint64_t oldest = b->chunks->prev->pooled_at;
		visit(ctx,
			&(struct gm_pool_bucket_info){
				.transport = (enum gm_transport)(b->key.kind & (GM_CHUNK_MIN - 1)),
				.chunk_bytes = b->key.kind & ~(GM_CHUNK_MIN - 1),
				.domain = b->key.domain,
				.chunks = b->n,
				.oldest_ns = now_ns > oldest ? now_ns - oldest : 0,
				.decay_ns = pool_bucket_decay_ns(pool, b, now_ns),
			});
	}
}

void gm_pool_deinit(struct gm_pool *pool)
{
	assert(pool->chunks == 0 && pool->bytes == 0);

	while (pool->idle)
		pool_domain_free(pool, pool->idle);
	if (pool->fresh)
		pool_domain_free(pool, pool->fresh);
	pool->fresh = NULL;
	assert(!pool->domains && !pool->buckets && !pool->decaying);
}
