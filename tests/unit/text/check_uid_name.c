/* SPDX-License-Identifier: Apache-2.0 */

/* The names of users: those in a file, and those that it does not have. */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/text/uid_name.h"
#include "tests/scratch.h"
#include "tests/tap.h"

/* The longest name that is shown: 63 bytes. */
#define LONGEST "a23456789b123456789c123456789d123456789e123456789f123456789g123"

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
	is_said(0, "user 0");
	read_names("root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000:Ann:/home/ann:/bin/sh\n");
	is_said(0, "user root");
	is_said(1000, "user ann");
	is_said(1001, "user 1001");
	is_said(1000 + 1024, "user 2024");
	is_said(UINT32_MAX, "user 4294967295");
}
END_TEST

START_TEST(one_who_pays_for_another_uid_is_said_with_it)
{
	char text[GM_UID_NAME_PAYER_TEXT];

	read_names(LONGEST ":x:1000:1000::/:/bin/sh\n");
	ck_assert_str_eq(gm_uid_name_say_payer(1000, 1000, text), "user " LONGEST);
	ck_assert_str_eq(gm_uid_name_say_payer(1000, UINT32_MAX, text),
		"user " LONGEST " (with subordinate uid 4294967295)");
	ck_assert_str_eq(gm_uid_name_say_payer(100000, 100001, text),
		"user 100000 (with subordinate uid 100001)");
}
END_TEST

START_TEST(a_new_file_replaces_all_names)
{
	read_names("ann:x:1000:1000::/:/bin/sh\nben:x:1001:1001::/:/bin/sh\n");
	read_names("eve:x:1000:1000::/:/bin/sh\n");
	is_said(1000, "user eve");
	is_said(1001, "user 1001");
	gm_uid_name_read("/nowhere/at/all");
	is_said(1000, "user 1000");
}
END_TEST

START_TEST(of_two_users_with_one_place_the_last_has_it)
{
	read_names("ann:x:1000:1::/:/bin/sh\nben:x:2024:1::/:/bin/sh\n");
	is_said(1000, "user 1000");
	is_said(2024, "user ben");
}
END_TEST

START_TEST(a_name_that_no_line_should_have_is_not_said)
{
	read_names("\033[31mred:x:1000:1::/:/bin/sh\n" LONGEST "4:x:1001:1::/:/bin/sh\n" LONGEST
		   ":x:1002:1::/:/bin/sh\n"
		   "no colons here\n"
		   "ben:x:1003:1::/:/bin/sh\n");
	is_said(1000, "user 1000");
	is_said(1001, "user 1001");
	is_said(1002, "user " LONGEST);
	is_said(1003, "user ben");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("uid_name");
	TCase *tests = tcase_create("uid_name");

	tcase_add_test(tests, a_user_has_its_name_or_else_its_number);
	tcase_add_test(tests, one_who_pays_for_another_uid_is_said_with_it);
	tcase_add_test(tests, a_new_file_replaces_all_names);
	tcase_add_test(tests, of_two_users_with_one_place_the_last_has_it);
	tcase_add_test(tests, a_name_that_no_line_should_have_is_not_said);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
