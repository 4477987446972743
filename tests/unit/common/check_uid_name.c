/* SPDX-License-Identifier: Apache-2.0 */

/* The names of users: those in a file, those that are looked up, and those that nobody knows. */

#include <pwd.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "common/uid_name.h"
#include "tests/scratch.h"
#include "tests/tap.h"

/* On Linux, no user has this number: it is below the last one, which means "none". */
#define NOBODY_HAS 4294967000u

static void read_names(const char *lines)
{
	char path[256];

	gm_scratch_path("passwd", path, sizeof(path));
	FILE *file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(lines, file), 0);
	ck_assert_int_eq(fclose(file), 0);
	gm_uid_name_read(path);
}

static void is_said(uid_t uid, const char *want)
{
	char text[GM_UID_NAME_TEXT];

	ck_assert_str_eq(gm_uid_name_say(uid, text), want);
}

START_TEST(a_user_has_its_name_or_else_its_number)
{
	is_said(0, "uid 0");
	read_names("root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000:Ann:/home/ann:/bin/sh\n");
	is_said(0, "user root");
	is_said(1000, "user ann");
	is_said(1001, "uid 1001");
	is_said(1000 + 1024, "uid 2024");
	is_said(UINT32_MAX, "uid 4294967295");
}
END_TEST

START_TEST(a_new_file_replaces_all_names)
{
	read_names("ann:x:1000:1000::/:/bin/sh\nben:x:1001:1001::/:/bin/sh\n");
	read_names("eve:x:1000:1000::/:/bin/sh\n");
	is_said(1000, "user eve");
	is_said(1001, "uid 1001");
	gm_uid_name_read("/nowhere/at/all");
	is_said(1000, "uid 1000");
}
END_TEST

START_TEST(of_two_users_with_one_place_the_last_has_it)
{
	read_names("ann:x:1000:1::/:/bin/sh\nben:x:2024:1::/:/bin/sh\n");
	is_said(1000, "uid 1000");
	is_said(2024, "user ben");
}
END_TEST

START_TEST(a_name_that_no_line_should_have_is_not_said)
{
	read_names("\033[31mred:x:1000:1::/:/bin/sh\n"
		   "a23456789b123456789c123456789d123:x:1001:1::/:/bin/sh\n"
		   "a23456789b123456789c123456789d12:x:1002:1::/:/bin/sh\n"
		   "no colons here\n"
		   "ben:x:1003:1::/:/bin/sh\n");
	is_said(1000, "uid 1000");
	is_said(1001, "uid 1001");
	is_said(1002, "user a23456789b123456789c123456789d12");
	is_said(1003, "user ben");
}
END_TEST

START_TEST(a_name_can_be_learned)
{
	const struct passwd *entry = getpwuid(getuid());
	char text[GM_UID_NAME_TEXT], want[GM_UID_NAME_TEXT];

	if (!entry || strlen(entry->pw_name) > 32)
		return; /* this user has no name to learn */
	snprintf(want, sizeof(want), "user %s", entry->pw_name);
	/* A lookup may be under way for another user, so ask until this one is known. */
	gm_uid_name_learn(NOBODY_HAS);
	do {
		gm_uid_name_learn(getuid());
		sched_yield();
	} while (strcmp(gm_uid_name_say(getuid(), text), want));
	is_said(NOBODY_HAS, "uid 4294967000");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("uid_name");
	TCase *tests = tcase_create("uid_name");

	tcase_add_test(tests, a_user_has_its_name_or_else_its_number);
	tcase_add_test(tests, a_new_file_replaces_all_names);
	tcase_add_test(tests, of_two_users_with_one_place_the_last_has_it);
	tcase_add_test(tests, a_name_that_no_line_should_have_is_not_said);
	tcase_add_test(tests, a_name_can_be_learned);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
