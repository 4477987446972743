/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs with contexts of their own, over the fake driver (run it with tests/fake/run-fake.sh -n
 * 2): an event for all streams covers each context that was shown, none is made that is not needed,
 * and one that is destroyed leaves nothing behind, whichever thread does that and when. The fake
 * ends a program that uses an event of a context that is no more, or makes one current that nobody
 * held. And drivers that have no event for a whole context.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/map_cuda.h"
#include "client/map_pinned.h"
#include "client/pending.h"
#include "tests/tap.h"
#include "tests/unit/failing_malloc.h"

#define ANY GPUMEM_STREAM_ANY

static const struct gm_cuda *cuda;
static const struct gm_map_ops *ops;
static struct gm_map_cuda *map;
static char why[GM_MAP_CUDA_WHY];
static uint8_t uuid_0[GM_UUID_BYTES];
static sem_t gate;

static void open_it(void)
{
	gm_cu_uuid uuid;

	ck_assert_int_eq(gm_cuda_load(&cuda, why), 0);
	ck_assert_int_eq(cuda->cuDeviceGetUuid(&uuid, 0), 0);
	memcpy(uuid_0, uuid.bytes, GM_UUID_BYTES);
	ops = gm_map_cuda_ops();
	ck_assert_int_eq(gm_map_cuda_new(uuid_0, &map, why), 0);
	sem_init(&gate, 0, 0);
}

static bool primary_active(void)
{
	unsigned int flags;
	int active = -1;

	ck_assert_int_eq(cuda->cuDevicePrimaryCtxGetState(0, &flags, &active), 0);
	return active;
}

static gm_cu_ctx primary(void)
{
	gm_cu_ctx ctx;

	ck_assert_int_eq(cuda->cuDevicePrimaryCtxRetain(&ctx, 0), 0);
	ck_assert_int_eq(cuda->cuCtxPushCurrent(ctx), 0);
	return ctx;
}

/* Current from here on. */
static gm_cu_ctx own_on(int device)
{
	gm_cu_ctx ctx;

	ck_assert_int_eq(cuda->cuCtxCreate(&ctx, 0, device), 0);
	return ctx;
}

static void pop(void)
{
	ck_assert_int_eq(cuda->cuCtxPopCurrent(NULL), 0);
}

static void wait_at_gate(void *unused)
{
	while (sem_wait(&gate) < 0 && errno == EINTR)
		;
}

/* A stream of the current context that is held at the gate. */
static gm_cu_stream busy_stream(void)
{
	gm_cu_stream stream;

	ck_assert_int_eq(cuda->cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING), 0);
	ck_assert_int_eq(cuda->cuLaunchHostFunc(stream, wait_at_gate, NULL), 0);
	return stream;
}

static struct gm_event *record(void)
{
	struct gm_event *event = NULL;

	ck_assert_int_eq(ops->record(map, ANY, &event), 0);
	return event;
}

/* A thread of the library's waits for contexts that are not current here. */
static void await(struct gm_event *event)
{
	int r;

	while ((r = ops->passed(map, event)) == 0)
		sched_yield();
	ck_assert_int_eq(r, 1);
}

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

static void without_context_events(int how)
{
	if (how)
		setenv("GPUMEM_FAKE_VERSION", "12040", 1);
	else
		setenv("GPUMEM_FAKE_WITHOUT", "ctxevent,ctxid,streamid", 1);
	open_it();
	ck_assert_ptr_null((void *)cuda->cuCtxRecordEvent);
}

static void release(gm_cu_stream stream)
{
	sem_post(&gate);
	ck_assert_int_eq(cuda->cuStreamSynchronize(stream), 0);
}

/* ---- which contexts are covered */

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
	struct gm_event *event = record();
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
	/* Nor does one of another device matter. */
	own_on(1);
	(void)ops->here(map);
	busy_stream();
	pop();

	struct gm_event *event = record();
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

/* Two contexts of the program's own and the primary one, of which one is held up. */
static void held_up_by(int which)
{
	gm_cu_stream stream = NULL;

	for (int i = 0; i < 3; i++) {
		if (i < 2)
			own_on(0);
		else
			primary();
		(void)ops->here(map);
		if (i == which)
			stream = busy_stream();
		pop();
	}
	struct gm_event *event = record();
	ck_assert_int_eq(ops->passed(map, event), 0);
	sem_post(&gate);
	await(event);
	ck_assert_int_eq(cuda->cuStreamQuery(stream), 0);
	ops->forget(map, event);
	ops->close(map);
}

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
	struct gm_event *event = record();
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
	struct gm_event *there = record();
	pop();
	own_on(0);
	(void)ops->here(map);
	gm_cu_stream stream;
	ck_assert_int_eq(cuda->cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING), 0);
	struct gm_event *here = record();
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
	struct gm_event *event = record();
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

/* ---- contexts that end */

START_TEST(what_ran_in_a_context_that_is_destroyed_is_over)
{
	if (_i)
		setenv("GPUMEM_FAKE_WITHOUT", "ctxid", 1);
	open_it();
	gm_cu_ctx ctx = own_on(0);
	(void)ops->here(map);
	busy_stream();
	pop();
	struct gm_event *event = record();
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
	struct gm_event *event = record();
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

START_TEST(an_event_may_be_forgotten_after_its_context)
{
	open_it();
	gm_cu_ctx ctx = own_on(0);
	(void)ops->here(map);
	struct gm_event *event = record(), *other = record();
	ops->forget(map, other); /* spare, in that context */
	ck_assert_int_eq(cuda->cuCtxDestroy(ctx), 0);
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
	open_it();
	gm_cu_ctx old = own_on(0);
	(void)ops->here(map);
	struct gm_event *event = record(), *spare = record();
	ops->forget(map, spare);
	ck_assert_int_eq(cuda->cuCtxDestroy(old), 0);
	gm_cu_ctx new = own_on(0);
	ck_assert_ptr_ne(new, old);
	(void)ops->here(map);
	gm_cu_stream stream = busy_stream();
	struct gm_event *later = record();
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
	struct gm_event *event = record();
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
	struct gm_event *event = record();
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
	struct gm_event *event = record(), *spare = record();
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
	struct gm_event *later = record();
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

START_TEST(contexts_that_come_and_go_are_all_forgotten)
{
	open_it();
	for (int i = 0; i < 200; i++) {
		gm_cu_ctx ctx = own_on(0);
		(void)ops->here(map);
		struct gm_event *event = record();
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

static void *come_and_go(void *unused)
{
	for (int i = 0; i < 200; i++) {
		gm_cu_ctx ctx = NULL;
		if (cuda->cuCtxCreate(&ctx, 0, 0))
			return (void *)1;
		(void)ops->here(map);
		struct gm_event *event = NULL;
		if (ops->record(map, ANY, &event) || ops->passed(map, event) < 0)
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

START_TEST(a_call_that_fails_in_one_context_is_told_and_undone)
{
	/* When the contexts were met, the driver was asked for their ids, and keepers have pushed
	 * their own. */
	static const char *const plans[] = {"cuCtxPushCurrent:4:999", "cuCtxGetId:7:999",
		"cuEventCreate:1:999", "cuEventCreate:2:999", "cuCtxRecordEvent:1:999",
		"cuCtxRecordEvent:2:999"};
	struct gm_event *event;

	setenv("GPUMEM_FAKE_FAIL", plans[_i], 1);
	open_it();
	primary();
	(void)ops->here(map);
	pop();
	for (int i = 0; i < 2; i++) {
		own_on(0);
		(void)ops->here(map);
	}
	ck_assert_int_eq(ops->record(map, ANY, &event), -EIO);
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
	struct gm_event *event = NULL;

	open_it();
	ck_assert_int_eq(gm_map_pinned_new(true, &pinned, why), 0);
	const struct gm_map_ops *pinned_ops = gm_map_pinned_ops(true);
	own_on(0);
	(void)ops->here(map);
	gm_cu_stream stream = busy_stream();
	pop();
	ck_assert_int_eq(pinned_ops->record(pinned, ANY, &event), 0);
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
	struct gm_event *event;
	unsigned n;

	open_it();
	for (int i = 0; i < 2; i++) {
		own_on(0);
		(void)ops->here(map);
		pop();
	}
	for (n = 1;; n++) {
		failing_malloc_arm(n);
		int r = ops->record(map, ANY, &event);
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
	ck_assert_int_lt(ops->record(map, ANY, &event), 0);
	ops->close(map);
}
END_TEST

/* ---- drivers that have no event for a context */

START_TEST(an_older_driver_is_waited_for_by_a_thread)
{
	without_context_events(_i);
	own_on(0);
	(void)ops->here(map);
	gm_cu_stream stream = busy_stream();
	struct gm_event *event = record(), *second = record();
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
	struct gm_event *event = record();
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
	struct gm_event *event = record();
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
	struct gm_event *event;
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
	ck_assert_int_eq(ops->record(map, ANY, &event), -EAGAIN);
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
	struct gm_event *event = record();
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
	tcase_add_loop_test(tc, what_ran_in_a_context_that_is_destroyed_is_over, 0, 2);
	tcase_add_test(tc, what_runs_in_a_context_that_is_being_destroyed_is_waited_for);
	tcase_add_test(tc, an_event_may_be_forgotten_after_its_context);
	tcase_add_test(tc, a_handle_does_not_come_again_while_its_context_is_known);
	tcase_add_test(tc, a_context_that_another_thread_destroyed_is_not_met_again);
	tcase_add_loop_test(tc, a_primary_context_that_was_reset_is_known_again, 0, 4);
	tcase_add_test(tc, another_context_at_the_same_handle_is_not_taken_for_the_old_one);
	tcase_add_test(tc, contexts_that_come_and_go_are_all_forgotten);
	tcase_add_test(tc, threads_with_contexts_of_their_own_do_not_disturb_one_another);
	tcase_add_loop_test(tc, a_call_that_fails_in_one_context_is_told_and_undone, 0, 6);
	tcase_add_test(tc, pinned_memory_knows_the_contexts_that_device_memory_was_shown);
	tcase_add_test(tc, without_memory_an_event_is_refused_and_nothing_is_left);
	tcase_add_loop_test(tc, an_older_driver_is_waited_for_by_a_thread, 0, 2);
	tcase_add_loop_test(tc, an_older_driver_is_waited_for_in_every_context, 0, 3);
	tcase_add_test(tc, a_wait_that_fails_is_tried_again);
	tcase_add_test(tc, a_context_that_ends_under_the_wait_is_done);
	tcase_add_test(tc, an_older_drivers_capture_is_left_alone);
	tcase_add_test(tc, the_end_does_not_wait_for_the_device);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
