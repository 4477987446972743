/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CLIENT_NEWS_H
#define GM_DAEMON_CLIENT_NEWS_H

#include "common/log.h"
#include "daemon/tenant/client_table.h"

/*
 * What the daemon tells clients, on their pages and by events, and what it tells the journal about them.
 *
 * The daemon writes what a client holds, and what it could get, to the client's page at once, also
 * when it refuses a request of the client. The figures of a device are
 * the same for all clients, so they are written to all pages together, at most once per interval.
 * Only a new pressure level is written at once. So the cost of a request does not grow with the
 * number of clients, and nothing runs while nothing changes.
 */

/* Core's news, for the pages and the event channels. */
void gm_clients_device_changed(struct gm_clients *clients, uint32_t device);
void gm_clients_session_changed(struct gm_session *session, uint32_t device);
void gm_clients_level_changed(struct gm_clients *clients, uint32_t device);
/* Tells every client whose limit has changed, on its page and by an event. */
void gm_clients_limits_changed(struct gm_clients *clients);
/* Asks one client for memory, on behalf of core. */
void gm_clients_reclaim_from(struct gm_session *session, const struct gm_reclaim_message *ask);
/* Tells a client that a lease with signals that it opened has no maker any more. */
void gm_clients_maker_left(struct gm_session *session);
/* Reads what a client says it could give back, bounded by what it holds. */
void gm_clients_use(struct gm_session *session, uint32_t device, struct gm_account_use *ret);
/* Asks every client that holds memory of the device to return what it does not use. Returns how
 * many clients were asked. */
uint64_t gm_clients_reclaim(struct gm_clients *clients, uint32_t device, bool urgent);
/* Tells all clients that the daemon is about to end. reason must outlive them. */
void gm_clients_goodbye(struct gm_clients *clients, const char *reason, bool restart);

/* ---- for client.c */

/* Writes a device's figures, and what the client holds of it, to the client's page. */
void gm_client_write_page(
	struct gm_client *client, uint32_t device, const struct gm_device_figures *figures);
/* Writes a line about the client to the journal, unless its user has had too many. */
void gm_client_log(const struct gm_client *client, enum gm_log_level level, const char *what);
/* Has the journal say that the client is quarantined, if it still is when the interval ends. */
void gm_client_say_quarantined(struct gm_client *client);

#endif
