/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events of the fake driver. A stream is a thread that works through its queue, so that
 * work really is under way while the program goes on: what reuses memory too early reads or writes
 * the wrong bytes, and what unmaps memory in use makes the context fail with an illegal address, as
 * a GPU would.
 *
 * A point in a stream is a count of operations; an event is a set of such points, and so is what an
 * operation waits for.
 */
#include "tests/fake/fake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

struct point {
	struct fake_stream *stream;
	uint64_t count;
};

struct points {
	struct point *at;
	size_t n;
};

enum kind { SET, COPY, CALL, WAIT };

struct op {
	enum kind kind;
	gm_cu_ptr to, from;
	unsigned char value;
	size_t n;
	gm_cu_host_fn fn;
	void *user;
	struct points after;
	struct op *prev, *next;
};

struct fake_stream {
	unsigned long long id;
	bool blocking; /* waits for the legacy stream, and it for this one */
	bool destroyed;
	bool threaded;
	bool capturing;
	bool capture_broken;
	gm_cu_u64 capture_id; /* of the last capture; never given twice */
	pthread_t thread;
	uint64_t submitted, completed;
	struct op *queue;
	struct fake_stream *prev, *next;
};

struct gm_cu_event_opaque {
	struct points points;
};

/* One lock and one condition for all streams: plain, and fast enough for tests. Never held while an
 * operation runs. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static struct fake_stream *streams;
static struct fake_stream legacy = {.id = 1, .blocking = true};
static unsigned long long next_id = 3;
static gm_cu_u64 next_capture = 1;
static __thread struct fake_stream *per_thread;

static bool passed(const struct points *points)
{
	for (size_t i = 0; i < points->n; i++)
		if (points->at[i].stream->completed < points->at[i].count)
			return false;
	return true;
}

static void list_once(void)
{
	if (!legacy.prev)
		DL_APPEND(streams, &legacy);
}

static struct fake_stream *stream_new(bool blocking)
{
	struct fake_stream *stream = calloc(1, sizeof *stream);

	if (!stream)
		return NULL;
	stream->blocking = blocking;
	stream->id = next_id++;
	DL_APPEND(streams, stream);
	return stream;
}

/* With the lock held. NULL: no such stream. */
static struct fake_stream *resolve(gm_cu_stream handle)
{
	struct fake_stream *stream;

	list_once();
	if (!handle || (uintptr_t)handle == GM_CU_STREAM_LEGACY)
		return &legacy;
	if ((uintptr_t)handle == GM_CU_STREAM_PER_THREAD) {
		if (!per_thread)
			per_thread = stream_new(true);
		return per_thread;
	}
	DL_FOREACH (streams, stream)
		if (stream == (struct fake_stream *)handle && !stream->destroyed)
			return stream;
	return NULL;
}

/* ---- work */

/* The bytes behind a device address, and how many of them lie in one piece; host addresses stand
 * for themselves. */
static char *reach(gm_cu_ptr ptr, size_t want, size_t *ret_n, bool *ret_bad)
{
	struct fake_reservation *reservation;
	struct fake_map *map = fake_map_find((uintptr_t)ptr);

	*ret_bad = false;
	if (map) {
		size_t left = map->size - ((uintptr_t)ptr - map->va);
		*ret_bad = !map->device_access;
		*ret_n = want < left ? want : left;
		return map->shadow + ((uintptr_t)ptr - map->va);
	}
	DL_FOREACH (fake.reservations, reservation)
		if (ptr >= reservation->va && ptr < reservation->va + reservation->size)
			*ret_bad = true;
	*ret_n = want;
	return (char *)(uintptr_t)ptr;
}

static bool set_bytes(gm_cu_ptr to, unsigned char value, size_t n)
{
	while (n) {
		size_t piece;
		bool bad;
		char *at = reach(to, n, &piece, &bad);
		if (bad)
			return false;
		memset(at, value, piece);
		to += piece;
		n -= piece;
	}
	return true;
}

static bool copy_bytes(gm_cu_ptr to, gm_cu_ptr from, size_t n)
{
	while (n) {
		size_t a, b;
		bool bad_to, bad_from;
		char *d = reach(to, n, &a, &bad_to);
		char *s = reach(from, n, &b, &bad_from);
		size_t piece = a < b ? a : b;
		if (bad_to || bad_from)
			return false;
		memmove(d, s, piece);
		to += piece;
		from += piece;
		n -= piece;
	}
	return true;
}

static void perform(struct op *op)
{
	bool good = true;

	switch (op->kind) {
	case SET:
	case COPY:
		pthread_mutex_lock(&fake.lock);
		good = op->kind == SET ? set_bytes(op->to, op->value, op->n)
				       : copy_bytes(op->to, op->from, op->n);
		if (!good)
			fake.sticky = GM_CUDA_ERROR_ILLEGAL_ADDRESS;
		pthread_mutex_unlock(&fake.lock);
		break;
	case CALL:
		op->fn(op->user);
		break;
	case WAIT:
		break;
	}
}

static void *work(void *arg)
{
	struct fake_stream *stream = arg;

	pthread_mutex_lock(&lock);
	for (;;) {
		struct op *op = stream->queue;
		if (!op) {
			if (stream->destroyed)
				break;
			pthread_cond_wait(&moved, &lock);
			continue;
		}
		if (!passed(&op->after)) {
			pthread_cond_wait(&moved, &lock);
			continue;
		}
		pthread_mutex_unlock(&lock);
		perform(op);
		pthread_mutex_lock(&lock);
		DL_DELETE(stream->queue, op);
		free(op->after.at);
		free(op);
		stream->completed++;
		pthread_cond_broadcast(&moved);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

static bool add_point(struct points *points, struct fake_stream *stream)
{
	struct point *at = realloc(points->at, (points->n + 1) * sizeof *at);

	if (!at)
		return false;
	points->at = at;
	points->at[points->n++] = (struct point){stream, stream->submitted};
	return true;
}

/* What the legacy stream and the others that wait for it owe one another. */
static bool add_implicit(struct fake_stream *stream, struct points *points)
{
	struct fake_stream *other;

	if (!stream->blocking)
		return true;
	if (stream != &legacy)
		return legacy.completed == legacy.submitted || add_point(points, &legacy);
	DL_FOREACH (streams, other)
		if (other != &legacy && other->blocking && other->completed != other->submitted &&
			!add_point(points, other))
			return false;
	return true;
}

static gm_cu_result submit(gm_cu_stream handle, const struct op *template)
{
	struct fake_stream *stream;
	gm_cu_result result = GM_CUDA_ERROR_OUT_OF_MEMORY;
	struct op *op = malloc(sizeof *op);

	if (!op)
		return result;
	*op = *template;
	pthread_mutex_lock(&lock);
	stream = resolve(handle);
	if (!stream) {
		result = GM_CUDA_ERROR_INVALID_HANDLE;
	} else if (stream->capturing) {
		result =
			GM_CUDA_SUCCESS; /* would be part of a graph, which the fake does not run */
		free(op->after.at);
		free(op);
		op = NULL;
	} else if (add_implicit(stream, &op->after)) {
		result = GM_CUDA_SUCCESS;
		if (!stream->threaded && pthread_create(&stream->thread, NULL, work, stream))
			result = GM_CUDA_ERROR_OPERATING_SYSTEM;
		else
			stream->threaded = true;
	}
	if (!result && op) {
		DL_APPEND(stream->queue, op);
		stream->submitted++;
		pthread_cond_broadcast(&moved);
	} else if (op) {
		free(op->after.at);
		free(op);
	}
	pthread_mutex_unlock(&lock);
	return result;
}

static void await(const struct points *points)
{
	while (!passed(points))
		pthread_cond_wait(&moved, &lock);
}

void fake_sync_all(void)
{
	struct fake_stream *stream;

	pthread_mutex_lock(&lock);
	DL_FOREACH (streams, stream)
		while (stream->completed < stream->submitted)
			pthread_cond_wait(&moved, &lock);
	pthread_mutex_unlock(&lock);
}

/* ---- the driver's functions: streams */

FAKE_API gm_cu_result cuStreamCreate(gm_cu_stream *ret, unsigned int flags);
FAKE_API gm_cu_result cuStreamCreate(gm_cu_stream *ret, unsigned int flags)
{
	struct fake_stream *stream;
	struct fake_device *device;
	gm_cu_result result;

	FAKE_ENTER("cuStreamCreate");
	if (!ret || (flags & ~(unsigned)GM_CU_STREAM_NON_BLOCKING))
		return GM_CUDA_ERROR_INVALID_VALUE;
	if ((result = fake_need_context(&device)))
		return result;
	pthread_mutex_lock(&lock);
	list_once();
	stream = stream_new(!(flags & GM_CU_STREAM_NON_BLOCKING));
	pthread_mutex_unlock(&lock);
	*ret = (gm_cu_stream)stream;
	return stream ? GM_CUDA_SUCCESS : GM_CUDA_ERROR_OUT_OF_MEMORY;
}

FAKE_API gm_cu_result cuStreamDestroy_v2(gm_cu_stream handle);
FAKE_API gm_cu_result cuStreamDestroy_v2(gm_cu_stream handle)
{
	struct fake_stream *stream;

	FAKE_ENTER("cuStreamDestroy");
	pthread_mutex_lock(&lock);
	stream = resolve(handle);
	if (stream && stream != &legacy && stream != per_thread) {
		/* Its work is still done; events may point at it, so the struct stays. */
		stream->destroyed = true;
		if (stream->threaded)
			pthread_detach(stream->thread);
		pthread_cond_broadcast(&moved);
	} else {
		stream = NULL;
	}
	pthread_mutex_unlock(&lock);
	return stream ? GM_CUDA_SUCCESS : GM_CUDA_ERROR_INVALID_HANDLE;
}

FAKE_API gm_cu_result cuStreamSynchronize(gm_cu_stream handle);
FAKE_API gm_cu_result cuStreamSynchronize(gm_cu_stream handle)
{
	struct fake_stream *stream;

	FAKE_ENTER("cuStreamSynchronize");
	pthread_mutex_lock(&lock);
	stream = resolve(handle);
	if (stream) {
		struct point point = {stream, stream->submitted};
		await(&(struct points){&point, 1});
	}
	pthread_mutex_unlock(&lock);
	return !stream ? GM_CUDA_ERROR_INVALID_HANDLE : fake.sticky;
}

FAKE_API gm_cu_result cuCtxSynchronize(void);
FAKE_API gm_cu_result cuCtxSynchronize(void)
{
	FAKE_ENTER("cuCtxSynchronize");
	fake_sync_all();
	return fake.sticky;
}

FAKE_API gm_cu_result cuStreamQuery(gm_cu_stream handle);
FAKE_API gm_cu_result cuStreamQuery(gm_cu_stream handle)
{
	gm_cu_result result = GM_CUDA_ERROR_INVALID_HANDLE;
	struct fake_stream *stream;

	FAKE_ENTER("cuStreamQuery");
	pthread_mutex_lock(&lock);
	stream = resolve(handle);
	if (stream)
		result = stream->completed < stream->submitted ? GM_CUDA_ERROR_NOT_READY
							       : fake.sticky;
	pthread_mutex_unlock(&lock);
	return result;
}

FAKE_API gm_cu_result fake_cuStreamGetId(gm_cu_stream handle, unsigned long long *id);
FAKE_API gm_cu_result fake_cuStreamGetId(gm_cu_stream handle, unsigned long long *id)
{
	struct fake_stream *stream;
	bool captured;

	FAKE_ENTER("cuStreamGetId");
	if (!id)
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	stream = resolve(handle);
	captured = stream && stream->capturing;
	if (captured)
		stream->capture_broken =
			true; /* as the real one: it takes the capture down with it */
	else if (stream)
		*id = stream->id;
	pthread_mutex_unlock(&lock);
	if (captured)
		return GM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	return stream ? GM_CUDA_SUCCESS : GM_CUDA_ERROR_INVALID_HANDLE;
}

FAKE_API gm_cu_result cuStreamIsCapturing(gm_cu_stream handle, gm_cu_capture_status *status);
FAKE_API gm_cu_result cuStreamIsCapturing(gm_cu_stream handle, gm_cu_capture_status *status)
{
	struct fake_stream *stream;

	FAKE_ENTER("cuStreamIsCapturing");
	if (!status)
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	stream = resolve(handle);
	if (stream)
		*status = stream->capturing ? GM_CU_STREAM_CAPTURE_STATUS_ACTIVE
					    : GM_CU_STREAM_CAPTURE_STATUS_NONE;
	pthread_mutex_unlock(&lock);
	return stream ? GM_CUDA_SUCCESS : GM_CUDA_ERROR_INVALID_HANDLE;
}

/* What a thread may call while somebody captures. The fake refuses nothing but context events, so
 * it only keeps the mode. */
FAKE_API gm_cu_result cuThreadExchangeStreamCaptureMode(gm_cu_capture_mode *mode);
FAKE_API gm_cu_result cuThreadExchangeStreamCaptureMode(gm_cu_capture_mode *mode)
{
	static __thread gm_cu_capture_mode mine; /* global, at first */
	gm_cu_capture_mode old = mine;

	FAKE_ENTER("cuThreadExchangeStreamCaptureMode");
	if (!mode || *mode < 0 || *mode > GM_CU_STREAM_CAPTURE_MODE_RELAXED)
		return GM_CUDA_ERROR_INVALID_VALUE;
	mine = *mode;
	*mode = old;
	return GM_CUDA_SUCCESS;
}

/* Capture into a graph: what is submitted is not run, and the graph is only a thing to destroy. */
FAKE_API gm_cu_result cuStreamBeginCapture_v2(gm_cu_stream handle, int mode);
FAKE_API gm_cu_result cuStreamBeginCapture_v2(gm_cu_stream handle, int mode)
{
	gm_cu_result result = GM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	struct fake_stream *stream;

	FAKE_ENTER("cuStreamBeginCapture");
	(void)mode;
	pthread_mutex_lock(&lock);
	stream = resolve(handle);
	if (stream && stream != &legacy && !stream->capturing) {
		stream->capturing = true;
		stream->capture_broken = false;
		stream->capture_id = next_capture++;
		result = GM_CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

FAKE_API gm_cu_result cuStreamGetCaptureInfo(
	gm_cu_stream handle, gm_cu_capture_status *status, gm_cu_u64 *id);
FAKE_API gm_cu_result cuStreamGetCaptureInfo(
	gm_cu_stream handle, gm_cu_capture_status *status, gm_cu_u64 *id)
{
	struct fake_stream *stream;

	FAKE_ENTER("cuStreamGetCaptureInfo");
	if (!status)
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	stream = resolve(handle);
	if (stream) {
		*status = stream->capturing ? GM_CU_STREAM_CAPTURE_STATUS_ACTIVE
					    : GM_CU_STREAM_CAPTURE_STATUS_NONE;
		if (stream->capturing && id)
			*id = stream->capture_id;
	}
	pthread_mutex_unlock(&lock);
	return stream ? GM_CUDA_SUCCESS : GM_CUDA_ERROR_INVALID_HANDLE;
}

FAKE_API gm_cu_result cuStreamEndCapture(gm_cu_stream handle, void **ret_graph);
FAKE_API gm_cu_result cuStreamEndCapture(gm_cu_stream handle, void **ret_graph)
{
	gm_cu_result result = GM_CUDA_ERROR_INVALID_VALUE;
	struct fake_stream *stream;

	FAKE_ENTER("cuStreamEndCapture");
	pthread_mutex_lock(&lock);
	stream = resolve(handle);
	if (stream && stream->capturing && ret_graph) {
		stream->capturing = false;
		*ret_graph = stream->capture_broken ? NULL : malloc(1);
		result = stream->capture_broken ? GM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
						: GM_CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

FAKE_API gm_cu_result cuGraphDestroy(void *graph);
FAKE_API gm_cu_result cuGraphDestroy(void *graph)
{
	FAKE_ENTER("cuGraphDestroy");
	free(graph);
	return GM_CUDA_SUCCESS;
}

/* ---- the driver's functions: work */

/* A range that is refused at once: nothing there, or no access from the device that shall work on
 * it. */
static bool range_ok(gm_cu_ptr ptr, size_t n)
{
	struct fake_device *device;
	struct fake_map *map;
	bool bad = false;

	if (fake_need_context(&device))
		return false;

	pthread_mutex_lock(&fake.lock);
	for (gm_cu_ptr at = ptr; at < ptr + n && !bad;) {
		size_t piece;
		reach(at, (size_t)(ptr + n - at), &piece, &bad);
		map = fake_map_find((uintptr_t)at);
		bad = bad || (map && !(map->device_access & 1u << (device - fake.device)));
		at += piece;
	}
	pthread_mutex_unlock(&fake.lock);
	return !bad;
}

FAKE_API gm_cu_result cuMemsetD8Async(
	gm_cu_ptr to, unsigned char value, size_t n, gm_cu_stream stream);
FAKE_API gm_cu_result cuMemsetD8Async(
	gm_cu_ptr to, unsigned char value, size_t n, gm_cu_stream stream)
{
	struct fake_device *device;
	gm_cu_result result;

	FAKE_ENTER("cuMemsetD8Async");
	if ((result = fake_need_context(&device)))
		return result;
	if (fake.sticky)
		return fake.sticky;
	if (!range_ok(to, n))
		return GM_CUDA_ERROR_INVALID_VALUE;
	return submit(stream, &(struct op){.kind = SET, .to = to, .value = value, .n = n});
}

FAKE_API gm_cu_result cuMemcpyAsync(gm_cu_ptr to, gm_cu_ptr from, size_t n, gm_cu_stream stream);
FAKE_API gm_cu_result cuMemcpyAsync(gm_cu_ptr to, gm_cu_ptr from, size_t n, gm_cu_stream stream)
{
	struct fake_device *device;
	gm_cu_result result;

	FAKE_ENTER("cuMemcpyAsync");
	if ((result = fake_need_context(&device)))
		return result;
	if (fake.sticky)
		return fake.sticky;
	if (!range_ok(to, n) || !range_ok(from, n))
		return GM_CUDA_ERROR_INVALID_VALUE;
	return submit(stream, &(struct op){.kind = COPY, .to = to, .from = from, .n = n});
}

FAKE_API gm_cu_result cuLaunchHostFunc(gm_cu_stream stream, gm_cu_host_fn fn, void *user);
FAKE_API gm_cu_result cuLaunchHostFunc(gm_cu_stream stream, gm_cu_host_fn fn, void *user)
{
	struct fake_device *device;
	gm_cu_result result;

	FAKE_ENTER("cuLaunchHostFunc");
	if (!fn)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if ((result = fake_need_context(&device)))
		return result;
	return submit(stream, &(struct op){.kind = CALL, .fn = fn, .user = user});
}

/* ---- the driver's functions: events */

FAKE_API gm_cu_result cuEventCreate(gm_cu_event *event, unsigned int flags);
FAKE_API gm_cu_result cuEventCreate(gm_cu_event *event, unsigned int flags)
{
	struct fake_device *device;
	gm_cu_result result;

	FAKE_ENTER("cuEventCreate");
	(void)flags;
	if (!event)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if ((result = fake_need_context(&device)))
		return result;
	*event = calloc(1, sizeof **event);
	return *event ? GM_CUDA_SUCCESS : GM_CUDA_ERROR_OUT_OF_MEMORY;
}

FAKE_API gm_cu_result cuEventDestroy_v2(gm_cu_event event);
FAKE_API gm_cu_result cuEventDestroy_v2(gm_cu_event event)
{
	FAKE_ENTER("cuEventDestroy");
	if (!event)
		return GM_CUDA_ERROR_INVALID_HANDLE;
	free(event->points.at);
	free(event);
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuEventRecord(gm_cu_event event, gm_cu_stream handle);
FAKE_API gm_cu_result cuEventRecord(gm_cu_event event, gm_cu_stream handle)
{
	gm_cu_result result = GM_CUDA_ERROR_INVALID_HANDLE;
	struct fake_stream *stream;

	FAKE_ENTER("cuEventRecord");
	if (!event)
		return result;
	pthread_mutex_lock(&lock);
	stream = resolve(handle);
	if (stream) {
		event->points.n = 0;
		result = add_point(&event->points, stream) && add_implicit(stream, &event->points)
				 ? GM_CUDA_SUCCESS
				 : GM_CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

FAKE_API gm_cu_result fake_cuCtxRecordEvent(gm_cu_ctx ctx, gm_cu_event event);
FAKE_API gm_cu_result fake_cuCtxRecordEvent(gm_cu_ctx ctx, gm_cu_event event)
{
	gm_cu_result result = GM_CUDA_SUCCESS;
	struct fake_stream *stream;

	FAKE_ENTER("cuCtxRecordEvent");
	(void)ctx;
	if (!event)
		return GM_CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&lock);
	list_once();
	event->points.n = 0;
	DL_FOREACH (streams, stream) {
		if (stream->capturing) {
			stream->capture_broken =
				true; /* as the real one: it takes the capture down with it */
			result = GM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		} else if (!add_point(&event->points, stream))
			result = GM_CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

FAKE_API gm_cu_result cuEventQuery(gm_cu_event event);
FAKE_API gm_cu_result cuEventQuery(gm_cu_event event)
{
	bool done;

	FAKE_ENTER("cuEventQuery");
	if (!event)
		return GM_CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&lock);
	done = passed(&event->points);
	pthread_mutex_unlock(&lock);
	return !done ? GM_CUDA_ERROR_NOT_READY : fake.sticky;
}

FAKE_API gm_cu_result cuStreamWaitEvent(gm_cu_stream stream, gm_cu_event event, unsigned int flags);
FAKE_API gm_cu_result cuStreamWaitEvent(gm_cu_stream stream, gm_cu_event event, unsigned int flags)
{
	struct op op = {.kind = WAIT};

	FAKE_ENTER("cuStreamWaitEvent");
	if (!event || flags)
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	if (event->points.n) {
		op.after.at = malloc(event->points.n * sizeof *op.after.at);
		if (op.after.at) {
			memcpy(op.after.at, event->points.at,
				event->points.n * sizeof *op.after.at);
			op.after.n = event->points.n;
		}
	}
	pthread_mutex_unlock(&lock);
	return submit(stream, &op);
}
