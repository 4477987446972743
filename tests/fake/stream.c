/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of the fake driver. A stream is a thread that works through its queue, so that work
 * really is under way while the program goes on: what reuses memory too early reads or writes the
 * wrong bytes, and what unmaps memory in use makes the context fail with an illegal address, as a
 * GPU would. A program that uses a stream after its end is stopped.
 */
#include "tests/fake/stream.h"

#include <stdlib.h>
#include <string.h>

#include <utlist.h>

/* One lock and one condition for all streams: plain, and fast enough for tests. */
struct fake_streams fake_streams = {.lock = PTHREAD_MUTEX_INITIALIZER,
	.moved = PTHREAD_COND_INITIALIZER,
	.next_id = 1,
	.next_capture = 1};
static struct fake_stream legacy[FAKE_CONTEXTS];
static __thread struct fake_stream *per_thread[FAKE_CONTEXTS];

/* ---- points */

bool fake_points_passed(const struct fake_points *points)
{
	for (size_t i = 0; i < points->n; i++)
		if (points->at[i].stream->completed < points->at[i].count)
			return false;
	return true;
}

bool fake_points_add(struct fake_points *points, struct fake_stream *stream, uint64_t count)
{
	struct fake_point *at;

	for (size_t i = 0; i < points->n; i++)
		if (points->at[i].stream == stream) {
			if (points->at[i].count < count)
				points->at[i].count = count;
			return true;
		}
	at = realloc(points->at, (points->n + 1) * sizeof *at);
	if (!at)
		return false;
	points->at = at;
	points->at[points->n++] = (struct fake_point){stream, count};
	return true;
}

bool fake_points_merge(struct fake_points *points, const struct fake_points *more)
{
	for (size_t i = 0; i < more->n; i++)
		if (!fake_points_add(points, more->at[i].stream, more->at[i].count))
			return false;
	return true;
}

/* What the legacy stream and the others that wait for it owe one another. */
static bool add_implicit(struct fake_points *points, struct fake_stream *stream)
{
	struct fake_stream *other;

	if (!stream->blocking)
		return true;
	DL_FOREACH (fake_streams.list, other)
		if (other != stream && other->context == stream->context && other->blocking &&
			(stream->legacy || other->legacy) && other->completed != other->submitted &&
			!fake_points_add(points, other, other->submitted))
			return false;
	return true;
}

bool fake_points_now(struct fake_points *points, struct fake_stream *stream)
{
	return fake_points_add(points, stream, stream->submitted) && add_implicit(points, stream);
}

/* ---- streams */

static void list(struct fake_stream *stream, int context, bool blocking)
{
	stream->context = context;
	stream->blocking = blocking;
	stream->id = fake_streams.next_id++;
	DL_APPEND(fake_streams.list, stream);
}

static struct fake_stream *stream_new(int context, bool blocking)
{
	struct fake_stream *stream = calloc(1, sizeof *stream);

	if (stream)
		list(stream, context, blocking);
	return stream;
}

/* The default streams are those of the current context. */
static gm_cu_result find_default(bool of_thread, struct fake_stream **ret_stream)
{
	struct fake_device *device;
	gm_cu_result result = fake_need_context(&device);
	int number;

	if (result)
		return result;
	number = fake_context();
	if (!of_thread) {
		if (!legacy[number].legacy) {
			legacy[number].legacy = true;
			list(&legacy[number], number, true);
		}
		*ret_stream = &legacy[number];
		return GM_CUDA_SUCCESS;
	}
	if (!per_thread[number] || per_thread[number]->destroyed)
		per_thread[number] = stream_new(number, true);
	*ret_stream = per_thread[number];
	return *ret_stream ? GM_CUDA_SUCCESS : GM_CUDA_ERROR_OUT_OF_MEMORY;
}

gm_cu_result fake_stream_find(gm_cu_stream handle, struct fake_stream **ret_stream)
{
	struct fake_stream *stream;

	if (!handle || (uintptr_t)handle == GM_CU_STREAM_LEGACY)
		return find_default(false, ret_stream);
	if ((uintptr_t)handle == GM_CU_STREAM_PER_THREAD)
		return find_default(true, ret_stream);
	DL_FOREACH (fake_streams.list, stream)
		if (stream == (struct fake_stream *)handle && !stream->destroyed)
			break;
	if (!stream)
		fake_undefined("no such stream, or it was destroyed");
	*ret_stream = stream;
	return fake_sticky();
}

gm_cu_result fake_stream_context(
	gm_cu_stream handle, struct fake_device **ret_device, int *ret_context)
{
	struct fake_stream *stream;
	gm_cu_result result;

	pthread_mutex_lock(&fake_streams.lock);
	result = fake_stream_find(handle, &stream);
	if (!result) {
		*ret_context = stream->context;
		*ret_device = fake_context_device(stream->context);
	}
	pthread_mutex_unlock(&fake_streams.lock);
	if (!result && fake_device_lost(*ret_device))
		result = GM_CUDA_ERROR_DEVICE_UNAVAILABLE;
	return result;
}

static void *work(void *arg)
{
	struct fake_stream *stream = arg;

	pthread_mutex_lock(&fake_streams.lock);
	for (;;) {
		struct fake_op *op = stream->queue;
		if (!op && stream->destroyed)
			break;
		if (!op || !fake_points_passed(&op->after)) {
			pthread_cond_wait(&fake_streams.moved, &fake_streams.lock);
			continue;
		}
		pthread_mutex_unlock(&fake_streams.lock);
		fake_perform(op);
		pthread_mutex_lock(&fake_streams.lock);
		DL_DELETE(stream->queue, op);
		free(op->after.at);
		free(op);
		stream->completed++;
		pthread_cond_broadcast(&fake_streams.moved);
	}
	pthread_mutex_unlock(&fake_streams.lock);
	return NULL;
}

static gm_cu_result enqueue(struct fake_stream *stream, struct fake_op *op)
{
	if (!add_implicit(&op->after, stream))
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	if (!stream->threaded && pthread_create(&stream->thread, NULL, work, stream))
		return GM_CUDA_ERROR_OPERATING_SYSTEM;
	stream->threaded = true;
	DL_APPEND(stream->queue, op);
	stream->submitted++;
	pthread_cond_broadcast(&fake_streams.moved);
	return GM_CUDA_SUCCESS;
}

/* Held by the call that copies pageable memory, before fake_streams.lock. */
static pthread_mutex_t staging = PTHREAD_MUTEX_INITIALIZER;

void fake_staging_pass(void)
{
	pthread_mutex_lock(&staging);
	pthread_mutex_unlock(&staging);
}

void fake_stream_await_staging(const struct fake_stream *stream)
{
	while (stream->staging)
		pthread_cond_wait(&fake_streams.moved, &fake_streams.lock);
}

/* With the lock held. */
static void await(const struct fake_stream *stream)
{
	uint64_t until = stream->submitted;

	while (stream->completed < until)
		pthread_cond_wait(&fake_streams.moved, &fake_streams.lock);
}

/* With the lock held. */
static void await_ending(void)
{
	while (fake_streams.ending)
		pthread_cond_wait(&fake_streams.moved, &fake_streams.lock);
}

static gm_cu_result submit(gm_cu_stream handle, const struct fake_op *template, bool staged)
{
	struct fake_op *op = malloc(sizeof *op);
	struct fake_stream *stream;
	bool captured = false;
	gm_cu_result result;

	if (!op) {
		free(template->after.at);
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	}
	*op = *template;
	pthread_mutex_lock(&fake_streams.lock);
	await_ending();
	result = fake_stream_find(handle, &stream);
	if (!result)
		fake_stream_await_staging(stream);
	if (!result)
		result = fake_capture_use(stream, &captured);
	if (!result && !captured)
		result = enqueue(stream, op);
	if (result || captured) {
		free(op->after.at);
		free(op);
	} else if (staged) {
		stream->staging = true;
		await(stream);
		stream->staging = false;
		pthread_cond_broadcast(&fake_streams.moved);
	}
	pthread_mutex_unlock(&fake_streams.lock);
	return result;
}

gm_cu_result fake_submit(gm_cu_stream handle, const struct fake_op *op)
{
	return submit(handle, op, false);
}

gm_cu_result fake_submit_staged(gm_cu_stream handle, const struct fake_op *op)
{
	gm_cu_result result;

	pthread_mutex_lock(&staging);
	result = submit(handle, op, true);
	pthread_mutex_unlock(&staging);
	return result;
}

/* With the lock held. Its work is still done; events may point at it, so the struct stays. */
static void stream_end(struct fake_stream *stream)
{
	stream->destroyed = true;
	if (stream->threaded)
		pthread_detach(stream->thread);
	if (stream->capture)
		stream->capture->broken = true;
	pthread_cond_broadcast(&fake_streams.moved);
}

void fake_sync_all(void)
{
	struct fake_stream *stream;

	pthread_mutex_lock(&fake_streams.lock);
	DL_FOREACH (fake_streams.list, stream)
		await(stream);
	pthread_mutex_unlock(&fake_streams.lock);
}

void fake_sync_all_alone(void)
{
	pthread_mutex_lock(&fake_streams.lock);
	fake_streams.ending++;
	pthread_mutex_unlock(&fake_streams.lock);
	fake_sync_all();
	pthread_mutex_lock(&fake_streams.lock);
	fake_streams.ending--;
	pthread_cond_broadcast(&fake_streams.moved);
	pthread_mutex_unlock(&fake_streams.lock);
}

void fake_ending_pass(void)
{
	pthread_mutex_lock(&fake_streams.lock);
	await_ending();
	pthread_mutex_unlock(&fake_streams.lock);
}

void fake_streams_await(int context)
{
	struct fake_stream *stream;

	pthread_mutex_lock(&fake_streams.lock);
	DL_FOREACH (fake_streams.list, stream)
		if (stream->context == context)
			await(stream);
	pthread_mutex_unlock(&fake_streams.lock);
}

void fake_streams_end(int context)
{
	struct fake_stream *stream;

	pthread_mutex_lock(&fake_streams.lock);
	DL_FOREACH (fake_streams.list, stream)
		if (stream->context == context && !stream->destroyed && !stream->legacy)
			stream_end(stream);
	fake_events_end(context);
	pthread_mutex_unlock(&fake_streams.lock);
}

/* ---- the driver's functions */

FAKE_API gm_cu_result cuStreamCreate(gm_cu_stream *ret, unsigned int flags);
FAKE_API gm_cu_result cuStreamCreate(gm_cu_stream *ret, unsigned int flags)
{
	struct fake_stream *stream;
	struct fake_device *device;
	gm_cu_result result;

	FAKE_ENTER("cuStreamCreate");
	fake_staging_pass();
	fake_ending_pass();
	if (!ret || (flags & ~(unsigned)GM_CU_STREAM_NON_BLOCKING))
		return GM_CUDA_ERROR_INVALID_VALUE;
	if ((result = fake_need_context(&device)))
		return result;
	pthread_mutex_lock(&fake_streams.lock);
	stream = stream_new(fake_context(), !(flags & GM_CU_STREAM_NON_BLOCKING));
	pthread_mutex_unlock(&fake_streams.lock);
	*ret = (gm_cu_stream)stream;
	return stream ? GM_CUDA_SUCCESS : GM_CUDA_ERROR_OUT_OF_MEMORY;
}

FAKE_API gm_cu_result cuStreamDestroy_v2(gm_cu_stream handle);
FAKE_API gm_cu_result cuStreamDestroy_v2(gm_cu_stream handle)
{
	struct fake_stream *stream;
	gm_cu_result result;

	FAKE_ENTER("cuStreamDestroy");
	if ((uintptr_t)handle <= GM_CU_STREAM_PER_THREAD)
		return GM_CUDA_ERROR_INVALID_HANDLE;
	fake_ending_pass();
	pthread_mutex_lock(&fake_streams.lock);
	result = fake_stream_find(handle, &stream);
	if (!result)
		stream_end(stream);
	pthread_mutex_unlock(&fake_streams.lock);
	return result;
}

FAKE_API gm_cu_result cuStreamSynchronize(gm_cu_stream handle);
FAKE_API gm_cu_result cuStreamSynchronize(gm_cu_stream handle)
{
	struct fake_stream *stream;
	gm_cu_result result;

	FAKE_ENTER("cuStreamSynchronize");
	pthread_mutex_lock(&fake_streams.lock);
	result = fake_stream_find(handle, &stream);
	if (!result)
		result = fake_capture_ask(stream, true);
	if (!result)
		await(stream);
	pthread_mutex_unlock(&fake_streams.lock);
	return result ? result : fake_sticky();
}

static gm_cu_result stream_await_context(int context)
{
	struct fake_stream *stream;
	gm_cu_result result;

	pthread_mutex_lock(&fake_streams.lock);
	/* What another context captures is no matter, and the thread's mode is none. */
	result = fake_capture_break(context);
	DL_FOREACH (fake_streams.list, stream)
		if (!result && fake_context_part(stream->context, context))
			await(stream);
	pthread_mutex_unlock(&fake_streams.lock);
	return result ? result : fake_sticky();
}

FAKE_API gm_cu_result cuCtxSynchronize(void);
FAKE_API gm_cu_result cuCtxSynchronize(void)
{
	struct fake_device *device;
	gm_cu_result result;

	FAKE_ENTER("cuCtxSynchronize");
	result = fake_need_context(&device);
	return result ? result : stream_await_context(fake_context());
}

/* Since CUDA 13. */
FAKE_API gm_cu_result cuCtxSynchronize_v2(gm_cu_ctx ctx);
FAKE_API gm_cu_result cuCtxSynchronize_v2(gm_cu_ctx ctx)
{
	struct fake_device *device;
	gm_cu_result result;
	int context;

	FAKE_ENTER("cuCtxSynchronize");
	if (!ctx)
		ctx = fake_current();
	result = fake_check_context(ctx, &device, &context);
	return result ? result : stream_await_context(context);
}

FAKE_API gm_cu_result cuStreamQuery(gm_cu_stream handle);
FAKE_API gm_cu_result cuStreamQuery(gm_cu_stream handle)
{
	struct fake_stream *stream;
	gm_cu_result result;

	FAKE_ENTER("cuStreamQuery");
	pthread_mutex_lock(&fake_streams.lock);
	result = fake_stream_find(handle, &stream);
	if (!result)
		result = fake_capture_ask(stream, true);
	if (!result && stream->completed < stream->submitted)
		result = GM_CUDA_ERROR_NOT_READY;
	pthread_mutex_unlock(&fake_streams.lock);
	return result ? result : fake_sticky();
}

FAKE_API gm_cu_result fake_cuStreamGetId(gm_cu_stream handle, unsigned long long *id);
FAKE_API gm_cu_result fake_cuStreamGetId(gm_cu_stream handle, unsigned long long *id)
{
	struct fake_stream *stream;
	gm_cu_result result;

	FAKE_ENTER("cuStreamGetId");
	if (!id)
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake_streams.lock);
	result = fake_stream_find(handle, &stream);
	if (!result)
		result = fake_capture_ask(stream, false); /* whatever the thread's mode is */
	if (!result)
		*id = stream->id;
	pthread_mutex_unlock(&fake_streams.lock);
	return result;
}
