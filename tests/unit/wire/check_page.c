/* SPDX-License-Identifier: Apache-2.0 */

/* Blocks of the shared pages: whole states only, no waiting, whatever the other side does. */

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/wire/page.h"
#include "tests/tap.h"

START_TEST(the_layout_is_part_of_the_protocol)
{
	ck_assert_uint_eq(offsetof(struct gm_page_header, generation), 8);
	ck_assert_uint_eq(offsetof(struct gm_page_header, session), 16);
	ck_assert_uint_eq(offsetof(struct gm_page_header, devices), 24);
	ck_assert_uint_eq(offsetof(struct gm_page_header, rows), 28);
	ck_assert_uint_eq(offsetof(struct gm_page_device, level), 4);
	ck_assert_uint_eq(offsetof(struct gm_page_device, pressure_ppm), 8);
	ck_assert_uint_eq(offsetof(struct gm_page_device, reclaim_epoch), 16);
	ck_assert_uint_eq(offsetof(struct gm_page_device, total), 24);
	ck_assert_uint_eq(offsetof(struct gm_page_device, capacity), 32);
	ck_assert_uint_eq(offsetof(struct gm_page_device, available), 40);
	ck_assert_uint_eq(offsetof(struct gm_page_device, held), 48);
	ck_assert_uint_eq(offsetof(struct gm_page_device, max), 56);
	ck_assert_uint_eq(offsetof(struct gm_page_daemon, devices), 128);
	ck_assert_uint_eq(sizeof(struct gm_page_daemon), 128 * 17);
	ck_assert_uint_eq(offsetof(struct gm_page_use, in_use), 8);
	ck_assert_uint_eq(offsetof(struct gm_page_use, cached), 16);
	ck_assert_uint_eq(offsetof(struct gm_page_use, peak), 24);
	ck_assert_uint_eq(offsetof(struct gm_page_use, hits), 32);
	ck_assert_uint_eq(offsetof(struct gm_page_use, misses), 40);
	ck_assert_uint_eq(offsetof(struct gm_page_use, returns), 48);
	ck_assert_uint_eq(offsetof(struct gm_page_use, cpu_fallbacks), 56);
	ck_assert_uint_eq(offsetof(struct gm_page_use, active_buffers), 64);
	ck_assert_uint_eq(offsetof(struct gm_page_use, untracked), 72);
	ck_assert_uint_eq(offsetof(struct gm_page_use, slack), 80);
	ck_assert_uint_eq(offsetof(struct gm_page_use, opened), 88);
	ck_assert_uint_eq(offsetof(struct gm_page_use, passed), 112);
	ck_assert_uint_eq(offsetof(struct gm_page_device, room), 64);
	ck_assert_uint_eq(offsetof(struct gm_page_header, bytes), 32);
	ck_assert_uint_eq(offsetof(struct gm_page_row, device), 4);
	ck_assert_uint_eq(offsetof(struct gm_page_row, bytes), 8);
	ck_assert_uint_eq(offsetof(struct gm_page_row, born_ns), 16);
	ck_assert_uint_eq(offsetof(struct gm_page_row, tag), 24);
	ck_assert_uint_eq(offsetof(struct gm_page_client, use), 128);
	ck_assert_uint_eq(offsetof(struct gm_page_client, rows), 128 * 17);
	ck_assert_uint_eq(offsetof(struct gm_page_row, growth), 88);
	ck_assert_uint_eq(offsetof(struct gm_page_client, notes), 128 * (17 + 1024));
	ck_assert_uint_eq(sizeof(struct gm_page_note), 48);
	ck_assert_uint_eq(sizeof(struct gm_page_module), 256);
	ck_assert_uint_eq(sizeof(struct gm_page_stack), 128);
	ck_assert_uint_eq(offsetof(struct gm_page_client, modules), 128 * (17 + 1024) + 48 * 1024);
	ck_assert_uint_eq(
		offsetof(struct gm_page_client, stacks), 128 * (17 + 1024) + 48 * 1024 + 256 * 32);
	ck_assert_uint_eq(sizeof(struct gm_page_client),
		128 * (17 + 1024) + 48 * 1024 + 256 * 32 + 128 * 512);
	ck_assert_int_eq(memcmp(&(uint32_t){GM_PAGE_DAEMON_MAGIC}, "GMD1", 4), 0);
	ck_assert_int_eq(memcmp(&(uint32_t){GM_PAGE_CLIENT_MAGIC}, "GMC1", 4), 0);
}
END_TEST

START_TEST(what_is_written_is_read_and_the_count_moves_by_two)
{
	struct gm_page_device block = {.seq = 6}, value, copy;

	memset(&value, 0xa5, sizeof(value));
	gm_page_write(&block, &value, sizeof(block));
	ck_assert_int_eq(gm_page_read(&block, sizeof(block), &copy), 0);
	ck_assert_uint_eq(copy.seq, 8);
	ck_assert_int_eq(memcmp((char *)&copy + 4, (char *)&value + 4, sizeof(copy) - 4), 0);
}
END_TEST

START_TEST(a_writer_that_stopped_in_the_middle_is_not_waited_for)
{
	struct gm_page_device block = {.seq = 0}, copy;

	memset(&copy, 0x11, sizeof(copy));
	gm_page_write_begin(&block.seq);
	ck_assert_int_eq(gm_page_read(&block, sizeof(block), &copy), -EAGAIN);
	ck_assert_uint_eq(copy.total, UINT64_C(0x1111111111111111));
	gm_page_write_end(&block.seq);
	ck_assert_int_eq(gm_page_read(&block, sizeof(block), &copy), 0);
	ck_assert_uint_eq(copy.total, 0);
}
END_TEST

START_TEST(the_count_may_go_round)
{
	struct gm_page_use block = {.seq = UINT32_MAX - 1}, value = {.in_use = 7}, copy;

	gm_page_write(&block, &value, sizeof(block));
	ck_assert_uint_eq(block.seq, 0);
	ck_assert_int_eq(gm_page_read(&block, sizeof(block), &copy), 0);
	ck_assert_uint_eq(copy.in_use, 7);
}
END_TEST

START_TEST(an_odd_length_is_refused)
{
	struct gm_page_device block = {.seq = 0}, copy = {.level = 9};
	uint8_t large[GM_PAGE_BLOCK + 8];

	ck_assert_int_eq(gm_page_read(&block, 0, &copy), -EINVAL);
	ck_assert_int_eq(gm_page_read(&block, 12, &copy), -EINVAL);
	ck_assert_int_eq(gm_page_read(&block, GM_PAGE_BLOCK + 8, large), -EINVAL);
	ck_assert_int_eq(gm_page_pread(-1, 0, 0, &copy), -EINVAL);
	ck_assert_int_eq(gm_page_pread(-1, 0, GM_PAGE_BLOCK + 8, large), -EINVAL);
	ck_assert_uint_eq(copy.level, 9);
}
END_TEST

/* ---- one writer, several readers, one after the other as fast as they can */

#define WORDS ((GM_PAGE_BLOCK - 8) / 8)
struct block {
	_Atomic uint32_t seq;
	uint32_t half;
	uint64_t words[WORDS];
};

static struct block *shared;
static _Atomic bool stop;
#define WHOLE_READS 20000

static bool whole(const struct block *copy)
{
	for (size_t i = 0; i < WORDS; i++)
		if (copy->words[i] != copy->words[0])
			return false;
	return copy->half == (uint32_t)copy->words[0] && copy->seq % 2 == 0;
}

static void *keep_writing(void *unused)
{
	struct block value = {.seq = 0};

	(void)unused;
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		value.half++;
		for (size_t i = 0; i < WORDS; i++)
			value.words[i] = value.half;
		gm_page_write(shared, &value, sizeof(value));
	}
	return NULL;
}

static void *read_many(void *unused)
{
	uintptr_t torn = 0;

	(void)unused;
	for (int read = 0; read < WHOLE_READS;) {
		struct block copy;
		if (gm_page_read(shared, sizeof(copy), &copy) < 0)
			continue;
		read++;
		if (!whole(&copy))
			torn++;
	}
	return (void *)torn;
}

START_TEST(no_reader_ever_sees_half_a_write)
{
	pthread_t writer, readers[2];
	struct block block = {.seq = 0};

	shared = &block;
	stop = false;
	ck_assert_int_eq(pthread_create(&writer, NULL, keep_writing, NULL), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&readers[i], NULL, read_many, NULL), 0);
	for (int i = 0; i < 2; i++) {
		void *torn;
		ck_assert_int_eq(pthread_join(readers[i], &torn), 0);
		ck_assert_ptr_null(torn);
	}
	stop = true;
	ck_assert_int_eq(pthread_join(writer, NULL), 0);
}
END_TEST

/* ---- the daemon's way: a file it does not map */

static int new_memfd(size_t size)
{
	int fd = memfd_create("check_page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
	return fd;
}

START_TEST(no_pread_ever_sees_half_a_write)
{
	int fd = new_memfd(GM_PAGE_BLOCK * 2);
	pthread_t writer;
	uint8_t *map = mmap(NULL, GM_PAGE_BLOCK * 2, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	ck_assert_ptr_ne(map, MAP_FAILED);
	shared = (struct block *)(map + GM_PAGE_BLOCK);
	stop = false;
	ck_assert_int_eq(pthread_create(&writer, NULL, keep_writing, NULL), 0);
	/* A writer that never rests may starve a reader, which is allowed: so tries are bounded,
	 * and the last reads happen with the writer gone. */
	for (int i = 0; i < 2000; i++) {
		struct block copy;
		int r = gm_page_pread(fd, GM_PAGE_BLOCK, sizeof(copy), &copy);
		ck_assert(r == 0 || r == -EAGAIN);
		if (r == 0)
			ck_assert(whole(&copy));
	}
	stop = true;
	ck_assert_int_eq(pthread_join(writer, NULL), 0);
	struct block copy;
	ck_assert_int_eq(gm_page_pread(fd, GM_PAGE_BLOCK, sizeof(copy), &copy), 0);
	ck_assert(whole(&copy));
	munmap(map, GM_PAGE_BLOCK * 2);
	close(fd);
}
END_TEST

START_TEST(a_pread_past_the_end_or_of_no_file_fails)
{
	int fd = new_memfd(GM_PAGE_BLOCK + 64);
	struct gm_page_row copy = {.device = 3};

	ck_assert_int_eq(gm_page_pread(fd, GM_PAGE_BLOCK, sizeof(copy), &copy), -EIO);
	ck_assert_int_eq(gm_page_pread(fd, GM_PAGE_BLOCK * 9, sizeof(copy), &copy), -EIO);
	ck_assert_int_eq(gm_page_pread(-1, 0, sizeof(copy), &copy), -EBADF);
	ck_assert_uint_eq(copy.device, 3);
	close(fd);
}
END_TEST

START_TEST(nonsense_in_every_word_is_only_copied)
{
	int fd = new_memfd(GM_PAGE_BLOCK);
	uint8_t nonsense[GM_PAGE_BLOCK], copy[GM_PAGE_BLOCK];

	memset(nonsense, 0xff, sizeof(nonsense));
	ck_assert_int_eq(pwrite(fd, nonsense, sizeof(nonsense), 0), sizeof(nonsense));
	memset(copy, 0, sizeof(copy));
	/* An odd count for ever. */
	ck_assert_int_eq(gm_page_pread(fd, 0, sizeof(copy), copy), -EAGAIN);
	ck_assert_uint_eq(copy[8], 0);
	nonsense[0] = 0xfe;
	ck_assert_int_eq(pwrite(fd, nonsense, sizeof(nonsense), 0), sizeof(nonsense));
	ck_assert_int_eq(gm_page_pread(fd, 0, sizeof(copy), copy), 0);
	ck_assert_int_eq(memcmp(copy, nonsense, sizeof(copy)), 0);
	close(fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("page");
	TCase *tc = tcase_create("page");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, the_layout_is_part_of_the_protocol);
	tcase_add_test(tc, what_is_written_is_read_and_the_count_moves_by_two);
	tcase_add_test(tc, a_writer_that_stopped_in_the_middle_is_not_waited_for);
	tcase_add_test(tc, the_count_may_go_round);
	tcase_add_test(tc, an_odd_length_is_refused);
	tcase_add_test(tc, no_reader_ever_sees_half_a_write);
	tcase_add_test(tc, no_pread_ever_sees_half_a_write);
	tcase_add_test(tc, a_pread_past_the_end_or_of_no_file_fails);
	tcase_add_test(tc, nonsense_in_every_word_is_only_copied);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
