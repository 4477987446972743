/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_TURNS_H
#define GM_DAEMON_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/books/chunk.h"

/*
 * The order in which a device's thread does its jobs. Users take turns, one job each, so a user who
 * wants or returns a thousand chunks delays another user's job by one job. A user's own destructions
 * come before the creations, because they make room, and the creations of that user's sessions take
 * turns.
 *
 * A creation that needs the room of destructions (chunk->after_doomed) begins only when all destructions
 * that were added before it are done. If its turn comes earlier, the thread does the oldest destruction instead,
 * whichever user it belongs to.
 *
 * Not safe for threads: the worker holds its lock.
 */
struct gm_turns_user;

struct gm_turns {
	struct gm_turns_user *users;  /* by payer_uid */
	struct gm_turns_user *circle; /* the same, in the order of their turns */
	struct gm_chunk *destroys;    /* all destructions, oldest first */
	uint64_t n_destroys;          /* that were added, since the start */
	struct gm_chunk *orphans;     /* jobs for which there was no memory to keep an order */
};

/* Adds a job: chunk->job.destroy, chunk->job.turn (a session) and chunk->payer_uid are set. Cannot fail. */
void gm_turns_add(struct gm_turns *turns, struct gm_chunk *chunk);
/* The job whose turn it is. It keeps its place until it is removed, so a job that is done in parts
 * has further turns. Returns NULL if there is none. */
struct gm_chunk *gm_turns_next(struct gm_turns *turns);
/* Takes out a job. */
void gm_turns_remove(struct gm_turns *turns, struct gm_chunk *chunk);

#endif
