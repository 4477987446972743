/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Where a daemon listens, and whom it lets in: a socket that is not its to take, a path it cannot
 * have, more connections than a user may have, and no descriptors left for another.
 */

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/broker_ids.h"
#include "tests/bound.h"
#include "tests/tap.h"
#include "tests/unit/daemon/broker_fixture.h"
#include "tests/unit/daemon/wire_client.h"

static void refuses_to_start(const char *socket_path, const char *log)
{
	int status;
	pid_t pid = spawn(socket_path, log, 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

START_TEST(a_socket_of_a_live_daemon_is_left_alone_and_a_dead_ones_taken_over)
{
	start();
	refuses_to_start(path, "log2");
	char listens[64];
	snprintf(listens, sizeof(listens), "another gpumemd (pid %d) already listens", daemon_pid);
	ck_assert(log_says("log2", listens));
	ck_assert(log_says("log2", "gpumemctl status --socket "));
	ck_assert(log_says("log2", path));
	struct wire_client *client = wire_join(path, false);
	uint64_t before = client->session;
	wire_close(client);

	ck_assert_int_eq(kill(daemon_pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(daemon_pid, NULL, 0), daemon_pid);
	ck_assert_int_eq(access(path, F_OK), 0);
	start();
	client = wire_join(path, false);
	ck_assert_uint_gt(
		client->session >> GM_BROKER_IDS_BLOCK_BITS, before >> GM_BROKER_IDS_BLOCK_BITS);
	wire_close(client);
}
END_TEST

START_TEST(what_is_in_the_way_and_no_socket_is_left_alone)
{
	write_file(conf, plain);
	write_file(path, "precious\n");
	refuses_to_start(path, "log");
	ck_assert(log_says("log", "not a socket"));
	ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

START_TEST(a_socket_in_a_folder_that_is_not_there_is_refused_by_its_own_name)
{
	char nowhere[128];
	write_file(conf, plain);
	snprintf(nowhere, sizeof(nowhere), "%.90s-not-there/socket", path);
	refuses_to_start(nowhere, "log");
	ck_assert(log_says("log", "-not-there/socket: its folder does not exist"));
	ck_assert(!log_says("log", ".lock"));
}
END_TEST

START_TEST(a_socket_path_that_is_too_long_is_refused)
{
	GM_BOUND_TEST(SOCKET_PATH_BYTES);
	write_file(conf, plain);
	static char longer[GM_BOUND_SOCKET_PATH_BYTES + 2];
	memset(longer, 'x', GM_BOUND_SOCKET_PATH_BYTES + 1);
	memcpy(longer, "/tmp/", 5);
	refuses_to_start(longer, "log");
	ck_assert(log_says("log", "108 bytes long"));
}
END_TEST

START_TEST(more_connections_than_a_user_may_have_are_refused_with_a_reason)
{
	char text[512];
	snprintf(text, sizeof(text), "[gpumemd]\nconnections_per_uid = 3\n%s",
		plain + strlen("[gpumemd]\n"));
	start_with(text, 0);
	struct wire_client *clients[3];
	for (int i = 0; i < 3; i++)
		clients[i] = wire_join(path, true);
	struct wire_client *extra = wire_connect(path);
	wire_expect_failure(wire_receive(extra), GPUMEM_E_LIMIT);
	ck_assert_ptr_null(wire_receive(extra));
	wire_close(extra);
	wire_status(clients[2]); /* nobody else is disturbed */
	wire_close(clients[0]);
	/* Its place is free once the daemon has seen it leave. */
	for (;;) {
		Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
		hello.major = GM_WIRE_MAJOR;
		hello.observer = true;
		extra = wire_connect(path);
		Gm__Wire__Packet *answer = wire_hello_as(extra, &hello);
		bool in = answer && answer->body_case == GM__WIRE__PACKET__BODY_HELLO_REPLY;
		wire_close(extra);
		if (in)
			break;
	}
	wire_close(clients[1]);
	wire_close(clients[2]);
}
END_TEST

START_TEST(a_daemon_without_file_descriptors_says_so_and_lives_on)
{
	enum { MOST = 64 };
	start_with(plain, 96); /* some are kept for administrators */
	struct wire_client *clients[MOST], *last = NULL;
	int n = 0;
	for (; n < MOST; n++) {
		Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
		hello.major = GM_WIRE_MAJOR;
		clients[n] = wire_connect(path);
		Gm__Wire__Packet *answer = wire_hello_as(clients[n], &hello);
		ck_assert_ptr_nonnull(answer);
		if (answer->body_case == GM__WIRE__PACKET__BODY_FAILURE) {
			last = clients[n];
			ck_assert_uint_eq(answer->failure->status, GPUMEM_E_LIMIT);
			break;
		}
	}
	ck_assert_ptr_nonnull(last);
	ck_assert_int_gt(n, 3);
	/* Those inside go on; a lease may find no descriptor and is told so. */
	wire_status(clients[0]);
	uint64_t got = 0;
	Gm__Wire__Packet *answer;
	do {
		wire_send_lease(clients[0], 0, 2 * MIB);
		answer = wire_receive(clients[0]);
		ck_assert_ptr_nonnull(answer);
	} while (answer->body_case == GM__WIRE__PACKET__BODY_LEASE_REPLY && ++got < 64);
	ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_FAILURE);
	ck_assert(strlen(answer->failure->detail) > 0);
	for (int i = 1; i <= n; i++)
		wire_close(clients[i]);
	while (wire_status(clients[0])->clients > 1)
		;
	struct wire_client *after = wire_join(path, false);
	wire_lease(after, 2 * MIB);
	wire_close(after);
	wire_close(clients[0]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("broker_socket");
	TCase *tests = tcase_create("broker");
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, a_socket_of_a_live_daemon_is_left_alone_and_a_dead_ones_taken_over);
	tcase_add_test(tests, what_is_in_the_way_and_no_socket_is_left_alone);
	tcase_add_test(tests, a_socket_path_that_is_too_long_is_refused);
	tcase_add_test(tests, a_socket_in_a_folder_that_is_not_there_is_refused_by_its_own_name);
	tcase_add_test(tests, more_connections_than_a_user_may_have_are_refused_with_a_reason);
	tcase_add_test(tests, a_daemon_without_file_descriptors_says_so_and_lives_on);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
