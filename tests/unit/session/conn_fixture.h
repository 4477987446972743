/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_CONN_FIXTURE_H
#define GM_TESTS_UNIT_CONN_FIXTURE_H

/* A connection whose other end the test holds: threads that call through it and note what they got,
 * and what the other end reads and says. */

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/session/conn.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "tests/unit/wire_failure.h"

/* Far longer than anything here takes: a test that runs into it has failed. */
#define LONG_NS (20 * GM_NS_PER_S)

static struct gm_conn *conn;
static int far_end;
static struct gm_wire_arena far_arena;
static _Atomic int wakes;
static _Atomic uint64_t ids;

static inline void count_wake(void *ctx)
{
	wakes++;
}

static inline void set_up(void)
{
	int pair[2];
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	far_end = pair[1];
	wakes = 0;
	gm_wire_arena_init(&far_arena);
	ck_assert_int_eq(gm_conn_new(pair[0], &ids, count_wake, NULL, &conn), 0);
}

static inline void tear_down(void)
{
	gm_conn_unref(conn);
	gm_close(far_end);
	gm_wire_arena_deinit(&far_arena);
}

/* ---- the near end: a call that notes what it got */

struct probe {
	struct gm_conn_request call;
	unsigned packets, fds, announced;
	uint64_t lease;
	_Atomic bool late;
	int say; /* what take() answers */
};

static inline int probe_take(
	struct gm_conn_request *base, const Gm__Wire__Packet *packet, struct gm_conn_packet *in)
{
	struct probe *probe = (struct probe *)base;
	probe->packets++;
	probe->fds += (unsigned)in->fds.n;
	probe->announced += packet->fds;
	if (packet->body_case == GM__WIRE__PACKET__BODY_LEASE_REPLY)
		probe->lease = packet->lease_reply->lease;
	return probe->say;
}

static inline void probe_late(struct gm_conn_request *base)
{
	((struct probe *)base)->late = true;
}

static const struct gm_conn_request_ops probe_ops = {.take = probe_take, .late = probe_late};

/* A Lease of so many bytes: the far end answers with the same number as the lease's id. */
static inline int call_saying(struct probe *probe, uint64_t bytes, uint64_t timeout_ns, int say)
{
	Gm__Wire__Lease body = GM__WIRE__LEASE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	body.bytes = bytes;
	packet.body_case = GM__WIRE__PACKET__BODY_LEASE;
	packet.lease = &body;
	memset(probe, 0, sizeof(*probe));
	probe->call.ops = &probe_ops;
	probe->say = say;
	return gm_conn_call(conn, &packet, &probe->call, gm_clock_ns() + timeout_ns);
}

static inline int call_for(struct probe *probe, uint64_t bytes, uint64_t timeout_ns)
{
	return call_saying(probe, bytes, timeout_ns, 0);
}

struct caller {
	pthread_t thread;
	_Atomic pid_t tid;
	struct probe probe;
	uint64_t bytes, timeout_ns;
	int say, r;
};

static inline void *caller_run(void *ctx)
{
	struct caller *caller = ctx;
	caller->tid = gettid();
	caller->r = call_saying(&caller->probe, caller->bytes, caller->timeout_ns, caller->say);
	return NULL;
}

static inline void caller_start(struct caller *caller, uint64_t bytes, uint64_t timeout_ns)
{
	caller->bytes = bytes;
	caller->timeout_ns = timeout_ns;
	ck_assert_int_eq(pthread_create(&caller->thread, NULL, caller_run, caller), 0);
}

/* Waits until the caller sleeps: in a system call, since nothing here waits for a lock. */
static inline void caller_await_sleep(const struct caller *caller)
{
	char path[64], line[256];
	const char *end = NULL;

	while (!end || end[2] != 'S') {
		sched_yield();
		snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)caller->tid);
		FILE *file = fopen(path, "re");
		end = file && fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;
		if (file)
			fclose(file);
	}
}

static inline void caller_join(struct caller *caller)
{
	ck_assert_int_eq(pthread_join(caller->thread, NULL), 0);
}

/* ---- the far end */

struct asked {
	uint64_t id, bytes, fds_seen;
	int body;
};

static inline bool far_readable(int ms)
{
	struct pollfd p = {.fd = far_end, .events = POLLIN};
	return poll(&p, 1, ms) == 1;
}

static inline struct asked far_read(void)
{
	uint8_t bytes[GM_BOUND_PACKET_BYTES];
	struct gm_conn_packet in;
	Gm__Wire__Packet *packet;
	ck_assert(far_readable(20000));
	ck_assert_int_eq(gm_seqpacket_receive(far_end, bytes, sizeof(bytes), &in), 0);
	ck_assert_uint_eq(in.fds.n, 0);
	ck_assert_int_eq(gm_wire_unpack(&far_arena, bytes, in.n, &packet), 0);
	struct asked asked = {
		.id = packet->id, .body = packet->body_case, .fds_seen = packet->fds_seen};
	if (packet->body_case == GM__WIRE__PACKET__BODY_LEASE)
		asked.bytes = packet->lease->bytes;
	return asked;
}

static inline void far_send(const Gm__Wire__Packet *packet, const int *fds, size_t n)
{
	uint8_t bytes[GM_BOUND_PACKET_BYTES];
	size_t length;
	ck_assert_int_eq(gm_wire_pack(packet, bytes, sizeof(bytes), &length), 0);
	int r = gm_seqpacket_send(far_end, bytes, length, fds, n);
	while (r == -EAGAIN) {
		struct pollfd p = {.fd = far_end, .events = POLLOUT};
		poll(&p, 1, 1000);
		r = gm_seqpacket_send(far_end, bytes, length, fds, n);
	}
	ck_assert_int_eq(r, 0);
}

static inline void far_answer_with(const struct asked *asked, bool more, unsigned n_fds)
{
	Gm__Wire__LeaseReply body = GM__WIRE__LEASE_REPLY__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	int fds[GM_BOUND_PACKET_FDS];
	body.lease = asked->bytes;
	packet.id = asked->id;
	packet.more = more;
	packet.fds = n_fds;
	packet.body_case = GM__WIRE__PACKET__BODY_LEASE_REPLY;
	packet.lease_reply = &body;
	for (unsigned i = 0; i < n_fds; i++)
		fds[i] = far_end; /* any will do */
	far_send(&packet, fds, n_fds);
}

static inline void far_answer(const struct asked *asked)
{
	far_answer_with(asked, false, 0);
}

/* id 0: it answers nothing. */
static inline void far_refuse(uint64_t id, gpumem_status status, const char *detail)
{
	Gm__Wire__Failure body;
	Gm__Wire__Packet packet = wire_failure(id, status, detail, &body);
	far_send(&packet, NULL, 0);
}

#endif
