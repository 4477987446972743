/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_TCACHE_H
#define GM_CLIENT_TCACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/heap/pending.h"
#include "client/heap/small.h"

/*
 * What one thread keeps of small objects, ready for its next alloc: no mutex, no clock, no system
 * call on the way. A cache holds GM_TCACHE_BYTES at most. Anybody may drain it (trim does), the
 * thread's end drains it too.
 */

#define GM_TCACHE_BYTES UINT64_C(0x80000)
/* Per class: so many objects, and no more than so many bytes. */
#define GM_TCACHE_OBJECTS     64
#define GM_TCACHE_CLASS_BYTES UINT64_C(0x10000)
/* Streams whose objects a cache keeps apart, besides what is free for everybody. */
#define GM_TCACHE_STREAMS 3

struct gm_tcache_entry {
	uint64_t object;
	_Atomic uint16_t *asked; /* the object's word in its span */
};

struct gm_tcache_bin {
	unsigned n;
	struct gm_tcache_entry entries[GM_TCACHE_OBJECTS];
};

struct gm_tcache_set {
	gm_stream_key key;
	uint64_t used; /* which of the sets was used last */
	struct gm_tcache_bin bins[GM_SMALL_CLASSES];
};

struct gm_tcache_group;

struct gm_tcache {
	atomic_flag busy;
	uint64_t bytes;
	uint64_t clock; /* counts uses of sets */
	/* Written by whoever has busy, read by anybody. */
	_Atomic uint64_t allocs, frees;
	_Atomic int64_t in_use, in_use_rounded, in_use_peak; /* since they were folded */
	uint64_t seen; /* allocs + frees at the last tick; the ticker's */
	struct gm_tcache_set *sets[1 + GM_TCACHE_STREAMS]; /* the first: free for everybody */
	uint64_t id;                                       /* its group's */
	/* Under the lock of all caches. */
	struct gm_tcache_group *group; /* NULL: it is gone */
	struct gm_tcache *prev, *next; /* in the group */
	struct gm_tcache *sibling;     /* of the thread, which alone looks at it */
};

/* The caches of one arena. */
struct gm_tcache_group {
	uint64_t id; /* never the same again in this process */
	struct gm_tcache *caches;
	/* Takes everything out of a cache, and its counts; the cache is busy. */
	void (*drain)(struct gm_tcache_group *group, struct gm_tcache *cache);
};

/* -errno of pthread_key_create(). */
int gm_tcache_group_init(struct gm_tcache_group *group,
	void (*drain)(struct gm_tcache_group *group, struct gm_tcache *cache));
/* Drains no more: the caches are empty hulls from now on, freed with their threads. */
void gm_tcache_group_deinit(struct gm_tcache_group *group);

/* Looks up or makes the calling thread's cache. NULL: no memory, or the thread is at its end. */
struct gm_tcache *gm_tcache_get(struct gm_tcache_group *group);

struct gm_tcache_hot {
	uint64_t id;
	struct gm_tcache *cache;
};
struct gm_tcache_hot *gm_tcache_hot(void);

static inline bool gm_tcache_enter(struct gm_tcache *cache)
{
	return !atomic_flag_test_and_set_explicit(&cache->busy, memory_order_acquire);
}

static inline void gm_tcache_leave(struct gm_tcache *cache)
{
	atomic_flag_clear_explicit(&cache->busy, memory_order_release);
}

/* How many objects of a class a cache keeps. */
static inline unsigned gm_tcache_limit(unsigned class)
{
	uint64_t n = GM_TCACHE_CLASS_BYTES / gm_small_bytes(class);
	return n < GM_TCACHE_OBJECTS ? (unsigned)n : GM_TCACHE_OBJECTS;
}

/* The stream's set; NULL: there is none. The cache is busy for these three. */
static inline struct gm_tcache_set *gm_tcache_find(struct gm_tcache *cache, gm_stream_key key)
{
	if (key == GM_STREAM_DONE)
		return cache->sets[0];
	for (unsigned i = 1; i <= GM_TCACHE_STREAMS; i++) {
		if (cache->sets[i] && cache->sets[i]->key == key)
			return cache->sets[i];
	}
	return NULL;
}
/* A set for a stream that has none: an empty one, or the one not used for longest, which the caller
 * empties before it writes the key. NULL: no memory. */
struct gm_tcache_set *gm_tcache_choose(struct gm_tcache *cache);

/* Drains every cache of the group; idle_only: those not used since the last such call. Returns
 * whether any is left with something in it. */
bool gm_tcache_drain_all(struct gm_tcache_group *group, bool idle_only);
/* Calls fn for every cache of the group. */
void gm_tcache_each(
	struct gm_tcache_group *group, void (*fn)(struct gm_tcache *cache, void *ctx), void *ctx);

#endif
