/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See cuda_event.h. An event of the driver's is used again and again, and only in the context it
 * was made in: elsewhere the driver refuses it. Nothing is called on one whose context is gone,
 * which would be anybody's guess; so the context is entered first, and whoever does that has
 * walking.
 */
#include "client/cuda_event.h"

#include <errno.h>
#include <stdlib.h>

struct gm_cuda_point {
	gm_cu_event cu;
	struct gm_cuda_context *context;
	uint64_t generation; /* the context's */
	struct gm_cuda_point *next;
};

struct gm_event {
	struct gm_cuda_point *points; /* that have not passed */
	uint64_t number;              /* of gm_cuda_wait_ask(); 0: none */
};

/* The stream last seen captured on each device; NULL: none. */
static _Atomic(gpumem_stream) captured[GM_LIMIT_DEVICES];

static _Atomic(gpumem_stream) *captured_on(const struct gm_cuda_contexts *contexts)
{
	return &captured[(unsigned)contexts->device % GM_LIMIT_DEVICES];
}

/* ---- captures */

static bool is_captured(struct gm_cuda_contexts *contexts, gpumem_stream stream)
{
	gm_cu_capture_status status = GM_CU_STREAM_CAPTURE_STATUS_NONE;

	return contexts->cuda->cuStreamIsCapturing &&
	       contexts->cuda->cuStreamIsCapturing((gm_cu_stream)stream, &status) ==
		       GM_CUDA_SUCCESS &&
	       status != GM_CU_STREAM_CAPTURE_STATUS_NONE;
}

void gm_cuda_event_not_captured(struct gm_cuda_contexts *contexts, gpumem_stream stream)
{
	if (atomic_load_explicit(captured_on(contexts), memory_order_relaxed) == stream)
		atomic_compare_exchange_strong(captured_on(contexts), &stream, NULL);
}

bool gm_cuda_event_captured(struct gm_cuda_contexts *contexts, gpumem_stream stream)
{
	if (!is_captured(contexts, stream)) {
		gm_cuda_event_not_captured(contexts, stream);
		return false;
	}
	atomic_store_explicit(captured_on(contexts), stream, memory_order_release);
	return true;
}

bool gm_cuda_event_capturing(struct gm_cuda_contexts *contexts)
{
	gpumem_stream stream = atomic_load_explicit(captured_on(contexts), memory_order_acquire);

	if (!stream)
		return false;
	if (is_captured(contexts, stream))
		return true;
	atomic_compare_exchange_strong(captured_on(contexts), &stream, NULL);
	return false;
}

/* ---- points; walking */

void gm_cuda_points_drop(struct gm_cuda_context *context)
{
	struct gm_cuda_point *point;

	while ((point = context->spare)) {
		context->spare = point->next;
		free(point);
	}
}

void gm_cuda_points_destroy(const struct gm_cuda *cuda, struct gm_cuda_context *context)
{
	for (struct gm_cuda_point *point = context->spare; point; point = point->next)
		cuda->cuEventDestroy(point->cu);
}

/* The context is current. */
static gm_cu_result point_new(struct gm_cuda_contexts *contexts, struct gm_cuda_context *context,
	struct gm_cuda_point **ret_point)
{
	struct gm_cuda_point *point = context->spare;
	gm_cu_result result;

	if (point) {
		context->spare = point->next;
	} else {
		point = calloc(1, sizeof(*point));
		if (!point)
			return GM_CUDA_ERROR_OUT_OF_MEMORY;
		result = contexts->cuda->cuEventCreate(&point->cu, GM_CU_EVENT_DISABLE_TIMING);
		if (result) {
			free(point);
			return result;
		}
	}
	point->context = context;
	point->generation = context->generation;
	context->refs++;
	*ret_point = point;
	return GM_CUDA_SUCCESS;
}

static bool point_gone(const struct gm_cuda_point *point)
{
	return point->context->gone || point->generation != point->context->generation;
}

static void point_free(struct gm_cuda_point *point)
{
	struct gm_cuda_context *context = point->context;

	if (point_gone(point)) {
		free(point);
	} else {
		point->next = context->spare;
		context->spare = point;
	}
	gm_cuda_context_unref(context);
}

/* Adds a point to an event, after all that the context, or the stream in it, has to do. The context
 * is current. */
static gm_cu_result add_point(struct gm_cuda_contexts *contexts, struct gm_cuda_context *context,
	gpumem_stream stream, struct gm_event *event)
{
	struct gm_cuda_point *point;
	gm_cu_result result = point_new(contexts, context, &point);

	if (result)
		return result;
	result = stream == GPUMEM_STREAM_ANY
			 ? contexts->cuda->cuCtxRecordEvent(context->cu, point->cu)
			 : contexts->cuda->cuEventRecord(point->cu, (gm_cu_stream)stream);
	if (result) {
		(void)gm_cuda_context_ended(contexts, context, result);
		point_free(point);
		return result;
	}
	point->next = event->points;
	event->points = point;
	return GM_CUDA_SUCCESS;
}

static void event_free(struct gm_event *event)
{
	struct gm_cuda_point *point;

	while ((point = event->points)) {
		event->points = point->next;
		point_free(point);
	}
	free(event);
}

/* ---- recording; walking */

static gm_cu_result record_all(struct gm_cuda_contexts *contexts, struct gm_event *event)
{
	struct gm_cuda_context *context;
	gm_cu_result result;

	context = gm_cuda_contexts_first(contexts, &result);
	for (; context && !result; context = context->next) {
		struct gm_cuda_entered entered;
		int r = gm_cuda_context_enter(contexts, context, &entered);
		if (r == GM_CUDA_CONTEXT_GONE)
			continue;
		result = (gm_cu_result)r;
		if (result)
			break;
		result = add_point(contexts, context, GPUMEM_STREAM_ANY, event);
		gm_cuda_contexts_leave(contexts, &entered);
		if (context->gone)
			result = GM_CUDA_SUCCESS;
	}
	return result;
}

/* A stream's handle says nothing of its context, so that is the one that the thread has. */
static gm_cu_result record_one(
	struct gm_cuda_contexts *contexts, gpumem_stream stream, struct gm_event *event)
{
	struct gm_cuda_context *context;
	gm_cu_result result;
	gm_cu_ctx current = NULL;

	result = contexts->cuda->cuCtxGetCurrent(&current);
	if (result)
		return result;
	context = gm_cuda_contexts_first(contexts, &result);
	while (context && context->cu != current)
		context = context->next;
	return context ? add_point(contexts, context, stream, event)
		       : GM_CUDA_ERROR_INVALID_CONTEXT;
}

int gm_cuda_event_record(
	struct gm_cuda_contexts *contexts, gpumem_stream stream, struct gm_event **ret_event)
{
	bool any = stream == GPUMEM_STREAM_ANY;
	struct gm_cuda_entered entered;
	struct gm_event *event;
	gm_cu_result result;

	if (any && gm_cuda_event_capturing(contexts))
		return -EAGAIN;
	event = calloc(1, sizeof(*event));
	if (!event)
		return -ENOMEM;
	if (any && !contexts->cuda->cuCtxRecordEvent) {
		result = gm_cuda_wait_ask(contexts, &event->number);
	} else if (any) {
		gm_cuda_contexts_walk(contexts);
		result = record_all(contexts, event);
		if (result)
			event_free(event);
		gm_cuda_contexts_walked(contexts);
		if (result)
			return (int)result;
	} else {
		result = gm_cuda_contexts_enter(contexts, &entered);
		if (!result) {
			(void)gm_cuda_contexts_here(contexts);
			gm_cuda_contexts_walk(contexts);
			result = record_one(contexts, stream, event);
			gm_cuda_contexts_walked(contexts);
			gm_cuda_contexts_leave(contexts, &entered);
		}
	}
	if (result) {
		free(event);
		return (int)result;
	}
	*ret_event = event;
	return 0;
}

/* ---- afterwards */

/* Whether a point has passed: a result of the driver. Walking. */
static gm_cu_result point_passed(struct gm_cuda_contexts *contexts, struct gm_cuda_point *point)
{
	struct gm_cuda_entered entered;
	gm_cu_result result;
	int r = gm_cuda_context_enter(contexts, point->context, &entered);

	if (r == GM_CUDA_CONTEXT_GONE)
		return GM_CUDA_SUCCESS;
	if (r)
		return (gm_cu_result)r;
	result = point_gone(point) ? GM_CUDA_SUCCESS : contexts->cuda->cuEventQuery(point->cu);
	gm_cuda_contexts_leave(contexts, &entered);
	return gm_cuda_context_ended(contexts, point->context, result) ? GM_CUDA_SUCCESS : result;
}

int gm_cuda_event_passed(struct gm_cuda_contexts *contexts, struct gm_event *event)
{
	gm_cu_result result = GM_CUDA_SUCCESS;
	struct gm_cuda_point *point;

	if (event->number)
		return gm_cuda_wait_reached(contexts, event->number) ? GM_CUDA_SUCCESS
								     : GM_CUDA_ERROR_NOT_READY;
	gm_cuda_contexts_walk(contexts);
	while ((point = event->points) && !result) {
		result = point_passed(contexts, point);
		if (!result) {
			event->points = point->next;
			point_free(point);
		}
	}
	gm_cuda_contexts_walked(contexts);
	return (int)result;
}

/* Walking; the stream's context is current, but for when the point's own is looked for. */
static gm_cu_result order_point(
	struct gm_cuda_contexts *contexts, gpumem_stream stream, struct gm_cuda_point *point)
{
	struct gm_cuda_entered entered;
	int r = gm_cuda_context_enter(contexts, point->context, &entered);

	if (r == GM_CUDA_CONTEXT_GONE)
		return GM_CUDA_SUCCESS;
	if (r)
		return (gm_cu_result)r;
	gm_cuda_contexts_leave(contexts, &entered);
	return point_gone(point)
		       ? GM_CUDA_SUCCESS
		       : contexts->cuda->cuStreamWaitEvent((gm_cu_stream)stream, point->cu, 0);
}

int gm_cuda_event_order(
	struct gm_cuda_contexts *contexts, gpumem_stream stream, struct gm_event *event)
{
	struct gm_cuda_entered entered;
	gm_cu_result result;

	/* A capture would take the event for a part of its graph, which it is not. */
	if (gm_cuda_event_captured(contexts, stream))
		return -EAGAIN;
	if (event->number)
		return gm_cuda_wait_reached(contexts, event->number) ? GM_CUDA_SUCCESS
								     : GM_CUDA_ERROR_NOT_SUPPORTED;
	result = gm_cuda_contexts_enter(contexts, &entered);
	if (result)
		return (int)result;
	gm_cuda_contexts_walk(contexts);
	for (struct gm_cuda_point *point = event->points; point && !result; point = point->next)
		result = order_point(contexts, stream, point);
	gm_cuda_contexts_walked(contexts);
	gm_cuda_contexts_leave(contexts, &entered);
	return (int)result;
}

void gm_cuda_event_forget(struct gm_cuda_contexts *contexts, struct gm_event *event)
{
	gm_cuda_contexts_walk(contexts);
	event_free(event);
	gm_cuda_contexts_walked(contexts);
}
