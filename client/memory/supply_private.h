/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MEMORY_SUPPLY_PRIVATE_H
#define GM_CLIENT_MEMORY_SUPPLY_PRIVATE_H

#include "client/memory/supply.h"
#include "client/grant/session_lease.h"
#include "common/lock.h"

/* For supply.c and supply_share.c. */

#define GM_SUPPLY_BUCKETS 1024

/* Chunks that are shared under one token, in the order of their addresses. */
struct gm_supply_group {
	struct gm_supply_group *next;
	gpumem_token token;
	uint64_t epoch;
	const void *ptr; /* of the allocation for which it was made, and the size of that */
	uint64_t size;
	size_t n;
	/* The chunks, and the leases that they are in. A chunk that this process returned and got again has the same id,
	 * but another lease, and the token no longer opens it. */
	struct gm_supply_member {
		uint64_t id, lease;
	} members[];
};

struct gm_supply {
	struct gpumem_session *session;
	uint32_t device;
	bool ipc;
	struct gm_lock making;  /* held while the lease is made, across a message */
	struct gm_lock sharing; /* held while chunks are shared, across messages; of the groups */
	struct gm_lock lock;    /* of the fields below */
	struct gm_session_lease *lease;
	/* A hash table by id. Adding a chunk needs no memory, so it cannot fail. */
	struct gm_session_chunk *chunks[GM_SUPPLY_BUCKETS];

	struct gm_supply_group *groups; /* the last one used first */
	size_t n_groups, sweep_at;
};

/* Finds a chunk that the heap has, with the lock held. NULL: the heap has no such chunk. */
struct gm_session_chunk *gm_supply_find(struct gm_supply *supply, uint64_t id);

#endif
