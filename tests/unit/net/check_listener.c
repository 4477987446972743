/* SPDX-License-Identifier: Apache-2.0 */

/* Connections as they are taken, from many users at once, and with a daemon that runs out of memory
 * over one of them. */

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/net/listener.h"
#include "tests/tap.h"
#include "tests/unit/failing_malloc.h"
#include "tests/unit/open_fds.h"
#include "tests/unit/daemon/wire_client.h"

static uv_loop_t loop;
static struct gm_hub hub;
static struct gm_listener *listener;
static int socket_;
static struct sockaddr_un address;
static socklen_t address_n;

static bool joins; /* a packet makes a session */

static void on_packet(void *ctx, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	if (joins)
		gm_peer_set_user(peer, &joins);
	gm_peer_send_done(peer, packet->id);
}

static void on_closed(void *ctx, struct gm_peer *peer)
{
}

static const struct gm_peer_ops ops = {.packet = on_packet, .closed = on_closed};

/* Time passes when somebody looks, or not at all: then a turn has no end. */
static uint64_t clock_ns, clock_step_ns;

static uint64_t fake_clock(clockid_t id)
{
	(void)id;
	return clock_ns += clock_step_ns;
}

static void setup(void)
{
	/* The kernel finds a name that nobody has, and that no file system knows. */
	address = (struct sockaddr_un){.sun_family = AF_UNIX};
	socket_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_ge(socket_, 0);
	ck_assert_int_eq(bind(socket_, (struct sockaddr *)&address, sizeof(address.sun_family)), 0);
	ck_assert_int_eq(listen(socket_, 128), 0);
	address_n = sizeof(address);
	ck_assert_int_eq(getsockname(socket_, (struct sockaddr *)&address, &address_n), 0);
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	ck_assert_int_eq(gm_hub_init(&hub, &loop, 1), 0);
	clock_step_ns = 0;
	hub.flows.clock = fake_clock;
	ck_assert_int_eq(gm_listener_new(&hub, socket_, &ops, NULL, &listener), 0);
	gm_listener_set_bounds(listener, 64, 1, 60000);
}

static void teardown(void)
{
	gm_listener_close(listener);
	gm_hub_close(&hub);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	gm_hub_deinit(&hub);
	close(socket_);
}

static struct wire_client *new_client(void)
{
	struct wire_client *client = calloc(1, sizeof(*client));
	ck_assert_ptr_nonnull(client);
	client->wakeup = client->daemon_page = client->client_page = -1;
	gm_wire_arena_init(&client->arena);
	gm_fdlist_init(&client->in.fds);
	client->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(connect(client->socket, (struct sockaddr *)&address, address_n), 0);
	return client;
}

static Gm__Wire__Failure *failure(struct wire_client *client)
{
	Gm__Wire__Packet *answer = wire_receive(client);
	ck_assert_ptr_nonnull(answer);
	ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_FAILURE);
	return answer->failure;
}

/* One connection is allowed, so one that is refused and counted all the same would be seen. */
START_TEST(who_is_refused_for_want_of_memory_is_told_so_and_not_denied)
{
	uint64_t n = 0;
	bool fired;
	do {
		struct wire_client *client = new_client();
		failing_malloc_arm(++n);
		uv_run(&loop, UV_RUN_ONCE);   /* accepts it */
		uv_run(&loop, UV_RUN_NOWAIT); /* finds out who it is */
		fired = failing_malloc_fired();
		if (fired) {
			Gm__Wire__Failure *told = failure(client);
			ck_assert_msg(told->status == GPUMEM_E_HOST_MEMORY,
				"allocation %llu: status %d, %s", (unsigned long long)n,
				(int)told->status, told->detail);
			ck_assert_ptr_null(wire_receive(client));
		} else {
			/* It was taken: nothing is said to it, and the next one is too many. */
			char byte;
			struct wire_client *second = new_client();
			ck_assert_int_eq(recv(client->socket, &byte, 1, MSG_DONTWAIT), -1);
			ck_assert_int_eq(errno, EAGAIN);
			uv_run(&loop, UV_RUN_ONCE);
			ck_assert_int_eq(failure(second)->status, GPUMEM_E_LIMIT);
			wire_close(second);
		}
		wire_close(client);
	} while (fired);
	ck_assert_uint_gt(n, 6);
}
END_TEST

/* Lets the loop turn so many times. */
static void turn(int times)
{
	for (int i = 0; i < times; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
}

/* The next connections are those of another user. */
static void become(uid_t uid)
{
	ck_assert_int_eq(seteuid(0), 0);
	ck_assert_int_eq(seteuid(uid), 0);
}

/* Sends something that on_packet() answers. */
static void ask(struct wire_client *client)
{
	Gm__Wire__GetStatus body = GM__WIRE__GET_STATUS__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;

	packet.body_case = GM__WIRE__PACKET__BODY_GET_STATUS;
	packet.get_status = &body;
	wire_send(client, &packet);
}

static bool is_answered(const struct wire_client *client)
{
	char byte;
	return recv(client->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
}

/* To find out who is there costs most, and takes a pidfd. */
START_TEST(those_who_want_a_connection_come_after_those_who_have_one)
{
	enum { MANY = 4 };
	struct wire_client *clients[MANY];

	gm_listener_set_bounds(listener, 64, MANY, 60000);
	for (size_t i = 0; i < MANY; i++)
		clients[i] = new_client();
	turn(1);
	ck_assert_uint_eq(gm_user_find(&hub.users, getuid())->has[GM_USER_CONNECTIONS], MANY);
	/* The turn that accepted them all has identified one. */
	unsigned before = open_fds();
	for (unsigned i = 1; i < MANY; i++) {
		turn(1);
		ck_assert_uint_eq(open_fds(), before + i);
		ck_assert_uint_eq(
			gm_user_find(&hub.users, getuid())->has[GM_USER_CONNECTIONS], MANY);
	}
	for (size_t i = 0; i < MANY; i++)
		wire_close(clients[i]);
}
END_TEST

START_TEST(connections_that_are_gone_again_keep_nobody_waiting)
{
	gm_listener_set_bounds(listener, 64, 1, 60000);
	for (int i = 0; i < 15; i++)
		wire_close(new_client());
	struct wire_client *client = new_client();
	ask(client);
	turn(4 + 2);
	ck_assert(is_answered(client));
	wire_close(client);
}
END_TEST

/* One file of /proc in a turn. */
START_TEST(a_client_is_identified_in_steps)
{
	enum { STEPS = 5 };
	struct wire_client *client = new_client();

	clock_step_ns = GM_HUB_FLOW_SLICE_NS;
	ask(client);
	turn(STEPS);
	ck_assert(!is_answered(client));
	while (!is_answered(client))
		turn(1);
	wire_close(client);
}
END_TEST

START_TEST(connections_that_go_before_their_turn_are_forgotten)
{
	enum { MANY = 4 };
	struct wire_client *clients[MANY];
	unsigned before = open_fds();

	gm_listener_set_bounds(listener, 64, MANY, 60000);
	for (size_t i = 0; i < MANY; i++)
		clients[i] = new_client();
	turn(1);
	for (size_t i = 0; i < MANY; i++)
		wire_close(clients[i]);
	/* One of them may have had its turn; to close it takes two more. */
	turn(MANY + 2);
	ck_assert_ptr_null(gm_hub_flow_find(&hub.flows, getuid()));
	/* On kernels that cannot refuse descriptors, a thread closes connections. */
	while (open_fds() != before)
		sched_yield();
}
END_TEST

START_TEST(the_listener_can_end_while_connections_wait_for_their_turn)
{
	struct wire_client *clients[3];

	gm_listener_set_bounds(listener, 64, 3, 60000);
	for (size_t i = 0; i < 3; i++)
		clients[i] = new_client();
	turn(1);
	gm_listener_close(listener);
	listener = NULL;
	turn(1);
	ck_assert_ptr_null(gm_hub_flow_find(&hub.flows, getuid()));
	for (size_t i = 0; i < 3; i++) {
		ck_assert_ptr_null(wire_receive(clients[i]));
		wire_close(clients[i]);
	}
}
END_TEST

START_TEST(users_take_turns_in_connecting)
{
	enum { MANY = 12 };
	struct wire_client *many[MANY];

	gm_listener_set_bounds(listener, 64, MANY, 60000);
	become(64999);
	for (size_t i = 0; i < MANY; i++)
		many[i] = new_client();
	become(65001);
	struct wire_client *one = new_client();
	become(0);
	ask(one);
	turn(4 + 2);
	ck_assert(is_answered(one));
	ck_assert_uint_eq(gm_user_find(&hub.users, 64999)->has[GM_USER_CONNECTIONS], MANY);
	wire_close(one);
	for (size_t i = 0; i < MANY; i++)
		wire_close(many[i]);
}
END_TEST

/* Lets all that wait have their turn. */
static void settle(void)
{
	turn(20);
}

static bool is_ended(const struct wire_client *client)
{
	struct pollfd p = {.fd = client->socket};
	return poll(&p, 1, 0) == 1 && (p.revents & POLLHUP);
}

START_TEST(a_user_without_a_connection_gets_one_of_those_who_have_most)
{
	struct wire_client *few[2], *many[4], *one, *next;

	gm_listener_set_bounds(listener, 6, 6, 60000);
	become(64998);
	for (size_t i = 0; i < 2; i++)
		few[i] = new_client();
	settle();
	become(64999);
	for (size_t i = 0; i < 4; i++)
		many[i] = new_client();
	become(0);
	settle();

	/* The youngest of 64999 goes, and is told why. */
	become(65001);
	one = new_client();
	become(0);
	ask(one);
	settle();
	ck_assert(is_answered(one));
	ck_assert_int_eq(failure(many[3])->status, GPUMEM_E_LIMIT);
	ck_assert_ptr_null(wire_receive(many[3]));

	/* Who has one gets no second one. */
	become(65001);
	next = new_client();
	become(0);
	settle();
	ck_assert_int_eq(failure(next)->status, GPUMEM_E_LIMIT);
	wire_close(next);

	for (size_t i = 0; i < 3; i++)
		ck_assert(!is_ended(many[i]) && !is_answered(many[i]));
	for (size_t i = 0; i < 2; i++) {
		ck_assert(!is_ended(few[i]));
		wire_close(few[i]);
	}
	for (size_t i = 0; i < 4; i++)
		wire_close(many[i]);
	wire_close(one);
}
END_TEST

START_TEST(connections_with_a_session_and_last_ones_are_left_alone)
{
	struct wire_client *pair[2], *alone, *one;

	gm_listener_set_bounds(listener, 3, 3, 60000);
	joins = true; /* whoever asks */
	become(64998);
	alone = new_client();
	become(64999);
	for (size_t i = 0; i < 2; i++) {
		pair[i] = new_client();
		ask(pair[i]);
	}
	become(0);
	settle();
	become(65001);
	one = new_client();
	become(0);
	settle();
	ck_assert_int_eq(failure(one)->status, GPUMEM_E_LIMIT);
	ck_assert(!is_ended(alone));
	wire_close(one);

	/* One that waits for its turn can be the one that goes. */
	wire_close(pair[1]);
	settle();
	become(64999);
	pair[1] = new_client();
	become(0);
	turn(1);
	become(65001);
	one = new_client();
	become(0);
	settle();
	ck_assert_int_eq(failure(pair[1])->status, GPUMEM_E_LIMIT);
	ck_assert_ptr_null(wire_receive(pair[1]));
	ck_assert(!is_ended(pair[0]) && !is_ended(one));
	wire_close(one);
	wire_close(alone);
	for (size_t i = 0; i < 2; i++)
		wire_close(pair[i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("listener");
	TCase *tests = tcase_create("listener");
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, who_is_refused_for_want_of_memory_is_told_so_and_not_denied);
	tcase_add_test(tests, those_who_want_a_connection_come_after_those_who_have_one);
	tcase_add_test(tests, connections_that_are_gone_again_keep_nobody_waiting);
	tcase_add_test(tests, a_client_is_identified_in_steps);
	tcase_add_test(tests, connections_that_go_before_their_turn_are_forgotten);
	tcase_add_test(tests, the_listener_can_end_while_connections_wait_for_their_turn);
	if (GM_TAP_WITH_USERS(users_take_turns_in_connecting))
		tcase_add_test(tests, users_take_turns_in_connecting);
	if (GM_TAP_WITH_USERS(a_user_without_a_connection_gets_one_of_those_who_have_most))
		tcase_add_test(tests, a_user_without_a_connection_gets_one_of_those_who_have_most);
	if (GM_TAP_WITH_USERS(connections_with_a_session_and_last_ones_are_left_alone))
		tcase_add_test(tests, connections_with_a_session_and_last_ones_are_left_alone);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
