/* SPDX-License-Identifier: Apache-2.0 */

/* Log lines: what reaches the sink, and what the default one makes of hostile text. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"
#include "tests/tap.h"

static struct {
	int lines;
	enum gm_log_level level;
	char message[4096];
	const char *field;
} seen;

static void remember(enum gm_log_level level, const char *message, const char *const *fields)
{
	seen.lines++;
	seen.level = level;
	snprintf(seen.message, sizeof(seen.message), "%s", message);
	seen.field = fields[0];
	errno = EIO; /* a sink may do as it likes */
}

START_TEST(a_line_reaches_the_sink_with_its_level_and_fields)
{
	const char *const fields[] = {"GPUMEM_UID=1000", NULL};

	gm_log_set_sink(remember);
	gm_log(GM_LOG_ERROR, "%s %d", "seven", 7);
	ck_assert_int_eq(seen.lines, 1);
	ck_assert_int_eq(seen.level, GM_LOG_ERROR);
	ck_assert_str_eq(seen.message, "seven 7");
	ck_assert_ptr_null(seen.field);
	gm_log_fields(GM_LOG_NOTICE, fields, "who");
	ck_assert_str_eq(seen.field, "GPUMEM_UID=1000");
	gm_log_fields(GM_LOG_NOTICE, NULL, "nobody");
	ck_assert_ptr_null(seen.field);
}
END_TEST

START_TEST(lines_above_the_level_are_left_out)
{
	gm_log_set_sink(remember);
	gm_log(GM_LOG_DEBUG, "by default not");
	ck_assert_int_eq(seen.lines, 0);
	gm_log(GM_LOG_INFO, "by default yes");
	ck_assert_int_eq(seen.lines, 1);
	gm_log_set_level(GM_LOG_ERROR);
	gm_log(GM_LOG_WARNING, "not");
	ck_assert_int_eq(seen.lines, 1);
	gm_log_set_level(GM_LOG_DEBUG);
	gm_log(GM_LOG_DEBUG, "yes");
	ck_assert_int_eq(seen.lines, 2);
}
END_TEST

START_TEST(errno_is_told_and_left_alone)
{
	gm_log_set_sink(remember);
	errno = ENOENT;
	gm_log(GM_LOG_ERROR, "%m");
	ck_assert_int_eq(errno, ENOENT);
	ck_assert_str_eq(seen.message, strerror(ENOENT));
	gm_log(GM_LOG_DEBUG, "left out");
	ck_assert_int_eq(errno, ENOENT);
}
END_TEST

START_TEST(a_long_message_is_cut_at_a_character_and_says_so)
{
	char text[6001];

	gm_log_set_sink(remember);
	for (unsigned shift = 0; shift < 3; shift++) {
		memset(text, 'x', sizeof(text));
		for (size_t i = shift; i + 3 < sizeof(text); i += 3)
			memcpy(text + i, "\xe2\x82\xac", 3);
		text[sizeof(text) - 1] = '\0';
		gm_log(GM_LOG_ERROR, "%s", text);
		size_t n = strlen(seen.message);
		ck_assert_uint_lt(n, 2048);
		ck_assert_uint_gt(n, 2000);
		ck_assert_str_eq(seen.message + n - 6, " [cut]");
		/* What is before the mark is whole characters. */
		ck_assert_uint_eq((n - 6 - shift) % 3, 0);
		ck_assert_int_eq(strncmp(seen.message, text, n - 6), 0);
	}
}
END_TEST

/* What the default sink writes, with stderr a pipe. */
static void capture(char *out, size_t room, enum gm_log_level level, const char *message)
{
	int pipes[2], before = dup(STDERR_FILENO);
	ssize_t n;

	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
	ck_assert_int_ge(dup2(pipes[1], STDERR_FILENO), 0);
	gm_log_set_sink(NULL);
	gm_log(level, "%s", message);
	ck_assert_int_ge(dup2(before, STDERR_FILENO), 0);
	close(before);
	close(pipes[1]);
	n = read(pipes[0], out, room - 1);
	ck_assert_int_ge(n, 0);
	out[n] = '\0';
	close(pipes[0]);
}

/* The line behind the time, which must be one that was not long ago. */
static const char *behind_time(const char *line)
{
	struct tm tm = {.tm_isdst = -1};
	const char *end = strptime(line, "%Y-%m-%d %H:%M:%S ", &tm);

	ck_assert_msg(end != NULL, "no time: %s", line);
	time_t then = mktime(&tm), now = time(NULL);
	ck_assert(then <= now && now - then < 3600);
	return end;
}

START_TEST(the_default_sink_writes_time_level_and_message)
{
	char out[8192];

	capture(out, sizeof(out), GM_LOG_WARNING, "watch out");
	ck_assert_str_eq(behind_time(out), "warning: watch out\n");
	capture(out, sizeof(out), GM_LOG_ERROR, "two\nlines\n");
	char *second = strchr(out, '\n') + 1;
	ck_assert_str_eq(behind_time(second), "error: lines\n");
	*second = '\0';
	ck_assert_str_eq(behind_time(out), "error: two\n");
	capture(out, sizeof(out), GM_LOG_NOTICE, "");
	ck_assert_str_eq(behind_time(out), "notice: \n");
	gm_log_set_level(GM_LOG_DEBUG);
	capture(out, sizeof(out), GM_LOG_DEBUG, "d");
	gm_log_set_level(GM_LOG_INFO);
	ck_assert_str_eq(behind_time(out), "debug: d\n");
}
END_TEST

START_TEST(control_characters_do_not_reach_the_terminal)
{
	char out[8192];

	capture(out, sizeof(out), GM_LOG_INFO, "a\x1b[2Jb\r<3>forged\x7f\t\xc3\xb6");
	ck_assert_str_eq(behind_time(out), "info: a?[2Jb?<3>forged?\t\xc3\xb6\n");
}
END_TEST

START_TEST(a_closed_stderr_is_no_reason_to_fail)
{
	gm_log_set_sink(NULL);
	int before = dup(STDERR_FILENO);
	close(STDERR_FILENO);
	errno = 0;
	gm_log(GM_LOG_ERROR, "into nothing");
	ck_assert_int_eq(errno, 0);
	ck_assert_int_ge(dup2(before, STDERR_FILENO), 0);
	close(before);
}
END_TEST

/* Whether a line may be written to this at once, as stderr. */
static bool ready_on(int fd)
{
	int before = dup(STDERR_FILENO);
	ck_assert_int_ge(dup2(fd, STDERR_FILENO), 0);
	bool ready = gm_log_is_ready(gm_log_get_sink());
	ck_assert_int_ge(dup2(before, STDERR_FILENO), 0);
	close(before);
	return ready;
}

START_TEST(a_line_is_written_at_once_only_where_a_whole_line_fits)
{
	int ends[2], file = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	gm_log_set_sink(NULL);
	if (file >= 0) {
		ck_assert(ready_on(file));
		close(file);
	}

	char byte = 0;
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	ck_assert(ready_on(ends[1]));
	while (write(ends[1], &byte, 1) == 1)
		;
	ck_assert(!ready_on(ends[1]));
	close(ends[0]);
	close(ends[1]);

	/* These have room, but nobody knows how much. */
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	ck_assert(!ready_on(ends[0]));
	close(ends[0]);
	close(ends[1]);
	int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (terminal >= 0)
		ck_assert(!ready_on(terminal));
	close(terminal);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("log");
	TCase *tc = tcase_create("log");

	tcase_add_test(tc, a_line_reaches_the_sink_with_its_level_and_fields);
	tcase_add_test(tc, lines_above_the_level_are_left_out);
	tcase_add_test(tc, errno_is_told_and_left_alone);
	tcase_add_test(tc, a_long_message_is_cut_at_a_character_and_says_so);
	tcase_add_test(tc, the_default_sink_writes_time_level_and_message);
	tcase_add_test(tc, control_characters_do_not_reach_the_terminal);
	tcase_add_test(tc, a_closed_stderr_is_no_reason_to_fail);
	tcase_add_test(tc, a_line_is_written_at_once_only_where_a_whole_line_fits);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
