/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The raw peer: the wire by hand, for tests that say what no library would.
 *
 * Promises to show exactly what came, fds included, and to wait for it without a fixed time. Must
 * never hide a wrong answer by repairing it.
 */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/raw.h"

/* Each connection has ids of its own: none comes twice when a session is resumed. */
static _Atomic uint64_t connections;

int gm_raw_connect(struct gm_raw *raw, const char *path)
{
	*raw = (struct gm_raw){.socket = -1,
		.bell = -1,
		.daemon_page = -1,
		.client_page = -1,
		.next_id = (connections++ << 24) + 1};
	gm_wire_arena_init(&raw->arena);
	gm_fdlist_init(&raw->fds);
	raw->bytes = malloc(GM_LIMIT_PACKET_BYTES);
	GM_REQUIRE(raw->bytes);
	int r = gm_seqpacket_connect(path, 10000, &raw->socket);
	if (r < 0)
		gm_raw_close(raw);
	return r;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void gm_raw_close(struct gm_raw *raw)
{
	close_fd(&raw->socket);
	gm_hearing_end(&raw->hearing);
	close_fd(&raw->bell);
	close_fd(&raw->daemon_page);
	close_fd(&raw->client_page);
	gm_fdlist_deinit(&raw->fds);
	gm_fdlist_init(&raw->fds);
	gm_wire_arena_deinit(&raw->arena);
	gm_wire_arena_init(&raw->arena);
	free(raw->bytes);
	raw->bytes = NULL;
	raw->packet = NULL;
}

void gm_raw_hang_up(struct gm_raw *raw)
{
	raw->client_page = -1; /* stays open until the process ends */
	gm_raw_close(raw);
}

int gm_raw_send_bytes(struct gm_raw *raw, const void *bytes, size_t n, const int *fds, size_t n_fds)
{
	for (;;) {
		int r = gm_seqpacket_send(raw->socket, bytes, n, fds, n_fds);
		if (r != -EAGAIN)
			return r;
		struct pollfd fd = {.fd = raw->socket, .events = POLLOUT};
		if (poll(&fd, 1, GM_PATIENCE_MS) != 1)
			GM_FAIL("the daemon does not read");
	}
}

uint64_t gm_raw_send(struct gm_raw *raw, const Gm__Wire__Packet *packet)
{
	Gm__Wire__Packet p = *packet;
	if (p.id == 0 && p.body_case != GM__WIRE__PACKET__BODY_ACK)
		p.id = raw->next_id++;
	if (!raw->mute)
		p.fds_seen = raw->fds_seen;
	uint8_t bytes[4096];
	uint8_t *room = bytes;
	size_t size = sizeof(bytes), n;
	if (gm__wire__packet__get_packed_size(&p) > size) {
		size = GM_LIMIT_PACKET_BYTES;
		room = malloc(size);
		GM_REQUIRE(room);
	}
	GM_REQUIRE(gm_wire_pack(&p, room, size, &n) == 0);
	int r = gm_raw_send_bytes(raw, room, n, NULL, 0);
	if (r < 0 && r != -EPIPE && r != -ECONNRESET)
		GM_FAIL("send: %s", strerror(-r));
	if (room != bytes)
		free(room);
	return p.id;
}

bool gm_raw_readable(int socket)
{
	struct pollfd fd = {.fd = socket, .events = POLLIN};
	return poll(&fd, 1, 0) == 1;
}

bool gm_raw_receive(struct gm_raw *raw)
{
	struct gm_packet_in in;
	int r;
	raw->packet = NULL;
	for (;;) {
		struct pollfd fd = {.fd = raw->socket, .events = POLLIN};
		if (poll(&fd, 1, GM_PATIENCE_MS) != 1)
			GM_FAIL("the daemon said nothing");
		r = gm_seqpacket_receive(raw->socket, raw->bytes, GM_LIMIT_PACKET_BYTES, &in);
		if (r != -EAGAIN)
			break;
	}
	if (r == -EPIPE || r == -ECONNRESET)
		return false;
	if (r < 0)
		GM_FAIL("receive: %s", strerror(-r));
	GM_REQUIRE(!in.data_cut);
	gm_fdlist_deinit(&raw->fds);
	raw->fds = in.fds;
	raw->n_fds_got = in.fds.n;
	raw->fds_cut = in.fds_cut;
	GM_REQUIRE(gm_wire_unpack(&raw->arena, raw->bytes, in.n, &raw->packet) == 0);
	GM_REQUIRE(raw->packet->fds >= in.fds.n);
	raw->fds_seen += raw->packet->fds;
	raw->sequence = raw->packet->sequence;
	raw->generation = raw->packet->generation;
	return true;
}

bool gm_raw_has_event(const struct gm_raw *raw)
{
	return gm_hearing_waits(&raw->hearing);
}

bool gm_raw_receive_event(struct gm_raw *raw)
{
	int r = gm_hearing_next(&raw->hearing, raw->socket, GM_PATIENCE_MS, &raw->event);
	if (r < 0)
		GM_FAIL("the daemon rang no bell");
	if (r == 0)
		return false;
	raw->sequence = raw->event.sequence;
	return true;
}

static gpumem_status outcome(const struct gm_raw *raw)
{
	if (!raw->packet)
		return GPUMEM_E_DISCONNECTED;
	if (raw->packet->body_case == GM__WIRE__PACKET__BODY_FAILURE) {
		GM_REQUIRE(raw->packet->failure->status != GPUMEM_OK);
		/* A refusal says cause and remedy. */
		GM_REQUIRE(strlen(raw->packet->failure->detail) > 0);
		return (gpumem_status)raw->packet->failure->status;
	}
	return GPUMEM_OK;
}

const char *gm_raw_detail(const struct gm_raw *raw)
{
	GM_REQUIRE(raw->packet && raw->packet->body_case == GM__WIRE__PACKET__BODY_FAILURE);
	return raw->packet->failure->detail;
}

gpumem_status gm_raw_call(struct gm_raw *raw, const Gm__Wire__Packet *packet)
{
	uint64_t id = gm_raw_send(raw, packet);
	/* A connection that is refused as a whole is told so by a Failure without an id. */
	if (gm_raw_receive(raw) && raw->packet->id != id &&
		!(raw->packet->id == 0 && raw->packet->body_case == GM__WIRE__PACKET__BODY_FAILURE))
		GM_FAIL("asked as %llu, answered as %llu", (unsigned long long)id,
			(unsigned long long)raw->packet->id);
	return outcome(raw);
}

size_t gm_raw_drain(struct gm_raw *raw, gpumem_status *ret_last_failure)
{
	size_t n = 0;
	*ret_last_failure = GPUMEM_OK;
	while (gm_raw_receive(raw)) {
		n++;
		if (raw->packet->body_case == GM__WIRE__PACKET__BODY_FAILURE)
			*ret_last_failure = (gpumem_status)raw->packet->failure->status;
	}
	return n;
}

gpumem_status gm_raw_hello(struct gm_raw *raw, const char *path, const Gm__Wire__Hello *hello)
{
	int r = gm_raw_connect(raw, path);
	if (r < 0)
		GM_FAIL("connect to %s: %s", path, strerror(-r));
	gpumem_status status =
		gm_raw_call(raw, GM_RAW_PACKET(HELLO, hello, (Gm__Wire__Hello *)(uintptr_t)hello));
	if (status != GPUMEM_OK)
		return status;
	GM_REQUIRE(raw->packet->body_case == GM__WIRE__PACKET__BODY_HELLO_REPLY);
	const Gm__Wire__HelloReply *reply = raw->packet->hello_reply;
	raw->session = reply->session;
	raw->resumed = reply->resumed;
	GM_REQUIRE_EQ(reply->major, GM_WIRE_MAJOR);
	if (hello->observer) {
		GM_REQUIRE_EQ(raw->packet->fds, 0);
		return status;
	}
	GM_REQUIRE_EQ(raw->packet->fds, 3);
	GM_REQUIRE(reply->session != 0);
	GM_REQUIRE_EQ(reply->token.len, GM_TOKEN_BYTES);
	memcpy(raw->token, reply->token.data, GM_TOKEN_BYTES);
	/* The kernel may let the sender of a Unix socket wait, whatever its flags. */
	for (size_t i = 0; i < raw->fds.n; i++) {
		struct stat st;
		GM_REQUIRE(fstat(raw->fds.fds[i], &st) == 0);
		GM_REQUIRE(!S_ISSOCK(st.st_mode));
	}
	raw->bell = gm_fdlist_steal(&raw->fds, 0);
	raw->daemon_page = gm_fdlist_steal(&raw->fds, 1);
	raw->client_page = gm_fdlist_steal(&raw->fds, 2);
	if (raw->daemon_page >= 0)
		GM_REQUIRE(gm_hearing_begin(&raw->hearing, raw->bell, raw->daemon_page));
	return status;
}

static void hello_must_do(struct gm_raw *raw, const struct gm_daemon *daemon, bool observer)
{
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	hello.major = GM_WIRE_MAJOR;
	hello.minor = GM_WIRE_MINOR;
	hello.name = (char *)(observer ? "observer" : "raw");
	hello.observer = observer;
	gpumem_status status = gm_raw_hello(raw, daemon->socket, &hello);
	if (status != GPUMEM_OK)
		GM_FAIL("hello: status %d: %s", (int)status,
			raw->packet ? gm_raw_detail(raw) : "hung up");
}

void gm_raw_join(struct gm_raw *raw, const struct gm_daemon *daemon)
{
	hello_must_do(raw, daemon, false);
}

void gm_raw_observe(struct gm_raw *raw, const struct gm_daemon *daemon)
{
	hello_must_do(raw, daemon, true);
}

/* ---- leases */

void gm_raw_lease_clear(struct gm_raw_lease *lease)
{
	for (size_t i = 0; i < lease->n; i++)
		close_fd(&lease->chunks[i].fd);
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
		GM_REQUIRE(raw->packet->fds <= GM_LIMIT_PACKET_FDS);
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
		struct gm_raw_chunk *chunks = realloc(lease->chunks, (n + 1) * sizeof(*chunks));
		GM_REQUIRE(chunks);
		lease->chunks = chunks;
		for (size_t i = 0; i < reply->n_chunks; i++) {
			const Gm__Wire__Chunk *c = reply->chunks[i];
			chunks[lease->n++] = (struct gm_raw_chunk){.id = c->id,
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

gpumem_status gm_raw_open(
	struct gm_raw *raw, const uint8_t token[GM_TOKEN_BYTES], struct gm_raw_lease *ret)
{
	Gm__Wire__Open open = GM__WIRE__OPEN__INIT;
	open.token.data = (uint8_t *)(uintptr_t)token;
	open.token.len = GM_TOKEN_BYTES;
	*ret = (struct gm_raw_lease){0};
	return call_lease(raw, GM_RAW_PACKET(OPEN, open, &open), ret);
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

void *gm_raw_map(const struct gm_raw_chunk *chunk, bool writable)
{
	return mmap(NULL, chunk->bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
		chunk->fd, 0);
}

bool gm_raw_chunk_is(const struct gm_raw_chunk *chunk, uint8_t byte)
{
	uint8_t *at = gm_raw_map(chunk, false);
	GM_REQUIRE(at != MAP_FAILED);
	bool same = at[0] == byte && memcmp(at, at + 1, chunk->bytes - 1) == 0;
	munmap(at, chunk->bytes);
	return same;
}

void gm_raw_chunk_fill(const struct gm_raw_chunk *chunk, uint8_t byte)
{
	uint8_t *at = gm_raw_map(chunk, true);
	GM_REQUIRE(at != MAP_FAILED);
	memset(at, byte, chunk->bytes);
	munmap(at, chunk->bytes);
}

/* ---- what the daemon says of itself */

static void raw_fill_figures(const struct gm_raw *raw, uint32_t device, struct gm_figures *ret)
{
	GM_REQUIRE_EQ(raw->packet->body_case, GM__WIRE__PACKET__BODY_STATUS);
	const Gm__Wire__StatusReply *s = raw->packet->status;
	GM_REQUIRE(s->n_devices > device);
	const Gm__Wire__Device *d = s->devices[device];
	*ret = (struct gm_figures){.clients = s->clients,
		.quarantined_clients = s->quarantined_clients,
		.leases = s->leases,
		.requests = s->requests,
		.refusals = s->refusals,
		.total = d->total,
		.capacity = d->capacity,
		.ceiling = d->ceiling,
		.available = d->available,
		.leased = d->leased,
		.quarantined = d->quarantined,
		.lingering = d->lingering,
		.declared = d->declared,
		.declared_seen = d->declared_seen,
		.free = d->free,
		.admitted = d->admitted,
		.pooled = d->pooled,
		.foreign = d->foreign,
		.chunks = d->chunks,
		.peak_charged = d->peak_charged,
		.generation = raw->generation,
		.kept = s->keeper ? s->keeper->items : 0,
		.records = s->keeper ? s->keeper->records : 0};
}

void gm_figures_of(const struct gm_daemon *daemon, uint32_t device, struct gm_figures *ret)
{
	struct gm_raw raw;
	gm_raw_observe(&raw, daemon);
	Gm__Wire__GetStatus get = GM__WIRE__GET_STATUS__INIT;
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(GET_STATUS, get_status, &get)), GPUMEM_OK);
	raw_fill_figures(&raw, device, ret);
	gm_raw_close(&raw);
}

bool gm_figures_try(const struct gm_daemon *daemon, struct gm_figures *ret)
{
	struct gm_raw raw;
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	Gm__Wire__GetStatus get = GM__WIRE__GET_STATUS__INIT;
	hello.major = GM_WIRE_MAJOR;
	hello.minor = GM_WIRE_MINOR;
	hello.name = (char *)"raw";
	hello.observer = true;
	if (gm_raw_connect(&raw, daemon->socket) < 0)
		return false;
	gpumem_status status = gm_raw_call(&raw, GM_RAW_PACKET(HELLO, hello, &hello));
	if (status == GPUMEM_OK)
		status = gm_raw_call(&raw, GM_RAW_PACKET(GET_STATUS, get_status, &get));
	if (status == GPUMEM_OK)
		raw_fill_figures(&raw, 0, ret);
	gm_raw_close(&raw);
	if (status != GPUMEM_OK && status != GPUMEM_E_DISCONNECTED)
		GM_FAIL("the daemon refused to tell its figures: %d", (int)status);
	return status == GPUMEM_OK;
}

void gm_figures(const struct gm_daemon *daemon, struct gm_figures *ret)
{
	gm_figures_of(daemon, 0, ret);
}

struct gm_figures gm_figures_now(const struct gm_daemon *daemon)
{
	struct gm_figures figures;
	gm_figures(daemon, &figures);
	return figures;
}

static void raw_fill_row(const Gm__Wire__Client *c, struct gm_client_row *ret)
{
	*ret = (struct gm_client_row){.session = c->session,
		.leases = c->leases,
		.pid = c->pid,
		.uid = c->uid,
		.quarantined = c->quarantined,
		.left = c->left,
		.details = c->details};
	GM_REQUIRE(strlen(c->name) <= GM_LIMIT_NAME_BYTES);
	strcpy(ret->name, c->name);
	if (c->n_use > 0) {
		ret->held = c->use[0]->held;
		ret->in_use = c->use[0]->in_use;
		ret->cached = c->use[0]->cached;
		ret->active_buffers = c->use[0]->active_buffers;
		ret->declared = c->use[0]->declared;
	}
}

/* Calls visit() for each row of the answer to GetClients. */
static void raw_each_row(const struct gm_daemon *daemon,
	void (*visit)(void *ctx, const struct gm_client_row *row), void *ctx)
{
	struct gm_raw raw;
	gm_raw_observe(&raw, daemon);
	Gm__Wire__GetClients get = GM__WIRE__GET_CLIENTS__INIT;
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(GET_CLIENTS, get_clients, &get)), GPUMEM_OK);
	for (;;) {
		GM_REQUIRE_EQ(raw.packet->body_case, GM__WIRE__PACKET__BODY_CLIENTS);
		const Gm__Wire__ClientsReply *reply = raw.packet->clients;
		for (size_t i = 0; i < reply->n_clients; i++) {
			struct gm_client_row row;
			raw_fill_row(reply->clients[i], &row);
			visit(ctx, &row);
		}
		if (!raw.packet->more)
			break;
		GM_REQUIRE(gm_raw_receive(&raw));
	}
	gm_raw_close(&raw);
}

struct raw_search {
	uint64_t session;
	bool found;
	struct gm_client_row row;
};

static void raw_match_row(void *ctx, const struct gm_client_row *row)
{
	struct raw_search *search = ctx;
	if (row->session != search->session)
		return;
	search->found = true;
	search->row = *row;
}

bool gm_client_row(const struct gm_daemon *daemon, uint64_t session, struct gm_client_row *ret)
{
	struct raw_search search = {.session = session};
	raw_each_row(daemon, raw_match_row, &search);
	if (search.found)
		*ret = search.row;
	return search.found;
}

struct raw_rows {
	struct gm_client_row *rows;
	size_t n, most;
};

static void raw_add_row(void *ctx, const struct gm_client_row *row)
{
	struct raw_rows *all = ctx;
	if (all->n < all->most)
		all->rows[all->n] = *row;
	all->n++;
}

static int raw_compare_rows(const void *a, const void *b)
{
	const struct gm_client_row *x = a, *y = b;
	return x->session < y->session ? -1 : x->session > y->session;
}

size_t gm_client_rows(const struct gm_daemon *daemon, struct gm_client_row *rows, size_t most)
{
	struct raw_rows all = {.rows = rows, .most = most};
	raw_each_row(daemon, raw_add_row, &all);
	qsort(rows, all.n < most ? all.n : most, sizeof(*rows), raw_compare_rows);
	return all.n;
}

struct raw_left {
	uid_t uid;
	uint64_t held;
};

static void raw_add_left(void *ctx, const struct gm_client_row *row)
{
	struct raw_left *left = ctx;
	if (row->left && row->uid == left->uid)
		left->held += row->held;
}

uint64_t gm_left_by(const struct gm_daemon *daemon, uid_t uid)
{
	struct raw_left left = {.uid = uid};
	raw_each_row(daemon, raw_add_left, &left);
	return left.held;
}

uint64_t gm_waiting(const struct gm_daemon *daemon)
{
	struct gm_raw ctl;
	Gm__Wire__GetQueue body = GM__WIRE__GET_QUEUE__INIT;
	uint64_t n = 0;
	gm_raw_observe(&ctl, daemon);
	GM_REQUIRE_EQ(gm_raw_call(&ctl, GM_RAW_PACKET(GET_QUEUE, get_queue, &body)), GPUMEM_OK);
	for (;;) {
		for (size_t i = 0; i < ctl.packet->queue->n_requests; i++)
			n += !ctl.packet->queue->requests[i]->parked;
		if (!ctl.packet->more)
			break;
		GM_REQUIRE(gm_raw_receive(&ctl));
	}
	gm_raw_close(&ctl);
	return n;
}
