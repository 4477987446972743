/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_WIRE_KEEPER_WIRE_H
#define GM_WIRE_KEEPER_WIRE_H

#include <stdint.h>

#include "common/store_kind.h"

/*
 * What the daemon and the keeper say to each other: packets of one struct each, over a
 * SOCK_SEQPACKET socket. A keeper outlives upgrades of the daemon. So a daemon must get along with an
 * older keeper: verbs are never changed, and a new one needs a new version.
 *
 * The daemon says hello first. The keeper answers with a welcome, then with each item that it holds,
 * and then with done. From then on the daemon deposits and closes, and the keeper confirms every close.
 * What the daemon sent before it died still counts.
 */
#define GM_KEEPER_VERSION 2
/* Since this version, a keeper leaves its items with the service manager that ends it. */
#define GM_KEEPER_VERSION_LEAVES 2

enum gm_keeper_verb {
	/* From the daemon. */
	GM_KEEPER_HELLO = 1,   /* value: the daemon's version */
	GM_KEEPER_DEPOSIT = 2, /* kind, id, and one fd. Replaces what the keeper has of that name */
	GM_KEEPER_CLOSE = 3,   /* kind, id. Answered with CLOSED, also if there is no such item */
	GM_KEEPER_END = 4,     /* there is nothing worth keeping: close everything. A keeper that
	                        * no service manager runs ends */

	/* From the keeper. */
	GM_KEEPER_WELCOME = 16, /* id: how many items it can hold; value: its version */
	GM_KEEPER_BUSY = 17,    /* instead: it has a daemon, which lives (id: its pid) */
	GM_KEEPER_ITEM = 18,    /* kind, id, and one fd */
	GM_KEEPER_DONE = 19,    /* that was the last item */
	GM_KEEPER_CLOSED = 20,  /* kind, id */
	GM_KEEPER_LOST = 21,    /* kind, id: it could not take a deposit; value: the errno */
};

/*
 * A reference: an array of these in a memfd, which the daemon writes and a keeper without a daemon reads, says what is needed. The
 * child is needed as long as its parent is. Both are ids; that of a session is needed while its process lives. The first one
 * is a header: its child is GM_KEEPER_REFS_MAGIC, and its parent is not 0 if the array is complete. A child of 0: an unused
 * one.
 *
 * A keeper without a daemon closes the chunks that nobody needs. A parent of which it knows nothing counts as needed.
 */
struct gm_keeper_ref {
	uint64_t child, parent;
};
#define GM_KEEPER_REFS_MAGIC UINT64_C(0x7366657270757067)
/* A parent that is always needed. */
#define GM_KEEPER_ALWAYS UINT64_MAX

struct gm_keeper_message {
	uint32_t verb;
	uint32_t kind;
	uint64_t id;
	uint64_t value;
};
_Static_assert(sizeof(struct gm_keeper_message) == 24, "the same for every compiler");

/* The name of the descriptors that a service manager stores (keeper_store.h). */
#define GM_KEEPER_STORE_NAME "items"

#endif
