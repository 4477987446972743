/* SPDX-License-Identifier: Apache-2.0 */
/* What the library says on stderr: where and how often it tells a refusal, what a forked child reports, and that no lock of
 * its parent holds the child up. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload/broker/preload_report.h"
#include "preload/table/preload_blocks.h"
#include "tests/tap.h"
#include "tests/unit/text/terminal.h"

#define THREADS  4
#define CHILDREN 300

/* The table of blocks, which has nothing here. */
void gm_preload_blocks_total(uint64_t *ret_n, uint64_t *ret_bytes, uint64_t *ret_spilled)
{
	*ret_n = *ret_bytes = *ret_spilled = 0;
}

static atomic_bool enough;

static void *refuse_all_the_time(void *unused)
{
	(void)unused;
	gm_preload_report_why("the parent was refused; ask for less");
	while (!atomic_load(&enough))
		gm_preload_report_refused();
	return NULL;
}

/* Runs a function in a forked child, as the preloaded library forks. Returns the child's exit status. A child that hangs is
 * ended by a signal. */
static int in_child(int (*function)(void))
{
	int status;
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		alarm(30);
		gm_preload_report_after_fork();
		_exit(function());
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status))
		ck_abort_msg("the child was ended by signal %d", WTERMSIG(status));
	return WEXITSTATUS(status);
}

static int child_refused(void)
{
	gm_preload_report_refused();
	return 0;
}

START_TEST(a_child_does_not_wait_for_a_thread_of_its_parent)
{
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, refuse_all_the_time, NULL), 0);
	for (int i = 0; i < CHILDREN; i++)
		ck_assert_int_eq(in_child(child_refused), 0);
	atomic_store(&enough, true);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}
END_TEST

/* What the report prints, as an exit status: 0 nothing, 1 something else, 2 one refusal of the child's own. */
static int child_prints(void)
{
	char text[512] = "";
	int ends[2], real = dup(STDERR_FILENO);
	if (real < 0 || pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0 || dup2(ends[1], STDERR_FILENO) < 0)
		return 3;
	gm_preload_report_print();
	dup2(real, STDERR_FILENO);
	ssize_t n = read(ends[0], text, sizeof text - 1);
	close(real);
	close(ends[0]);
	close(ends[1]);
	if (strstr(text, "1 refused; the last: the child was refused\n"))
		return 2;
	return n > 0;
}

static int child_refused_once(void)
{
	gm_preload_report_why("the child was refused; ask for less");
	gm_preload_report_refused();
	return child_prints();
}

START_TEST(a_child_reports_nothing_of_its_parent)
{
	gm_preload_report_why("the parent was refused; ask for less");
	gm_preload_report_refused();
	gm_preload_report_chunk(2 << 20);
	gm_preload_report_passed(0);
	ck_assert_int_eq(child_prints(), 1);
	ck_assert_int_eq(in_child(child_prints), 0);
	ck_assert_int_eq(in_child(child_refused_once), 2);
}
END_TEST

/* ---- the first refusal */

/* A pipe in the place of stderr, as gpumem-run describes it, and the end that is read. */
static int pipe_as_stderr(void)
{
	char text[64];
	struct stat st;
	int ends[2];

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	ck_assert_int_eq(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
	ck_assert_int_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
	close(ends[1]);
	ck_assert_int_eq(fstat(STDERR_FILENO, &st), 0);
	snprintf(text, sizeof text, "%llu:%llu", (unsigned long long)st.st_dev,
		(unsigned long long)st.st_ino);
	setenv("GPUMEM_RUN_STDERR", text, 1);
	setenv("GPUMEM_RUN_NAME", "a\nname", 1);
	return ends[0];
}

/* What can be read now. */
static void require_said(int fd, const char *expected)
{
	char text[1024] = "";
	ssize_t n = read(fd, text, sizeof text - 1);

	ck_assert(n > 0 || (n < 0 && errno == EAGAIN));
	ck_assert_str_eq(text, expected);
}

static void refuse(const char *why)
{
	errno = ERANGE;
	gm_preload_report_why(why);
	gm_preload_report_refused();
	ck_assert_int_eq(errno, ERANGE);
}

static int child_refused_first(void)
{
	refuse("the child asked for too much; ask for less");
	return 0;
}

START_TEST(the_first_refusal_of_a_process_is_told)
{
	char line[256];
	int fd = pipe_as_stderr();

	require_said(fd, "");
	refuse("the device is full; ask for less");
	refuse("the device is full; ask for less");
	snprintf(line, sizeof line,
		"gpumem-run: a name (pid %d): refused: the device is full; ask for less\n",
		(int)getpid());
	require_said(fd, line);
	ck_assert_int_eq(in_child(child_refused_first), 0);
	ck_assert_int_gt(read(fd, line, sizeof line), 0);
	ck_assert_ptr_nonnull(strstr(line, "the child asked for too much; ask for less\n"));
}
END_TEST

START_TEST(a_refusal_says_why_there_is_no_host_memory_either)
{
	char line[512];
	int fd = pipe_as_stderr();

	gm_preload_report_why("run \"a\" may hold 50.0M; see gpumemctl limit");
	gm_preload_report_why_host("run \"a\" may hold 50.0M; see gpumemctl limit");
	gm_preload_report_refused();
	snprintf(line, sizeof line,
		"gpumem-run: a name (pid %d): refused: run \"a\" may hold 50.0M; see gpumemctl limit; nor from host memory (--spill), where limits hold, too: run \"a\" may hold 50.0M; see gpumemctl limit\n",
		(int)getpid());
	require_said(fd, line);
}
END_TEST

START_TEST(another_file_in_the_place_of_stderr_is_not_written_to)
{
	int fd = pipe_as_stderr(), other[2];

	ck_assert_int_eq(pipe2(other, O_CLOEXEC | O_NONBLOCK), 0);
	ck_assert_int_eq(dup2(other[1], STDERR_FILENO), STDERR_FILENO);
	refuse("the device is full; ask for less");
	require_said(other[0], "");
	close(STDERR_FILENO);
	refuse("the device is full; ask for less");
	ck_assert_int_eq(read(fd, &(char){0}, 1), 0);
}
END_TEST

START_TEST(nobody_waits_for_a_reader_that_does_not_read)
{
	static const char block[4096];
	int fd = pipe_as_stderr();

	/* The flag is the file's, which both descriptors share: another one fills the pipe. */
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", STDERR_FILENO);
	int filler = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	ck_assert_int_ge(filler, 0);
	while (write(filler, block, sizeof block) > 0)
		;
	ck_assert_int_eq(errno, EAGAIN);
	ck_assert_int_eq(fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK, 0);
	refuse("the device is full; ask for less");
	close(fd);
}
END_TEST

START_TEST(a_reader_that_is_gone_ends_no_program)
{
	close(pipe_as_stderr());
	signal(SIGPIPE, SIG_DFL);
	ck_assert_int_eq(in_child(child_refused_first), 0);
}
END_TEST

/* ---- the last line */

static int child_reports(void)
{
	gm_preload_report_refused();
	gm_preload_report_print();
	return 0;
}

static int child_reports_on_the_copy(void)
{
	gm_preload_report_begin();
	close(STDERR_FILENO);
	return child_reports();
}

START_TEST(a_report_that_nobody_reads_ends_no_program)
{
	close(pipe_as_stderr());
	signal(SIGPIPE, SIG_DFL);
	ck_assert_int_eq(in_child(child_reports), 0);
	ck_assert_int_eq(in_child(child_reports_on_the_copy), 0);
}
END_TEST

START_TEST(no_control_character_of_a_name_is_printed)
{
	char text[512] = "", expected[128];
	int fd = pipe_as_stderr();

	setenv("GPUMEM_RUN_NAME", "a\033[2J\177\302\233b\303\274\n", 1);
	setenv("GPUMEM_RUN_STDERR", "", 1);
	gm_preload_report_refused();
	gm_preload_report_print();
	ck_assert_int_gt(read(fd, text, sizeof text - 1), 0);
	snprintf(expected, sizeof expected,
		"gpumem-run: a [2J   b\303\274  (pid %d): 0 allocations", (int)getpid());
	ck_assert_msg(strncmp(text, expected, strlen(expected)) == 0, "%s", text);
	ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
}
END_TEST

START_TEST(lines_on_a_terminal_end_with_a_word)
{
	char text[512] = "";
	int ends[2];

	terminal_open(ends, 40);
	ck_assert_int_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
	setenv("GPUMEM_RUN_NAME", "train", 1);
	setenv("GPUMEM_RUN_STDERR", "", 1);
	gm_preload_report_refused();
	gm_preload_report_print();
	ck_assert_int_gt(read(ends[0], text, sizeof text - 1), 0);
	ck_assert_ptr_nonnull(strstr(text, "allocations"));
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		ck_assert_msg(strlen(line) <= 40 && line[strlen(line) - 1] != ' ', "%s", line);
}
END_TEST

/* Becomes a daemon, as far as its standard files show, and lives until the pipe is closed. */
static void live_on(int until)
{
	char byte;

	gm_preload_report_after_fork();
	dup2(until, STDERR_FILENO);
	while (read(until, &byte, 1) > 0)
		;
	_exit(0);
}

START_TEST(a_child_that_lives_on_does_not_hold_up_who_reads_stderr)
{
	int fd = pipe_as_stderr(), until[2], status;

	ck_assert_int_eq(pipe2(until, O_CLOEXEC), 0);
	pid_t program = fork();
	ck_assert_int_ge(program, 0);
	if (program == 0) {
		close(until[1]);
		gm_preload_report_begin();
		if (fork() == 0)
			live_on(until[0]);
		_exit(0);
	}
	dup2(until[1], STDERR_FILENO);
	ck_assert_int_eq(waitpid(program, &status, 0), program);
	ck_assert_int_eq(status, 0);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	ck_assert_int_eq(poll(&p, 1, -1), 1);
	ck_assert_int_eq(read(fd, &(char){0}, 1), 0);
	close(until[1]);
}
END_TEST

int main(void)
{
	setenv("GPUMEM_RUN_REPORT", "1", 1);
	Suite *suite = suite_create("preload_report");
	TCase *tc = tcase_create("fork");
	tcase_set_timeout(tc, 0);
	tcase_add_test(tc, a_child_does_not_wait_for_a_thread_of_its_parent);
	tcase_add_test(tc, a_child_reports_nothing_of_its_parent);
	suite_add_tcase(suite, tc);
	tc = tcase_create("refusal");
	tcase_add_test(tc, the_first_refusal_of_a_process_is_told);
	tcase_add_test(tc, a_refusal_says_why_there_is_no_host_memory_either);
	tcase_add_test(tc, another_file_in_the_place_of_stderr_is_not_written_to);
	tcase_add_test(tc, nobody_waits_for_a_reader_that_does_not_read);
	tcase_add_test(tc, a_reader_that_is_gone_ends_no_program);
	suite_add_tcase(suite, tc);
	tc = tcase_create("report");
	tcase_add_test(tc, a_report_that_nobody_reads_ends_no_program);
	tcase_add_test(tc, no_control_character_of_a_name_is_printed);
	tcase_add_test(tc, lines_on_a_terminal_end_with_a_word);
	tcase_add_test(tc, a_child_that_lives_on_does_not_hold_up_who_reads_stderr);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
