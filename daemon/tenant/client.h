/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CLIENT_H
#define GM_DAEMON_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include <uthash.h>

#include "common/limits.h"
#include "daemon/core/core.h"
#include "daemon/tenant/domain.h"
#include "daemon/tenant/events.h"
#include "daemon/net/identity.h"
#include "daemon/tenant/pages.h"
#include "daemon/net/peer.h"

/*
 * Clients: core's sessions with what belongs to them on this side of core. A client is a process:
 * it lives until its process ends (its pidfd is watched), or until it has no connection and no
 * lease. While it holds leases and is off the socket, it is quarantined and can come back with its
 * token.
 */
struct gm_client {
	struct gm_clients *clients;
	struct gm_session *session;
	uint64_t id;          /* the session's */
	struct gm_peer *peer; /* NULL: quarantined */
	struct gm_identity *identity;
	gm_domain domain;
	uint64_t since_ns;
	char name[GM_LIMIT_NAME_BYTES + 1];
	struct gm_pages pages;
	struct gm_events *events;
	uint64_t max[GM_LIMIT_DEVICES]; /* as it was told; UINT64_MAX: no limit */
	uint64_t said_ns[GM_EVENTS];    /* when the journal last had one of this kind about it */
	struct gm_serve_asked *asked;   /* requests for memory without an answer: serve_lease's */
	uint32_t n_waiting;             /* of them, those that may wait */
	uv_poll_t process;              /* its pidfd */
	struct gm_client *prev, *next;  /* in order of age */
	struct gm_client_user *of_user;
	UT_hash_handle hh;
};

/* How many clients a user has, those off the socket included. */
struct gm_client_user {
	uid_t uid;
	uint32_t clients;
	UT_hash_handle hh;
};

struct gm_clients {
	struct gm_hub *hub;
	struct gm_core *core;
	struct gm_domains *domains;
	uint32_t devices;
	struct gm_client *list;
	struct gm_client *by_id;
	struct gm_client_user *users;
	uint32_t per_uid;
	uint64_t quarantined;
	/* Pages whose device figures are to be written at the end of this interval. */
	uint32_t dirty; /* a bit per device */
	uv_timer_t timer;
	bool timer_open;
	/* Told after the figures went out: for what else is done now and then. */
	void (*flushed)(void *ctx);
	void *ctx;
};
int gm_clients_init(struct gm_clients *clients, struct gm_hub *hub, struct gm_core *core,
	uint32_t devices, void (*flushed)(void *ctx), void *ctx);
void gm_clients_close(struct gm_clients *clients); /* its handle; then let the loop turn */
void gm_clients_deinit(struct gm_clients *clients);
/*
 * How many clients a user may have. A connection that ends leaves a quarantined client while its
 * process lives, so the bound on connections alone bounds nothing.
 */
void gm_clients_set_bound(struct gm_clients *clients, uint32_t per_uid);

/* What a new client gets with its hello's answer; fds are the caller's. */
struct gm_client_welcome {
	uint8_t token[GM_TOKEN_BYTES];
	bool resumed;
	int events, daemon_page, client_page;
};
void gm_client_welcome_deinit(struct gm_client_welcome *welcome);

/*
 * A new client, or (resume_id not 0) the one that was away, for the same process with the right
 * token only; one that is not there any more begins anew. 0; -EACCES: wrong token or another
 * process; -EUSERS: the user has as many clients as it may have; -EMFILE, -ENOMEM, …
 */
int gm_clients_join(struct gm_clients *clients, struct gm_peer *peer, const char *name,
	enum gm_trust trust, uint64_t resume_id, const uint8_t *resume_token,
	struct gm_client **ret_client, struct gm_client_welcome *ret_welcome);
/* Its connection has ended. May end the client. */
void gm_client_disconnected(struct gm_client *client);
/* It said that it unmapped everything. Ends the client. */
void gm_client_goodbye(struct gm_client *client);
/* Whose session it is; NULL: it is not there yet, or no more. */
struct gm_client *gm_clients_of(const struct gm_clients *clients, const struct gm_session *session);
/* In order of age: the first with an id above that one; NULL: none. */
struct gm_client *gm_clients_after(struct gm_clients *clients, uint64_t id);

/* Core's news, for the pages and the event channels. */
void gm_clients_device_changed(struct gm_clients *clients, uint32_t device);
void gm_clients_session_changed(struct gm_session *session, uint32_t device);
void gm_clients_level_changed(struct gm_clients *clients, uint32_t device);
/* Limits changed: whoever may hold more or less than before is told, on its page and by an event.
 */
void gm_clients_limits_changed(struct gm_clients *clients);
/* Asks one client, as core wants it. */
void gm_clients_reclaim_from(struct gm_session *session, const struct gm_reclaim *ask);
/* What a client says it could give back, as far as it can be true. */
void gm_clients_use(struct gm_session *session, uint32_t device, struct gm_use *ret);
/* Asks everybody who holds something there for what is unused. How many were asked. */
uint64_t gm_clients_reclaim(struct gm_clients *clients, uint32_t device, bool urgent);
void gm_clients_goodbye(struct gm_clients *clients, const char *reason, bool restart);
/* Closes all connections and forgets all clients. Core's sessions end as died. */
void gm_clients_end_all(struct gm_clients *clients);

#endif
