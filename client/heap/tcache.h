/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_TCACHE_H
#define GM_CLIENT_TCACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/heap/pending.h"
#include "client/heap/small.h"

/*
 * Small objects that a thread keeps for its next allocation, which then takes no mutex, reads no
 * clock and makes no system call. A cache holds at most GM_TCACHE_BYTES. Any thread may drain it
 * (trim does), and it is drained when its thread ends. It also keeps a few larger blocks, but only
 * while several threads use the heap at once.
 */

#define GM_TCACHE_BYTES UINT64_C(0x80000)
/* The most that a cache keeps per class: this many objects, and this many bytes. */
#define GM_TCACHE_OBJECTS     64
#define GM_TCACHE_CLASS_BYTES UINT64_C(0x10000)
/* How many streams' objects a cache keeps apart, besides those that are free for everybody. */
#define GM_TCACHE_STREAMS 3
/* The most that a cache keeps of larger blocks: this many, and this many bytes. */
#define GM_TCACHE_LARGE       8
#define GM_TCACHE_LARGE_BYTES UINT64_C(0x800000)

struct gm_tcache_entry {
	uint64_t object;
	_Atomic uint16_t *asked; /* the object's word in the asked of its span */
};

struct gm_tcache_bin {
	unsigned n;
	struct gm_tcache_entry entries[GM_TCACHE_OBJECTS];
};

struct gm_tcache_set {
	gm_stream_key key;
	uint64_t used; /* the cache's clock when this set was last used */
	struct gm_tcache_bin bins[GM_SMALL_CLASSES];
};

struct gm_heap_block;
struct gm_tcache_group;

/* A larger block that the thread freed while other threads used the heap. */
struct gm_tcache_large {
	struct gm_heap_block *block;
	gm_stream_key key;
};

struct gm_tcache {
	atomic_flag busy;
	uint64_t bytes;
	uint64_t clock; /* counts uses of sets */
	/* Written by whoever has set busy, read by any thread. */
	_Atomic uint64_t allocs, frees;
	_Atomic int64_t in_use, in_use_rounded, in_use_peak; /* since they were last folded */
	uint64_t seen; /* allocs + frees at the last gm_tcache_drain_all() */
	struct gm_tcache_set *sets[1 + GM_TCACHE_STREAMS]; /* the first: free for everybody */
	struct gm_tcache_large large[GM_TCACHE_LARGE];
	uint64_t parked_bytes;
	_Atomic unsigned n_large; /* its thread reads this also while it is not busy */
	_Atomic uint64_t reused;  /* how many were handed out again since it was drained */
	uint64_t reused_seen;     /* at the last tick */
	unsigned
		crowded; /* frees left that the thread caches without checking whether others use the heap */
	uint64_t id; /* of its group */
	/* Protected by the lock of all caches. */
	struct gm_tcache_group *group; /* NULL: it is gone */
	struct gm_tcache *prev, *next; /* in the group */
	struct gm_tcache *sibling;     /* the thread's next cache; only the thread uses this */
};

/* The caches of one arena. */
struct gm_tcache_group {
	uint64_t id; /* no other group of this process ever has the same */
	struct gm_tcache *caches;
	/* Takes all objects, blocks and counts out of a cache, which the caller has made busy. */
	void (*drain)(struct gm_tcache_group *group, struct gm_tcache *cache);
};

/* Fails like pthread_key_create(), with a negative errno. */
int gm_tcache_group_init(struct gm_tcache_group *group,
	void (*drain)(struct gm_tcache_group *group, struct gm_tcache *cache));
/* Detaches the caches without draining them. They are freed when their threads end. */
void gm_tcache_group_deinit(struct gm_tcache_group *group);

/* Finds or makes the calling thread's cache. NULL: no memory, or the thread is ending. */
struct gm_tcache *gm_tcache_get(struct gm_tcache_group *group);

/* The cache that the calling thread used last, and the id of its group. */
struct gm_tcache_hot {
	uint64_t id;
	struct gm_tcache *cache;
};
struct gm_tcache_hot *gm_tcache_hot(void);

/* Makes the cache busy. false: another thread has done so. */
static inline bool gm_tcache_enter(struct gm_tcache *cache)
{
	return !atomic_flag_test_and_set_explicit(&cache->busy, memory_order_acquire);
}

static inline void gm_tcache_leave(struct gm_tcache *cache)
{
	atomic_flag_clear_explicit(&cache->busy, memory_order_release);
}

/* The most objects of a class that a cache keeps. */
static inline unsigned gm_tcache_limit(unsigned class)
{
	uint64_t n = GM_TCACHE_CLASS_BYTES / gm_small_bytes(class);
	return n < GM_TCACHE_OBJECTS ? (unsigned)n : GM_TCACHE_OBJECTS;
}

/* Returns the stream's set, or NULL if it has none. The caller has made the cache busy. */
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
/* Chooses a set for a stream that has none: a new one, or the one that was not used for the longest
 * time. The caller empties it before it writes the key. NULL: no memory. The caller has made the
 * cache busy. */
struct gm_tcache_set *gm_tcache_choose(struct gm_tcache *cache);

/* Drains every cache of the group; with idle_only, those not used since the last such call. Returns
 * whether any cache still has something in it. */
bool gm_tcache_drain_all(struct gm_tcache_group *group, bool idle_only);
/* Calls fn for every cache of the group, which is busy meanwhile. fn may take the arena's lock. */
void gm_tcache_each_busy(
	struct gm_tcache_group *group, void (*fn)(struct gm_tcache *cache, void *ctx), void *ctx);
/* Calls fn for every cache of the group. */
void gm_tcache_each(
	struct gm_tcache_group *group, void (*fn)(struct gm_tcache *cache, void *ctx), void *ctx);

#endif
