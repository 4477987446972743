/* SPDX-License-Identifier: Apache-2.0 */
/* The report of gpumem-run: what a forked child says, and that no lock of its parent holds it up. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload/broker/preload_report.h"
#include "preload/table/preload_blocks.h"
#include "tests/tap.h"

#define THREADS  4
#define CHILDREN 300

/* The table of blocks, which has nothing here. */
void gm_blocks_total(uint64_t *ret_n, uint64_t *ret_bytes)
{
	*ret_n = *ret_bytes = 0;
}

static atomic_bool enough;

static void *refuse_all_the_time(void *unused)
{
	(void)unused;
	gm_report_why("the parent was refused; ask for less");
	while (!atomic_load(&enough))
		gm_report_refused();
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
		gm_report_after_fork();
		_exit(function());
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status))
		ck_abort_msg("the child was ended by signal %d", WTERMSIG(status));
	return WEXITSTATUS(status);
}

static int child_refused(void)
{
	gm_report_refused();
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
	FILE *said = fmemopen(text, sizeof(text), "w"), *real = stderr;
	if (!said)
		return 3;
	setbuf(said, NULL);
	stderr = said;
	gm_report_print();
	stderr = real;
	fclose(said);
	if (strstr(text, "1 refused; the last: the child was refused\n"))
		return 2;
	return text[0] != '\0';
}

static int child_refused_once(void)
{
	gm_report_why("the child was refused; ask for less");
	gm_report_refused();
	return child_prints();
}

START_TEST(a_child_reports_nothing_of_its_parent)
{
	gm_report_why("the parent was refused; ask for less");
	gm_report_refused();
	gm_report_chunk(2 << 20);
	gm_report_passed(0);
	ck_assert_int_eq(child_prints(), 1);
	ck_assert_int_eq(in_child(child_prints), 0);
	ck_assert_int_eq(in_child(child_refused_once), 2);
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
	return gm_tap_run(suite);
}
