/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host backend's mapping: what is reserved stays ours, what is mapped is the chunk, and a child
 * sees none of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/map/map_host.h"
#include "tests/tap.h"

#define M GM_CHUNK_MIN

static void *host; /* it keeps nothing */
static const struct gm_map_ops *ops;

static void set_up(void)
{
	ops = gm_map_host_ops();
	ck_assert_ptr_null(ops->record); /* what is freed can be reused at once */
}

static void tear_down(void)
{
	ops->close(host);
}

static int chunk(uint64_t bytes)
{
	int fd = memfd_create("chunk", MFD_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	return fd;
}

/* Whether a load (or a store) at p kills a process. */
static bool kills(volatile uint8_t *p, bool store)
{
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		if (store)
			*p = 1;
		else
			(void)*p;
		_exit(0);
	}
	int status;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

/* A fault in this process, seen by the kernel's refusal instead of a signal. */
static bool readable(const void *p)
{
	int fds[2];
	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	bool ok = write(fds[1], p, 1) == 1;
	close(fds[0]);
	close(fds[1]);
	return ok;
}

static bool writable(void *p)
{
	int fds[2];
	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	ck_assert_int_eq(write(fds[1], "x", 1), 1);
	bool ok = read(fds[0], p, 1) == 1;
	close(fds[0]);
	close(fds[1]);
	return ok;
}

START_TEST(a_reservation_is_aligned_and_cannot_be_touched)
{
	for (int i = 0; i < 8; i++) {
		void *p;
		ck_assert_int_eq(ops->reserve(host, 3 * M, &p), 0);
		ck_assert_uint_eq((uintptr_t)p % M, 0);
		ck_assert(!readable(p));
		ck_assert(!readable((uint8_t *)p + 3 * M - 1));
		ops->unreserve(host, p, 3 * M);
	}
	void *p;
	ck_assert_int_eq(ops->reserve(host, 0, &p), -EINVAL);
	ck_assert_int_eq(ops->reserve(host, UINT64_MAX, &p), -EINVAL);
	ck_assert_int_eq(ops->reserve(host, UINT64_C(1) << 62, &p), -ENOMEM);
}
END_TEST

START_TEST(chunks_side_by_side_are_one_range_and_need_no_fd)
{
	uint8_t *p;
	ck_assert_int_eq(ops->reserve(host, 4 * M, (void **)&p), 0);
	int a = chunk(M), b = chunk(2 * M);
	ck_assert_int_eq(ops->map(host, p, M, a), 0);
	ck_assert_int_eq(ops->map(host, p + M, 2 * M, b), 0);
	ck_assert(!readable(p));
	ck_assert_int_eq(ops->access(host, p, 3 * M, false), 0);
	memset(p, 0x5a, 3 * M);
	uint8_t seen = 0;
	ck_assert_int_eq(pread(b, &seen, 1, (off_t)(2 * M - 1)), 1);
	ck_assert_uint_eq(seen, 0x5a);
	close(a);
	close(b);
	ck_assert_uint_eq(p[3 * M - 1], 0x5a);
	ck_assert(!readable(p + 3 * M));
	ck_assert_int_eq(ops->unmap(host, p, M), 0);
	ck_assert(!readable(p));
	ck_assert_uint_eq(p[M], 0x5a);
	ops->unreserve(host, p, 4 * M);
}
END_TEST

START_TEST(a_moved_chunk_is_at_the_new_place_only)
{
	uint8_t *p;
	ck_assert_int_eq(ops->reserve(host, 4 * M, (void **)&p), 0);
	int fd = chunk(M);
	ck_assert_int_eq(ops->map(host, p, M, fd), 0);
	ck_assert_int_eq(ops->access(host, p, M, false), 0);
	p[7] = 42;
	ck_assert_int_eq(ops->move(host, p, p + 2 * M, M), 0);
	ck_assert(!readable(p));
	ck_assert_int_eq(ops->access(host, p + 2 * M, M, false), 0);
	p[2 * M + 7] = 43;
	uint8_t seen = 0;
	ck_assert_int_eq(pread(fd, &seen, 1, 7), 1);
	ck_assert_uint_eq(seen, 43);
	ck_assert(kills(p + 2 * M, false));
	close(fd);
	ops->unreserve(host, p, 4 * M);
}
END_TEST

START_TEST(read_only_access_cannot_be_written)
{
	uint8_t *p;
	ck_assert_int_eq(ops->reserve(host, M, (void **)&p), 0);
	int fd = chunk(M);
	ck_assert_int_eq(ops->map(host, p, M, fd), 0);
	ck_assert_int_eq(ops->access(host, p, M, true), 0);
	ck_assert(readable(p));
	ck_assert(!writable(p));
	ck_assert_int_eq(ops->unmap(host, p, M), 0);
	/* An fd that was opened for reading gives no more, whatever is asked. */
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int weak = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(weak, 0);
	ck_assert_int_eq(ops->map(host, p, M, weak), 0);
	ck_assert_int_eq(ops->access(host, p, M, false), -EACCES);
	ck_assert_int_eq(ops->access(host, p, M, true), 0);
	close(weak);
	close(fd);
	ops->unreserve(host, p, M);
}
END_TEST

START_TEST(a_child_does_not_inherit_chunks)
{
	uint8_t *p;
	ck_assert_int_eq(ops->reserve(host, M, (void **)&p), 0);
	int fd = chunk(M);
	ck_assert_int_eq(ops->map(host, p, M, fd), 0);
	ck_assert_int_eq(ops->access(host, p, M, false), 0);
	p[0] = 1;
	ck_assert(kills(p, false));
	ck_assert(kills(p, true));
	ck_assert_uint_eq(p[0], 1);
	close(fd);
	ops->unreserve(host, p, M);
}
END_TEST

START_TEST(a_missing_fd_is_refused)
{
	uint8_t *p;
	ck_assert_int_eq(ops->reserve(host, M, (void **)&p), 0);
	ck_assert_int_eq(ops->map(host, p, M, -1), -EBADF);
	ck_assert(!readable(p));
	ops->unreserve(host, p, M);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("map_host");
	TCase *tc = tcase_create("map_host");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, a_reservation_is_aligned_and_cannot_be_touched);
	tcase_add_test(tc, chunks_side_by_side_are_one_range_and_need_no_fd);
	tcase_add_test(tc, a_moved_chunk_is_at_the_new_place_only);
	tcase_add_test(tc, read_only_access_cannot_be_written);
	tcase_add_test(tc, a_child_does_not_inherit_chunks);
	tcase_add_test(tc, a_missing_fd_is_refused);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
