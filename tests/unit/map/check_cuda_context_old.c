/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drivers that have no event for a whole context (before CUDA 12.5): a thread of the library's
 * waits for each. See cuda_context_fixture.h.
 */
#include <dlfcn.h>

#include "tests/unit/map/cuda_context_fixture.h"

START_TEST(an_older_driver_is_waited_for_by_a_thread)
{
	without_context_events(_i);
	own_on(0);
	(void)ops->here(map);
	gm_cu_stream stream = busy_stream();
	struct gm_map_event *event = record(), *second = record();
	/* Whoever asks is answered at once. */
	ck_assert_int_eq(ops->passed(map, event), 0);
	ck_assert_int_eq(ops->order(map, NULL, event), -EOPNOTSUPP);
	sem_post(&gate);
	await(event);
	ck_assert_int_eq(cuda->cuStreamQuery(stream), 0);
	ck_assert_int_eq(ops->order(map, NULL, event), 0);
	await(second);
	ops->forget(map, event);
	ops->forget(map, second);
	ck_assert(!primary_active());
	ops->close(map);
}
END_TEST

START_TEST(an_older_driver_is_waited_for_in_every_context)
{
	without_context_events(0);
	held_up_by(_i);
}
END_TEST

START_TEST(a_wait_that_fails_is_tried_again)
{
	setenv("GPUMEM_FAKE_FAIL", "cuCtxSynchronize:1:999", 1);
	without_context_events(0);
	own_on(0);
	(void)ops->here(map);
	struct gm_map_event *event = record();
	await(event);
	ops->forget(map, event);
	ops->close(map);
}
END_TEST

START_TEST(a_context_that_ends_under_the_wait_is_done)
{
	without_context_events(0);
	gm_cu_ctx ctx = own_on(0);
	(void)ops->here(map);
	busy_stream();
	struct gm_map_event *event = record();
	sem_post(&gate);
	ck_assert_int_eq(cuda->cuCtxDestroy(ctx), 0);
	await(event);
	ops->forget(map, event);
	event = record();
	await(event);
	ops->forget(map, event);
	ops->close(map);
}
END_TEST

START_TEST(an_older_drivers_capture_is_left_alone)
{
	gm_cu_result (*begin)(gm_cu_stream, int);
	gm_cu_result (*end)(gm_cu_stream, void **);
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *graph = NULL;
	struct gm_map_event *event;
	uint64_t id;

	*(void **)&begin = dlsym(lib, "cuStreamBeginCapture_v2");
	*(void **)&end = dlsym(lib, "cuStreamEndCapture");
	/* The first wait fails, so that the second comes when the capture is on. */
	setenv("GPUMEM_FAKE_FAIL", "cuCtxSynchronize:1:999", 1);
	without_context_events(0);
	own_on(0);
	(void)ops->here(map);
	gm_cu_stream stream;
	ck_assert_int_eq(cuda->cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING), 0);
	ck_assert_int_eq(begin(stream, GM_CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	ck_assert_int_eq(ops->stream_id(map, (gpumem_stream)stream, &id), -EAGAIN);
	ck_assert_int_eq(ops->record(map, &event), -EAGAIN);
	ck_assert_int_eq(end(stream, &graph), 0);
	ck_assert_ptr_nonnull(graph);
	event = record();
	await(event);
	ops->forget(map, event);
	ops->close(map);
}
END_TEST

START_TEST(the_end_does_not_wait_for_the_device)
{
	without_context_events(0);
	primary();
	(void)ops->here(map); /* which keeps it */
	ck_assert_int_eq(cuda->cuDevicePrimaryCtxRelease(0), 0);
	gm_cu_stream stream = busy_stream();
	struct gm_map_event *event = record();
	ck_assert_int_eq(ops->passed(map, event), 0);
	ops->forget(map, event);
	pop();
	ops->close(map);
	sem_post(&gate);
	/* The thread has the last word: the context is kept for it until then. */
	while (primary_active())
		sched_yield();
	(void)stream;
	/* And all begins anew. */
	ck_assert_int_eq(gm_map_cuda_new(uuid_0, &map, why), 0);
	own_on(0);
	(void)ops->here(map);
	event = record();
	await(event);
	ops->forget(map, event);
	ops->close(map);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cuda_context_old");
	TCase *tc = tcase_create("fake driver");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, an_older_driver_is_waited_for_by_a_thread, 0, 2);
	tcase_add_loop_test(tc, an_older_driver_is_waited_for_in_every_context, 0, 3);
	tcase_add_test(tc, a_wait_that_fails_is_tried_again);
	tcase_add_test(tc, a_context_that_ends_under_the_wait_is_done);
	tcase_add_test(tc, an_older_drivers_capture_is_left_alone);
	tcase_add_test(tc, the_end_does_not_wait_for_the_device);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
