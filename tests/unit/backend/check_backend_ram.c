/* SPDX-License-Identifier: Apache-2.0 */

/* Chunks of host memory that are there as soon as they are made: real memfds on the kernel that
 * there is. What it cannot do is asked of it here in another way, and then not expected. */

#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/bounds.h"
#include "daemon/backend/backend_ram.h"
#include "tests/tap.h"
#include "tests/unit/open_fds.h"

#define MIB UINT64_C(0x100000)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static int create(uint64_t bytes)
{
	int fd;
	ck_assert_int_eq(gm_backend_ram_create(bytes, &fd), 0);
	return fd;
}

static uint64_t present(int fd)
{
	struct stat st;
	ck_assert_int_eq(fstat(fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

/* As a client has it: where huge pages fit. */
static uint8_t *map(int fd, uint64_t bytes)
{
	uint8_t *at =
		mmap(NULL, bytes + GM_CHUNK_MIN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(at, MAP_FAILED);
	at += -(uintptr_t)at & (GM_CHUNK_MIN - 1);
	at = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	ck_assert_ptr_ne(at, MAP_FAILED);
	return at;
}

/* The line of a file in /proc/self that tells of a mapping, or one that follows it. */
static bool find_line(const char *path, const void *addr, const char *wanted, char line[512])
{
	FILE *file = fopen(path, "re");
	bool here = false, found = false;
	unsigned long at;
	char word[2];
	ck_assert_ptr_nonnull(file);
	while (!found && fgets(line, 512, file)) {
		/* "7f00a0000000-7f00a0200000 rw-s …" in smaps, "7f00a0000000 default …" in
		 * numa_maps */
		if (sscanf(line, "%lx%1[- ]", &at, word) == 2)
			here = at == (uintptr_t)addr;
		found = here && strstr(line, wanted);
	}
	fclose(file);
	return found;
}

static uint64_t in_huge_pages(uint8_t *at, uint64_t bytes)
{
	char line[512];
	unsigned long long kib = 0;
	for (uint64_t i = 0; i < bytes; i += 4096)
		*(volatile uint8_t *)(at + i);
	if (find_line("/proc/self/smaps", at, "ShmemPmdMapped:", line))
		sscanf(line, "ShmemPmdMapped: %llu", &kib);
	return kib * 1024;
}

static bool kernel_makes_huge_pages(void)
{
	int fd = create(GM_CHUNK_MIN);
	uint8_t *at = map(fd, GM_CHUNK_MIN);
	*at = 1;
	bool makes = madvise(at, GM_CHUNK_MIN, MADV_COLLAPSE) == 0;
	close(fd);
	return makes;
}

START_TEST(a_filled_chunk_is_all_there_and_zero)
{
	int fd = create(6 * MIB);
	ck_assert_uint_eq(present(fd), 0);
	ck_assert_int_ge(gm_backend_ram_fill(fd, 6 * MIB, -1), 0);
	ck_assert_uint_eq(present(fd), 6 * MIB);
	uint8_t *at = map(fd, 6 * MIB);
	for (uint64_t i = 0; i < 6 * MIB; i++)
		if (at[i])
			ck_abort_msg("byte %llu is %u", (unsigned long long)i, at[i]);
	ck_assert_int_eq(gm_backend_ram_check(fd, 6 * MIB), 0);
	close(fd);
}
END_TEST

START_TEST(what_was_written_before_is_still_there)
{
	int fd = create(4 * MIB);
	char text[4];
	ck_assert_int_eq(pwrite(fd, "data", 4, (off_t)(3 * MIB - 2)), 4);
	ck_assert_int_ge(gm_backend_ram_fill(fd, 4 * MIB, -1), 0);
	ck_assert_int_eq(pread(fd, text, 4, (off_t)(3 * MIB - 2)), 4);
	ck_assert_mem_eq(text, "data", 4);
	/* And again, as a daemon that took the chunk over may do. */
	ck_assert_int_ge(gm_backend_ram_fill(fd, 4 * MIB, -1), 0);
	ck_assert_int_eq(pread(fd, text, 4, (off_t)(3 * MIB - 2)), 4);
	ck_assert_mem_eq(text, "data", 4);
	close(fd);
}
END_TEST

START_TEST(a_filled_chunk_is_in_huge_pages_if_it_says_so)
{
	bool makes = kernel_makes_huge_pages();
	int fd = create(8 * MIB);
	int r = gm_backend_ram_fill(fd, 8 * MIB, -1);
	ck_assert(r == 0 || r == GM_BACKEND_RAM_SMALL);
	if (makes)
		ck_assert_int_eq(r, 0);
	uint64_t huge = in_huge_pages(map(fd, 8 * MIB), 8 * MIB);
	if (r == 0)
		ck_assert_uint_eq(huge, 8 * MIB);
	else
		ck_assert_uint_lt(huge, 8 * MIB);
	close(fd);
}
END_TEST

START_TEST(a_chunk_is_all_there_without_huge_pages)
{
	int fd = create(6 * MIB);
	ck_assert_int_eq(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
	ck_assert_int_eq(gm_backend_ram_fill(fd, 6 * MIB, -1), GM_BACKEND_RAM_SMALL);
	ck_assert_uint_eq(present(fd), 6 * MIB);
	ck_assert_uint_eq(in_huge_pages(map(fd, 6 * MIB), 6 * MIB), 0);
	close(fd);
}
END_TEST

START_TEST(a_filled_chunk_comes_from_the_node_that_was_named)
{
	unsigned long nodes = 1;
	char line[512];
	int fd = create(2 * MIB);
	uint8_t *at = map(fd, 2 * MIB);
	if (access("/proc/self/numa_maps", R_OK) < 0 ||
		syscall(SYS_mbind, at, 2 * MIB, MPOL_PREFERRED, &nodes, 8 * sizeof(nodes), 0) < 0) {
		close(fd);
		return; /* no NUMA here, or not for us */
	}
	close(fd);
	for (int node = -1; node < 1; node++) {
		fd = create(2 * MIB);
		ck_assert_int_ge(gm_backend_ram_fill(fd, 2 * MIB, node), 0);
		at = map(fd, 2 * MIB);
		*(volatile uint8_t *)at;
		ck_assert(find_line("/proc/self/numa_maps", at, " prefer", line) == (node == 0));
		close(fd);
	}
	/* A node that there is not: it is taken from another. */
	fd = create(2 * MIB);
	ck_assert_int_ge(gm_backend_ram_fill(fd, 2 * MIB, 1023), 0);
	ck_assert_int_ge(gm_backend_ram_fill(fd, 2 * MIB, 1024), 0);
	ck_assert_uint_eq(present(fd), 2 * MIB);
	close(fd);
}
END_TEST

START_TEST(a_chunk_that_cannot_be_filled_is_left_as_it_was)
{
	struct rlimit before, none;
	int fd = create(4 * MIB), read_only;
	unsigned fds = open_fds();
	ck_assert_int_eq(gm_backend_ram_fill(-1, 4 * MIB, -1), -EBADF);
	ck_assert_int_eq(gm_backend_ram_read_only(fd, &read_only), 0);
	ck_assert_int_eq(gm_backend_ram_fill(read_only, 4 * MIB, -1), -EACCES);
	close(read_only);
	ck_assert_int_eq(getrlimit(RLIMIT_AS, &before), 0);
	none = before;
	none.rlim_cur = 0;
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &none), 0);
	int r = gm_backend_ram_fill(fd, 4 * MIB, -1);
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &before), 0);
	ck_assert_int_eq(r, -ENOMEM);
	ck_assert_uint_eq(present(fd), 0);
	ck_assert_uint_eq(open_fds(), fds);
	ck_assert_int_ge(gm_backend_ram_fill(fd, 4 * MIB, -1), 0);
	close(fd);
}
END_TEST

START_TEST(nothing_stays_mapped)
{
	char line[512];
	int fd = create(2 * MIB);
	ck_assert_int_ge(gm_backend_ram_fill(fd, 2 * MIB, 0), 0);
	FILE *file = fopen("/proc/self/maps", "re");
	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file))
		ck_assert_ptr_null(strstr(line, "memfd:gpumem-chunk"));
	fclose(file);
	close(fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("backend_ram");
	TCase *tcase = tcase_create("fill");
	tcase_add_test(tcase, a_filled_chunk_is_all_there_and_zero);
	tcase_add_test(tcase, what_was_written_before_is_still_there);
	tcase_add_test(tcase, a_filled_chunk_is_in_huge_pages_if_it_says_so);
	tcase_add_test(tcase, a_chunk_is_all_there_without_huge_pages);
	tcase_add_test(tcase, a_filled_chunk_comes_from_the_node_that_was_named);
	tcase_add_test(tcase, a_chunk_that_cannot_be_filled_is_left_as_it_was);
	tcase_add_test(tcase, nothing_stays_mapped);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
