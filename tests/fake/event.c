/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of the fake driver: sets of points in streams. An event belongs to the context that was
 * current when it was made, and a program that uses one after its end is stopped.
 */
#include "tests/fake/stream.h"

#include <stdlib.h>

#include <utlist.h>

/* With the lock held. */
static bool known(gm_cu_event event)
{
	struct gm_cu_event_opaque *found;

	HASH_FIND_PTR(fake_streams.events, &event, found);
	if (!found)
		fake_undefined("no such event, or it was destroyed");
	return found;
}

static void event_free(gm_cu_event event)
{
	HASH_DEL(fake_streams.events, event);
	free(event->points.at);
	free(event);
}

void fake_events_end(int context)
{
	struct gm_cu_event_opaque *event, *tmp;

	HASH_ITER (hh, fake_streams.events, event, tmp)
		if (event->context == context)
			event_free(event);
}

/* ---- the driver's functions */

FAKE_API gm_cu_result cuEventCreate(gm_cu_event *event, unsigned int flags);
FAKE_API gm_cu_result cuEventCreate(gm_cu_event *event, unsigned int flags)
{
	struct gm_cu_event_opaque *made;
	struct fake_device *device;
	gm_cu_result result;

	FAKE_ENTER("cuEventCreate");
	fake_ending_pass();
	/* Blocking sync, no timing, between processes: the last goes with no timing only. */
	if (!event || flags > 7 || (flags & 6) == 4)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if ((result = fake_need_context(&device)))
		return result;
	made = calloc(1, sizeof *made);
	if (!made)
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	made->self = made;
	made->context = fake_context();
	pthread_mutex_lock(&fake_streams.lock);
	HASH_ADD_PTR(fake_streams.events, self, made);
	pthread_mutex_unlock(&fake_streams.lock);
	*event = made;
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuEventDestroy_v2(gm_cu_event event);
FAKE_API gm_cu_result cuEventDestroy_v2(gm_cu_event event)
{
	FAKE_ENTER("cuEventDestroy");
	if (!event)
		return GM_CUDA_ERROR_INVALID_HANDLE;
	if (fake_sticky())
		return fake_sticky();
	fake_ending_pass();
	pthread_mutex_lock(&fake_streams.lock);
	if (known(event))
		event_free(event);
	pthread_mutex_unlock(&fake_streams.lock);
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuEventRecord(gm_cu_event event, gm_cu_stream handle);
FAKE_API gm_cu_result cuEventRecord(gm_cu_event event, gm_cu_stream handle)
{
	struct fake_stream *stream;
	gm_cu_result result;
	bool captured;

	FAKE_ENTER("cuEventRecord");
	if (!event)
		return GM_CUDA_ERROR_INVALID_HANDLE;
	fake_ending_pass();
	pthread_mutex_lock(&fake_streams.lock);
	result = fake_stream_find(handle, &stream);
	if (!result)
		fake_stream_await_staging(stream);
	if (!result && known(event) && event->context != stream->context)
		result = GM_CUDA_ERROR_INVALID_HANDLE;
	if (!result)
		result = fake_capture_use(stream, &captured);
	if (!result) {
		event->points.n = 0;
		event->capture = captured ? stream->capture->id : 0;
		if (captured ? !fake_points_merge(&event->points, &stream->seen) ||
					!fake_points_add(&event->points, stream, stream->captured)
			     : !fake_points_now(&event->points, stream))
			result = GM_CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&fake_streams.lock);
	return result;
}

FAKE_API gm_cu_result fake_cuCtxRecordEvent(gm_cu_ctx ctx, gm_cu_event event);
FAKE_API gm_cu_result fake_cuCtxRecordEvent(gm_cu_ctx ctx, gm_cu_event event)
{
	struct fake_device *device;
	struct fake_stream *stream;
	gm_cu_result result;
	int number;

	FAKE_ENTER("cuCtxRecordEvent");
	if (!event)
		return GM_CUDA_ERROR_INVALID_HANDLE;
	if ((result = fake_check_context(ctx, &device, &number)) || (result = fake_sticky()))
		return result;
	pthread_mutex_lock(&fake_streams.lock);
	if (known(event) && event->context != number)
		result = GM_CUDA_ERROR_INVALID_HANDLE;
	if (!result)
		result = fake_capture_break(number); /* and takes captures down with it */
	if (!result) {
		event->points.n = 0;
		event->capture = 0;
		DL_FOREACH (fake_streams.list, stream)
			if (stream->context == number &&
				!fake_points_add(&event->points, stream, stream->submitted))
				result = GM_CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&fake_streams.lock);
	return result;
}

FAKE_API gm_cu_result cuEventQuery(gm_cu_event event);
FAKE_API gm_cu_result cuEventQuery(gm_cu_event event)
{
	struct fake_capture *capture;
	gm_cu_result result;

	FAKE_ENTER("cuEventQuery");
	if (!event)
		return GM_CUDA_ERROR_INVALID_HANDLE;
	if ((result = fake_sticky()) || (result = fake_capture_forbids()))
		return result;
	pthread_mutex_lock(&fake_streams.lock);
	if (known(event) && event->capture) {
		capture = fake_capture_find(event->capture);
		result = capture ? GM_CUDA_ERROR_CAPTURED_EVENT : GM_CUDA_ERROR_INVALID_VALUE;
		if (capture)
			capture->broken = true;
	} else if (!fake_points_passed(&event->points)) {
		result = GM_CUDA_ERROR_NOT_READY;
	}
	pthread_mutex_unlock(&fake_streams.lock);
	return result;
}

FAKE_API gm_cu_result cuStreamWaitEvent(gm_cu_stream handle, gm_cu_event event, unsigned int flags);
FAKE_API gm_cu_result cuStreamWaitEvent(gm_cu_stream handle, gm_cu_event event, unsigned int flags)
{
	struct fake_op op = {.kind = FAKE_WAIT};
	struct fake_stream *stream;
	bool captured = false;
	gm_cu_result result;

	FAKE_ENTER("cuStreamWaitEvent");
	if (!event)
		return GM_CUDA_ERROR_INVALID_HANDLE;
	if (flags)
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake_streams.lock);
	result = fake_stream_find(handle, &stream);
	if (!result && known(event))
		result = fake_capture_wait(stream, event, &captured);
	if (!result && !captured && !fake_points_merge(&op.after, &event->points))
		result = GM_CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&fake_streams.lock);
	return result || captured ? result : fake_submit(handle, &op);
}
