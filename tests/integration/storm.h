/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_STORM_H
#define GM_TESTS_INTEGRATION_STORM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/integration/harness.h"

/*
 * Workers that may be killed at any instruction, and the daemon with them. They make buffers,
 * publish them under names, attach, remove names, make batches, and begin requests that they drop.
 * Each call of a worker that lives must do what it says, and what a worker attaches to must be
 * whole.
 *
 * Each buffer has a stamp, a number that no other buffer ever has. The stamp is at many places of
 * the buffer, each time with the offset of that place, and the buffer's size follows from it. The
 * workers and the test write into one board what they know of each name and each stamp.
 */

enum {
	GM_STORM_USERS = 2,
	GM_STORM_KEPT = 3,  /* names of a user that are replaced, but not removed before the end */
	GM_STORM_LOOSE = 4, /* names that come and go */
	GM_STORM_NAMES = GM_STORM_KEPT + GM_STORM_LOOSE,
	GM_STORM_WORKERS = 12,
	GM_STORM_STAMPS = 1 << 22,
};

/* What a worker does most. */
enum gm_storm_role { GM_STORM_MAKER, GM_STORM_PUBLISHER, GM_STORM_READER, GM_STORM_ROLES };
enum gm_storm_role gm_storm_role_of(unsigned worker);
/* The number of its user: 0 or 1. */
unsigned gm_storm_user_of(unsigned worker);

/* What all of them share. */
struct gm_storm_board {
	const struct gm_daemon *daemon;
	uid_t uids[GM_STORM_USERS]; /* the same, where there can be one user only */
	_Atomic unsigned steps[GM_STORM_WORKERS];
	_Atomic uint64_t last_stamp;
	/* The newest version of a kept name that anybody knows of. Nobody may find an older one
	 * later. */
	_Atomic uint64_t newest[GM_STORM_USERS][GM_STORM_NAMES];
	/* The name and the version that a stamp was seen under: it has one of each, for good. */
	_Atomic uint64_t seen_as[GM_STORM_STAMPS];
	_Atomic uint64_t published, attached, removed, batches, begun;
};
extern struct gm_storm_board *gm_storm_board;

struct gm_storm_worker {
	unsigned number;
	unsigned seed;
};
/* For gm_worker_start(): works until it hears a word. 'e': gives everything back and disconnects.
 * 'x': ends with everything. */
void gm_storm_work(int channel, void *argument);

/* For gm_worker_start(): attaches to every kept name that was published, looks at it, and ends. The
 * argument is a struct gm_storm_worker. */
void gm_storm_find_kept(int channel, void *argument);

#define GM_STORM_NAME_TEXT 32
/* The text of a name, without its user. */
const char *gm_storm_name(unsigned user, unsigned name, char text[GM_STORM_NAME_TEXT]);

#endif
