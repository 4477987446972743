/* SPDX-License-Identifier: Apache-2.0 */

/* The order of locks, as a build with --enable-lock-ranks checks it. */

#ifndef GM_LOCK_RANKS
#define GM_LOCK_RANKS
#endif
#include "common/lock.c"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/tap.h"

static struct gm_lock outer, inner;
static pthread_cond_t changed;

static void locks_init(void)
{
	gm_lock_init(&outer, GM_LOCK_WALKING);
	gm_lock_init(&inner, GM_LOCK_SESSION);
	gm_cond_init(&changed);
}

static void locks_deinit(void)
{
	pthread_cond_destroy(&changed);
	gm_lock_deinit(&inner);
	gm_lock_deinit(&outer);
}

/* Runs fn in a child that must abort. Returns what the child said. */
static const char *said(void (*fn)(void))
{
	static char text[512];
	size_t n = 0;
	ssize_t r;
	int pipe_fds[2], status;

	ck_assert_int_eq(pipe(pipe_fds), 0);
	pid_t child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		/* The runner of the tests has a handler, which would run as this child. */
		signal(SIGABRT, SIG_DFL);
		dup2(pipe_fds[1], STDERR_FILENO);
		fn();
		_exit(0);
	}
	close(pipe_fds[1]);
	while ((r = read(pipe_fds[0], text + n, sizeof(text) - 1 - n)) > 0)
		n += (size_t)r;
	text[n] = 0;
	close(pipe_fds[0]);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(
		WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "status %x: %s", status, text);
	return text;
}

static void take_outer_last(void)
{
	gm_lock(&inner);
	gm_lock(&outer);
}

START_TEST(the_wrong_order_ends_the_process_with_both_names)
{
	const char *text = said(take_outer_last);

	/* The compiler knows the file by the path that make gave, which differs where it builds outside of the source. */
	ck_assert_ptr_nonnull(strstr(text, "walking (" __FILE__ ":"));
	ck_assert_ptr_nonnull(strstr(text, "while the thread holds the session's lock"));
}
END_TEST

static void take_same_row(void)
{
	struct gm_lock other = GM_LOCK_INITIALIZER(GM_LOCK_WALKING);

	gm_lock(&outer);
	gm_lock(&other);
}

static void take_twice(void)
{
	gm_lock(&outer);
	gm_lock(&outer);
}

START_TEST(a_second_lock_of_the_same_row_ends_the_process)
{
	ck_assert_ptr_nonnull(strstr(said(take_same_row), "while the thread holds walking"));
	ck_assert_ptr_nonnull(strstr(said(take_twice), "while the thread holds walking"));
}
END_TEST

static void drop_what_is_free(void)
{
	gm_lock_drop(&inner);
}

static void take_what_is_gone(void)
{
	gm_lock_deinit(&inner);
	gm_lock(&inner);
}

START_TEST(a_lock_that_is_not_held_is_not_dropped_and_one_that_is_gone_not_taken)
{
	ck_assert_ptr_nonnull(strstr(said(drop_what_is_free), "the session's lock is dropped"));
	ck_assert_ptr_nonnull(strstr(said(take_what_is_gone), "not initialized"));
}
END_TEST

START_TEST(locks_are_taken_in_order_and_dropped_in_any)
{
	for (int i = 0; i < 2; i++) {
		gm_lock(&outer);
		gm_lock(&inner);
		gm_lock_drop(&outer);
		gm_lock_drop(&inner);
	}
	ck_assert_uint_eq(gm_lock_owned()->n, 0);
}
END_TEST

static void *hold_outer(void *unused)
{
	return gm_lock_try(&outer) ? &outer : unused;
}

START_TEST(any_lock_may_be_tried)
{
	pthread_t thread;
	void *taken;

	gm_lock(&inner);
	ck_assert(gm_lock_try(&outer));
	ck_assert(!gm_lock_try(&outer));
	ck_assert_int_eq(pthread_create(&thread, NULL, hold_outer, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, &taken), 0);
	ck_assert_ptr_null(taken);
	gm_lock_drop(&outer);
	gm_lock_drop(&inner);
	ck_assert_uint_eq(gm_lock_owned()->n, 0);
}
END_TEST

static void take_below_what_was_tried(void)
{
	if (gm_lock_try(&inner))
		gm_lock(&outer);
}

static void take_outer_for_a_while(void)
{
	const struct timespec past = {0};

	gm_lock(&inner);
	(void)gm_lock_timed(&outer, &past);
}

START_TEST(a_lock_that_was_tried_counts_and_a_wait_with_a_deadline_is_a_wait)
{
	const struct timespec past = {0};

	ck_assert_ptr_nonnull(strstr(said(take_below_what_was_tried), "walking"));
	ck_assert_ptr_nonnull(strstr(said(take_outer_for_a_while), "walking"));
	gm_lock(&outer);
	ck_assert(gm_lock_timed(&inner, &past));
	gm_lock_drop(&inner);
	gm_lock_drop(&outer);
}
END_TEST

static bool done;

static void *finish(void *unused)
{
	gm_lock(&outer);
	gm_lock(&inner);
	done = true;
	pthread_cond_broadcast(&changed);
	gm_lock_drop(&inner);
	gm_lock_drop(&outer);
	return unused;
}

static void wait_with_a_later_lock(void)
{
	gm_lock(&outer);
	gm_lock(&inner);
	gm_lock_wait(&outer, &changed);
}

START_TEST(a_wait_for_a_condition_drops_its_lock_and_takes_it_again)
{
	pthread_t thread;

	done = false;
	gm_lock(&inner);
	ck_assert_int_eq(pthread_create(&thread, NULL, finish, NULL), 0);
	while (!done)
		gm_lock_wait(&inner, &changed);
	ck_assert(!gm_lock_wait_until(&inner, &changed, gm_clock_ns()));
	ck_assert_uint_eq(gm_lock_owned()->n, 1);
	gm_lock_drop(&inner);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_ptr_nonnull(strstr(said(wait_with_a_later_lock), "the session's lock"));
}
END_TEST

START_TEST(a_lock_that_is_made_anew_is_not_held)
{
	gm_lock(&outer);
	pthread_mutex_unlock(&outer.mutex); /* as in a forked child, whose parent's thread had it */
	gm_lock_init(&outer, GM_LOCK_WALKING);
	gm_lock(&outer);
	gm_lock_drop(&outer);
	ck_assert_uint_eq(gm_lock_owned()->n, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lock");
	TCase *tc = tcase_create("lock");

	tcase_add_checked_fixture(tc, locks_init, locks_deinit);
	tcase_add_test(tc, the_wrong_order_ends_the_process_with_both_names);
	tcase_add_test(tc, a_second_lock_of_the_same_row_ends_the_process);
	tcase_add_test(tc, a_lock_that_is_not_held_is_not_dropped_and_one_that_is_gone_not_taken);
	tcase_add_test(tc, locks_are_taken_in_order_and_dropped_in_any);
	tcase_add_test(tc, any_lock_may_be_tried);
	tcase_add_test(tc, a_lock_that_was_tried_counts_and_a_wait_with_a_deadline_is_a_wait);
	tcase_add_test(tc, a_wait_for_a_condition_drops_its_lock_and_takes_it_again);
	tcase_add_test(tc, a_lock_that_is_made_anew_is_not_held);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
