/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CLIENT_H
#define GM_DAEMON_CLIENT_H

#include "daemon/tenant/client_table.h"

/*
 * This folder keeps a record of every client process, with its session, trust domain, events and
 * shared pages, and never releases memory that a live process may still use. It must never
 * know how requests are answered, or how a device makes memory.
 *
 * A client lives until its process ends (the daemon watches its pidfd), until it says goodbye, or
 * until it has neither a connection nor a lease, or neither a connection nor its page. A process
 * without its page has called exec, so it no longer has any of the client's memory. The daemon destroys that memory,
 * because other processes may still map it. A client that holds leases and has its page, but no connection,
 * is quarantined, and can come back with its token.
 */

int gm_clients_init(struct gm_clients *clients, struct gm_hub *hub, struct gm_core *core,
	uint32_t devices, void (*flushed)(void *ctx), void *ctx);
/* Closes the timer. The loop must turn once more before gm_clients_deinit(). */
void gm_clients_close(struct gm_clients *clients);
void gm_clients_deinit(struct gm_clients *clients);
/*
 * Sets how many clients a user may have. Limiting connections is not enough: a client whose
 * connection ends may be quarantined, and then counts on while its process lives.
 */
void gm_clients_set_bound(struct gm_clients *clients, uint32_t per_uid);

/* What a client gets with the answer to its hello. The caller owns the fds. */
struct gm_client_welcome {
	uint8_t token[GM_TOKEN_BYTES];
	bool resumed;
	int wakeup, daemon_page, client_page;
};
void gm_client_welcome_deinit(struct gm_client_welcome *welcome);

/* What a client says when it joins. A client that is resumed keeps the name and the run that it began with. */
struct gm_client_hello {
	const char *name; /* "": none */
	const char *run;  /* the run of gpumem-run that it says it is part of; "": none */
	struct gm_limit_values run_limit;
	struct gm_pages *
		pages; /* opened for session 0, in the version that the client knows; taken on success */
	bool unique_ids;            /* it never uses the id of a packet twice in a session */
	enum gm_domain_trust trust; /* what the configuration says */
	uint64_t resume_id;         /* 0: it is new */
	uint64_t held;              /* what it says that the session to resume holds, in bytes */
	const uint8_t *resume_token;
};

/*
 * Makes a new client or, if resume_id is not 0, resumes that one. Only the process that made a
 * client can resume it, and only with the right token. A client that has ended is made anew.
 * Returns 0, or a negative errno:
 *   -EACCES  the token is wrong, or the client belongs to another process
 *   -EUSERS  the user has as many clients as allowed
 *   -ENOSPC  the user has as many as it leaves to others (GM_BOUND_SESSIONS)
 *   -EMLINK  the user's clients are in too many units, containers and groups
 *   -EMFILE, -ENOMEM, …
 */
int gm_clients_join(struct gm_clients *clients, struct gm_peer *peer,
	const struct gm_client_hello *hello, struct gm_client **ret_client,
	struct gm_client_welcome *ret_welcome);
/* The client's connection has ended. This may end the client. */
void gm_client_disconnected(struct gm_client *client);
/* The client said goodbye: it has unmapped everything. Ends the client. */
void gm_client_goodbye(struct gm_client *client);
/* Closes all connections and ends all clients, as if their processes had died. */
void gm_clients_end_all(struct gm_clients *clients);

/* ---- for client_adopt.c */

/*
 * Enters a client into the table and watches its process; it counts for its flow from now on. The
 * caller has filled in id and flow. On failure nothing has changed.
 */
int gm_client_enter(struct gm_client *client, struct gm_identity *identity);
/* Ends the record of a client that was entered. The caller ends the session. */
void gm_client_forget(struct gm_client *client);
/* The client's session is quarantined: looks now and then whether its process has called exec. */
void gm_client_is_away(struct gm_client *client);

#endif
