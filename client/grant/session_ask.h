/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_GRANT_SESSION_ASK_H
#define GM_CLIENT_GRANT_SESSION_ASK_H

#include "client/grant/session_lease.h"

/*
 * A request for memory. There are two ways to its end. gm_session_ask_obtain() sends the request and waits on the
 * calling thread. A caller that does not wait makes an ask, sends it, and sends it again if the connection
 * ends before the answer; when the request has ended, gm_session_ask_finish() takes what it brought. None of the
 * other functions waits, except that gm_session_ask_finish() asks again for handles that the kernel dropped. One
 * thread at a time may use an ask.
 */
struct gm_session_ask;
struct gm_token_name;

struct gm_session_ask_wanted {
	/* A new lease, unless one of the next four says otherwise. */
	struct gm_lease_what what;
	struct gm_session_lease *grown; /* the lease to grow, which lives as long as the session */
	const struct gm_session_lease *resized; /* the lease to grow, which has user_bytes then */
	const uint8_t *token;                   /* of GM_TOKEN_BYTES: the lease to open */
	const struct gm_token_name *name;       /* the lease to attach to */

	uint64_t user_bytes;
	uint32_t index; /* of the token */
	struct gm_wait wait;
	/* Called when the ask has ended, on the thread that reads, with nothing locked. Not called
	 * after the ask was dropped. */
	void (*ended)(void *ctx);
	void *ctx;
};

/* Asks, and waits as wanted->wait says. On success the caller owns the chunks and, unless the request grew
 * one, the lease; ret_lease may be NULL then. */
gpumem_status gm_session_ask_obtain(struct gpumem_session *session,
	const struct gm_session_ask_wanted *wanted, struct gm_session_lease **ret_lease,
	struct gm_session_chunk **ret_chunks);

/* These functions ask for memory. The caller owns the list of chunks: each has its handle, none
 * appears twice, and on the ipc transport there is only one. On error nothing is held, and the
 * sentence is left for gpumem_error_detail(). */
gpumem_status gm_session_lease_take(struct gpumem_session *session,
	const struct gm_lease_what *what, const struct gm_wait *wait,
	struct gm_session_lease **ret_lease, struct gm_session_chunk **ret_chunks);
gpumem_status gm_session_lease_open(struct gpumem_session *session,
	const uint8_t token[GM_TOKEN_BYTES], uint32_t index, struct gm_session_lease **ret_lease,
	struct gm_session_chunk **ret_chunks);
/* deadline_ns: when it stops waiting for an absent daemon; 0: as late as the session does. */
gpumem_status gm_session_lease_attach(struct gpumem_session *session,
	const struct gm_token_name *name, uint64_t deadline_ns, struct gm_session_lease **ret_lease,
	struct gm_session_chunk **ret_chunks);
/* Grows a lease that may be given back while the answer is still on its way, and that is resized: it has
 * user_bytes from then on. GPUMEM_E_BUSY: somebody else has the lease, or could get it. */
gpumem_status gm_session_lease_resize(struct gpumem_session *session,
	const struct gm_session_lease *lease, uint64_t bytes, uint64_t user_bytes,
	const struct gm_wait *wait, struct gm_session_chunk **ret_chunks);
/* ---- asks whose caller does not wait */

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
/* Whether the connection ended before the answer, and until when the ask may wait for the daemon then. */
bool gm_session_ask_lost(const struct gm_session_ask *ask, uint64_t *ret_until_ns);
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
