/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* The raw peer as a client: one function for each request, which says what the daemon answered. */

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/integration/raw.h"

/* ---- leases */

void gm_raw_lease_clear(struct gm_raw_lease *lease)
{
	for (size_t i = 0; i < lease->n; i++)
		if (lease->chunks[i].fd >= 0)
			close(lease->chunks[i].fd);
	if (lease->control > 0)
		close(lease->control);
	free(lease->chunks);
	*lease = (struct gm_raw_lease){0};
}

gpumem_status gm_raw_collect(struct gm_raw *raw, struct gm_raw_lease *lease)
{
	uint64_t id = raw->packet->id;
	for (;;) {
		GM_REQUIRE_EQ(raw->packet->body_case, GM__WIRE__PACKET__BODY_LEASE_REPLY);
		const Gm__Wire__LeaseReply *reply = raw->packet->lease_reply;
		GM_REQUIRE(raw->packet->fds <= GM_BOUND_PACKET_FDS);
		GM_REQUIRE_EQ(raw->packet->fds, reply->n_chunks + reply->control);
		GM_REQUIRE(!reply->control || !lease->control);
		lease->packets++;
		lease->id = reply->lease;
		lease->bytes = reply->bytes;
		lease->user_bytes = reply->user_bytes;
		lease->device = reply->device;
		lease->read_only = reply->read_only;
		if (raw->fds_cut || raw->n_fds_got < raw->packet->fds)
			lease->fds_lost = true;
		if (reply->control)
			lease->control = gm_fdlist_steal(&raw->fds, 0);
		size_t n = lease->n + reply->n_chunks;
		struct gm_alloc_raw_chunk *chunks =
			realloc(lease->chunks, (n + 1) * sizeof(*chunks));
		GM_REQUIRE(chunks);
		lease->chunks = chunks;
		for (size_t i = 0; i < reply->n_chunks; i++) {
			const Gm__Wire__Chunk *c = reply->chunks[i];
			chunks[lease->n++] = (struct gm_alloc_raw_chunk){.id = c->id,
				.index = c->index,
				.bytes = c->bytes,
				.fd = gm_fdlist_steal(&raw->fds, i + reply->control)};
		}
		if (!raw->packet->more)
			return GPUMEM_OK;
		if (!raw->mute) {
			Gm__Wire__Ack ack = GM__WIRE__ACK__INIT;
			gm_raw_send(raw, GM_RAW_PACKET(ACK, ack, &ack));
		}
		if (!gm_raw_receive(raw))
			return GPUMEM_E_DISCONNECTED;
		GM_REQUIRE_EQ(raw->packet->id, id);
	}
}

static gpumem_status call_lease(
	struct gm_raw *raw, const Gm__Wire__Packet *packet, struct gm_raw_lease *lease)
{
	gpumem_status status = gm_raw_call(raw, packet);
	return status == GPUMEM_OK ? gm_raw_collect(raw, lease) : status;
}

gpumem_status gm_raw_lease(
	struct gm_raw *raw, uint32_t device, uint64_t bytes, struct gm_raw_lease *ret)
{
	Gm__Wire__Lease lease = GM__WIRE__LEASE__INIT;
	lease.device = device;
	lease.bytes = bytes;
	*ret = (struct gm_raw_lease){0};
	return call_lease(raw, GM_RAW_PACKET(LEASE, lease, &lease), ret);
}

gpumem_status gm_raw_lease_for_others(
	struct gm_raw *raw, uint32_t device, uint64_t bytes, struct gm_raw_lease *ret)
{
	Gm__Wire__Lease lease = GM__WIRE__LEASE__INIT;
	lease.device = device;
	lease.bytes = bytes;
	lease.for_others = true;
	*ret = (struct gm_raw_lease){0};
	return call_lease(raw, GM_RAW_PACKET(LEASE, lease, &lease), ret);
}

gpumem_status gm_raw_grow(struct gm_raw *raw, struct gm_raw_lease *lease, uint64_t bytes)
{
	Gm__Wire__Grow grow = GM__WIRE__GROW__INIT;
	grow.lease = lease->id;
	grow.bytes = bytes;
	return call_lease(raw, GM_RAW_PACKET(GROW, grow, &grow), lease);
}

gpumem_status gm_raw_handles(
	struct gm_raw *raw, uint64_t lease, uint64_t from, struct gm_raw_lease *ret)
{
	Gm__Wire__GetHandles get = GM__WIRE__GET_HANDLES__INIT;
	get.lease = lease;
	get.from = from;
	*ret = (struct gm_raw_lease){0};
	return call_lease(raw, GM_RAW_PACKET(GET_HANDLES, get_handles, &get), ret);
}

gpumem_status gm_raw_return(struct gm_raw *raw, uint64_t lease, const uint64_t *chunks, size_t n)
{
	Gm__Wire__Return give = GM__WIRE__RETURN__INIT;
	give.lease = lease;
	give.chunks = (uint64_t *)(uintptr_t)chunks;
	give.n_chunks = n;
	return gm_raw_call(raw, GM_RAW_PACKET(RETURN_CHUNKS, return_chunks, &give));
}

gpumem_status gm_raw_return_at(struct gm_raw *raw, uint64_t lease, uint64_t chunk, uint64_t index)
{
	Gm__Wire__Return back = GM__WIRE__RETURN__INIT;
	back.lease = lease;
	back.chunks = &chunk;
	back.indexes = &index;
	back.n_chunks = back.n_indexes = 1;
	return gm_raw_call(raw, GM_RAW_PACKET(RETURN_CHUNKS, return_chunks, &back));
}

gpumem_status gm_raw_give_back(struct gm_raw *raw, struct gm_raw_lease *lease)
{
	uint64_t id = lease->id;
	gm_raw_lease_clear(lease);
	return gm_raw_return(raw, id, NULL, 0);
}

gpumem_status gm_raw_share(struct gm_raw *raw, uint64_t lease, Gm__Wire__Audience audience,
	uint32_t id, bool read_only, uint8_t ret_token[GM_TOKEN_BYTES])
{
	Gm__Wire__Share share = GM__WIRE__SHARE__INIT;
	share.lease = lease;
	share.audience = audience;
	share.audience_id = id;
	share.read_only = read_only;
	share.readers_can_write = true;
	gpumem_status status = gm_raw_call(raw, GM_RAW_PACKET(SHARE, share, &share));
	if (status != GPUMEM_OK)
		return status;
	GM_REQUIRE_EQ(raw->packet->body_case, GM__WIRE__PACKET__BODY_SHARE_REPLY);
	GM_REQUIRE_EQ(raw->packet->share_reply->token.len, GM_TOKEN_BYTES);
	memcpy(ret_token, raw->packet->share_reply->token.data, GM_TOKEN_BYTES);
	return status;
}

gpumem_status gm_raw_share_chunks(struct gm_raw *raw, const uint64_t *leases,
	const uint64_t *chunks, size_t n, uint32_t first, uint8_t token[GM_TOKEN_BYTES],
	uint64_t *ret_leases)
{
	Gm__Wire__ShareChunks share = GM__WIRE__SHARE_CHUNKS__INIT;
	share.leases = (uint64_t *)(uintptr_t)leases;
	share.chunks = (uint64_t *)(uintptr_t)chunks;
	share.n_leases = share.n_chunks = n;
	share.first = first;
	share.token.data = token;
	share.token.len = first ? GM_TOKEN_BYTES : 0;
	gpumem_status status = gm_raw_call(raw, GM_RAW_PACKET(SHARE_CHUNKS, share_chunks, &share));
	if (status != GPUMEM_OK)
		return status;

	GM_REQUIRE_EQ(raw->packet->body_case, GM__WIRE__PACKET__BODY_SHARE_CHUNKS_REPLY);
	const Gm__Wire__ShareChunksReply *reply = raw->packet->share_chunks_reply;
	GM_REQUIRE_EQ(reply->n_leases, n);
	if (ret_leases)
		memcpy(ret_leases, reply->leases, n * sizeof(ret_leases[0]));
	if (reply->token.len == 0) {
		GM_REQUIRE(reply->status != GPUMEM_OK && *reply->detail);
		return (gpumem_status)reply->status;
	}
	GM_REQUIRE_EQ(reply->token.len, GM_TOKEN_BYTES);
	memcpy(token, reply->token.data, GM_TOKEN_BYTES);
	return status;
}

gpumem_status gm_raw_open_index(struct gm_raw *raw, const uint8_t token[GM_TOKEN_BYTES],
	uint32_t index, struct gm_raw_lease *ret)
{
	Gm__Wire__Open open = GM__WIRE__OPEN__INIT;
	open.token.data = (uint8_t *)(uintptr_t)token;
	open.token.len = GM_TOKEN_BYTES;
	open.index = index;
	*ret = (struct gm_raw_lease){0};
	return call_lease(raw, GM_RAW_PACKET(OPEN, open, &open), ret);
}

gpumem_status gm_raw_open(
	struct gm_raw *raw, const uint8_t token[GM_TOKEN_BYTES], struct gm_raw_lease *ret)
{
	return gm_raw_open_index(raw, token, 0, ret);
}

gpumem_status gm_raw_unshare_chunks(
	struct gm_raw *raw, const uint8_t token[GM_TOKEN_BYTES], uint32_t n)
{
	Gm__Wire__Unshare unshare = GM__WIRE__UNSHARE__INIT;
	unshare.token.data = (uint8_t *)(uintptr_t)token;
	unshare.token.len = GM_TOKEN_BYTES;
	unshare.chunks = n;
	return gm_raw_call(raw, GM_RAW_PACKET(UNSHARE, unshare, &unshare));
}

gpumem_status gm_raw_unshare(struct gm_raw *raw, uint64_t lease)
{
	Gm__Wire__Unshare unshare = GM__WIRE__UNSHARE__INIT;
	unshare.lease = lease;
	return gm_raw_call(raw, GM_RAW_PACKET(UNSHARE, unshare, &unshare));
}

gpumem_status gm_raw_publish(
	struct gm_raw *raw, const Gm__Wire__Publish *publish, uint64_t *ret_version)
{
	Gm__Wire__Publish copy = *publish;
	gpumem_status status = gm_raw_call(raw, GM_RAW_PACKET(PUBLISH, publish, &copy));
	if (status == GPUMEM_OK) {
		GM_REQUIRE_EQ(raw->packet->body_case, GM__WIRE__PACKET__BODY_PUBLISH_REPLY);
		*ret_version = raw->packet->publish_reply->version;
	}
	return status;
}

gpumem_status gm_raw_attach(
	struct gm_raw *raw, uid_t owner, const char *name, struct gm_raw_lease *ret)
{
	Gm__Wire__Attach attach = GM__WIRE__ATTACH__INIT;
	attach.name = (char *)name;
	attach.foreign = owner != (uid_t)-1;
	attach.owner = attach.foreign ? owner : 0;
	*ret = (struct gm_raw_lease){0};
	return call_lease(raw, GM_RAW_PACKET(ATTACH, attach, &attach), ret);
}

gpumem_status gm_raw_unpublish(struct gm_raw *raw, uid_t owner, const char *name)
{
	Gm__Wire__Unpublish unpublish = GM__WIRE__UNPUBLISH__INIT;
	unpublish.name = (char *)name;
	unpublish.foreign = owner != (uid_t)-1;
	unpublish.owner = unpublish.foreign ? owner : 0;
	return gm_raw_call(raw, GM_RAW_PACKET(UNPUBLISH, unpublish, &unpublish));
}

gpumem_status gm_raw_put_metadata(struct gm_raw *raw, uint64_t lease, uint64_t size,
	uint64_t offset, const void *data, size_t n)
{
	Gm__Wire__PutMetadata put = GM__WIRE__PUT_METADATA__INIT;
	put.lease = lease;
	put.size = size;
	put.offset = offset;
	put.data.data = (uint8_t *)data;
	put.data.len = n;
	return gm_raw_call(raw, GM_RAW_PACKET(PUT_METADATA, put_metadata, &put));
}

gpumem_status gm_raw_get_metadata(struct gm_raw *raw, uid_t owner, const char *name, uint64_t lease,
	uint8_t **ret_data, size_t *ret_size)
{
	Gm__Wire__GetMetadata get = GM__WIRE__GET_METADATA__INIT;
	get.name = (char *)(name ? name : "");
	get.foreign = owner != (uid_t)-1;
	get.owner = get.foreign ? owner : 0;
	get.lease = lease;
	gpumem_status status = gm_raw_call(raw, GM_RAW_PACKET(GET_METADATA, get_metadata, &get));
	if (status != GPUMEM_OK)
		return status;

	size_t size = raw->packet->metadata_reply->size, have = 0;
	uint8_t *data = size ? malloc(size) : NULL;
	for (;;) {
		if (raw->packet->body_case == GM__WIRE__PACKET__BODY_FAILURE) {
			free(data);
			return (gpumem_status)raw->packet->failure->status;
		}
		GM_REQUIRE_EQ(raw->packet->body_case, GM__WIRE__PACKET__BODY_METADATA_REPLY);
		GM_REQUIRE_EQ(raw->packet->fds, 0);
		const Gm__Wire__MetadataReply *reply = raw->packet->metadata_reply;
		GM_REQUIRE(reply->size == size && reply->offset == have &&
			   reply->data.len <= size - have);
		if (reply->data.len)
			memcpy(data + have, reply->data.data, reply->data.len);
		have += reply->data.len;
		if (!raw->packet->more)
			break;
		GM_REQUIRE(gm_raw_receive(raw));
	}
	GM_REQUIRE_EQ(have, size);
	*ret_data = data;
	*ret_size = size;
	return GPUMEM_OK;
}

gpumem_status gm_raw_expire(struct gm_raw *raw, uid_t owner, const char *name, uint64_t lifetime_ms)
{
	Gm__Wire__ExpireName expire = GM__WIRE__EXPIRE_NAME__INIT;
	expire.name = (char *)name;
	expire.foreign = owner != (uid_t)-1;
	expire.owner = expire.foreign ? owner : 0;
	expire.lifetime_ms = lifetime_ms;
	return gm_raw_call(raw, GM_RAW_PACKET(EXPIRE_NAME, expire_name, &expire));
}

size_t gm_raw_count_names(struct gm_raw *raw)
{
	Gm__Wire__GetNames get = GM__WIRE__GET_NAMES__INIT;
	size_t n = 0;
	GM_REQUIRE_EQ(gm_raw_call(raw, GM_RAW_PACKET(GET_NAMES, get_names, &get)), GPUMEM_OK);
	for (;;) {
		GM_REQUIRE_EQ(raw->packet->body_case, GM__WIRE__PACKET__BODY_NAMES);
		n += raw->packet->names->n_names;
		if (!raw->packet->more)
			return n;
		GM_REQUIRE(gm_raw_receive(raw));
	}
}

gpumem_status gm_raw_goodbye(struct gm_raw *raw)
{
	Gm__Wire__Goodbye goodbye = GM__WIRE__GOODBYE__INIT;
	return gm_raw_call(raw, GM_RAW_PACKET(GOODBYE, goodbye, &goodbye));
}

/* ---- chunks */

void *gm_raw_map(const struct gm_alloc_raw_chunk *chunk, bool writable)
{
	return mmap(NULL, chunk->bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
		chunk->fd, 0);
}

bool gm_alloc_raw_chunk_is(const struct gm_alloc_raw_chunk *chunk, uint8_t byte)
{
	uint8_t *at = gm_raw_map(chunk, false);
	GM_REQUIRE(at != MAP_FAILED);
	bool same = at[0] == byte && memcmp(at, at + 1, chunk->bytes - 1) == 0;
	munmap(at, chunk->bytes);
	return same;
}

void gm_alloc_raw_chunk_fill(const struct gm_alloc_raw_chunk *chunk, uint8_t byte)
{
	uint8_t *at = gm_raw_map(chunk, true);
	GM_REQUIRE(at != MAP_FAILED);
	memset(at, byte, chunk->bytes);
	munmap(at, chunk->bytes);
}
