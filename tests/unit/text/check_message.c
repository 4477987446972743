/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* Messages on a terminal and in a file: common/text/message.c. */

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/text/message.h"
#include "common/text/text.h"
#include "tests/tap.h"
#include "tests/unit/text/terminal.h"

/* Writes a message while stderr is this file. */
static void say_to(int fd, const char *from, const char *text)
{
	int before = dup(STDERR_FILENO);

	ck_assert_int_eq(dup2(fd, STDERR_FILENO), STDERR_FILENO);
	gm_message(from, text);
	ck_assert_int_eq(dup2(before, STDERR_FILENO), STDERR_FILENO);
	close(before);
}

static const char long_text[] =
	"a sentence that has more words in it than a line of the terminal has "
	"room for, and ends with a blank-free-word";

START_TEST(a_line_ends_with_a_word_where_the_terminal_ends)
{
	char shown[1024];
	int ends[2];

	terminal_open(ends, 40);
	ck_assert_uint_eq(gm_message_columns(ends[1]), 40);
	say_to(ends[1], "gpumem-run", long_text);
	terminal_read(ends, shown, sizeof(shown));
	ck_assert_str_eq(shown, "gpumem-run: a sentence that has more\n"
				"words in it than a line of the terminal\n"
				"has room for, and ends with a\n"
				"blank-free-word\n");
}
END_TEST

START_TEST(a_wide_terminal_has_lines_that_can_be_read)
{
	int ends[2];

	terminal_open(ends, 200);
	ck_assert_uint_eq(gm_message_columns(ends[1]), 80);
	close(ends[0]);
	close(ends[1]);
}
END_TEST

START_TEST(a_file_has_the_line_in_one_piece)
{
	char shown[1024] = "", expected[sizeof(long_text) + 16];
	int ends[2];

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	ck_assert_uint_eq(gm_message_columns(ends[1]), 0);
	say_to(ends[1], "x", long_text);
	ck_assert_int_gt(read(ends[0], shown, sizeof(shown) - 1), 0);
	snprintf(expected, sizeof(expected), "x: %s\n", long_text);
	ck_assert_str_eq(shown, expected);
	close(ends[0]);
	close(ends[1]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("message");
	TCase *tcase = tcase_create("message");
	bool utf8;

	gm_text_init(&utf8);
	tcase_add_test(tcase, a_line_ends_with_a_word_where_the_terminal_ends);
	tcase_add_test(tcase, a_wide_terminal_has_lines_that_can_be_read);
	tcase_add_test(tcase, a_file_has_the_line_in_one_piece);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
