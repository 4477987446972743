/* SPDX-License-Identifier: Apache-2.0 */
/* common/system/program.c: how a remedy names a program, for a copy of this test that lies where gpumemctl does. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/system/program.h"
#include "tests/scratch.h"
#include "tests/tap.h"

static char base[64];

static void make(const char *program, mode_t mode)
{
	char path[160];
	snprintf(path, sizeof(path), "%s/%s", base, program);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, mode);
	ck_assert_int_ge(fd, 0);
	close(fd);
}

static void setup(void)
{
	static const char *const folders[] = {"ctl", "ctl/.libs", "daemon", "other"};

	gm_scratch_folder(base, sizeof(base));
	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
		char path[160];
		snprintf(path, sizeof(path), "%s/%s", base, folders[i]);
		ck_assert_int_eq(mkdir(path, 0700), 0);
	}
	make("ctl/gpumemctl", 0700);
	make("daemon/gpumemd", 0700);
	make("other/gpumemd", 0700);
}

static void teardown(void)
{
	char command[160];
	snprintf(command, sizeof(command), "rm -r %s", base);
	ck_assert_int_eq(system(command), 0);
}

/* What a copy of this program at that place makes of the sentence. path: the PATH that it has, in the folder. */
static const char *mended(const char *place, const char *path, const char *sentence)
{
	static char text[1024];
	char command[1024];

	snprintf(command, sizeof(command),
		"cp /proc/%d/exe %s/%s && cd %s && PATH=%s %s/%s --mend \"%s\"", (int)getpid(),
		base, place, base, path, base, place, sentence);
	FILE *output = popen(command, "r");
	ck_assert_ptr_nonnull(output);
	ck_assert_ptr_nonnull(fgets(text, sizeof(text), output));
	ck_assert_int_eq(pclose(output), 0);
	return text;
}

static const char *with_base(const char *format)
{
	static char text[1024];
	snprintf(text, sizeof(text), format, base, base);
	return text;
}

START_TEST(a_command_names_the_program_of_the_same_tree)
{
	ck_assert_str_eq(
		mended("ctl/.libs/gpumemctl", "/nowhere",
			"gpumemd is away: run 'gpumemd --socket x', or 'gpumemctl doctor'; gpumemd has 1"),
		with_base(
			"gpumemd is away: run '%s/daemon/gpumemd --socket x', or '%s/ctl/gpumemctl doctor'; gpumemd has 1"));
	ck_assert_str_eq(mended("daemon/x", "other",
				 "'mkdir a; gpumemd --socket b', 'setpriv --init-groups gpumemd'"),
		with_base(
			"'mkdir a; %s/daemon/gpumemd --socket b', 'setpriv --init-groups %s/daemon/gpumemd'"));
}
END_TEST

START_TEST(a_program_on_path_is_named_as_it_is)
{
	ck_assert_str_eq(mended("ctl/.libs/gpumemctl", "/nowhere:daemon", "run 'gpumemd', or go"),
		"run 'gpumemd', or go");
	/* The first one counts. */
	ck_assert_str_eq(mended("ctl/.libs/gpumemctl", "other:daemon", "run 'gpumemd'"),
		with_base("run '%s/daemon/gpumemd'"));
}
END_TEST

START_TEST(a_program_that_is_nowhere_is_named_as_it_is)
{
	ck_assert_str_eq(mended("other/x", "/nowhere", "run 'gpumemctl status'"),
		with_base("run '%s/ctl/gpumemctl status'"));
	char path[160];
	snprintf(path, sizeof(path), "%s/ctl/gpumemctl", base);
	ck_assert_int_eq(chmod(path, 0600), 0);
	ck_assert_str_eq(
		mended("other/x", "/nowhere", "run 'gpumemctl status'"), "run 'gpumemctl status'");
}
END_TEST

START_TEST(what_has_no_room_is_cut)
{
	char text[10];
	ck_assert_str_eq(gm_program_mend("run 'gpumemd' now", text, sizeof(text)), "run 'gpum");
}
END_TEST

int main(int argc, char **argv)
{
	char text[1024];

	if (argc == 3 && strcmp(argv[1], "--mend") == 0) {
		fputs(gm_program_mend(argv[2], text, sizeof(text)), stdout);
		return 0;
	}
	Suite *suite = suite_create("program");
	TCase *tcase = tcase_create("program");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_command_names_the_program_of_the_same_tree);
	tcase_add_test(tcase, a_program_on_path_is_named_as_it_is);
	tcase_add_test(tcase, a_program_that_is_nowhere_is_named_as_it_is);
	tcase_add_test(tcase, what_has_no_room_is_cut);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
