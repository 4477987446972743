/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A context that is destroyed leaves nothing behind, whichever thread does that and when. See
 * cuda_context_fixture.h.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/scratch.h"
#include "tests/unit/map/cuda_context_fixture.h"

static void *destroy(void *ctx)
{
	return (void *)(uintptr_t)cuda->cuCtxDestroy(ctx);
}

static int destroy_elsewhere(gm_cu_ctx ctx)
{
	pthread_t thread;
	void *result;

	ck_assert_int_eq(pthread_create(&thread, NULL, destroy, ctx), 0);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	return (int)(uintptr_t)result;
}

START_TEST(what_ran_in_a_context_that_is_destroyed_is_over)
{
	if (_i)
		setenv("GPUMEM_FAKE_WITHOUT", "ctxid", 1);
	open_it();
	gm_cu_ctx ctx = own_on(0);
	(void)ops->here(map);
	busy_stream();
	pop();
	struct gm_map_event *event = record();
	ck_assert_int_eq(ops->passed(map, event), 0);
	sem_post(&gate); /* destroying waits for it */
	ck_assert_int_eq(cuda->cuCtxDestroy(ctx), 0);
	ck_assert_int_eq(ops->passed(map, event), 1);
	ops->forget(map, event);
	/* It is known no more: nothing is in the way of the next event, nor of the end. */
	event = record();
	ck_assert_int_eq(ops->passed(map, event), 1);
	ops->forget(map, event);
	ops->close(map);
}
END_TEST

START_TEST(what_runs_in_a_context_that_is_being_destroyed_is_waited_for)
{
	pthread_t thread;
	void *result;

	open_it();
	gm_cu_ctx ctx = own_on(0);
	(void)ops->here(map);
	busy_stream();
	pop();
	struct gm_map_event *event = record();
	ck_assert_int_eq(pthread_create(&thread, NULL, destroy, ctx), 0);
	for (int i = 0; i < 1000; i++) {
		ck_assert_int_eq(ops->passed(map, event), 0);
		sched_yield();
	}
	sem_post(&gate);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_ptr_null(result);
	ck_assert_int_eq(ops->passed(map, event), 1);
	ops->forget(map, event);
	ops->close(map);
}
END_TEST

/* A context that was shown and destroyed, of which there is an event, and a spare one. */
static gm_cu_ctx outlived(struct gm_map_event **ret_event)
{
	open_it();
	gm_cu_ctx ctx = own_on(0);
	(void)ops->here(map);
	*ret_event = record();
	ops->forget(map, record());
	ck_assert_int_eq(cuda->cuCtxDestroy(ctx), 0);
	return ctx;
}

START_TEST(an_event_may_be_forgotten_after_its_context)
{
	struct gm_map_event *event;
	(void)outlived(&event);
	gm_cu_stream stream;
	primary();
	ck_assert_int_eq(cuda->cuStreamCreate(&stream, 0), 0);
	ck_assert_int_eq(ops->order(map, (gpumem_stream)stream, event), 0);
	ops->forget(map, event);
	ops->close(map);
}
END_TEST

START_TEST(a_handle_does_not_come_again_while_its_context_is_known)
{
	struct gm_map_event *event;
	gm_cu_ctx old = outlived(&event);
	gm_cu_ctx new = own_on(0);
	ck_assert_ptr_ne(new, old);
	(void)ops->here(map);
	gm_cu_stream stream = busy_stream();
	struct gm_map_event *later = record();
	ck_assert_int_eq(ops->passed(map, event), 1);
	ck_assert_int_eq(ops->passed(map, later), 0);
	release(stream);
	ck_assert_int_eq(ops->passed(map, later), 1);
	ops->forget(map, event);
	ops->forget(map, later);
	ops->close(map);
}
END_TEST

START_TEST(another_context_at_the_same_handle_is_not_taken_for_the_old_one)
{
	gm_cu_ctx old, new = NULL;
	uint64_t number;

	open_it();
	old = own_on(0);
	number = ops->here(map);
	struct gm_map_event *event = record();
	ck_assert_int_eq(cuda->cuCtxDestroy(old), 0);
	ck_assert_int_eq(ops->passed(map, event), 1); /* and the handle is let go */
	ops->forget(map, event);
	while (new != old) {
		if (new)
			ck_assert_int_eq(cuda->cuCtxDestroy(new), 0);
		new = own_on(0);
	}
	ck_assert_uint_ne(ops->here(map), number);
	gm_cu_stream stream = busy_stream();
	event = record();
	ck_assert_int_eq(ops->passed(map, event), 0);
	release(stream);
	ck_assert_int_eq(ops->passed(map, event), 1);
	ops->forget(map, event);
	ops->close(map);
}
END_TEST

START_TEST(a_context_that_another_thread_destroyed_is_not_met_again)
{
	open_it();
	gm_cu_ctx ctx = own_on(0);
	uint64_t number = ops->here(map);
	ck_assert_int_eq(destroy_elsewhere(ctx), 0);
	struct gm_map_event *event = record();
	ck_assert_int_eq(ops->passed(map, event), 1);
	ops->forget(map, event);
	/* It is current here still. */
	ck_assert_uint_ne(ops->here(map), number);
	pop();
	ck_assert_int_eq(cuda->cuCtxSynchronize(), GM_CUDA_ERROR_INVALID_CONTEXT);
	ops->close(map);
}
END_TEST

START_TEST(a_primary_context_that_was_reset_is_known_again)
{
	gm_cu_result (*reset)(gm_cu_device);
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	*(void **)&reset = dlsym(lib, "cuDevicePrimaryCtxReset_v2");
	if (_i & 1)
		without_context_events(0);
	else
		open_it();
	gm_cu_ctx before = primary();
	(void)ops->here(map);
	struct gm_map_event *event = record(), *spare = record();
	ops->forget(map, spare);
	pop();
	ck_assert_int_eq(reset(0), 0);
	if (_i & 2) {
		/* Noticed while there is none. */
		await(event);
		ck_assert(!primary_active());
	}
	ck_assert_ptr_eq(primary(), before);
	gm_cu_stream stream = busy_stream();
	pop();
	/* A driver that does not number contexts cannot tell this one from the other. */
	if (_i != 1)
		await(event);
	struct gm_map_event *later = record();
	ck_assert_int_eq(ops->passed(map, later), 0);
	release(stream);
	await(later);
	await(event);
	ops->forget(map, event);
	ops->forget(map, later);
	ops->close(map);
	/* What the program retained, and nothing else. */
	ck_assert_int_eq(cuda->cuDevicePrimaryCtxRelease(0), 0);
	ck_assert_int_eq(cuda->cuDevicePrimaryCtxRelease(0), 0);
	while (primary_active())
		sched_yield();
}
END_TEST

START_TEST(a_context_is_met_anew_by_whoever_opens_the_gpu_anew)
{
	open_it();
	ops->close(map);
	gm_cu_ctx ctx = own_on(0);
	gm_cu_stream stream;
	ck_assert_int_eq(cuda->cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING), 0);
	/* The C library is to hand out memory of an earlier round: what is freed is not merged, and
	 * there are more rounds than it sets aside for the thread. */
	(void)mallopt(M_MXFAST, 160);
	for (int i = 0; i < 32; i++) {
		ck_assert_int_eq(gm_map_cuda_new(uuid_0, &map, why), 0);
		(void)ops->here(map);
		ck_assert_int_eq(cuda->cuLaunchHostFunc(stream, wait_at_gate, NULL), 0);
		struct gm_map_event *event = record();
		ck_assert_int_eq(ops->passed(map, event), 0);
		release(stream);
		ck_assert_int_eq(ops->passed(map, event), 1);
		ops->forget(map, event);
		ops->close(map);
	}
	ck_assert_int_eq(cuda->cuCtxDestroy(ctx), 0);
}
END_TEST

START_TEST(contexts_that_come_and_go_are_all_forgotten)
{
	open_it();
	for (int i = 0; i < 200; i++) {
		gm_cu_ctx ctx = own_on(0);
		(void)ops->here(map);
		struct gm_map_event *event = record();
		if (i % 3)
			ck_assert_int_eq(ops->passed(map, event), 1);
		if (i % 2)
			ck_assert_int_eq(cuda->cuCtxDestroy(ctx), 0);
		ops->forget(map, event);
		if (!(i % 2))
			ck_assert_int_eq(cuda->cuCtxDestroy(ctx), 0);
	}
	ops->close(map);
}
END_TEST

START_TEST(contexts_that_come_and_go_are_forgotten_though_nobody_waits_for_any)
{
	/* More than there can be at a time, those that are only held included. */
	open_it();
	for (int i = 0; i < 200; i++) {
		gm_cu_ctx ctx = own_on(0);
		(void)ops->here(map);
		ck_assert_int_eq(cuda->cuCtxDestroy(ctx), 0);
	}
	ops->close(map);
}
END_TEST

static void *come_and_go(void *unused)
{
	for (int i = 0; i < 200; i++) {
		gm_cu_ctx ctx = NULL;
		if (cuda->cuCtxCreate(&ctx, 0, 0))
			return (void *)1;
		(void)ops->here(map);
		struct gm_map_event *event = NULL;
		if (ops->record(map, &event) || ops->passed(map, event) < 0)
			return (void *)2;
		ops->forget(map, event);
		if (cuda->cuCtxDestroy(ctx))
			return (void *)3;
	}
	return NULL;
}

START_TEST(threads_with_contexts_of_their_own_do_not_disturb_one_another)
{
	pthread_t threads[4];

	open_it();
	primary();
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, come_and_go, NULL), 0);
	for (int i = 0; i < 4; i++) {
		void *bad;
		ck_assert_int_eq(pthread_join(threads[i], &bad), 0);
		ck_assert_ptr_null(bad);
	}
	ops->close(map);
}
END_TEST

static void *show_and_end(void *shown)
{
	own_on(0);
	sem_post(shown);
	(void)ops->here(map);
	pthread_testcancel();
	return NULL;
}

START_TEST(a_thread_that_is_cancelled_while_it_shows_its_context_holds_nobody_up)
{
	char path[256] = "", variable[300];
	pthread_t thread;
	void *result;
	sem_t shown;

	/* In the driver, which waits for a byte, at a call that many make with locks held. */
	gm_scratch_path("gate", path, sizeof path);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	int fifo = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fifo, 0);
	snprintf(variable, sizeof variable, "cuDevicePrimaryCtxGetState:%s", path);
	setenv("GPUMEM_FAKE_GATE", variable, 1);
	open_it();
	sem_init(&shown, 0, 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, show_and_end, &shown), 0);
	while (sem_wait(&shown) < 0)
		;
	ck_assert_int_eq(pthread_cancel(thread), 0);
	/* One for each time that it is called here. */
	ck_assert_int_eq(write(fifo, path, sizeof path), sizeof path);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_ptr_eq(result, PTHREAD_CANCELED);
	own_on(0);
	(void)ops->here(map);
	struct gm_map_event *event = record();
	await(event);
	ops->forget(map, event);
	ops->close(map);
	close(fifo);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cuda_context_end");
	TCase *tc = tcase_create("fake driver");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, what_ran_in_a_context_that_is_destroyed_is_over, 0, 2);
	tcase_add_test(tc, what_runs_in_a_context_that_is_being_destroyed_is_waited_for);
	tcase_add_test(tc, an_event_may_be_forgotten_after_its_context);
	tcase_add_test(tc, a_handle_does_not_come_again_while_its_context_is_known);
	tcase_add_test(tc, a_context_that_another_thread_destroyed_is_not_met_again);
	tcase_add_loop_test(tc, a_primary_context_that_was_reset_is_known_again, 0, 4);
	tcase_add_test(tc, another_context_at_the_same_handle_is_not_taken_for_the_old_one);
	tcase_add_test(tc, a_context_is_met_anew_by_whoever_opens_the_gpu_anew);
	tcase_add_test(tc, contexts_that_come_and_go_are_all_forgotten);
	tcase_add_test(tc, contexts_that_come_and_go_are_forgotten_though_nobody_waits_for_any);
	tcase_add_test(tc, a_thread_that_is_cancelled_while_it_shows_its_context_holds_nobody_up);
	tcase_add_test(tc, threads_with_contexts_of_their_own_do_not_disturb_one_another);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
