/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_CHUNK_H
#define GM_CORE_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <uthash.h>

#include "common/types.h"

/*
 * A chunk: one physical allocation the daemon owns. Core decides what becomes of it; the backend
 * made what is in its handle, and core never looks inside.
 *
 * State, and who holds the chunk in it:
 *
 *   creating -> leased -> pooled -> leased ...   (its client said that it unmapped it)
 *      |          |         `-----> doomed       (trimmed, or room is needed)
 *      |          `---------------> doomed       (its client died, or others may still map it)
 *      |-> pooled                                (reserve, or nobody waits for it any more)
 *      `-> doomed, or freed when it failed or was called off
 *
 * A chunk that waits in a request for the others of that request is leased without a lease: it is
 * charged, and no client has seen it yet.
 *
 * A doomed chunk belongs to the device thread; core frees the struct when gm_core_destroyed() says
 * it is gone.
 */

/* Trust domains are interned by the identity layer: equal numbers, equal domain. No number is used
 * twice, which is why it is this long: a client may make as many domains as it can connect. */
typedef uint64_t gm_domain;
#define GM_DOMAIN_FRESH \
	((gm_domain)0) /* never leased: belongs to no domain, zeroed by the driver */

/* Who may have seen a chunk's handle, of which one can keep a copy where it is an ipc block's. */
struct gm_seen {
	gm_domain domain; /* fresh: nobody */
	uid_t uid;        /* whose domain that is */
	bool several;     /* others than that domain, too */
};

enum gm_chunk_state {
	GM_CHUNK_CREATING,
	GM_CHUNK_POOLED,
	GM_CHUNK_LEASED,
	GM_CHUNK_DOOMED,
};

/* What the backend made. */
struct gm_handle {
	int fd;                           /* fd transport; -1 when empty */
	uint64_t native;                  /* the backend's own name for it */
	uint8_t ipc[GM_IPC_HANDLE_BYTES]; /* ipc transport */
};

struct gm_lease;
struct gm_request;

struct gm_chunk {
	uint64_t id;
	uint64_t bytes;
	uint32_t device;
	/* Who may have seen it: changes when it is leased. An ipc block is its domain's from the
	 * start: the backend may have put it where that domain had one before. */
	gm_domain domain;
	uid_t uid;                   /* ipc: whose domain that is */
	bool several;                /* others than the domain may have seen it, too */
	bool single;                 /* ipc: of its domain there is one client; not for the pool */
	enum gm_transport transport; /* FD or IPC, never AUTO */
	enum gm_chunk_state state;
	bool retried; /* the backend was out of memory once */
	bool marked;  /* seen in the list of ids being returned */
	bool reserve; /* under creation for the reserve */
	struct gm_handle handle;

	struct gm_request *request; /* that waits for it; NULL while creating: nobody does */
	/* Of the lease that holds it. */
	struct gm_lease *lease;
	uint64_t index; /* place in the lease; never given twice there */
	/* Of the pool. */
	uint64_t pooled_at; /* ns */

	struct gm_chunk *prev, *next; /* one list at a time (utlist): a request's, a lease's or a
					 bucket's */
	struct gm_chunk *age_prev, *age_next; /* of its domain's pooled chunks, oldest first */
	UT_hash_handle hh;                    /* of all chunks, by id; doomed ones are not in it */

	/* The device thread's own, from a job's submission to the call that tells its end: a job
	 * needs no memory of its own, so submitting one cannot fail. */
	struct {
		uint64_t turn;
		int result;
		bool destroy;
		bool waits;                   /* a creation that has not begun */
		struct gm_chunk *prev, *next; /* of the same turn, or (next) of one queue */
		struct gm_chunk *last;        /* of a turn: kept by its first */
		struct gm_chunk *turn_prev, *turn_next, *bucket_next; /* of the turns */
	} job;
};

#endif
