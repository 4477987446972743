/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A queue of users, each with a list of destructions and a circle of sessions, each with a
 * list of creations. What a user or session is kept in is allocated with its first job. A session's is
 * freed with its last job, and a user's when others have had as much of the thread. If there is no
 * memory for it, the job goes to a list of its own, which comes first: adding a job never fails.
 */
#include "daemon/books/hash_table.h"

#include <stdlib.h>

#include <utlist.h>

#include "daemon/backend/worker_queue.h"

struct gm_worker_queue_session {
	uint64_t id;
	struct gm_worker_queue_user *user;
	struct gm_chunk *creates;
	struct gm_worker_queue_session *prev, *next; /* in user->circle */
	UT_hash_handle hh;
};

struct gm_worker_queue_user {
	uid_t payer_uid;
	struct gm_chunk *destroys;
	struct gm_worker_queue_session *sessions; /* by id */
	struct gm_worker_queue_session *circle;
	uint64_t virtual_ns;
	bool queued;                              /* in turns->queue, otherwise in turns->idle */
	struct gm_worker_queue_user *prev, *next; /* there */
	UT_hash_handle hh;
};

static void worker_queue_place_user(
	struct gm_worker_queue *turns, struct gm_worker_queue_user *user)
{
	user->queued = user->destroys || user->sessions;
	struct gm_worker_queue_user **list = user->queued ? &turns->queue : &turns->idle;
	struct gm_worker_queue_user *before = *list;

	if (before && before->prev->virtual_ns <= user->virtual_ns)
		before = NULL; /* most are last */
	while (before && before->virtual_ns <= user->virtual_ns)
		before = before->next;
	if (before)
		DL_PREPEND_ELEM(*list, before, user);
	else
		DL_APPEND(*list, user);
}

static void worker_queue_lift_user(struct gm_worker_queue *turns, struct gm_worker_queue_user *user)
{
	if (user->queued)
		DL_DELETE(turns->queue, user);
	else
		DL_DELETE(turns->idle, user);
}

static struct gm_worker_queue_user *worker_queue_find_user(
	const struct gm_worker_queue *turns, uid_t payer_uid)
{
	struct gm_worker_queue_user *user;

	HASH_FIND(hh, turns->users, &payer_uid, sizeof(payer_uid), user);
	return user;
}

static struct gm_worker_queue_user *worker_queue_get_user(
	struct gm_worker_queue *turns, uid_t payer_uid)
{
	struct gm_worker_queue_user *user = worker_queue_find_user(turns, payer_uid);
	if (user)
		return user;
	user = calloc(1, sizeof(*user));
	if (!user)
		return NULL;
	user->payer_uid = payer_uid;
	HASH_ADD(hh, turns->users, payer_uid, sizeof(user->payer_uid), user);
	if (!GM_TABLE_ADDED(user)) {
		free(user);
		return NULL;
	}
	worker_queue_place_user(turns, user);
	return user;
}

/* A job was added or removed. */
static void worker_queue_settle_user(
	struct gm_worker_queue *turns, struct gm_worker_queue_user *user)
{
	if (user->queued == (user->destroys || user->sessions))
		return;
	worker_queue_lift_user(turns, user);
	if (!user->queued && user->virtual_ns < turns->virtual_ns)
		user->virtual_ns = turns->virtual_ns;
	worker_queue_place_user(turns, user);
}

/* Forgets the users who want nothing and are not ahead of others. */
static void worker_queue_forget_idle(struct gm_worker_queue *turns)
{
	while (turns->idle && (!turns->queue || turns->idle->virtual_ns <= turns->virtual_ns)) {
		struct gm_worker_queue_user *user = turns->idle;

		DL_DELETE(turns->idle, user);
		HASH_DELETE(hh, turns->users, user);
		free(user);
	}
}

static struct gm_worker_queue_session *worker_queue_get_session(
	struct gm_worker_queue_user *user, uint64_t id)
{
	struct gm_worker_queue_session *session;

	HASH_FIND(hh, user->sessions, &id, sizeof(id), session);
	if (session)
		return session;
	session = calloc(1, sizeof(*session));
	if (!session)
		return NULL;
	session->id = id;
	session->user = user;
	HASH_ADD(hh, user->sessions, id, sizeof(session->id), session);
	if (!GM_TABLE_ADDED(session)) {
		free(session);
		return NULL;
	}
	DL_APPEND(user->circle, session);
	return session;
}

static void worker_queue_drop_session_if_idle(struct gm_worker_queue_session *session)
{
	if (session->creates)
		return;
	HASH_DELETE(hh, session->user->sessions, session);
	DL_DELETE(session->user->circle, session);
	free(session);
}

void gm_worker_queue_add(struct gm_worker_queue *turns, struct gm_chunk *chunk)
{
	struct gm_worker_queue_user *user = worker_queue_get_user(turns, chunk->payer_uid);

	chunk->job.user = user;
	chunk->job.session = NULL;
	chunk->job.waits = !chunk->job.destroy;
	if (chunk->job.destroy) {
		chunk->job.number = ++turns->n_destroys;
		DL_APPEND2(turns->destroys, chunk, job.all_prev, job.all_next);
	} else {
		chunk->job.number = chunk->after_doomed ? turns->n_destroys : 0;
		chunk->job.session = user ? worker_queue_get_session(user, chunk->job.turn) : NULL;
		if (!chunk->job.session)
			chunk->job.user = NULL;
	}

	if (!chunk->job.user)
		DL_APPEND2(turns->orphans, chunk, job.prev, job.next);
	else if (chunk->job.destroy)
		DL_APPEND2(user->destroys, chunk, job.prev, job.next);
	else
		DL_APPEND2(chunk->job.session->creates, chunk, job.prev, job.next);
	if (chunk->job.user)
		worker_queue_settle_user(turns, user);
}

void gm_worker_queue_remove(struct gm_worker_queue *turns, struct gm_chunk *chunk)
{
	struct gm_worker_queue_user *user = chunk->job.user;
	struct gm_worker_queue_session *session = chunk->job.session;

	if (chunk->job.destroy)
		DL_DELETE2(turns->destroys, chunk, job.all_prev, job.all_next);
	if (!user) {
		DL_DELETE2(turns->orphans, chunk, job.prev, job.next);
	} else if (chunk->job.destroy) {
		DL_DELETE2(user->destroys, chunk, job.prev, job.next);
	} else {
		DL_DELETE2(session->creates, chunk, job.prev, job.next);
		worker_queue_drop_session_if_idle(session);
	}
	if (user)
		worker_queue_settle_user(turns, user);
	chunk->job.user = NULL;
	chunk->job.session = NULL;
	chunk->job.waits = false;
	chunk->job.prev = chunk->job.next = NULL;
}

/* The job of this user, or the destruction that it has to wait for. */
static struct gm_chunk *worker_queue_pick(
	struct gm_worker_queue *turns, struct gm_worker_queue_user *user)
{
	if (user->destroys)
		return user->destroys;

	struct gm_worker_queue_session *session = user->circle;
	struct gm_chunk *create = session->creates;
	if (turns->destroys && turns->destroys->job.number <= create->job.number)
		return turns->destroys;
	DL_DELETE(user->circle, session);
	DL_APPEND(user->circle, session);
	return create;
}

struct gm_chunk *gm_worker_queue_next(struct gm_worker_queue *turns)
{
	struct gm_worker_queue_user *user = turns->queue;

	if (user)
		turns->virtual_ns = user->virtual_ns;
	worker_queue_forget_idle(turns);
	if (turns->orphans)
		return turns->orphans;
	return user ? worker_queue_pick(turns, user) : NULL;
}

void gm_worker_queue_charge(struct gm_worker_queue *turns, uid_t payer_uid, uint64_t ns)
{
	struct gm_worker_queue_user *user = worker_queue_find_user(turns, payer_uid);
	if (!user)
		return;
	worker_queue_lift_user(turns, user);
	user->virtual_ns += ns;
	worker_queue_place_user(turns, user);
}
