/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MEMORY_SUPPLY_H
#define GM_CLIENT_MEMORY_SUPPLY_H

#include "client/heap/heap_source.h"
#include "client/grant/session_ask.h"
#include "client/session/gpumem_session.h"

/*
 * The source of a heap's chunks: one lease of the session, which grows and shrinks by whole chunks.
 * On the ipc transport, each chunk is a lease of its own.
 *
 * The heap itself never waits for a full device, however the daemon is configured. A caller that
 * wants to wait asks the session for chunks (gm_supply_wanted()) and then offers them to the heap.
 */
struct gm_supply;

/* On error, returns -ENOMEM. */
int gm_supply_new(
	struct gpumem_session *session, uint32_t device, bool ipc, struct gm_supply **ret_supply);
/* Sends no message: the end of the session gives the chunks back. */
void gm_supply_free(struct gm_supply *supply);
struct gm_heap_source gm_supply_source(struct gm_supply *supply);

struct gm_session_ask_wanted;
struct gm_session_lease;
struct gm_session_chunk;

struct gm_arena;

/* Chunks that are to be shared: those that carry an allocation of the heap. */
struct gm_supply_shared {
	const uint64_t *ids; /* in the order of their addresses */
	size_t n;
	const void *ptr; /* the allocation; nobody frees it during the call */
	uint64_t size;
};
/* Shares chunks with the trust domain. The same chunks have the same token each time. */
gpumem_status gm_supply_share(struct gm_supply *supply, struct gm_arena *arena,
	const struct gm_supply_shared *what, gpumem_token *ret_token);

/* Chunks that a caller waited for, on their way to the heap. */
struct gm_supply_offer {
	struct gm_supply *supply;
	struct gm_session_chunk *chunks; /* NULL once the heap has them */
	uint64_t bytes;
};
/* A request for chunks that the heap will be offered. */
struct gm_supply_ask {
	const struct gm_session_lease *grown; /* by the request; NULL: it makes a lease */
	bool regrown;                         /* the daemon did not know a lease of this epoch */
};
/* Fills in what to ask the session for: a new lease, or one to grow. */
void gm_supply_wanted(
	struct gm_supply *supply, struct gm_supply_ask *ask, struct gm_session_ask_wanted *wanted);
/* Takes over what the request brought: lease is NULL if it grew one. */
void gm_supply_got(struct gm_supply *supply, struct gm_session_lease *lease,
	struct gm_session_chunk *chunks, struct gm_supply_offer *ret_offer);
/* Whether the request failed because the daemon no longer knows the lease that was to be grown. The next
 * request makes a new lease: each time after the daemon has lost the session, and once otherwise. */
bool gm_supply_lease_gone(
	struct gm_supply *supply, struct gm_supply_ask *ask, gpumem_status status);
/* Ends an offer, and gives back the chunks that the heap did not take. */
void gm_supply_withdraw(struct gm_supply_offer *offer);

/* A call of the program that allocates from the heap. The heap passes it to the source. */
struct gm_supply_call {
	struct gm_heap_source_call base; /* the first member */
	/* The source gives the call the offered chunks and nothing else. An offer without chunks lets the heap
	 * use only what is there. NULL: the source asks the daemon. */
	struct gm_supply_offer *offer;
	/* How long the call waits if there is no memory now, as the program gave it; 0: as the daemon is
	 * configured. If the call waits, the source does not ask for memory that the daemon does not have,
	 * according to its page: the caller asks, with a request that waits. If the call must not wait, the
	 * source does not wait for a daemon that goes away during the request, either. */
	uint32_t wait_ms;
	/* Out: the source refused the last request because the daemon was away. The source does not wait for an
	 * absent daemon, unless the daemon goes away during the request and the call may wait. The caller
	 * waits instead. */
	bool away;
	uint64_t refused; /* the last request of the call that was refused; 0: none */
};

#endif
