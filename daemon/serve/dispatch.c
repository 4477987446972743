/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of requests. It checks what holds for all of a kind (greeted or not, a session or not)
 * and what the wire cannot: enums, lengths, names. Whatever a client asks for wrongly gets an
 * answer that says what was wrong, and changes nothing.
 */
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "daemon/serve/admin.h"
#include "daemon/serve/admin_limits.h"
#include "daemon/serve/admin_processes.h"
#include "daemon/core/owner.h"
#include "daemon/serve/dispatch.h"
#include "daemon/serve/serve_lease.h"
#include "daemon/serve/serve_session.h"
#include "daemon/serve/watch.h"

enum need {
	NEED_NOTHING, /* a hello */
	NEED_HELLO,   /* client or observer */
	NEED_SESSION, /* a client */
};

static const struct row {
	Gm__Wire__Packet__BodyCase body;
	enum need need;
	gm_handler handler;
} table[] = {
	{GM__WIRE__PACKET__BODY_HELLO, NEED_NOTHING, gm_serve_hello},
	{GM__WIRE__PACKET__BODY_GOODBYE, NEED_SESSION, gm_serve_goodbye},
	{GM__WIRE__PACKET__BODY_GET_DEVICES, NEED_HELLO, gm_serve_get_devices},
	{GM__WIRE__PACKET__BODY_LEASE, NEED_SESSION, gm_serve_lease},
	{GM__WIRE__PACKET__BODY_GROW, NEED_SESSION, gm_serve_grow},
	{GM__WIRE__PACKET__BODY_CANCEL, NEED_SESSION, gm_serve_cancel},
	{GM__WIRE__PACKET__BODY_RETURN_CHUNKS, NEED_SESSION, gm_serve_return},
	{GM__WIRE__PACKET__BODY_GET_HANDLES, NEED_SESSION, gm_serve_get_handles},
	{GM__WIRE__PACKET__BODY_SHARE, NEED_SESSION, gm_serve_share},
	{GM__WIRE__PACKET__BODY_OPEN, NEED_SESSION, gm_serve_open},
	{GM__WIRE__PACKET__BODY_UNSHARE, NEED_SESSION, gm_serve_unshare},
	{GM__WIRE__PACKET__BODY_GET_STATUS, NEED_HELLO, gm_admin_get_status},
	{GM__WIRE__PACKET__BODY_GET_PROCESSES, NEED_HELLO, gm_admin_get_processes},
	{GM__WIRE__PACKET__BODY_GET_POOLS, NEED_HELLO, gm_admin_get_pools},
	{GM__WIRE__PACKET__BODY_GET_CLIENTS, NEED_HELLO, gm_admin_get_clients},
	{GM__WIRE__PACKET__BODY_GET_BUFFERS, NEED_HELLO, gm_admin_get_buffers},
	{GM__WIRE__PACKET__BODY_TRIM, NEED_HELLO, gm_admin_trim},
	{GM__WIRE__PACKET__BODY_GET_CONFIG, NEED_HELLO, gm_admin_get_config},
	{GM__WIRE__PACKET__BODY_GET_LIMITS, NEED_HELLO, gm_admin_get_limits},
	{GM__WIRE__PACKET__BODY_SET_LIMIT, NEED_HELLO, gm_admin_set_limit},
	{GM__WIRE__PACKET__BODY_RESET_LIMIT, NEED_HELLO, gm_admin_reset_limit},
	{GM__WIRE__PACKET__BODY_GET_QUEUE, NEED_HELLO, gm_admin_get_queue},
	{GM__WIRE__PACKET__BODY_CLEANUP, NEED_HELLO, gm_watch_cleanup},
	{GM__WIRE__PACKET__BODY_WATCH, NEED_HELLO, gm_watch_start},
};

void gm_dispatch_packet(void *ctx, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	struct gm_dispatch *dispatch = ctx;
	const struct row *row = NULL;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]) && !row; i++)
		if (table[i].body == packet->body_case)
			row = &table[i];
	if (!row) {
		gm_peer_refuse(peer, packet->id, GPUMEM_E_PROTOCOL,
			"answers and events come from the daemon alone");
		return;
	}
	if (row->need != NEED_NOTHING && !gm_peer_greeted(peer)) {
		gm_peer_refuse(
			peer, packet->id, GPUMEM_E_PROTOCOL, "the first packet must be a hello");
		return;
	}
	if (row->need == NEED_SESSION && !gm_peer_user(peer)) {
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_DENIED,
			"this connection has no session: it is an observer's, or said goodbye");
		return;
	}
	row->handler(dispatch, peer, packet);
}

void gm_dispatch_closed(void *ctx, struct gm_peer *peer)
{
	struct gm_dispatch *dispatch = ctx;
	struct gm_client *client = gm_peer_user(peer);
	gm_processes_peer_closed(dispatch->processes, peer);
	gm_watch_peer_closed(dispatch->watch, peer);
	if (client) {
		gm_peer_set_user(peer, NULL);
		gm_client_disconnected(client);
	}
}

bool gm_dispatch_is_admin(const struct gm_dispatch *dispatch, const struct gm_peer *peer)
{
	return gm_identity_may_administer(
		gm_peer_identity(peer), dispatch->uid, dispatch->admin_group);
}

bool gm_dispatch_is_private(const struct gm_owner *owner)
{
	return owner && (owner->kind == GM_OWNER_UNIT || owner->kind == GM_OWNER_CONTAINER ||
				owner->kind == GM_OWNER_NAME);
}

enum gm_transport gm_dispatch_auto(const struct gm_dispatch *dispatch, uint32_t device)
{
	enum gm_transport transport = dispatch->config->transport;
	/* Host memory has one way, whatever the GPUs are to use. */
	if (transport == GM_TRANSPORT_AUTO || dispatch->devices[device].pinned ||
		strcmp(dispatch->ops->name, "host") == 0)
		transport =
			dispatch->devices[device].transport_fd ? GM_TRANSPORT_FD : GM_TRANSPORT_IPC;
	return transport;
}

bool gm_dispatch_require_admin(
	const struct gm_dispatch *dispatch, struct gm_peer *peer, uint64_t id, const char *what)
{
	if (gm_dispatch_is_admin(dispatch, peer))
		return true;
	char detail[GM_DETAIL_BYTES];
	snprintf(detail, sizeof(detail),
		"%s needs root, uid %u or the group %s, outside of containers", what, dispatch->uid,
		dispatch->config->admin_group[0] ? dispatch->config->admin_group : "(none)");
	gm_peer_send_failure(peer, id, GPUMEM_E_DENIED, detail);
	return false;
}

void gm_dispatch_no_device(
	const struct gm_dispatch *dispatch, struct gm_peer *peer, uint64_t id, uint32_t device)
{
	char detail[GM_DETAIL_BYTES];
	snprintf(detail, sizeof(detail), "there is no device %u; there are %u, numbered from 0",
		device, dispatch->n_devices);
	gm_peer_send_failure(peer, id, GPUMEM_E_NOT_FOUND, detail);
}

void gm_dispatch_fill_device(const struct gm_dispatch *dispatch, uint32_t device,
	char trouble[GM_BACKEND_TROUBLE], Gm__Wire__Device *ret)
{
	const struct gm_backend_device *info = &dispatch->devices[device];
	struct gm_device_figures figures;
	gm_core_device_figures(dispatch->core, device, &figures);
	gm__wire__device__init(ret);
	ret->number = device;
	ret->name = (char *)info->name;
	ret->pinned = info->pinned;
	ret->mig = info->mig;
	if (!info->pinned) {
		ret->uuid.data = (uint8_t *)info->uuid;
		ret->uuid.len = sizeof(info->uuid);
	}
	ret->backend = (char *)(info->mapping ? info->mapping : dispatch->ops->name);
	ret->total = figures.total;
	ret->capacity = figures.capacity;
	ret->ceiling = figures.ceiling;
	ret->available = figures.available;
	ret->leased = figures.leased;
	ret->quarantined = figures.quarantined;
	ret->admitted = figures.admitted;
	ret->pooled = figures.pooled;
	ret->foreign = figures.foreign;
	ret->pressure_ppm = figures.pressure_ppm;
	ret->level = figures.level;
	ret->transport_fd = info->transport_fd;
	ret->transport_ipc = info->transport_ipc;
	ret->transport = (Gm__Wire__Transport)gm_dispatch_auto(dispatch, device);
	ret->chunks = figures.chunks;
	ret->pci = (char *)info->pci;
	ret->fraction = figures.policy.fraction;
	ret->min_free = figures.policy.min_free;
	ret->peak_charged = figures.peak_charged;
	ret->free = figures.free;
	ret->measured = dispatch->ops->exclusive || info->pinned || figures.measured;
	uint64_t when;
	if (dispatch->ops->trouble &&
		dispatch->ops->trouble(dispatch->backend, device, trouble, &when)) {
		ret->trouble = trouble;
		ret->trouble_age_ms = (gm_clock_ns() - when) / GM_NS_PER_MS;
	}
}
