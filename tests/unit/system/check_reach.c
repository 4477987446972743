/* SPDX-License-Identifier: Apache-2.0 */

/* Why a daemon is not reached: each cause is told apart from the others, and has its remedy. */

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/system/path.h"
#include "common/system/reach.h"
#include "common/wire/seqpacket.h"
#include "tests/scratch.h"
#include "tests/tap.h"

static char base[64];
static struct gm_reach reach;

static void setup(void)
{
	gm_scratch_folder(base, sizeof(base));
	ck_assert_int_eq(chmod(base, 0755), 0);
	ck_assert_int_eq(chdir(base), 0);
}

/* A socket of this type with that name in the folder, on which nobody listens. */
static void leave_socket(const char *name, int type)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int s = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", name);
	ck_assert_int_eq(bind(s, (struct sockaddr *)&address, sizeof(address)), 0);
	close(s);
}

/* Connects, which fails, and checks the explanation. */
static void explains(const char *path, int error, const char *cause, const char *remedy)
{
	int s = -1, r = gm_seqpacket_connect(path, 1000, &s);

	ck_assert_int_lt(r, 0);
	gm_reach_explain(path, r, &reach);
	ck_assert_int_eq(reach.error, error);
	ck_assert_msg(strstr(reach.cause, cause), "%s", reach.cause);
	ck_assert_msg(strstr(reach.remedy, remedy), "%s", reach.remedy);
}

START_TEST(a_socket_that_is_missing)
{
	char path[128], nowhere[128];

	snprintf(path, sizeof(path), "%s/mine", base);
	snprintf(nowhere, sizeof(nowhere), "%s/no/mine", base);
	explains(path, -ENOENT, "the socket does not exist", "run 'gpumemd --socket /");
	ck_assert_ptr_null(strstr(reach.cause, "(in "));
	explains(nowhere, -ENOENT, "its folder does not exist", "check the path");
	gm_reach_explain(GM_SYSTEM_SOCKET, -ENOENT, &reach);
	/* Only where systemd runs can it start the daemon, or make the socket again. */
	if (access("/run/systemd/system", F_OK) == 0)
		ck_assert_ptr_nonnull(strstr(reach.remedy,
			"run 'systemctl start gpumemd', or 'systemctl restart gpumemd.socket'"));
	else
		ck_assert_ptr_nonnull(strstr(reach.remedy, "run 'gpumemd'"));
}
END_TEST

START_TEST(a_socket_that_was_removed_while_its_daemon_runs)
{
	char path[128], lock[160], kill_it[32];

	snprintf(path, sizeof(path), "%s/mine", base);
	snprintf(lock, sizeof(lock), "%s.lock", path);
	int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	snprintf(kill_it, sizeof(kill_it), "'kill %d'", (int)getpid());
	/* Some file systems hide which process has a lock. */
	if (gm_path_lock_holder(path) == getpid())
		explains(path, -ENOENT, "somebody has removed the socket", kill_it);
	else
		ck_assert_int_eq(gm_path_lock_holder(path), -1);
	ck_assert_int_eq(close(fd), 0);
	explains(path, -ENOENT, "the socket does not exist", "run 'gpumemd --socket /");
	ck_assert_int_le(gm_path_lock_holder(path), 0);
}
END_TEST

START_TEST(a_relative_path_is_named_with_the_folder_that_it_begins_in)
{
	explains("mine", -ENOENT, base, "run 'gpumemd --socket mine'");
	ck_assert_ptr_nonnull(strstr(reach.cause, "the socket does not exist (in /"));
	explains("no/mine", -ENOENT, "its folder does not exist (in /", "check the path");
}
END_TEST

START_TEST(what_is_no_socket)
{
	FILE *file = fopen("file", "wxe");

	ck_assert_ptr_nonnull(file);
	fclose(file);
	ck_assert_int_eq(mkdir("folder", 0755), 0);
	explains("file", -ENOTSOCK, "this is a file", GM_SYSTEM_SOCKET);
	explains("folder", -ENOTSOCK, "this is a folder", GM_SYSTEM_SOCKET);
	explains("file/socket", -ENOTDIR, "a part of the path is a file", "check the path");
}
END_TEST

START_TEST(a_file_that_the_user_may_not_write_to_is_no_socket_either)
{
	FILE *file = fopen("file", "wxe");

	ck_assert_ptr_nonnull(file);
	fclose(file);
	ck_assert_int_eq(chmod("file", 0444), 0);
	bool root = geteuid() == 0;
	ck_assert(!root || seteuid(4711) == 0);
	explains("file", -ENOTSOCK, "this is a file, not a socket", "name the socket of a daemon");
	ck_assert(!root || seteuid(0) == 0);
}
END_TEST

START_TEST(a_socket_that_nobody_listens_on)
{
	leave_socket("left", SOCK_SEQPACKET);
	explains("left", -ECONNREFUSED, "has ended",
		"to start it again, run 'gpumemd --socket left'");
}
END_TEST

START_TEST(nobody_is_told_to_start_a_daemon_where_only_another_user_may)
{
	char remedy[128], number[32];
	bool root = geteuid() == 0;
	uid_t owner = root ? 1 : geteuid();

	ck_assert_int_eq(mkdir("others", 0755), 0);
	leave_socket("others/left", SOCK_SEQPACKET);
	ck_assert_int_eq(chmod("others/left", 0666), 0);
	ck_assert(!root || chown("others", owner, (gid_t)-1) == 0);
	ck_assert_int_eq(chmod("others", 0555), 0);
	ck_assert(!root || seteuid(4711) == 0);
	const struct passwd *user = getpwuid(owner);
	snprintf(number, sizeof(number), "uid %u", (unsigned)owner);
	snprintf(remedy, sizeof(remedy), "ask %s, to whom its folder belongs",
		user ? user->pw_name : number);
	explains("others/left", -ECONNREFUSED, "has ended", remedy);
	explains("others/mine", -ENOENT, "the socket does not exist", remedy);

	/* An ordinary user's daemon does not listen there. */
	gm_reach_explain(GM_SYSTEM_SOCKET, -ENOENT, &reach);
	if (geteuid() >= GM_PATH_USER_UIDS)
		ck_assert_msg(strstr(reach.remedy, "run 'gpumemd' for a daemon of your own"), "%s",
			reach.remedy);
	ck_assert(!root || seteuid(0) == 0);
	ck_assert_int_eq(chmod("others", 0755), 0);
}
END_TEST

START_TEST(a_socket_that_the_user_may_not_use)
{
	bool root = geteuid() == 0;

	ck_assert_int_eq(mkdir("closed", 0755), 0);
	leave_socket("private", SOCK_SEQPACKET);
	leave_socket("closed/inside", SOCK_SEQPACKET);
	ck_assert_int_eq(chmod("private", root ? 0600 : 0), 0);
	ck_assert_int_eq(chmod("closed", root ? 0700 : 0), 0);
	ck_assert(!root || seteuid(4711) == 0);
	explains("private", -EACCES, "may not open the socket", "'ls -ld private' shows which");
	explains("closed/inside", -EACCES, "may not enter its folder", "'ls -ld closed' shows");
	explains("private", -EACCES, "may not open", "shows which user may; no group may");
	explains("closed/inside", -EACCES, "may not enter", "shows which user may; no group may");
	ck_assert(!root || seteuid(0) == 0);

	/* A group is offered only where there is one that may. */
	ck_assert(!root || (chown("private", 0, 4712) == 0 && chown("closed", 0, 4712) == 0));
	ck_assert_int_eq(chmod("private", root ? 0660 : 0060), 0);
	ck_assert_int_eq(chmod("closed", root ? 0710 : 0010), 0);
	ck_assert(!root || seteuid(4711) == 0);
	explains("private", -EACCES, "may not open", "can add users to the group");
	explains("closed/inside", -EACCES, "may not enter", "can add users to the group");
	ck_assert(!root || seteuid(0) == 0);
	ck_assert_int_eq(chmod("closed", 0700), 0);
}
END_TEST

START_TEST(a_socket_of_another_program)
{
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "other"};

	ck_assert_int_eq(bind(s, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(s, 1), 0);
	explains("other", -EPROTOTYPE, "another program listens there", "check the path");
	close(s);
}
END_TEST

START_TEST(a_path_that_no_socket_can_have)
{
	char longest[GM_BOUND_SOCKET_PATH_BYTES + 2];

	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	explains(longest, -ENAMETOOLONG, "107", "use a shorter one");
	explains("", -EINVAL, "empty", "name a socket");
}
END_TEST

START_TEST(a_daemon_that_does_not_answer_and_an_error_that_nobody_expects)
{
	gm_reach_explain(GM_SYSTEM_SOCKET, -ETIMEDOUT, &reach);
	ck_assert_ptr_nonnull(strstr(reach.cause, "accepts no connections"));
	gm_reach_explain(GM_SYSTEM_SOCKET, -EIO, &reach);
	ck_assert_str_eq(reach.cause, strerror(EIO));
	ck_assert_ptr_nonnull(strstr(reach.remedy, "systemctl status gpumemd"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("reach");
	TCase *tc = tcase_create("reach");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, a_socket_that_is_missing);
	tcase_add_test(tc, a_socket_that_was_removed_while_its_daemon_runs);
	tcase_add_test(tc, a_relative_path_is_named_with_the_folder_that_it_begins_in);
	tcase_add_test(tc, what_is_no_socket);
	if (geteuid() != 0 ||
		GM_TAP_WITH_USERS(a_file_that_the_user_may_not_write_to_is_no_socket_either))
		tcase_add_test(tc, a_file_that_the_user_may_not_write_to_is_no_socket_either);
	tcase_add_test(tc, a_socket_that_nobody_listens_on);
	tcase_add_test(tc, nobody_is_told_to_start_a_daemon_where_only_another_user_may);
	if (geteuid() != 0 || GM_TAP_WITH_USERS(a_socket_that_the_user_may_not_use))
		tcase_add_test(tc, a_socket_that_the_user_may_not_use);
	tcase_add_test(tc, a_socket_of_another_program);
	tcase_add_test(tc, a_path_that_no_socket_can_have);
	tcase_add_test(tc, a_daemon_that_does_not_answer_and_an_error_that_nobody_expects);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
