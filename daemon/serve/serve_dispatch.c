/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table that leads from a message to its handler. It checks what all requests of a kind need: a
 * hello before, or a session. Handlers check what the wire format cannot: enums, lengths and names.
 */
#include "daemon/serve/serve_dispatch.h"

#include "daemon/serve/admin_daemon.h"
#include "daemon/serve/admin_processes.h"
#include "daemon/serve/admin_reclaim.h"
#include "daemon/serve/handlers.h"
#include "daemon/serve/watch.h"

enum serve_dispatch_need {
	NEED_NOTHING, /* may be the first packet: only Hello */
	NEED_HELLO,   /* a hello came before */
	NEED_SESSION, /* the hello made a session */
};

static const struct serve_dispatch_row {
	Gm__Wire__Packet__BodyCase body;
	enum serve_dispatch_need need;
	gm_serve_handler *handler;
} table[] = {
	/* First those that come most often: each lookup begins here. */
	{GM__WIRE__PACKET__BODY_LEASE, NEED_SESSION, gm_serve_lease},
	{GM__WIRE__PACKET__BODY_RETURN_CHUNKS, NEED_SESSION, gm_serve_return},
	{GM__WIRE__PACKET__BODY_HELLO, NEED_NOTHING, gm_serve_hello},
	{GM__WIRE__PACKET__BODY_GOODBYE, NEED_SESSION, gm_serve_goodbye},
	{GM__WIRE__PACKET__BODY_GET_DEVICES, NEED_HELLO, gm_serve_get_devices},
	{GM__WIRE__PACKET__BODY_GROW, NEED_SESSION, gm_serve_grow},
	{GM__WIRE__PACKET__BODY_CANCEL, NEED_SESSION, gm_serve_cancel},
	{GM__WIRE__PACKET__BODY_GET_HANDLES, NEED_SESSION, gm_serve_get_handles},
	{GM__WIRE__PACKET__BODY_SHARE, NEED_SESSION, gm_serve_share},
	{GM__WIRE__PACKET__BODY_SHARE_CHUNKS, NEED_SESSION, gm_serve_share_chunks},
	{GM__WIRE__PACKET__BODY_OPEN, NEED_SESSION, gm_serve_open},
	{GM__WIRE__PACKET__BODY_UNSHARE, NEED_SESSION, gm_serve_unshare},
	{GM__WIRE__PACKET__BODY_PUBLISH, NEED_SESSION, gm_serve_publish},
	{GM__WIRE__PACKET__BODY_ATTACH, NEED_SESSION, gm_serve_attach},
	{GM__WIRE__PACKET__BODY_PUT_METADATA, NEED_SESSION, gm_serve_put_metadata},
	{GM__WIRE__PACKET__BODY_GET_METADATA, NEED_SESSION, gm_serve_get_metadata},
	{GM__WIRE__PACKET__BODY_UNPUBLISH, NEED_HELLO, gm_serve_unpublish},
	{GM__WIRE__PACKET__BODY_EXPIRE_NAME, NEED_HELLO, gm_serve_expire_name},
	{GM__WIRE__PACKET__BODY_GET_MAKERS, NEED_SESSION, gm_serve_get_makers},
	{GM__WIRE__PACKET__BODY_DECLARE, NEED_SESSION, gm_serve_declare},
	{GM__WIRE__PACKET__BODY_GET_NAMES, NEED_HELLO, gm_admin_get_names},
	{GM__WIRE__PACKET__BODY_PLACE, NEED_HELLO, gm_serve_place},
	{GM__WIRE__PACKET__BODY_GET_STATUS, NEED_HELLO, gm_admin_get_status},
	{GM__WIRE__PACKET__BODY_GET_PROCESSES, NEED_HELLO, gm_admin_get_processes},
	{GM__WIRE__PACKET__BODY_GET_POOLS, NEED_HELLO, gm_admin_get_pools},
	{GM__WIRE__PACKET__BODY_GET_CLIENTS, NEED_HELLO, gm_admin_get_clients},
	{GM__WIRE__PACKET__BODY_GET_BUFFERS, NEED_HELLO, gm_admin_get_buffers},
	{GM__WIRE__PACKET__BODY_GET_STACKS, NEED_HELLO, gm_admin_get_stacks},
	{GM__WIRE__PACKET__BODY_TRIM, NEED_HELLO, gm_admin_trim},
	{GM__WIRE__PACKET__BODY_EVICT, NEED_HELLO, gm_admin_evict},
	{GM__WIRE__PACKET__BODY_GET_CONFIG, NEED_HELLO, gm_admin_get_config},
	{GM__WIRE__PACKET__BODY_GET_LIMITS, NEED_HELLO, gm_admin_get_limits},
	{GM__WIRE__PACKET__BODY_SET_LIMIT, NEED_HELLO, gm_admin_set_limit},
	{GM__WIRE__PACKET__BODY_RESET_LIMIT, NEED_HELLO, gm_admin_reset_limit},
	{GM__WIRE__PACKET__BODY_GET_QUEUE, NEED_HELLO, gm_admin_get_queue},
	{GM__WIRE__PACKET__BODY_CLEANUP, NEED_HELLO, gm_admin_cleanup},
	{GM__WIRE__PACKET__BODY_WATCH, NEED_HELLO, gm_watch_start},
	{GM__WIRE__PACKET__BODY_RELOAD, NEED_HELLO, gm_admin_reload},
	{GM__WIRE__PACKET__BODY_STOP, NEED_HELLO, gm_admin_stop},
	{GM__WIRE__PACKET__BODY_DRAIN, NEED_HELLO, gm_admin_drain},
};

static void serve_dispatch_to(const struct serve_dispatch_row *row, void *ctx, struct gm_peer *peer,
	const Gm__Wire__Packet *packet)
{
	struct gm_client *client = gm_peer_user(peer);

	/* A client that sends a request has read the answer to its hello, with its new token. */
	if (client && client->unproven) {
		client->unproven = false;
		gm_session_confirm(client->session);
	}
	row->handler(ctx, peer, packet);
}

void gm_serve_dispatch_packet(void *ctx, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const struct serve_dispatch_row *row = NULL;

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]) && !row; i++)
		if (table[i].body == packet->body_case)
			row = &table[i];

	if (!row)
		gm_peer_refuse(peer, packet->id, GPUMEM_E_PROTOCOL,
			"clients send requests: answers and events come from the daemon only");
	else if (row->need != NEED_NOTHING && !gm_peer_greeted(peer))
		gm_peer_refuse(
			peer, packet->id, GPUMEM_E_PROTOCOL, "the first packet must be a hello");
	else if (row->need == NEED_SESSION && !gm_peer_user(peer))
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_DENIED,
			"this connection has no session: it belongs to an observer, or has said goodbye");
	else
		serve_dispatch_to(row, ctx, peer, packet);
}

void gm_serve_dispatch_closed(void *ctx, struct gm_peer *peer)
{
	struct gm_serve *serve = ctx;
	struct gm_client *client = gm_peer_user(peer);

	gm_admin_processes_peer_closed(serve->processes, peer);
	gm_watch_peer_closed(serve->watch, peer);
	gm_admin_reclaim_peer_closed(serve, peer);
	gm_admin_reload_peer_closed(serve, peer);
	if (client) {
		gm_peer_set_user(peer, NULL);
		gm_client_disconnected(client);
	}
}
