/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Caches per thread and arena. Only its thread uses a cache, except for threads that drain it. Both
 * mark it busy with one atomic exchange. A thread that finds its own cache busy does not wait: it
 * goes past the cache. A thread that drains yields until the owner has left the cache, which takes
 * nanoseconds, or as long as the owner waits for the arena's lock.
 *
 * Threads and arenas end in any order, so one lock of the whole process (all_lock) protects which
 * cache belongs to which arena. Locks are taken in this order: all_lock, a cache's busy mark, the
 * arena's lock. A thread that has the arena's lock may try to mark a cache busy, but does not wait.
 *
 * A forked child must never use its parent's caches.
 */
#include "autoconf.h"

#include "client/heap/tcache.h"
#include "common/lock.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

static struct gm_lock all_lock = GM_LOCK_INITIALIZER(GM_LOCK_CACHES);
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int key_error;
static uint64_t next_id; /* protected by all_lock */

static __thread struct gm_tcache_hot hot;
static __thread struct gm_tcache *mine; /* this thread's caches */
static __thread bool ended;

static void tcache_enter_wait(struct gm_tcache *cache)
{
	while (!gm_tcache_enter(cache))
		sched_yield();
}

static void tcache_free(struct gm_tcache *cache)
{
	for (unsigned i = 0; i <= GM_TCACHE_STREAMS; i++)
		free(cache->sets[i]);
	free(cache);
}

static void tcache_group_unlink(struct gm_tcache *cache)
{
	DL_DELETE(cache->group->caches, cache);
	cache->group = NULL;
}

static void tcache_thread_end(void *first)
{
	struct gm_tcache *cache = first;

	ended = true;
	hot.id = 0;
	mine = NULL;
	while (cache) {
		struct gm_tcache *next = cache->sibling;

		gm_lock(&all_lock);
		if (cache->group) {
			tcache_enter_wait(cache);
			cache->group->drain(cache->group, cache);
			gm_tcache_leave(cache);
			tcache_group_unlink(cache);
		}
		gm_lock_drop(&all_lock);
		tcache_free(cache);
		cache = next;
	}
}

/* A child has copies of its parent's caches and must use none of them. Any thread of the parent may
 * have held the lock. Sessions that the child opens by itself start with new caches. */
static void tcache_fork_child(void)
{
	gm_lock_init(&all_lock, GM_LOCK_CACHES);
	hot.id = 0;
	mine = NULL;
	pthread_setspecific(key, NULL);
}

static void tcache_key_make(void)
{
	key_error = pthread_key_create(&key, tcache_thread_end);
	if (!key_error)
		key_error = pthread_atfork(NULL, NULL, tcache_fork_child);
}

int gm_tcache_group_init(struct gm_tcache_group *group,
	void (*drain)(struct gm_tcache_group *group, struct gm_tcache *cache))
{
	pthread_once(&key_once, tcache_key_make);
	if (key_error)
		return -key_error;

	memset(group, 0, sizeof(*group));
	group->drain = drain;
	gm_lock(&all_lock);
	group->id = ++next_id;
	gm_lock_drop(&all_lock);
	return 0;
}

void gm_tcache_group_deinit(struct gm_tcache_group *group)
{
	gm_lock(&all_lock);
	while (group->caches)
		tcache_group_unlink(group->caches);
	gm_lock_drop(&all_lock);
}

struct gm_tcache_hot *gm_tcache_hot(void)
{
	return &hot;
}

/* Frees this thread's caches of arenas that are gone. No other thread knows them any more. */
static void tcache_reap(void)
{
	struct gm_tcache **link = &mine, *cache;

	gm_lock(&all_lock);
	while ((cache = *link)) {
		if (cache->group) {
			link = &cache->sibling;
		} else {
			*link = cache->sibling;
			tcache_free(cache);
		}
	}
	gm_lock_drop(&all_lock);
	pthread_setspecific(key, mine);
}

struct gm_tcache *gm_tcache_get(struct gm_tcache_group *group)
{
	struct gm_tcache *cache;

	if (ended)
		return NULL;
	/* The caches of arenas that are gone may be in this list, but nobody asks for their ids. */
	for (cache = mine; cache; cache = cache->sibling) {
		if (cache->id == group->id) {
			hot.id = group->id;
			hot.cache = cache;
			return cache;
		}
	}

	tcache_reap();
	cache = calloc(1, sizeof(*cache));
	if (!cache)
		return NULL;
	atomic_flag_clear(&cache->busy);
	cache->sets[0] = calloc(1, sizeof(*cache->sets[0]));
	if (!cache->sets[0])
		goto fail;

	cache->sets[0]->key = GM_STREAM_DONE;
	cache->id = group->id;
	cache->sibling = mine;
	if (pthread_setspecific(key, cache))
		goto fail;
	mine = cache;

	gm_lock(&all_lock);
	cache->group = group;
	DL_PREPEND(group->caches, cache);
	gm_lock_drop(&all_lock);
	hot.id = group->id;
	hot.cache = cache;
	return cache;
fail:
	pthread_setspecific(key, mine);
	tcache_free(cache);
	return NULL;
}

struct gm_tcache_set *gm_tcache_choose(struct gm_tcache *cache)
{
	struct gm_tcache_set *set = NULL;

	for (unsigned i = 1; i <= GM_TCACHE_STREAMS; i++) {
		if (!cache->sets[i]) {
			cache->sets[i] = calloc(1, sizeof(*cache->sets[i]));
			return cache->sets[i];
		}
		if (!set || cache->sets[i]->used < set->used)
			set = cache->sets[i];
	}
	return set;
}

bool gm_tcache_drain_all(struct gm_tcache_group *group, bool idle_only)
{
	bool left = false;

	gm_lock(&all_lock);
	for (struct gm_tcache *cache = group->caches; cache; cache = cache->next) {
		uint64_t uses = atomic_load_explicit(&cache->allocs, memory_order_relaxed) +
				atomic_load_explicit(&cache->frees, memory_order_relaxed);
		bool idle = uses == cache->seen;

		cache->seen = uses;
		tcache_enter_wait(cache);
		if (idle || !idle_only)
			group->drain(group, cache);
		left = left || cache->bytes || cache->n_large;
		gm_tcache_leave(cache);
	}
	gm_lock_drop(&all_lock);
	return left;
}

void gm_tcache_each_busy(
	struct gm_tcache_group *group, void (*fn)(struct gm_tcache *cache, void *ctx), void *ctx)
{
	gm_lock(&all_lock);
	for (struct gm_tcache *cache = group->caches; cache; cache = cache->next) {
		tcache_enter_wait(cache);
		fn(cache, ctx);
		gm_tcache_leave(cache);
	}
	gm_lock_drop(&all_lock);
}

void gm_tcache_each(
	struct gm_tcache_group *group, void (*fn)(struct gm_tcache *cache, void *ctx), void *ctx)
{
	gm_lock(&all_lock);
	for (struct gm_tcache *cache = group->caches; cache; cache = cache->next)
		fn(cache, ctx);
	gm_lock_drop(&all_lock);
}
