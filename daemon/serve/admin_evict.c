/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evicts buffers by hand, or brings them back. The client moves them, not the daemon, so the answer only
 * says what the client was asked for. What cannot move by the client's own word is refused here, so that
 * whoever asked learns why.
 */
#include <errno.h>
#include <stdio.h>

#include "common/clock.h"
#include "common/text/units.h"
#include "daemon/serve/admin_reclaim.h"
#include "daemon/serve/handlers.h"
#include "daemon/tenant/client.h"

/* What there is to move. */
struct evict_found {
	uint64_t buffers, bytes;
	uint64_t evictable, there; /* all evictable buffers; those that are where they should be */
	bool any;                  /* a client has such a buffer, or any evictable one */
	bool paused;               /* a client has a paused region */
	struct gm_pages_row last;
};

static bool evict_same_process(const struct gm_client *a, const struct gm_client *b)
{
	/* A process that the daemon cannot see has no number. */
	return a == b || (a->identity->pid && a->identity->pid == b->identity->pid &&
				 a->identity->started == b->identity->started);
}

/* Whether the buffer can move, in that direction. */
static bool evict_can_move(const struct gm_pages_row *row, bool restore)
{
	bool host = row->place & GM_PAGE_PLACE_HOST;

	return host == restore && row->place & GM_PAGE_PLACE_EVICTABLE &&
	       !(row->place & (GM_PAGE_PLACE_PINNED | GM_PAGE_PLACE_SHARED));
}

/* A request on its way. The process may have many clients, and each of them many buffers. */
struct evict_job {
	struct gm_admin_reclaim job;
	Gm__Wire__Evict what;
	bool allowed;   /* the peer may move buffers of all clients that are meant */
	bool untold;    /* a client has not heard the last request yet */
	uint64_t first; /* the id of the first client that is meant; 0: none */
	uint64_t after; /* of the last one that is done */
	uint64_t at;    /* of the one whose rows are looked at; 0: none */
	uint32_t row;   /* of that one: the next row */
	uint32_t homes; /* a bit for each device that one of its buffers belongs to */
	struct evict_found found;
};

/* Number of clients in a slice. */
#define GM_EVICT_SLICE 8

/* Finds the next client that is meant. Clients that are not connected are left out. Returns 1, 0 if there is none left, or
 * -EAGAIN: the slice is over. */
static int evict_next(
	struct evict_job *evict, const struct gm_client *named, const struct gm_client **ret_client)
{
	const struct gm_clients *clients = evict->job.head.serve->clients;
	const struct gm_client *client;

	if (!evict->what.process || evict->what.row) {
		*ret_client = named;
		return named->events && evict->after < named->id;
	}
	client = evict->after ? gm_clients_after(clients, evict->after) : clients->list;
	for (int n = 0; client; client = client->next, n++) {
		if (n == GM_EVICT_SLICE)
			return -EAGAIN;
		*ret_client = client;
		if (client->events && evict_same_process(client, named))
			return 1;
		evict->after = client->id;
	}
	return 0;
}

static void evict_count(
	struct evict_found *found, const Gm__Wire__Evict *what, const struct gm_pages_row *row)
{
	found->last = *row;
	found->paused |= (row->place & GM_PAGE_PLACE_PAUSED) != 0;
	found->any |= what->row || row->place & GM_PAGE_PLACE_EVICTABLE;
	if (row->place & GM_PAGE_PLACE_EVICTABLE) {
		bool host = row->place & GM_PAGE_PLACE_HOST;
		found->evictable++;
		found->there += host != what->restore;
	}
}

/* Adds what the next block of a client's rows has to move. Returns 1 if another block follows. The rows are on the
 * stack, because a user may have thousands of such requests under way. */
static int evict_find(struct evict_job *evict, const struct gm_client *client)
{
	const Gm__Wire__Evict *what = &evict->what;
	uint64_t held[GM_BOUND_DEVICES] = {0};
	struct gm_pages_rows rows; /* 12 KiB: only valid is set */
	struct gm_pages_row row;

	rows.valid = false;
	if (evict->at != client->id) {
		evict->at = client->id;
		evict->row = what->row ? what->row - 1 : 0;
		evict->homes = 0;
	}
	for (uint32_t i = 0; i < evict->job.head.serve->n_devices; i++)
		held[i] = gm_session_held(client->session, i);
	while (!rows.valid || evict->row - rows.first < GM_PAGES_ROWS) {
		int r = gm_pages_next_row(
			&client->pages, &rows, held, gm_clock_ns(), &evict->row, &row);
		if (r == -EAGAIN)
			return 1;
		if (r <= 0 || (what->row && row.number != what->row))
			return 0;
		evict_count(&evict->found, what, &row);
		if (evict_can_move(&row, what->restore)) {
			evict->found.buffers++;
			evict->found.bytes += row.bytes;
			evict->homes |= UINT32_C(1) << row.home;
		}
	}
	return 1;
}

static int evict_refuse(
	const struct evict_job *evict, struct gm_peer *peer, const struct gm_client *client)
{
	const Gm__Wire__Evict *what = &evict->what;
	const struct evict_found *found = &evict->found;
	uint32_t place = found->last.place;
	gpumem_status status = GPUMEM_E_BUSY;
	char text[256], who[128];

	snprintf(who, sizeof(who), "client %llu (%s, pid %d)", (unsigned long long)client->id,
		*gm_client_name(client) ? gm_client_name(client) : client->identity->command,
		(int)client->identity->pid);
	if (!found->any) {
		status = GPUMEM_E_NOT_FOUND;
		snprintf(text, sizeof(text), "%s has no %s%s", who,
			what->row ? "such buffer: see gpumemctl buffers" : "evictable buffer",
			!what->row && found->paused
				? "; only the program itself can resume its paused region"
				: "");
	} else if (!what->row && found->there == found->evictable) {
		const char *where = what->restore ? "on the device" : "in host memory";
		if (found->there == 1)
			snprintf(text, sizeof(text), "the evictable buffer of %s is %s already",
				who, where);
		else
			snprintf(text, sizeof(text),
				"all %llu evictable buffers of %s are %s already",
				(unsigned long long)found->there, who, where);
	} else if (!what->row) {
		snprintf(text, sizeof(text),
			"%s has no buffer that could be %s now: see gpumemctl buffers", who,
			what->restore ? "restored" : "evicted");
	} else if (!(place & GM_PAGE_PLACE_EVICTABLE)) {
		status = GPUMEM_E_UNSUPPORTED;
		snprintf(text, sizeof(text), "%s did not make this buffer evictable", who);
	} else if (place & GM_PAGE_PLACE_PINNED) {
		snprintf(text, sizeof(text), "%s has pinned this buffer, and may be using it", who);
	} else if (place & GM_PAGE_PLACE_SHARED) {
		snprintf(text, sizeof(text), "%s has shared this buffer, so others may be using it",
			who);
	} else {
		snprintf(text, sizeof(text), "this buffer of %s is %s already", who,
			what->restore ? "on its device" : "in host memory");
	}
	return gm_answer_emit_failure(&evict->job.head.stream, peer, status, text);
}

/* Tells the client. Returns false if it has not heard the last request yet. */
static bool evict_tell_client(const struct gm_serve *serve, const struct gm_client *client,
	const Gm__Wire__Evict *what, uint32_t homes)
{
	bool told = true;

	for (uint32_t i = 0; i < serve->n_devices; i++)
		if (homes & UINT32_C(1) << i)
			told = gm_events_evict(client->events, i, what->row, what->restore) == 0 &&
			       told;
	return told;
}

/* Finds out whether the peer may move buffers of one client. Returns 1, or -EACCES: it may not, and has been told. */
static int evict_check(
	struct evict_job *evict, struct gm_peer *peer, const struct gm_client *client)
{
	if (!evict->first)
		evict->first = client->id;
	evict->after = client->id;
	if (gm_identity_same_owner(gm_peer_identity(peer), client->identity) ||
		gm_serve_require_admin(evict->job.head.serve, peer, evict->job.head.stream.id,
			"moving buffers of others"))
		return 1;
	return -EACCES;
}

/* Tells one client what to move, once all its rows were looked at. */
static void evict_move(struct evict_job *evict, const struct gm_client *client)
{
	if (evict_find(evict, client))
		return;
	evict->untold |=
		!evict_tell_client(evict->job.head.serve, client, &evict->what, evict->homes);
	evict->after = client->id;
	evict->at = 0;
}

/* Goes through all clients that are meant twice: nobody is told before the peer may move the buffers of all. */
static int evict_slice(struct gm_admin_reclaim *job, struct gm_peer *peer)
{
	struct evict_job *evict = (struct evict_job *)job;
	const struct gm_client *client,
		*named = gm_clients_find(job->head.serve->clients, evict->what.session);
	int r = named ? evict_next(evict, named, &client) : 0;

	if (r < 0)
		return 1;
	if (r > 0 && !evict->allowed)
		return evict_check(evict, peer, client);
	if (r > 0)
		evict_move(evict, client);
	if (r > 0 || !evict->first || evict->allowed)
		return r;
	evict->allowed = true;
	evict->after = 0;
	return 1;
}

static int evict_tell(struct gm_admin_reclaim *job, struct gm_peer *peer)
{
	const struct evict_job *evict = (struct evict_job *)job;
	const struct gm_client *first = gm_clients_find(job->head.serve->clients, evict->first);
	Gm__Wire__EvictReply reply = GM__WIRE__EVICT_REPLY__INIT;

	/* A client that was told may have ended since. */
	if (!first && !evict->found.buffers)
		return gm_answer_emit_failure(&job->head.stream, peer, GPUMEM_E_NOT_FOUND,
			"there is no such client, or it is not connected; see gpumemctl clients");
	if (!evict->found.buffers)
		return evict_refuse(evict, peer, first);
	if (evict->untold)
		return gm_answer_emit_failure(&job->head.stream, peer, GPUMEM_E_BUSY,
			"the client has not heard the last request yet: try again");

	reply.buffers = evict->found.buffers;
	reply.bytes = evict->found.bytes;
	return gm_answer_emit(
		&job->head.stream, peer, false, GM__WIRE__PACKET__BODY_EVICT_REPLY, &reply);
}

void gm_admin_evict(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	static const struct gm_admin_reclaim_way way = {.slice = evict_slice, .tell = evict_tell};
	struct evict_job *evict =
		gm_admin_reclaim_new(serve, peer, packet->id, &way, 0, sizeof(*evict));

	if (!evict)
		return;
	evict->what = *packet->evict;
	gm_admin_reclaim_start(&evict->job, 0);
}
