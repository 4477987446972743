/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_CUDA_CONTEXT_FIXTURE_H
#define GM_TESTS_UNIT_CUDA_CONTEXT_FIXTURE_H

/*
 * A program with contexts of its own, over the fake driver (run it with tests/fake/with-fake-gpu -n
 * 2). The fake ends a program that uses an event of a context that is no more, or makes one current
 * that nobody held.
 */

#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "client/map/map_cuda.h"
#include "tests/tap.h"

static const struct gm_cuda *cuda;
static const struct gm_map_ops *ops;
static struct gm_map_cuda *map;
static char why[GM_MAP_CUDA_WHY];
static uint8_t uuid_0[GM_UUID_BYTES];
static sem_t gate;

static inline void open_it(void)
{
	gm_cu_uuid uuid;

	ck_assert_int_eq(gm_cuda_load(&cuda, why), 0);
	ck_assert_int_eq(cuda->cuDeviceGetUuid(&uuid, 0), 0);
	memcpy(uuid_0, uuid.bytes, GM_UUID_BYTES);
	ops = gm_map_cuda_ops();
	ck_assert_int_eq(gm_map_cuda_new(uuid_0, &map, why), 0);
	sem_init(&gate, 0, 0);
}

static inline bool primary_active(void)
{
	unsigned int flags;
	int active = -1;

	ck_assert_int_eq(cuda->cuDevicePrimaryCtxGetState(0, &flags, &active), 0);
	return active;
}

static inline gm_cu_ctx primary(void)
{
	gm_cu_ctx ctx;

	ck_assert_int_eq(cuda->cuDevicePrimaryCtxRetain(&ctx, 0), 0);
	ck_assert_int_eq(cuda->cuCtxPushCurrent(ctx), 0);
	return ctx;
}

/* Current from here on. */
static inline gm_cu_ctx own_on(int device)
{
	gm_cu_ctx ctx;

	ck_assert_int_eq(cuda->cuCtxCreate(&ctx, 0, device), 0);
	return ctx;
}

static inline void pop(void)
{
	ck_assert_int_eq(cuda->cuCtxPopCurrent(NULL), 0);
}

static inline void wait_at_gate(void *unused)
{
	while (sem_wait(&gate) < 0 && errno == EINTR)
		;
}

/* A stream of the current context that is held at the gate. */
static inline gm_cu_stream busy_stream(void)
{
	gm_cu_stream stream;

	ck_assert_int_eq(cuda->cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING), 0);
	ck_assert_int_eq(cuda->cuLaunchHostFunc(stream, wait_at_gate, NULL), 0);
	return stream;
}

static inline struct gm_map_event *record(void)
{
	struct gm_map_event *event = NULL;

	ck_assert_int_eq(ops->record(map, &event), 0);
	return event;
}

/* A thread of the library's waits for contexts that are not current here. */
static inline void await(struct gm_map_event *event)
{
	int r;

	while ((r = ops->passed(map, event)) == 0)
		sched_yield();
	ck_assert_int_eq(r, 1);
}

static inline void without_context_events(int how)
{
	if (how)
		setenv("GPUMEM_FAKE_VERSION", "12040", 1);
	else
		setenv("GPUMEM_FAKE_WITHOUT", "ctxevent,ctxid,streamid", 1);
	open_it();
	ck_assert_ptr_null((void *)cuda->cuCtxRecordEvent);
}

static inline void release(gm_cu_stream stream)
{
	sem_post(&gate);
	ck_assert_int_eq(cuda->cuStreamSynchronize(stream), 0);
}

/* Two contexts of the program's own and the primary one, of which one is held up. */
static inline void held_up_by(int which)
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
	struct gm_map_event *event = record();
	ck_assert_int_eq(ops->passed(map, event), 0);
	sem_post(&gate);
	await(event);
	ck_assert_int_eq(cuda->cuStreamQuery(stream), 0);
	ops->forget(map, event);
	ops->close(map);
}

#endif
