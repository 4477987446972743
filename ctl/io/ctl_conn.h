/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_IO_CTL_CONN_H
#define GM_CTL_IO_CTL_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status_table.h"
#include "common/wire/wire.h"

/*
 * A connection to gpumemd as an observer: it asks one question at a time and never takes memory.
 */

/* Why something failed. The status decides the exit status; the text names cause and remedy. */
struct gm_trouble {
	gpumem_status status;
	char text[1024];
	char hint[256]; /* what to do, as the end of the sentence; "" if there is nothing */
};

/* Sets status and text, and clears the hint. Returns status. */
gpumem_status gm_trouble_set(struct gm_trouble *trouble, gpumem_status status, const char *format,
	...) __attribute__((format(printf, 3, 4)));

struct gm_ctl_conn;

/*
 * Connects to the daemon and says hello. If socket is NULL, looks for it where clients do. Here and
 * later, waits at most timeout_ms for each answer. On failure (GPUMEM_E_DISCONNECTED,
 * GPUMEM_E_DENIED, GPUMEM_E_VERSION, GPUMEM_E_TIMEOUT, …), fills in *trouble and leaves *ret_conn untouched.
 */
gpumem_status gm_ctl_conn_open(const char *socket, uint64_t timeout_ms, struct gm_trouble *trouble,
	struct gm_ctl_conn **ret_conn);
void gm_ctl_conn_free(struct gm_ctl_conn *conn);

/* The socket that it is connected to. Lives as long as the connection. */
const char *gm_ctl_conn_path(const struct gm_ctl_conn *conn);

/* From the daemon's hello. The text lives as long as the connection. */
const char *gm_ctl_conn_daemon_version(const struct gm_ctl_conn *conn);
uint32_t gm_ctl_conn_daemon_major(const struct gm_ctl_conn *conn);
uint32_t gm_ctl_conn_daemon_minor(const struct gm_ctl_conn *conn);

/* Called for each packet of an answer, in order. The packet is valid only during the call. */
typedef void (*gm_ctl_conn_answer_fn)(void *user, const Gm__Wire__Packet *packet);

/*
 * Sets the id of the request, sends it, and calls fn, unless that is NULL, for each packet of the answer. All packets
 * must have the expected body. If the daemon refuses, goes away or sends anything else, returns
 * another status than GPUMEM_OK and fills in *trouble.
 */
gpumem_status gm_ctl_conn_ask(struct gm_ctl_conn *conn, Gm__Wire__Packet *request,
	Gm__Wire__Packet__BodyCase expected, gm_ctl_conn_answer_fn fn, void *user,
	struct gm_trouble *trouble);

/* Asks a question that has no fields, such as GM__WIRE__PACKET__BODY_GET_CLIENTS, as gm_ctl_conn_ask() does. */
gpumem_status gm_ctl_conn_get(struct gm_ctl_conn *conn, Gm__Wire__Packet__BodyCase question,
	gm_ctl_conn_answer_fn fn, void *user, struct gm_trouble *trouble);

/* Called for each event. The packet is valid only during the call. Returns false to end the watch.
 */
typedef bool (*gm_ctl_conn_event_fn)(void *user, const Gm__Wire__Packet *packet);

/*
 * Asks for events and calls fn for each, until fn returns false. There is no timeout between
 * events. If the daemon ends first, returns GPUMEM_E_DISCONNECTED.
 */
gpumem_status gm_ctl_conn_watch(
	struct gm_ctl_conn *conn, gm_ctl_conn_event_fn fn, void *user, struct gm_trouble *trouble);

#endif
