/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_SESSION_CONN_H
#define GM_CLIENT_SESSION_CONN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/session/error.h"
#include "client/session/wait.h"
#include "common/wire/seqpacket.h"
#include "common/wire/wire.h"
#include "gpumem/status.h"

/*
 * The connection for requests and their answers. Any number of threads may call at once. One of the
 * waiting threads reads for all of them, and hands over to another when it has its own answer.
 */
struct gm_conn;
struct gm_conn_request;

struct gm_conn_request_ops {
	/*
	 * Gets each packet of the answer, except a Failure. Runs on the thread that reads, with the
	 * connection locked, and must not wait. It may take fds out of in; the others are closed
	 * afterwards. If it returns a negative errno, that becomes the result of the call, which
	 * still ends with its last packet.
	 */
	int (*take)(struct gm_conn_request *call, const Gm__Wire__Packet *packet,
		struct gm_conn_packet *in);
	/*
	 * Gets a call for which no caller waits when it has ended, with all that take() collected,
	 * and owns it from then on: gm_conn_begin() sent it, or its caller gave up (gm_conn_call()
	 * returned -ETIMEDOUT or -ECANCELED). Runs on the thread that reads, with nothing locked.
	 */
	void (*late)(struct gm_conn_request *call);
	/*
	 * For the session: gets a call whose connection ended before its last answer, before it is
	 * sent again. Forgets what take() collected. Runs on the caller's thread, with nothing
	 * locked. On error, returns a negative errno. NULL: there is nothing to forget.
	 */
	int (*repeat)(struct gm_conn_request *call);
	/*
	 * For the session: gets a call each time before it is sent, when the session is up. It may
	 * change the request. Runs on the caller's thread, with nothing locked. NULL: there is nothing
	 * to do.
	 */
	void (*prepare)(struct gm_conn_request *call);
};

/* One request. It must be on the heap: if its caller gives up, the connection owns it until the answer comes. */
struct gm_conn_request {
	const struct gm_conn_request_ops *ops;
	/*
	 * How the call ended:
	 *   0            It was answered; status and detail are the daemon's.
	 *   -EPIPE       The connection ended first.
	 *   -ECANCELED   It was never sent.
	 *   others       What take() returned.
	 */
	int result;
	gpumem_status status;
	char detail[GM_ERROR_BYTES];

	/* For the session. */
	struct gm_wait wait;
	struct gm_wait_patience patience;
	uint64_t epoch;    /* the session's epoch when the request was sent */
	uint64_t of_epoch; /* not 0: the request makes sense only in this epoch */

	/* 0 before the request is sent. A call that is made once more keeps its id: it repeats the
	 * request. */
	uint64_t id;

	/* Runs while the answer is awaited, also when gm_conn_poke() was called; NULL: nothing does. */
	struct gm_wait_look *look;

	/* private to the connection */
	enum {
		GM_CALL_SENDING,
		GM_CALL_WAITED,
		GM_CALL_LOOKS,
		GM_CALL_ABANDONED,
		GM_CALL_DONE
	} state;
	bool poked;
	pthread_cond_t answered;
	struct gm_conn_request *prev, *next;
};

/*
 * Takes ownership of the socket, even on error (-ENOMEM). ids is the last id that a request got:
 * all connections of a session share it, so that no id comes twice. wake(ctx) is called, from any
 * thread, when an answer is still to come whose caller gave up, and no thread is reading: somebody
 * should then call gm_conn_drain().
 */
int gm_conn_new(int socket, _Atomic uint64_t *ids, void (*wake)(void *ctx), void *ctx,
	struct gm_conn **ret_conn);
struct gm_conn *gm_conn_ref(struct gm_conn *conn);
/* Dropping the last reference ends the connection, and with it the calls whose callers gave up. */
void gm_conn_unref(struct gm_conn *conn);

/*
 * Sends the request and waits for the last packet of its answer, until deadline_ns
 * (CLOCK_MONOTONIC). Fills in the request's id (the call's, or the next one) and fds_seen. Returns:
 *   0            call->result, status and detail say how the call ended.
 *   -EPIPE       The connection is gone; see gm_conn_reason().
 *   -E2BIG       The request is too long to send.
 *   -ENOMEM      The kernel had no memory to send it.
 *   -ETIMEDOUT   The connection owns the call now and ends it in ops->late(), which may have run
 *                already.
 *   -ECANCELED   The same, because the look returned 0. The caller should tell the daemon that the
 *                request, whose id is in the packet, is not wanted any more.
 */
int gm_conn_call(struct gm_conn *conn, Gm__Wire__Packet *request, struct gm_conn_request *call,
	uint64_t deadline_ns);

/*
 * Sends the request and does not wait for the answer: on success, the connection owns the call at
 * once and ends it in ops->late(), which may have run already. The request's id is filled in as by
 * gm_conn_call(). urgent: the request is sent however many are unanswered. On error, the call stays
 * the caller's. Returns:
 *   -EAGAIN      Too many requests are unanswered, or the socket is full. It can be sent later.
 *   -EPIPE, -E2BIG, -ENOMEM   as gm_conn_call()
 */
int gm_conn_begin(
	struct gm_conn *conn, Gm__Wire__Packet *request, struct gm_conn_request *call, bool urgent);

/* Wakes every call that has a look. */
void gm_conn_poke(struct gm_conn *conn);
/* Reads all packets that have arrived, unless another thread is reading. Never waits. */
void gm_conn_drain(struct gm_conn *conn);
/* Whether an answer is still to come whose caller gave up, and no thread is reading. */
bool gm_conn_unread(struct gm_conn *conn);
/* Ends the connection now: every call returns. If it has ended already, the first reason stays. */
void gm_conn_kill(struct gm_conn *conn, const char *reason);
bool gm_conn_dead(struct gm_conn *conn);
/* Why the connection ended: the daemon's own status and words if it sent any, else
 * GPUMEM_E_DISCONNECTED and what this side saw. The reason is "" while the connection lives. */
gpumem_status gm_conn_reason(struct gm_conn *conn, char reason[GM_ERROR_BYTES]);
/* The socket, to poll for its end. The connection owns it. */
int gm_conn_fd(const struct gm_conn *conn);

#endif
