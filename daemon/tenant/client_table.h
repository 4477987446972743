/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CLIENT_TABLE_H
#define GM_DAEMON_CLIENT_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include <uthash.h>

#include "common/bounds.h"
#include "daemon/core/core.h"
#include "daemon/net/identity.h"
#include "daemon/net/peer.h"
#include "daemon/tenant/domain.h"
#include "daemon/tenant/events.h"
#include "daemon/tenant/pages.h"

/* What the daemon has of a client beside core, and the table of all clients. client.c fills the table: it says how long a
 * client lives. */

#define GM_CLIENT_REFUSED 8
struct gm_client {
	struct gm_clients *clients;
	struct gm_session *session;
	uint64_t id;          /* the session's */
	struct gm_peer *peer; /* NULL: quarantined */
	uint64_t uncharged;   /* bytes that it said it held in a session that nobody here knows */
	bool unsaid;          /* the log does not say yet that it is quarantined */
	struct gm_identity *identity;
	gm_domain domain;
	bool page_lost;   /* an earlier daemon had its page, so nobody can say whether it is gone */
	bool page_unsafe; /* its page may not outlive the daemon */
	bool resumed;     /* by a client that never uses a packet id twice: it may repeat one */
	bool unproven;    /* resumed, and no packet came since: its former token is valid still */
	struct gm_pages pages;
	struct gm_pages former; /* of a session that was resumed: the client's page from before */
	struct gm_events *events;
	uint64_t max[GM_BOUND_DEVICES]; /* the limit it was told last; UINT64_MAX: none */
	uint64_t said_ns[GM_EVENTS];    /* when the journal last got a line of each kind about it */
	struct gm_serve_asked *asked;   /* unanswered requests for memory: serve_lease.c's own */
	uint32_t n_waiting;             /* how many of those may wait for room */
	/* Its last requests that were refused and may be followed by another: serve_lease.c's own. */
	struct gm_client_refused {
		uint64_t id;      /* of the request; 0: none */
		uint32_t repeats; /* how many followed the first one so far */
	} refused[GM_CLIENT_REFUSED];
	uint32_t next_refused;
	struct gm_hub_flow *flow;
	struct gm_hub_flow *ends;      /* GM_HUB_FLOW_ENDS of the same user */
	struct gm_user_charge charge;  /* one client of its user */
	struct gm_hub_flow_fd process; /* its pidfd */
	struct gm_client *prev, *next; /* oldest first */
	struct gm_client *away_prev,
		*away_next; /* of the quarantined ones; away_prev NULL: it is not */
	UT_hash_handle hh;
};

struct gm_client_adopted; /* client_adopt.c's own */
struct gm_clients_store;

struct gm_clients {
	struct gm_hub *hub;
	struct gm_core *core;
	struct gm_domains *domains;
	uint32_t devices;
	struct gm_client *list;
	struct gm_client *by_id;
	uint64_t quarantined;
	uint64_t uncharged_clients,
		uncharged; /* clients that are charged for less than they hold, and by how much */
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
	const struct gm_clients_store *store; /* NULL: nothing outlives the daemon */
	void *keep_ctx;
	uint8_t boot[GM_RECORD_BOOT_BYTES]; /* of this boot */
	struct gm_client_adopted *adopted;
	size_t n_adopted;
};

/* Returns the name that the client gave itself; "": none. */
static inline const char *gm_client_name(const struct gm_client *client)
{
	const char *name = gm_session_info(client->session)->name;
	return name ? name : "";
}
/* Returns NULL if there is no such client, or not yet, or no longer. */
struct gm_client *gm_clients_find(const struct gm_clients *clients, uint64_t id);
struct gm_client *gm_clients_of(const struct gm_clients *clients, const struct gm_session *session);
/* Returns the oldest client with an id above this one, or NULL. Ids grow with time. */
struct gm_client *gm_clients_after(const struct gm_clients *clients, uint64_t id);

#endif
