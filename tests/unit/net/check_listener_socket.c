/* SPDX-License-Identifier: Apache-2.0 */

/* The socket: one that the daemon makes, and one that the service manager made. */

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/system/path.h"
#include "daemon/net/listener_socket.h"
#include "tests/tap.h"

/* ---- a socket that the daemon makes */

/* The mode that the socket must have before anybody can connect. 0: nobody looks. */
static mode_t watched;
static unsigned looks;

/* As an ordinary user sees it: root may connect whatever the mode says. */
static void obey_modes(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	ck_assert_int_eq(syscall(SYS_capget, &header, data), 0);
	data[0].effective &= ~(1U << CAP_DAC_OVERRIDE);
	ck_assert_int_eq(syscall(SYS_capset, &header, data), 0);
}

/* A client that tries to connect now hears that nobody listens, not that it may not. */
static void look(const struct sockaddr_un *address)
{
	int client = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(client, 0);
	ck_assert_int_eq(connect(client, (const struct sockaddr *)address, sizeof(*address)), -1);
	ck_assert_int_eq(errno, ECONNREFUSED);
	close(client);
	looks++;
}

int bind(int fd, const struct sockaddr *address, socklen_t n)
{
	int r = (int)syscall(SYS_bind, fd, address, n);

	if (r == 0 && watched)
		look((const struct sockaddr_un *)address);
	return r;
}

int listen(int fd, int backlog)
{
	struct sockaddr_un address;
	socklen_t n = sizeof(address);
	struct stat st;

	if (watched) {
		ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &n), 0);
		look(&address);
		ck_assert_int_eq(stat(address.sun_path, &st), 0);
		ck_assert_uint_eq(st.st_mode & 07777, watched);
	}
	return (int)syscall(SYS_listen, fd, backlog);
}

START_TEST(a_daemon_that_starts_never_denies_its_socket_to_those_who_may_use_it)
{
	struct gm_listener_socket endpoint, admin;
	char folder[] = "/tmp/gpumem-endpoint-XXXXXX";
	char path[64], why[GM_LISTENER_SOCKET_WHY];

	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/socket", folder);
	obey_modes();
	watched = 0666;
	ck_assert_int_eq(gm_listener_socket_open(&endpoint, path, 0666, "", why), 0);
	ck_assert_uint_eq(looks, 2);
	watched = 0600;
	ck_assert_int_eq(gm_listener_socket_open_admin(&admin, &endpoint, (gid_t)-1, why), 0);
	ck_assert_uint_eq(looks, 4);
	watched = 0;
	gm_listener_socket_close(&admin);
	gm_listener_socket_close(&endpoint);
	ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

/* Ends when somebody looks whether it listens. Until then it has the path. */
static void be_ending_daemon(const char *path, int report)
{
	struct gm_listener_socket endpoint;
	char why[GM_LISTENER_SOCKET_WHY];
	struct pollfd p = {.events = POLLIN};

	if (gm_listener_socket_open(&endpoint, path, 0666, "", why) < 0 ||
		write(report, "", 1) != 1)
		_exit(1);
	p.fd = endpoint.socket;
	poll(&p, 1, -1);
	_exit(0);
}

START_TEST(a_daemon_that_is_ending_does_not_keep_the_next_one_away)
{
	struct gm_listener_socket endpoint;
	char folder[] = "/tmp/gpumem-endpoint-XXXXXX";
	char path[64], why[GM_LISTENER_SOCKET_WHY], byte;
	int ends[2];

	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/socket", folder);
	ck_assert_int_eq(pipe(ends), 0);
	pid_t child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0)
		be_ending_daemon(path, ends[1]);
	ck_assert_int_eq(read(ends[0], &byte, 1), 1);
	int r = gm_listener_socket_open(&endpoint, path, 0666, "", why);
	ck_assert_msg(r == 0, "%s", why);
	gm_listener_socket_close(&endpoint);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

/* The test is no gpumemd. It holds the lock as any program can that may write in the folder. */
START_TEST(a_lock_of_another_program_is_named_with_its_user_and_pid)
{
	struct gm_listener_socket endpoint;
	char folder[] = "/tmp/gpumem-endpoint-XXXXXX";
	char path[64], lock[80], why[GM_LISTENER_SOCKET_WHY], pid[32];

	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/socket", folder);
	snprintf(lock, sizeof(lock), "%s.lock", path);
	int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	ck_assert_int_eq(gm_listener_socket_open(&endpoint, path, 0666, "", why), -EADDRINUSE);
	snprintf(pid, sizeof(pid), "(pid %d, user ", (int)getpid());
	/* Some file systems hide which process has a lock. */
	if (gm_path_lock_holder(path) > 0) {
		ck_assert_msg(strncmp(why, "check_listener", strlen("check_listener")) == 0 &&
				      strstr(why, pid) &&
				      strstr(why, ", which is no gpumemd, holds the lock /tmp/") &&
				      strstr(why, "end it with 'kill "),
			"%s", why);
	} else {
		ck_assert_msg(strstr(why, "a process that cannot be seen from here") &&
				      strstr(why, "'fuser -v /tmp/"),
			"%s", why);
	}
	close(fd);
	unlink(lock);
	ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

/* ---- a socket that the service manager made */

/* A path that leaves no room for a 0 byte in its address. */
START_TEST(a_passed_socket_has_its_whole_path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct gm_listener_socket endpoint;
	char folder[] = "/tmp/gpumem-endpoint-XXXXXX";
	char why[GM_LISTENER_SOCKET_WHY];
	int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(made, 0);
	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_int_eq(chdir(folder), 0);
	memset(address.sun_path, 'p', sizeof(address.sun_path));
	ck_assert_int_eq(bind(made, (struct sockaddr *)&address, sizeof(address)), 0);
	memset(&endpoint, 'x', sizeof(endpoint));
	ck_assert_int_eq(gm_listener_socket_adopt(&endpoint, made, why), 0);
	ck_assert_uint_eq(strlen(endpoint.path), sizeof(address.sun_path));
	ck_assert_int_eq(strncmp(endpoint.path, address.sun_path, sizeof(address.sun_path)), 0);
	ck_assert_int_eq(unlink(endpoint.path), 0);
	ck_assert_int_eq(rmdir(folder), 0);
	gm_listener_socket_close(&endpoint);
}
END_TEST

START_TEST(one_without_a_path_is_taken_too)
{
	struct gm_listener_socket endpoint;
	char why[GM_LISTENER_SOCKET_WHY];
	int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(made, 0);
	ck_assert_int_eq(gm_listener_socket_adopt(&endpoint, made, why), 0);
	ck_assert_str_eq(endpoint.path, "(passed, without a path)");
	gm_listener_socket_close(&endpoint);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("endpoint");
	TCase *tests = tcase_create("endpoint");

	tcase_add_test(tests, a_daemon_that_starts_never_denies_its_socket_to_those_who_may_use_it);
	tcase_add_test(tests, a_daemon_that_is_ending_does_not_keep_the_next_one_away);
	tcase_add_test(tests, a_lock_of_another_program_is_named_with_its_user_and_pid);
	tcase_add_test(tests, a_passed_socket_has_its_whole_path);
	tcase_add_test(tests, one_without_a_path_is_taken_too);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
