/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several captures at once, over the fake driver (run it with tests/fake/with-fake-gpu): an event
 * for all streams would break each of them, so none may be forgotten that goes on. Each test is a
 * process of its own, which is where captures are remembered.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/map/cuda_capture.h"
#include "client/map/map_cuda.h"
#include "tests/tap.h"
#include "tests/unit/failing_malloc.h"
#include "tests/unit/map/map_fixture.h"

static struct gm_map_cuda *map;
static gm_cu_result (*begin)(gm_cu_stream, int);
static gm_cu_result (*end)(gm_cu_stream, void **);
static _Atomic int broken; /* what other threads saw go wrong */

static void set_up(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	gm_cu_uuid uuid;

	/* Calls that the library has no use for. */
	ck_assert_ptr_nonnull(lib);
	*(void **)&begin = dlsym(lib, "cuStreamBeginCapture_v2");
	*(void **)&end = dlsym(lib, "cuStreamEndCapture");
	ck_assert_int_eq(gm_cuda_load(&cuda, why), 0);
	ck_assert_int_eq(cuda->cuDeviceGetUuid(&uuid, 0), 0);
	ops = gm_map_cuda_ops();
	ck_assert_int_eq(gm_map_cuda_new((const uint8_t *)uuid.bytes, &map, why), 0);
	use(0);
}

static void tear_down(void)
{
	ops->close(map);
}

/* Whether an event for all streams may be had. */
static int record_any(void)
{
	struct gm_map_event *event;
	int r = ops->record(map, &event);

	if (r == 0)
		ops->forget(map, event);
	return r;
}

static void seen_captured(gm_cu_stream stream)
{
	uint64_t id;

	ck_assert_int_eq(ops->stream_id(map, (gpumem_stream)stream, &id), -EAGAIN);
}

/* Ends its capture, which was left whole. */
static void end_whole(gm_cu_stream stream)
{
	void *graph = NULL;

	ck_assert_int_eq(end(stream, &graph), 0);
	ck_assert_ptr_nonnull(graph);
}

static void seen_over(gm_cu_stream stream)
{
	uint64_t id;

	ck_assert_int_eq(ops->stream_id(map, (gpumem_stream)stream, &id), 0);
}

START_TEST(of_two_captures_the_one_that_goes_on_is_left_whole)
{
	gm_cu_stream streams[] = {stream_new(), stream_new()};
	gm_cu_stream ends = streams[_i & 1], stays = streams[!(_i & 1)];
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(begin(streams[i], 0), 0);
		seen_captured(streams[i]);
	}
	end_whole(ends);
	if (_i & 2)
		seen_over(ends);
	else
		ck_assert_uint_eq(ops->captured_into(map, (gpumem_stream)ends), 0);
	ck_assert_int_eq(record_any(), -EAGAIN);
	ck_assert_int_eq(cuda->cuStreamDestroy(ends), 0);
	ck_assert_int_eq(record_any(), -EAGAIN);
	end_whole(stays);
	ck_assert_int_eq(record_any(), 0);
}
END_TEST

#define MANY (2 * GM_CUDA_CAPTURED_PLACES + 1)

static gm_cu_stream many[MANY];

static void capture_many(int n)
{
	for (int i = 0; i < n; i++) {
		many[i] = stream_new();
		ck_assert_int_eq(begin(many[i], 0), 0);
	}
}

/* The driver tells of it without harm, so the library need not have heard of the captured stream. */
START_TEST(a_default_stream_is_left_alone_while_one_that_waits_for_it_is_captured)
{
	gpumem_stream defaults[] = {NULL, (gpumem_stream)(uintptr_t)GM_CU_STREAM_LEGACY};
	struct gm_map_event *event;
	gm_cu_stream waits, other;
	char from = 1, to = 0;

	ck_assert_int_eq(cuda->cuStreamCreate(&waits, 0), 0);
	ck_assert_int_eq(cuda->cuStreamCreate(&other, GM_CU_STREAM_NON_BLOCKING), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(begin(waits, GM_CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
		ck_assert_int_eq(ops->copy(map, &to, &from, 1, defaults[i]), -EAGAIN);
		ck_assert_int_eq(ops->record_on(map, defaults[i], &event), -EAGAIN);
		ck_assert_int_eq(record_any(), -EAGAIN);
		ck_assert_int_eq(ops->record_on(map, (gpumem_stream)other, &event), 0);
		ck_assert_int_eq(ops->order(map, defaults[i], event), -EAGAIN);
		ops->forget(map, event);
		end_whole(waits);

		ck_assert_int_eq(ops->record_on(map, defaults[i], &event), 0);
		ops->forget(map, event);
		ck_assert_int_eq(record_any(), 0);
	}
	/* A stream that is captured itself would make the copy a part of its graph. */
	ck_assert_int_eq(begin(other, GM_CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	ck_assert_int_eq(ops->copy(map, &to, &from, 1, (gpumem_stream)other), -EAGAIN);
	end_whole(other);
	seen_over(other);
	ck_assert_int_eq(to, 0);
}
END_TEST

/* Whether another thread, in which no context is current, may have an event for all streams. */
static void *record_in_thread(void *ret)
{
	*(int *)ret = record_any();
	return NULL;
}

static int record_elsewhere(void)
{
	pthread_t thread;
	int r = -1;

	ck_assert_int_eq(pthread_create(&thread, NULL, record_in_thread, &r), 0);
	pthread_join(thread, NULL);
	return r;
}

START_TEST(a_stream_that_waits_for_the_default_stream_is_left_alone_by_all_threads)
{
	struct gm_map_event *event;
	gm_cu_stream waits;

	ck_assert_int_eq(cuda->cuStreamCreate(&waits, 0), 0);
	ck_assert_int_eq(begin(waits, GM_CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	ck_assert_int_eq(record_elsewhere(), -EAGAIN);
	ck_assert_int_eq(ops->record_on(map, NULL, &event), -EAGAIN);
	ck_assert_int_eq(record_elsewhere(), -EAGAIN);
	ck_assert_int_eq(record_any(), -EAGAIN);
	end_whole(waits);
	ck_assert_int_eq(record_elsewhere(), 0);
}
END_TEST

/* A thread that captures its own default stream, step by step. */
#define OWN ((gm_cu_stream)(uintptr_t)GM_CU_STREAM_PER_THREAD)
static sem_t own_next, own_done;
static gm_cu_ctx own_ctx, own_other;

static void own_step(void)
{
	sem_post(&own_done);
	while (sem_wait(&own_next) < 0 && errno == EINTR)
		;
}

static void own_go_on(void)
{
	sem_post(&own_next);
	while (sem_wait(&own_done) < 0 && errno == EINTR)
		;
}

/* Check is for one thread. */
static void *capture_own(void *names_again)
{
	void *graph = NULL;
	uint64_t id;

	broken += cuda->cuCtxSetCurrent(own_ctx) != 0;
	broken += begin(OWN, GM_CU_STREAM_CAPTURE_MODE_RELAXED) != 0;
	broken += ops->stream_id(map, (gpumem_stream)OWN, &id) != -EAGAIN;
	own_step();
	/* In another context, the handle is another stream. */
	broken += cuda->cuCtxSetCurrent(own_other) != 0;
	broken += record_any() != -EAGAIN;
	broken += cuda->cuCtxSetCurrent(own_ctx) != 0;
	broken += end(OWN, &graph) != 0 || !graph;
	own_step();
	if (names_again) {
		broken += ops->stream_id(map, (gpumem_stream)OWN, &id) != 0;
		own_step();
	}
	return NULL;
}

/* The driver tells nobody but the thread itself that its capture has ended. 1: the thread names the stream again. 0: it
 * ends. */
START_TEST(a_threads_own_default_stream_is_asked_about_in_that_thread_only)
{
	pthread_t thread;

	ck_assert(!sem_init(&own_next, 0, 0) && !sem_init(&own_done, 0, 0));
	ck_assert_int_eq(cuda->cuCtxGetCurrent(&own_ctx), 0);
	ck_assert_int_eq(cuda->cuCtxCreate(&own_other, 0, 0), 0);
	ck_assert_int_eq(cuda->cuCtxSetCurrent(own_ctx), 0);
	ck_assert_int_eq(
		pthread_create(&thread, NULL, capture_own, (void *)(uintptr_t)(unsigned)_i), 0);
	while (sem_wait(&own_done) < 0 && errno == EINTR)
		;
	ck_assert_int_eq(record_any(), -EAGAIN);
	ck_assert_int_eq(record_elsewhere(), -EAGAIN);
	own_go_on();
	ck_assert_int_eq(record_any(), -EAGAIN);
	if (_i) {
		own_go_on();
		ck_assert_int_eq(record_any(), 0);
	}
	sem_post(&own_next);
	pthread_join(thread, NULL);
	ck_assert_int_eq(record_any(), 0);
	ck_assert_int_eq(broken, 0);
}
END_TEST

/* Each in turn is the one that goes on, whether the others' ends are seen or not. */
START_TEST(no_capture_of_many_is_forgotten)
{
	int stays = _i / 2;

	capture_many(MANY);
	for (int i = 0; i < MANY; i++)
		seen_captured(many[i]);
	for (int i = 0; i < MANY; i++) {
		if (i == stays)
			continue;
		end_whole(many[i]);
		if (_i & 1)
			seen_over(many[i]);
	}
	ck_assert_int_eq(record_any(), -EAGAIN);
	end_whole(many[stays]);
	ck_assert_int_eq(record_any(), 0);
}
END_TEST

START_TEST(the_place_of_a_capture_that_is_over_is_used_again_without_memory)
{
	int last = GM_CUDA_CAPTURED_PLACES;
	uint64_t id;

	capture_many(last + 1);
	for (int i = 0; i < last; i++)
		seen_captured(many[i]);
	end_whole(many[3]);
	failing_malloc_arm(1);
	int r = ops->stream_id(map, (gpumem_stream)many[last], &id);
	ck_assert(!failing_malloc_fired());
	ck_assert_int_eq(r, -EAGAIN);
	for (int i = 0; i < last; i++)
		if (i != 3)
			end_whole(many[i]);
	ck_assert_int_eq(record_any(), -EAGAIN);
	end_whole(many[last]);
	ck_assert_int_eq(record_any(), 0);
}
END_TEST

/* What cannot be remembered cannot be asked for its end, either. */
START_TEST(a_capture_that_there_is_no_memory_for_is_taken_to_go_on)
{
	int last = GM_CUDA_CAPTURED_PLACES;
	uint64_t id;

	capture_many(last + 1);
	for (int i = 0; i < last; i++)
		seen_captured(many[i]);
	for (int again = 0; again < 2; again++) {
		failing_malloc_arm(1);
		int r = ops->stream_id(map, (gpumem_stream)many[last], &id);
		ck_assert(failing_malloc_fired());
		ck_assert_int_eq(r, -EAGAIN);
	}
	for (int i = 0; i < last; i++)
		end_whole(many[i]);
	ck_assert_int_eq(record_any(), -EAGAIN);
	end_whole(many[last]);
	seen_over(many[last]);
	ck_assert_int_eq(record_any(), -EAGAIN);
}
END_TEST

/* A capture is unknown from its begin until its stream is named: nobody asks in between. */
static pthread_rwlock_t naming = PTHREAD_RWLOCK_INITIALIZER;
static _Atomic int at_it;

/* Check is for one thread. */
static void *capture_often(void *arg)
{
	gm_cu_stream stream = arg;
	void *graph;
	uint64_t id;

	for (int i = 0; i < 300; i++) {
		pthread_rwlock_rdlock(&naming);
		broken += begin(stream, GM_CU_STREAM_CAPTURE_MODE_RELAXED) != 0;
		broken += ops->stream_id(map, arg, &id) != -EAGAIN;
		pthread_rwlock_unlock(&naming);
		sched_yield();
		broken += end(stream, &graph) != 0;
		if (i % 2)
			broken += ops->captured_into(map, arg) != 0;
	}
	at_it--;
	return NULL;
}

START_TEST(captures_of_many_threads_are_left_whole)
{
	pthread_t threads[4];

	at_it = 4;
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, capture_often, stream_new()), 0);
	while (at_it) {
		pthread_rwlock_wrlock(&naming);
		int r = record_any();
		pthread_rwlock_unlock(&naming);
		ck_assert(r == 0 || r == -EAGAIN);
		sched_yield();
	}
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(broken, 0);
	ck_assert_int_eq(record_any(), 0);
}
END_TEST

/* Nobody names these streams to the library, and nobody keeps the library from recording. */
static _Atomic int recorded;

static void *announce_often(void *arg)
{
	gm_cu_stream stream = arg;
	void *graph;

	for (int i = 0; i < 300 || !recorded; i++) {
		gm_cuda_capture_begin();
		broken += begin(stream, GM_CU_STREAM_CAPTURE_MODE_RELAXED) != 0;
		sched_yield();
		broken += end(stream, &graph) != 0;
		gm_cuda_capture_end();
		sched_yield();
	}
	at_it--;
	return NULL;
}

START_TEST(captures_that_are_announced_are_left_whole)
{
	pthread_t threads[4];

	at_it = 4;
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(
			pthread_create(&threads[i], NULL, announce_often, stream_new()), 0);
	while (at_it) {
		int r = record_any();
		ck_assert(r == 0 || r == -EAGAIN);
		recorded += r == 0;
	}
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(broken, 0);
	ck_assert_int_eq(record_any(), 0);
}
END_TEST

/* Uses the default stream, in one of the ways in which the library does. 0, or -EAGAIN. */
static int use_default(int way)
{
	static char from[8], to[8];
	struct gm_map_event *event;
	int r;

	switch (way) {
	case 0:
		return ops->copy(map, to, from, sizeof to, NULL);
	case 1:
		r = ops->record_on(map, (gpumem_stream)(uintptr_t)GM_CU_STREAM_LEGACY, &event);
		break;
	default:
		r = record_any() ? -EAGAIN : ops->record(map, &event);
		if (r == 0) {
			r = ops->order(map, NULL, event);
			ops->forget(map, event);
		}
		return r;
	}
	if (r == 0)
		ops->forget(map, event);
	return r;
}

/* Announces captures that take a while, with a while between them, so that each meets the other thread's work. */
static void *announce_slowly(void *arg)
{
	const struct timespec a_while = {.tv_nsec = 600 * 1000};
	gm_cu_stream stream = arg;
	void *graph;

	for (int i = 0; i < 100; i++) {
		gm_cuda_capture_begin();
		broken += begin(stream, GM_CU_STREAM_CAPTURE_MODE_RELAXED) != 0;
		nanosleep(&a_while, NULL);
		broken += end(stream, &graph) != 0;
		gm_cuda_capture_end();
		nanosleep(&a_while, NULL);
	}
	at_it--;
	return NULL;
}

/* On the fake driver, each of these calls takes long to begin. */
START_TEST(captures_that_are_announced_are_left_whole_by_work_on_the_default_stream)
{
	static const char *const delays[] = {
		"cuMemcpyAsync:300", "cuEventRecord:300", "cuStreamWaitEvent:300"};
	gm_cu_stream waits;
	pthread_t thread;
	int used = 0;

	ck_assert_int_eq(setenv("GPUMEM_FAKE_DELAY", delays[_i], 1), 0);
	ck_assert_int_eq(cuda->cuStreamCreate(&waits, 0), 0);
	at_it = 1;
	ck_assert_int_eq(pthread_create(&thread, NULL, announce_slowly, waits), 0);
	while (at_it) {
		int r = use_default(_i);
		ck_assert(r == 0 || r == -EAGAIN);
		used += r == 0;
	}
	pthread_join(thread, NULL);
	ck_assert_int_eq(broken, 0);
	ck_assert_int_gt(used, 0);
}
END_TEST

/* Another stream's capture waits for the legacy default stream only. */
START_TEST(a_threads_own_default_stream_is_used_during_captures_of_others)
{
	gpumem_stream own = (gpumem_stream)(uintptr_t)GM_CU_STREAM_PER_THREAD;
	struct gm_map_event *event;
	char from = 1, to = 0;
	gm_cu_stream waits;

	ck_assert_int_eq(cuda->cuStreamCreate(&waits, 0), 0);
	gm_cuda_capture_begin();
	ck_assert_int_eq(begin(waits, GM_CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	ck_assert_int_eq(ops->copy(map, &to, &from, 1, own), 0);
	ck_assert_int_eq(ops->record_on(map, own, &event), 0);
	ck_assert_int_eq(ops->order(map, own, event), 0);
	ops->forget(map, event);
	ck_assert_int_eq(ops->copy(map, &to, &from, 1, NULL), -EAGAIN);
	end_whole(waits);

	/* Its own capture must not get the work. */
	ck_assert_int_eq(begin(OWN, GM_CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	ck_assert_int_eq(ops->copy(map, &to, &from, 1, own), -EAGAIN);
	end_whole(OWN);
	gm_cuda_capture_end();
	ck_assert_int_eq(ops->copy(map, &to, &from, 1, NULL), 0);
}
END_TEST

/* The fake driver ends a program that asks about a stream which does not exist. */
START_TEST(nobody_asks_about_a_stream_after_the_end_of_its_announced_capture)
{
	gm_cu_stream ends = stream_new(), stays = stream_new();

	gm_cuda_capture_begin();
	gm_cuda_capture_begin();
	ck_assert_int_eq(begin(ends, 0), 0);
	seen_captured(ends);
	ck_assert_int_eq(begin(stays, 0), 0);
	seen_captured(stays);
	end_whole(ends);
	gm_cuda_capture_end();
	ck_assert_int_eq(cuda->cuStreamDestroy(ends), 0);
	ck_assert_int_eq(record_any(), -EAGAIN);
	end_whole(stays);
	gm_cuda_capture_end();
	ck_assert_int_eq(cuda->cuStreamDestroy(stays), 0);
	ck_assert_int_eq(record_any(), 0);
}
END_TEST

START_TEST(a_forked_child_captures_nothing)
{
	gm_cuda_capture_begin();
	pid_t child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0)
		_exit(gm_cuda_capturing(cuda, 0) ? 1 : 0);

	int status = -1;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert(gm_cuda_capturing(cuda, 0));
	gm_cuda_capture_end();
}
END_TEST

START_TEST(each_announced_capture_counts_and_an_end_too_many_does_not)
{
	gm_cuda_capture_end();
	gm_cuda_capture_begin();
	ck_assert_int_eq(record_any(), -EAGAIN);
	gm_cuda_capture_begin();
	gm_cuda_capture_end();
	ck_assert_int_eq(record_any(), -EAGAIN);
	gm_cuda_capture_end();
	ck_assert_int_eq(record_any(), 0);
}
END_TEST

static void *keep_out_a_while(void *arg)
{
	_Atomic int *step = arg;

	if (!gm_cuda_capture_keep_out_announced())
		return NULL;
	*step = 1;
	while (*step == 1)
		sched_yield();
	*step = 3;
	gm_cuda_capture_let_in();
	return arg;
}

static void *announce_while_kept_out(void *arg)
{
	_Atomic int *step = arg;

	gm_cuda_capture_begin();
	ck_assert_int_eq(*step, 3);
	return NULL;
}

START_TEST(an_announced_capture_waits_for_a_thread_that_waits_for_a_context)
{
	pthread_t waits, announces;
	_Atomic int step = 0;
	void *kept_out;

	ck_assert_int_eq(pthread_create(&waits, NULL, keep_out_a_while, &step), 0);
	while (!step)
		sched_yield();
	ck_assert_int_eq(pthread_create(&announces, NULL, announce_while_kept_out, &step), 0);
	while (!gm_cuda_capturing(cuda, 0))
		sched_yield();
	ck_assert(!gm_cuda_capture_keep_out_announced());
	step = 2;
	pthread_join(waits, &kept_out);
	ck_assert_ptr_eq(kept_out, &step);
	pthread_join(announces, NULL);
	gm_cuda_capture_end();
	ck_assert(gm_cuda_capture_keep_out_announced());
	gm_cuda_capture_let_in();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cuda_capture");
	TCase *tcase = tcase_create("fake driver");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_loop_test(tcase, of_two_captures_the_one_that_goes_on_is_left_whole, 0, 4);
	tcase_add_test(
		tcase, a_default_stream_is_left_alone_while_one_that_waits_for_it_is_captured);
	tcase_add_test(
		tcase, a_stream_that_waits_for_the_default_stream_is_left_alone_by_all_threads);
	tcase_add_loop_test(
		tcase, a_threads_own_default_stream_is_asked_about_in_that_thread_only, 0, 2);
	tcase_add_loop_test(tcase, no_capture_of_many_is_forgotten, 0, 2 * MANY);
	tcase_add_test(tcase, the_place_of_a_capture_that_is_over_is_used_again_without_memory);
	tcase_add_test(tcase, a_capture_that_there_is_no_memory_for_is_taken_to_go_on);
	tcase_add_test(tcase, captures_of_many_threads_are_left_whole);
	tcase_add_test(tcase, captures_that_are_announced_are_left_whole);
	tcase_add_loop_test(tcase,
		captures_that_are_announced_are_left_whole_by_work_on_the_default_stream, 0, 3);
	tcase_add_test(tcase, a_threads_own_default_stream_is_used_during_captures_of_others);
	tcase_add_test(tcase, nobody_asks_about_a_stream_after_the_end_of_its_announced_capture);
	tcase_add_test(tcase, a_forked_child_captures_nothing);
	tcase_add_test(tcase, an_announced_capture_waits_for_a_thread_that_waits_for_a_context);
	tcase_add_test(tcase, each_announced_capture_counts_and_an_end_too_many_does_not);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
