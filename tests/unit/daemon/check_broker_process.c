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
			 "[device 7 limit uid:0]\nmax = 1G\n"
			 "[limit uid:no-such-user]\nmax = 1G\n");
	ck_assert_int_eq(kill(daemon_pid, SIGHUP), 0);
	wait_for("RELOADING=1");
	wait_for("READY=1");
	ck_assert(log_says("log", ":3: trust: \"nobody\" is not one of"));
	ck_assert(log_says("log", ":4: admin_group: there is no group \"no-such-group\"; create it "
				  "with groupadd, or leave out the key; check the spelling; if a "
				  "directory has the name"));
	ck_assert(
		log_says("log", ":12: [limit uid:no-such-user]: there is no user \"no-such-user\"; "
				"check the spelling; "));
	ck_assert(log_says("log", ":10: [device 7 limit uid:0]: there is no device 7"));
	ck_assert(log_says("log", "stays as it was"));
	ck_assert(
		log_says("log", ":9: guarantee: with 1.0T for uid:0, guarantees on device 0 (host "
				"memory 0) go"));
}
END_TEST

/* Writes a configuration without host_limit and reloads. */
static void reload_with(const char *general, const char *sections)
{
	char text[1024];

	snprintf(text, sizeof(text),
		"[gpumemd]\nfraction = 1\nmin_free = 0\nreserve = 0\nmax_pool = 100%%\n%s%s",
		general, sections);
	write_file(conf, text);
	ck_assert_int_eq(kill(daemon_pid, SIGHUP), 0);
	wait_for("RELOADING=1");
	wait_for("READY=1");
}

/* With what the daemon has now, all of these fit. */
START_TEST(a_reload_refuses_what_a_restart_would_refuse)
{
	start_with("[gpumemd]\nbackend = host\nfraction = 1\nmin_free = 0\nreserve = 0\n"
		   "max_pool = 100%\nhost_limit = 512M\n[device 0]\nsize = 512M\n",
		0);
	reload_with("backend = host\nhost_limit = 512M\n",
		"[device 0]\nsize = 128M\n[device 0 limit uid:0]\nguarantee = 200M\n");
	ck_assert(log_says("log", "the daemon would not start with this configuration"));
	ck_assert(log_says("log", ":11: guarantee: with 200.0M for uid:0, guarantees on device 0 "
				  "(host memory 0) go beyond its capacity of 128.0M"));
	reload_with("backend = host\nhost_limit = 64M\n",
		"[device 0]\nsize = 512M\n[limit uid:0]\nguarantee = 100M\n");
	ck_assert(log_says("log", ":11: guarantee: with 100.0M for uid:0, guarantees on device 1"));
	reload_with("backend = host\nhost_limit = 0\n",
		"[device 0]\nsize = 512M\n[device 1 limit uid:0]\nmax = 100M\n");
	ck_assert(log_says("log", ":10: [device 1 limit uid:0]: there is no device 1"));
	ck_assert(!log_says("log", "configuration reloaded"));
	ck_assert(!log_says("log", "which this file fits"));
	reload_with("backend = host\nhost_limit = 64M\n",
		"[device 0]\nsize = 512M\n[limit uid:0]\nguarantee = 64M\n");
	ck_assert(log_says("log", "configuration reloaded"));
	ck_assert(log_says("log", "need a restart: host_limit"));
}
END_TEST

/* The fake driver, or a GPU, would be one. */
START_TEST(a_reload_refuses_a_backend_that_a_restart_would_not_find)
{
	if (getenv("GPUMEM_FAKE_DIR") || access("/dev/nvidiactl", F_OK) == 0)
		return;
	start();
	reload_with("backend = cuda\nhost_limit = 0\n", "[limit uid:0]\nguarantee = 64M\n");
	ck_assert(log_says("log", ":6: backend: cuda has no device here: "));
	ck_assert(!log_says("log", "configuration reloaded"));
}
END_TEST

START_TEST(a_reload_that_only_the_devices_in_use_contradict_asks_for_a_restart)
{
	start();
	reload_with("backend = host\nhost_limit = 0\n",
		"[device 0]\nsize = 512M\n[device 0 limit uid:0]\nguarantee = 300M\n");
	ck_assert(log_says("log", "go beyond its capacity of 256.0M"));
	ck_assert(log_says("log", "the devices change only at a restart, which this file fits: "
				  "restart the daemon"));
	ck_assert(!log_says("log", "configuration reloaded"));
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
	tcase_add_test(tests, a_reload_refuses_what_a_restart_would_refuse);
	tcase_add_test(tests, a_reload_refuses_a_backend_that_a_restart_would_not_find);
	tcase_add_test(tests, a_reload_that_only_the_devices_in_use_contradict_asks_for_a_restart);
	tcase_add_test(tests, a_daemon_that_is_told_to_stop_says_goodbye_and_ends_with_0);
	tcase_add_test(tests, a_daemon_whose_backend_is_stuck_still_ends);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
