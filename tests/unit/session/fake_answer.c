/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fake daemon answers: each request carried out in its books, the answer as its will has
 * it. A request that makes no sense is refused or fails the test; nothing here reads a socket.
 */
#include "tests/unit/session/fake_daemon_private.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "common/cleanup.h"
#include "common/wire/wakeup.h"
#include "common/wire/seqpacket.h"
#include "tests/unit/wire_failure.h"

#define TOTAL (UINT64_C(1) << 33)

/* ---- sending */

void fake_answer_send(struct fake *fake, int fd, Gm__Wire__Packet *packet, const int *fds, size_t n)
{
	size_t length;
	ck_assert_int_eq(gm_wire_pack(packet, fake->out, sizeof(fake->out), &length), 0);
	/* A client that is gone meanwhile is no fault. */
	(void)gm_seqpacket_send(fd, fake->out, length, fds, n);
}

void fake_answer_refuse(
	struct fake *fake, int fd, uint64_t id, gpumem_status status, const char *detail)
{
	Gm__Wire__Failure body;
	Gm__Wire__Packet packet = wire_failure(id, status, detail, &body);
	fake_answer_send(fake, fd, &packet, NULL, 0);
}

static void done(struct fake *fake, int fd, uint64_t id)
{
	Gm__Wire__Done body = GM__WIRE__DONE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	packet.id = id;
	packet.body_case = GM__WIRE__PACKET__BODY_DONE;
	packet.done = &body;
	fake_answer_send(fake, fd, &packet, NULL, 0);
}

/* There is one name. */
static void names(struct fake *fake, int fd, uint64_t id)
{
	Gm__Wire__Name name = GM__WIRE__NAME__INIT, *list = &name;
	Gm__Wire__NamesReply body = GM__WIRE__NAMES_REPLY__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	name.owner = geteuid();
	name.name = (char *)"llama";
	name.whose = (Gm__Wire__Whose)fake->will.whose;
	body.names = &list;
	body.n_names = 1;
	packet.id = id;
	packet.body_case = GM__WIRE__PACKET__BODY_NAMES;
	packet.names = &body;
	fake_answer_send(fake, fd, &packet, NULL, 0);
}

/* What an answer with handles lists. */
struct listed {
	uint64_t from;    /* chunks from this index on */
	uint64_t request; /* only those that this request brought; 0: all */
	bool half;        /* only the first one, as if more packets followed */
};

static struct fake_chunk *next_listed(struct fake_chunk *chunk, const struct listed *listed)
{
	while (chunk && (chunk->index < listed->from ||
				(listed->request && chunk->request != listed->request)))
		chunk = chunk->next;
	return chunk;
}

static void handles(struct fake *fake, int fd, uint64_t id, struct fake_lease *lease,
	const struct listed *listed)
{
	struct fake_chunk *chunk = next_listed(lease->chunks, listed);
	bool begun = false;
	do {
		Gm__Wire__Chunk chunks[GM_BOUND_PACKET_FDS], *list[GM_BOUND_PACKET_FDS];
		int fds[1 + GM_BOUND_PACKET_FDS], *sent = fds + 1;
		size_t n = 0,
		       most = fake->will.per_packet ? fake->will.per_packet : GM_BOUND_PACKET_FDS;
		if (listed->half)
			most = 1;
		for (; chunk && n < most; chunk = next_listed(chunk->next, listed), n++) {
			gm__wire__chunk__init(&chunks[n]);
			chunks[n].id = chunk->id;
			chunks[n].index = chunk->index;
			chunks[n].bytes = chunk->bytes;
			list[n] = &chunks[n];
			sent[n] = chunk->fd;
		}
		if (fake->will.twice && !chunk && n && n < GM_BOUND_PACKET_FDS) {
			chunks[n] = chunks[n - 1];
			chunks[n].index++;
			list[n] = &chunks[n];
			sent[n] = sent[n - 1];
			n++;
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
		packet.more = chunk != NULL || listed->half;
		/* Only the first packet has it. */
		body.signals = fake->will.signals;
		body.control = fake->will.control && !begun;
		if (body.control)
			*--sent = fake->will.control;
		begun = true;
		size_t n_fds = n + (size_t)body.control;
		packet.fds = (uint32_t)n_fds;
		packet.body_case = GM__WIRE__PACKET__BODY_LEASE_REPLY;
		packet.lease_reply = &body;
		size_t lost = n && fake->will.cut ? fake->will.loses ? n_fds : 1 : 0;
		fake->will.cut -= lost > 0;
		fake_answer_send(fake, fd, &packet, sent, n_fds - lost);
	} while (chunk && !listed->half);
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
	header.rows = GM_BOUND_TRACKED_BUFFERS;
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
		fake_answer_refuse(fake, fd, id, will->refuse, "refused by the test");
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
			fake_books_clear(&fake->books);
		fake->session = ++fake->books.last_id;
	}
	memset(fake->token, (int)(++fake->books.last_id & 0xff), GM_TOKEN_BYTES);
	int wakeup, daemon_page = new_pages(fake);
	ck_assert_int_eq(gm_wakeup_new(&fake->wakeup), 0);
	wakeup = fcntl(fake->wakeup, F_DUPFD_CLOEXEC, 0);
	ck_assert_int_ge(wakeup, 0);
	for (int i = 0; i < FAKE_CONNS; i++) {
		if (fake->conns[i] >= 0 && fake->conns[i] == fd)
			fake->wakeups[i] = fake->wakeup;
	}
	if (fd < 0)
		fake->wakeup = gm_close(fake->wakeup);

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
		struct fake_lease *lease;
		LL_FOREACH (fake->books.leases, lease)
			leases[body.n_leases++] = lease->id;
		body.leases = leases;
	}
	packet.id = id;
	packet.fds = 3;
	packet.generation = 1;
	packet.body_case = GM__WIRE__PACKET__BODY_HELLO_REPLY;
	packet.hello_reply = &body;
	int fds[] = {wakeup, daemon_page, fake->client_page};
	fake_answer_send(fake, fd, &packet, fds, 3);
	close(wakeup);
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
	fake_answer_send(fake, fd, &packet, NULL, 0);
}

/* ---- requests */

static void give_back(struct fake *fake, int fd, uint64_t id, const Gm__Wire__Return *asked)
{
	struct fake_lease *lease = fake_books_find(&fake->books, asked->lease);
	if (!lease) {
		fake_answer_refuse(fake, fd, id, GPUMEM_E_NOT_FOUND, "no such lease");
		return;
	}
	if (!asked->n_chunks) {
		fake_books_leave(&fake->books, lease);
	} else if (!fake_books_return(lease, asked->chunks, asked->n_chunks)) {
		fake_answer_refuse(fake, fd, id, GPUMEM_E_NOT_FOUND, "no such chunk");
		return;
	}
	done(fake, fd, id);
}

static void share(struct fake *fake, int fd, uint64_t id, const Gm__Wire__Share *asked)
{
	struct fake_lease *lease = fake_books_find(&fake->books, asked->lease);
	if (!lease) {
		fake_answer_refuse(fake, fd, id, GPUMEM_E_NOT_FOUND, "no such lease");
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
	fake_answer_send(fake, fd, &packet, NULL, 0);
}

static void open_shared(
	struct fake *fake, int fd, uint64_t id, const Gm__Wire__Open *asked, bool half)
{
	struct fake_lease *lease;
	LL_FOREACH (fake->books.leases, lease) {
		if (lease->shared && !memcmp(lease->token, asked->token.data, asked->token.len)) {
			lease->views++;
			handles(fake, fd, id, lease, &(struct listed){.half = half});
			return;
		}
	}
	fake_answer_refuse(fake, fd, id, GPUMEM_E_NOT_FOUND, "no such share");
}

/* Grants a Lease or a Grow, or lists what it was granted before. */
static void grant(struct fake *fake, int fd, const Gm__Wire__Packet *packet, bool half)
{
	struct listed listed = {.request = packet->id, .half = half};
	struct fake_lease *lease = NULL;
	if (fake->will.repeats)
		lease = fake_books_granted(&fake->books, packet->id);
	if (!lease && packet->body_case == GM__WIRE__PACKET__BODY_LEASE) {
		lease = fake_books_add(&fake->books, packet->lease->bytes, packet->id);
		lease->device = packet->lease->device;
		snprintf(lease->tag, sizeof(lease->tag), "%s", packet->lease->tag);
	} else if (!lease) {
		lease = fake_books_find(&fake->books, packet->grow->lease);
		if (!lease) {
			fake_answer_refuse(
				fake, fd, packet->id, GPUMEM_E_NOT_FOUND, "no such lease");
			return;
		}
		listed.from = lease->next_index;
		fake_books_grow(&fake->books, lease, packet->grow->bytes, packet->id);
	}
	handles(fake, fd, packet->id, lease, &listed);
}

void fake_answer(struct fake *fake, int fd, const Gm__Wire__Packet *packet, bool half)
{
	uint64_t id = packet->id;
	struct fake_lease *lease;
	switch (packet->body_case) {
	case GM__WIRE__PACKET__BODY_HELLO:
		hello(fake, fd, id, packet->hello);
		break;
	case GM__WIRE__PACKET__BODY_GET_DEVICES:
		devices(fake, fd, id);
		break;
	case GM__WIRE__PACKET__BODY_LEASE:
	case GM__WIRE__PACKET__BODY_GROW:
		grant(fake, fd, packet, half);
		break;
	case GM__WIRE__PACKET__BODY_GET_HANDLES:
		lease = fake_books_find(&fake->books, packet->get_handles->lease);
		if (lease)
			handles(fake, fd, id, lease,
				&(struct listed){.from = packet->get_handles->from, .half = half});
		else
			fake_answer_refuse(fake, fd, id, GPUMEM_E_NOT_FOUND, "no such lease");
		break;
	case GM__WIRE__PACKET__BODY_RETURN_CHUNKS:
		give_back(fake, fd, id, packet->return_chunks);
		break;
	case GM__WIRE__PACKET__BODY_SHARE:
		share(fake, fd, id, packet->share);
		break;
	case GM__WIRE__PACKET__BODY_OPEN:
		open_shared(fake, fd, id, packet->open, half);
		break;
	case GM__WIRE__PACKET__BODY_UNSHARE:
		lease = fake_books_find(&fake->books, packet->unshare->lease);
		if (lease)
			lease->shared = false;
		done(fake, fd, id);
		break;
	case GM__WIRE__PACKET__BODY_GET_NAMES:
		names(fake, fd, id);
		break;
	case GM__WIRE__PACKET__BODY_GOODBYE:
		fake_books_clear(&fake->books);
		done(fake, fd, id);
		break;
	case GM__WIRE__PACKET__BODY_ACK:
		break;
	default:
		fake_answer_refuse(fake, fd, id, GPUMEM_E_UNSUPPORTED, "not in this test");
	}
}
