/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evicts buffers by hand, or brings them back. The client moves them, not the daemon, so the answer only
 * says what the client was asked for. What cannot move by the client's own word is refused here, so that
 * whoever asked learns why.
 */
#include "daemon/serve/admin_evict.h"

#include <stdio.h>

#include "common/clock.h"
#include "common/text/units.h"
#include "daemon/serve/answer.h"
#include "daemon/tenant/client.h"

/* What there is to move. */
struct evict_found {
	uint64_t buffers, bytes;
	bool any; /* a client has such a buffer, or any evictable one */
	struct gm_pages_row last;
};

static bool evict_same_process(const struct gm_client *a, const struct gm_client *b)
{
	/* A process that the daemon cannot see has no number. */
	return a == b || (a->identity->pid && a->identity->pid == b->identity->pid &&
				 a->start_time == b->start_time);
}

/* Whether the buffer can move, in that direction. */
static bool evict_can_move(const struct gm_pages_row *row, bool restore)
{
	bool host = row->place & GM_PAGE_PLACE_HOST;

	return host == restore && row->place & GM_PAGE_PLACE_EVICTABLE &&
	       !(row->place & (GM_PAGE_PLACE_PINNED | GM_PAGE_PLACE_SHARED));
}

/* Returns the next client that is meant, or the first one after NULL; NULL: there is none left. Clients that are not connected are
 * left out. */
static const struct gm_client *evict_next(const struct gm_serve *serve,
	const struct gm_client *named, const Gm__Wire__Evict *what, const struct gm_client *last)
{
	if (!what->process || what->row)
		return last || !named->events ? NULL : named;

	const struct gm_client *client = last ? last->next : serve->clients->list;
	while (client && (!client->events || !evict_same_process(client, named)))
		client = client->next;
	return client;
}

/* Adds what one client has to move. Returns a bit for each device that it belongs to. */
static uint32_t evict_find(const struct gm_serve *serve, const struct gm_client *client,
	const Gm__Wire__Evict *what, struct evict_found *ret)
{
	uint64_t held[GM_LIMIT_DEVICES] = {0};
	struct gm_pages_rows rows = {.valid = false};
	struct gm_pages_row row;
	uint32_t at = what->row ? what->row - 1 : 0, homes = 0;

	for (uint32_t i = 0; i < serve->n_devices; i++)
		held[i] = gm_session_held(client->session, i);
	while (gm_pages_next_row(&client->pages, &rows, held, gm_clock_ns(), &at, &row) > 0) {
		if (what->row && row.number != what->row)
			break;
		ret->last = row;
		ret->any |= what->row || row.place & GM_PAGE_PLACE_EVICTABLE;
		if (evict_can_move(&row, what->restore)) {
			ret->buffers++;
			ret->bytes += row.bytes;
			homes |= UINT32_C(1) << row.home;
		}
	}
	return homes;
}

static void evict_refuse(struct gm_peer *peer, const Gm__Wire__Packet *packet,
	const struct gm_client *client, const struct evict_found *found)
{
	const Gm__Wire__Evict *what = packet->evict;
	uint32_t place = found->last.place;
	gpumem_status status = GPUMEM_E_BUSY;
	char text[256], who[128];

	snprintf(who, sizeof(who), "client %llu (%s, pid %d)", (unsigned long long)client->id,
		client->name[0] ? client->name : client->identity->command,
		(int)client->identity->pid);
	if (!found->any) {
		status = GPUMEM_E_NOT_FOUND;
		snprintf(text, sizeof(text), "%s has no %s", who,
			what->row ? "such buffer: see gpumemctl buffers" : "evictable buffer");
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
	gm_peer_send_failure(peer, packet->id, status, text);
}

/* Tells the client. Returns false if it has not heard the last request yet. */
static bool evict_tell(const struct gm_serve *serve, const struct gm_client *client,
	const Gm__Wire__Evict *what, uint32_t homes)
{
	bool told = true;

	for (uint32_t i = 0; i < serve->n_devices; i++)
		if (homes & UINT32_C(1) << i)
			told = gm_events_evict(client->events, i, what->row, what->restore) == 0 &&
			       told;
	return told;
}

/* Whether the peer may move buffers of these clients. If not, it has been told. */
static bool evict_may(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet,
	const struct gm_client *named)
{
	const struct gm_client *client = NULL;

	while ((client = evict_next(serve, named, packet->evict, client)))
		if (!gm_identity_same_owner(gm_peer_identity(peer), client->identity))
			return gm_serve_require_admin(
				serve, peer, packet->id, "moving buffers of others");
	return true;
}

void gm_admin_evict(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__Evict *what = packet->evict;
	const struct gm_client *named = gm_clients_find(serve->clients, what->session);
	const struct gm_client *first = named ? evict_next(serve, named, what, NULL) : NULL;
	const struct gm_client *client;
	struct evict_found found = {0};
	bool told = true;
	Gm__Wire__EvictReply reply = GM__WIRE__EVICT_REPLY__INIT;

	if (!first) {
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_NOT_FOUND,
			"there is no such client, or it is not connected");
		return;
	}
	if (!evict_may(serve, peer, packet, named))
		return;

	for (client = first; client; client = evict_next(serve, named, what, client)) {
		uint32_t homes = evict_find(serve, client, what, &found);
		told = evict_tell(serve, client, what, homes) && told;
	}
	if (!found.buffers) {
		evict_refuse(peer, packet, first, &found);
		return;
	}
	if (!told) {
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_BUSY,
			"the client has not heard the last request yet: try again");
		return;
	}
	reply.buffers = found.buffers;
	reply.bytes = found.bytes;
	gm_answer_send(peer, packet->id, GM__WIRE__PACKET__BODY_EVICT_REPLY, &reply);
}
