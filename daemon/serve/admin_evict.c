/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evicts buffers by hand, or brings them back. The client moves them, not the daemon, so the answer only
 * says what the client was asked for. What cannot move by the client's own word is refused here, so that
 * whoever asked learns why.
 */
#include "daemon/serve/admin_evict.h"

#include <stdio.h>

#include "common/clock.h"
#include "common/units.h"
#include "daemon/serve/answer.h"
#include "daemon/tenant/client.h"

/* What there is to move. */
struct evict_found {
	uint64_t buffers, bytes;
	uint32_t homes; /* a bit per device */
	bool any;       /* the client has such a buffer, or any evictable one */
	struct gm_pages_row last;
};

/* Whether the buffer can move, in that direction. */
static bool evict_can_move(const struct gm_pages_row *row, bool restore)
{
	bool host = row->place & GM_PAGE_PLACE_HOST;

	return host == restore && row->place & GM_PAGE_PLACE_EVICTABLE &&
	       !(row->place & (GM_PAGE_PLACE_PINNED | GM_PAGE_PLACE_SHARED));
}

static void evict_find(const struct gm_serve *serve, const struct gm_client *client,
	const Gm__Wire__Evict *what, struct evict_found *ret)
{
	uint64_t held[GM_LIMIT_DEVICES] = {0};
	struct gm_pages_rows rows = {.valid = false};
	struct gm_pages_row row;
	uint32_t at = what->row ? what->row - 1 : 0;

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
			ret->homes |= UINT32_C(1) << row.home;
		}
	}
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
	const Gm__Wire__Evict *what, const struct evict_found *found)
{
	bool told = true;

	for (uint32_t i = 0; i < serve->n_devices; i++)
		if (found->homes & UINT32_C(1) << i)
			told = gm_events_evict(client->events, i, what->row, what->restore) == 0 &&
			       told;
	return told;
}

void gm_admin_evict(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__Evict *what = packet->evict;
	const struct gm_client *client = gm_clients_find(serve->clients, what->session);
	struct evict_found found = {0};
	Gm__Wire__EvictReply reply = GM__WIRE__EVICT_REPLY__INIT;

	if (!client || !client->events) {
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_NOT_FOUND,
			"there is no such client, or it is not connected");
		return;
	}
	if (!gm_identity_same_owner(gm_peer_identity(peer), client->identity) &&
		!gm_serve_require_admin(serve, peer, packet->id, "moving buffers of others"))
		return;

	evict_find(serve, client, what, &found);
	if (!found.buffers) {
		evict_refuse(peer, packet, client, &found);
		return;
	}
	if (!evict_tell(serve, client, what, &found)) {
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_BUSY,
			"the client has not heard the last request yet: try again");
		return;
	}
	reply.buffers = found.buffers;
	reply.bytes = found.bytes;
	gm_answer_send(peer, packet->id, GM__WIRE__PACKET__BODY_EVICT_REPLY, &reply);
}
