/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_GRANT_SESSION_LEASE_PRIVATE_H
#define GM_CLIENT_GRANT_SESSION_LEASE_PRIVATE_H

#include "client/grant/session_lease.h"

/* A request for memory and what its answer brings. session_lease.c and lease_call.c are one object;
 * only they, session_ask.c and session_reconcile.c include this. */

enum gm_lease_kind { GM_LEASE_LEASE, GM_LEASE_GROW, GM_LEASE_OPEN, GM_LEASE_HANDLES };

struct gm_lease_call {
	struct gm_conn_request call;
	struct gpumem_session *session;
	enum gm_lease_kind kind;
	struct gm_session_lease *lease; /* LEASE, OPEN: owned until the call succeeds */
	struct gm_session_lease
		*grown;              /* GROW: lives as long as the session; NULL: may end before */
	uint64_t lease_id;           /* GROW, HANDLES */
	enum gm_transport transport; /* as answered */
	bool one_chunk;              /* LEASE: asked for one chunk to measure */
	bool cut;                    /* the kernel dropped handles that were sent */
	struct gm_session_chunk *chunks; /* collected so far */
	int control;                     /* of a lease with signals: the fd of its control block */
	uint64_t *wait_ms;   /* LEASE, GROW: in the message; NULL: the message has none */
	uint64_t *waited_ms; /* the same */
	/* How the call waits for an absent daemon when it asks again for handles that were lost. */
	enum gm_wait_mode handles;
	/* Gets the call when it has ended and no caller waits for it. NULL: what it brought goes
	 * back. */
	void (*ended)(struct gm_lease_call *call);
};

/* Makes a struct of that many bytes, whose first member is the call. NULL: no memory. */
struct gm_lease_call *gm_lease_call_new(
	struct gpumem_session *session, enum gm_lease_kind kind, size_t bytes);
/* Completes a Lease, Grow or Open that ended with this status. Takes ownership of the call, which may
 * be NULL after a failure. ret_lease may be NULL. */
gpumem_status gm_lease_call_finish(struct gpumem_session *session, struct gm_lease_call *call,
	gpumem_status status, struct gm_session_lease **ret_lease,
	struct gm_session_chunk **ret_chunks);
/* Gives back what a call was granted, now or by the library's thread, and frees the call. */
void gm_lease_call_undo(struct gm_lease_call *call, bool now);

/* Lists the chunks of a lease from this index on, over a connection on which the session is being
 * resumed. Does not wait for an absent daemon. */
gpumem_status gm_lease_list_chunks(struct gpumem_session *session, struct gm_conn *via,
	uint64_t lease, uint64_t from, struct gm_lease_return_item **ret_list);
/* Says that there is no memory for a request. */
gpumem_status gm_lease_no_memory(void);

/* ---- session_lease.c */

/* Makes a lease and lists it. NULL: no memory. */
struct gm_session_lease *gm_session_lease_make(struct gpumem_session *session, bool opened);
/* Unlists a lease and gives it back, now or by the library's thread. Takes ownership. */
void gm_session_lease_end(struct gpumem_session *session, struct gm_session_lease *lease, bool now);
/* Sends the returns now, or keeps them for the library's thread. */
void gm_session_lease_return(
	struct gpumem_session *session, struct gm_lease_return_item *list, bool now);
/* Turns chunks into a list of returns. */
struct gm_lease_return_item *gm_session_chunks_returned(struct gm_session_chunk *chunks);

#endif
