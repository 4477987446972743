/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake daemon. One thread serves; the test's thread tells it what to be, under its lock. It
 * trusts the client no more than it must to be a test: a request that makes no sense fails the
 * test.
 */
#include "tests/unit/fake_daemon.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utlist.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/seqpacket.h"
#include "common/wire.h"

#define CONNS  16
#define BODIES 128
#define TOTAL  (UINT64_C(1) << 33)

struct chunk {
	uint64_t id, index, bytes;
	int fd;
	struct chunk *next;
};

struct lease {
	uint64_t id, user_bytes, next_index;
	uint32_t device;
	unsigned views;
	bool shared, read_only;
	uint8_t token[GM_TOKEN_BYTES];
	char tag[GM_LIMIT_NAME_BYTES + 1];
	struct chunk *chunks;
	struct lease *next;
};

struct held {
	int conn;
	size_t n;
	struct held *next;
	uint8_t bytes[];
};

struct fake {
	char dir[64], path[96];
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int listener, wake;
	int conns[CONNS], channels[CONNS]; /* and the daemon's ends of their event channels */
	bool stop;
	struct fake_will will;
	struct held *held;
	uint64_t last_id, session;
	uint8_t token[GM_TOKEN_BYTES];
	int events; /* the channel of the client that came last: one of the above */
	int client_page;
	struct gm_page_daemon *page;
	struct lease *leases;
	unsigned seen[BODIES];
	struct gm_wire_arena arena;
	uint8_t packet[GM_LIMIT_PACKET_BYTES], out[GM_LIMIT_PACKET_BYTES];
};

/* ---- the books */

static void lease_free(struct lease *lease)
{
	struct chunk *chunk, *tmp;
	LL_FOREACH_SAFE (lease->chunks, chunk, tmp) {
		close(chunk->fd);
		free(chunk);
	}
	free(lease);
}

static void lease_grow(struct fake *fake, struct lease *lease, uint64_t bytes)
{
	bytes = (bytes + GM_CHUNK_MIN - 1) & ~(GM_CHUNK_MIN - 1);
	while (bytes) {
		struct chunk *chunk = calloc(1, sizeof(*chunk));
		ck_assert_ptr_nonnull(chunk);
		chunk->bytes = GM_CHUNK_MAX;
		while (chunk->bytes > bytes)
			chunk->bytes /= 2;
		chunk->id = ++fake->last_id;
		chunk->index = lease->next_index++;
		chunk->fd = memfd_create("chunk", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		ck_assert_int_ge(chunk->fd, 0);
		ck_assert_int_eq(ftruncate(chunk->fd, (off_t)chunk->bytes), 0);
		LL_APPEND(lease->chunks, chunk);
		bytes -= chunk->bytes;
	}
}

static struct lease *lease_add(struct fake *fake, uint64_t bytes)
{
	struct lease *lease = calloc(1, sizeof(*lease));
	ck_assert_ptr_nonnull(lease);
	lease->id = ++fake->last_id;
	lease->user_bytes = bytes;
	lease->views = 1;
	lease_grow(fake, lease, bytes);
	LL_PREPEND(fake->leases, lease);
	return lease;
}

static struct lease *lease_find(struct fake *fake, uint64_t id)
{
	struct lease *lease;
	LL_SEARCH_SCALAR(fake->leases, lease, id, id);
	return lease;
}

static void forget_all(struct fake *fake)
{
	struct lease *lease, *tmp;
	LL_FOREACH_SAFE (fake->leases, lease, tmp)
		lease_free(lease);
	fake->leases = NULL;
}

/* ---- sending */

static void out(struct fake *fake, int fd, Gm__Wire__Packet *packet, const int *fds, size_t n)
{
	size_t length;
	ck_assert_int_eq(gm_wire_pack(packet, fake->out, sizeof(fake->out), &length), 0);
	/* A client that is gone meanwhile is no fault. */
	(void)gm_seqpacket_send(fd, fake->out, length, fds, n);
}

static void refuse(struct fake *fake, int fd, uint64_t id, gpumem_status status, const char *detail)
{
	Gm__Wire__Failure body = GM__WIRE__FAILURE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	body.status = status;
	body.detail = (char *)detail;
	packet.id = id;
	packet.body_case = GM__WIRE__PACKET__BODY_FAILURE;
	packet.failure = &body;
	out(fake, fd, &packet, NULL, 0);
}

static void done(struct fake *fake, int fd, uint64_t id)
{
	Gm__Wire__Done body = GM__WIRE__DONE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	packet.id = id;
	packet.body_case = GM__WIRE__PACKET__BODY_DONE;
	packet.done = &body;
	out(fake, fd, &packet, NULL, 0);
}

static void handles(struct fake *fake, int fd, uint64_t id, struct lease *lease, uint64_t from)
{
	struct chunk *chunk = lease->chunks;
	while (chunk && chunk->index < from)
		chunk = chunk->next;
	do {
		Gm__Wire__Chunk chunks[GM_LIMIT_PACKET_FDS], *list[GM_LIMIT_PACKET_FDS];
		int fds[GM_LIMIT_PACKET_FDS];
		size_t n = 0,
		       most = fake->will.per_packet ? fake->will.per_packet : GM_LIMIT_PACKET_FDS;
		for (; chunk && n < most; chunk = chunk->next, n++) {
			gm__wire__chunk__init(&chunks[n]);
			chunks[n].id = chunk->id;
			chunks[n].index = chunk->index;
			chunks[n].bytes = chunk->bytes;
			list[n] = &chunks[n];
			fds[n] = chunk->fd;
		}
		Gm__Wire__LeaseReply body = GM__WIRE__LEASE_REPLY__INIT;
		Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
		body.lease = lease->id;
		body.device = lease->device;
		body.transport = GM__WIRE__TRANSPORT__TRANSPORT_FD;
		body.user_bytes = lease->user_bytes;
		body.read_only = lease->shared && lease->read_only;
		body.tag = lease->tag;
		body.n_chunks = n;
		body.chunks = list;
		packet.id = id;
		packet.more = chunk != NULL;
		packet.fds = (uint32_t)n;
		packet.body_case = GM__WIRE__PACKET__BODY_LEASE_REPLY;
		packet.lease_reply = &body;
		size_t lost = n && fake->will.cut ? 1 : 0;
		fake->will.cut -= (unsigned)lost;
		out(fake, fd, &packet, fds, n - lost);
	} while (chunk);
}

/* ---- the hello */

static int sealed(const void *bytes, size_t n, size_t size, int seals)
{
	int fd = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
	ck_assert_int_eq(pwrite(fd, bytes, n, 0), (ssize_t)n);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static int new_pages(struct fake *fake)
{
	struct gm_page_header header = {
		.magic = GM_PAGE_DAEMON_MAGIC,
		.version = GM_PAGE_VERSION,
		.devices = 2,
	};
	int fd = sealed(&header, sizeof(header), sizeof(*fake->page), F_SEAL_SHRINK | F_SEAL_GROW);
	if (fake->page)
		munmap(fake->page, sizeof(*fake->page));
	fake->page = mmap(NULL, sizeof(*fake->page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(fake->page, MAP_FAILED);
	header.magic = GM_PAGE_CLIENT_MAGIC;
	header.rows = GM_LIMIT_TRACKED_BUFFERS;
	gm_close(fake->client_page);
	fake->client_page = sealed(&header, sizeof(header), sizeof(struct gm_page_client),
		F_SEAL_SHRINK | F_SEAL_GROW);
	return fd;
}

static void hello(struct fake *fake, int fd, uint64_t id, const Gm__Wire__Hello *asked)
{
	const struct fake_will *will = &fake->will;
	if (will->mute_hello)
		return;
	if (will->refuse) {
		refuse(fake, fd, id, will->refuse, "refused by the test");
		return;
	}
	if (will->nonsense_hello) {
		done(fake, fd, id);
		return;
	}
	bool resumed = asked->session && asked->session == fake->session && !will->forget;
	if (resumed) {
		ck_assert_uint_eq(asked->token.len, GM_TOKEN_BYTES);
		ck_assert_mem_eq(asked->token.data, fake->token, GM_TOKEN_BYTES);
	} else {
		if (asked->session)
			forget_all(fake);
		fake->session = ++fake->last_id;
	}
	memset(fake->token, (int)(++fake->last_id & 0xff), GM_TOKEN_BYTES);
	int pair[2], daemon_page = new_pages(fake);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	fake->events = pair[0];
	for (int i = 0; i < CONNS; i++) {
		if (fake->conns[i] >= 0 && fake->conns[i] == fd)
			fake->channels[i] = pair[0];
	}
	if (fd < 0)
		fake->events = gm_close(pair[0]);

	uint64_t leases[1024];
	Gm__Wire__HelloReply body = GM__WIRE__HELLO_REPLY__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	body.major = will->major;
	body.minor = will->minor;
	body.session = fake->session;
	body.token.data = fake->token;
	body.token.len = GM_TOKEN_BYTES;
	body.version = "fake";
	body.decay_ms = 10000;
	body.track = GM__WIRE__TRACK__TRACK_LARGE;
	body.resumed = resumed;
	if (resumed) {
		struct lease *lease;
		LL_FOREACH (fake->leases, lease)
			leases[body.n_leases++] = lease->id;
		body.leases = leases;
	}
	packet.id = id;
	packet.fds = 3;
	packet.generation = 1;
	packet.body_case = GM__WIRE__PACKET__BODY_HELLO_REPLY;
	packet.hello_reply = &body;
	int fds[] = {pair[1], daemon_page, fake->client_page};
	out(fake, fd, &packet, fds, 3);
	close(pair[1]);
	close(daemon_page);
}

static void devices(struct fake *fake, int fd, uint64_t id)
{
	Gm__Wire__Device device[2], *list[2] = {&device[0], &device[1]};
	for (uint32_t i = 0; i < 2; i++) {
		gm__wire__device__init(&device[i]);
		device[i].number = i;
		device[i].name = i ? "the other" : "the first";
		device[i].backend = "host";
		device[i].total = TOTAL;
		device[i].capacity = TOTAL / 2;
		device[i].available = TOTAL / 4;
		device[i].transport_fd = true;
	}
	Gm__Wire__DevicesReply body = GM__WIRE__DEVICES_REPLY__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	body.n_devices = 2;
	body.devices = list;
	packet.id = id;
	packet.body_case = GM__WIRE__PACKET__BODY_DEVICES;
	packet.devices = &body;
	out(fake, fd, &packet, NULL, 0);
}

/* ---- requests */

static void give_back(struct fake *fake, int fd, uint64_t id, const Gm__Wire__Return *asked)
{
	struct lease *lease = lease_find(fake, asked->lease);
	if (!lease) {
		refuse(fake, fd, id, GPUMEM_E_NOT_FOUND, "no such lease");
		return;
	}
	if (!asked->n_chunks) {
		if (--lease->views == 0) {
			LL_DELETE(fake->leases, lease);
			lease_free(lease);
		}
		done(fake, fd, id);
		return;
	}
	for (size_t i = 0; i < asked->n_chunks; i++) {
		struct chunk *chunk;
		LL_SEARCH_SCALAR(lease->chunks, chunk, id, asked->chunks[i]);
		if (!chunk) {
			refuse(fake, fd, id, GPUMEM_E_NOT_FOUND, "no such chunk");
			return;
		}
	}
	for (size_t i = 0; i < asked->n_chunks; i++) {
		struct chunk *chunk;
		LL_SEARCH_SCALAR(lease->chunks, chunk, id, asked->chunks[i]);
		LL_DELETE(lease->chunks, chunk);
		close(chunk->fd);
		free(chunk);
	}
	done(fake, fd, id);
}

static void share(struct fake *fake, int fd, uint64_t id, const Gm__Wire__Share *asked)
{
	struct lease *lease = lease_find(fake, asked->lease);
	if (!lease) {
		refuse(fake, fd, id, GPUMEM_E_NOT_FOUND, "no such lease");
		return;
	}
	lease->shared = true;
	lease->read_only = asked->read_only;
	memset(lease->token, (int)(lease->id & 0xff), sizeof(lease->token));
	Gm__Wire__ShareReply body = GM__WIRE__SHARE_REPLY__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	body.token.data = lease->token;
	body.token.len = sizeof(lease->token);
	packet.id = id;
	packet.body_case = GM__WIRE__PACKET__BODY_SHARE_REPLY;
	packet.share_reply = &body;
	out(fake, fd, &packet, NULL, 0);
}

static void open_shared(struct fake *fake, int fd, uint64_t id, const Gm__Wire__Open *asked)
{
	struct lease *lease;
	LL_FOREACH (fake->leases, lease) {
		if (lease->shared && !memcmp(lease->token, asked->token.data, asked->token.len)) {
			lease->views++;
			handles(fake, fd, id, lease, 0);
			return;
		}
	}
	refuse(fake, fd, id, GPUMEM_E_NOT_FOUND, "no such share");
}

static void serve(struct fake *fake, int fd, const Gm__Wire__Packet *packet)
{
	uint64_t id = packet->id;
	struct lease *lease;
	switch (packet->body_case) {
	case GM__WIRE__PACKET__BODY_HELLO:
		hello(fake, fd, id, packet->hello);
		break;
	case GM__WIRE__PACKET__BODY_GET_DEVICES:
		devices(fake, fd, id);
		break;
	case GM__WIRE__PACKET__BODY_LEASE:
		lease = lease_add(fake, packet->lease->bytes);
		lease->device = packet->lease->device;
		snprintf(lease->tag, sizeof(lease->tag), "%s", packet->lease->tag);
		handles(fake, fd, id, lease, 0);
		break;
	case GM__WIRE__PACKET__BODY_GROW:
		lease = lease_find(fake, packet->grow->lease);
		if (lease) {
			uint64_t from = lease->next_index;
			lease_grow(fake, lease, packet->grow->bytes);
			handles(fake, fd, id, lease, from);
		} else {
			refuse(fake, fd, id, GPUMEM_E_NOT_FOUND, "no such lease");
		}
		break;
	case GM__WIRE__PACKET__BODY_GET_HANDLES:
		lease = lease_find(fake, packet->get_handles->lease);
		if (lease)
			handles(fake, fd, id, lease, packet->get_handles->from);
		else
			refuse(fake, fd, id, GPUMEM_E_NOT_FOUND, "no such lease");
		break;
	case GM__WIRE__PACKET__BODY_RETURN_CHUNKS:
		give_back(fake, fd, id, packet->return_chunks);
		break;
	case GM__WIRE__PACKET__BODY_SHARE:
		share(fake, fd, id, packet->share);
		break;
	case GM__WIRE__PACKET__BODY_OPEN:
		open_shared(fake, fd, id, packet->open);
		break;
	case GM__WIRE__PACKET__BODY_UNSHARE:
		lease = lease_find(fake, packet->unshare->lease);
		if (lease)
			lease->shared = false;
		done(fake, fd, id);
		break;
	case GM__WIRE__PACKET__BODY_GOODBYE:
		forget_all(fake);
		done(fake, fd, id);
		break;
	case GM__WIRE__PACKET__BODY_ACK:
		break;
	default:
		refuse(fake, fd, id, GPUMEM_E_UNSUPPORTED, "not in this test");
	}
}

static void close_conn(struct fake *fake, int i)
{
	fake->conns[i] = gm_close(fake->conns[i]);
	fake->channels[i] = gm_close(fake->channels[i]);
}

static void hang_up(struct fake *fake)
{
	struct held *held, *tmp;
	LL_FOREACH_SAFE (fake->held, held, tmp)
		free(held);
	fake->held = NULL;
	for (int i = 0; i < CONNS; i++)
		close_conn(fake, i);
	fake->events = -1;
}

/* Locked. false: the connection is to be closed. */
static bool handle(struct fake *fake, int conn, const void *bytes, size_t n, bool again)
{
	Gm__Wire__Packet *packet;
	ck_assert_int_eq(gm_wire_unpack(&fake->arena, bytes, n, &packet), 0);
	int body = (int)packet->body_case;
	if (!again) {
		fake->seen[body]++;
		pthread_cond_broadcast(&fake->changed);
	}
	if (!again && fake->will.hold == body) {
		struct held *held = malloc(sizeof(*held) + n);
		ck_assert_ptr_nonnull(held);
		held->conn = conn;
		held->n = n;
		memcpy(held->bytes, bytes, n);
		LL_APPEND(fake->held, held);
		return true;
	}
	if (fake->will.fail == body) {
		refuse(fake, fake->conns[conn], packet->id, GPUMEM_E_NO_MEMORY, "no room");
		return true;
	}
	if (fake->will.drop == body) {
		/* Carried out, but the answer leads nowhere. */
		fake->will.drop = 0;
		serve(fake, -1, packet);
		return false;
	}
	serve(fake, fake->conns[conn], packet);
	return true;
}

static void read_conn(struct fake *fake, int i)
{
	struct gm_packet_in in;
	int r = gm_seqpacket_receive(fake->conns[i], fake->packet, sizeof(fake->packet), &in);
	if (r == -EAGAIN)
		return;
	if (r < 0 || !handle(fake, i, fake->packet, in.n, false))
		close_conn(fake, i);
	else
		ck_assert_uint_eq(in.fds.n, 0);
}

static void *run(void *ctx)
{
	struct fake *fake = ctx;
	pthread_mutex_lock(&fake->lock);
	while (!fake->stop) {
		struct pollfd p[CONNS + 2] = {
			{.fd = fake->wake, .events = POLLIN},
			{.fd = fake->listener, .events = POLLIN},
		};
		for (int i = 0; i < CONNS; i++)
			p[i + 2] = (struct pollfd){.fd = fake->conns[i], .events = POLLIN};
		pthread_mutex_unlock(&fake->lock);
		poll(p, CONNS + 2, -1);
		pthread_mutex_lock(&fake->lock);
		eventfd_t count;
		if (p[0].revents)
			(void)eventfd_read(fake->wake, &count);
		if (p[1].revents && fake->listener == p[1].fd) {
			int fd = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC);
			for (int i = 0; fd >= 0 && i < CONNS; i++) {
				if (fake->conns[i] < 0) {
					fake->conns[i] = fd;
					fd = -1;
				}
			}
			gm_close(fd);
		}
		for (int i = 0; i < CONNS; i++) {
			if (p[i + 2].revents && fake->conns[i] >= 0 &&
				fake->conns[i] == p[i + 2].fd)
				read_conn(fake, i);
		}
		pthread_cond_broadcast(&fake->changed);
	}
	pthread_mutex_unlock(&fake->lock);
	return NULL;
}

/* ---- what the test calls */

static void start_listening(struct fake *fake)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	unlink(fake->path);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", fake->path);
	fake->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(fake->listener, 0);
	ck_assert_int_eq(bind(fake->listener, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(fake->listener, 16), 0);
}

struct fake *fake_start(void)
{
	struct fake *fake = calloc(1, sizeof(*fake));
	ck_assert_ptr_nonnull(fake);
	snprintf(fake->dir, sizeof(fake->dir), "/tmp/gpumem-fake-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(fake->dir));
	snprintf(fake->path, sizeof(fake->path), "%s/socket", fake->dir);
	pthread_mutex_init(&fake->lock, NULL);
	pthread_cond_init(&fake->changed, NULL);
	gm_wire_arena_init(&fake->arena);
	for (int i = 0; i < CONNS; i++)
		fake->conns[i] = fake->channels[i] = -1;
	fake->events = fake->client_page = -1;
	fake->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	fake->will = (struct fake_will){.major = GM_WIRE_MAJOR, .minor = GM_WIRE_MINOR};
	start_listening(fake);
	ck_assert_int_eq(pthread_create(&fake->thread, NULL, run, fake), 0);
	return fake;
}

static void wake(struct fake *fake)
{
	(void)eventfd_write(fake->wake, 1);
}

void fake_stop(struct fake *fake)
{
	pthread_mutex_lock(&fake->lock);
	fake->stop = true;
	pthread_mutex_unlock(&fake->lock);
	wake(fake);
	pthread_join(fake->thread, NULL);
	hang_up(fake);
	gm_close(fake->listener);
	gm_close(fake->wake);
	gm_close(fake->client_page);
	if (fake->page)
		munmap(fake->page, sizeof(*fake->page));
	forget_all(fake);
	gm_wire_arena_deinit(&fake->arena);
	unlink(fake->path);
	rmdir(fake->dir);
	free(fake);
}

const char *fake_path(const struct fake *fake)
{
	return fake->path;
}

void fake_will(struct fake *fake, const struct fake_will *will)
{
	pthread_mutex_lock(&fake->lock);
	fake->will = *will;
	if (!fake->will.major)
		fake->will.major = GM_WIRE_MAJOR;
	struct held *held, *tmp, *list = fake->held;
	fake->held = NULL;
	LL_FOREACH_SAFE (list, held, tmp) {
		if (fake->conns[held->conn] >= 0)
			handle(fake, held->conn, held->bytes, held->n, true);
		free(held);
	}
	pthread_mutex_unlock(&fake->lock);
}

void fake_away(struct fake *fake)
{
	pthread_mutex_lock(&fake->lock);
	/* Its own thread may be polling it, and would keep it open for a while. */
	shutdown(fake->listener, SHUT_RDWR);
	fake->listener = gm_close(fake->listener);
	hang_up(fake);
	pthread_mutex_unlock(&fake->lock);
	wake(fake);
}

void fake_back(struct fake *fake)
{
	pthread_mutex_lock(&fake->lock);
	start_listening(fake);
	pthread_mutex_unlock(&fake->lock);
	wake(fake);
}

void fake_hang_up(struct fake *fake)
{
	pthread_mutex_lock(&fake->lock);
	hang_up(fake);
	pthread_mutex_unlock(&fake->lock);
	wake(fake);
}

unsigned fake_seen(struct fake *fake, int body)
{
	pthread_mutex_lock(&fake->lock);
	unsigned n = fake->seen[body];
	pthread_mutex_unlock(&fake->lock);
	return n;
}

void fake_wait_seen(struct fake *fake, int body, unsigned n)
{
	pthread_mutex_lock(&fake->lock);
	while (fake->seen[body] < n)
		pthread_cond_wait(&fake->changed, &fake->lock);
	pthread_mutex_unlock(&fake->lock);
}

static unsigned count_leases(struct fake *fake)
{
	unsigned n = 0;
	struct lease *lease;
	LL_COUNT(fake->leases, lease, n);
	return n;
}

unsigned fake_leases(struct fake *fake)
{
	pthread_mutex_lock(&fake->lock);
	unsigned n = count_leases(fake);
	pthread_mutex_unlock(&fake->lock);
	return n;
}

unsigned fake_chunks(struct fake *fake)
{
	unsigned n = 0;
	struct lease *lease;
	struct chunk *chunk;
	pthread_mutex_lock(&fake->lock);
	LL_FOREACH (fake->leases, lease) {
		LL_FOREACH (lease->chunks, chunk)
			n++;
	}
	pthread_mutex_unlock(&fake->lock);
	return n;
}

void fake_wait_leases(struct fake *fake, unsigned n)
{
	pthread_mutex_lock(&fake->lock);
	while (count_leases(fake) != n)
		pthread_cond_wait(&fake->changed, &fake->lock);
	pthread_mutex_unlock(&fake->lock);
}

static bool connected(const struct fake *fake)
{
	for (int i = 0; i < CONNS; i++) {
		if (fake->conns[i] >= 0)
			return true;
	}
	return false;
}

void fake_wait_idle(struct fake *fake)
{
	pthread_mutex_lock(&fake->lock);
	while (connected(fake))
		pthread_cond_wait(&fake->changed, &fake->lock);
	pthread_mutex_unlock(&fake->lock);
}

void fake_add_lease(struct fake *fake, uint64_t bytes)
{
	pthread_mutex_lock(&fake->lock);
	lease_add(fake, bytes);
	pthread_mutex_unlock(&fake->lock);
}

void fake_pressure(struct fake *fake, uint32_t device, uint32_t ppm, uint32_t level)
{
	pthread_mutex_lock(&fake->lock);
	struct gm_page_device value = {
		.pressure_ppm = ppm, .level = level, .capacity = 1000, .available = 500};
	gm_page_write(&fake->page->devices[device], &value, sizeof(value));
	pthread_mutex_unlock(&fake->lock);
}

static void send_event(struct fake *fake, Gm__Wire__Packet *packet)
{
	pthread_mutex_lock(&fake->lock);
	out(fake, fake->events, packet, NULL, 0);
	pthread_mutex_unlock(&fake->lock);
}

void fake_send_pressure(struct fake *fake, uint32_t device, uint32_t ppm, uint32_t level)
{
	Gm__Wire__PressureEvent body = GM__WIRE__PRESSURE_EVENT__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	body.device = device;
	body.pressure_ppm = ppm;
	body.level = level;
	packet.body_case = GM__WIRE__PACKET__BODY_PRESSURE_EVENT;
	packet.pressure_event = &body;
	send_event(fake, &packet);
}

void fake_send_reclaim(struct fake *fake, uint32_t device, bool urgent)
{
	Gm__Wire__ReclaimEvent body = GM__WIRE__RECLAIM_EVENT__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	body.device = device;
	body.urgent = urgent;
	packet.body_case = GM__WIRE__PACKET__BODY_RECLAIM_EVENT;
	packet.reclaim_event = &body;
	send_event(fake, &packet);
}

void fake_send_goodbye(struct fake *fake, const char *reason)
{
	Gm__Wire__GoodbyeEvent body = GM__WIRE__GOODBYE_EVENT__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	body.reason = (char *)reason;
	packet.body_case = GM__WIRE__PACKET__BODY_GOODBYE_EVENT;
	packet.goodbye_event = &body;
	send_event(fake, &packet);
}

void fake_read_use(struct fake *fake, uint32_t device, struct gm_page_use *ret)
{
	pthread_mutex_lock(&fake->lock);
	ck_assert_int_eq(
		gm_page_pread(fake->client_page,
			(off_t)(offsetof(struct gm_page_client, use) + device * sizeof(*ret)),
			sizeof(*ret), ret),
		0);
	pthread_mutex_unlock(&fake->lock);
}

void fake_read_row(struct fake *fake, uint32_t row, struct gm_page_row *ret)
{
	pthread_mutex_lock(&fake->lock);
	ck_assert_int_eq(
		gm_page_pread(fake->client_page,
			(off_t)(offsetof(struct gm_page_client, rows) + row * sizeof(*ret)),
			sizeof(*ret), ret),
		0);
	pthread_mutex_unlock(&fake->lock);
}
