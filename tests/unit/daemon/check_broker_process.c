/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The daemon as a process: what it does when it is told to reload and to stop, also while it is
 * busy.
 */

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/tap.h"
#include "tests/unit/daemon/broker_fixture.h"
#include "tests/unit/daemon/wire_client.h"

START_TEST(a_reload_takes_a_good_configuration_and_keeps_the_old_one_over_a_bad_one)
{
	start();
	struct wire_client *client = wire_join(path, false);
	ck_assert_uint_eq(wire_status(client)->devices[0]->capacity, 256 * MIB);
	write_file(conf, "[gpumemd]\nbackend = host\nfraction = 0.5\nmin_free = 0\nreserve = 0\n"
			 "[device 0]\nsize = 512M\n");
	ck_assert_int_eq(kill(daemon_pid, SIGHUP), 0);
	wait_for("RELOADING=1");
	wait_for("READY=1");
	ck_assert_uint_eq(wire_status(client)->devices[0]->capacity, 128 * MIB);
	ck_assert(log_says("log", "need a restart"));
	write_file(conf, "[gpumemd]\nfracture = 0.1\n");
	ck_assert_int_eq(kill(daemon_pid, SIGHUP), 0);
	wait_for("RELOADING=1");
	wait_for("READY=1");
	ck_assert_uint_eq(wire_status(client)->devices[0]->capacity, 128 * MIB);
	ck_assert(log_says("log", "fracture"));
	ck_assert(log_says("log", "stays as it was"));
	wire_close(client);
}
END_TEST

START_TEST(a_reload_reports_all_mistakes)
{
	start();
	write_file(conf, "[gpumemd]\nbackend = host\ntrust = nobody\nadmin_group = no-such-group\n"
			 "min_free = 0\n[device 0]\nsize = 256M\n[limit uid:0]\nguarantee = 1T\n"
			 "[device 7 limit uid:0]\nmax = 1G\n");
	ck_assert_int_eq(kill(daemon_pid, SIGHUP), 0);
	wait_for("RELOADING=1");
	wait_for("READY=1");
	ck_assert(log_says("log", ":3: trust: \"nobody\" is not one of"));
	ck_assert(log_says("log", ":4: admin_group: there is no group \"no-such-group\""));
	ck_assert(log_says("log", ":10: [device 7 limit uid:0]: there is no device 7"));
	ck_assert(log_says("log", "stays as it was"));
	ck_assert(
		log_says("log", ":9: guarantee: with 1.0T for uid:0, guarantees on device 0 (host "
				"memory 0) go"));
}
END_TEST

START_TEST(a_daemon_that_is_told_to_stop_says_goodbye_and_ends_with_0)
{
	start();
	struct wire_client *client = wire_join(path, false), *observer = wire_join(path, true);
	wire_lease(client, 8 * MIB);
	ck_assert_int_eq(kill(daemon_pid, SIGTERM), 0);
	wait_for("STOPPING=1");
	const struct gm_page_event *event = wire_hear(client);
	ck_assert_ptr_nonnull(event);
	ck_assert_int_eq(event->kind, GM_PAGE_EVENT_GOODBYE);
	ck_assert(strlen(event->reason) > 0);
	ck_assert_ptr_null(wire_hear(client));
	ck_assert_ptr_null(wire_receive(client));
	ck_assert_ptr_null(wire_receive(observer));
	int status;
	ck_assert_int_eq(waitpid(daemon_pid, &status, 0), daemon_pid);
	ck_assert_int_eq(status, 0);
	daemon_pid = 0;
	ck_assert_int_eq(access(path, F_OK), -1);
	wire_close(client);
	wire_close(observer);
}
END_TEST

START_TEST(a_daemon_whose_backend_is_stuck_still_ends)
{
	start_gated();
	struct wire_client *client = wire_join(path, false);
	wire_send_lease(client, 0, 2 * MIB);
	while (wire_status(client)->devices[0]->admitted == 0)
		;
	stop();
	wire_close(client);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("broker_process");
	TCase *tests = tcase_create("broker");
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(
		tests, a_reload_takes_a_good_configuration_and_keeps_the_old_one_over_a_bad_one);
	tcase_add_test(tests, a_reload_reports_all_mistakes);
	tcase_add_test(tests, a_daemon_that_is_told_to_stop_says_goodbye_and_ends_with_0);
	tcase_add_test(tests, a_daemon_whose_backend_is_stuck_still_ends);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
