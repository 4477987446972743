/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_CONN_H
#define GM_CLIENT_CONN_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/session/error.h"
#include "common/seqpacket.h"
#include "common/wire.h"
#include "gpumem/status.h"

/*
 * The connection that requests and their answers travel on. Any number of threads call at once;
 * one of those that wait reads for all of them, and passes that on when its own answer is there.
 */
struct gm_conn;
struct gm_call;

struct gm_call_ops {
	/*
	 * One packet of the answer; a Failure never gets here. Runs on whichever thread reads,
	 * with the connection locked: takes what it wants out of both and waits for nothing. What
	 * is left in the list of fds is closed after it. A negative errno ends the call with it,
	 * once its last packet is there.
	 */
	int (*take)(struct gm_call *call, const Gm__Wire__Packet *packet, struct gm_packet_in *in);
	/*
	 * The end of a call that nobody waits for any more (gm_conn_call() said -ETIMEDOUT): the
	 * call is its owner's again, with all that take() collected. Runs on the thread that
	 * reads, nothing locked.
	 */
	void (*late)(struct gm_call *call);
};

/* One request. Embed it in memory that can outlive the caller's patience. */
struct gm_call {
	const struct gm_call_ops *ops;
	/*
	 * How it ended. 0: answered, and status and detail are the daemon's. -EPIPE: the connection
	 * ended first. -ECANCELED: it was never sent. Others: what take() said.
	 */
	int result;
	gpumem_status status;
	char detail[GM_ERROR_BYTES];
	uint64_t extra_ns; /* the session's own: how much longer than usual an answer may take */
	uint64_t epoch;    /* the session's own: which of its lives the request went out in */

	/* the connection's own */
	uint64_t id;
	enum { GM_CALL_SENDING, GM_CALL_WAITED, GM_CALL_ABANDONED, GM_CALL_DONE } state;
	pthread_cond_t answered;
	struct gm_call *prev, *next;
};

/*
 * Takes the socket, also on failure. wake(ctx) is called, from any thread, when an answer nobody
 * waits for is due and nobody reads: then someone should gm_conn_drain(). 0; -ENOMEM.
 */
int gm_conn_new(int socket, void (*wake)(void *ctx), void *ctx, struct gm_conn **ret_conn);
struct gm_conn *gm_conn_ref(struct gm_conn *conn);
/* The last one ends the connection; calls that nobody waits for end late. */
void gm_conn_unref(struct gm_conn *conn);

/*
 * Sends the request (its id and fds_seen are filled in here) and waits for the last packet of its
 * answer, until deadline_ns (CLOCK_MONOTONIC). 0: call->result, status and detail say how it went.
 * -EPIPE: the connection is gone; gm_conn_reason(). -E2BIG: too long to send. -ENOMEM: the kernel
 * had no memory to send it with. -ETIMEDOUT: the call is the connection's now, and ends in
 * ops->late(), which may have run already.
 */
int gm_conn_call(struct gm_conn *conn, Gm__Wire__Packet *request, struct gm_call *call,
	uint64_t deadline_ns);

/* Reads what is there, if nobody else does. Never waits. */
void gm_conn_drain(struct gm_conn *conn);
/* Whether an answer nobody waits for is due and nobody reads. */
bool gm_conn_unread(struct gm_conn *conn);
/* Ends the connection now: every call returns. The first reason stays. */
void gm_conn_kill(struct gm_conn *conn, const char *reason);
bool gm_conn_dead(struct gm_conn *conn);
/* Why it ended: the daemon's own status and words if it gave any, else GPUMEM_E_DISCONNECTED and
 * what was seen of it; "" while it lives. */
gpumem_status gm_conn_reason(struct gm_conn *conn, char reason[GM_ERROR_BYTES]);
/* To poll for its end; stays the connection's. */
int gm_conn_fd(const struct gm_conn *conn);

#endif
