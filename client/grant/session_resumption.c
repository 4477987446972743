/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resumes a session. It first presents the session's token, and asks for a new session only if the
 * daemon does not know the old one.
 *
 * Before any thread may send on the new connection, both sides compare what the session holds. An
 * answer that was lost with the old connection may have granted memory that nobody here knows
 * about. The request, which is repeated, gets that memory; if there is no such request any more, it
 * is given back. Memory that this process uses is never unmapped here.
 */
#include "client/grant/session_resumption.h"

#include <stdio.h>
#include <string.h>

#include <utlist.h>

#include "client/grant/session_declared.h"
#include "client/grant/lease_returns.h"
#include "client/grant/session_lease.h"
#include "client/session/session_call.h"
#include "client/grant/session_reconcile.h"
#include "common/cleanup.h"
#include "common/status_table.h"

/* Returns how many bytes the leases have that this session made and that the daemon may know. */
static uint64_t session_resumption_held(struct gpumem_session *session)
{
	const struct gm_session_lease *lease;
	uint64_t held = 0;

	gm_lock(&session->lock);
	DL_FOREACH (session->leases, lease)
		if (lease->held.epoch == session->epoch && !lease->opened)
			held += lease->bytes;
	gm_lock_drop(&session->lock);
	return held;
}

/* To ask for a new session is to give up the old one, with everything that the daemon charged to it and
 * that others opened. So only the daemon's own answer about the session may lead there. A daemon that
 * cannot be reached, for whatever reason, is tried again later. */
static gpumem_status session_resumption_hello(
	struct gpumem_session *session, struct gm_conn_hello *ret_greeted)
{
	bool refused;
	gpumem_status status = gm_session_hello(
		session, false, session_resumption_held(session), ret_greeted, &refused);
	if (refused && (status == GPUMEM_E_NOT_FOUND || status == GPUMEM_E_DENIED ||
			       status == GPUMEM_E_INVALID))
		status = gm_session_hello(session, true, 0, ret_greeted, &refused);
	return status;
}

/* Checks that the daemon still has the devices that this process may hold memory of. */
static gpumem_status session_resumption_check_devices(
	struct gpumem_session *session, struct gm_conn *conn)
{
	gpumem_device_info_t infos[GM_BOUND_DEVICES];
	uint32_t n = 0;
	gpumem_status status = gm_session_devices(session, conn, infos, &n);
	if (status)
		return status;

	if (n < session->devices)
		return gm_error(GPUMEM_E_DISCONNECTED, "gpumemd came back with fewer devices");
	for (uint32_t i = 0; i < session->devices; i++) {
		if (infos[i].number != session->device[i].info.number ||
			strcmp(infos[i].backend, session->device[i].info.backend))
			return gm_error(GPUMEM_E_DISCONNECTED,
				"gpumemd came back with another kind of device %u", i);
		/* This process maps all memory of the device's number on the old GPU. */
		if (strcmp(infos[i].backend, "cuda") == 0 &&
			memcmp(infos[i].uuid, session->device[i].info.uuid, GM_UUID_BYTES))
			return gm_error(GPUMEM_E_DISCONNECTED,
				"gpumemd came back with another GPU as device %u", i);
	}
	return GPUMEM_OK;
}

/* The old token is void as soon as the daemon has answered. So the new one is kept at once, even if
 * resuming fails later. */
static void session_resumption_keep_token(
	struct gpumem_session *session, const struct gm_conn_hello *greeted)
{
	gm_lock(&session->lock);
	memcpy(session->token, greeted->token, sizeof(session->token));
	gm_lock_drop(&session->lock);
}

static gpumem_status session_resumption_settle(
	struct gpumem_session *session, struct gm_conn_hello *greeted)
{
	gpumem_status status = session_resumption_check_devices(session, greeted->conn);
	if (status)
		return status;

	int r = gm_session_pages_map(&session->pages, greeted->daemon_page, greeted->client_page);
	if (r < 0)
		return gm_error(gm_status_from_errno(r), "cannot map the session's pages: %s",
			strerror(-r));

	status = gm_session_declared_resume(session, greeted->conn);
	if (status || !greeted->resumed)
		return status;
	return gm_session_reconcile(session, greeted->conn, greeted->leases, greeted->n_leases);
}

gpumem_status gm_session_resumption(struct gpumem_session *session)
{
	struct gm_conn_hello greeted;
	gpumem_status status = session_resumption_hello(session, &greeted);
	if (status)
		return status;

	if (greeted.resumed)
		session_resumption_keep_token(session, &greeted);
	status = session_resumption_settle(session, &greeted);
	if (!status) {
		/* The session first returns what the program freed meanwhile: a waiting request may
		 * need the room. Returns of an older epoch are dropped, not sent. */
		if (greeted.resumed)
			(void)gm_lease_returns_flush(session, greeted.conn);
		gm_session_adopt(session, &greeted);
		if (!greeted.resumed)
			(void)gm_lease_returns_flush(session, NULL);
		gm_session_declared_flush(session);
	}

	gm_conn_hello_deinit(&greeted);
	return status;
}
