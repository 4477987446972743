/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Streams of the cuda backend over the fake driver (run it with tests/fake/with-fake-gpu -n 2): events and
 * captures on them, and words that they wait for. Each test is a process of its own.
 */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/map/map_cuda.h"
#include "client/map/map_pinned.h"
#include "client/map/map_control.h"
#include "tests/scratch.h"
#include "tests/tap.h"
#include "tests/unit/map/map_cuda_fixture.h"
#include "tests/unit/map/map_fixture.h"

/* ---- streams */

START_TEST(an_event_passes_when_the_work_before_it_is_done_and_is_used_again)
{
	struct gm_map_event *event, *again;

	/* The second event can only be the first one. */
	setenv("GPUMEM_FAKE_FAIL", "cuEventCreate:2:999", 1);
	open_it();
	use(0);
	gm_cu_stream busy = stream_new(), other = stream_new();
	sem_init(&gate, 0, 0);
	ck_assert_int_eq(cuda->cuLaunchHostFunc(busy, wait_at_gate, NULL), 0);
	ck_assert_int_eq(ops->record(map, &event), 0);
	ck_assert_int_eq(ops->passed(map, event), 0);
	ck_assert_int_eq(ops->order(map, (gpumem_stream)other, event), 0);
	sem_post(&gate);
	ck_assert_int_eq(cuda->cuStreamSynchronize(busy), 0);
	ck_assert_int_eq(ops->passed(map, event), 1);
	ops->forget(map, event);
	ck_assert_int_eq(ops->record(map, &again), 0);
	ops->forget(map, again);
	ops->close(map);
}
END_TEST

START_TEST(streams_are_told_apart)
{
	uint64_t a, b, again;

	open_it();
	use(0);
	gm_cu_stream one = stream_new(), two = stream_new();
	ck_assert_int_eq(ops->stream_id(map, (gpumem_stream)one, &a), 0);
	ck_assert_int_eq(ops->stream_id(map, (gpumem_stream)two, &b), 0);
	ck_assert_int_eq(ops->stream_id(map, (gpumem_stream)one, &again), 0);
	ck_assert_uint_ne(a, b);
	ck_assert_uint_eq(a, again);
	ops->close(map);
}
END_TEST

START_TEST(an_older_driver_has_no_stream_ids)
{
	struct gm_map_event *event;
	uint64_t id;

	setenv("GPUMEM_FAKE_WITHOUT", "streamid", 1);
	open_it();
	use(0);
	gm_cu_stream stream = stream_new();
	ck_assert_int_eq(ops->stream_id(map, (gpumem_stream)stream, &id), -EOPNOTSUPP);
	ck_assert_int_eq(ops->record(map, &event), 0);
	ops->forget(map, event);
	ops->close(map);
}
END_TEST

static gm_cu_result (*begin)(gm_cu_stream, int);
static gm_cu_result (*end)(gm_cu_stream, void **);

/* Calls that the library has no use for. */
static void find_capture(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	ck_assert_ptr_nonnull(lib);
	*(void **)&begin = dlsym(lib, "cuStreamBeginCapture_v2");
	*(void **)&end = dlsym(lib, "cuStreamEndCapture");
}

START_TEST(a_capture_is_left_alone_and_whole)
{
	void *graph = NULL;
	struct gm_map_event *before, *event;
	uint64_t id;

	find_capture();
	open_it();
	use(0);
	gm_cu_stream stream = stream_new();
	ck_assert_int_eq(ops->record(map, &before), 0);
	ck_assert_int_eq(begin(stream, 0), 0);
	/* By one way or the other the library sees that the stream is captured. */
	if (_i)
		ck_assert_int_eq(ops->order(map, (gpumem_stream)stream, before), -EAGAIN);
	else
		ck_assert_int_eq(ops->stream_id(map, (gpumem_stream)stream, &id), -EAGAIN);
	ck_assert_int_eq(ops->record(map, &event), -EAGAIN);
	ck_assert_int_eq(ops->passed(map, before), 1);
	ck_assert_int_eq(end(stream, &graph), 0);
	ck_assert_ptr_nonnull(graph);
	ck_assert_int_eq(ops->record(map, &event), 0);
	ops->forget(map, event);
	ops->forget(map, before);
	ops->close(map);
}
END_TEST

/* Named once more after its capture, a stream is not asked again by the library: the driver may do
 * anything when it is asked for one that is destroyed. */
START_TEST(a_stream_that_was_captured_may_be_destroyed)
{
	void *graph = NULL;
	struct gm_map_event *event;
	uint64_t id;

	find_capture();
	open_it();
	use(0);
	struct gm_map_control *word = word_new();
	gm_cu_stream stream = stream_new();
	ck_assert_int_eq(begin(stream, 0), 0);
	ck_assert_int_eq(ops->stream_id(map, (gpumem_stream)stream, &id), -EAGAIN);
	ck_assert_uint_ne(ops->captured_into(map, (gpumem_stream)stream), 0);
	ck_assert_int_eq(ops->record(map, &event), -EAGAIN);
	ck_assert_int_eq(ops->record_on(map, (gpumem_stream)stream, &event), -EAGAIN);
	ck_assert_int_eq(ops->record_on(map, NULL, &event), -EAGAIN);
	ck_assert_int_eq(ops->post(map, (gpumem_stream)stream, word, 1), -EAGAIN);
	ck_assert_int_eq(ops->await(map, (gpumem_stream)stream, word, 1), -EAGAIN);
	ck_assert_int_eq(end(stream, &graph), 0);
	if (_i)
		ck_assert_uint_eq(ops->captured_into(map, (gpumem_stream)stream), 0);
	else
		ck_assert_int_eq(ops->stream_id(map, (gpumem_stream)stream, &id), 0);
	ck_assert_int_eq(cuda->cuStreamDestroy(stream), 0);
	ck_assert_int_eq(ops->record(map, &event), 0);
	ops->forget(map, event);
	ops->word_close(map, word);
	ops->close(map);
}
END_TEST

/* ---- one stream, and words that streams wait for */

START_TEST(an_event_on_one_stream_does_not_wait_for_another)
{
	struct gm_map_event *event, *all;

	open_it();
	use(0);
	gm_cu_stream busy = stream_new(), stream = stream_new();
	struct gm_map_control *word = word_new();
	ck_assert_int_eq(ops->await(map, (gpumem_stream)busy, word, 1), 0);

	ck_assert_int_eq(ops->record_on(map, (gpumem_stream)stream, &event), 0);
	while (ops->passed(map, event) == 0)
		sched_yield();
	ops->forget(map, event);
	ck_assert_int_eq(ops->record(map, &all), 0);
	ck_assert_int_eq(ops->record_on(map, (gpumem_stream)busy, &event), 0);
	ck_assert_int_eq(ops->passed(map, event), 0);
	ck_assert_int_eq(ops->passed(map, all), 0);

	atomic_store(&word->control->value, 1);
	while (ops->passed(map, event) == 0 || ops->passed(map, all) == 0)
		sched_yield();
	ops->forget(map, event);
	ops->forget(map, all);
	ops->word_close(map, word);
	ops->close(map);
}
END_TEST

START_TEST(a_store_releases_all_streams_that_wait)
{
	gm_cu_stream streams[40];

	open_it();
	use(0);
	struct gm_map_control *word = word_new();
	for (int i = 0; i < 40; i++) {
		streams[i] = stream_new();
		ck_assert_int_eq(
			ops->await(map, (gpumem_stream)streams[i], word, (uint64_t)i + 1), 0);
		ck_assert_int_eq(ops->post(map, (gpumem_stream)streams[i], word, 100), 0);
	}
	ck_assert_uint_eq(atomic_load(&word->control->value), 0);
	atomic_store(&word->control->value, GM_CONTROL_LOST);
	for (int i = 0; i < 40; i++)
		ck_assert_int_eq(cuda->cuStreamSynchronize(streams[i]), 0);
	ck_assert_uint_eq(atomic_load(&word->control->value), 100);
	ck_assert_uint_eq(atomic_load(&word->control->last), 100);
	ops->word_close(map, word);
	ops->close(map);
}
END_TEST

/* How often this process has a file open. */
static unsigned times_open(const char *path)
{
	char name[64], target[256];
	unsigned n = 0;

	for (int fd = 0; fd < 256; fd++) {
		snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
		ssize_t length = readlink(name, target, sizeof(target) - 1);
		if (length > 0) {
			target[length] = 0;
			n += strcmp(target, path) == 0;
		}
	}
	return n;
}

struct awaiting {
	struct gm_map_control *word;
	gm_cu_stream stream;
	int r;
};

static void *await_five(void *ctx)
{
	struct awaiting *awaiting = ctx;

	awaiting->r = ops->await(map, (gpumem_stream)awaiting->stream, awaiting->word, 5);
	return NULL;
}

/* Two threads wait for one value. One of the waits cannot be launched; the other one counts. */
START_TEST(a_wait_that_fails_does_not_undo_the_note_of_another)
{
	char path[256], gated[300];
	struct awaiting a[2];
	pthread_t thread[2];
	int (*registered)(void);

	open_it();
	use(0);
	*(void **)&registered = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "fake_registered");
	gm_scratch_path("gate", path, sizeof(path));
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	snprintf(gated, sizeof(gated), "cuStreamWaitValue64:%s", path);
	setenv("GPUMEM_FAKE_GATE", gated, 1);
	setenv("GPUMEM_FAKE_FAIL", "cuStreamWaitValue64:1:999", 1);
	struct gm_map_control *word = word_new();
	for (unsigned i = 0; i < 2; i++)
		a[i] = (struct awaiting){.word = word, .stream = stream_new()};
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(pthread_create(&thread[i], NULL, await_five, &a[i]), 0);
		while (times_open(path) < i + 1) /* it is at the gate */
			sched_yield();
	}
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, "ab", 2), 2);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	close(fd);
	unsetenv("GPUMEM_FAKE_GATE");
	unsetenv("GPUMEM_FAKE_FAIL");
	ck_assert_int_eq(a[0].r, -EIO);
	ck_assert_int_eq(a[1].r, 0);

	for (int i = 0; i < 200; i++)
		ops->word_close(map, word_new());
	ops->word_settle(map);
	ck_assert_int_eq(registered(), 201);
	atomic_store(&word->control->value, 5);
	ck_assert_int_eq(cuda->cuStreamSynchronize(a[1].stream), 0);
	ops->word_settle(map);
	ck_assert_int_eq(registered(), 1);
	ops->word_close(map, word);
	ops->close(map);
}
END_TEST

/* The driver would wait for the stream, and hold up every launch until it goes on. */
START_TEST(no_registration_ends_while_a_stream_waits)
{
	open_it();
	use(0);
	int (*registered)(void);
	*(void **)&registered = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "fake_registered");
	ck_assert_ptr_nonnull(registered);
	gm_cu_stream stream = stream_new();
	struct gm_map_control *word = word_new();

	ck_assert_int_eq(ops->await(map, (gpumem_stream)stream, word, 5), 0);
	for (int i = 0; i < 200; i++)
		ops->word_close(map, word_new());
	ops->word_settle(map);
	ck_assert_int_eq(registered(), 201);
	ck_assert_int_eq(cuda->cuStreamQuery(stream), GM_CUDA_ERROR_NOT_READY);

	atomic_store(&word->control->value, 5);
	ck_assert_int_eq(cuda->cuStreamSynchronize(stream), 0);
	ck_assert_int_eq(registered(), 201); /* closing one never waits */
	ops->word_settle(map);
	ck_assert_int_eq(registered(), 1);

	/* Some may stay, so that the driver need not wait each time; not many. */
	for (int i = 0; i < 1000; i++) {
		ops->word_close(map, word_new());
		ops->word_settle(map);
		ck_assert_int_le(registered(), 100);
	}

	/* A wait that could not be launched is none. */
	setenv("GPUMEM_FAKE_FAIL", "cuStreamWaitValue64:0:999", 1);
	ck_assert_int_eq(ops->await(map, (gpumem_stream)stream, word, 6), -EIO);
	unsetenv("GPUMEM_FAKE_FAIL");
	ops->word_close(map, word);
	for (int i = 0; i < 100; i++)
		ops->word_close(map, word_new());
	ops->word_settle(map);
	ck_assert_int_eq(registered(), 0);
	ops->close(map);
}
END_TEST

START_TEST(a_block_works_after_the_context_in_which_it_was_registered)
{
	gm_cu_ctx context;

	open_it();
	ck_assert_int_eq(cuda->cuCtxCreate(&context, 0, 0), 0);
	struct gm_map_control *word = word_new();
	ck_assert_int_eq(cuda->cuCtxDestroy(context), 0);
	use(0);
	gm_cu_stream stream = stream_new();
	ck_assert_int_eq(ops->post(map, (gpumem_stream)stream, word, 3), 0);
	ck_assert_int_eq(ops->await(map, (gpumem_stream)stream, word, 3), 0);
	ck_assert_int_eq(cuda->cuStreamSynchronize(stream), 0);
	ck_assert_uint_eq(atomic_load(&word->control->value), 3);
	ops->word_close(map, word);
	ops->close(map);
}
END_TEST

START_TEST(a_memfd_that_somebody_could_cut_is_refused)
{
	struct gm_map_control *word = NULL;
	int fd = memfd_create("word", MFD_CLOEXEC | MFD_ALLOW_SEALING), fds[2];

	open_it();
	ck_assert_int_eq(pipe(fds), 0);
	ck_assert_int_eq(ops->word_open(map, fds[0], false, &word), -EPROTO);
	ck_assert_int_eq(ops->word_open(map, -1, false, &word), -EPROTO);
	ck_assert_int_eq(ops->word_open(map, fd, false, &word), -EPROTO);
	ck_assert_int_eq(ftruncate(fd, GM_CONTROL_BYTES), 0);
	ck_assert_int_eq(ops->word_open(map, fd, false, &word), -EPROTO);
	ck_assert_int_eq(ftruncate(fd, 64), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, GM_CONTROL_SEALS), 0);
	ck_assert_int_eq(ops->word_open(map, fd, false, &word), -EPROTO);
	ck_assert_ptr_null(word);
	ops->close(map);
}
END_TEST

START_TEST(a_device_without_memory_operations_says_so)
{
	struct gm_map_control *word = NULL;

	setenv("GPUMEM_FAKE_WITHOUT", "memops", 1);
	open_it();
	use(0);
	ck_assert_int_eq(ops->word_open(map, -1, false, &word), -EOPNOTSUPP);
	ck_assert_ptr_null(word);
	ck_assert_int_eq(ops->post(map, NULL, word, 1), -EOPNOTSUPP);
	ops->close(map);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("map_cuda streams");
	TCase *tcase = tcase_create("fake driver");

	tcase_add_test(tcase, an_event_on_one_stream_does_not_wait_for_another);
	tcase_add_test(tcase, a_store_releases_all_streams_that_wait);
	tcase_add_test(tcase, a_wait_that_fails_does_not_undo_the_note_of_another);
	tcase_add_test(tcase, no_registration_ends_while_a_stream_waits);
	tcase_add_test(tcase, a_block_works_after_the_context_in_which_it_was_registered);
	tcase_add_test(tcase, a_memfd_that_somebody_could_cut_is_refused);
	tcase_add_test(tcase, a_device_without_memory_operations_says_so);
	tcase_add_test(tcase, an_event_passes_when_the_work_before_it_is_done_and_is_used_again);
	tcase_add_test(tcase, streams_are_told_apart);
	tcase_add_test(tcase, an_older_driver_has_no_stream_ids);
	tcase_add_loop_test(tcase, a_capture_is_left_alone_and_whole, 0, 2);
	tcase_add_loop_test(tcase, a_stream_that_was_captured_may_be_destroyed, 0, 2);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
