/* SPDX-License-Identifier: Apache-2.0 */
/* See cuda_operations.h. It must never wait for the GPU, except in gm_cuda_stream_control_settle(). */
#include "client/map/cuda_operations.h"

#include <errno.h>

#include "client/map/cuda_backend.h"
#include "client/map/cuda_capture.h"
#include "client/map/cuda_event.h"
#include "client/map/cuda_signal.h"

/* ---- streams */

int gm_cuda_stream_open(void *ctx, gpumem_stream *ret_stream)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;
	gm_cu_stream stream;
	gm_cu_result result;

	gm_cuda_backend_no_error();
	result = gm_cuda_backend_enter(backend, &entered);
	if (!result) {
		result = backend->cuda->cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING);
		gm_cuda_backend_leave(backend, &entered);
	}
	if (result)
		return gm_cuda_backend_outcome(backend, result);
	*ret_stream = (gpumem_stream)stream;
	return 0;
}

void gm_cuda_stream_close(void *ctx, gpumem_stream stream)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;

	if (gm_cuda_backend_enter(backend, &entered))
		return;
	(void)backend->cuda->cuStreamDestroy((gm_cu_stream)stream);
	gm_cuda_backend_leave(backend, &entered);
}

int gm_cuda_stream_id(void *ctx, gpumem_stream stream, uint64_t *ret_id)
{
	struct gm_map_cuda *backend = ctx;
	unsigned long long id;
	gm_cu_result result;

	if (gm_cuda_captured(backend->cuda, backend->device, stream))
		return -EAGAIN; /* asking for its id would break the capture */
	/* An older driver cannot tell a stream from an earlier one at the same handle. */
	if (!backend->cuda->cuStreamGetId)
		return -EOPNOTSUPP;
	result = backend->cuda->cuStreamGetId((gm_cu_stream)stream, &id);
	if (result)
		return gm_cuda_backend_outcome(backend, result);
	*ret_id = id;
	return 0;
}

uint64_t gm_cuda_stream_captured_into(void *ctx, gpumem_stream stream)
{
	struct gm_map_cuda *backend = ctx;
	gm_cu_capture_status status = GM_CU_STREAM_CAPTURE_STATUS_NONE;
	gm_cu_u64 id = 0;

	if (!backend->cuda->cuStreamGetCaptureInfo ||
		backend->cuda->cuStreamGetCaptureInfo((gm_cu_stream)stream, &status, &id))
		return 0;
	if (status == GM_CU_STREAM_CAPTURE_STATUS_NONE)
		gm_cuda_not_captured(backend->cuda, backend->device, stream);
	else /* A free may be the only call that ever names this stream. */
		(void)gm_cuda_captured(backend->cuda, backend->device, stream);
	return status == GM_CU_STREAM_CAPTURE_STATUS_ACTIVE ? id : 0;
}

/* ---- events */

/* The errno for what a function of cuda_event.h returned. */
static int cuda_stream_errno(struct gm_map_cuda *backend, int result)
{
	return result < 0 ? result : gm_cuda_backend_outcome(backend, (gm_cu_result)result);
}

int gm_cuda_stream_record(void *ctx, struct gm_map_event **ret_event)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_event *event;
	int r;

	gm_cuda_backend_no_error();
	r = gm_cuda_event_record(backend->contexts, &event);
	if (r)
		return cuda_stream_errno(backend, r);
	*ret_event = (struct gm_map_event *)event;
	return 0;
}

int gm_cuda_stream_record_on(void *ctx, gpumem_stream stream, struct gm_map_event **ret_event)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_event *event;
	int r;

	gm_cuda_backend_no_error();
	r = gm_cuda_event_record_on(backend->contexts, stream, &event);
	if (r)
		return cuda_stream_errno(backend, r);
	*ret_event = (struct gm_map_event *)event;
	return 0;
}

int gm_cuda_stream_passed(void *ctx, struct gm_map_event *event)
{
	struct gm_map_cuda *backend = ctx;
	int r = gm_cuda_event_passed((struct gm_cuda_event *)event);

	if (r == GM_CUDA_ERROR_NOT_READY)
		return 0;
	return r ? cuda_stream_errno(backend, r) : 1;
}

int gm_cuda_stream_order(void *ctx, gpumem_stream stream, struct gm_map_event *event)
{
	struct gm_map_cuda *backend = ctx;

	return cuda_stream_errno(backend,
		gm_cuda_event_order(backend->contexts, stream, (struct gm_cuda_event *)event));
}

void gm_cuda_stream_forget(void *ctx, struct gm_map_event *event)
{
	gm_cuda_event_forget((struct gm_cuda_event *)event);
}

/* ---- signals */

int gm_cuda_stream_control_open(void *ctx, int fd, bool read_only, struct gm_map_control **ret_word)
{
	struct gm_map_cuda *backend = ctx;

	gm_cuda_backend_no_error();
	return cuda_stream_errno(backend, gm_cuda_signal_open(backend->contexts, fd, ret_word));
}

void gm_cuda_stream_control_close(void *ctx, struct gm_map_control *word)
{
	gm_cuda_signal_close(word);
}

void gm_cuda_stream_control_settle(void *ctx)
{
	struct gm_map_cuda *backend = ctx;

	gm_cuda_signal_settle(backend->contexts);
}

int gm_cuda_stream_post(
	void *ctx, gpumem_stream stream, struct gm_map_control *word, uint64_t value)
{
	struct gm_map_cuda *backend = ctx;

	gm_cuda_backend_no_error();
	return cuda_stream_errno(
		backend, gm_cuda_signal_post(backend->contexts, stream, word, value));
}

int gm_cuda_stream_await(
	void *ctx, gpumem_stream stream, struct gm_map_control *word, uint64_t value)
{
	struct gm_map_cuda *backend = ctx;

	gm_cuda_backend_no_error();
	return cuda_stream_errno(
		backend, gm_cuda_signal_await(backend->contexts, stream, word, value));
}
