/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

#include "tests/integration/flood.h"

#define FLOOD_PACKET(which, member, value) \
	static Gm__Wire__Packet packet; \
	packet = *GM_RAW_PACKET(which, member, value); \
	return &packet

const Gm__Wire__Packet *gm_flood_status(void)
{
	static Gm__Wire__GetStatus body = GM__WIRE__GET_STATUS__INIT;
	FLOOD_PACKET(GET_STATUS, get_status, &body);
}

const Gm__Wire__Packet *gm_flood_clients(void)
{
	static Gm__Wire__GetClients body = GM__WIRE__GET_CLIENTS__INIT;
	FLOOD_PACKET(GET_CLIENTS, get_clients, &body);
}

const Gm__Wire__Packet *gm_flood_buffers(void)
{
	static Gm__Wire__GetBuffers body = GM__WIRE__GET_BUFFERS__INIT;
	FLOOD_PACKET(GET_BUFFERS, get_buffers, &body);
}

const Gm__Wire__Packet *gm_flood_cleanup(void)
{
	static Gm__Wire__Cleanup body = GM__WIRE__CLEANUP__INIT;
	body.dry_run = true;
	FLOOD_PACKET(CLEANUP, cleanup, &body);
}

const Gm__Wire__Packet *gm_flood_return(void)
{
	enum { MANY = 60000 };
	static uint64_t ids[MANY];
	static Gm__Wire__Return body = GM__WIRE__RETURN__INIT;
	for (size_t i = 0; i < MANY; i++)
		ids[i] = 1 + i % 100;
	body.lease = 1;
	body.n_chunks = MANY;
	body.chunks = ids;
	FLOOD_PACKET(RETURN_CHUNKS, return_chunks, &body);
}

const Gm__Wire__Packet *gm_flood_lease(void)
{
	static Gm__Wire__Lease body = GM__WIRE__LEASE__INIT;
	body.bytes = UINT64_C(8) << 30;
	FLOOD_PACKET(LEASE, lease, &body);
}
