/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's connection against a scripted other end: answers late, in pieces, out of order,
 * with handles cut off, or none at all.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/conn.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "tests/tap.h"
#include "tests/unit/open_fds.h"

/* Far longer than anything here takes: a test that runs into it has failed. */
#define LONG_NS (20 * GM_NS_PER_S)

static struct gm_conn *conn;
static int far_end;
static struct gm_wire_arena far_arena;
static _Atomic int wakes;

static void count_wake(void *ctx)
{
	wakes++;
}

static void set_up(void)
{
	int pair[2];
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	far_end = pair[1];
	wakes = 0;
	gm_wire_arena_init(&far_arena);
	ck_assert_int_eq(gm_conn_new(pair[0], count_wake, NULL, &conn), 0);
}

static void tear_down(void)
{
	gm_conn_unref(conn);
	gm_close(far_end);
	gm_wire_arena_deinit(&far_arena);
}

/* ---- the near end: a call that notes what it got */

struct probe {
	struct gm_call call;
	unsigned packets, fds, announced;
	uint64_t lease;
	_Atomic bool late;
	int say; /* what take() answers */
};

static int probe_take(struct gm_call *base, const Gm__Wire__Packet *packet, struct gm_packet_in *in)
{
	struct probe *probe = (struct probe *)base;
	probe->packets++;
	probe->fds += (unsigned)in->fds.n;
	probe->announced += packet->fds;
	if (packet->body_case == GM__WIRE__PACKET__BODY_LEASE_REPLY)
		probe->lease = packet->lease_reply->lease;
	return probe->say;
}

static void probe_late(struct gm_call *base)
{
	((struct probe *)base)->late = true;
}

static const struct gm_call_ops probe_ops = {.take = probe_take, .late = probe_late};

/* A Lease of so many bytes: the far end answers with the same number as the lease's id. */
static int call_saying(struct probe *probe, uint64_t bytes, uint64_t timeout_ns, int say)
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

static int call_for(struct probe *probe, uint64_t bytes, uint64_t timeout_ns)
{
	return call_saying(probe, bytes, timeout_ns, 0);
}

struct caller {
	pthread_t thread;
	struct probe probe;
	uint64_t bytes, timeout_ns;
	int say, r;
};

static void *caller_run(void *ctx)
{
	struct caller *caller = ctx;
	caller->r = call_saying(&caller->probe, caller->bytes, caller->timeout_ns, caller->say);
	return NULL;
}

static void caller_start(struct caller *caller, uint64_t bytes, uint64_t timeout_ns)
{
	caller->bytes = bytes;
	caller->timeout_ns = timeout_ns;
	ck_assert_int_eq(pthread_create(&caller->thread, NULL, caller_run, caller), 0);
}

static void caller_join(struct caller *caller)
{
	ck_assert_int_eq(pthread_join(caller->thread, NULL), 0);
}

/* ---- the far end */

struct asked {
	uint64_t id, bytes, fds_seen;
	int body;
};

static bool far_readable(int ms)
{
	struct pollfd p = {.fd = far_end, .events = POLLIN};
	return poll(&p, 1, ms) == 1;
}

static struct asked far_read(void)
{
	uint8_t bytes[GM_LIMIT_PACKET_BYTES];
	struct gm_packet_in in;
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

static void far_send(const Gm__Wire__Packet *packet, const int *fds, size_t n)
{
	uint8_t bytes[GM_LIMIT_PACKET_BYTES];
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

static void far_answer_with(const struct asked *asked, bool more, unsigned n_fds)
{
	Gm__Wire__LeaseReply body = GM__WIRE__LEASE_REPLY__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	int fds[GM_LIMIT_PACKET_FDS];
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

static void far_answer(const struct asked *asked)
{
	far_answer_with(asked, false, 0);
}

/* ---- one caller */

START_TEST(a_request_gets_its_answer)
{
	struct caller caller = {0};
	caller_start(&caller, 7, LONG_NS);
	struct asked asked = far_read();
	ck_assert_int_eq(asked.body, GM__WIRE__PACKET__BODY_LEASE);
	ck_assert_uint_ne(asked.id, 0);
	far_answer(&asked);
	caller_join(&caller);
	ck_assert_int_eq(caller.r, 0);
	ck_assert_int_eq(caller.probe.call.result, 0);
	ck_assert_int_eq(caller.probe.call.status, GPUMEM_OK);
	ck_assert_uint_eq(caller.probe.lease, 7);
}
END_TEST

START_TEST(a_failure_is_told_with_status_and_detail)
{
	struct caller caller = {0};
	caller_start(&caller, 7, LONG_NS);
	struct asked asked = far_read();
	Gm__Wire__Failure body = GM__WIRE__FAILURE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	body.status = GPUMEM_E_LIMIT;
	body.detail = "uid 1 may hold 2";
	packet.id = asked.id;
	packet.body_case = GM__WIRE__PACKET__BODY_FAILURE;
	packet.failure = &body;
	far_send(&packet, NULL, 0);
	caller_join(&caller);
	ck_assert_int_eq(caller.r, 0);
	ck_assert_int_eq(caller.probe.call.status, GPUMEM_E_LIMIT);
	ck_assert_str_eq(caller.probe.call.detail, "uid 1 may hold 2");
	ck_assert_uint_eq(caller.probe.packets, 0);
}
END_TEST

static void far_refuse(gpumem_status status, const char *detail)
{
	Gm__Wire__Failure body = GM__WIRE__FAILURE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	body.status = status;
	body.detail = (char *)detail;
	packet.body_case = GM__WIRE__PACKET__BODY_FAILURE;
	packet.failure = &body;
	far_send(&packet, NULL, 0);
}

START_TEST(a_failure_that_answers_nothing_is_why_the_connection_ends)
{
	char reason[GM_ERROR_BYTES];
	struct caller caller = {0};
	caller_start(&caller, 7, LONG_NS);
	far_read();
	far_refuse(GPUMEM_E_PROTOCOL, "fds from a client");
	far_end = gm_close(far_end);
	caller_join(&caller);
	ck_assert_int_eq(caller.r, -EPIPE);
	ck_assert_int_eq(gm_conn_reason(conn, reason), GPUMEM_E_PROTOCOL);
	ck_assert_str_eq(reason, "fds from a client");
}
END_TEST

START_TEST(words_said_before_the_end_are_read_though_nothing_can_be_sent)
{
	char reason[GM_ERROR_BYTES];
	struct probe probe;
	far_refuse(GPUMEM_E_LIMIT, "too many connections");
	far_end = gm_close(far_end);
	ck_assert_int_eq(call_for(&probe, 7, LONG_NS), -EPIPE);
	ck_assert_int_eq(gm_conn_reason(conn, reason), GPUMEM_E_LIMIT);
	ck_assert_str_eq(reason, "too many connections");
	ck_assert(!probe.late);
}
END_TEST

START_TEST(a_long_answer_comes_in_pieces)
{
	struct caller caller = {0};
	unsigned before = open_fds();
	caller_start(&caller, 7, LONG_NS);
	struct asked asked = far_read();
	far_answer_with(&asked, true, 5);
	far_answer_with(&asked, true, 0);
	ck_assert(!far_readable(0));
	far_answer_with(&asked, false, 3);
	caller_join(&caller);
	ck_assert_int_eq(caller.r, 0);
	ck_assert_uint_eq(caller.probe.packets, 3);
	ck_assert_uint_eq(caller.probe.fds, 8);
	/* What take() left in the list is closed. */
	ck_assert_uint_eq(open_fds(), before);
}
END_TEST

START_TEST(a_refusal_by_its_taker_ends_a_call_after_its_last_packet)
{
	struct caller caller = {.say = -EPROTO};
	caller_start(&caller, 7, LONG_NS);
	struct asked asked = far_read();
	far_answer_with(&asked, true, 0);
	far_answer_with(&asked, false, 0);
	caller_join(&caller);
	ck_assert_int_eq(caller.r, 0);
	ck_assert_int_eq(caller.probe.call.result, -EPROTO);
	ck_assert_uint_eq(caller.probe.packets, 2);
	ck_assert(!gm_conn_dead(conn));
}
END_TEST

START_TEST(a_request_that_is_too_long_is_not_sent)
{
	static uint64_t chunks[20000];
	for (size_t i = 0; i < 20000; i++)
		chunks[i] = UINT64_MAX;
	Gm__Wire__Return body = GM__WIRE__RETURN__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	struct probe probe;
	memset(&probe, 0, sizeof(probe));
	body.chunks = chunks;
	body.n_chunks = 20000;
	packet.body_case = GM__WIRE__PACKET__BODY_RETURN_CHUNKS;
	packet.return_chunks = &body;
	probe.call.ops = &probe_ops;
	ck_assert_int_eq(gm_conn_call(conn, &packet, &probe.call, gm_clock_ns() + LONG_NS), -E2BIG);
	ck_assert(!probe.late);
	ck_assert(!far_readable(0));
	ck_assert(!gm_conn_dead(conn));
}
END_TEST

/* ---- many callers */

START_TEST(answers_out_of_order_find_their_callers)
{
	enum { N = 8 };
	struct caller callers[N] = {0};
	struct asked asked[N];
	for (unsigned i = 0; i < N; i++)
		caller_start(&callers[i], 100 + i, LONG_NS);
	for (unsigned i = 0; i < N; i++)
		asked[i] = far_read();
	for (unsigned i = N; i-- > 0;)
		far_answer(&asked[i]);
	for (unsigned i = 0; i < N; i++) {
		caller_join(&callers[i]);
		ck_assert_int_eq(callers[i].r, 0);
		ck_assert_uint_eq(callers[i].probe.lease, 100 + i);
	}
}
END_TEST

static void *busy_caller(void *ctx)
{
	uint64_t first = (uintptr_t)ctx;
	for (uint64_t i = 0; i < 200; i++) {
		struct probe probe;
		int r = call_for(&probe, first + i, LONG_NS);
		if (r < 0 || probe.lease != first + i)
			return (void *)1;
	}
	return NULL;
}

START_TEST(many_threads_share_one_connection)
{
	enum { THREADS = 12, EACH = 200, BATCH = 3 };
	pthread_t threads[THREADS];
	for (uintptr_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(
			pthread_create(&threads[i], NULL, busy_caller, (void *)(1 + i * 1000000)),
			0);
	/* Up to three at a time, the last first: the order of answers is never that of requests. */
	for (unsigned left = THREADS * EACH; left;) {
		struct asked asked[BATCH];
		unsigned n = 0;
		do
			asked[n++] = far_read();
		while (n < BATCH && n < left && far_readable(0));
		left -= n;
		while (n)
			far_answer(&asked[--n]);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		void *bad;
		ck_assert_int_eq(pthread_join(threads[i], &bad), 0);
		ck_assert_ptr_null(bad);
	}
}
END_TEST

START_TEST(no_more_requests_are_out_than_the_daemon_reads)
{
	/* One less than the daemon's bound: at it, the daemon would read no acknowledgement. */
	enum { N = GM_LIMIT_REQUESTS_IN_FLIGHT };
	static struct caller callers[N];
	static struct asked asked[N];
	for (unsigned i = 0; i < N; i++)
		caller_start(&callers[i], 1 + i, LONG_NS);
	for (unsigned i = 0; i < N - 1; i++)
		asked[i] = far_read();
	ck_assert(!far_readable(50));
	far_answer(&asked[0]);
	asked[N - 1] = far_read();
	for (unsigned i = 1; i < N; i++)
		far_answer(&asked[i]);
	for (unsigned i = 0; i < N; i++) {
		caller_join(&callers[i]);
		ck_assert_int_eq(callers[i].r, 0);
	}
}
END_TEST

/* ---- the end */

START_TEST(the_daemons_end_ends_every_call)
{
	enum { N = 4 };
	struct caller callers[N] = {0};
	for (unsigned i = 0; i < N; i++)
		caller_start(&callers[i], 1 + i, LONG_NS);
	for (unsigned i = 0; i < N; i++)
		far_read();
	far_end = gm_close(far_end);
	for (unsigned i = 0; i < N; i++) {
		caller_join(&callers[i]);
		ck_assert_int_eq(callers[i].r, -EPIPE);
	}
	char reason[GM_ERROR_BYTES];
	gm_conn_reason(conn, reason);
	ck_assert_str_eq(reason, "the daemon closed the connection");
	struct probe probe;
	ck_assert_int_eq(call_for(&probe, 1, LONG_NS), -EPIPE);
	ck_assert(!probe.late);
}
END_TEST

START_TEST(a_daemon_that_dies_in_the_middle_of_an_answer_ends_the_call)
{
	struct caller caller = {0};
	caller_start(&caller, 7, LONG_NS);
	struct asked asked = far_read();
	far_answer_with(&asked, true, 2);
	far_end = gm_close(far_end);
	caller_join(&caller);
	ck_assert_int_eq(caller.r, -EPIPE);
	ck_assert_uint_eq(caller.probe.packets, 1);
}
END_TEST

START_TEST(a_killed_connection_ends_its_calls_with_the_first_reason)
{
	struct caller caller = {0};
	caller_start(&caller, 7, LONG_NS);
	far_read();
	gm_conn_kill(conn, "one");
	gm_conn_kill(conn, "two");
	caller_join(&caller);
	ck_assert_int_eq(caller.r, -EPIPE);
	char reason[GM_ERROR_BYTES];
	gm_conn_reason(conn, reason);
	ck_assert_str_eq(reason, "one");
}
END_TEST

static void ends_with(const void *bytes, size_t n, const char *why)
{
	struct caller caller = {0};
	caller_start(&caller, 7, LONG_NS);
	far_read();
	ck_assert_int_eq(send(far_end, bytes, n, MSG_NOSIGNAL), (ssize_t)n);
	caller_join(&caller);
	ck_assert_int_eq(caller.r, -EPIPE);
	char reason[GM_ERROR_BYTES];
	gm_conn_reason(conn, reason);
	ck_assert_str_eq(reason, why);
}

START_TEST(nonsense_from_the_daemon_ends_the_connection)
{
	ends_with("\xff\xff\xff", 3, "the daemon sent a packet that cannot be read");
}
END_TEST

START_TEST(a_packet_past_the_limit_ends_the_connection)
{
	static uint8_t bytes[GM_LIMIT_PACKET_BYTES + 1];
	ends_with(bytes, sizeof(bytes), "the daemon sent a packet past the limit");
}
END_TEST

START_TEST(more_handles_than_announced_end_the_connection)
{
	struct caller caller = {0};
	unsigned before = open_fds();
	caller_start(&caller, 7, LONG_NS);
	struct asked asked = far_read();
	Gm__Wire__Done body = GM__WIRE__DONE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	packet.id = asked.id;
	packet.body_case = GM__WIRE__PACKET__BODY_DONE;
	packet.done = &body;
	far_send(&packet, &far_end, 1);
	caller_join(&caller);
	ck_assert_int_eq(caller.r, -EPIPE);
	ck_assert_uint_eq(open_fds(), before);
}
END_TEST

/* ---- who gives up */

START_TEST(an_answer_that_comes_late_is_handed_to_its_owner)
{
	struct probe probe;
	unsigned before = open_fds();
	ck_assert_int_eq(call_for(&probe, 7, 1), -ETIMEDOUT);
	ck_assert(!probe.late);
	ck_assert_int_ge(wakes, 1);
	ck_assert(gm_conn_unread(conn));
	struct asked asked = far_read();
	far_answer_with(&asked, true, 3);
	gm_conn_drain(conn);
	ck_assert(!probe.late);
	far_answer_with(&asked, false, 2);
	gm_conn_drain(conn);
	ck_assert(probe.late);
	ck_assert_int_eq(probe.call.result, 0);
	ck_assert_uint_eq(probe.lease, 7);
	ck_assert_uint_eq(probe.fds, 5);
	ck_assert(!gm_conn_unread(conn));
	ck_assert_uint_eq(open_fds(), before);
}
END_TEST

START_TEST(a_call_nobody_waits_for_ends_with_the_connection)
{
	struct probe probe;
	ck_assert_int_eq(call_for(&probe, 7, 1), -ETIMEDOUT);
	ck_assert(!probe.late);
	gm_conn_kill(conn, "over");
	ck_assert(probe.late);
	ck_assert_int_eq(probe.call.result, -EPIPE);
}
END_TEST

START_TEST(a_late_answer_is_read_by_whoever_waits)
{
	struct probe late;
	ck_assert_int_eq(call_for(&late, 7, 1), -ETIMEDOUT);
	struct asked first = far_read();
	struct caller caller = {0};
	caller_start(&caller, 8, LONG_NS);
	struct asked second = far_read();
	far_answer(&first);
	far_answer(&second);
	caller_join(&caller);
	ck_assert_int_eq(caller.r, 0);
	ck_assert_uint_eq(caller.probe.lease, 8);
	ck_assert(late.late);
	ck_assert_uint_eq(late.lease, 7);
}
END_TEST

START_TEST(a_leader_that_gives_up_leaves_the_reading_to_another)
{
	enum { N = 6 };
	struct caller impatient = {0}, callers[N] = {0};
	struct asked asked[N];
	/* The only one that waits leads. */
	caller_start(&impatient, 1, 100 * GM_NS_PER_MS);
	far_read();
	for (unsigned i = 0; i < N; i++)
		caller_start(&callers[i], 10 + i, LONG_NS);
	for (unsigned i = 0; i < N; i++)
		asked[i] = far_read();
	caller_join(&impatient);
	ck_assert_int_eq(impatient.r, -ETIMEDOUT);
	for (unsigned i = 0; i < N; i++) {
		far_answer(&asked[i]);
	}
	for (unsigned i = 0; i < N; i++) {
		caller_join(&callers[i]);
		ck_assert_int_eq(callers[i].r, 0);
	}
	gm_conn_kill(conn, "over");
	ck_assert(impatient.probe.late);
}
END_TEST

START_TEST(a_leader_that_is_cancelled_ends_after_its_call)
{
	struct caller leader = {0}, follower = {0};
	caller_start(&leader, 1, LONG_NS);
	struct asked first = far_read();
	caller_start(&follower, 2, LONG_NS);
	struct asked second = far_read();
	ck_assert_int_eq(pthread_cancel(leader.thread), 0);
	far_answer(&second);
	caller_join(&follower);
	ck_assert_int_eq(follower.r, 0);
	far_answer(&first);
	caller_join(&leader);
	ck_assert_uint_eq(leader.probe.lease, 1);
}
END_TEST

START_TEST(a_request_that_was_never_sent_ends_late_as_cancelled)
{
	enum { N = GM_LIMIT_REQUESTS_IN_FLIGHT - 1 };
	static struct caller callers[N];
	for (unsigned i = 0; i < N; i++)
		caller_start(&callers[i], 1 + i, LONG_NS);
	for (unsigned i = 0; i < N; i++)
		far_read();
	struct probe probe;
	ck_assert_int_eq(call_for(&probe, 1, 1), -ETIMEDOUT);
	ck_assert(probe.late);
	ck_assert_int_eq(probe.call.result, -ECANCELED);
	gm_conn_kill(conn, "over");
	for (unsigned i = 0; i < N; i++)
		caller_join(&callers[i]);
}
END_TEST

START_TEST(an_answer_to_nobody_is_dropped_with_its_handles)
{
	struct caller caller = {0};
	unsigned before = open_fds();
	caller_start(&caller, 7, LONG_NS);
	struct asked asked = far_read(), other = asked;
	other.id = asked.id + 1000;
	far_answer_with(&other, false, 4);
	far_answer(&asked);
	caller_join(&caller);
	ck_assert_int_eq(caller.r, 0);
	ck_assert_uint_eq(caller.probe.packets, 1);
	ck_assert_uint_eq(open_fds(), before);
}
END_TEST

/* ---- handles */

START_TEST(handles_seen_are_told_with_the_next_request)
{
	struct caller caller = {0};
	caller_start(&caller, 7, LONG_NS);
	struct asked asked = far_read();
	ck_assert_uint_eq(asked.fds_seen, 0);
	far_answer_with(&asked, false, 31);
	caller_join(&caller);
	ck_assert(!far_readable(0));
	caller_start(&caller, 8, LONG_NS);
	asked = far_read();
	ck_assert_uint_eq(asked.fds_seen, 31);
	far_answer(&asked);
	caller_join(&caller);
}
END_TEST

START_TEST(many_handles_are_acknowledged_before_the_answer_ends)
{
	struct caller caller = {0};
	caller_start(&caller, 7, LONG_NS);
	struct asked asked = far_read();
	/* More than may be in flight: an other end that waits for acknowledgement gets it. */
	uint64_t sent = 0, seen = 0;
	for (unsigned i = 0; i < 40; i++) {
		while (sent + 16 - seen > GM_LIMIT_FDS_IN_FLIGHT) {
			struct asked ack = far_read();
			ck_assert_int_eq(ack.body, GM__WIRE__PACKET__BODY_ACK);
			ck_assert_uint_eq(ack.id, 0);
			ck_assert_uint_gt(ack.fds_seen, seen);
			seen = ack.fds_seen;
		}
		far_answer_with(&asked, i + 1 < 40, 16);
		sent += 16;
	}
	caller_join(&caller);
	ck_assert_int_eq(caller.r, 0);
	ck_assert_uint_eq(caller.probe.fds, 640);
}
END_TEST

START_TEST(handles_that_found_no_room_are_counted_as_seen)
{
	struct rlimit limit, low;
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	struct caller caller = {0};
	caller_start(&caller, 7, LONG_NS);
	struct asked asked = far_read();
	int lowest = dup(0);
	close(lowest);
	low = limit;
	low.rlim_cur = (rlim_t)lowest + 3;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
	far_answer_with(&asked, false, 8);
	caller_join(&caller);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_int_eq(caller.r, 0);
	ck_assert_uint_eq(caller.probe.announced, 8);
	ck_assert_uint_eq(caller.probe.fds, 3);
	caller_start(&caller, 8, LONG_NS);
	asked = far_read();
	ck_assert_uint_eq(asked.fds_seen, 8);
	far_answer(&asked);
	caller_join(&caller);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("conn");
	TCase *tc = tcase_create("conn");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, a_request_gets_its_answer);
	tcase_add_test(tc, a_failure_is_told_with_status_and_detail);
	tcase_add_test(tc, a_failure_that_answers_nothing_is_why_the_connection_ends);
	tcase_add_test(tc, words_said_before_the_end_are_read_though_nothing_can_be_sent);
	tcase_add_test(tc, a_long_answer_comes_in_pieces);
	tcase_add_test(tc, a_refusal_by_its_taker_ends_a_call_after_its_last_packet);
	tcase_add_test(tc, a_request_that_is_too_long_is_not_sent);
	tcase_add_test(tc, answers_out_of_order_find_their_callers);
	tcase_add_test(tc, many_threads_share_one_connection);
	tcase_add_test(tc, no_more_requests_are_out_than_the_daemon_reads);
	tcase_add_test(tc, the_daemons_end_ends_every_call);
	tcase_add_test(tc, a_daemon_that_dies_in_the_middle_of_an_answer_ends_the_call);
	tcase_add_test(tc, a_killed_connection_ends_its_calls_with_the_first_reason);
	tcase_add_test(tc, nonsense_from_the_daemon_ends_the_connection);
	tcase_add_test(tc, a_packet_past_the_limit_ends_the_connection);
	tcase_add_test(tc, more_handles_than_announced_end_the_connection);
	tcase_add_test(tc, an_answer_that_comes_late_is_handed_to_its_owner);
	tcase_add_test(tc, a_call_nobody_waits_for_ends_with_the_connection);
	tcase_add_test(tc, a_late_answer_is_read_by_whoever_waits);
	tcase_add_test(tc, a_leader_that_gives_up_leaves_the_reading_to_another);
	tcase_add_test(tc, a_leader_that_is_cancelled_ends_after_its_call);
	tcase_add_test(tc, a_request_that_was_never_sent_ends_late_as_cancelled);
	tcase_add_test(tc, an_answer_to_nobody_is_dropped_with_its_handles);
	tcase_add_test(tc, handles_seen_are_told_with_the_next_request);
	tcase_add_test(tc, many_handles_are_acknowledged_before_the_answer_ends);
	tcase_add_test(tc, handles_that_found_no_room_are_counted_as_seen);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
