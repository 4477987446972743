/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_KEEPER_PRIVATE_H
#define GM_KEEPER_PRIVATE_H

/* For the files of keeper/ that are one object: keeper.c, keeper_refs.c and keeper_service.c. */

#include <stdint.h>
#include <sys/types.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "common/bounds.h"
#include "common/wire/keeper_wire.h"
#include "keeper/keeper.h"

struct keeper_key {
	uint64_t id;
	uint64_t kind;
};

struct keeper_item {
	struct keeper_key key;
	int fd;
	UT_hash_handle hh;
};

struct gm_keeper {
	int folder;                                /* of the socket */
	char name[GM_BOUND_SOCKET_PATH_BYTES + 1]; /* of the socket, in that folder */
	int lock, listener;
	dev_t device; /* of the socket's file */
	ino_t inode;
	uint64_t capacity;

	struct keeper_item *items;
	int daemon; /* the connection; -1: none */
	pid_t daemon_pid;
	bool greeted;             /* it has said hello */
	struct keeper_item *next; /* the item to send next */
	bool listing;             /* items are being sent */
	struct gm_keeper_message answer;
	bool answering; /* the answer did not fit into the socket yet */
	bool deaf;      /* it has died; what it sent is still to be read */
	bool stays, ended;
	uint64_t away_ns;     /* since when there is no daemon */
	bool released;        /* chunks were closed since */
	unsigned released_at; /* number of processes that had ended by then */
};

/* Adds an item, or replaces the one of that name. Takes ownership of the fd. */
int gm_keeper_put(struct gm_keeper *keeper, uint64_t kind, uint64_t id, int fd);
void gm_keeper_forget(struct gm_keeper *keeper, struct keeper_item *item);

/*
 * Closes chunks that nobody needs. Call this only while there is no daemon. Returns 1 if anything is
 * left that somebody needs, and 0 if nothing is. On a negative errno, nobody can say what is needed,
 * and nothing was closed; -ENODATA: the daemon wrote no references, or not all of them.
 */
int gm_keeper_release(struct gm_keeper *keeper);
/* How many of the processes that it knows have ended. */
unsigned gm_keeper_count_ended(const struct gm_keeper *keeper);

/*
 * Takes everything that the daemon has sent, and ends the connection. A packet that the daemon sends later fails, so the
 * daemon knows which packets were taken.
 */
void gm_keeper_drain(struct gm_keeper *keeper);

#endif
