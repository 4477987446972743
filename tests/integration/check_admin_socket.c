/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The administrators' socket: whatever other users, or the administrator's own programs, do to the
 * socket for all, gpumemctl gets through.
 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/system/path.h"
#include "tests/integration/raw.h"
#include "tests/bound.h"
#include "tests/tap.h"

/* The exit status of gpumemctl. */
static int ctl(const struct gm_daemon *daemon, const char *verb)
{
	char program[512];
	const char *build = getenv("top_builddir");

	snprintf(program, sizeof(program), "%s/ctl/gpumemctl", build ? build : ".");
	pid_t pid = fork();
	GM_REQUIRE(pid >= 0);
	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY);
		dup2(null, STDOUT_FILENO);
		execl(program, program, "--socket", daemon->socket, verb, (char *)NULL);
		_exit(127);
	}
	int status;
	GM_REQUIRE_EQ(waitpid(pid, &status, 0), pid);
	GM_REQUIRE(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void admin_path(const struct gm_daemon *daemon, char path[GM_PATH_BYTES])
{
	GM_REQUIRE_EQ(gm_path_admin_socket(daemon->socket, path), 0);
}

START_TEST(it_lies_beside_the_other_for_administrators_only_and_goes_with_it)
{
	struct gm_daemon daemon;
	struct stat st;
	char path[GM_PATH_BYTES];

	gm_daemon_start(&daemon, NULL);
	admin_path(&daemon, path);
	GM_REQUIRE(!strcmp(strrchr(path, '/'), "/admin"));
	GM_REQUIRE(stat(path, &st) == 0 && S_ISSOCK(st.st_mode));
	GM_REQUIRE((st.st_mode & 07) == 0);
	gm_daemon_kill(&daemon);
	/* A dead daemon's is replaced. */
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon), -1);
	GM_REQUIRE_EQ(ctl(&daemon, "status"), 0);
	gm_daemon_stop(&daemon); /* requires that no file is left */
}
END_TEST

START_TEST(an_administrator_whose_own_connections_are_used_up_gets_in)
{
	struct gm_daemon daemon;
	struct gm_raw raws[4], one_more;

	gm_daemon_start(&daemon,
		&(struct gm_daemon_options){
			.config = GM_DAEMON_CONFIG_WITH("connections_per_uid = 4\n", "1G")});
	for (size_t i = 0; i < 4; i++)
		gm_raw_observe(&raws[i], &daemon);
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	hello.major = GM_WIRE_MAJOR;
	GM_REQUIRE_EQ(gm_raw_hello(&one_more, daemon.socket, &hello), GPUMEM_E_LIMIT);
	gm_raw_close(&one_more);
	GM_REQUIRE_EQ(ctl(&daemon, "trim"), 0);
	for (size_t i = 0; i < 4; i++)
		gm_raw_close(&raws[i]);
	gm_daemon_stop(&daemon);
}
END_TEST

/* Connects until the daemon has no descriptors left, and keeps them. */
static void take_all_descriptors(int channel, void *argument)
{
	static struct gm_raw raws[200];
	const struct gm_daemon *daemon = argument;
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	gpumem_status status = GPUMEM_OK;

	gm_become_stranger_if_possible();
	hello.major = GM_WIRE_MAJOR;
	for (size_t i = 0; i < 200 && status == GPUMEM_OK; i++)
		status = gm_raw_hello(&raws[i], daemon->socket, &hello);
	GM_REQUIRE(status != GPUMEM_OK);
	gm_text_say_word(channel, 'f');
	gm_hear_word(channel, 'e');
}

START_TEST(an_administrator_gets_in_when_there_are_no_descriptors_left)
{
	struct gm_daemon daemon;
	struct gm_worker worker;

	gm_daemon_start(&daemon, &(struct gm_daemon_options){.nofile = 128});
	gm_worker_start(&worker, take_all_descriptors, &daemon);
	gm_hear_word(worker.channel, 'f');
	/* One after the other, more often than the reserve has room. */
	for (int i = 0; i < 20; i++)
		GM_REQUIRE_EQ(ctl(&daemon, i % 2 ? "status" : "trim"), 0);
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(so_many_administrators_and_no_more)
{
	GM_BOUND_TEST(ADMIN_CONNECTIONS);
	static struct gm_raw raws[GM_BOUND_ADMIN_CONNECTIONS + 1];
	struct gm_daemon daemon;
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	char path[GM_PATH_BYTES];

	gm_daemon_start(&daemon, NULL);
	admin_path(&daemon, path);
	hello.major = GM_WIRE_MAJOR;
	hello.observer = true;
	for (size_t i = 0; i <= GM_BOUND_ADMIN_CONNECTIONS; i++)
		GM_REQUIRE_EQ(gm_raw_hello(&raws[i], path, &hello),
			i < GM_BOUND_ADMIN_CONNECTIONS ? GPUMEM_OK : GPUMEM_E_LIMIT);
	/* gpumemctl takes the other way then. */
	GM_REQUIRE_EQ(ctl(&daemon, "status"), 0);
	for (size_t i = 0; i <= GM_BOUND_ADMIN_CONNECTIONS; i++)
		gm_raw_close(&raws[i]);
	gm_daemon_stop(&daemon);
}
END_TEST

static void ask_as_stranger(int channel, void *argument)
{
	const struct gm_daemon *daemon = argument;
	struct gm_raw raw;
	char path[GM_PATH_BYTES];

	(void)channel;
	gm_become_stranger();
	admin_path(daemon, path);
	GM_REQUIRE_EQ(gm_raw_connect(&raw, path), -EACCES);
	GM_REQUIRE_EQ(ctl(daemon, "status"), 0);
}

START_TEST(other_users_may_not_open_it_and_use_the_one_for_all)
{
	struct gm_daemon daemon;
	struct gm_worker worker;

	gm_daemon_start(&daemon, NULL);
	gm_worker_start(&worker, ask_as_stranger, &daemon);
	gm_worker_join(&worker);
	gm_daemon_stop(&daemon);
}
END_TEST

/* ---- from a service manager */

static int listening(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	GM_REQUIRE(strlen(path) < sizeof(address.sun_path));
	strcpy(address.sun_path, path);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	GM_REQUIRE(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	GM_REQUIRE(listen(fd, 8) == 0);
	return fd;
}

START_TEST(a_passed_one_is_known_by_the_end_of_its_name)
{
	static const char *const names[] = {
		"gpumemd-admin.socket:gpumemd.socket", "mig1-admin.socket:mig1.socket"};
	struct gm_daemon daemon;
	char path[GM_PATH_BYTES];

	gm_daemon_prepare(&daemon, NULL);
	admin_path(&daemon, path);
	int admin = listening(path), fd = listening(daemon.socket);
	daemon.options.passed = (int[]){admin, fd};
	daemon.options.n_passed = 2;
	daemon.options.passed_names = names[_i];
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon), -1);
	close(fd);
	close(admin);
	struct gm_raw raw;
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	hello.major = GM_WIRE_MAJOR;
	hello.observer = true;
	GM_REQUIRE_EQ(gm_raw_hello(&raw, path, &hello), GPUMEM_OK);
	gm_raw_close(&raw);
	GM_REQUIRE_EQ(gm_daemon_said(&daemon, "passed"), 0);
	gm_daemon_signal(&daemon, SIGTERM);
	GM_REQUIRE_EQ(gm_daemon_wait(&daemon), 0);
	/* They belong to whoever passed them. */
	GM_REQUIRE(unlink(daemon.socket) == 0 && unlink(path) == 0);
	gm_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("admin socket");
	TCase *tests = tcase_create("admin socket");

	tcase_set_timeout(tests, 180);
	tcase_add_test(tests, it_lies_beside_the_other_for_administrators_only_and_goes_with_it);
	tcase_add_test(tests, an_administrator_whose_own_connections_are_used_up_gets_in);
	tcase_add_test(tests, an_administrator_gets_in_when_there_are_no_descriptors_left);
	tcase_add_test(tests, so_many_administrators_and_no_more);
	if (GM_TAP_WITH_USERS(other_users_may_not_open_it_and_use_the_one_for_all))
		tcase_add_test(tests, other_users_may_not_open_it_and_use_the_one_for_all);
	tcase_add_loop_test(tests, a_passed_one_is_known_by_the_end_of_its_name, 0, 2);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
