/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of one GPU that others use: a copy between two GPUs runs on a stream of either, so what is
 * freed by a thread that has another GPU's context waits for that GPU, too. See
 * cuda_context_fixture.h; run it on more GPUs than a daemon serves.
 */
#include <dlfcn.h>

#include "client/heap/pending.h"
#include "tests/unit/map/cuda_context_fixture.h"
#include "tests/unit/failing_malloc.h"

/* Current from here on: the primary context of a GPU, or one of the program's own. */
static void use(int device, bool own)
{
	gm_cu_ctx ctx;

	if (own) {
		own_on(device);
		return;
	}
	ck_assert_int_eq(cuda->cuDevicePrimaryCtxRetain(&ctx, device), 0);
	ck_assert_int_eq(cuda->cuCtxPushCurrent(ctx), 0);
}

static bool active(int device)
{
	unsigned int flags;
	int is = -1;

	ck_assert_int_eq(cuda->cuDevicePrimaryCtxGetState(device, &flags, &is), 0);
	return is;
}

static struct gm_map_cuda *open_on(int device)
{
	struct gm_map_cuda *other;
	gm_cu_uuid uuid;

	ck_assert_int_eq(cuda->cuDeviceGetUuid(&uuid, device), 0);
	ck_assert_int_eq(gm_map_cuda_new((const uint8_t *)uuid.bytes, &other, why), 0);
	return other;
}

START_TEST(what_another_gpu_does_with_memory_holds_it_back)
{
	open_it();
	primary();
	(void)ops->here(map);
	pop();
	use(1, _i);
	(void)ops->here(map);
	gm_cu_stream stream = busy_stream();
	pop();
	struct gm_map_event *event = record();
	ck_assert_int_eq(ops->passed(map, event), 0);
	release(stream);
	await(event);
	ops->forget(map, event);
	ops->close(map);
}
END_TEST

START_TEST(a_gpu_that_had_nothing_to_do_with_it_holds_nothing_back)
{
	open_it();
	use(1, _i);
	gm_cu_stream stream = busy_stream();
	struct gm_map_cuda *other = open_on(1);
	(void)ops->here(other);
	pop();
	struct gm_map_event *event = record();
	ck_assert_int_eq(ops->passed(map, event), 1);
	ops->forget(map, event);
	release(stream);
	ops->close(other);
	ops->close(map);
}
END_TEST

START_TEST(whose_default_stream_is_meant_cannot_be_told_by_another_gpus_context)
{
	open_it();
	use(1, _i);
	ck_assert_uint_eq(gm_pending_key(ops, map, NULL), GM_STREAM_ANY);
	ck_assert_uint_eq(gm_pending_key(ops, map, NULL), GM_STREAM_ANY);
	struct gm_map_cuda *other = open_on(1);
	ck_assert_uint_ne(gm_pending_key(ops, other, NULL), GM_STREAM_ANY);
	pop();
	ck_assert_uint_ne(gm_pending_key(ops, map, NULL), GM_STREAM_ANY);
	ops->close(other);
	ops->close(map);
}
END_TEST

START_TEST(a_stream_waits_for_the_gpu_beside)
{
	gm_cu_stream slow, stream;

	open_it();
	use(1, false);
	(void)ops->here(map);
	slow = busy_stream();
	pop();
	primary();
	(void)ops->here(map);
	ck_assert_int_eq(cuda->cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING), 0);
	struct gm_map_event *event = record();
	ck_assert_int_eq(ops->order(map, (gpumem_stream)stream, event), 0);
	ck_assert_int_eq(cuda->cuStreamQuery(stream), GM_CUDA_ERROR_NOT_READY);
	release(slow);
	ck_assert_int_eq(cuda->cuStreamSynchronize(stream), 0);
	ck_assert_int_eq(ops->passed(map, event), 1);
	ops->forget(map, event);
	ops->close(map);
}
END_TEST

START_TEST(gpus_beside_one_another_are_let_go_with_their_last_user)
{
	open_it();
	struct gm_map_cuda *other = open_on(1);
	for (int device = 0; device < 2; device++) {
		use(device, false);
		(void)ops->here(map);
		(void)ops->here(other);
		pop();
		ck_assert_int_eq(cuda->cuDevicePrimaryCtxRelease(device), 0);
	}
	ck_assert(active(0) && active(1));
	ops->close(map);
	/* Each is beside the other, and the other is in use. */
	ck_assert(active(0) && active(1));
	ops->close(other);
	ck_assert(!active(0) && !active(1));
}
END_TEST

START_TEST(a_gpu_is_beside_again_after_its_memory_was_out_of_use)
{
	open_it();
	struct gm_map_cuda *other = open_on(1);
	use(0, false);
	(void)ops->here(other); /* keeps the set that is beside it */
	pop();
	use(1, _i);
	for (int i = 0; i < 2; i++) {
		(void)ops->here(map);
		gm_cu_stream stream = busy_stream();
		struct gm_map_event *event = record();
		ck_assert_int_eq(ops->passed(map, event), 0);
		release(stream);
		await(event);
		ops->forget(map, event);
		ops->close(map);
		map = open_on(0);
	}
	ops->close(map);
	ops->close(other);
}
END_TEST

START_TEST(an_event_that_cannot_be_recorded_beside_leaves_nothing)
{
	struct gm_map_event *event = (struct gm_map_event *)1;

	setenv("GPUMEM_FAKE_FAIL", "cuCtxRecordEvent:2:999", 1);
	open_it();
	use(1, false);
	(void)ops->here(map);
	pop();
	primary();
	ck_assert_int_lt(ops->record(map, &event), 0);
	ck_assert_ptr_eq(event, (struct gm_map_event *)1);
	event = record();
	ck_assert_int_eq(ops->passed(map, event), 1);
	ops->forget(map, event);
	ops->close(map);
}
END_TEST

START_TEST(without_memory_to_note_a_gpu_beside_no_event_passes_too_early)
{
	bool failed = true;

	for (uint64_t n = 1; failed; n++) {
		struct gm_map_event *event = NULL;
		open_it();
		use(1, false);
		failing_malloc_arm(n);
		(void)ops->here(map);
		failed = failing_malloc_fired();
		gm_cu_stream stream = busy_stream();
		pop();
		/* Either it is known all the same, or nothing is promised. */
		ck_assert(ops->record(map, &event) == 0 || failed);
		if (event)
			ck_assert_int_eq(ops->passed(map, event), 0);
		release(stream);
		ops->forget(map, event);
		ops->close(map);
	}
}
END_TEST

START_TEST(a_capture_on_the_gpu_beside_is_not_disturbed)
{
	gm_cu_result (*begin)(gm_cu_stream, int);
	gm_cu_result (*end)(gm_cu_stream, void **);
	void *graph, *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	struct gm_map_event *event = NULL;
	gm_cu_stream stream;
	uint64_t id;

	*(void **)&begin = dlsym(lib, "cuStreamBeginCapture_v2");
	*(void **)&end = dlsym(lib, "cuStreamEndCapture");
	open_it();
	use(1, false);
	struct gm_map_cuda *other = open_on(1);
	(void)ops->here(map);
	ck_assert_int_eq(cuda->cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING), 0);
	ck_assert_int_eq(begin(stream, 0), 0);
	ck_assert_int_eq(ops->stream_id(other, (gpumem_stream)stream, &id), -EAGAIN);
	ck_assert_int_eq(ops->record(map, &event), -EAGAIN);
	ck_assert_int_eq(end(stream, &graph), 0);
	ck_assert_int_eq(ops->record(map, &event), 0);
	ops->forget(map, event);
	ops->close(other);
	ops->close(map);
}
END_TEST

START_TEST(more_gpus_than_a_daemon_serves_are_told_apart)
{
	int last = GM_BOUND_DEVICES + _i;

	open_it();
	primary();
	(void)ops->here(map);
	pop();
	struct gm_map_cuda *far = open_on(last);
	use(last, false);
	uint64_t number = ops->here(far);
	gm_cu_stream stream = busy_stream();
	struct gm_map_event *event;
	ck_assert_int_eq(ops->record(far, &event), 0);
	ck_assert_int_eq(ops->passed(far, event), 0);
	release(stream);
	ck_assert_int_eq(ops->passed(far, event), 1);
	ops->forget(far, event);
	pop();
	ck_assert_uint_ne(ops->here(map), number);
	ops->close(far);
	ops->close(map);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cuda_context_beside");
	TCase *tc = tcase_create("fake driver");

	tcase_add_loop_test(tc, what_another_gpu_does_with_memory_holds_it_back, 0, 2);
	tcase_add_loop_test(tc, a_gpu_that_had_nothing_to_do_with_it_holds_nothing_back, 0, 2);
	tcase_add_loop_test(
		tc, whose_default_stream_is_meant_cannot_be_told_by_another_gpus_context, 0, 2);
	tcase_add_test(tc, a_stream_waits_for_the_gpu_beside);
	tcase_add_test(tc, gpus_beside_one_another_are_let_go_with_their_last_user);
	tcase_add_loop_test(tc, a_gpu_is_beside_again_after_its_memory_was_out_of_use, 0, 2);
	tcase_add_test(tc, an_event_that_cannot_be_recorded_beside_leaves_nothing);
	tcase_add_test(tc, without_memory_to_note_a_gpu_beside_no_event_passes_too_early);
	tcase_add_test(tc, a_capture_on_the_gpu_beside_is_not_disturbed);
	tcase_add_loop_test(tc, more_gpus_than_a_daemon_serves_are_told_apart, 0, 2);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
