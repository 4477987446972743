/* SPDX-License-Identifier: Apache-2.0 */
/* See cuda_capture.h. It asks the driver nothing that a capture does not allow. */
#include "client/cuda_capture.h"

#include <stdatomic.h>

#include "common/limits.h"

/* The stream last seen captured on each device; NULL: none. */
static _Atomic(gpumem_stream) captured[GM_LIMIT_DEVICES];

static _Atomic(gpumem_stream) *captured_on(gm_cu_device device)
{
	return &captured[(unsigned)device % GM_LIMIT_DEVICES];
}

static bool is_captured(const struct gm_cuda *cuda, gpumem_stream stream)
{
	gm_cu_capture_status status = GM_CU_STREAM_CAPTURE_STATUS_NONE;

	return cuda->cuStreamIsCapturing &&
	       cuda->cuStreamIsCapturing((gm_cu_stream)stream, &status) == GM_CUDA_SUCCESS &&
	       status != GM_CU_STREAM_CAPTURE_STATUS_NONE;
}

void gm_cuda_not_captured(gm_cu_device device, gpumem_stream stream)
{
	if (atomic_load_explicit(captured_on(device), memory_order_relaxed) == stream)
		atomic_compare_exchange_strong(captured_on(device), &stream, NULL);
}

bool gm_cuda_captured(const struct gm_cuda *cuda, gm_cu_device device, gpumem_stream stream)
{
	if (!is_captured(cuda, stream)) {
		gm_cuda_not_captured(device, stream);
		return false;
	}
	atomic_store_explicit(captured_on(device), stream, memory_order_release);
	return true;
}

bool gm_cuda_capturing(const struct gm_cuda *cuda, gm_cu_device device)
{
	gpumem_stream stream = atomic_load_explicit(captured_on(device), memory_order_acquire);

	if (!stream)
		return false;
	if (is_captured(cuda, stream))
		return true;
	atomic_compare_exchange_strong(captured_on(device), &stream, NULL);
	return false;
}
