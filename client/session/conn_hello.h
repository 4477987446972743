/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_SESSION_CONN_HELLO_H
#define GM_CLIENT_SESSION_CONN_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/session/conn.h"
#include "common/types.h"

/* The first message of a client. */
struct gm_conn_hello_ask {
	const char *path; /* of the socket */
	const char *why;  /* why that path, for messages: "the user's daemon", … */
	const char *name; /* may be "" */
	/* The run of gpumem-run that this process is part of, or "", and what it says about it. */
	const char *run;
	uint64_t run_max;     /* 0: no limit */
	int32_t run_priority; /* 0: none */
	const char *run_name; /* "": none */
	uint64_t session;     /* the session to resume, or 0 for a new one */
	uint8_t token[GM_TOKEN_BYTES];
	uint64_t held; /* with session: bytes of the leases that it made */
	uint64_t deadline_ns;
	_Atomic uint64_t *ids;   /* for gm_conn_new() */
	void (*wake)(void *ctx); /* the same */
	/* Not NULL: gets the connection before the hello is sent. */
	void (*connected)(void *ctx, struct gm_conn *conn);
	void *ctx; /* of wake and connected */
};

/* The daemon's answer. The struct owns the connection, the fds and the list. */
struct gm_conn_hello {
	struct gm_conn *conn;
	int wakeup;      /* is sent when the daemon's page has a new event */
	int daemon_page; /* fds of the two pages */
	int client_page;
	uint64_t generation;
	uint64_t session;
	uint8_t token[GM_TOKEN_BYTES];
	uint64_t decay_ms;
	uint64_t wait_ms;
	enum gm_track track;
	bool resumed;
	uint64_t *leases; /* of a resumed session */
	size_t n_leases;
};

/*
 * Connects and says hello. On error, leaves *ret_hello untouched; the sentence names the cause and
 * the remedy. *ret_refused, which is always written, says whether the error is the daemon's answer
 * to this hello. Any other error says nothing about the session: the same status may come from a
 * socket that cannot be opened yet.
 */
gpumem_status gm_conn_hello(
	const struct gm_conn_hello_ask *ask, struct gm_conn_hello *ret_hello, bool *ret_refused);
void gm_conn_hello_deinit(struct gm_conn_hello *hello);

#endif
