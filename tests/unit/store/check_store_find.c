/* SPDX-License-Identifier: Apache-2.0 */
/* Who may be behind the keeper's socket, and whom the keeper talks to. */
#include "daemon/store/store_find.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "common/wire/seqpacket.h"
#include "tests/unit/store/store_fixture.h"

#define NOBODY 65534

/* Listens on the path. */
static int listen_on(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	strcpy(address.sun_path, path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(fd, 4), 0);
	return fd;
}

static void expect_foreign(const char *path, const char *words)
{
	char why[GM_STORE_FIND_WHY] = "";
	int fd = -1;
	pid_t pid;
	int r = gm_store_find(path, &fd, &pid, why);
	ck_assert_msg(r == -EPERM, "%d: %s", r, why);
	ck_assert_msg(strstr(why, words) && strstr(why, "uid 65534"), "%s", why);
	/* What loses nothing comes first. */
	const char *first = strstr(why, "run the daemon as that user"),
		   *last = strstr(why, "gives up");
	ck_assert_msg(first && last && first < last, "%s", why);
	ck_assert_int_eq(fd, -1);
}

START_TEST(a_socket_of_another_user_is_refused)
{
	char path[256];
	world_scratch(path);
	int fd = listen_on(path);
	ck_assert_int_eq(chown(path, NOBODY, NOBODY), 0);
	expect_foreign(path, "the keeper's socket belongs to");
	close(fd);
}
END_TEST

START_TEST(a_socket_of_root_that_this_user_may_not_reach_is_said_to_be_roots)
{
	char path[256], why[GM_STORE_FIND_WHY] = "";
	int found = -1, status;
	pid_t pid;

	world_scratch(path);
	int fd = listen_on(path);
	ck_assert_int_eq(chmod(path, 0600), 0);
	*strrchr(path, '/') = '\0';
	ck_assert_int_eq(chmod(path, 0711), 0);
	path[strlen(path)] = '/';
	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		if (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0)
			_exit(1);
		int r = gm_store_find(path, &found, &pid, why);
		_exit(r == -EPERM && strstr(why, "the keeper's socket belongs to") &&
					strstr(why, "(uid 0)")
				? 0
				: 2);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	close(fd);
}
END_TEST

START_TEST(a_process_of_another_user_is_refused)
{
	char path[256];
	int ready[2], status;
	char byte;

	world_scratch(path);
	*strrchr(path, '/') = '\0';
	ck_assert_int_eq(chmod(path, 0777), 0);
	strcat(path, "/keeper");
	ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		if (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0)
			_exit(1);
		listen_on(path);
		if (write(ready[1], "x", 1) != 1)
			_exit(1);
		pause();
	}
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	/* It gave the socket's file away, and still listens. */
	ck_assert_int_eq(chown(path, 0, 0), 0);
	expect_foreign(path, "the process that listens belongs to");
	kill(child, SIGKILL);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
}
END_TEST

/* In a process that may not be the daemon: the keeper hangs up. */
static _Noreturn void be_refused(const char *path)
{
	struct gm_keeper_message hello = {.verb = GM_KEEPER_HELLO, .value = 1}, answer;
	struct pollfd p = {.events = POLLIN};
	struct gm_conn_packet packet;

	if (gm_seqpacket_connect(path, 10000, &p.fd) < 0)
		_exit(2);
	(void)gm_seqpacket_send(p.fd, &hello, sizeof(hello), NULL, 0);
	poll(&p, 1, -1);
	_exit(gm_seqpacket_receive(p.fd, &answer, sizeof(answer), &packet) == -EPIPE ? 0 : 3);
}

static void become_another_user(void)
{
	if (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0)
		_exit(1);
}

/* Goes on in a child in a pid namespace of its own, and ends as it does. */
static void enter_a_container(void)
{
	int status;

	if (unshare(CLONE_NEWPID) < 0)
		_exit(1);
	pid_t child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		return;
	}
	_exit(waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static void expect_silence(void (*become)(void))
{
	struct keep_world world;
	char path[256];
	int status, fd = world_memory(1);

	world_scratch(path);
	world_open(&world, path);
	ck_assert_int_eq(gm_store_deposit(world.store, GM_STORE_CHUNK, 1, fd, NULL), 0);
	world_close(&world, false);
	*strrchr(path, '/') = '\0';
	ck_assert_int_eq(chmod(path, 0755), 0);
	strcat(path, "/keeper");
	struct stat st;
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0600);
	/* As if somebody had opened it to all. */
	ck_assert_int_eq(chmod(path, 0666), 0);

	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		become();
		be_refused(path);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);

	/* The daemon still finds what it left. */
	world_open(&world, path);
	ck_assert_int_eq(gm_store_claim(world.store, GM_STORE_CHUNK, 1, &status), 0);
	close(status);
	close(fd);
	world_close(&world, true);
}

START_TEST(the_keeper_says_nothing_to_another_user)
{
	expect_silence(become_another_user);
}
END_TEST

START_TEST(the_keeper_says_nothing_to_a_container)
{
	expect_silence(enter_a_container);
}
END_TEST

START_TEST(a_process_in_a_container_is_refused)
{
	char path[256], byte, why[GM_STORE_FIND_WHY] = "";
	int ready[2], status, fd = -1;
	pid_t pid;

	world_scratch(path);
	ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		enter_a_container();
		listen_on(path);
		if (write(ready[1], "x", 1) != 1)
			_exit(1);
		pause();
	}
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	ck_assert_int_eq(gm_store_find(path, &fd, &pid, why), -EPERM);
	ck_assert_msg(strstr(why, "in a container"), "%s", why);
	ck_assert_int_eq(fd, -1);
	kill(child, SIGKILL);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
}
END_TEST

START_TEST(a_path_longer_than_an_address_is_no_obstacle)
{
	struct keep_world world;
	char path[512], word[60];

	gm_scratch_folder(path, 200);
	memset(word, 'd', sizeof(word) - 1);
	word[sizeof(word) - 1] = '\0';
	for (int i = 0; i < 3; i++) {
		strcat(path, "/");
		strcat(path, word);
		ck_assert_int_eq(mkdir(path, 0700), 0);
	}
	strcat(path, "/keeper");
	world_open(&world, path);
	world_close(&world, true);
}
END_TEST

START_TEST(a_file_that_is_no_socket_is_left_alone)
{
	char path[256];
	char why[GM_STORE_FIND_WHY];
	int fd = -1;
	pid_t pid;

	world_scratch(path);
	close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	ck_assert_int_lt(gm_store_find(path, &fd, &pid, why), 0);
	struct keep_world world;
	struct gm_store_options options = {.path = path, .program = world_keeper(), .wait_ms = 50};
	ck_assert_int_eq(world_try(&world, &options), -ECHILD);
	uv_run(&world.loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(access(path, F_OK), 0);
	ck_assert_int_eq(uv_loop_close(&world.loop), 0);
}
END_TEST

/* As after a change of the path of gpumemd.socket: the keeper that a service manager runs has another one. */
START_TEST(a_daemon_on_another_socket_hears_where_the_keeper_listens)
{
	char path[256];
	struct keep_world world;

	world_scratch(path);
	struct gm_store_options options = {.path = path, .wait_ms = 1};
	ck_assert_int_eq(world_try(&world, &options), -ENOENT);
	ck_assert_msg(
		strstr(world.why, path) &&
			strstr(world.why, "gpumemd-keeper.service listens on /run/gpumemd/keeper"),
		"%s", world.why);
	uv_run(&world.loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&world.loop), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("keep_find");
	TCase *tc = tcase_create("keep_find");
	if (GM_TAP_WITH_USERS(a_socket_of_another_user_is_refused))
		tcase_add_test(tc, a_socket_of_another_user_is_refused);
	if (GM_TAP_WITH_USERS(a_socket_of_root_that_this_user_may_not_reach_is_said_to_be_roots))
		tcase_add_test(
			tc, a_socket_of_root_that_this_user_may_not_reach_is_said_to_be_roots);
	if (GM_TAP_WITH_USERS(a_process_of_another_user_is_refused))
		tcase_add_test(tc, a_process_of_another_user_is_refused);
	if (GM_TAP_WITH_USERS(the_keeper_says_nothing_to_another_user))
		tcase_add_test(tc, the_keeper_says_nothing_to_another_user);
	if (GM_TAP_WITH_USERS(the_keeper_says_nothing_to_a_container))
		tcase_add_test(tc, the_keeper_says_nothing_to_a_container);
	if (GM_TAP_WITH_USERS(a_process_in_a_container_is_refused))
		tcase_add_test(tc, a_process_in_a_container_is_refused);
	tcase_add_test(tc, a_path_longer_than_an_address_is_no_obstacle);
	tcase_add_test(tc, a_file_that_is_no_socket_is_left_alone);
	tcase_add_test(tc, a_daemon_on_another_socket_hears_where_the_keeper_listens);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
