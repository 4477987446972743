/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Whom gpumem-run trusts with its library in a user namespace, where root and all other users that it does
 * not map look alike. tests/gpu/check_gpumem_run.c has the rules that hold everywhere.
 */

#include "run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "tests/scratch.h"
#include "tests/tap.h"

#define UID_A 54321
#define UID_B 54322

/* The user of the namespace. */
static uid_t user;

/* Makes a folder in /tmp with a library, both of that owner. */
static void library_make(const char *name, uid_t owner, char path[256])
{
	char folder[200];

	gm_scratch_path(name, folder, sizeof(folder));
	snprintf(path, 256, "%s/library", folder);
	ck_assert_int_eq(mkdir(folder, 0755), 0);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_int_eq(chown(path, owner, (gid_t)-1), 0);
	ck_assert_int_eq(chown(folder, owner, (gid_t)-1), 0);
}

/* The scratch folder is emptied of files of this user only. */
static void library_remove(char path[256])
{
	unlink(path);
	*strrchr(path, '/') = 0;
	rmdir(path);
}

/* The child: enters the namespace, becomes its user once the test has mapped that, and says what
 * gpumem-run has against the library. */
static void library_judge(int test, const char *path)
{
	char why[GM_RUN_LIBRARY_WHY], word;

	if (unshare(CLONE_NEWUSER) < 0 || write(test, "u", 1) != 1 || read(test, &word, 1) != 1 ||
		setresuid(user, user, user) < 0)
		_exit(1);
	const char *said = gm_run_library_distrusts(path, why);
	if (!said)
		said = "nothing";
	_exit(write(test, said, strlen(said) + 1) < 0);
}

static void library_map(pid_t child)
{
	char path[64], map[64];
	int n = snprintf(map, sizeof(map), "%u %u 1", user, user);

	snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)child);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, map, (size_t)n), n);
	close(fd);
}

/* What gpumem-run says about the library in a namespace that maps the user alone. */
static void library_asked(const char *path, char said[GM_RUN_LIBRARY_WHY])
{
	char word;
	int channel[2], status;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel), 0);
	pid_t child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0)
		library_judge(channel[1], path);
	close(channel[1]);
	ck_assert_int_eq(read(channel[0], &word, 1), 1);
	library_map(child);
	ck_assert_int_eq(write(channel[0], "m", 1), 1);
	ck_assert_int_gt(read(channel[0], said, GM_RUN_LIBRARY_WHY), 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(channel[0]);
}

START_TEST(the_owner_of_the_folders_above_a_library_counts_as_root)
{
	char path[256], said[GM_RUN_LIBRARY_WHY];

	library_make("mine", user, path);
	library_asked(path, said);
	ck_assert_str_eq(said, "nothing");
	library_remove(path);
	library_asked("/usr/bin/env", said);
	ck_assert_str_eq(said, "nothing");
}
END_TEST

START_TEST(a_library_that_anybody_can_change_is_refused_for_that)
{
	char path[256], said[GM_RUN_LIBRARY_WHY];

	library_make("open", user, path);
	ck_assert_int_eq(chmod(path, 0666), 0);
	library_asked(path, said);
	ck_assert_str_eq(said, "it can be changed by all users");
	library_remove(path);
}
END_TEST

/* Everybody can make a folder there. */
START_TEST(a_folder_of_an_unknown_user_in_tmp_is_refused)
{
	char path[256], said[GM_RUN_LIBRARY_WHY];

	library_make("others", UID_B, path);
	library_asked(path, said);
	ck_assert_ptr_nonnull(strstr(said, " belongs to another user"));
	library_remove(path);
}
END_TEST

/* Returns 0, or why there can be no user namespaces, as an errno. */
static int namespaces_missing(void)
{
	int status;
	pid_t child = fork();

	if (child == 0)
		_exit(unshare(CLONE_NEWUSER) < 0 ? errno : 0);
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return ECHILD;
	return WEXITSTATUS(status);
}

int main(void)
{
	int missing = namespaces_missing();
	if (missing) {
		printf("1..0 # SKIP needs %suser namespaces: %s\n",
			geteuid() == 0 ? "" : "root or ", strerror(missing));
		return 0;
	}

	Suite *suite = suite_create("run_library");
	TCase *tc = tcase_create("run_library");
	user = gm_tap_has_users() ? UID_A : geteuid();
	tcase_add_test(tc, the_owner_of_the_folders_above_a_library_counts_as_root);
	tcase_add_test(tc, a_library_that_anybody_can_change_is_refused_for_that);
	if (GM_TAP_WITH_USERS(a_folder_of_an_unknown_user_in_tmp_is_refused))
		tcase_add_test(tc, a_folder_of_an_unknown_user_in_tmp_is_refused);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
