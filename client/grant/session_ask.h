/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_GRANT_SESSION_ASK_H
#define GM_CLIENT_GRANT_SESSION_ASK_H

#include "client/grant/session_lease.h"

/*
 * A request for memory whose caller does not wait. The caller makes it, sends it, and sends it again if the
 * connection ends before the answer. When the request has ended, gm_session_ask_finish() takes what it brought. No
 * function waits, except that gm_session_ask_finish() asks again for handles that the kernel dropped. One thread at
 * a time may use an ask.
 */
struct gm_session_ask;

struct gm_session_ask_wanted {
	uint64_t bytes;
	bool for_others;                /* as in struct gm_lease_what */
	bool signals;                   /* the same */
	uint64_t wait_ms;               /* as in struct gm_lease_wait */
	struct gm_session_lease *grown; /* the lease to grow; NULL: a new one, as follows */
	uint32_t device;
	enum gm_transport transport;
	const char *tag; /* may be NULL */
	/* Called when the ask has ended, on the thread that reads, with nothing locked. Not called
	 * after the ask was dropped. */
	void (*ended)(void *ctx);
	void *ctx;
};

/* Sends nothing yet. Returns GPUMEM_OK or GPUMEM_E_HOST_MEMORY. */
gpumem_status gm_session_ask_new(struct gpumem_session *session,
	const struct gm_session_ask_wanted *wanted, struct gm_session_ask **ret_ask);
/* Sends the request, for the first time or again. After GPUMEM_E_BUSY (too many requests are
 * unanswered) and GPUMEM_E_DISCONNECTED (the daemon is away) it can be sent later; after other errors
 * it cannot be sent at all. */
gpumem_status gm_session_ask_send(struct gm_session_ask *ask);
/* Whether a request that was sent has ended. The caller holds the session's lock. */
bool gm_session_ask_ended(const struct gm_session_ask *ask);
/* When its answer is overdue. */
uint64_t gm_session_ask_overdue_ns(const struct gm_session_ask *ask);
/*
 * Takes the result of a request that has ended. If *ret_lost is set afterwards, the connection ended
 * first: the ask stays, and can be sent again. Otherwise the ask is freed. GPUMEM_E_DISCONNECTED then
 * means that the daemon went away while the library asked for dropped handles: what the daemon granted
 * goes back. On success the caller owns the chunks and, unless the request grew one, the lease.
 */
gpumem_status gm_session_ask_finish(struct gm_session_ask *ask, bool *ret_lost,
	struct gm_session_lease **ret_lease, struct gm_session_chunk **ret_chunks);
/* Ends the ask in any state: tells the daemon if necessary, and gives back what was granted or still
 * comes. ask may be NULL. */
void gm_session_ask_drop(struct gm_session_ask *ask);

#endif
