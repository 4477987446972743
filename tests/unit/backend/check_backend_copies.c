/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/backend/backend_copies.h"
#include "tests/tap.h"
#include "tests/unit/open_fds.h"

static struct gm_backend_copies copies;

static int file(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	return fd;
}

START_TEST(a_copy_is_taken_once_and_only_for_its_chunk)
{
	int copy = file();
	ck_assert_int_eq(gm_backend_copies_take(&copies, 0), -1);
	gm_backend_copies_put(&copies, 0, copy);
	ck_assert_int_eq(gm_backend_copies_take(&copies, GM_BACKEND_COPIES), -1);
	ck_assert_int_eq(gm_backend_copies_take(&copies, 0), copy);
	ck_assert_int_eq(gm_backend_copies_take(&copies, 0), -1);
	close(copy);
}
END_TEST

START_TEST(there_is_a_bounded_number_and_the_newest_stay)
{
	unsigned before = open_fds();
	int last = -1;
	for (int fd = 0; fd <= 10 * GM_BACKEND_COPIES; fd++)
		gm_backend_copies_put(&copies, fd, last = file());
	ck_assert_uint_eq(open_fds(), before + GM_BACKEND_COPIES);
	ck_assert_int_eq(gm_backend_copies_take(&copies, 10 * GM_BACKEND_COPIES), last);
	ck_assert_int_eq(gm_backend_copies_take(&copies, 9 * GM_BACKEND_COPIES), -1);
	close(last);

	gm_backend_copies_drop(&copies, 10 * GM_BACKEND_COPIES - 1);
	gm_backend_copies_drop(&copies, 10 * GM_BACKEND_COPIES - 1);
	ck_assert_uint_eq(open_fds(), before + GM_BACKEND_COPIES - 2);
	gm_backend_copies_clear(&copies);
	ck_assert_uint_eq(open_fds(), before);
}
END_TEST

#define ROUNDS 20000

/* A device's thread: it destroys chunks, whose copies the loop pushes out at the same time. */
static void *drop_all(void *arg)
{
	(void)arg;
	for (int i = 0; i < ROUNDS; i++)
		gm_backend_copies_drop(&copies, i % (2 * GM_BACKEND_COPIES));
	return NULL;
}

START_TEST(two_threads_never_close_the_same_copy)
{
	unsigned before = open_fds();
	pthread_t thread;
	ck_assert_int_eq(pthread_create(&thread, NULL, drop_all, NULL), 0);
	for (int i = 0; i < ROUNDS; i++) {
		int copy = file();
		gm_backend_copies_put(&copies, i % (2 * GM_BACKEND_COPIES), copy);
		copy = gm_backend_copies_take(&copies, (i + 5) % (2 * GM_BACKEND_COPIES));
		/* Closed by both, this would be closed already. */
		if (copy >= 0)
			ck_assert_int_eq(close(copy), 0);
	}
	pthread_join(thread, NULL);
	gm_backend_copies_clear(&copies);
	ck_assert_uint_eq(open_fds(), before);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("copies");
	TCase *tcase = tcase_create("copies");
	tcase_add_test(tcase, a_copy_is_taken_once_and_only_for_its_chunk);
	tcase_add_test(tcase, there_is_a_bounded_number_and_the_newest_stay);
	tcase_add_test(tcase, two_threads_never_close_the_same_copy);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
