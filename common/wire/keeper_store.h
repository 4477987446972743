/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_WIRE_KEEPER_STORE_H
#define GM_WIRE_KEEPER_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bounds.h"
#include "common/wire/keeper_wire.h"

/*
 * Items in the descriptor store of a unit. A process that systemd runs leaves its items there when it ends, and the next process
 * of the unit takes them. systemd keeps the store over a restart of the unit, and empties it when the unit stops.
 *
 * systemd compares each stored descriptor with all others, so one for each item would be too slow. The items lie in the queues of
 * a few sockets instead, and systemd stores only the sockets' reading ends. A packet has an array of messages (GM_KEEPER_ITEM) and
 * as many descriptors.
 */

/* Items on their way into the store. */
struct gm_keeper_store {
	struct gm_keeper_message messages[GM_BOUND_PACKET_FDS];
	int fds[GM_BOUND_PACKET_FDS];
	size_t n; /* of the next packet */
	int in, out;
	bool any;
	int result;
};

/* Begins. Returns -ENOTCONN if no service manager runs this process. Afterwards gm_keeper_store_end() must be called. */
int gm_keeper_store_begin(struct gm_keeper_store *store);
/* Adds an item. The fd stays the caller's. */
void gm_keeper_store_add(struct gm_keeper_store *store, uint64_t kind, uint64_t id, int fd);
/* Returns 0 when the service manager has everything that was added. On a negative errno, it lacks some of it. */
int gm_keeper_store_end(struct gm_keeper_store *store);

/*
 * Takes the items that lie in a descriptor of the store. put() owns the fd that it gets, and is called for the rest if it
 * returns a negative errno. Returns the last negative errno; -EPERM: neither this user nor root made it.
 */
typedef int (*gm_keeper_store_put)(void *ctx, uint64_t kind, uint64_t id, int fd);
int gm_keeper_store_take(int stored, gm_keeper_store_put put, void *ctx);
/* Empties the store. Call this when everything in it was taken. */
void gm_keeper_store_forget(void);

#endif
