/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a process is in this one's pid namespace, and that nobody is trusted for want of file descriptors. */
#include "common/system/pid_ns.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/tap.h"

#define NOBODY 65534

START_TEST(the_depth_of_pid_namespaces_is_counted)
{
	ck_assert_uint_eq(gm_pid_ns_depth("Name:\tx\nNSpid:\t12\nNSpgid:\t12\t1\n"), 1);
	ck_assert_uint_eq(gm_pid_ns_depth("Name:\tx\nNSpid:\t12\t3\t1\n"), 3);
	ck_assert_uint_eq(gm_pid_ns_depth("NSpid:\t12\t3"), 2);
	ck_assert_uint_eq(gm_pid_ns_depth("Name:\tNSpid: 1 2\nUid:\t0\n"), 0);
	ck_assert_uint_eq(gm_pid_ns_depth(""), 0);
}
END_TEST

/* A child that waits. It ends with this process. */
static pid_t waiting_child(void)
{
	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	ck_assert_int_gt(child, 0);
	return child;
}

static void end_child(pid_t child)
{
	kill(child, SIGKILL);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
}

START_TEST(a_process_beside_this_one_is_in_its_namespace_and_one_that_has_ended_is_not)
{
	pid_t child = waiting_child();

	ck_assert_int_eq(gm_pid_ns_is_own(getpid(), 0), 1);
	ck_assert_int_eq(gm_pid_ns_is_own(child, 0), 1);
	end_child(child);
	ck_assert_int_eq(gm_pid_ns_is_own(child, 0), 0);
	/* The kernel's number for a process that this one cannot see. */
	ck_assert_int_eq(gm_pid_ns_is_own(0, 0), 0);
}
END_TEST

/* From now on, this process can open nothing. */
static void leave_no_descriptors(void)
{
	struct rlimit none = {0};

	if (setrlimit(RLIMIT_NOFILE, &none) < 0)
		_exit(1);
}

static void become_nobody(void)
{
	if (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0)
		_exit(1);
}

/* Has an ordinary user's process, which may not see the link, ask whether pid is in its namespace. Returns the answer. */
static int nobodys_answer(pid_t pid, size_t depth, void (*before)(void))
{
	int status;

	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		become_nobody();
		if (before)
			before();
		int r = gm_pid_ns_is_own(pid, depth);
		_exit(r < 0 ? 100 - r : 10 + r);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) >= 10);
	return WEXITSTATUS(status) >= 100 ? 100 - WEXITSTATUS(status) : WEXITSTATUS(status) - 10;
}

START_TEST(nobody_is_trusted_for_want_of_file_descriptors)
{
	/* As it is with a daemon that is no container's. In one, the links alone tell. */
	if (nobodys_answer(getpid(), 0, NULL) != 1)
		return;
	ck_assert_int_eq(nobodys_answer(getpid(), 0, leave_no_descriptors), -EMFILE);
	ck_assert_int_eq(nobodys_answer(getpid(), 1, leave_no_descriptors), -EMFILE);
	ck_assert_int_eq(nobodys_answer(getpid(), 1, NULL), 1);
	ck_assert_int_eq(nobodys_answer(getpid(), 2, NULL), 0);
}
END_TEST

/* A process whose first child in a pid namespace has ended can have no others, so a child does it. */
START_TEST(a_process_in_a_container_is_in_another_namespace)
{
	int status;

	fflush(NULL);
	pid_t outside = fork();
	if (outside == 0) {
		if (unshare(CLONE_NEWPID) < 0)
			_exit(1);
		_exit(gm_pid_ns_is_own(waiting_child(), 0) == 0 ? 2 : 3);
	}
	ck_assert_int_eq(waitpid(outside, &status, 0), outside);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pid_ns");
	TCase *tc = tcase_create("pid_ns");

	tcase_add_test(tc, the_depth_of_pid_namespaces_is_counted);
	tcase_add_test(
		tc, a_process_beside_this_one_is_in_its_namespace_and_one_that_has_ended_is_not);
	if (GM_TAP_WITH_USERS(nobody_is_trusted_for_want_of_file_descriptors))
		tcase_add_test(tc, nobody_is_trusted_for_want_of_file_descriptors);
	if (GM_TAP_WITH_USERS(a_process_in_a_container_is_in_another_namespace))
		tcase_add_test(tc, a_process_in_a_container_is_in_another_namespace);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
