/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_CONN_H
#define GM_CTL_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status_table.h"
#include "common/wire.h"

/*
 * A connection to gpumemd as an observer: it asks, one request at a time, and takes no memory.
 */

/* Why something failed: the status gives the exit code, the text says cause and remedy. */
struct gm_trouble {
	gpumem_status status;
	char text[1024];
	char hint[256]; /* what to do about it, if there is more to say; a sentence */
};
/* Fills it in, without a hint; returns status. */
gpumem_status gm_trouble_set(struct gm_trouble *trouble, gpumem_status status, const char *format,
	...) __attribute__((format(printf, 3, 4)));

struct gm_ctl_conn;

/*
 * socket: NULL for where clients look by themselves. Connects and says hello; waits timeout_ms at
 * most for each answer. GPUMEM_OK, or what trouble says: GPUMEM_E_DISCONNECTED, GPUMEM_E_VERSION,
 * GPUMEM_E_TIMEOUT, …
 */
gpumem_status gm_ctl_conn_open(const char *socket, uint64_t timeout_ms, struct gm_trouble *trouble,
	struct gm_ctl_conn **ret_conn);
void gm_ctl_conn_free(struct gm_ctl_conn *conn);

/* From the daemon's hello; good as long as the connection. */
const char *gm_ctl_conn_daemon_version(const struct gm_ctl_conn *conn);
uint32_t gm_ctl_conn_daemon_major(const struct gm_ctl_conn *conn);
uint32_t gm_ctl_conn_daemon_minor(const struct gm_ctl_conn *conn);

/* Called for each packet of the answer, in order; the packet is good during the call only. */
typedef void (*gm_ctl_conn_answer_fn)(void *user, const Gm__Wire__Packet *packet);

/*
 * Sends the request (its id is set here) and hands over each packet of the answer, all of which
 * must have the expected body. A Failure, a daemon that goes away, an answer that is none: not
 * GPUMEM_OK, and trouble says what.
 */
gpumem_status gm_ctl_conn_ask(struct gm_ctl_conn *conn, Gm__Wire__Packet *request,
	Gm__Wire__Packet__BodyCase expected, gm_ctl_conn_answer_fn fn, void *user,
	struct gm_trouble *trouble);

/* An event; the packet is good during the call only. false: enough. */
typedef bool (*gm_ctl_conn_event_fn)(void *user, const Gm__Wire__Packet *packet);

/* Asks for events and hands them over until the function has enough; there is no time between them
 * that would be too long. The daemon's end is GPUMEM_E_DISCONNECTED. */
gpumem_status gm_ctl_conn_watch(
	struct gm_ctl_conn *conn, gm_ctl_conn_event_fn fn, void *user, struct gm_trouble *trouble);

#endif
