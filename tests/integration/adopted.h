/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_ADOPTED_H
#define GM_TESTS_INTEGRATION_ADOPTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/integration/inner_keeper.h"

/*
 * The books of the daemon that would follow if the daemon died now. Core, the store and the
 * keeper's choice of what is needed are the real ones, and work on copies. The daemon and its
 * clients must not be asked anything while gm_adopted_look() runs, and the daemon's loop must stand
 * still.
 */

#define GM_ADOPTED_CLIENTS 2
#define GM_ADOPTED_CHUNKS  4096

/* A file of the daemon's that it writes to without a system call. */
struct gm_adopted_file {
	const struct gm_inner_item *item;
	const uint8_t *bytes;
	uint8_t *seen;
	size_t n;
	/* The file has units that are written from their beginning on. watched: bytes of each that
	 * are compared each time. */
	size_t unit, slack, *watched;
	bool missed; /* something else was written, and that was seen late */
};

struct gm_adopted {
	const struct gm_inner_keeper *keeper;
	struct gm_adopted_file ledger, refs;
	int copy;                          /* of the store, for the next daemon */
	uint64_t changes;                  /* of the keeper's items that were seen */
	uint64_t digest;                   /* of all records in force, and of the items */
	pid_t clients[GM_ADOPTED_CLIENTS]; /* 0: none, or it is dead */
	/* All chunks that the keeper ever had. */
	struct {
		uint64_t id, inode;
	} chunks[GM_ADOPTED_CHUNKS];
	size_t n_chunks;

	struct fake_books *books; /* all of the operation, one after the other */
	size_t n_books;
	uint64_t states;    /* different bytes or items, so far */
	uint64_t adoptions; /* different records or items, so far */
	/* Where the daemon is, for messages. */
	const char *operation;
	uint64_t instruction;
};

/* The daemon must have deposited its store. */
void gm_adopted_open(struct gm_adopted *adopted, const struct gm_inner_keeper *keeper);
void gm_adopted_close(struct gm_adopted *adopted);
/*
 * Adopts if something has changed. all: the daemon may have made a system call. Otherwise only its
 * own writes are looked for, where it can write next. skipped: it has executed more than one
 * instruction since. Fails the test
 *   - if a record is damaged, or a chunk, or a lease or a name without all of its memory, would be
 *     lost;
 *   - if a living client maps a chunk that the next daemon does not have, or that a keeper without
 *     a daemon closes;
 *   - if the next daemon keeps anything for clients that have all died, except for what has a name;
 *   - if the daemon wrote elsewhere, so that a moment was missed.
 */
void gm_adopted_look(struct gm_adopted *adopted, bool all, bool skipped);
/* Begins an operation. The books are what they were at the end of the one before. */
void gm_adopted_begin(struct gm_adopted *adopted, const char *operation);
/*
 * Ends the operation. Fails the test unless each line of the books was there all the time, from
 * some moment on, or up to some moment, each grant came as a whole, and each new lease has chunks.
 */
void gm_adopted_end(struct gm_adopted *adopted);
/* What the books say now: sessions, leases without a tag that their maker has, opened leases; and
 * of device 0, the bytes of leases and of declarations. */
struct gm_adopted_sums {
	unsigned sessions, made, opened;
	uint64_t leased, declared;
};
void gm_adopted_sum(const struct gm_adopted *adopted, struct gm_adopted_sums *ret);

#endif
