/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

#include <stdio.h>
#include <string.h>

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

const Gm__Wire__Packet *gm_flood_cleanup(void)
{
	static Gm__Wire__Cleanup body = GM__WIRE__CLEANUP__INIT;
	body.dry_run = true;
	FLOOD_PACKET(CLEANUP, cleanup, &body);
}

const Gm__Wire__Packet *gm_flood_return(void)
{
	enum { MANY = GM_BOUND_LIST_ITEMS };
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

/* ---- all kinds */

/* The packets of a kind whose messages have these fields. */
#define FLOOD_KIND(name, Message, WHICH, member, ...) \
	static const Gm__Wire__Packet *flood_##name(struct gm_flood_state *state) \
	{ \
		static Gm__Wire__##Message body; \
		(void)state; \
		gm__wire__##name##__init(&body); \
		__VA_ARGS__; \
		FLOOD_PACKET(WHICH, member, &body); \
	}
#define FLOOD_KIND_PLAIN(name, Message, WHICH) FLOOD_KIND(name, Message, WHICH, name, (void)0)

static char flood_name[] = "flood";
static uint8_t flood_bytes[GM_METADATA_PIECE];
/* Metadata of several packets. */
#define FLOOD_METADATA (UINT64_C(8) * GM_METADATA_PIECE)

FLOOD_KIND_PLAIN(get_devices, GetDevices, GET_DEVICES)
FLOOD_KIND(grow, Grow, GROW, grow, body.lease = state->lease; body.user_bytes = GM_CHUNK_MIN)
FLOOD_KIND(get_handles, GetHandles, GET_HANDLES, get_handles, body.lease = state->lease)
FLOOD_KIND_PLAIN(ack, Ack, ACK)
FLOOD_KIND(share, Share, SHARE, share, body.lease = state->lease)
FLOOD_KIND(open, Open, OPEN, open, body.token.data = state->token;
	   body.token.len = sizeof(state->token))
FLOOD_KIND(unshare, Unshare, UNSHARE, unshare, body.token.data = state->token;
	   body.token.len = sizeof(state->token); body.chunks = UINT32_MAX)
FLOOD_KIND(cancel, Cancel, CANCEL, cancel, body.request = 1)
FLOOD_KIND(publish, Publish, PUBLISH, publish, body.lease = state->lease; body.name = flood_name;
	   body.replace = true)
FLOOD_KIND(attach, Attach, ATTACH, attach, body.name = flood_name)
FLOOD_KIND(unpublish, Unpublish, UNPUBLISH, unpublish, body.name = flood_name; body.look = true)
FLOOD_KIND(put_metadata, PutMetadata, PUT_METADATA, put_metadata, body.lease = state->lease;
	   body.size = sizeof(flood_bytes); body.data.data = flood_bytes;
	   body.data.len = sizeof(flood_bytes))
FLOOD_KIND(get_metadata, GetMetadata, GET_METADATA, get_metadata, body.lease = state->lease)
FLOOD_KIND(get_makers, GetMakers, GET_MAKERS, get_makers, static uint64_t ids[GM_BOUND_LIST_ITEMS];
	   for (size_t i = 0; i < GM_BOUND_LIST_ITEMS; i++) ids[i] = state->ids[i % 256];
	   body.leases = ids; body.n_leases = GM_BOUND_LIST_ITEMS)
FLOOD_KIND(declare, Declare, DECLARE, declare, body.how = GM__WIRE__DECLARE_HOW__DECLARE_EXACTLY;
	   body.bytes = GM_CHUNK_MIN)
FLOOD_KIND(share_chunks, ShareChunks, SHARE_CHUNKS, share_chunks, body.leases = state->ids;
	   body.chunks = state->chunks; body.n_leases = body.n_chunks = 256;
	   body.token.data = state->token; body.token.len = sizeof(state->token); body.first = 256)
FLOOD_KIND_PLAIN(reload, Reload, RELOAD)
FLOOD_KIND_PLAIN(get_status, GetStatus, GET_STATUS)
FLOOD_KIND_PLAIN(get_pools, GetPools, GET_POOLS)
FLOOD_KIND_PLAIN(get_clients, GetClients, GET_CLIENTS)
FLOOD_KIND_PLAIN(get_buffers, GetBuffers, GET_BUFFERS)
FLOOD_KIND(trim, Trim, TRIM, trim, body.all_devices = true)
FLOOD_KIND_PLAIN(get_config, GetConfig, GET_CONFIG)
FLOOD_KIND_PLAIN(get_processes, GetProcesses, GET_PROCESSES)
FLOOD_KIND_PLAIN(get_limits, GetLimits, GET_LIMITS)
FLOOD_KIND(set_limit, SetLimit, SET_LIMIT, set_limit, static char owner[] = "uid:64990";
	   body.owner = owner; body.all_devices = true;
	   body.set = GM__WIRE__LIMIT_VALUE__LIMIT_PRIORITY)
FLOOD_KIND(reset_limit, ResetLimit, RESET_LIMIT, reset_limit, static char owner[] = "uid:64990";
	   body.owner = owner; body.all_devices = true)
FLOOD_KIND_PLAIN(get_queue, GetQueue, GET_QUEUE)
FLOOD_KIND(cleanup, Cleanup, CLEANUP, cleanup, body.dry_run = true)
FLOOD_KIND_PLAIN(watch, Watch, WATCH)
FLOOD_KIND_PLAIN(stop, Stop, STOP)
FLOOD_KIND(drain, Drain, DRAIN, drain, body.undo = true)
FLOOD_KIND(expire_name, ExpireName, EXPIRE_NAME, expire_name, body.name = flood_name)
FLOOD_KIND(get_stacks, GetStacks, GET_STACKS, get_stacks, body.session = state->session)
FLOOD_KIND(evict, Evict, EVICT, evict, body.session = state->session; body.process = true)
FLOOD_KIND_PLAIN(get_names, GetNames, GET_NAMES)
FLOOD_KIND(place, Place, PLACE, place, body.bytes = GM_CHUNK_MIN)

static const Gm__Wire__Packet *flood_return_ids(struct gm_flood_state *state)
{
	(void)state;
	return gm_flood_return();
}

#define BODY(which) GM__WIRE__PACKET__BODY_##which
const struct gm_flood_kind gm_flood_kinds[] = {
	{BODY(HELLO), GM_FLOOD_OWN, NULL},
	{BODY(GOODBYE), GM_FLOOD_OWN, NULL},
	{BODY(LEASE), GM_FLOOD_OWN, NULL},
	{BODY(RETURN_CHUNKS), GM_FLOOD_LEASE, flood_return_ids},
	{BODY(GET_DEVICES), GM_FLOOD_LIST, flood_get_devices},
	{BODY(GROW), GM_FLOOD_LEASE, flood_grow},
	{BODY(GET_HANDLES), GM_FLOOD_LEASE, flood_get_handles},
	{BODY(ACK), GM_FLOOD_SILENT, flood_ack},
	{BODY(SHARE), GM_FLOOD_LEASE, flood_share},
	{BODY(OPEN), GM_FLOOD_LEASE, flood_open},
	{BODY(UNSHARE), GM_FLOOD_LEASE, flood_unshare},
	{BODY(CANCEL), GM_FLOOD_LEASE, flood_cancel},
	{BODY(PUBLISH), GM_FLOOD_LEASE, flood_publish},
	{BODY(ATTACH), GM_FLOOD_LEASE, flood_attach},
	{BODY(UNPUBLISH), GM_FLOOD_LEASE, flood_unpublish},
	{BODY(PUT_METADATA), GM_FLOOD_LEASE, flood_put_metadata},
	{BODY(GET_METADATA), GM_FLOOD_LEASE, flood_get_metadata},
	{BODY(GET_MAKERS), GM_FLOOD_LEASE, flood_get_makers},
	{BODY(DECLARE), GM_FLOOD_LEASE, flood_declare},
	{BODY(SHARE_CHUNKS), GM_FLOOD_LEASE, flood_share_chunks},
	{BODY(RELOAD), GM_FLOOD_ADMIN, flood_reload},
	{BODY(GET_STATUS), GM_FLOOD_LIST, flood_get_status},
	{BODY(GET_POOLS), GM_FLOOD_LIST, flood_get_pools},
	{BODY(GET_CLIENTS), GM_FLOOD_LIST, flood_get_clients},
	{BODY(GET_BUFFERS), GM_FLOOD_LIST, flood_get_buffers},
	{BODY(TRIM), GM_FLOOD_ADMIN, flood_trim},
	{BODY(GET_CONFIG), GM_FLOOD_LIST, flood_get_config},
	{BODY(GET_PROCESSES), GM_FLOOD_LIST, flood_get_processes},
	{BODY(GET_LIMITS), GM_FLOOD_LIST, flood_get_limits},
	{BODY(SET_LIMIT), GM_FLOOD_ADMIN, flood_set_limit},
	{BODY(RESET_LIMIT), GM_FLOOD_ADMIN, flood_reset_limit},
	{BODY(GET_QUEUE), GM_FLOOD_LIST, flood_get_queue},
	{BODY(CLEANUP), GM_FLOOD_LIST, flood_cleanup},
	{BODY(WATCH), GM_FLOOD_LEASE, flood_watch},
	{BODY(STOP), GM_FLOOD_LEASE,
		flood_stop}, /* refused: an administrator's would end the flood */
	{BODY(DRAIN), GM_FLOOD_ADMIN, flood_drain},
	{BODY(EXPIRE_NAME), GM_FLOOD_LEASE, flood_expire_name},
	{BODY(GET_STACKS), GM_FLOOD_LEASE, flood_get_stacks},
	{BODY(EVICT), GM_FLOOD_LIST, flood_evict},
	{BODY(GET_NAMES), GM_FLOOD_LIST, flood_get_names},
	{BODY(PLACE), GM_FLOOD_LEASE, flood_place},
	{BODY(_NOT_SET), GM_FLOOD_OWN, NULL},
};

const char *gm_flood_name(const struct gm_flood_kind *kind)
{
	return ((const ProtobufCMessageDescriptor *)protobuf_c_message_descriptor_get_field(
			&gm__wire__packet__descriptor, kind->body)
			->descriptor)
		->short_name;
}

/* Answers begin with this number. */
#define FLOOD_FIRST_ANSWER GM__WIRE__PACKET__BODY_FAILURE

const char *gm_flood_missing(void)
{
	const ProtobufCMessageDescriptor *packet = &gm__wire__packet__descriptor;

	for (unsigned i = 0; i < packet->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &packet->fields[i];
		const struct gm_flood_kind *kind = gm_flood_kinds;
		if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) ||
			field->id >= FLOOD_FIRST_ANSWER)
			continue;
		while (kind->body && (unsigned)kind->body != field->id)
			kind++;
		if (!kind->body)
			return field->name;
	}
	return NULL;
}

void gm_flood_prepare(
	const struct gm_flood_kind *kind, struct gm_raw *raw, struct gm_flood_state *ret)
{
	struct gm_raw_lease lease;
	uint64_t version;
	size_t n = sizeof(ret->ids) / sizeof(ret->ids[0]);

	memset(ret, 0, sizeof(*ret));
	ret->session = raw->session;
	if (kind->how != GM_FLOOD_LEASE)
		return;
	GM_REQUIRE_EQ(gm_raw_lease(raw, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	ret->lease = lease.id;
	ret->chunk = lease.chunks[0].id;
	gm_raw_lease_clear(&lease);
	for (size_t i = 0; i < n; i++)
		ret->ids[i] = ret->lease;

	if (kind->body == BODY(GET_METADATA)) {
		for (uint64_t at = 0; at < FLOOD_METADATA; at += sizeof(flood_bytes))
			GM_REQUIRE_EQ(gm_raw_put_metadata(raw, ret->lease, FLOOD_METADATA, at,
					      flood_bytes, sizeof(flood_bytes)),
				GPUMEM_OK);
	}
	if (kind->body == BODY(ATTACH) || kind->body == BODY(UNPUBLISH) ||
		kind->body == BODY(EXPIRE_NAME) || kind->body == BODY(GET_METADATA)) {
		Gm__Wire__Publish publish = GM__WIRE__PUBLISH__INIT;
		publish.lease = ret->lease;
		publish.name = flood_name;
		publish.replace = true;
		if (kind->body == BODY(GET_METADATA))
			publish.metadata_bytes = FLOOD_METADATA;
		GM_REQUIRE_EQ(gm_raw_publish(raw, &publish, &version), GPUMEM_OK);
	}
	if (kind->body == BODY(OPEN))
		GM_REQUIRE_EQ(gm_raw_share(raw, ret->lease, GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN, 0,
				      false, ret->token),
			GPUMEM_OK);
	/* The second 256 chunks of the token are shared again and again, each time in place of
	 * themselves. */
	if (kind->body == BODY(SHARE_CHUNKS) || kind->body == BODY(UNSHARE))
		GM_REQUIRE_EQ(
			gm_raw_share_chunks(raw, ret->ids, ret->chunks, n, 0, ret->token, NULL),
			GPUMEM_OK);
}
