/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* Who pays for which uid, by files like /etc/subuid and /etc/passwd. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/log.h"
#include "common/system/subuid.h"
#include "tests/scratch.h"
#include "tests/tap.h"

#define USERS "root:x:0:0::/:/bin/sh\nann:x:1000:1000::/:/bin/sh\nben:x:1001:1001::/:/bin/sh\n"

static struct gm_subuids subuids;
static char root[128];

static void write_file(const char *name, const char *text)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/etc/%s", root, name);
	FILE *file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(text, file), 0);
	ck_assert_int_eq(fclose(file), 0);
}

static void make_root(void)
{
	char path[256];

	gm_scratch_folder(root, sizeof(root));
	snprintf(path, sizeof(path), "%s/etc", root);
	ck_assert_int_eq(mkdir(path, 0755), 0);
	write_file("passwd", USERS);
}

static void forget(void)
{
	gm_subuids_deinit(&subuids);
}

static void read_files(const char *from)
{
	forget();
	ck_assert_int_eq(gm_subuids_read(from, &subuids), 0);
}

static void read_lines(const char *lines)
{
	write_file("subuid", lines);
	read_files(root);
}

static void pays(uid_t uid, uid_t payer)
{
	ck_assert_msg(gm_subuids_payer(&subuids, uid) == payer, "%u pays for %u, not %u",
		(unsigned)gm_subuids_payer(&subuids, uid), (unsigned)uid, (unsigned)payer);
}

START_TEST(the_owner_of_a_range_pays_for_its_uids)
{
	pays(100000, 100000);
	read_lines("ann:100000:65536\n1001:165536:65536\nann:300000:1\n");
	pays(99999, 99999);
	pays(100000, 1000);
	pays(165535, 1000);
	pays(165536, 1001);
	pays(231071, 1001);
	pays(231072, 231072);
	pays(300000, 1000);
	pays(300001, 300001);
	pays(0, 0);
	pays(1000, 1000);
	pays(UINT32_MAX, UINT32_MAX);
}
END_TEST

START_TEST(what_is_read_anew_replaces_all)
{
	read_lines("ann:100000:65536\n");
	read_lines("ben:100000:10\n");
	pays(100000, 1001);
	pays(100010, 100010);
	read_lines("");
	pays(100000, 100000);
	read_files("/nowhere/at/all");
	pays(100000, 100000);
}
END_TEST

START_TEST(a_range_of_root_or_of_a_stranger_is_one_user_by_itself)
{
	read_lines("root:1000000:1000000\nldap:200000:10\nldap:300000:10\n0:400000:10\n"
		   "zoe@example.org:500000:10\n");
	pays(1000000, 1000000);
	pays(1999999, 1000000);
	pays(200009, 200000);
	pays(300009, 200000);
	pays(400009, 400000);
	pays(500009, 500000);
}
END_TEST

START_TEST(root_and_users_with_a_name_pay_for_themselves)
{
	read_lines("eve:0:100000\nben:1000:1\n70000:500:10\n");
	pays(0, 0);
	pays(1, 1);
	pays(2, 1);
	pays(1000, 1000);
	pays(1001, 1001);
	pays(1002, 1);
	pays(70000, 70000); /* it owns a range itself */
}
END_TEST

START_TEST(of_ranges_that_overlap_the_one_that_begins_first_counts)
{
	read_lines("ben:150000:100000\nann:100000:65536\nben:100000:10\nben:110000:10\n"
		   "ann:150000:100000\n");
	pays(100000, 1000);
	pays(110005, 1000);
	pays(165535, 1000);
	pays(165536, 1001);
	pays(249999, 1001);
	pays(250000, 250000);
}
END_TEST

static unsigned said;
static char last[512];

static void hear(enum gm_log_level level, const char *text, const char *const *fields)
{
	said++;
	snprintf(last, sizeof(last), "%s", text);
}

START_TEST(broken_lines_are_skipped_and_said_once)
{
	static char lines[4096];
	char longest[3 * GM_SUBUID_LINE_BYTES];

	memset(longest, 'a', sizeof(longest));
	longest[sizeof(longest) - 1] = '\0';
	snprintf(lines, sizeof(lines),
		"# a comment\n\nann:100000\nann:x:5\nann:5:x\nann:-5:5\nann: 5:5\n:5:5\nann:5:5:5\n"
		"ann:4294967295:1\nann:4294967294:2\nann:99999999999:1\n%s:100000:65536\n"
		"ann:700:0\nben:200000:10\nann:4294967294:1\nann:300000:5",
		longest);
	gm_log_set_sink(hear);
	read_lines(lines);
	gm_log_set_sink(NULL);
	ck_assert_uint_eq(said, 1);
	ck_assert_ptr_nonnull(strstr(
		last, "etc/subuid: line 3 is not NAME:FIRST:COUNT and is skipped, as are others"));
	pays(5, 5);
	pays(700, 700);
	pays(100000, 100000);
	pays(200000, 1001);
	pays(UINT32_MAX - 1, 1000);
	pays(UINT32_MAX, UINT32_MAX);
	pays(300004, 1000);
}
END_TEST

START_TEST(a_file_of_any_length_is_read_as_far_as_it_may_be)
{
	char path[256];
	snprintf(path, sizeof(path), "%s/etc/subuid", root);
	FILE *file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	for (unsigned i = 0; i <= GM_SUBUID_LINES; i++)
		fprintf(file, "u%u:%u:10\n", i, 100000 + 10 * i);
	ck_assert_int_eq(fclose(file), 0);

	gm_log_set_sink(hear);
	read_files(root);
	gm_log_set_sink(NULL);
	ck_assert_uint_eq(said, 1);
	ck_assert_ptr_nonnull(strstr(last, "only the first 65536 lines are read"));
	uid_t end = 100000 + 10 * GM_SUBUID_LINES;
	pays(end - 1, end - 10);
	pays(end, end);
	pays(end + 1, end + 1);
}
END_TEST

START_TEST(nothing_but_a_file_is_opened)
{
	char path[256];
	snprintf(path, sizeof(path), "%s/etc/subuid", root);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	gm_log_set_sink(hear);
	read_files(root);
	gm_log_set_sink(NULL);
	ck_assert_uint_eq(said, 1);
	ck_assert_ptr_nonnull(strstr(last, "each subordinate uid counts as a user of its own"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("subuid");
	TCase *tests = tcase_create("subuid");

	tcase_add_checked_fixture(tests, make_root, forget);
	tcase_add_test(tests, the_owner_of_a_range_pays_for_its_uids);
	tcase_add_test(tests, what_is_read_anew_replaces_all);
	tcase_add_test(tests, a_range_of_root_or_of_a_stranger_is_one_user_by_itself);
	tcase_add_test(tests, root_and_users_with_a_name_pay_for_themselves);
	tcase_add_test(tests, of_ranges_that_overlap_the_one_that_begins_first_counts);
	tcase_add_test(tests, broken_lines_are_skipped_and_said_once);
	tcase_add_test(tests, a_file_of_any_length_is_read_as_far_as_it_may_be);
	tcase_add_test(tests, nothing_but_a_file_is_opened);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
