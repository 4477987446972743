/* SPDX-License-Identifier: Apache-2.0 */
#include "common/lock.h"

#ifdef GM_LOCK_RANKS

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Maximum number of locks that a thread holds at once. */
#define LOCK_HELD 16

struct gm_lock_owned {
	unsigned n;
	struct lock_taken {
		const struct gm_lock *lock;
		const char *file;
		int line;
	} taken[LOCK_HELD];
};

static _Thread_local struct gm_lock_owned lock_held;

struct gm_lock_owned *gm_lock_owned(void)
{
	return &lock_held;
}

static struct gm_lock_owned *lock_list(void)
{
	return gm_lock_shared ? gm_lock_shared() : gm_lock_owned();
}

static const char *lock_name(const struct gm_lock *lock)
{
	static const char *const names[] = {[GM_LOCK_UNRANKED] = "a lock that is not initialized",
#define LOCK_NAME(row, name) [GM_LOCK_##row] = (name),
		GM_LOCK_ORDER(LOCK_NAME)
#undef LOCK_NAME
	};
	return names[lock->rank];
}

static void lock_die(
	const struct gm_lock *lock, const char *file, int line, const struct lock_taken *taken)
{
	fprintf(stderr, "lock order broken: %s (%s:%d) is taken", lock_name(lock), file, line);
	if (taken)
		fprintf(stderr, " while the thread holds %s (%s:%d)", lock_name(taken->lock),
			taken->file, taken->line);
	fprintf(stderr, "; see common/lock.h\n");
	abort();
}

/* Returns where the thread took the lock. NULL: it does not hold the lock. */
static struct lock_taken *lock_find(const struct gm_lock *lock)
{
	struct gm_lock_owned *list = lock_list();

	for (unsigned i = list->n; i > 0; i--)
		if (list->taken[i - 1].lock == lock)
			return &list->taken[i - 1];
	return NULL;
}

static void lock_remove(struct lock_taken *taken)
{
	struct gm_lock_owned *list = lock_list();
	const struct lock_taken *end = &list->taken[list->n--];

	memmove(taken, taken + 1, (size_t)(end - taken - 1) * sizeof(*taken));
}

/* own: where the thread took the same lock, if it holds the lock to wait for a condition. */
static void lock_check_others(
	const struct gm_lock *lock, const char *file, int line, const struct lock_taken *own)
{
	const struct gm_lock_owned *list = lock_list();

	if (lock->rank == GM_LOCK_UNRANKED)
		lock_die(lock, file, line, NULL);
	for (unsigned i = 0; i < list->n; i++)
		if (list->taken[i].lock->rank >= lock->rank && &list->taken[i] != own)
			lock_die(lock, file, line, &list->taken[i]);
}

/* Returns where the thread took a lock that it must hold. */
static struct lock_taken *lock_find_own(const struct gm_lock *lock)
{
	struct lock_taken *own = lock_find(lock);

	if (own)
		return own;
	fprintf(stderr, "%s is dropped by a thread that does not hold it\n", lock_name(lock));
	abort();
}

void gm_lock_set_rank(struct gm_lock *lock, enum gm_lock_rank rank)
{
	struct lock_taken *own = lock_find(lock);

	if (own)
		lock_remove(own);
	lock->rank = rank;
}

void gm_lock_check(const struct gm_lock *lock, const char *file, int line)
{
	lock_check_others(lock, file, line, NULL);
}

void gm_lock_check_wait(const struct gm_lock *lock)
{
	const struct lock_taken *own = lock_find_own(lock);

	lock_check_others(lock, own->file, own->line, own);
}

void gm_lock_note(const struct gm_lock *lock, const char *file, int line)
{
	struct gm_lock_owned *list = lock_list();

	if (lock->rank == GM_LOCK_UNRANKED)
		lock_die(lock, file, line, NULL);
	if (list->n == LOCK_HELD)
		lock_die(lock, file, line, &list->taken[LOCK_HELD - 1]);
	list->taken[list->n++] = (struct lock_taken){lock, file, line};
}

void gm_lock_forget(const struct gm_lock *lock)
{
	lock_remove(lock_find_own(lock));
}

#endif
