/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MEMORY_SUPPLY_H
#define GM_CLIENT_MEMORY_SUPPLY_H

#include "client/heap/heap_source.h"
#include "client/session/gpumem_session.h"

/*
 * The source of a heap's chunks: one lease of the session, which grows and shrinks by whole chunks.
 * On the ipc transport, each chunk is a lease of its own.
 *
 * The heap itself never waits for a full device, however the daemon is configured. A caller that
 * wants to wait gets the chunks with gm_supply_wait() and then offers them to the heap.
 */
struct gm_supply;

/* On error, returns -ENOMEM. */
int gm_supply_new(
	struct gpumem_session *session, uint32_t device, bool ipc, struct gm_supply **ret_supply);
/* Sends no message: the end of the session gives the chunks back. */
void gm_supply_free(struct gm_supply *supply);
struct gm_heap_source gm_supply_source(struct gm_supply *supply);

struct gm_session_ask_wanted;
struct gm_lease_wait;
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
/* Asks the daemon for chunks and waits for them, as gm_session_lease_take() does. */
gpumem_status gm_supply_wait(struct gm_supply *supply, uint64_t bytes,
	const struct gm_lease_wait *wait, struct gm_supply_offer *ret_offer);
/* The same without waiting, in two steps. The first fills in what to ask the session for: wanted->grown
 * and what follows it. The second takes over what the request brought: lease is NULL if it grew one. */
void gm_supply_wanted(struct gm_supply *supply, struct gm_session_ask_wanted *wanted);
void gm_supply_got(struct gm_supply *supply, struct gm_session_lease *lease,
	struct gm_session_chunk *chunks, struct gm_supply_offer *ret_offer);
/* Forgets a lease that was to be grown and that the daemon no longer knows. The next request makes a new
 * one. */
void gm_supply_forget(struct gm_supply *supply, const struct gm_session_lease *lease);
/* Until the offer is withdrawn, the source gives this thread the offered chunks and nothing else. An
 * offer without chunks lets the heap use only what is there. */
void gm_supply_offer(struct gm_supply_offer *offer);
/* Says how long this thread's next allocation waits if there is no memory now, as the program gave it; 0: as the daemon is
 * configured. If the allocation waits, the heap does not ask for memory that the daemon does not have, according to its
 * page: the caller asks, with a request that waits. If the allocation must not wait, the heap does not wait for a daemon that
 * goes away during the request, either. */
void gm_supply_set_wait(uint32_t wait_ms);
/* Whether the source refused this thread's last request because the daemon was away. The heap does not wait for an
 * absent daemon, unless the daemon goes away during the request and the allocation may wait. So the caller waits, and
 * then lets the heap try again. */
bool gm_supply_away(void);
/* Ends the offer, and gives back the chunks that the heap did not take. */
void gm_supply_withdraw(struct gm_supply_offer *offer);

#endif
