/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An event for all streams covers each context that was shown, none is made that is not needed, and
 * what fails is told and undone. See cuda_context_fixture.h.
 */
#include <stdio.h>

#include "client/map/map_pinned.h"
#include "client/heap/pending.h"
#include "tests/unit/map/cuda_context_fixture.h"
#include "tests/unit/failing_malloc.h"

START_TEST(an_event_covers_the_programs_own_context)
{
	void *addr;

	open_it();
	own_on(0);
	(void)ops->here(map);
	gm_cu_stream stream = busy_stream();
	pop();
	/* As the library's own thread does it, which has no context. */
	ck_assert_int_eq(ops->reserve(map, GM_CHUNK_MIN, &addr), 0);
	struct gm_map_event *event = record();
	ck_assert_int_eq(ops->passed(map, event), 0);
	release(stream);
	await(event);
	ops->forget(map, event);
	ops->unreserve(map, addr, GM_CHUNK_MIN);
	/* A context costs half a gigabyte: none was made beside the program's. */
	ck_assert(!primary_active());
	gm_cu_ctx current = (gm_cu_ctx)1;
	ck_assert_int_eq(cuda->cuCtxGetCurrent(&current), 0);
	ck_assert_ptr_null(current);
	ops->close(map);
	ck_assert(!primary_active());
}
END_TEST

START_TEST(an_event_covers_all_contexts_that_were_shown_and_the_primary_one)
{
	gm_cu_stream streams[3];

	open_it();
	own_on(0);
	(void)ops->here(map);
	streams[0] = busy_stream();
	pop();
	own_on(0);
	(void)ops->here(map);
	streams[1] = busy_stream();
	pop();
	/* Nobody showed this one. */
	primary();
	streams[2] = busy_stream();
	pop();
	/* One of another device that has to do with memory of this one, too. */
	own_on(1);
	(void)ops->here(map);
	busy_stream();
	pop();

	struct gm_map_event *event = record();
	ck_assert_int_eq(ops->passed(map, event), 0);
	for (int i = 0; i < 4; i++)
		sem_post(&gate);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(cuda->cuStreamSynchronize(streams[i]), 0);
	await(event);
	ops->forget(map, event);
	ops->close(map);
}
END_TEST

START_TEST(each_context_alone_holds_an_event_back)
{
	open_it();
	held_up_by(_i);
}
END_TEST

START_TEST(a_stream_waits_for_its_own_context_and_for_the_primary_one)
{
	gm_cu_stream slow[2], stream;

	open_it();
	primary();
	slow[0] = busy_stream();
	pop();
	own_on(0);
	(void)ops->here(map);
	slow[1] = busy_stream();
	ck_assert_int_eq(cuda->cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING), 0);
	struct gm_map_event *event = record();
	ck_assert_int_eq(ops->order(map, (gpumem_stream)stream, event), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(cuda->cuStreamQuery(stream), GM_CUDA_ERROR_NOT_READY);
		sem_post(&gate);
	}
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(cuda->cuStreamSynchronize(slow[i]), 0);
	ck_assert_int_eq(cuda->cuStreamSynchronize(stream), 0);
	ck_assert_int_eq(ops->passed(map, event), 1);
	ops->forget(map, event);
	ops->close(map);
}
END_TEST

START_TEST(a_stream_cannot_wait_for_another_context_that_may_end_meanwhile)
{
	open_it();
	own_on(0);
	(void)ops->here(map);
	gm_cu_stream slow = busy_stream();
	struct gm_map_event *there = record();
	pop();
	own_on(0);
	(void)ops->here(map);
	gm_cu_stream stream;
	ck_assert_int_eq(cuda->cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING), 0);
	struct gm_map_event *here = record();
	/* Recorded where it runs, or from elsewhere: the driver's event is not touched here. */
	ck_assert_int_eq(ops->order(map, (gpumem_stream)stream, there), -EOPNOTSUPP);
	ck_assert_int_eq(ops->order(map, (gpumem_stream)stream, here), -EOPNOTSUPP);
	ck_assert_int_eq(ops->passed(map, there), 0);
	release(slow);
	await(there);
	await(here);
	ck_assert_int_eq(ops->order(map, (gpumem_stream)stream, there), 0);
	ck_assert_int_eq(ops->order(map, (gpumem_stream)stream, here), 0);
	ck_assert_int_eq(cuda->cuStreamSynchronize(stream), 0);
	ops->forget(map, there);
	ops->forget(map, here);
	ops->close(map);
}
END_TEST

START_TEST(where_a_context_is_current_nobody_waits_for_it)
{
	/* Were it waited for, it would fail and be waited for again, for ever. */
	setenv("GPUMEM_FAKE_FAIL", "cuCtxSynchronize:1+:999", 1);
	open_it();
	own_on(0);
	(void)ops->here(map);
	gm_cu_stream stream = busy_stream();
	struct gm_map_event *event = record();
	ck_assert_int_eq(ops->passed(map, event), 0);
	release(stream);
	ck_assert_int_eq(ops->passed(map, event), 1);
	ops->forget(map, event);
	ops->close(map);
}
END_TEST

START_TEST(default_streams_of_contexts_are_not_one)
{
	open_it();
	gm_stream_key none = gm_pending_key(ops, map, NULL);
	own_on(0);
	gm_stream_key one = gm_pending_key(ops, map, NULL);
	ck_assert_uint_eq(gm_pending_key(ops, map, NULL), one);
	own_on(0);
	gm_stream_key two = gm_pending_key(ops, map, NULL);
	primary();
	ck_assert_uint_eq(gm_pending_key(ops, map, NULL), none);
	pop();
	ck_assert_uint_eq(gm_pending_key(ops, map, NULL), two);
	pop();
	ck_assert_uint_eq(gm_pending_key(ops, map, NULL), one);
	ck_assert_uint_ne(one, none);
	ck_assert_uint_ne(two, none);
	ck_assert_uint_ne(one, two);
	ck_assert_uint_ne(one, GM_STREAM_ANY);
	ops->close(map);
}
END_TEST

START_TEST(a_call_that_fails_in_one_context_is_told_and_undone)
{
	/* When the contexts were met, the driver was asked for their ids, and whether those met
	 * before are still there, and keepers have pushed their own. */
	static const char *const plans[] = {"cuCtxPushCurrent:4:999", "cuCtxGetId:11:999",
		"cuEventCreate:1:999", "cuEventCreate:2:999", "cuCtxRecordEvent:1:999",
		"cuCtxRecordEvent:2:999"};
	struct gm_map_event *event;

	setenv("GPUMEM_FAKE_FAIL", plans[_i], 1);
	open_it();
	primary();
	(void)ops->here(map);
	pop();
	for (int i = 0; i < 2; i++) {
		own_on(0);
		(void)ops->here(map);
	}
	ck_assert_int_eq(ops->record(map, &event), -EIO);
	ck_assert_str_eq(ops->error(), "CUDA_ERROR_UNKNOWN");
	event = record();
	await(event);
	ops->forget(map, event);
	ops->close(map);
}
END_TEST

START_TEST(pinned_memory_knows_the_contexts_that_device_memory_was_shown)
{
	struct gm_map_pinned *pinned;
	struct gm_map_event *event = NULL;

	open_it();
	ck_assert_int_eq(gm_map_pinned_new(true, &pinned, why), 0);
	const struct gm_map_ops *pinned_ops = gm_map_pinned_ops(true);
	own_on(0);
	(void)ops->here(map);
	gm_cu_stream stream = busy_stream();
	pop();
	ck_assert_int_eq(pinned_ops->record(pinned, &event), 0);
	ck_assert_int_eq(pinned_ops->passed(pinned, event), 0);
	release(stream);
	int r;
	while ((r = pinned_ops->passed(pinned, event)) == 0)
		sched_yield();
	ck_assert_int_eq(r, 1);
	pinned_ops->forget(pinned, event);
	/* And the other way round. */
	own_on(1);
	uint64_t number = pinned_ops->here(pinned);
	own_on(0);
	ck_assert_uint_ne(pinned_ops->here(pinned), number);
	ck_assert_uint_eq(pinned_ops->here(pinned), ops->here(map));
	ck_assert(!primary_active());
	pinned_ops->close(pinned);
	ops->close(map);
}
END_TEST

START_TEST(without_memory_an_event_is_refused_and_nothing_is_left)
{
	struct gm_map_event *event;
	unsigned n;

	open_it();
	for (int i = 0; i < 2; i++) {
		own_on(0);
		(void)ops->here(map);
		pop();
	}
	for (n = 1;; n++) {
		failing_malloc_arm(n);
		int r = ops->record(map, &event);
		if (!failing_malloc_fired()) {
			ck_assert_int_eq(r, 0);
			break;
		}
		ck_assert_int_lt(r, 0);
	}
	ck_assert_uint_ge(n, 3); /* the event, and points that were not there yet */
	ops->forget(map, event);
	/* A context that could not be noted is none that an event could leave out. */
	own_on(0);
	failing_malloc_arm(1);
	(void)ops->here(map);
	bool fired = failing_malloc_fired();
	ck_assert(fired);
	ck_assert_int_lt(ops->record(map, &event), 0);
	ops->close(map);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cuda_context");
	TCase *tc = tcase_create("fake driver");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, an_event_covers_the_programs_own_context);
	tcase_add_test(tc, an_event_covers_all_contexts_that_were_shown_and_the_primary_one);
	tcase_add_loop_test(tc, each_context_alone_holds_an_event_back, 0, 3);
	tcase_add_test(tc, a_stream_waits_for_its_own_context_and_for_the_primary_one);
	tcase_add_test(tc, a_stream_cannot_wait_for_another_context_that_may_end_meanwhile);
	tcase_add_test(tc, where_a_context_is_current_nobody_waits_for_it);
	tcase_add_test(tc, default_streams_of_contexts_are_not_one);
	tcase_add_loop_test(tc, a_call_that_fails_in_one_context_is_told_and_undone, 0, 6);
	tcase_add_test(tc, pinned_memory_knows_the_contexts_that_device_memory_was_shown);
	tcase_add_test(tc, without_memory_an_event_is_refused_and_nothing_is_left);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
