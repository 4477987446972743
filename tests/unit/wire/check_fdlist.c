/* SPDX-License-Identifier: Apache-2.0 */

/* The fds of a packet: owned, bounded, in order, closed once. */

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "common/wire/fdlist.h"
#include "tests/bound.h"
#include "tests/tap.h"

static int new_fd(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

START_TEST(what_is_left_is_closed_and_what_was_stolen_is_not)
{
	struct gm_fdlist list;
	int a = new_fd(), b = new_fd(), c = new_fd();

	gm_fdlist_init(&list);
	ck_assert_int_eq(gm_fdlist_add(&list, a), 0);
	ck_assert_int_eq(gm_fdlist_add(&list, b), 0);
	ck_assert_int_eq(gm_fdlist_add(&list, c), 0);
	ck_assert_int_eq(gm_fdlist_steal(&list, 1), b);
	gm_fdlist_deinit(&list);
	ck_assert(!is_open(a));
	ck_assert(is_open(b));
	ck_assert(!is_open(c));
	close(b);
}
END_TEST

START_TEST(a_place_gives_its_fd_once_and_others_keep_their_number)
{
	struct gm_fdlist list;
	int a = new_fd(), b = new_fd();

	gm_fdlist_init(&list);
	ck_assert_int_eq(gm_fdlist_add(&list, a), 0);
	ck_assert_int_eq(gm_fdlist_add(&list, b), 0);
	ck_assert_int_eq(gm_fdlist_steal(&list, 0), a);
	ck_assert_int_eq(gm_fdlist_steal(&list, 0), -1);
	ck_assert_int_eq(gm_fdlist_steal(&list, 1), b);
	ck_assert_int_eq(gm_fdlist_steal(&list, 2), -1);
	ck_assert_int_eq(gm_fdlist_steal(&list, SIZE_MAX), -1);
	ck_assert_uint_eq(list.n, 2);
	gm_fdlist_deinit(&list);
	ck_assert(is_open(a) && is_open(b));
	close(a);
	close(b);
}
END_TEST

START_TEST(deinit_twice_closes_once)
{
	struct gm_fdlist list;
	int fd = new_fd();

	gm_fdlist_init(&list);
	ck_assert_int_eq(gm_fdlist_add(&list, fd), 0);
	gm_fdlist_deinit(&list);
	int same = new_fd(); /* the kernel gives the lowest number: this one is another's now */
	ck_assert_int_eq(same, fd);
	gm_fdlist_deinit(&list);
	ck_assert(is_open(same));
	close(same);
}
END_TEST

START_TEST(one_more_than_a_packet_holds_is_refused_and_stays_the_callers)
{
	GM_BOUND_TEST(PACKET_FDS);
	struct gm_fdlist list;
	int extra = new_fd();

	gm_fdlist_init(&list);
	for (int i = 0; i < GM_BOUND_PACKET_FDS; i++)
		ck_assert_int_eq(gm_fdlist_add(&list, new_fd()), 0);
	ck_assert_int_eq(gm_fdlist_add(&list, extra), -E2BIG);
	ck_assert_uint_eq(list.n, GM_BOUND_PACKET_FDS);
	gm_fdlist_deinit(&list);
	ck_assert(is_open(extra));
	close(extra);
}
END_TEST

START_TEST(what_is_no_fd_is_refused)
{
	struct gm_fdlist list;

	gm_fdlist_init(&list);
	ck_assert_int_eq(gm_fdlist_add(&list, -1), -EBADF);
	ck_assert_uint_eq(list.n, 0);
	gm_fdlist_deinit(&list);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fdlist");
	TCase *tc = tcase_create("fdlist");

	tcase_add_test(tc, what_is_left_is_closed_and_what_was_stolen_is_not);
	tcase_add_test(tc, a_place_gives_its_fd_once_and_others_keep_their_number);
	tcase_add_test(tc, deinit_twice_closes_once);
	tcase_add_test(tc, one_more_than_a_packet_holds_is_refused_and_stays_the_callers);
	tcase_add_test(tc, what_is_no_fd_is_refused);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
