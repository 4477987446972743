/* SPDX-License-Identifier: Apache-2.0 */

/* The account of descriptors on their way, over real sockets of clients that read, or lie. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/bounds.h"
#include "common/wire/seqpacket.h"
#include "daemon/net/peer_inflight.h"
#include "tests/bound.h"
#include "tests/tap.h"

enum { FDS = GM_BOUND_PACKET_FDS, PEERS = 40 };

static uv_loop_t loop;
static struct gm_user_table users;
static struct gm_hub_flows flows;

enum { ALL = 4 * 512, PER_UID = 512 };

struct end {
	struct gm_peer_inflight inflight;
	struct gm_hub_flow *flow;
	int far;
};

static void setup(void)
{
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	gm_user_table_init(&users);
	ck_assert_int_eq(gm_hub_flows_init(&flows, &loop, &users), 0);
	ck_assert_uint_gt(users.bounds[GM_USER_FDS_UNREAD].all, 0);
	ck_assert_uint_lt(users.bounds[GM_USER_FDS_UNREAD].all, UINT64_MAX);
	ck_assert_uint_ge(users.bounds[GM_USER_FDS_UNREAD].own, GM_BOUND_FDS_IN_FLIGHT);
	gm_user_table_bound_fds(&users, PER_UID, ALL);
}

static void teardown(void)
{
	ck_assert_uint_eq(users.all[GM_USER_FDS_UNREAD], 0);
	gm_hub_flows_close(&flows);
	gm_user_table_deinit(&users);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static void open_end(struct end *end, uid_t uid)
{
	int ends[2];

	ck_assert_int_eq(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
	ck_assert_int_eq(gm_hub_flow_get(&flows, uid, &end->flow), 0);
	gm_peer_inflight_init(&end->inflight, end->flow, ends[0]);
	end->far = ends[1];
}

static void close_end(struct end *end)
{
	gm_peer_inflight_deinit(&end->inflight);
	close(end->inflight.socket);
	close(end->far);
	gm_hub_flow_unref(end->flow);
}

/* Sends a packet if it is allowed, as a peer does. */
static int send_some(struct end *end)
{
	int r = gm_peer_inflight_check(&end->inflight, FDS);

	if (r)
		return r;
	ck_assert_int_eq(gm_seqpacket_send(end->inflight.socket, "x", 1, NULL, 0), 0);
	gm_peer_inflight_add(&end->inflight, FDS);
	return 0;
}

static void read_all(struct end *end)
{
	char byte;

	while (recv(end->far, &byte, 1, 0) == 1)
		;
}

static void claim_all(struct end *end)
{
	ck_assert(gm_peer_inflight_acknowledge(&end->inflight, end->inflight.sent));
}

START_TEST(a_client_that_acknowledges_nothing_gets_no_more)
{
	GM_BOUND_TEST(FDS_IN_FLIGHT);
	struct end end;

	open_end(&end, 1000);
	for (int i = 0; i < GM_BOUND_FDS_IN_FLIGHT / FDS; i++) {
		ck_assert_int_eq(send_some(&end), 0);
		read_all(&end);
	}
	ck_assert_int_eq(send_some(&end), GM_PEER_INFLIGHT_E_ACK);
	ck_assert(!gm_peer_inflight_acknowledge(&end.inflight, GM_BOUND_FDS_IN_FLIGHT + 1));
	ck_assert(gm_peer_inflight_acknowledge(&end.inflight, FDS));
	ck_assert_int_eq(send_some(&end), 0);
	close_end(&end);
}
END_TEST

START_TEST(clients_that_lie_use_up_the_bound_of_their_own_user_only)
{
	struct end liars[PEERS], other;
	size_t sent = 0;

	open_end(&other, 1001);
	for (size_t i = 0; i < PEERS; i++)
		open_end(&liars[i], 1000);
	for (int round = 0; round < 8; round++) {
		for (size_t i = 0; i < PEERS; i++) {
			sent += send_some(&liars[i]) == 0 ? FDS : 0;
			claim_all(&liars[i]);
		}
	}
	ck_assert_uint_eq(sent, PER_UID);
	ck_assert_uint_eq(users.all[GM_USER_FDS_UNREAD], sent);
	ck_assert_int_eq(send_some(&liars[0]), GM_PEER_INFLIGHT_E_BOUND);
	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(send_some(&other), 0);
		read_all(&other);
		claim_all(&other);
	}

	/* Once they read, they are served again. */
	for (size_t i = 0; i < PEERS; i++)
		read_all(&liars[i]);
	ck_assert_int_eq(send_some(&liars[0]), 0);
	for (size_t i = 0; i < PEERS; i++)
		close_end(&liars[i]);
	close_end(&other);
}
END_TEST

START_TEST(clients_that_read_never_wait_however_many_there_are)
{
	struct end ends[PEERS];

	for (size_t i = 0; i < PEERS; i++)
		open_end(&ends[i], 1000);
	for (int round = 0; round < 20; round++) {
		for (size_t i = 0; i < PEERS; i++) {
			ck_assert_int_eq(send_some(&ends[i]), 0);
			read_all(&ends[i]);
			claim_all(&ends[i]);
		}
	}
	for (size_t i = 0; i < PEERS; i++)
		close_end(&ends[i]);
}
END_TEST

START_TEST(many_users_that_lie_leave_something_for_the_next_one)
{
	struct end liars[PEERS], other;
	int r = 0;

	for (size_t i = 0; i < PEERS; i++) {
		open_end(&liars[i], (uid_t)(2000 + i));
		for (r = 0; r == 0;) {
			r = send_some(&liars[i]);
			claim_all(&liars[i]);
		}
	}
	ck_assert_int_eq(r, GM_PEER_INFLIGHT_E_BOUND);
	/* Past the bound for all, each uid has no more than one packet. */
	ck_assert_uint_le(users.all[GM_USER_FDS_UNREAD], ALL + PEERS * FDS);
	open_end(&other, 1001);
	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(send_some(&other), 0);
		read_all(&other);
		claim_all(&other);
	}
	for (size_t i = 0; i < PEERS; i++)
		close_end(&liars[i]);
	close_end(&other);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("inflight");
	TCase *tests = tcase_create("inflight");

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, a_client_that_acknowledges_nothing_gets_no_more);
	tcase_add_test(tests, clients_that_lie_use_up_the_bound_of_their_own_user_only);
	tcase_add_test(tests, clients_that_read_never_wait_however_many_there_are);
	tcase_add_test(tests, many_users_that_lie_leave_something_for_the_next_one);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
