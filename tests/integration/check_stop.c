/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl stop: when it returns, the daemon has ended, and the next one can start at once.
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/raw.h"
#include "tests/tap.h"

#define TIMES 30

/* Returns the exit status of gpumemctl stop. */
static int stop(const struct gm_daemon *daemon, const char *option)
{
	const char *build = getenv("top_builddir");
	char program[512];
	int status;

	snprintf(program, sizeof(program), "%s/ctl/gpumemctl", build ? build : ".");
	pid_t pid = fork();
	GM_REQUIRE(pid >= 0);
	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY);
		dup2(null, STDOUT_FILENO);
		execl(program, program, "--timeout", "60s", "--socket", daemon->socket, "stop",
			option, (char *)NULL);
		_exit(127);
	}
	GM_REQUIRE_EQ(waitpid(pid, &status, 0), pid);
	GM_REQUIRE(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static bool answers(const char *path)
{
	struct gm_raw raw;

	if (gm_raw_connect(&raw, path) < 0)
		return false;
	gm_raw_close(&raw);
	return true;
}

/* Nobody holds the lock that keeps other daemons from the socket. */
static bool lock_is_free(const struct gm_daemon *daemon)
{
	char path[sizeof(daemon->socket) + 8];

	snprintf(path, sizeof(path), "%s.lock", daemon->socket);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT;
	bool got = flock(fd, LOCK_EX | LOCK_NB) == 0;
	close(fd);
	return got;
}

static void require_ended(struct gm_daemon *daemon)
{
	struct pollfd process = {.fd = daemon->pidfd, .events = POLLIN};

	GM_REQUIRE_EQ(poll(&process, 1, 0), 1);
	GM_REQUIRE(!answers(daemon->socket));
	GM_REQUIRE(lock_is_free(daemon));
	int status = gm_daemon_wait(daemon);
	GM_REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

START_TEST(when_stop_returns_the_daemon_has_ended_and_the_next_one_starts)
{
	struct gm_daemon daemon;

	gm_daemon_prepare(&daemon, NULL);
	for (int i = 0; i < TIMES; i++) {
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon), -1);
		GM_REQUIRE_EQ(stop(&daemon, i % 2 ? "--forget" : NULL), 0);
		require_ended(&daemon);
	}
	gm_daemon_stop(&daemon);
}
END_TEST

/* Then the keeper goes on without the daemon, and must keep none of its files. */
START_TEST(so_it_is_if_a_client_holds_memory)
{
	struct gm_daemon daemon;
	struct gm_raw raw;
	struct gm_raw_lease lease;

	gm_daemon_start(&daemon, NULL);
	gm_raw_join(&raw, &daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, 1, &lease), GPUMEM_OK);
	for (int i = 0; i < TIMES; i++) {
		GM_REQUIRE_EQ(stop(&daemon, NULL), 0);
		require_ended(&daemon);
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon), -1);
	}
	GM_REQUIRE_EQ(gm_figures_now(&daemon).quarantined, lease.bytes);
	gm_raw_lease_clear(&lease);
	gm_raw_close(&raw);
	GM_REQUIRE_EQ(stop(&daemon, "--forget"), 0);
	require_ended(&daemon);
	gm_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stop");
	TCase *tc = tcase_create("stop");

	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, when_stop_returns_the_daemon_has_ended_and_the_next_one_starts);
	tcase_add_test(tc, so_it_is_if_a_client_holds_memory);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
