/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake daemon's server. One thread serves; the test's thread tells it what to be, under its
 * lock. It trusts the client no more than it must to be a test: a packet that makes no sense fails
 * the test.
 */
#include "tests/unit/session/fake_daemon.h"

#include <check.h>
#include <errno.h>
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

#include "common/wire/wakeup.h"
#include "common/cleanup.h"
#include "common/wire/page_event.h"
#include "common/wire/seqpacket.h"
#include "tests/scratch.h"
#include "tests/unit/session/fake_daemon_private.h"

/* A request that waits for the will to change. */
struct fake_held {
	int conn;
	size_t n;
	struct fake_held *next;
	uint8_t bytes[];
};

/* ---- connections */

static void close_conn(struct fake *fake, int i)
{
	fake->conns[i] = gm_close(fake->conns[i]);
	fake->wakeups[i] = gm_close(fake->wakeups[i]);
}

static void hang_up(struct fake *fake)
{
	struct fake_held *held, *tmp;
	LL_FOREACH_SAFE (fake->held, held, tmp)
		free(held);
	fake->held = NULL;
	for (int i = 0; i < FAKE_CONNS; i++)
		close_conn(fake, i);
	fake->wakeup = -1;
}

/* Requests that have an answer have an id of their own, unless they are repeated. A new client
 * begins anew. */
static void note_id(struct fake *fake, const Gm__Wire__Packet *packet)
{
	uint64_t id = packet->id;
	if (!id)
		return;
	if (packet->body_case == GM__WIRE__PACKET__BODY_HELLO && !packet->hello->session) {
		fake->n_ids = 0;
		fake->repeated = 0;
	}
	for (size_t i = 0; i < fake->n_ids; i++) {
		if (fake->ids[i] == id) {
			fake->repeated++;
			return;
		}
	}
	fake->ids = realloc(fake->ids, (fake->n_ids + 1) * sizeof(*fake->ids));
	ck_assert_ptr_nonnull(fake->ids);
	fake->ids[fake->n_ids++] = id;
}

/* Locked. false: the connection is to be closed. */
static bool handle(struct fake *fake, int conn, const void *bytes, size_t n, bool again)
{
	Gm__Wire__Packet *packet;
	ck_assert_int_eq(gm_wire_unpack(&fake->arena, bytes, n, &packet), 0);
	int body = (int)packet->body_case;
	if (!again) {
		fake->seen[body]++;
		note_id(fake, packet);
		pthread_cond_broadcast(&fake->changed);
	}
	bool refused = fake->will.fail == body || fake->will.fail_once == body;
	if (fake->will.die == body && !refused) {
		fake->will.die = 0;
		return false;
	}
	if (!again && fake->will.hold == body) {
		struct fake_held *held = malloc(sizeof(*held) + n);
		ck_assert_ptr_nonnull(held);
		held->conn = conn;
		held->n = n;
		memcpy(held->bytes, bytes, n);
		LL_APPEND(fake->held, held);
		return true;
	}
	if (refused) {
		if (fake->will.fail_once == body)
			fake->will.fail_once = 0;
		fake_answer_refuse(
			fake, fake->conns[conn], packet->id, GPUMEM_E_NO_MEMORY, "no room");
		return true;
	}
	if (fake->will.drop == body) {
		/* Carried out, but the answer leads nowhere. */
		fake->will.drop = 0;
		fake_answer(fake, -1, packet, false);
		return false;
	}
	if (fake->will.half == body) {
		fake->will.half = 0;
		fake_answer(fake, fake->conns[conn], packet, true);
		return false;
	}
	fake_answer(fake, fake->conns[conn], packet, false);
	return true;
}

static void read_conn(struct fake *fake, int i)
{
	struct gm_conn_packet in;
	int r = gm_seqpacket_receive(fake->conns[i], fake->packet, sizeof(fake->packet), &in);
	if (r == -EAGAIN)
		return;
	if (r < 0 || !handle(fake, i, fake->packet, in.n, false))
		close_conn(fake, i);
	else
		ck_assert_uint_eq(in.fds.n, 0);
}

/* Locked. */
static void accept_conn(struct fake *fake)
{
	int fd = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0 && fake->will.turn_away > 0) {
		fake->will.turn_away--;
		fake_answer_refuse(
			fake, fd, 0, GPUMEM_E_DENIED, "its process cannot be identified");
		fd = gm_close(fd);
	}
	for (int i = 0; fd >= 0 && i < FAKE_CONNS; i++) {
		if (fake->conns[i] < 0) {
			fake->conns[i] = fd;
			fd = -1;
		}
	}
	gm_close(fd);
}

static void *run(void *ctx)
{
	struct fake *fake = ctx;
	pthread_mutex_lock(&fake->lock);
	while (!fake->stop) {
		struct pollfd p[FAKE_CONNS + 2] = {
			{.fd = fake->wake, .events = POLLIN},
			{.fd = fake->listener, .events = POLLIN},
		};
		for (int i = 0; i < FAKE_CONNS; i++)
			p[i + 2] = (struct pollfd){.fd = fake->conns[i], .events = POLLIN};
		pthread_mutex_unlock(&fake->lock);
		poll(p, FAKE_CONNS + 2, -1);
		pthread_mutex_lock(&fake->lock);
		eventfd_t count;
		if (p[0].revents)
			(void)eventfd_read(fake->wake, &count);
		if (p[1].revents && fake->listener == p[1].fd)
			accept_conn(fake);
		for (int i = 0; i < FAKE_CONNS; i++) {
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
	gm_scratch_folder(fake->dir, sizeof(fake->dir));
	snprintf(fake->path, sizeof(fake->path), "%s/socket", fake->dir);
	pthread_mutex_init(&fake->lock, NULL);
	pthread_cond_init(&fake->changed, NULL);
	gm_wire_arena_init(&fake->arena);
	for (int i = 0; i < FAKE_CONNS; i++)
		fake->conns[i] = fake->wakeups[i] = -1;
	fake->wakeup = fake->client_page = -1;
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
	fake_books_clear(&fake->books);
	gm_wire_arena_deinit(&fake->arena);
	free(fake->ids);
	unlink(fake->path);
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
	struct fake_held *held, *tmp, *list = fake->held;
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

unsigned fake_leases(struct fake *fake)
{
	pthread_mutex_lock(&fake->lock);
	unsigned n = fake_books_leases(&fake->books);
	pthread_mutex_unlock(&fake->lock);
	return n;
}

unsigned fake_chunks(struct fake *fake)
{
	pthread_mutex_lock(&fake->lock);
	unsigned n = fake_books_chunks(&fake->books);
	pthread_mutex_unlock(&fake->lock);
	return n;
}

void fake_wait_leases(struct fake *fake, unsigned n)
{
	pthread_mutex_lock(&fake->lock);
	while (fake_books_leases(&fake->books) != n)
		pthread_cond_wait(&fake->changed, &fake->lock);
	pthread_mutex_unlock(&fake->lock);
}

static bool connected(const struct fake *fake)
{
	for (int i = 0; i < FAKE_CONNS; i++) {
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
	fake_books_add(&fake->books, bytes, 0);
	pthread_mutex_unlock(&fake->lock);
}

unsigned fake_most_leases(struct fake *fake)
{
	pthread_mutex_lock(&fake->lock);
	unsigned n = fake->books.most;
	fake->books.most = fake_books_leases(&fake->books);
	pthread_mutex_unlock(&fake->lock);
	return n;
}

unsigned fake_repeated(struct fake *fake)
{
	pthread_mutex_lock(&fake->lock);
	unsigned n = fake->repeated;
	pthread_mutex_unlock(&fake->lock);
	return n;
}

void fake_pressure(struct fake *fake, uint32_t device, uint32_t ppm, uint32_t level)
{
	pthread_mutex_lock(&fake->lock);
	struct gm_page_device value = fake->page->devices[device];
	value.pressure_ppm = ppm;
	value.level = level;
	value.capacity = 1000;
	value.available = 500;
	gm_page_write(&fake->page->devices[device], &value, sizeof(value));
	pthread_mutex_unlock(&fake->lock);
}

void fake_room(struct fake *fake, uint32_t device, uint64_t room)
{
	pthread_mutex_lock(&fake->lock);
	struct gm_page_device value = {.room = room};
	gm_page_write(&fake->page->devices[device], &value, sizeof(value));
	pthread_mutex_unlock(&fake->lock);
}

/* Locked. */
static void send_event(struct fake *fake, uint32_t device, const struct gm_page_device *value)
{
	gm_page_write(&fake->page->devices[device], value, sizeof(*value));
	gm_wakeup_send(fake->wakeup);
}

void fake_send_pressure(struct fake *fake, uint32_t device, uint32_t ppm, uint32_t level)
{
	pthread_mutex_lock(&fake->lock);
	struct gm_page_device value = fake->page->devices[device];
	value.pressure_ppm = ppm;
	value.level = level;
	value.pressure_event = ++fake->sequence;
	send_event(fake, device, &value);
	pthread_mutex_unlock(&fake->lock);
}

void fake_send_reclaim(struct fake *fake, uint32_t device, bool urgent, uint64_t bytes)
{
	pthread_mutex_lock(&fake->lock);
	struct gm_page_device value = fake->page->devices[device];
	value.urgent = urgent;
	value.wanted = bytes;
	value.reclaim_event = ++fake->sequence;
	send_event(fake, device, &value);
	pthread_mutex_unlock(&fake->lock);
}

void fake_send_goodbye(struct fake *fake, const char *reason)
{
	pthread_mutex_lock(&fake->lock);
	gm_page_event_goodbye(fake->page, false, reason);
	gm_wakeup_send(fake->wakeup);
	pthread_mutex_unlock(&fake->lock);
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
