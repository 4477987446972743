/* SPDX-License-Identifier: Apache-2.0 */
/* Users and groups that a configuration names. A directory service is asked before the daemon serves
 * clients, and never after that. */
#include <grp.h>
#include <pwd.h>
#include <string.h>

#include "daemon/config/config_account.h"
#include "tests/tap.h"

/* A host whose directory knows one user and one group, and which counts who asks. */
static int asked;

struct passwd *getpwnam(const char *name)
{
	static struct passwd ann = {.pw_name = "ann-of-the-directory", .pw_uid = 4711};
	asked++;
	return strcmp(name, ann.pw_name) == 0 ? &ann : NULL;
}

struct group *getgrnam(const char *name)
{
	static struct group staff = {.gr_name = "staff-of-the-directory", .gr_gid = 4712};
	asked++;
	return strcmp(name, staff.gr_name) == 0 ? &staff : NULL;
}

START_TEST(a_directory_is_asked_until_the_daemon_serves_clients_and_its_answers_are_kept)
{
	uid_t uid = 1;
	gid_t gid = 1;

	ck_assert(gm_config_account_user("ann-of-the-directory", &uid));
	ck_assert_uint_eq(uid, 4711);
	ck_assert(gm_config_account_group("staff-of-the-directory", &gid));
	ck_assert_uint_eq(gid, 4712);
	ck_assert(!gm_config_account_user("nobody-has-this-name", &uid));
	ck_assert_uint_eq(uid, 4711);
	ck_assert_str_eq(gm_config_account_hint(), "");
	ck_assert_int_eq(asked, 3);

	gm_config_account_stay_local();
	ck_assert(gm_config_account_user("ann-of-the-directory", &uid));
	ck_assert_uint_eq(uid, 4711);
	ck_assert(gm_config_account_group("staff-of-the-directory", &gid));
	ck_assert_uint_eq(gid, 4712);
	ck_assert(!gm_config_account_user("staff-of-the-directory", &uid));
	ck_assert(!gm_config_account_group("nobody-has-this-name", &gid));
	ck_assert_ptr_nonnull(strstr(gm_config_account_hint(), "; check the spelling; "));
	ck_assert_ptr_nonnull(
		strstr(gm_config_account_hint(), "run 'gpumemctl config check' before a restart"));

	/* Users of this host are read from its files. */
	ck_assert(gm_config_account_user("root", &uid));
	ck_assert_uint_eq(uid, 0);
	ck_assert(gm_config_account_group("root", &gid));
	ck_assert_uint_eq(gid, 0);
	ck_assert_int_eq(asked, 3);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("config_account");
	TCase *tcase = tcase_create("config_account");
	tcase_add_test(tcase,
		a_directory_is_asked_until_the_daemon_serves_clients_and_its_answers_are_kept);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
