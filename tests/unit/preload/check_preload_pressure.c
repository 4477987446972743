/* SPDX-License-Identifier: Apache-2.0 */
/* The descriptor at which a program under gpumem-run waits until memory is wanted: whatever the program does with its
 * descriptors, the library writes to none but its own. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload/broker/preload_pressure.h"
#include "tests/tap.h"

#define MOST 64 /* descriptors of these tests */

static void want(void)
{
	const gpumem_event event = {.kind = GPUMEM_EVENT_RECLAIM, .bytes = 1};
	gm_preload_pressure_event(NULL, &event);
}

static bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return poll(&p, 1, 0) == 1 && p.revents & POLLIN;
}

static void require_one(int fd)
{
	uint64_t n = 0;
	ck_assert_int_eq(read(fd, &n, sizeof(n)), 8);
	ck_assert_uint_eq(n, 1);
	ck_assert(!readable(fd));
}

static int asked(void)
{
	int fd = gpumem_preload_wanted();
	ck_assert_int_ge(fd, 0);
	ck_assert_int_lt(fd, MOST);
	return fd;
}

START_TEST(a_reader_hears_once_of_all_that_was_wanted_meanwhile)
{
	want(); /* before anybody has asked */
	int fd = asked();
	ck_assert(!readable(fd));
	ck_assert_int_eq(gpumem_preload_wanted(), fd);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	for (int i = 0; i < 1000; i++)
		want();
	require_one(fd);
	want();
	require_one(fd);
}
END_TEST

START_TEST(what_wants_nothing_is_not_told)
{
	const gpumem_event events[] = {
		{.kind = GPUMEM_EVENT_RECLAIM, .bytes = 0},
		{.kind = GPUMEM_EVENT_PRESSURE, .level = GPUMEM_LEVEL_MEDIUM},
	};
	int fd = asked();
	for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++)
		gm_preload_pressure_event(NULL, &events[i]);
	ck_assert(!readable(fd));
}
END_TEST

/* Which descriptors are closed: that of the reader, the other one, or both. */
static void close_some(int reader, int which)
{
	for (int fd = 3; fd < MOST; fd++) {
		struct stat now;
		if (fstat(fd, &now) == 0 && S_ISSOCK(now.st_mode) &&
			(which == 2 || (fd == reader) == (which == 0)))
			close(fd);
	}
}

START_TEST(a_descriptor_that_the_program_has_closed_is_not_returned)
{
	int old = asked();
	close_some(old, _i);
	want(); /* to nobody: neither a signal nor an error */
	int fd = asked();
	ck_assert(_i == 0 || _i == 2 || fd != old);
	ck_assert(!readable(fd));
	want();
	require_one(fd);
	ck_assert_int_eq(gpumem_preload_wanted(), fd);
}
END_TEST

/* Opens eventfds in all free places, up to MOST. */
static void fill(bool filled[MOST])
{
	int fd;
	while ((fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) >= 0 && fd < MOST)
		filled[fd] = true;
	close(fd);
}

START_TEST(the_library_writes_to_no_file_that_the_program_has_opened_in_the_place)
{
	bool filled[MOST] = {false};
	int old = asked();
	close_some(old, 2);
	fill(filled);
	ck_assert(filled[old]);
	want();
	for (int fd = 0; fd < MOST; fd++)
		ck_assert(!filled[fd] || !readable(fd));

	int fd = gpumem_preload_wanted();
	ck_assert_int_ge(fd, MOST);
	want();
	require_one(fd);
	for (int i = 0; i < MOST; i++) {
		ck_assert(!filled[i] || !readable(i));
		ck_assert(!filled[i] || fcntl(i, F_GETFD) == FD_CLOEXEC); /* and closes none */
	}
}
END_TEST

START_TEST(a_reader_whose_other_end_was_closed_comes_back)
{
	uint64_t n;
	int old = asked();
	close_some(old, 1);
	ck_assert_int_eq(read(old, &n, sizeof(n)), 0);
	(void)asked();
	ck_assert_int_eq(read(old, &n, sizeof(n)), 0);
}
END_TEST

static void *ask_cancelled(void *ctx)
{
	int *fd = ctx;
	pthread_cancel(pthread_self()); /* takes effect at the next call that may wait */
	*fd = gpumem_preload_wanted();
	pthread_testcancel();
	return NULL;
}

START_TEST(a_cancelled_thread_makes_its_call_to_the_end)
{
	int fd = -1;
	void *ended;
	pthread_t thread;

	close_some(asked(), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, ask_cancelled, &fd), 0);
	ck_assert_int_eq(pthread_join(thread, &ended), 0);
	ck_assert_ptr_eq(ended, PTHREAD_CANCELED);
	ck_assert_int_ge(fd, 0);
	want(); /* would wait for ever for a lock that the thread still has */
	require_one(fd);
}
END_TEST

START_TEST(a_child_has_a_descriptor_of_its_own)
{
	int fd = asked(), status;
	pid_t pid = fork();
	if (pid == 0) {
		gm_preload_pressure_after_fork();
		if (fcntl(fd, F_GETFD) >= 0)
			_exit(1);
		want();
		int own = gpumem_preload_wanted();
		want();
		_exit(own >= 0 && readable(own) ? 0 : 2);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert(!readable(fd));
	want();
	require_one(fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("preload_pressure");
	TCase *tc = tcase_create("wanted");
	tcase_set_timeout(tc, 0);
	tcase_add_test(tc, a_reader_hears_once_of_all_that_was_wanted_meanwhile);
	tcase_add_test(tc, what_wants_nothing_is_not_told);
	tcase_add_loop_test(tc, a_descriptor_that_the_program_has_closed_is_not_returned, 0, 3);
	tcase_add_test(tc, the_library_writes_to_no_file_that_the_program_has_opened_in_the_place);
	tcase_add_test(tc, a_reader_whose_other_end_was_closed_comes_back);
	tcase_add_test(tc, a_cancelled_thread_makes_its_call_to_the_end);
	tcase_add_test(tc, a_child_has_a_descriptor_of_its_own);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
