/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_SESSION_SESSION_CALL_H
#define GM_CLIENT_SESSION_SESSION_CALL_H

#include "client/session/gpumem_session.h"

/*
 * Sends a request and waits for its answer. Uses the session's connection, or via if that is not
 * NULL: a new connection on which the session is being resumed.
 *
 * While the daemon is away, the request waits for it, as long as the session's away_ns and the
 * call's wait_ns allow, unless it is impatient or goes via another connection. If the connection
 * ends before the answer is complete, the request is repeated with the same id as soon as the daemon
 * is back. If the daemon is back and does not know the session any more, a request that has an
 * of_epoch fails with GPUMEM_E_NOT_FOUND, and others are made in the new session.
 *
 * Returns the daemon's status, or one of the library such as GPUMEM_E_DISCONNECTED, and leaves the
 * sentence for gpumem_error_detail(). If *call is NULL afterwards, the connection owns the call and
 * ends it in ops->late(): the answer did not come in time (GPUMEM_E_TIMEOUT), or the call's again()
 * found something else (GPUMEM_E_CANCELLED), and the daemon was told so. If again() found something
 * while the daemon was away, the call stays the caller's.
 *
 * A request whose extra_ns is 0 is answered soon, so its again() is called only while the daemon is
 * away.
 */
gpumem_status gm_session_call(struct gpumem_session *session, struct gm_conn *via,
	Gm__Wire__Packet *request, struct gm_conn_request **call);
/*
 * Sends a request and does not wait, neither for the answer nor for an absent daemon. On success the
 * connection owns the call at once and ends it in ops->late(); *ret_conn is a reference to that
 * connection. again: the call's last connection ended before it was answered. Otherwise the call
 * stays the caller's, and can be sent later after these:
 *   GPUMEM_E_BUSY          Too many requests are unanswered. again has been dealt with.
 *   GPUMEM_E_DISCONNECTED  The daemon is away.
 */
gpumem_status gm_session_begin(struct gpumem_session *session, Gm__Wire__Packet *request,
	struct gm_conn_request *call, bool again, struct gm_conn **ret_conn);
/* How such a call ended. *ret_lost: the connection, which is given, ended first; the session is away
 * then, and the request can be repeated. */
gpumem_status gm_session_outcome(struct gpumem_session *session, struct gm_conn *conn,
	const struct gm_conn_request *call, bool *ret_lost);
/* Tells the daemon that a request is not wanted any more, and does not wait. Takes ownership of call,
 * which must be zeroed memory from malloc(). */
void gm_session_call_off(
	struct gpumem_session *session, uint64_t request, struct gm_conn_request *call);

/* Sends a request that is answered with Done, as gm_session_call() does. of_epoch and impatient are as in
 * struct gm_conn_request. */
gpumem_status gm_session_tell(struct gpumem_session *session, struct gm_conn *via,
	Gm__Wire__Packet *request, uint64_t of_epoch, bool impatient);

/* The same without allocating memory: call must outlive the connection. */
gpumem_status gm_session_tell_with(struct gpumem_session *session, struct gm_conn *via,
	Gm__Wire__Packet *request, struct gm_conn_request *call);

/* Reads the device list. Pinned host memory, if there is any, is the last device and has the number
 * GPUMEM_DEVICE_HOST. ret_infos must have room for GM_BOUND_DEVICES. */
gpumem_status gm_session_devices(struct gpumem_session *session, struct gm_conn *via,
	gpumem_device_info_t *ret_infos, uint32_t *ret_n);

#endif
