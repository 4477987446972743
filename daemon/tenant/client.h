/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CLIENT_H
#define GM_DAEMON_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include <uthash.h>

#include "common/limits.h"
#include "daemon/core/core.h"
#include "daemon/net/identity.h"
#include "daemon/net/peer.h"
#include "daemon/tenant/domain.h"
#include "daemon/tenant/events.h"
#include "daemon/tenant/pages.h"

/*
 * This folder keeps a record of every client process, with its session, trust domain, event channel
 * and shared pages, and never releases memory that a live process may still use. It must never
 * know how requests are answered, or how a device makes memory.
 *
 * A client lives until its process ends (the daemon watches its pidfd), until it says goodbye, or
 * until it has neither a connection nor a lease, or neither a connection nor its page. A process
 * without its page has called exec, so it has none of the client's memory any more; whoever else may
 * map that memory, it is destroyed. A client that holds leases and has its page, but no connection,
 * is quarantined, and can come back with its token.
 */
#define GM_CLIENT_REFUSED 8
struct gm_client {
	struct gm_clients *clients;
	struct gm_session *session;
	uint64_t id;          /* the session's */
	struct gm_peer *peer; /* NULL: quarantined */
	bool unsaid;          /* the log does not say yet that it is quarantined */
	struct gm_identity *identity;
	gm_domain domain;
	uint64_t since_ns;
	uint64_t start_time; /* of its process; 0: not known, or nothing outlives the daemon */
	uint32_t place;      /* of its record */
	bool page_lost;   /* an earlier daemon had its page, so nobody can say whether it is gone */
	bool page_unsafe; /* its page may not outlive the daemon */
	bool resumed;     /* by a client that never uses a packet id twice: it may repeat one */
	bool unproven;    /* resumed, and no packet came since: its former token is valid still */
	char name[GM_LIMIT_NAME_BYTES + 1];
	struct gm_pages pages;
	struct gm_pages former; /* of a session that was resumed: the client's page from before */
	struct gm_events *events;
	uint64_t max[GM_LIMIT_DEVICES]; /* the limit it was told last; UINT64_MAX: none */
	uint64_t said_ns[GM_EVENTS];    /* when the journal last got a line of each kind about it */
	struct gm_serve_asked *asked;   /* unanswered requests for memory: serve_lease.c's own */
	uint32_t n_waiting;             /* how many of those may wait for room */
	/* Its last requests that were refused and may be followed by another: serve_lease.c's own. */
	struct gm_client_refused {
		uint64_t id;      /* of the request; 0: none */
		uint32_t repeats; /* how many followed the first one so far */
	} refused[GM_CLIENT_REFUSED];
	uint32_t next_refused;
	struct gm_lane *lane;
	struct gm_lane_fd process;     /* its pidfd */
	struct gm_client *prev, *next; /* oldest first */
	struct gm_client *away_prev,
		*away_next; /* of the quarantined ones; away_prev NULL: it is not */
	UT_hash_handle hh;
};

/* What outlives the daemon besides the records: descriptors of each client. */
enum gm_client_item {
	GM_CLIENT_PROCESS, /* its pidfd */
	GM_CLIENT_PAGE,    /* its page */
	GM_CLIENT_FORMER,  /* its page from before it was resumed */
};

struct gm_clients_keep {
	/* As in gm_core_ops. */
	int (*record)(void *ctx, uint32_t kind, uint64_t id, uint32_t *place, const void *bytes,
		size_t size);
	void (*erase)(void *ctx, uint32_t *place);
	/* Keeps a copy of a client's fd, instead of the one that it keeps so far. Returns whether the
	 * copy is safe by now: it may have to wait, or there may be no room for it. */
	bool (*deposit)(void *ctx, enum gm_client_item item, uint64_t id, int fd);
	/* Gives up the copy, if there is one. */
	void (*withdraw)(void *ctx, enum gm_client_item item, uint64_t id);
};

/* A client whose record was read, and whose session core has not adopted yet. */
struct gm_client_adopted {
	uint64_t id;
	uint32_t place;
	struct gm_client *client; /* NULL: its process is gone */
	gm_domain domain;
};

struct gm_clients {
	struct gm_hub *hub;
	struct gm_core *core;
	struct gm_domains *domains;
	uint32_t devices;
	struct gm_client *list;
	struct gm_client *by_id;
	uint32_t per_uid;
	uint64_t quarantined;
	struct gm_client *away; /* the quarantined ones, in the order in which they are looked at */
	uv_timer_t look;        /* for those that called exec */
	uint64_t look_ms;
	uint32_t dirty; /* a bit per device whose figures the timer has to write to the pages */
	bool unsaid;    /* of some client: the timer has to write that to the log */
	uv_timer_t timer;
	bool timer_open;
	/* Called after the figures were written, for other work that is due now and then. */
	void (*flushed)(void *ctx);
	void *ctx;
	const struct gm_clients_keep *keep; /* NULL: nothing outlives the daemon */
	void *keep_ctx;
	uint8_t boot[GM_RECORD_BOOT_BYTES]; /* of this boot */
	struct gm_client_adopted *adopted;
	size_t n_adopted;
};

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

/* From now on, clients outlive the daemon. Before anybody joins; keep must outlive clients. */
int gm_clients_set_keep(struct gm_clients *clients, const struct gm_clients_keep *keep, void *ctx);
/*
 * For gm_adopt_ops.client: takes back a client of an earlier daemon, and ownership of the fds that were
 * kept for it (-1: lost). A client whose process is gone is taken back, too, until
 * gm_clients_adopt_end().
 */
int gm_clients_adopt(struct gm_clients *clients, enum gm_trust trust, uint64_t id, uint32_t place,
	const struct gm_record_client *record, int pidfd, int page, int former,
	gm_domain *ret_domain, bool *ret_pooling);
/* After gm_core_adopt(): the clients are quarantined now. Those whose process is gone end; returns how
 * many. */
uint64_t gm_clients_adopt_end(struct gm_clients *clients);

/* What a client gets with the answer to its hello. The caller owns the fds. */
struct gm_client_welcome {
	uint8_t token[GM_TOKEN_BYTES];
	bool resumed;
	int events, daemon_page, client_page;
};
void gm_client_welcome_deinit(struct gm_client_welcome *welcome);

/*
 * Makes a new client or, if resume_id is not 0, resumes that one. Only the process that made a
 * client can resume it, and only with the right token. A client that has ended is made anew.
 * page_version is the version of the shared pages that the client knows; unique_ids: it never uses the
 * id of a packet twice in a session.
 * Returns 0, or a negative errno:
 *   -EACCES  the token is wrong, or the client belongs to another process
 *   -EUSERS  the user has as many clients as allowed
 *   -ENOSPC  the user has as many as it leaves to others (GM_LIMIT_SESSIONS)
 *   -EMLINK  the user's clients are in too many units, containers and groups
 *   -EMFILE, -ENOMEM, …
 */
int gm_clients_join(struct gm_clients *clients, struct gm_peer *peer, const char *name,
	uint32_t page_version, bool unique_ids, enum gm_trust trust, uint64_t resume_id,
	const uint8_t *resume_token, struct gm_client **ret_client,
	struct gm_client_welcome *ret_welcome);
/* The client's connection has ended. This may end the client. */
void gm_client_disconnected(struct gm_client *client);
/* The client said goodbye: it has unmapped everything. Ends the client. */
void gm_client_goodbye(struct gm_client *client);
/* Returns NULL if there is no such client, or not yet, or no longer. */
struct gm_client *gm_clients_find(const struct gm_clients *clients, uint64_t id);
struct gm_client *gm_clients_of(const struct gm_clients *clients, const struct gm_session *session);
/* Returns the oldest client with an id above this one, or NULL. Ids grow with time. */
struct gm_client *gm_clients_after(const struct gm_clients *clients, uint64_t id);

/* Core's news, for the pages and the event channels. */
void gm_clients_device_changed(struct gm_clients *clients, uint32_t device);
void gm_clients_session_changed(struct gm_session *session, uint32_t device);
void gm_clients_level_changed(struct gm_clients *clients, uint32_t device);
/* Tells every client whose limit has changed, on its page and by an event. */
void gm_clients_limits_changed(struct gm_clients *clients);
/* Asks one client for memory, on behalf of core. */
void gm_clients_reclaim_from(struct gm_session *session, const struct gm_reclaim *ask);
/* Reads what a client says it could give back, bounded by what it holds. */
void gm_clients_use(struct gm_session *session, uint32_t device, struct gm_use *ret);
/* Asks every client that holds memory of the device to return what it does not use. Returns how
 * many clients were asked. */
uint64_t gm_clients_reclaim(struct gm_clients *clients, uint32_t device, bool urgent);
/* Tells all clients that the daemon is about to end. reason must outlive them. */
void gm_clients_goodbye(struct gm_clients *clients, const char *reason, bool restart);
/* Closes all connections and ends all clients, as if their processes had died. */
void gm_clients_end_all(struct gm_clients *clients);

#endif
