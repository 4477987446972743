/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_BACKEND_WORKER_QUEUE_H
#define GM_DAEMON_BACKEND_WORKER_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/books/chunk.h"

/*
 * The order in which a device's thread does its jobs: start-time fair queueing of users, as in the
 * flows of the loop (daemon/net/hub_flow.h). Each user has a virtual time, which grows by what the user's
 * jobs take. The next job is one of the user with the lowest virtual time. The virtual time of a user
 * who gets a job is at least that of the job which goes on. A user who wants or returns a thousand
 * chunks thus delays another user's job by one job, with any number of such users. A user's
 * own destructions come before the creations, because they make room, and the creations of that
 * user's sessions take turns.
 *
 * A creation that needs the room of destructions (chunk->after_doomed) begins only when all destructions
 * that were added before it are done. If its turn comes earlier, the thread does the oldest destruction instead,
 * whichever user it belongs to, and that user pays for it.
 *
 * Not safe for threads: the worker holds its lock.
 */
struct gm_worker_queue_user;

struct gm_worker_queue {
	struct gm_worker_queue_user *users; /* by payer_uid */
	struct gm_worker_queue_user *queue; /* those with jobs, the lowest virtual time first */
	struct gm_worker_queue_user
		*idle;             /* those without, who are ahead of others; in the same order */
	uint64_t virtual_ns;       /* of the user whose job was picked last */
	struct gm_chunk *destroys; /* all destructions, oldest first */
	uint64_t n_destroys;       /* that were added, since the start */
	struct gm_chunk *orphans;  /* jobs for which there was no memory to keep an order */
};

/* Adds a job: chunk->job.destroy, chunk->job.turn (a session) and chunk->payer_uid are set. Cannot fail. */
void gm_worker_queue_add(struct gm_worker_queue *turns, struct gm_chunk *chunk);
/* Picks the next job. It keeps its place until it is removed, so a job that is done in parts
 * is picked again. Returns NULL if there is none. */
struct gm_chunk *gm_worker_queue_next(struct gm_worker_queue *turns);
/* Takes out a job. */
void gm_worker_queue_remove(struct gm_worker_queue *turns, struct gm_chunk *chunk);
/* Charges a user for the time that a job, or a part of one, took. */
void gm_worker_queue_charge(struct gm_worker_queue *turns, uid_t payer_uid, uint64_t ns);

#endif
