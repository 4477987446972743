/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Programs under libgpumem-preload.so: every way in which one ends, forks, or finds the driver beside other
 * libraries, and what it is told without a daemon. See preload_actor.h.
 */

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "tests/gpu/preload_play.h"

/* ---- ends */

START_TEST(everything_comes_back_however_the_program_ends)
{
	static const struct {
		const char *scene;
		int status;
	} ends[] = {{"destructor", 0}, {"abort", SIGABRT}, {"exit", 0}, {"thread", 0}};
	struct play one = {.route = "dlsym", .scene = ends[_i].scene};
	struct gm_worker worker;

	start();
	begin(&worker, &one);
	go_on(&worker);
	GM_REQUIRE_EQ(end_of(&worker) & 0x7f, ends[_i].status);
	tear_down();
}
END_TEST

START_TEST(a_program_may_close_the_driver_and_open_it_again)
{
	start();
	play("dlsym", "dlclose", NULL);
	tear_down();
}
END_TEST

START_TEST(a_program_that_is_killed_leaves_nothing)
{
	struct play one = {.route = "proc2", .scene = "alloc"};
	struct gm_worker worker;

	start();
	begin(&worker, &one);
	gm_worker_kill(&worker);
	tear_down();
}
END_TEST

/* ---- processes */

START_TEST(a_forked_child_does_not_use_the_session_of_its_parent)
{
	start();
	play("dlsym", "fork", NULL);
	tear_down();
}
END_TEST

START_TEST(a_child_does_not_wait_for_a_thread_that_connects)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct gm_worker worker;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), peer;

	/* A daemon that never answers. */
	GM_REQUIRE(fd >= 0);
	gm_scratch_path("preload-silent", address.sun_path, sizeof address.sun_path);
	unlink(address.sun_path);
	GM_REQUIRE(bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
	GM_REQUIRE(listen(fd, 1) == 0);

	struct play one = {.route = "dlsym", .scene = "fork-connect", .socket = address.sun_path};
	gm_worker_start(&worker, act, &one);
	peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	GM_REQUIRE(peer >= 0);
	gm_text_say_word(worker.channel, 'g');
	gm_hear_word(worker.channel, 'f');
	close(peer);
	close(fd);
	unlink(address.sun_path);
	gm_worker_join(&worker);
}
END_TEST

START_TEST(parent_and_child_each_have_a_session)
{
	struct play one = {.route = "dlsym", .scene = "fork-first"};
	struct gm_worker worker;

	start();
	gm_worker_start(&worker, act, &one);
	gm_hear_word(worker.channel, 'h');
	gm_hear_word(worker.channel, 'h');
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE(f.leased >= 2 * ACTOR_BYTES);
	GM_REQUIRE_EQ(f.clients, 2);
	go_on(&worker);
	go_on(&worker);
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

START_TEST(a_program_that_takes_no_memory_has_no_session)
{
	struct play one = {.route = "dlsym", .scene = "idle"};
	struct gm_worker worker;

	start();
	gm_worker_start(&worker, act, &one);
	gm_hear_word(worker.channel, 'i');
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).clients, 0);
	go_on(&worker);
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

START_TEST(another_preloaded_library_works_as_before)
{
	struct play one = {.route = "dlsym", .scene = "beside", .beside = true};
	struct gm_worker worker;

	start();
	begin(&worker, &one);
	go_on(&worker);
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

START_TEST(a_library_that_stands_before_ours_is_found_first)
{
	struct play one = {.route = "dlsym",
		.scene = "before",
		.before = true,
		.env = "GPUMEM_RUN_LIMIT=67108864"};

	start();
	GM_REQUIRE(setenv("GPUMEM_RUN", "limited", 1) == 0);
	one_worker(act, &one);
	unsetenv("GPUMEM_RUN");
	tear_down();
}
END_TEST

START_TEST(a_library_finds_the_driver_in_its_own_scope)
{
	struct play one = {.route = "none", .scene = "local", .socket = "/nowhere/socket"};
	char library[512];

	built(library, "tests/gpu", "liblocal.so");
	GM_REQUIRE(setenv("LOCAL_LIBRARY", library, 1) == 0);
	one_worker(act, &one);
	unsetenv("LOCAL_LIBRARY");
}
END_TEST

START_TEST(a_gpu_that_the_daemon_does_not_serve_has_its_own_size)
{
	struct play one = {.route = "proc2",
		.scene = "unserved",
		.env = "GPUMEM_RUN_DEVICES=GPU-00000000-0000-0000-0000-000000000000"};

	start();
	GM_REQUIRE(setenv("GPUMEM_RUN", "limited", 1) == 0);
	GM_REQUIRE(setenv("GPUMEM_RUN_LIMIT", "1048576", 1) == 0);
	one_worker(act, &one);
	unsetenv("GPUMEM_RUN");
	unsetenv("GPUMEM_RUN_LIMIT");
	tear_down();
}
END_TEST

START_TEST(a_program_without_the_driver_finds_no_driver)
{
	struct play one = {.route = "none", .scene = "no-driver", .socket = "/nowhere/socket"};
	struct play beside = {.route = "none",
		.scene = "no-driver-beside",
		.socket = "/nowhere/socket",
		.beside = true};

	one_worker(act, &one);
	one_worker(act, &beside);
}
END_TEST

/* ---- without a daemon */

/* Plays a scene where no daemon is, and reads what was printed. env: a further variable, or NULL. */
static void play_alone(const char *scene, const char *env, char *text, size_t size)
{
	char output[128];
	gm_scratch_path("preload-alone", output, sizeof output);
	struct play one = {.route = "dlsym",
		.scene = scene,
		.socket = "/nowhere/socket",
		.output = output,
		.env = env};

	one_worker(act, &one);
	read_file(output, text, size);
}

START_TEST(without_a_daemon_memory_is_refused_and_nothing_is_printed)
{
	char text[1024];

	play_alone("refused", NULL, text, sizeof text);
	ck_assert_str_eq(text, "");
}
END_TEST

START_TEST(the_report_counts_what_was_refused_without_a_daemon)
{
	char text[1024];

	play_alone("refused", "GPUMEM_RUN_REPORT=1", text, sizeof text);
	GM_REQUIRE(strstr(text, "0 allocations from gpumemd, 0B in all, "));
	GM_REQUIRE(!strstr(text, " 0 refused"));
	GM_REQUIRE(strstr(text, " refused; the last: cannot reach gpumemd at /nowhere/socket ("));
}
END_TEST

START_TEST(an_optional_daemon_that_is_missing_is_said_once)
{
	char text[1024];

	play_alone("plain", "GPUMEM_RUN_OPTIONAL=1", text, sizeof text);
	GM_REQUIRE(strstr(text, "gpumem-run: the program runs without gpumemd: ") == text);
	GM_REQUIRE(strchr(text, '\n') == text + strlen(text) - 1);
}
END_TEST

START_TEST(the_report_says_what_went_where)
{
	char output[128], text[1024];
	gm_scratch_path("preload-report", output, sizeof output);
	struct play one = {
		.route = "dlsym", .scene = "plain", .output = output, .env = "GPUMEM_RUN_REPORT=1"};

	start();
	one_worker(act, &one);
	read_file(output, text, sizeof text);
	GM_REQUIRE(strstr(text, "1 allocation from gpumemd, 24.0M in all, 0 refused\n") != NULL);
	one.scene = "passed";
	one_worker(act, &one);
	read_file(output, text, sizeof text);
	GM_REQUIRE(strstr(text, "0 refused; served by the driver: cuMemCreate 1\n") != NULL);
	tear_down();
}
END_TEST

/* 1: the library tried host memory next, and the daemon had none either. */
START_TEST(the_report_says_why_the_last_allocation_was_refused)
{
	char config[256], output[128], text[1024];
	gm_scratch_path("preload-why", output, sizeof output);
	struct play one = {.route = "dlsym",
		.scene = "fill",
		.output = output,
		.env = _i ? "GPUMEM_RUN_SPILL=1" : NULL};
	struct gm_worker worker;

	snprintf(config, sizeof config, CONFIG("host_limit = 0\n") "[limit uid:%u]\nmax = 128M\n",
		getuid());
	start_with(config);
	GM_REQUIRE(setenv("GPUMEM_RUN_REPORT", "1", 1) == 0);
	begin(&worker, &one);
	unsetenv("GPUMEM_RUN_REPORT");
	go_on(&worker);
	gm_worker_join(&worker);
	read_file(output, text, sizeof text);
	GM_REQUIRE(strstr(text, " 1 refused; the last: ") != NULL);
	GM_REQUIRE(strstr(text, " may hold 128.0M, holds 120.0M, asked for 24.0M\n") != NULL);
	tear_down();
}
END_TEST

START_TEST(gpumemctl_shows_how_often_the_driver_served)
{
	struct play one = {.route = "dlsym", .scene = "passed", .env = "ACTOR_SHOWS=1"};
	char ctl[512], command[1200];
	struct gm_worker worker;

	start();
	begin(&worker, &one);
	built(ctl, "ctl", "gpumemctl");
	snprintf(command, sizeof command,
		"'%s' --socket '%s' --csv --no-header clients --columns passed | grep -qx 2", ctl,
		daemon_.socket);
	/* The client publishes its figures within a second. */
	GM_UNTIL(system(command) == 0);
	go_on(&worker);
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

/* ---- more rights than its user's */

START_TEST(a_program_with_more_rights_than_its_user_is_left_alone)
{
	start();
	play_secure(NULL);
	tear_down();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("preload_ends");
	TCase *tc = tcase_create("preload_ends");
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, everything_comes_back_however_the_program_ends, 0, 4);
	tcase_add_test(tc, a_program_may_close_the_driver_and_open_it_again);
	tcase_add_test(tc, a_program_that_is_killed_leaves_nothing);
	tcase_add_test(tc, a_forked_child_does_not_use_the_session_of_its_parent);
	tcase_add_test(tc, a_child_does_not_wait_for_a_thread_that_connects);
	tcase_add_test(tc, parent_and_child_each_have_a_session);
	tcase_add_test(tc, a_program_that_takes_no_memory_has_no_session);
	tcase_add_test(tc, another_preloaded_library_works_as_before);
	tcase_add_test(tc, a_library_that_stands_before_ours_is_found_first);
	tcase_add_test(tc, a_library_finds_the_driver_in_its_own_scope);
	tcase_add_test(tc, a_gpu_that_the_daemon_does_not_serve_has_its_own_size);
	tcase_add_test(tc, a_program_without_the_driver_finds_no_driver);
	tcase_add_test(tc, without_a_daemon_memory_is_refused_and_nothing_is_printed);
	tcase_add_test(tc, the_report_counts_what_was_refused_without_a_daemon);
	tcase_add_test(tc, an_optional_daemon_that_is_missing_is_said_once);
	tcase_add_test(tc, the_report_says_what_went_where);
	tcase_add_loop_test(tc, the_report_says_why_the_last_allocation_was_refused, 0, 2);
	tcase_add_test(tc, gpumemctl_shows_how_often_the_driver_served);
	if (GM_TAP_WITH_USERS(a_program_with_more_rights_than_its_user_is_left_alone))
		tcase_add_test(tc, a_program_with_more_rights_than_its_user_is_left_alone);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
