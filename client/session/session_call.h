/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_SESSION_SESSION_CALL_H
#define GM_CLIENT_SESSION_SESSION_CALL_H

#include "client/session/gpumem_session.h"

/*
 * Sends a request and waits for its answer. Uses the session's connection, or via if that is not
 * NULL: a new connection on which the session is being resumed.
 *
 * While the daemon is away, the request waits for it as the call's wait says, unless it goes via another
 * connection. If the connection ends before the answer is complete, the request is repeated with the same
 * id as soon as the daemon is back. If the daemon is back and does not know the session any more, a
 * request that has an of_epoch fails with GPUMEM_E_NOT_FOUND, and others are made in the new session.
 *
 * Returns the daemon's status, or one of the library such as GPUMEM_E_DISCONNECTED, and leaves the
 * sentence for gpumem_error_detail(). If *call is NULL afterwards, the connection owns the call and
 * ends it in ops->late(): the answer did not come in time (GPUMEM_E_TIMEOUT), or the look of the wait
 * found something else (GPUMEM_E_CANCELLED), and the daemon was told so. The request may be a part of
 * the call. If the look found something while the daemon was away, the call stays the caller's.
 *
 * A request that does not wait for memory is answered soon, so it looks only while the daemon is away.
 */
gpumem_status gm_session_call(struct gpumem_session *session, struct gm_conn *via,
	Gm__Wire__Packet *request, struct gm_conn_request **call);
/*
 * Sends a request and does not wait, neither for the answer nor for an absent daemon. On success the
 * connection owns the call at once and ends it in ops->late(); *ret_conn is a reference to that
 * connection. Otherwise the call stays the caller's, and can be sent later after these:
 *   GPUMEM_E_BUSY          Too many requests are unanswered.
 *   GPUMEM_E_DISCONNECTED  The daemon is away.
 */
gpumem_status gm_session_begin(struct gpumem_session *session, Gm__Wire__Packet *request,
	struct gm_conn_request *call, struct gm_conn **ret_conn);
/* When the answer to a request that is sent now is overdue. */
uint64_t gm_session_overdue_ns(struct gpumem_session *session, const struct gm_conn_request *call);
/* How such a call ended. *ret_lost: the connection, which is given, ended first; the session is away
 * then, and the request can be repeated. */
gpumem_status gm_session_outcome(struct gpumem_session *session, struct gm_conn *conn,
	struct gm_conn_request *call, bool *ret_lost);
/* Tells the daemon that a request is not wanted any more, and does not wait. Takes ownership of call,
 * which must be zeroed memory from malloc(). */
void gm_session_call_off(
	struct gpumem_session *session, uint64_t request, struct gm_conn_request *call);

/* Sends a request that is answered with Done, as gm_session_call() does. of_epoch is as in
 * struct gm_conn_request; mode: GM_WAIT_FOR_DAEMON or GM_WAIT_NOT. */
gpumem_status gm_session_tell(struct gpumem_session *session, struct gm_conn *via,
	Gm__Wire__Packet *request, uint64_t of_epoch, enum gm_wait_mode mode);

/* The same without allocating memory: call must outlive the connection. */
gpumem_status gm_session_tell_with(struct gpumem_session *session, struct gm_conn *via,
	Gm__Wire__Packet *request, struct gm_conn_request *call);

/* Reads the device list. Pinned host memory, if there is any, is the last device and has the number
 * GPUMEM_DEVICE_HOST. ret_infos must have room for GM_BOUND_DEVICES. */
gpumem_status gm_session_devices(struct gpumem_session *session, struct gm_conn *via,
	gpumem_device_info_t *ret_infos, uint32_t *ret_n);

#endif
