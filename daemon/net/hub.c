/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all connections share. Peers own no buffers: packets are received into one buffer and packed
 * into another, and copied only if they have to wait.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/wire/seqpacket.h"
#include "daemon/net/peer_private.h"

/* How long to wait when no more fds may be sent, until clients have read theirs. */
#define GM_HUB_RETRY_MS 20

int gm_hub_init(struct gm_hub *hub, uv_loop_t *loop, uint64_t generation)
{
	memset(hub, 0, sizeof(*hub));
	hub->loop = loop;
	hub->generation = generation;
	gm_user_table_init(&hub->users);
	gm_wire_arena_init(&hub->arena);
	hub->in = malloc(GM_BOUND_PACKET_BYTES);
	hub->out = malloc(GM_BOUND_PACKET_BYTES);
	hub->closer = gm_closer_new();
	if (!hub->in || !hub->out || !hub->closer) {
		gm_hub_deinit(hub);
		return -ENOMEM;
	}

	int r = gm_hub_flows_init(&hub->flows, loop, &hub->users);
	if (r < 0) {
		gm_hub_flows_close(&hub->flows);
		gm_hub_deinit(hub);
		return r;
	}

	uv_timer_init(loop, &hub->retry); /* cannot fail */
	gm_log_limit_init(&hub->quiet, &hub->users, loop);
	hub->retry.data = hub;
	hub->timer_open = true;
	return 0;
}

void gm_hub_close(struct gm_hub *hub)
{
	if (hub->timer_open)
		uv_close((uv_handle_t *)&hub->retry, NULL);
	hub->timer_open = false;
	gm_hub_flows_close(&hub->flows);
	gm_log_limit_close(&hub->quiet);
}

void gm_hub_deinit(struct gm_hub *hub)
{
	gm_wire_arena_deinit(&hub->arena);
	free(hub->in);
	free(hub->out);
	hub->in = hub->out = NULL;
	gm_closer_free(hub->closer);
	hub->closer = NULL;
	gm_subuids_deinit(&hub->subuids);
	gm_user_table_deinit(&hub->users);
}

static void hub_on_retry(uv_timer_t *timer)
{
	struct gm_hub *hub = timer->data;

	while (hub->waiting)
		gm_peer_retry(hub->waiting);
}

void gm_hub_wait(struct gm_hub *hub)
{
	if (hub->timer_open && !uv_is_active((uv_handle_t *)&hub->retry))
		uv_timer_start(&hub->retry, hub_on_retry, GM_HUB_RETRY_MS, 0);
}

int gm_hub_pack(struct gm_hub *hub, Gm__Wire__Packet *packet, size_t n_fds, size_t *ret_n)
{
	packet->sequence = ++hub->sequence;
	packet->generation = hub->generation;
	packet->fds = (uint32_t)n_fds;
	return gm_wire_pack(packet, hub->out, GM_BOUND_PACKET_BYTES, ret_n);
}

void gm_hub_refuse(struct gm_hub *hub, int socket, gpumem_status status, const char *detail)
{
	Gm__Wire__Failure failure = GM__WIRE__FAILURE__INIT;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(FAILURE, failure, &failure);
	size_t n;
	failure.status = status;
	failure.detail = (char *)detail;
	if (gm_hub_pack(hub, &packet, 0, &n) == 0)
		(void)gm_seqpacket_send(socket, hub->out, n, NULL, 0);
}
