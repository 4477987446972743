/* SPDX-License-Identifier: Apache-2.0 */

/* Where daemons listen, and whose folder is believed. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/system/path.h"
#include "tests/scratch.h"
#include "tests/tap.h"

static char base[64];
static char folder[128], socket_path[160];

static void setup(void)
{
	gm_scratch_folder(base, sizeof(base));
	snprintf(folder, sizeof(folder), "%s/gpumemd", base);
	snprintf(socket_path, sizeof(socket_path), "%s/socket", folder);
	ck_assert_int_eq(setenv("XDG_RUNTIME_DIR", base, 1), 0);
	ck_assert_int_eq(unsetenv("GPUMEM_SOCKET"), 0);
}

static void teardown(void)
{
	unlink(socket_path);
	if (rmdir(folder) < 0)
		unlink(folder);
	char elsewhere[160];
	snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere/socket", base);
	unlink(elsewhere);
	snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", base);
	rmdir(elsewhere);
	ck_assert_int_eq(rmdir(base), 0);
}

static void make_file(const char *path)
{
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
}

static void expect(const char *path, const char *why)
{
	char found[GM_PATH_BYTES];
	const char *because = NULL;

	ck_assert_int_eq(gm_path_client_socket(found, &because), 0);
	ck_assert_str_eq(found, path);
	ck_assert_str_eq(because, why);
}

START_TEST(a_users_socket_is_in_the_runtime_directory)
{
	char path[GM_PATH_BYTES];

	ck_assert_int_eq(gm_path_user_socket(1000, path), 0);
	ck_assert_str_eq(path, socket_path);
}
END_TEST

START_TEST(without_a_runtime_directory_it_is_in_tmp_under_the_uid)
{
	char path[GM_PATH_BYTES];

	unsetenv("XDG_RUNTIME_DIR");
	ck_assert_int_eq(gm_path_user_socket(4294967294u, path), 0);
	ck_assert_str_eq(path, "/tmp/gpumemd-4294967294/socket");
	setenv("XDG_RUNTIME_DIR", "relative/one", 1);
	ck_assert_int_eq(gm_path_user_socket(1000, path), 0);
	ck_assert_str_eq(path, "/tmp/gpumemd-1000/socket");
	setenv("XDG_RUNTIME_DIR", "", 1);
	ck_assert_int_eq(gm_path_user_socket(0, path), 0);
	ck_assert_str_eq(path, "/tmp/gpumemd-0/socket");
}
END_TEST

START_TEST(a_path_without_room_is_refused_and_writes_nothing)
{
	static char longest[GM_PATH_BYTES + 1];
	char path[GM_PATH_BYTES] = "untouched";
	const char *why = "untouched";

	memset(longest, 'x', GM_PATH_BYTES);
	longest[0] = '/';
	setenv("XDG_RUNTIME_DIR", longest, 1);
	ck_assert_int_eq(gm_path_user_socket(1000, path), -ENAMETOOLONG);
	setenv("GPUMEM_SOCKET", longest, 1);
	ck_assert_int_eq(gm_path_client_socket(path, &why), -ENAMETOOLONG);
	ck_assert_str_eq(path, "untouched");
	ck_assert_str_eq(why, "untouched");
	/* The longest that has room. */
	longest[GM_PATH_BYTES - 1] = '\0';
	setenv("GPUMEM_SOCKET", longest, 1);
	expect(longest, "GPUMEM_SOCKET");
	/* A folder too long to be a user's is none; the system's daemon is still there. */
	unsetenv("GPUMEM_SOCKET");
	setenv("XDG_RUNTIME_DIR", longest, 1);
	expect(GM_SYSTEM_SOCKET, "the system's daemon");
}
END_TEST

START_TEST(the_named_socket_comes_first)
{
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	make_file(socket_path);
	setenv("GPUMEM_SOCKET", "/nowhere/at/all", 1);
	expect("/nowhere/at/all", "GPUMEM_SOCKET");
	setenv("GPUMEM_SOCKET", "", 1);
	expect(socket_path, "the user's daemon");
}
END_TEST

START_TEST(the_users_comes_before_the_systems_if_it_is_there)
{
	expect(GM_SYSTEM_SOCKET, "the system's daemon");
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	expect(GM_SYSTEM_SOCKET, "the system's daemon");
	make_file(socket_path);
	expect(socket_path, "the user's daemon");
}
END_TEST

START_TEST(a_users_daemon_that_restarts_is_known_by_its_keeper)
{
	char keeper[GM_PATH_BYTES];

	ck_assert_int_eq(mkdir(folder, 0700), 0);
	ck_assert_int_eq(gm_path_keeper_socket(socket_path, keeper), 0);
	make_file(keeper);
	expect(socket_path, "the user's daemon");
	ck_assert_int_eq(chmod(folder, 0777), 0);
	expect(GM_SYSTEM_SOCKET, "the system's daemon");
	unlink(keeper);
}
END_TEST

START_TEST(a_folder_that_others_can_write_to_is_not_believed)
{
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	make_file(socket_path);
	ck_assert_int_eq(chmod(folder, 0770), 0);
	expect(GM_SYSTEM_SOCKET, "the system's daemon");
	ck_assert_int_eq(chmod(folder, 0702), 0);
	expect(GM_SYSTEM_SOCKET, "the system's daemon");
	ck_assert_int_eq(chmod(folder, 0755), 0);
	expect(socket_path, "the user's daemon");
}
END_TEST

START_TEST(a_link_to_a_folder_is_not_believed)
{
	char elsewhere[128], there[160];

	snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", base);
	snprintf(there, sizeof(there), "%s/socket", elsewhere);
	ck_assert_int_eq(mkdir(elsewhere, 0700), 0);
	make_file(there);
	ck_assert_int_eq(symlink(elsewhere, folder), 0);
	expect(GM_SYSTEM_SOCKET, "the system's daemon");
}
END_TEST

START_TEST(a_file_in_the_folders_place_is_not_believed)
{
	make_file(folder);
	expect(GM_SYSTEM_SOCKET, "the system's daemon");
}
END_TEST

START_TEST(a_users_own_folder_is_believed)
{
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	make_file(socket_path);
	expect(socket_path, "the user's daemon");
}
END_TEST

START_TEST(another_users_folder_is_not_believed_and_roots_is)
{
	ck_assert_int_eq(chmod(base, 0755), 0);
	ck_assert_int_eq(mkdir(folder, 0755), 0);
	make_file(socket_path);
	ck_assert_int_eq(seteuid(4711), 0);
	expect(socket_path, "the user's daemon"); /* root's folder */
	ck_assert_int_eq(seteuid(0), 0);
	ck_assert_int_eq(chown(folder, 4712, (gid_t)-1), 0);
	ck_assert_int_eq(seteuid(4711), 0);
	expect(GM_SYSTEM_SOCKET, "the system's daemon");
	ck_assert_int_eq(seteuid(0), 0);
	ck_assert_int_eq(chown(folder, 4711, (gid_t)-1), 0);
	ck_assert_int_eq(seteuid(4711), 0);
	expect(socket_path, "the user's daemon");
	ck_assert_int_eq(seteuid(0), 0);
}
END_TEST

/* The place of a daemon that was started without XDG_RUNTIME_DIR. No user has the uid, so no daemon uses the folder. */
START_TEST(a_daemon_with_another_runtime_directory_is_found)
{
	uid_t uid = 0x70000000u + (uid_t)getpid();
	char place[64], inside[80], found[GM_PATH_BYTES], text[GM_PATH_OTHER_BYTES];
	const char *why;

	snprintf(place, sizeof(place), "/tmp/gpumemd-%lu", (unsigned long)uid);
	snprintf(inside, sizeof(inside), "%s/socket", place);
	ck_assert_int_eq(chmod(base, 0755), 0);
	ck_assert(!gm_path_find_user_socket(uid, found));
	ck_assert_int_eq(mkdir(place, 0755), 0);
	make_file(inside);
	bool other = gm_path_find_user_socket(uid, found);

	/* The daemon of this environment comes first. */
	ck_assert_int_eq(mkdir(folder, 0755), 0);
	make_file(socket_path);
	char first[GM_PATH_BYTES];
	bool here = gm_path_find_user_socket(uid, first);
	unlink(socket_path);

	/* A folder that others can write to is named, and not used. */
	chmod(place, 0777);
	char untrusted[GM_PATH_BYTES];
	bool trusted = gm_path_find_user_socket(uid, untrusted);
	bool became = seteuid(uid) == 0 && gm_path_client_socket(untrusted, &why) == 0;
	gm_path_other(why, text);
	became = became && seteuid(0) == 0;
	unlink(inside);
	rmdir(place);

	ck_assert(other);
	ck_assert_str_eq(found, inside);
	ck_assert(here);
	ck_assert_str_eq(first, socket_path);
	ck_assert(!trusted && became);
	ck_assert_str_eq(untrusted, GM_SYSTEM_SOCKET);
	ck_assert_msg(
		strstr(text, inside) && strstr(text, "others can write to its folder"), "%s", text);
}
END_TEST

/* What a message says about the socket that was not chosen. */
static void other_is(const char *why, const char *part)
{
	char text[GM_PATH_OTHER_BYTES];

	ck_assert_ptr_eq(gm_path_other(why, text), text);
	ck_assert_msg(*part ? strstr(text, part) != NULL : !*text, "'%s' in '%s'", part, text);
}

START_TEST(the_socket_that_was_not_chosen_is_named_with_the_reason)
{
	char found[GM_PATH_BYTES], expected[256];
	const char *why;

	ck_assert_int_eq(gm_path_client_socket(found, &why), 0);
	snprintf(expected, sizeof(expected), "%s (the user's daemon): not there", socket_path);
	other_is(why, expected);

	ck_assert_int_eq(mkdir(folder, 0700), 0);
	make_file(socket_path);
	ck_assert_int_eq(chmod(folder, 0777), 0);
	ck_assert_int_eq(gm_path_client_socket(found, &why), 0);
	other_is(why, "others can write to its folder");

	/* Whether there is a daemon of the system here or not. */
	ck_assert_int_eq(chmod(folder, 0700), 0);
	ck_assert_int_eq(gm_path_client_socket(found, &why), 0);
	other_is(why, GM_SYSTEM_SOCKET " (the system's daemon): not t");

	/* Who names a socket means that one. */
	ck_assert_int_eq(setenv("GPUMEM_SOCKET", "/nowhere", 1), 0);
	ck_assert_int_eq(gm_path_client_socket(found, &why), 0);
	other_is(why, "");
	other_is("--socket", "");
}
END_TEST

START_TEST(a_folder_that_may_not_be_entered_is_named_as_such)
{
	char inner[192], found[GM_PATH_BYTES];
	const char *why;

	/* Root may enter any folder, so as root the test becomes somebody else. */
	bool root = geteuid() == 0;

	ck_assert_int_eq(chmod(base, 0755), 0);
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	snprintf(inner, sizeof(inner), "%s/runtime", folder);
	ck_assert_int_eq(setenv("XDG_RUNTIME_DIR", inner, 1), 0);
	ck_assert_int_eq(root ? seteuid(4711) : chmod(folder, 0), 0);
	ck_assert_int_eq(gm_path_client_socket(found, &why), 0);
	other_is(why, "): not permitted");
	ck_assert_int_eq(root ? seteuid(0) : chmod(folder, 0700), 0);
}
END_TEST

START_TEST(the_administrators_socket_lies_beside_the_other)
{
	char path[GM_PATH_BYTES], longest[GM_BOUND_SOCKET_PATH_BYTES + 1];

	ck_assert_int_eq(gm_path_admin_socket("/run/gpumemd/socket", path), 0);
	ck_assert_str_eq(path, "/run/gpumemd/admin");
	ck_assert_int_eq(gm_path_admin_socket("socket", path), 0);
	ck_assert_str_eq(path, "admin");
	ck_assert_int_eq(gm_path_admin_socket("/tmp/mine.sock", path), 0);
	ck_assert_str_eq(path, "/tmp/mine.sock.admin");
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	ck_assert_int_eq(gm_path_admin_socket(longest, path), -ENAMETOOLONG);
	ck_assert_str_eq(path, "/tmp/mine.sock.admin");
	longest[GM_BOUND_SOCKET_PATH_BYTES - 6] = '\0';
	ck_assert_int_eq(gm_path_admin_socket(longest, path), 0);
}
END_TEST

/* Whether this user has a daemon of their own, which clients find whatever the cases below make. */
static bool has_daemon(void)
{
	char path[GM_PATH_BYTES];

	setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
	return gm_path_find_user_socket(geteuid(), path);
}

int main(void)
{
	if (has_daemon()) {
		puts("1..0 # SKIP this user runs a daemon of their own, which is found here");
		return 0;
	}
	Suite *suite = suite_create("path");
	TCase *tc = tcase_create("path");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_users_socket_is_in_the_runtime_directory);
	tcase_add_test(tc, without_a_runtime_directory_it_is_in_tmp_under_the_uid);
	tcase_add_test(tc, a_path_without_room_is_refused_and_writes_nothing);
	tcase_add_test(tc, the_named_socket_comes_first);
	tcase_add_test(tc, the_users_comes_before_the_systems_if_it_is_there);
	tcase_add_test(tc, a_users_daemon_that_restarts_is_known_by_its_keeper);
	tcase_add_test(tc, a_folder_that_others_can_write_to_is_not_believed);
	tcase_add_test(tc, a_link_to_a_folder_is_not_believed);
	tcase_add_test(tc, a_file_in_the_folders_place_is_not_believed);
	tcase_add_test(tc, a_users_own_folder_is_believed);
	if (GM_TAP_WITH_USERS(another_users_folder_is_not_believed_and_roots_is))
		tcase_add_test(tc, another_users_folder_is_not_believed_and_roots_is);
	if (GM_TAP_WITH_USERS(a_daemon_with_another_runtime_directory_is_found))
		tcase_add_test(tc, a_daemon_with_another_runtime_directory_is_found);
	tcase_add_test(tc, the_socket_that_was_not_chosen_is_named_with_the_reason);
	if (geteuid() != 0 || GM_TAP_WITH_USERS(a_folder_that_may_not_be_entered_is_named_as_such))
		tcase_add_test(tc, a_folder_that_may_not_be_entered_is_named_as_such);
	tcase_add_test(tc, the_administrators_socket_lies_beside_the_other);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
