/* SPDX-License-Identifier: Apache-2.0 */

/*
 * How clients leave a running daemon, and what becomes of their memory: with a goodbye, killed, off
 * the socket and back again.
 */

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/tap.h"
#include "tests/unit/daemon/broker_fixture.h"
#include "tests/unit/daemon/wire_client.h"

START_TEST(a_goodbye_gives_everything_back_to_the_pool)
{
	start();
	struct wire_client *client = wire_join(path, false), *observer = wire_join(path, true);
	wire_lease(client, 8 * MIB);
	wire_drop_fds(client);
	Gm__Wire__Goodbye body = GM__WIRE__GOODBYE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	packet.body_case = GM__WIRE__PACKET__BODY_GOODBYE;
	packet.goodbye = &body;
	ck_assert_int_eq(wire_call(client, &packet)->body_case, GM__WIRE__PACKET__BODY_DONE);
	Gm__Wire__StatusReply *status = wire_status(observer);
	ck_assert_uint_eq(status->clients, 0);
	ck_assert_uint_eq(status->devices[0]->leased, 0);
	ck_assert_uint_eq(status->devices[0]->pooled, 8 * MIB);
	wire_send_lease(client, 0, MIB);
	wire_expect_failure(wire_receive(client), GPUMEM_E_DENIED);
	wire_close(client);
	wire_close(observer);
}
END_TEST

/* A worker that holds 8 MiB and waits; its forked child, if wanted, keeps a copy of its socket. */
static pid_t worker(bool with_child, int *ret_child_alive)
{
	int ready[2], alive[2];
	ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(alive, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		struct wire_client *client = wire_join(path, false);
		wire_lease(client, 8 * MIB);
		if (with_child && fork() == 0) {
			char byte;
			close(alive[1]);
			wire_drop_fds(client);
			_exit(read(alive[0], &byte, 1) == 0 ? 0 : 1);
		}
		if (write(ready[1], "r", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	char byte;
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	close(alive[0]);
	*ret_child_alive = alive[1];
	return pid;
}

static void check_killed(bool with_child)
{
	int child_alive;
	start();
	struct wire_client *observer = wire_join(path, true);
	pid_t pid = worker(with_child, &child_alive);
	wait_until_charged(observer, 8 * MIB, 0);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	wait_until_charged(observer, 0, 0);
	Gm__Wire__StatusReply *status = wire_status(observer);
	ck_assert_uint_eq(status->clients, 0);
	ck_assert_uint_eq(status->devices[0]->pooled, 0); /* released, never reused */
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	close(child_alive);
	wire_close(observer);
}

START_TEST(a_killed_clients_memory_is_released)
{
	check_killed(false);
}
END_TEST

START_TEST(a_killed_client_is_gone_though_its_forked_child_keeps_the_socket)
{
	check_killed(true);
}
END_TEST

static Gm__Wire__Packet *take_up_at(uint32_t minor, struct wire_client *client, uint64_t session,
	const uint8_t *token, size_t n)
{
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	hello.major = GM_WIRE_MAJOR;
	hello.minor = minor;
	hello.session = session;
	hello.token.data = (uint8_t *)token;
	hello.token.len = n;
	return wire_hello_as(client, &hello);
}

static Gm__Wire__Packet *take_up(
	struct wire_client *client, uint64_t session, const uint8_t *token, size_t n)
{
	return take_up_at(0, client, session, token, n);
}

/* The client loses its connection, and comes back. Its ids go on where they were. */
static struct wire_client *reconnect(
	struct wire_client *observer, struct wire_client *client, uint32_t minor, uint64_t charged)
{
	uint64_t session = client->session, next_id = client->next_id;
	uint8_t token[GM_TOKEN_BYTES];
	memcpy(token, client->token, sizeof(token));
	wire_hang_up(client);
	wait_until_charged(observer, 0, charged);

	client = wire_connect(path);
	client->next_id = next_id;
	Gm__Wire__Packet *answer = take_up_at(minor, client, session, token, sizeof(token));
	ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_HELLO_REPLY);
	ck_assert(answer->hello_reply->resumed);
	return client;
}

/* Sends the request with this id, which must be granted: 8 MiB of a new lease (0) or of this one. */
static Gm__Wire__LeaseReply *ask_as(struct wire_client *client, uint64_t id, uint64_t lease)
{
	Gm__Wire__Grow grow = GM__WIRE__GROW__INIT;
	Gm__Wire__Lease body = GM__WIRE__LEASE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	uint64_t next_id = client->next_id;
	packet.body_case = lease ? GM__WIRE__PACKET__BODY_GROW : GM__WIRE__PACKET__BODY_LEASE;
	grow.lease = lease;
	grow.bytes = body.bytes = 8 * MIB;
	if (lease)
		packet.grow = &grow;
	else
		packet.lease = &body;
	client->next_id = id - 1;
	Gm__Wire__Packet *answer = wire_call(client, &packet);
	client->next_id = id > next_id ? id : next_id;
	ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_LEASE_REPLY);
	ck_assert_uint_eq(answer->lease_reply->n_chunks, 1);
	ck_assert_uint_eq(client->in.fds.n, 1);
	return answer->lease_reply;
}

START_TEST(a_request_repeated_after_a_resume_brings_what_it_brought_before)
{
	const uint32_t minor = GM_WIRE_MINOR_UNIQUE_IDS;
	start();
	struct wire_client *observer = wire_join(path, true), *client = wire_join(path, false);
	uint64_t first = client->next_id + 1;
	Gm__Wire__LeaseReply *reply = ask_as(client, first, 0);
	uint64_t lease = reply->lease, chunk = reply->chunks[0]->id;
	reply = ask_as(client, first + 1, lease);
	uint64_t grown = reply->chunks[0]->id;

	/* The client never read those answers, and asks again. */
	client = reconnect(observer, client, minor, 16 * MIB);
	reply = ask_as(client, first, 0);
	ck_assert_uint_eq(reply->lease, lease);
	ck_assert_uint_eq(reply->chunks[0]->id, chunk);
	reply = ask_as(client, first + 1, lease);
	ck_assert_uint_eq(reply->lease, lease);
	ck_assert_uint_eq(reply->chunks[0]->id, grown);
	wait_until_charged(observer, 16 * MIB, 0);

	/* Another id is another request. */
	reply = ask_as(client, client->next_id + 1, 0);
	ck_assert_uint_ne(reply->lease, lease);
	wait_until_charged(observer, 24 * MIB, 0);

	/* A client that may use an id twice gets what it asks for. */
	client = reconnect(observer, client, minor - 1, 24 * MIB);
	ck_assert_uint_ne(ask_as(client, first, 0)->lease, lease);
	wait_until_charged(observer, 32 * MIB, 0);
	wire_close(client);
	wire_close(observer);
}
END_TEST

START_TEST(a_client_off_the_socket_is_quarantined_and_comes_back_with_its_token)
{
	start();
	struct wire_client *observer = wire_join(path, true), *client = wire_join(path, false);
	uint64_t lease = wire_lease(client, 8 * MIB), session = client->session;
	uint8_t token[GM_TOKEN_BYTES], wrong[GM_TOKEN_BYTES] = {0};
	memcpy(token, client->token, sizeof(token));
	wire_hang_up(client);
	wait_until_charged(observer, 0, 8 * MIB);
	ck_assert_uint_eq(wire_status(observer)->quarantined_clients, 1);

	client = wire_connect(path);
	wire_expect_failure(take_up(client, session, wrong, sizeof(wrong)), GPUMEM_E_DENIED);
	wire_close(client);
	client = wire_connect(path);
	wire_expect_failure(take_up(client, session, token, 3), GPUMEM_E_INVALID);
	wire_close(client);
	/* Another process does not get it, token or not. */
	pid_t pid = fork();
	if (pid == 0) {
		struct wire_client *thief = wire_connect(path);
		Gm__Wire__Packet *answer = take_up(thief, session, token, sizeof(token));
		_exit(answer && answer->body_case == GM__WIRE__PACKET__BODY_FAILURE ? 0 : 1);
	}
	int status;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);

	client = wire_connect(path);
	Gm__Wire__Packet *answer = take_up(client, session, token, sizeof(token));
	ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_HELLO_REPLY);
	ck_assert(answer->hello_reply->resumed);
	ck_assert_uint_eq(answer->hello_reply->session, session);
	ck_assert_uint_eq(answer->hello_reply->n_leases, 1);
	ck_assert_uint_eq(answer->hello_reply->leases[0], lease);
	ck_assert_int_ge(client->client_page, 0);
	wait_until_charged(observer, 8 * MIB, 0);
	/* Once more, before the daemon can have seen the end of the connection. */
	memcpy(token, client->token, sizeof(token));
	struct wire_client *again = wire_connect(path);
	answer = take_up(again, session, token, sizeof(token));
	ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_HELLO_REPLY);
	ck_assert(answer->hello_reply->resumed);
	ck_assert_int_eq(wire_return(again, lease)->body_case, GM__WIRE__PACKET__BODY_DONE);
	wait_until_charged(observer, 0, 0);
	ck_assert_ptr_null(wire_receive(client));
	wire_close(client);
	wire_close(again);
	/* Nothing left: it ends with its connection, and cannot be taken up. */
	while (wire_status(observer)->clients)
		;
	client = wire_connect(path);
	answer = take_up(client, session, token, sizeof(token));
	ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_HELLO_REPLY);
	ck_assert(!answer->hello_reply->resumed);
	ck_assert_uint_ne(client->session, session);
	wire_close(client);
	wire_close(observer);
}
END_TEST

/* The keeper was lost together with the daemon before, for example. */
START_TEST(a_client_with_a_session_that_the_daemon_does_not_know_is_reported)
{
	uint8_t token[GM_TOKEN_BYTES] = {1};
	start();
	struct wire_client *client = wire_connect(path);
	Gm__Wire__Packet *answer = take_up(client, 4711, token, sizeof(token));
	ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_HELLO_REPLY);
	ck_assert(!answer->hello_reply->resumed);
	/* It held nothing, which the daemon cannot know. */
	ck_assert(log_says("log", "came back with a session that this daemon does not know, and "
				  "has a new one: if it held memory, nobody is charged"));
	wire_close(client);
}
END_TEST

START_TEST(a_quarantined_client_that_dies_is_released)
{
	start();
	struct wire_client *observer = wire_join(path, true);
	int hold[2];
	ck_assert_int_eq(pipe2(hold, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		char byte;
		struct wire_client *client = wire_join(path, false);
		wire_lease(client, 8 * MIB);
		wire_hang_up(client);
		close(hold[1]);
		_exit(read(hold[0], &byte, 1) == 0 ? 0 : 1);
	}
	wait_until_charged(observer, 0, 8 * MIB);
	close(hold[1]);
	wait_until_charged(observer, 0, 0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	close(hold[0]);
	wire_close(observer);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("broker_leave");
	TCase *tests = tcase_create("broker");
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, a_goodbye_gives_everything_back_to_the_pool);
	tcase_add_test(tests, a_killed_clients_memory_is_released);
	tcase_add_test(tests, a_killed_client_is_gone_though_its_forked_child_keeps_the_socket);
	tcase_add_test(tests, a_client_off_the_socket_is_quarantined_and_comes_back_with_its_token);
	tcase_add_test(tests, a_client_with_a_session_that_the_daemon_does_not_know_is_reported);
	tcase_add_test(tests, a_quarantined_client_that_dies_is_released);
	tcase_add_test(tests, a_request_repeated_after_a_resume_brings_what_it_brought_before);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
