/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registrations of control blocks: they end, many at a time, while no stream waits for a signal. What a
 * block says does not matter, because other processes write it. See cuda_context_fixture.h.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/map/cuda_capture.h"
#include "client/map/map_control.h"
#include "common/control.h"
#include "tests/unit/map/cuda_context_fixture.h"

/* More than may stay registered. */
#define MANY 65

static int block_new(void)
{
	int fd = memfd_create("check-signals", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, GM_CONTROL_BYTES), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, GM_CONTROL_SEALS), 0);
	return fd;
}

static struct gm_map_control *word_new(int fd)
{
	struct gm_map_control *word;

	ck_assert_int_eq(ops->word_open(map, fd, false, &word), 0);
	return word;
}

static void open_and_close_many(void)
{
	for (int i = 0; i < MANY; i++) {
		int fd = block_new();
		ops->word_close(map, word_new(fd));
		close(fd);
	}
}

/* How many blocks are mapped. */
static int mapped(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int n = 0;

	ck_assert_ptr_nonnull(maps);
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "memfd:check-signals") != NULL;
	fclose(maps);
	return n;
}

/* A process that has the block makes it say what it likes, while the stream has not come to the wait. */
START_TEST(what_a_block_says_does_not_end_registrations)
{
	int fd = block_new();

	open_it();
	primary();
	gm_cu_stream stream = busy_stream();
	struct gm_map_control *word = word_new(fd);
	ck_assert_int_eq(ops->await(map, stream, word, 2), 0);
	open_and_close_many();
	if (_i)
		ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
					 GM_CONTROL_BYTES),
			0);
	atomic_store(&word->control->value, 2);
	ops->word_settle(map);
	ck_assert_int_eq(mapped(), MANY + 1);

	atomic_store(&word->control->value, 0);
	sem_post(&gate);
	ops->word_settle(map);
	ck_assert_int_eq(mapped(), MANY + 1);

	atomic_store(&word->control->value, 2);
	ck_assert_int_eq(cuda->cuStreamSynchronize(stream), 0);
	ops->word_settle(map);
	ck_assert_int_eq(mapped(), 1);
	ops->word_close(map, word);
	pop();
	ops->close(map);
	close(fd);
}
END_TEST

/* A wait that ended long ago is of no account, whatever the block says now. */
START_TEST(waits_that_have_ended_keep_no_registration)
{
	int fd = block_new();

	open_it();
	primary();
	gm_cu_stream stream;
	ck_assert_int_eq(cuda->cuStreamCreate(&stream, 0), 0);
	struct gm_map_control *word = word_new(fd);
	atomic_store(&word->control->value, 1000);
	for (uint64_t i = 1; i <= 1000; i++)
		ck_assert_int_eq(ops->await(map, stream, word, i), 0);
	ck_assert_int_eq(cuda->cuStreamSynchronize(stream), 0);
	atomic_store(&word->control->value, 0);
	open_and_close_many();
	ops->word_settle(map);
	ck_assert_int_eq(mapped(), 1);
	ops->word_close(map, word);
	pop();
	ops->close(map);
	close(fd);
}
END_TEST

/* The session that told the stream to wait is gone, and another one is there. */
START_TEST(a_stream_waits_longer_than_its_session)
{
	int fd = block_new();

	open_it();
	primary();
	gm_cu_stream stream = busy_stream();
	struct gm_map_control *word = word_new(fd);
	struct gm_control *control = word->control;
	ck_assert_int_eq(ops->await(map, stream, word, 2), 0);
	ops->word_close(map, word);
	ops->close(map);

	ck_assert_int_eq(gm_map_cuda_new(uuid_0, &map, why), 0);
	open_and_close_many();
	ops->word_settle(map);
	ck_assert_int_eq(mapped(), MANY + 1);
	sem_post(&gate);
	atomic_store(&control->value, 2); /* the closed block is still mapped */
	ck_assert_int_eq(cuda->cuStreamSynchronize(stream), 0);
	ops->word_settle(map);
	ck_assert_int_eq(mapped(), 0);
	pop();
	ops->close(map);
	close(fd);
}
END_TEST

/* The library holds the primary context no longer than the session does. */
START_TEST(waits_that_have_ended_do_not_hold_the_context)
{
	int fd = block_new();

	open_it();
	primary();
	gm_cu_stream stream;
	ck_assert_int_eq(cuda->cuStreamCreate(&stream, 0), 0);
	struct gm_map_control *word = word_new(fd);
	atomic_store(&word->control->value, 1);
	ck_assert_int_eq(ops->await(map, stream, word, 1), 0);
	ck_assert_int_eq(cuda->cuStreamSynchronize(stream), 0);
	ck_assert_int_eq(cuda->cuStreamDestroy(stream), 0);
	ops->word_close(map, word);
	ops->close(map);
	pop();
	ck_assert_int_eq(cuda->cuDevicePrimaryCtxRelease(0), 0);
	ck_assert(!primary_active());
	close(fd);
}
END_TEST

/* The program begins a capture in another thread, just when a stream was told to wait. */
static gm_cu_result (*wait_value)(gm_cu_stream, gm_cu_ptr, gm_cu_u64, unsigned int);
static pthread_t capturer;

static void *announce(void *unused)
{
	gm_cuda_capture_begin();
	return NULL;
}

static gm_cu_result wait_and_announce(
	gm_cu_stream stream, gm_cu_ptr at, gm_cu_u64 value, unsigned int flags)
{
	gm_cu_result result = wait_value(stream, at, value, flags);

	if (pthread_create(&capturer, NULL, announce, NULL))
		abort();
	while (!gm_cuda_capturing(cuda, 0))
		sched_yield();
	return result;
}

/* Until the capture has ended, the library cannot find out whether the stream goes on. */
START_TEST(registrations_end_after_a_capture_that_began_after_a_wait)
{
	int fd = block_new();

	open_it();
	primary();
	struct gm_map_control *word = word_new(fd);
	wait_value = cuda->cuStreamWaitValue64;
	((struct gm_cuda *)cuda)->cuStreamWaitValue64 = wait_and_announce;
	ck_assert_int_eq(ops->await(map, NULL, word, 2), 0);
	pthread_join(capturer, NULL);
	open_and_close_many();
	ops->word_settle(map);
	ck_assert_int_eq(mapped(), MANY + 1);

	gm_cuda_capture_end();
	ops->word_settle(map);
	ck_assert_int_eq(mapped(), MANY + 1);
	atomic_store(&word->control->value, 2);
	ck_assert_int_eq(cuda->cuStreamSynchronize(NULL), 0);
	ops->word_settle(map);
	ck_assert_int_eq(mapped(), 1);
	ops->word_close(map, word);
	pop();
	ops->close(map);
	close(fd);
}
END_TEST

/* An event of the current context cannot be recorded on such a stream, and one for all streams not now. */
START_TEST(a_stream_of_another_context_may_wait_during_a_capture)
{
	int fd = block_new();

	open_it();
	own_on(0);
	(void)ops->here(map);
	gm_cu_stream stream;
	ck_assert_int_eq(cuda->cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING), 0);
	primary();
	struct gm_map_control *word = word_new(fd);
	gm_cuda_capture_begin();
	ck_assert_int_eq(ops->await(map, stream, word, 2), 0);
	open_and_close_many();
	ops->word_settle(map);
	ck_assert_int_eq(mapped(), MANY + 1);

	gm_cuda_capture_end();
	ops->word_settle(map);
	ck_assert_int_eq(mapped(), MANY + 1);
	atomic_store(&word->control->value, 2);
	do
		ops->word_settle(map);
	while (mapped() > 1); /* a thread of the library's waits for the other context */
	ops->word_close(map, word);
	pop();
	pop();
	ops->close(map);
	close(fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cuda_signal");
	TCase *tc = tcase_create("cuda_signal");
	tcase_add_loop_test(tc, what_a_block_says_does_not_end_registrations, 0, 2);
	tcase_add_test(tc, waits_that_have_ended_keep_no_registration);
	tcase_add_test(tc, a_stream_waits_longer_than_its_session);
	tcase_add_test(tc, waits_that_have_ended_do_not_hold_the_context);
	tcase_add_test(tc, registrations_end_after_a_capture_that_began_after_a_wait);
	tcase_add_test(tc, a_stream_of_another_context_may_wait_during_a_capture);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
