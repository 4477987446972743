/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a session begins, against a daemon that is there, gone, another version, or no daemon at all.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/system/path.h"
#include "common/wire/wire.h"
#include "tests/bound.h"
#include "tests/scratch.h"
#include "tests/tap.h"
#include "tests/unit/open_fds.h"
#include "tests/unit/session/session_fixture.h"

START_TEST(no_daemon_is_told_with_a_remedy)
{
	fake_away(fake);
	ck_assert_int_eq(try_connect(1000, &session), GPUMEM_E_DISCONNECTED);
	says(fake_path(fake));
	says("run 'gpumemd --socket /");
	ck_assert_ptr_null(session);
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	options.socket = "/nonexistent/socket";
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_E_DISCONNECTED);
	says("cannot reach gpumemd at /nonexistent/socket");
}
END_TEST

/* ---- a daemon that restarts */

/* Puts a keeper beside the daemon: a socket that nobody connects to. Returns it. */
static int keeper_there(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char path[GM_PATH_BYTES];

	ck_assert_int_eq(gm_path_keeper_socket(fake_path(fake), path), 0);
	ck_assert_uint_lt(strlen(path), sizeof(address.sun_path));
	strcpy(address.sun_path, path);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	return fd;
}

static void keeper_gone(void)
{
	char path[GM_PATH_BYTES];

	ck_assert_int_eq(gm_path_keeper_socket(fake_path(fake), path), 0);
	ck_assert_int_eq(unlink(path), 0);
}

static pid_t connecting; /* the thread that connects */
static sem_t connecting_now;

static void *connect_meanwhile(void *result)
{
	connecting = gettid();
	sem_post(&connecting_now);
	*(gpumem_status *)result = try_connect(20000, &session);
	return NULL;
}

/* Whether the thread sleeps in a call that waits for time to go by. */
static bool connecting_sleeps(void)
{
	char path[64], state = 0;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)connecting);
	FILE *file = fopen(path, "re");
	if (!file)
		return true; /* it has ended */
	int n = fscanf(file, "%*d (%*[^)]) %c", &state);
	fclose(file);
	return n == 1 && state == 'S';
}

START_TEST(a_program_that_begins_while_the_daemon_restarts_waits_for_it)
{
	gpumem_status status;
	pthread_t thread;
	int keeper = keeper_there();

	fake_away(fake);
	ck_assert_int_eq(sem_init(&connecting_now, 0, 0), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, connect_meanwhile, &status), 0);
	while (sem_wait(&connecting_now) < 0)
		;
	while (!connecting_sleeps())
		sched_yield();
	fake_back(fake);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_eq(status, GPUMEM_OK);
	/* The keeper serves daemons only: it must not see the program. */
	ck_assert_int_eq(accept(keeper, NULL, NULL), -1);
	ck_assert_int_eq(errno, EAGAIN);
	close(keeper);
	keeper_gone();
}
END_TEST

START_TEST(a_daemon_that_does_not_come_back_is_waited_for_as_long_as_the_program_says)
{
	gpumem_connect_options options = usual_options();
	int keeper = keeper_there();

	fake_away(fake);
	options.away_ms = 30;
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_E_DISCONNECTED);
	says("waited ");
	says(" for gpumemd to come back: cannot reach gpumemd at ");
	options.away_ms = 0;
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_E_DISCONNECTED);
	ck_assert_ptr_null(strstr(gpumem_error_detail(), "waited"));

	/* What a keeper left behind that was killed is no keeper. */
	close(keeper);
	options.away_ms = 3600000;
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_E_DISCONNECTED);
	ck_assert_ptr_null(strstr(gpumem_error_detail(), "waited"));
	keeper_gone();
}
END_TEST

START_TEST(the_socket_is_found_through_the_environment)
{
	setenv("GPUMEM_SOCKET", fake_path(fake), 1);
	ck_assert_int_eq(gpumem_connect(NULL, &session), GPUMEM_OK);
	gpumem_disconnect(session);
	session = NULL;
	setenv("GPUMEM_SOCKET", "/nonexistent/socket", 1);
	ck_assert_int_eq(gpumem_connect(NULL, &session), GPUMEM_E_DISCONNECTED);
	says("(GPUMEM_SOCKET)");
}
END_TEST

START_TEST(a_users_socket_without_a_daemon_is_named_together_with_the_systems)
{
	char base[64], folder[96], path[128];

	gm_scratch_folder(base, sizeof(base));
	snprintf(folder, sizeof(folder), "%s/gpumemd", base);
	snprintf(path, sizeof(path), "%s/socket", folder);
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	FILE *left = fopen(path, "wxe");
	ck_assert_ptr_nonnull(left);
	fclose(left);
	unsetenv("GPUMEM_SOCKET");
	setenv("XDG_RUNTIME_DIR", base, 1);

	ck_assert_int_eq(gpumem_connect(NULL, &session), GPUMEM_E_DISCONNECTED);
	says(path);
	says("(the user's daemon)");
	says("/run/gpumemd/socket (the system's daemon)");
	says("this is a file, not a socket");
	unlink(path);
	rmdir(folder);
	rmdir(base);
}
END_TEST

START_TEST(a_socket_path_past_the_limit_is_refused)
{
	GM_BOUND_TEST(SOCKET_PATH_BYTES);
	char path[GM_BOUND_SOCKET_PATH_BYTES + 2];
	memset(path, 'x', sizeof(path) - 1);
	path[0] = '/';
	path[sizeof(path) - 1] = '\0';
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	options.socket = path;
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_E_INVALID);
	says("longer than 107 bytes");
	static char huge[3 * PATH_MAX];
	memset(huge, 'x', sizeof(huge) - 1);
	options.socket = huge;
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_E_INVALID);
	path[GM_BOUND_SOCKET_PATH_BYTES] = '\0';
	options.socket = path;
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_E_DISCONNECTED);
}
END_TEST

START_TEST(the_remedy_is_whole_also_for_the_longest_path_in_a_deep_folder)
{
	char folder[64], deep[201], path[GM_BOUND_SOCKET_PATH_BYTES + 1], end[160];
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;

	gm_scratch_folder(folder, sizeof(folder));
	ck_assert_int_eq(chdir(folder), 0);
	memset(deep, 'd', sizeof(deep) - 1);
	deep[sizeof(deep) - 1] = '\0';
	ck_assert_int_eq(mkdir(deep, 0700), 0);
	ck_assert_int_eq(chdir(deep), 0);
	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';

	options.socket = path;
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_E_DISCONNECTED);
	const char *text = gpumem_error_detail();
	snprintf(end, sizeof(end), "run 'gpumemd --socket %s'", path);
	ck_assert_msg(strlen(text) > strlen(end), "%s", text);
	ck_assert_str_eq(text + strlen(text) - strlen(end), end);
	says("does not exist (in ...ddd");
}
END_TEST

START_TEST(another_major_version_is_refused_and_a_newer_minor_is_not)
{
	struct fake_will will = {.major = GM_WIRE_MAJOR + 1};
	fake_will(fake, &will);
	ck_assert_int_eq(try_connect(20000, &session), GPUMEM_E_VERSION);
	says("install matching versions");
	will = (struct fake_will){.refuse = GPUMEM_E_VERSION};
	fake_will(fake, &will);
	ck_assert_int_eq(try_connect(20000, &session), GPUMEM_E_VERSION);
	says("refused by the test");
	will = (struct fake_will){.minor = GM_WIRE_MINOR + 7};
	fake_will(fake, &will);
	ck_assert_int_eq(try_connect(20000, &session), GPUMEM_OK);
}
END_TEST

START_TEST(what_is_no_gpumemd_is_not_taken_for_one)
{
	unsigned before = open_fds();
	struct fake_will will = {.nonsense_hello = true};
	fake_will(fake, &will);
	ck_assert_int_eq(try_connect(20000, &session), GPUMEM_E_PROTOCOL);
	will = (struct fake_will){.mute_hello = true};
	fake_will(fake, &will);
	ck_assert_int_eq(try_connect(20, &session), GPUMEM_E_TIMEOUT);
	says("did not answer the hello");
	will = (struct fake_will){.drop = GM__WIRE__PACKET__BODY_HELLO};
	fake_will(fake, &will);
	ck_assert_int_eq(try_connect(20000, &session), GPUMEM_E_DISCONNECTED);
	says("before it answered the hello");
	fake_hang_up(fake);
	fake_will(fake, &(struct fake_will){0});
	/* Pages and wakeups of the fake come and go with each hello: two page fds and one wakeup
	 * stay with it. */
	ck_assert_uint_le(open_fds(), before + 2);
}
END_TEST

START_TEST(names_are_checked)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	char name[GM_BOUND_NAME_BYTES + 2];
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	options.socket = fake_path(fake);
	options.name = name;
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_E_INVALID);
	says("at most 63 bytes");
	options.name = "a\nb";
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_connect(&options, NULL), GPUMEM_E_INVALID);
	name[GM_BOUND_NAME_BYTES] = '\0';
	options.name = name;
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_OK);
}
END_TEST

START_TEST(options_of_another_size_are_read_as_far_as_they_go)
{
	struct {
		gpumem_connect_options known;
		char unknown[64];
	} newer = {.known = GPUMEM_CONNECT_OPTIONS_INIT};
	newer.known.size = sizeof(newer);
	newer.known.socket = fake_path(fake);
	memset(newer.unknown, 0xff, sizeof(newer.unknown));
	ck_assert_int_eq(gpumem_connect(&newer.known, &session), GPUMEM_OK);
	/* An older program: it knows the socket and nothing behind it. */
	gpumem_connect_options older = GPUMEM_CONNECT_OPTIONS_INIT;
	older.size = offsetof(gpumem_connect_options, name);
	older.socket = fake_path(fake);
	older.name = (const char *)1;
	gpumem_session *second;
	ck_assert_int_eq(gpumem_connect(&older, &second), GPUMEM_OK);
	gpumem_disconnect(second);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("connect");
	TCase *tc = tcase_create("connecting");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, daemon_only, tear_down);
	tcase_add_test(tc, no_daemon_is_told_with_a_remedy);
	tcase_add_test(tc, a_program_that_begins_while_the_daemon_restarts_waits_for_it);
	tcase_add_test(
		tc, a_daemon_that_does_not_come_back_is_waited_for_as_long_as_the_program_says);
	tcase_add_test(tc, the_socket_is_found_through_the_environment);
	tcase_add_test(tc, a_users_socket_without_a_daemon_is_named_together_with_the_systems);
	tcase_add_test(tc, a_socket_path_past_the_limit_is_refused);
	tcase_add_test(tc, the_remedy_is_whole_also_for_the_longest_path_in_a_deep_folder);
	tcase_add_test(tc, another_major_version_is_refused_and_a_newer_minor_is_not);
	tcase_add_test(tc, what_is_no_gpumemd_is_not_taken_for_one);
	tcase_add_test(tc, names_are_checked);
	tcase_add_test(tc, options_of_another_size_are_read_as_far_as_they_go);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
