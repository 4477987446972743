/* SPDX-License-Identifier: Apache-2.0 */
/* common/system/memfd.c: who still has the memory. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/system/memfd.h"
#include "tests/tap.h"

#define BYTES UINT64_C(65536)

static int fd;
static int busy; /* so many times, somebody has the memory open when a lease is asked for */

static int control(int number, int command, void *argument)
{
	if (command == F_SETLEASE && (long)argument == F_WRLCK && busy > 0) {
		busy--;
		errno = EAGAIN;
		return -1;
	}
	return (int)syscall(SYS_fcntl, number, command, argument);
}

/* Instead of those of the C library. */
int fcntl(int number, int command, ...)
{
	va_list arguments;
	va_start(arguments, command);
	void *argument = va_arg(arguments, void *);
	va_end(arguments);
	return control(number, command, argument);
}

int fcntl64(int number, int command, ...)
{
	va_list arguments;
	va_start(arguments, command);
	void *argument = va_arg(arguments, void *);
	va_end(arguments);
	return control(number, command, argument);
}

static void setup(void)
{
	ck_assert_int_eq(gm_memfd_create("test", BYTES, &fd), 0);
}

static void teardown(void)
{
	close(fd);
}

static int open_it(bool read_only)
{
	int other;
	ck_assert_int_eq(gm_memfd_open(fd, read_only, &other), 0);
	return other;
}

START_TEST(it_is_private_and_of_the_size_asked_for)
{
	struct stat st;
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(st.st_size, BYTES);
	ck_assert_int_eq(st.st_mode & 0777, 0600);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
}
END_TEST

START_TEST(what_the_maker_does_with_its_own_file_does_not_count)
{
	ck_assert_int_eq(gm_memfd_in_use(fd), GM_MEMFD_FREE);
	int copy = dup(fd);
	void *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(at, MAP_FAILED);
	ck_assert_int_eq(gm_memfd_in_use(fd), GM_MEMFD_FREE);
	munmap(at, BYTES);
	close(copy);
}
END_TEST

/* For writing (0) and for reading (1). */
START_TEST(it_is_in_use_until_the_last_descriptor_and_mapping_are_gone)
{
	bool read_only = _i;
	int other = open_it(read_only);
	ck_assert_int_eq(fcntl(other, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(gm_memfd_in_use(fd), GM_MEMFD_IN_USE);
	int copy = dup(other);
	close(other);
	ck_assert_int_eq(gm_memfd_in_use(fd), GM_MEMFD_IN_USE);

	void *at = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, copy, 0);
	ck_assert_ptr_ne(at, MAP_FAILED);
	close(copy);
	ck_assert_int_eq(gm_memfd_in_use(fd), GM_MEMFD_IN_USE);
	munmap(at, BYTES / 2);
	ck_assert_int_eq(gm_memfd_in_use(fd), GM_MEMFD_IN_USE);
	munmap((char *)at + BYTES / 2, BYTES / 2);
	ck_assert_int_eq(gm_memfd_in_use(fd), GM_MEMFD_FREE);
	/* It can be given away again. */
	close(open_it(read_only));
	ck_assert_int_eq(gm_memfd_in_use(fd), GM_MEMFD_FREE);
}
END_TEST

START_TEST(a_forked_child_has_it_though_its_parent_let_go)
{
	int other = open_it(false), hold[2];
	ck_assert_int_eq(pipe(hold), 0);
	pid_t child = fork();
	if (child == 0) {
		char byte;
		close(fd);
		close(hold[1]);
		_exit(read(hold[0], &byte, 1) == 0 ? 0 : 1);
	}
	close(hold[0]);
	close(other);
	ck_assert_int_eq(gm_memfd_in_use(fd), GM_MEMFD_IN_USE);

	close(hold[1]);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ck_assert_int_eq(gm_memfd_in_use(fd), GM_MEMFD_FREE);
}
END_TEST

START_TEST(where_the_kernel_does_not_tell_it_is_not_known)
{
	/* A pipe cannot have a lease. */
	int ends[2];
	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(gm_memfd_in_use(ends[0]), GM_MEMFD_UNKNOWN);
	ck_assert_int_eq(gm_memfd_in_use(-1), GM_MEMFD_UNKNOWN);
	close(ends[0]);
	close(ends[1]);
}
END_TEST

/* While it is made (0), and when it is first asked about (1). */
START_TEST(one_look_from_outside_does_not_blind_it_for_good)
{
	int other;
	busy = 1;
	ck_assert_int_eq(gm_memfd_create("other", BYTES, &other), 0);
	busy = _i;
	(void)gm_memfd_in_use(other);
	busy = 0;
	ck_assert_int_eq(gm_memfd_in_use(other), GM_MEMFD_FREE);
	ck_assert(gm_memfd_can_tell());
	close(other);
}
END_TEST

START_TEST(a_kernel_that_takes_all_memory_for_used_is_not_believed)
{
	busy = INT_MAX;
	ck_assert_int_eq(gm_memfd_in_use(fd), GM_MEMFD_UNKNOWN);
	ck_assert(!gm_memfd_can_tell());
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("memfd");
	TCase *tcase = tcase_create("memfd");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, it_is_private_and_of_the_size_asked_for);
	tcase_add_test(tcase, what_the_maker_does_with_its_own_file_does_not_count);
	tcase_add_loop_test(
		tcase, it_is_in_use_until_the_last_descriptor_and_mapping_are_gone, 0, 2);
	tcase_add_test(tcase, a_forked_child_has_it_though_its_parent_let_go);
	tcase_add_test(tcase, where_the_kernel_does_not_tell_it_is_not_known);
	tcase_add_loop_test(tcase, one_look_from_outside_does_not_blind_it_for_good, 0, 2);
	tcase_add_test(tcase, a_kernel_that_takes_all_memory_for_used_is_not_believed);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
