/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_ADMIN_H
#define GM_DAEMON_ADMIN_H

#include "daemon/serve/dispatch.h"
#include "daemon/net/peer.h"

/*
 * Requests of gpumemctl. Everybody sees everybody's totals and the details of their own clients
 * (the same uid, in the same container); who may administer sees all, and alone may change things.
 * Long answers come in several packets.
 */
void gm_admin_get_status(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_admin_get_pools(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_admin_get_clients(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_admin_get_buffers(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_admin_trim(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_admin_get_config(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);

/* What a cursor over the rows of a long answer begins with. */
struct gm_admin_listing {
	struct gm_stream stream;
	struct gm_dispatch *dispatch;
	bool admin; /* the asker may see everything */
};
/* One of that many bytes, the rest zero, to be started. NULL: there is no memory, which the asker
 * was told. */
void *gm_admin_listing_new(struct gm_dispatch *dispatch, struct gm_peer *peer, uint64_t id,
	int (*next)(struct gm_stream *stream, struct gm_peer *peer), size_t bytes);

#endif
