/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads share the list with the loop, under one lock. None of them holds it while it closes. A
 * thread ends when its user has nothing left to close. The list belongs to the loop and to all
 * threads together; the last one frees it, because nobody waits for a thread that waits for a
 * client.
 */
#include "autoconf.h"

#include "daemon/net/closer.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <utlist.h>

#include "common/clock.h"

#define STACK_BYTES (64 * 1024)
/* A thread waits so long for the next connection before it ends. */
#define IDLE_S 1
/* A close that takes longer was meant to. */
#define LONG_NS GM_NS_PER_S

struct closer_socket {
	int socket;
	struct closer_socket *next;
};

struct closer_user {
	struct gm_closer *closer;
	uint32_t payer_uid;
	uint32_t waiting;
	uint64_t since_ns;   /* when the thread began to close a connection; 0: it does not */
	bool runs;           /* it has a thread */
	pthread_cond_t more; /* that waits for this */
	struct closer_socket *sockets;
	struct closer_user *prev, *next;
};

struct gm_closer {
	pthread_mutex_t lock; /* protects all of it */
	unsigned refs;
	struct closer_user *users; /* who have something to close */
};

struct gm_closer *gm_closer_new(void)
{
	struct gm_closer *closer = calloc(1, sizeof(*closer));
	if (!closer)
		return NULL;
	pthread_mutex_init(&closer->lock, NULL);
	closer->refs = 1;
	return closer;
}

/* Call with the lock held; it is let go. */
static void closer_unref(struct gm_closer *closer)
{
	bool last = --closer->refs == 0;

	pthread_mutex_unlock(&closer->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&closer->lock);
	free(closer);
}

/* Returns NULL if there is nothing to close for a while. Call with the lock held; it is let go in
 * between. */
static struct closer_socket *closer_next(struct closer_user *user)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += IDLE_S;
	while (!user->sockets)
		if (pthread_cond_timedwait(&user->more, &user->closer->lock, &until) != 0)
			break;
	return user->sockets;
}

static void *closer_run(void *ctx)
{
	struct closer_user *user = ctx;
	struct gm_closer *closer = user->closer;
	struct closer_socket *item;

	pthread_mutex_lock(&closer->lock);
	while ((item = closer_next(user))) {
		LL_DELETE(user->sockets, item);
		user->since_ns = gm_clock_ns();
		pthread_mutex_unlock(&closer->lock);
		close(item->socket);
		free(item);
		pthread_mutex_lock(&closer->lock);
		user->waiting--;
		user->since_ns = 0;
	}
	DL_DELETE(closer->users, user);
	pthread_cond_destroy(&user->more);
	free(user);
	closer_unref(closer);
	return NULL;
}

/* Call with the lock held. If no thread can be started, the next connection of the user tries
 * again. */
static void closer_start(struct closer_user *user)
{
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	user->closer->refs++;
	user->runs = pthread_create(&thread, &attr, closer_run, user) == 0;
	if (!user->runs)
		user->closer->refs--;
	pthread_attr_destroy(&attr);
}

static struct closer_user *closer_find(const struct gm_closer *closer, uint32_t payer_uid)
{
	struct closer_user *user;

	DL_SEARCH_SCALAR(closer->users, user, payer_uid, payer_uid);
	return user;
}

/* Returns false if there is no memory for it. */
static bool closer_hand_over(struct gm_closer *closer, uint32_t payer_uid, int socket)
{
	struct closer_socket *item = malloc(sizeof(*item));

	pthread_mutex_lock(&closer->lock);
	struct closer_user *user = closer_find(closer, payer_uid);
	if (!user && item) {
		user = calloc(1, sizeof(*user));
		if (user) {
			user->closer = closer;
			user->payer_uid = payer_uid;
			pthread_cond_init(&user->more, NULL);
			DL_APPEND(closer->users, user);
		}
	}

	bool taken = user && item;
	if (taken) {
		item->socket = socket;
		LL_PREPEND(user->sockets, item);
		user->waiting++;
		if (user->runs)
			pthread_cond_signal(&user->more);
		else
			closer_start(user);
	} else {
		free(item);
	}
	pthread_mutex_unlock(&closer->lock);
	return taken;
}

void gm_closer_close(struct gm_closer *closer, uint32_t payer_uid, int socket, bool wary)
{
	/* Without memory, the socket stays open. To close it here might stop the daemon. */
	if (wary)
		(void)closer_hand_over(closer, payer_uid, socket);
	else
		close(socket);
}

void gm_closer_close_file(struct gm_closer *closer, uint32_t payer_uid, int fd)
{
	if (!closer_hand_over(closer, payer_uid, fd))
		close(fd);
}

uint32_t gm_closer_waiting(struct gm_closer *closer, uint32_t payer_uid)
{
	pthread_mutex_lock(&closer->lock);
	const struct closer_user *user = closer_find(closer, payer_uid);
	bool stuck = user && user->since_ns && gm_clock_ns() - user->since_ns > LONG_NS;
	uint32_t waiting = stuck ? user->waiting : 0;
	pthread_mutex_unlock(&closer->lock);
	return waiting;
}

void gm_closer_free(struct gm_closer *closer)
{
	if (!closer)
		return;
	pthread_mutex_lock(&closer->lock);
	closer_unref(closer);
}
