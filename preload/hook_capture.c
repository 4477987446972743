/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/hook_capture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "preload/preload_broker.h"
#include "preload/preload_graphs.h"

struct capture_kept {
	gm_cu_ptr ptr;
	struct capture_kept *next;
};

static pthread_mutex_t capture_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned capture_count; /* written with the lock held */
static struct capture_kept *capture_list;

bool gm_capture_any(void)
{
	return atomic_load_explicit(&capture_count, memory_order_acquire);
}

bool gm_capture_of(const struct gm_driver *driver, gm_cu_stream stream)
{
	gm_cu_capture_status status = GM_CU_STREAM_CAPTURE_STATUS_NONE;

	return gm_capture_any() && driver->cuStreamIsCapturing &&
	       driver->cuStreamIsCapturing(stream, &status) == GM_CUDA_SUCCESS &&
	       status != GM_CU_STREAM_CAPTURE_STATUS_NONE;
}

bool gm_capture_keep(const struct gm_preload_block *block)
{
	struct capture_kept *kept = malloc(sizeof *kept);
	if (!kept)
		return false;

	pthread_mutex_lock(&capture_lock);
	bool any = atomic_load_explicit(&capture_count, memory_order_relaxed);
	if (any) {
		*kept = (struct capture_kept){.ptr = block->base, .next = capture_list};
		capture_list = kept;
	}
	pthread_mutex_unlock(&capture_lock);

	if (!any)
		free(kept);
	return any;
}

/* ---- the calls */

static gm_cu_result capture_begun(gm_cu_result result)
{
	if (result == GM_CUDA_SUCCESS) {
		pthread_mutex_lock(&capture_lock);
		atomic_fetch_add_explicit(&capture_count, 1, memory_order_release);
		pthread_mutex_unlock(&capture_lock);
	}
	return result;
}

/* A capture that was broken, or is ended by another thread, has ended as well. */
static gm_cu_result capture_ended(gm_cu_result result)
{
	struct capture_kept *kept = NULL, *next;

	if (result == GM_CUDA_ERROR_ILLEGAL_STATE || result == GM_CUDA_ERROR_INVALID_VALUE ||
		result == GM_CUDA_ERROR_INVALID_HANDLE)
		return result;
	pthread_mutex_lock(&capture_lock);
	if (capture_count &&
		atomic_fetch_sub_explicit(&capture_count, 1, memory_order_release) == 1) {
		kept = capture_list;
		capture_list = NULL;
	}
	pthread_mutex_unlock(&capture_lock);

	if (!gm_capture_any())
		gm_graphs_drop_captured();
	/* Nobody has waited for the work that used it. */
	for (; kept; kept = next) {
		next = kept->next;
		if (gm_broker_there())
			gm_broker_free(kept->ptr, GPUMEM_STREAM_ANY);
		free(kept);
	}
	return result;
}

#define CAPTURE_CALLS(suffix) \
	gm_cu_result cuStreamBeginCapture##suffix(gm_cu_stream stream) \
	{ \
		GM_DRIVER_OR_RETURN(driver, cuStreamBeginCapture##suffix); \
		return capture_begun(driver->cuStreamBeginCapture##suffix(stream)); \
	} \
\
	gm_cu_result cuStreamBeginCapture_v2##suffix(gm_cu_stream stream, gm_cu_capture_mode mode) \
	{ \
		GM_DRIVER_OR_RETURN(driver, cuStreamBeginCapture_v2##suffix); \
		return capture_begun(driver->cuStreamBeginCapture_v2##suffix(stream, mode)); \
	} \
\
	gm_cu_result cuStreamBeginCaptureToGraph##suffix(gm_cu_stream stream, gm_cu_graph graph, \
		const void *dependencies, const void *edges, size_t n, gm_cu_capture_mode mode) \
	{ \
		GM_DRIVER_OR_RETURN(driver, cuStreamBeginCaptureToGraph##suffix); \
		return capture_begun(driver->cuStreamBeginCaptureToGraph##suffix( \
			stream, graph, dependencies, edges, n, mode)); \
	} \
\
	gm_cu_result cuStreamEndCapture##suffix(gm_cu_stream stream, gm_cu_graph *graph) \
	{ \
		GM_DRIVER_OR_RETURN(driver, cuStreamEndCapture##suffix); \
		gm_cu_result result = driver->cuStreamEndCapture##suffix(stream, graph); \
		if (result == GM_CUDA_SUCCESS && graph) \
			gm_graphs_captured(*graph); \
		return capture_ended(result); \
	}

CAPTURE_CALLS()
CAPTURE_CALLS(_ptsz)
