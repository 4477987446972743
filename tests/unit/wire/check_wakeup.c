/* SPDX-License-Identifier: Apache-2.0 */
/* Bells: what each side hears, whatever the other one does to the descriptor that both have. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/wire/wakeup.h"
#include "tests/tap.h"

static int wakeup;

static void set_up(void)
{
	ck_assert_int_eq(gm_wakeup_new(&wakeup), 0);
}

static void tear_down(void)
{
	close(wakeup);
}

static void await(void)
{
	struct pollfd p = {.fd = wakeup, .events = POLLIN};
	ck_assert_int_eq(poll(&p, 1, -1), 1);
}

START_TEST(a_bell_rings_until_it_is_cleared)
{
	ck_assert(!gm_wakeup_is_sent(wakeup));
	gm_wakeup_send(wakeup);
	await();
	ck_assert(gm_wakeup_is_sent(wakeup));
	ck_assert_int_eq(gm_wakeup_clear(wakeup), 0);
	ck_assert(!gm_wakeup_is_sent(wakeup));

	/* Twice is as good as once. */
	gm_wakeup_send(wakeup);
	await();
	gm_wakeup_send(wakeup);
	await();
	ck_assert_int_eq(gm_wakeup_clear(wakeup), 0);
	ck_assert(!gm_wakeup_is_sent(wakeup));
	ck_assert_int_eq(gm_wakeup_clear(wakeup), 0);
}
END_TEST

START_TEST(a_bell_is_closed_on_exec_and_is_no_socket)
{
	struct stat st;

	ck_assert_int_eq(fcntl(wakeup, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(fstat(wakeup, &st), 0);
	ck_assert(!S_ISSOCK(st.st_mode));
	ck_assert(!S_ISFIFO(st.st_mode));
}
END_TEST

START_TEST(whatever_the_other_side_set_the_next_ring_is_heard)
{
	const struct itimerspec never = {0}, late = {.it_value.tv_sec = 3600},
				always = {.it_interval.tv_nsec = 1, .it_value.tv_nsec = 1};
	const struct itimerspec *const sets[] = {&never, &late, &always};

	for (size_t i = 0; i < 3; i++) {
		ck_assert_int_eq(fcntl(wakeup, F_SETFL, 0), 0); /* blocking */
		ck_assert_int_eq(timerfd_settime(wakeup, 0, sets[i], NULL), 0);
		gm_wakeup_send(wakeup);
		await();
		ck_assert_int_eq(gm_wakeup_clear(wakeup), 0);
		ck_assert(!gm_wakeup_is_sent(wakeup));
	}
}
END_TEST

START_TEST(the_event_socket_of_an_older_daemon_is_drained)
{
	int ends[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(send(ends[0], "an event, rather long", 21, 0), 21);
	ck_assert(gm_wakeup_is_sent(ends[1]));
	ck_assert_int_eq(gm_wakeup_clear(ends[1]), 0);
	ck_assert(!gm_wakeup_is_sent(ends[1]));
	close(ends[0]);
	ck_assert_int_eq(gm_wakeup_clear(ends[1]), -EPIPE);
	close(ends[1]);
}
END_TEST

START_TEST(what_is_no_bell_is_an_error)
{
	int folder = open("/", O_RDONLY | O_CLOEXEC);

	ck_assert_int_ge(folder, 0);
	gm_wakeup_send(folder);
	ck_assert_int_eq(gm_wakeup_clear(folder), -EISDIR);
	close(folder);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("wakeup");
	TCase *tc = tcase_create("wakeup");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, a_bell_rings_until_it_is_cleared);
	tcase_add_test(tc, a_bell_is_closed_on_exec_and_is_no_socket);
	tcase_add_test(tc, whatever_the_other_side_set_the_next_ring_is_heard);
	tcase_add_test(tc, the_event_socket_of_an_older_daemon_is_drained);
	tcase_add_test(tc, what_is_no_bell_is_an_error);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
