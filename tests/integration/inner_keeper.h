/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_INNER_KEEPER_H
#define GM_TESTS_INTEGRATION_INNER_KEEPER_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "common/wire/keeper_wire.h"

/*
 * A keeper inside the test's process, which knows at any moment what a keeper has. The daemon finds
 * it if its environment has GPUMEM_KEEPER=service. What the daemon has sent counts, as with the
 * real one: gm_inner_keeper_serve() takes all of it.
 */

#define GM_INNER_ITEMS 512

struct gm_inner_item {
	uint64_t kind, id;
	int fd;
	uint64_t inode, bytes; /* of the file */
};

struct gm_inner_keeper {
	char path[256];
	int listener, daemon; /* -1: none */
	struct gm_inner_item items[GM_INNER_ITEMS];
	size_t n;
	uint64_t changes; /* of the items, so far */
	pthread_t thread;
	int stop; /* an eventfd that ends the thread */
};

/* Begins to listen. */
void gm_inner_keeper_open(struct gm_inner_keeper *keeper, const char *path);
void gm_inner_keeper_close(struct gm_inner_keeper *keeper);
/* Takes and answers what the daemon has sent. Does not wait. */
void gm_inner_keeper_serve(struct gm_inner_keeper *keeper);
/* Serves the daemon on a thread of its own, while the test waits for something else. */
void gm_inner_keeper_begin(struct gm_inner_keeper *keeper);
void gm_inner_keeper_end(struct gm_inner_keeper *keeper);
/* NULL: there is no such item. */
const struct gm_inner_item *gm_inner_keeper_find(
	const struct gm_inner_keeper *keeper, uint64_t kind, uint64_t id);

#endif
