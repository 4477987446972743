/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_LOCK_H
#define GM_COMMON_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "common/cond.h"

/*
 * Locks with a rank, for the client library and the preloaded library, and the order in which
 * threads take them. This module must never know what a lock protects.
 *
 * A thread that holds a lock waits only for locks of later rows, and for no other lock of the same
 * row. The thread may try to take any lock. With --enable-lock-ranks, a thread that breaks this rule
 * ends the process with the names of both locks. In other builds, these are the calls of pthreads.
 */

/*
 * The order of locks, the outermost first: the row, and its name in messages. Unless the row says
 * otherwise, a thread that holds a lock calls neither the driver nor the daemon.
 *
 * Fork handlers take no lock: they run in the child only, and make locks anew. The read-write lock of
 * client/map/cuda_signal.c stands before the locks of contexts, and is not checked.
 */
#define GM_LOCK_ORDER(X) \
	/* Of preload/. A piece that another process shares is opened. Driver and daemon. */ \
	X(IPC, "the hooks' IPC lock") \
	/* Of preload/. The session is made. Driver and daemon. */ \
	X(BROKER, "the broker's lock") \
	/* Of preload/. The client library hears of captures, and waits for calls that a capture forbids. */ \
	X(BROKER_CAPTURES, "the broker's captures") \
	/* The program's event function runs, which may call this library. */ \
	X(CALLING, "calling") \
	/* A buffer is resized, shared or published. Driver and daemon. */ \
	X(BUFFER, "a buffer's lock") \
	/* Chunks of the heap are shared, and the groups of shared chunks. Daemon. */ \
	X(SHARING, "sharing") \
	/* The heap's lease is made. Daemon. */ \
	X(MAKING, "making") \
	/* A thread goes through the regions. Driver and daemon. */ \
	X(WALKING, "walking") \
	/* A region allocates, or its memory changes (client/region/region_state.h). Driver. */ \
	X(REGION, "a region's lock") \
	/* The fields of the session say what these five are for. Driver and daemon. */ \
	X(SETTLING, "settling") \
	X(OPENING, "opening") \
	X(LISTING, "listing") \
	X(DECLARING, "declaring") \
	X(ENDING, "ending") \
	/* Retired registered or managed memory is given back. Daemon, and driver, which may wait for the \
	 * device. */ \
	X(UNPINNING, "unpinning") \
	/* Kept returns are sent before a request. Daemon. */ \
	X(FLUSHING, "flushing") \
	/* The signals of a buffer are sent in order. Driver. */ \
	X(SIGNALS, "a buffer's signals") \
	/* Which thread cache belongs to which arena (client/heap/tcache.c). */ \
	X(CACHES, "the thread caches' lock") \
	/* The heap (client/heap/arena_private.h). */ \
	X(ARENA, "an arena's lock") \
	/* A thread goes through the contexts of a GPU (client/map/cuda_context.h). Driver. */ \
	X(CONTEXTS_WALKING, "walking of contexts") \
	/* The list of contexts. Driver, when a context is met for the first time. */ \
	X(CONTEXTS, "the contexts' lock") \
	/* The calls of a connection. An answer changes the session and what waits for the answer. */ \
	X(CONNECTION, "a connection's lock") \
	/* The session's state, and figures and states of buffers. */ \
	X(SESSION, "the session's lock") \
	/* The rows of the page. */ \
	X(PAGES, "the lock of the pages") \
	/* A lock of one file. A thread that holds it takes no other. The file says whether the driver is \
	 * called. */ \
	X(LEAF, "a leaf lock")

enum gm_lock_rank {
	GM_LOCK_UNRANKED, /* not initialized */
#define GM_LOCK_RANK(row, name) GM_LOCK_##row,
	GM_LOCK_ORDER(GM_LOCK_RANK)
#undef GM_LOCK_RANK
};

struct gm_lock {
	pthread_mutex_t mutex;
#ifdef GM_LOCK_RANKS
	enum gm_lock_rank rank;
#endif
};

#ifdef GM_LOCK_RANKS
#define GM_LOCK_INITIALIZER(of_rank) \
	{ \
		.mutex = PTHREAD_MUTEX_INITIALIZER, .rank = (of_rank) \
	}

struct gm_lock_owned;

/* Gives the lock its rank. The thread may hold it: in a forked child, which makes the lock anew. */
void gm_lock_set_rank(struct gm_lock *lock, enum gm_lock_rank rank);
/* Checks that the thread may wait for the lock. */
void gm_lock_check(const struct gm_lock *lock, const char *file, int line);
/* Checks a wait for a condition. The wait takes the lock again at its end, so the thread may hold no
 * other lock of the same or a later row. During the wait, the lock counts as held. */
void gm_lock_check_wait(const struct gm_lock *lock);
/* Note that the thread has taken the lock, and that it is about to drop the lock. */
void gm_lock_note(const struct gm_lock *lock, const char *file, int line);
void gm_lock_forget(const struct gm_lock *lock);
/* Returns the locks that the calling thread holds in this library. */
struct gm_lock_owned *gm_lock_owned(void);
/* Returns those of all libraries. Defined by the preloaded library alone, which is loaded first. */
struct gm_lock_owned *gm_lock_shared(void) __attribute__((weak));

#else
#define GM_LOCK_INITIALIZER(of_rank) \
	{ \
		.mutex = PTHREAD_MUTEX_INITIALIZER \
	}
#define gm_lock_set_rank(lock, rank)    ((void)(rank))
#define gm_lock_check(lock, file, line) ((void)(file), (void)(line))
#define gm_lock_check_wait(lock)        ((void)0)
#define gm_lock_note(lock, file, line)  ((void)(file), (void)(line))
#define gm_lock_forget(lock)            ((void)0)
#endif

static inline void gm_lock_init(struct gm_lock *lock, enum gm_lock_rank rank)
{
	gm_lock_set_rank(lock, rank);
	pthread_mutex_init(&lock->mutex, NULL);
}

static inline void gm_lock_deinit(struct gm_lock *lock)
{
	gm_lock_set_rank(lock, GM_LOCK_UNRANKED);
	pthread_mutex_destroy(&lock->mutex);
}

#define gm_lock(lock) gm_lock_at(lock, __FILE__, __LINE__)
static inline void gm_lock_at(struct gm_lock *lock, const char *file, int line)
{
	gm_lock_check(lock, file, line);
	pthread_mutex_lock(&lock->mutex);
	gm_lock_note(lock, file, line);
}

/* Returns whether the caller has the lock. */
#define gm_lock_try(lock) gm_lock_try_at(lock, __FILE__, __LINE__)
static inline bool gm_lock_try_at(struct gm_lock *lock, const char *file, int line)
{
	if (pthread_mutex_trylock(&lock->mutex))
		return false;
	gm_lock_note(lock, file, line);
	return true;
}

/* Waits until a time of CLOCK_REALTIME at most. Returns whether the caller has the lock. */
#define gm_lock_timed(lock, until) gm_lock_timed_at(lock, until, __FILE__, __LINE__)
static inline bool gm_lock_timed_at(
	struct gm_lock *lock, const struct timespec *until, const char *file, int line)
{
	gm_lock_check(lock, file, line);
	if (pthread_mutex_timedlock(&lock->mutex, until))
		return false;
	gm_lock_note(lock, file, line);
	return true;
}

static inline void gm_lock_drop(struct gm_lock *lock)
{
	gm_lock_forget(lock);
	pthread_mutex_unlock(&lock->mutex);
}

/* Drops the lock, waits for the condition and takes the lock again. */
static inline void gm_lock_wait(struct gm_lock *lock, pthread_cond_t *cond)
{
	gm_lock_check_wait(lock);
	pthread_cond_wait(cond, &lock->mutex);
}

/* Does the same for a condition of gm_cond_init(). Returns false when the time is over. */
static inline bool gm_lock_wait_until(
	struct gm_lock *lock, pthread_cond_t *cond, uint64_t deadline_ns)
{
	gm_lock_check_wait(lock);
	return gm_cond_wait_until(cond, &lock->mutex, deadline_ns);
}

#endif
