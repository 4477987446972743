/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_ADMIN_RECLAIM_H
#define GM_DAEMON_ADMIN_RECLAIM_H

#include "daemon/serve/answer.h"

/*
 * Memory that is got back by hand: gpumemctl trim, cleanup, evict, restore and drain. All are one job, which
 * works in slices on the turns of the user that asked, sends packets about what it did, and waits for core
 * where core does the rest. A request only says what is to come back, and from whom.
 */
struct gm_admin_reclaim;

/* Result of tell(): the next packet follows when core reports the end. */
#define GM_ADMIN_RECLAIM_WAITS 2

/* The part of a job in which the requests differ. */
struct gm_admin_reclaim_way {
	/* Does one slice of the work, of a few microseconds. Returns 1 if another one follows, 0 if not, or a negative errno:
	 * the request is refused, and the peer was told. NULL: there is nothing left to do when the job starts. */
	int (*slice)(struct gm_admin_reclaim *job, struct gm_peer *peer);
	/* Emits a packet about the work. Returns what gm_answer_emit() returned, or GM_ADMIN_RECLAIM_WAITS. */
	int (*tell)(struct gm_admin_reclaim *job, struct gm_peer *peer);
	bool progress; /* tell() is called after the slices of each turn; otherwise after the last slice */
	/* Core has ended what it did for the job's device. NULL: core does nothing. */
	void (*ended)(struct gm_admin_reclaim *job, const struct gm_event *event);
};

/* A job under way. Embedded first in the struct of its request. */
struct gm_admin_reclaim {
	struct gm_answer head;
	const struct gm_admin_reclaim_way *way;
	struct gm_peer *peer;
	uint32_t device;
	void *owned;  /* freed with the job */
	bool more;    /* another slice follows */
	bool untold;  /* the packet about the last slices was not sent yet */
	bool listed;  /* core works for the job, so it is in the list below */
	bool ended;   /* core does not any more */
	bool waiting; /* for core: the job is no stream meanwhile */
	struct gm_admin_reclaim *prev, *next; /* of gm_serve.reclaims */
};

/* Returns a job of `bytes` bytes, zeroed behind its head, or NULL: the daemon is out of memory, and the peer was told. */
void *gm_admin_reclaim_new(struct gm_serve *serve, struct gm_peer *peer, uint64_t id,
	const struct gm_admin_reclaim_way *way, uint32_t device, size_t bytes);
/* Has ended() called, also while this request is still being handled. */
void gm_admin_reclaim_await_core(struct gm_admin_reclaim *job);
/* Starts the answer. Takes ownership. owned_bytes: size of job->owned. */
void gm_admin_reclaim_start(struct gm_admin_reclaim *job, size_t owned_bytes);
/* Drops a job that was not started. */
void gm_admin_reclaim_free(struct gm_admin_reclaim *job);

/* A reclaim that was begun by hand has ended: goes on with the jobs that wait for it. */
void gm_admin_reclaim_ended(struct gm_serve *serve, const struct gm_event *event);
void gm_admin_reclaim_peer_closed(struct gm_serve *serve, const struct gm_peer *peer);

#endif
