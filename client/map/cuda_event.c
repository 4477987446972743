/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See cuda_event.h. An event of the driver's is used again and again, but only in the context it
 * was made in: elsewhere the driver refuses it. This module must never touch a driver event after
 * its context was destroyed, because the event lay in the context's memory: if one thread destroyed
 * a context while another asked for an event of it, the process would be killed. So a driver event
 * is touched only where no other thread can destroy the context (gm_cuda_context_safe()), with
 * walking held.
 *
 * Functions that work on one context or one point are called with walking held. Functions that work
 * on an event take it themselves.
 */
#include "client/map/cuda_event.h"

#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "client/map/cuda_capture.h"
#include "client/map/cuda_holder.h"

struct gm_cuda_event {
	struct gm_cuda_contexts *contexts;
	struct gm_cuda_point *points; /* in those contexts; only points that have not passed */
	struct gm_cuda_event *beside; /* the parts on other GPUs, as a list */
};

/* ---- points */

static struct gm_cuda_point *event_point_new(struct gm_cuda_context *context)
{
	struct gm_cuda_point *point = calloc(1, sizeof(*point));

	if (!point)
		return NULL;
	point->context = context;
	point->generation = context->generation;
	context->refs++;
	return point;
}

/* Gets a point that has an event of the driver's. The context is current. */
static gm_cu_result event_point_get(struct gm_cuda_contexts *contexts,
	struct gm_cuda_context *context, struct gm_cuda_point **ret_point)
{
	struct gm_cuda_point *point = context->spare;
	gm_cu_result result;

	if (point) {
		context->spare = point->next;
		point->number = 0;
		context->refs++;
		*ret_point = point;
		return GM_CUDA_SUCCESS;
	}

	point = event_point_new(context);
	if (!point)
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	result = contexts->cuda->cuEventCreate(&point->cu, GM_CU_EVENT_DISABLE_TIMING);
	if (result) {
		gm_cuda_context_unref(context);
		free(point);
		return result;
	}
	*ret_point = point;
	return GM_CUDA_SUCCESS;
}

/* Whether the point's context was destroyed. */
static bool event_point_gone(const struct gm_cuda_point *point)
{
	return point->context->gone || point->generation != point->context->generation;
}

static void event_point_free(struct gm_cuda_point *point)
{
	struct gm_cuda_context *context = point->context;

	if (!point->cu || event_point_gone(point)) {
		free(point);
	} else {
		LL_PREPEND(context->spare, point);
	}
	gm_cuda_context_unref(context);
}

/* ---- recording */

/* Adds a point, after all work of the context, which is current. GM_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: a stream that waits
 * for the context's default stream is being captured, and goes on unharmed. */
static gm_cu_result event_record_here(struct gm_cuda_contexts *contexts,
	struct gm_cuda_context *context, struct gm_cuda_event *event)
{
	struct gm_cuda_point *point;
	gm_cu_result result;

	if (gm_cuda_captured(contexts->cuda, contexts->device, NULL))
		return GM_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	result = event_point_get(contexts, context, &point);
	if (result)
		return result;

	result = contexts->cuda->cuCtxRecordEvent(context->cu, point->cu);
	if (result) {
		(void)gm_cuda_context_ended(contexts, context, result);
		event_point_free(point);
		return result;
	}
	LL_PREPEND(event->points, point);
	return GM_CUDA_SUCCESS;
}

/* Does the same through the keeper, so the context need not be current. */
static gm_cu_result event_record_kept(struct gm_cuda_context *context, struct gm_cuda_event *event)
{
	struct gm_cuda_point *point = event_point_new(context);

	if (!point)
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	point->number = gm_cuda_holder_ask(context->keeper);
	LL_PREPEND(event->points, point);
	return GM_CUDA_SUCCESS;
}

static int event_record_context(struct gm_cuda_contexts *contexts, struct gm_cuda_context *context,
	struct gm_cuda_event *event)
{
	struct gm_cuda_entered entered;
	gm_cu_result result;
	int r;

	if (!contexts->cuda->cuCtxRecordEvent || !gm_cuda_context_safe(contexts, context)) {
		r = gm_cuda_context_look(contexts, context);
		return r ? r : (int)event_record_kept(context, event);
	}
	r = gm_cuda_context_enter(contexts, context, &entered);
	if (r)
		return r;
	result = event_record_here(contexts, context, event);
	gm_cuda_contexts_leave(contexts, &entered);
	return context->gone ? GM_CUDA_CONTEXT_GONE : (int)result;
}

/* Adds a point in each context of the GPU. The caller holds walking. */
static gm_cu_result event_record_all(struct gm_cuda_contexts *contexts, struct gm_cuda_event *event)
{
	struct gm_cuda_context *context;
	gm_cu_result result;

	context = gm_cuda_contexts_first(contexts, &result);
	for (; context && !result; context = context->next) {
		int r = event_record_context(contexts, context, event);

		if (r != GM_CUDA_CONTEXT_GONE)
			result = (gm_cu_result)r;
	}
	return result;
}

/* Records the part of an event that lies on one GPU. */
static int event_record_part(struct gm_cuda_contexts *contexts, struct gm_cuda_event **ret_event)
{
	struct gm_cuda_event *event;
	gm_cu_result result;

	event = calloc(1, sizeof(*event));
	if (!event)
		return -ENOMEM;
	event->contexts = contexts;

	gm_cuda_contexts_walk(contexts);
	if (!gm_cuda_capture_keep_out(contexts->cuda, contexts->device)) {
		gm_cuda_contexts_walked(contexts);
		free(event);
		return -EAGAIN;
	}
	result = event_record_all(contexts, event);
	gm_cuda_capture_let_in();
	gm_cuda_contexts_walked(contexts);
	if (result) {
		gm_cuda_event_forget(event);
		return result == GM_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ? -EAGAIN : (int)result;
	}
	*ret_event = event;
	return 0;
}

int gm_cuda_event_record(struct gm_cuda_contexts *contexts, struct gm_cuda_event **ret_event)
{
	struct gm_cuda_event *event, **end;
	int r = event_record_part(contexts, &event);

	if (r)
		return r;
	end = &event->beside;
	for (struct gm_cuda_beside *at = contexts->beside; at; at = at->next) {
		r = event_record_part(at->contexts, end);
		if (r) {
			gm_cuda_event_forget(event);
			return r;
		}
		end = &(*end)->beside;
	}
	*ret_event = event;
	return 0;
}

/* ---- recording on one stream */

/* The context that is current, if the library knows it. The caller holds walking. */
static struct gm_cuda_context *event_current_context(struct gm_cuda_contexts *contexts)
{
	struct gm_cuda_context *context;
	gm_cu_result unused;
	gm_cu_ctx cu = NULL;

	if (contexts->cuda->cuCtxGetCurrent(&cu))
		return NULL;
	context = gm_cuda_contexts_first(contexts, &unused);
	while (context && context->cu != cu)
		context = context->next;
	return context && gm_cuda_context_safe(contexts, context) ? context : NULL;
}

/* Adds a point after the work of the stream. The caller holds walking, and a context is current. */
static gm_cu_result event_record_stream(
	struct gm_cuda_contexts *contexts, gpumem_stream stream, struct gm_cuda_event *event)
{
	struct gm_cuda_context *context = event_current_context(contexts);
	struct gm_cuda_point *point;
	gm_cu_result result;

	if (!context)
		return GM_CUDA_ERROR_INVALID_CONTEXT;
	result = event_point_get(contexts, context, &point);
	if (result)
		return result;

	/* The driver refuses a stream of another context than the event's. */
	result = contexts->cuda->cuEventRecord(point->cu, (gm_cu_stream)stream);
	if (result)
		event_point_free(point);
	else
		LL_PREPEND(event->points, point);
	return result;
}

int gm_cuda_event_record_on(
	struct gm_cuda_contexts *contexts, gpumem_stream stream, struct gm_cuda_event **ret_event)
{
	struct gm_cuda_entered entered;
	struct gm_cuda_event *event;
	gm_cu_result result;

	event = calloc(1, sizeof(*event));
	if (!event)
		return -ENOMEM;
	event->contexts = contexts;
	result = gm_cuda_contexts_enter(contexts, &entered);
	if (result) {
		free(event);
		return (int)result;
	}
	if (!gm_cuda_capture_launch(contexts->cuda, contexts->device, stream)) {
		gm_cuda_contexts_leave(contexts, &entered);
		free(event);
		return -EAGAIN;
	}

	gm_cuda_contexts_walk(contexts);
	result = event_record_stream(contexts, stream, event);
	gm_cuda_contexts_walked(contexts);
	gm_cuda_capture_launched(stream);
	gm_cuda_contexts_leave(contexts, &entered);
	if (result) {
		gm_cuda_event_forget(event);
		return gm_cuda_event_record(contexts, ret_event);
	}
	*ret_event = event;
	return 0;
}

/* ---- asking and waiting */

/* Whether the keeper knows that a point has passed; for points whose driver event cannot be
 * touched. If nobody has asked the keeper to wait for the point, it waits from now on. */
static bool event_reached(struct gm_cuda_point *point)
{
	if (!point->number)
		point->number = gm_cuda_holder_ask(point->context->keeper);
	return gm_cuda_holder_reached(point->context->keeper, point->number);
}

/* Whether the point has an event of the driver's that this thread may touch. */
static bool event_usable(const struct gm_cuda_contexts *contexts, const struct gm_cuda_point *point)
{
	return point->cu && gm_cuda_context_safe(contexts, point->context);
}

/* Success: the point has passed. GM_CUDA_ERROR_NOT_READY: not yet. */
static gm_cu_result event_point_passed(
	struct gm_cuda_contexts *contexts, struct gm_cuda_point *point)
{
	struct gm_cuda_entered entered;
	gm_cu_result result;
	int r = gm_cuda_context_look(contexts, point->context);

	if (r == GM_CUDA_CONTEXT_GONE || event_point_gone(point))
		return GM_CUDA_SUCCESS;
	if (r)
		return (gm_cu_result)r;
	if (!event_usable(contexts, point))
		return event_reached(point) ? GM_CUDA_SUCCESS : GM_CUDA_ERROR_NOT_READY;

	r = gm_cuda_context_enter(contexts, point->context, &entered);
	if (r)
		return r == GM_CUDA_CONTEXT_GONE ? GM_CUDA_SUCCESS : (gm_cu_result)r;
	result = contexts->cuda->cuEventQuery(point->cu);
	gm_cuda_contexts_leave(contexts, &entered);
	return gm_cuda_context_ended(contexts, point->context, result) ? GM_CUDA_SUCCESS : result;
}

static gm_cu_result event_part_passed(struct gm_cuda_event *event)
{
	gm_cu_result result = GM_CUDA_SUCCESS;
	struct gm_cuda_point *point;

	gm_cuda_contexts_walk(event->contexts);
	while ((point = event->points) && !result) {
		result = event_point_passed(event->contexts, point);
		if (!result) {
			event->points = point->next;
			event_point_free(point);
		}
	}
	gm_cuda_contexts_walked(event->contexts);
	return result;
}

int gm_cuda_event_passed(struct gm_cuda_event *event)
{
	gm_cu_result result = GM_CUDA_SUCCESS;

	for (; event && !result; event = event->beside)
		result = event_part_passed(event);
	return (int)result;
}

/* Makes a stream wait for a point. The stream's context is current. */
static gm_cu_result event_order_point(
	struct gm_cuda_contexts *contexts, gpumem_stream stream, struct gm_cuda_point *point)
{
	int r = gm_cuda_context_look(contexts, point->context);

	if (r == GM_CUDA_CONTEXT_GONE || event_point_gone(point))
		return GM_CUDA_SUCCESS;
	if (r)
		return (gm_cu_result)r;
	if (event_usable(contexts, point))
		return contexts->cuda->cuStreamWaitEvent((gm_cu_stream)stream, point->cu, 0);
	return event_reached(point) ? GM_CUDA_SUCCESS : GM_CUDA_ERROR_NOT_SUPPORTED;
}

static gm_cu_result event_order_part(gpumem_stream stream, struct gm_cuda_event *event)
{
	gm_cu_result result = GM_CUDA_SUCCESS;

	gm_cuda_contexts_walk(event->contexts);
	for (struct gm_cuda_point *point = event->points; point && !result; point = point->next)
		result = event_order_point(event->contexts, stream, point);
	gm_cuda_contexts_walked(event->contexts);
	return result;
}

int gm_cuda_event_order(
	struct gm_cuda_contexts *contexts, gpumem_stream stream, struct gm_cuda_event *event)
{
	struct gm_cuda_entered entered;
	gm_cu_result result;

	result = gm_cuda_contexts_enter(contexts, &entered);
	if (result)
		return (int)result;
	/* A capture would make the event a part of its graph, where it does not belong. */
	if (!gm_cuda_capture_launch(contexts->cuda, contexts->device, stream)) {
		gm_cuda_contexts_leave(contexts, &entered);
		return -EAGAIN;
	}

	for (; event && !result; event = event->beside)
		result = event_order_part(stream, event);
	gm_cuda_capture_launched(stream);
	gm_cuda_contexts_leave(contexts, &entered);
	return (int)result;
}

void gm_cuda_event_forget(struct gm_cuda_event *event)
{
	while (event) {
		struct gm_cuda_event *next = event->beside;
		struct gm_cuda_point *point;

		gm_cuda_contexts_walk(event->contexts);
		while ((point = event->points)) {
			event->points = point->next;
			event_point_free(point);
		}
		gm_cuda_contexts_walked(event->contexts);
		free(event);
		event = next;
	}
}
