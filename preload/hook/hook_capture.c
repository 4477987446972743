/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/hook/hook_capture.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <utlist.h>

#include "common/cancel.h"
#include "common/lock.h"
#include "preload/preload.h"
#include "preload/broker/preload_broker.h"
#include "preload/broker/preload_graphs.h"
#include "preload/broker/preload_streams.h"

/* A stream whose capture the program has begun, or is about to begin. */
struct capture_origin {
	gm_cu_stream stream;
	pthread_t thread; /* that began it; CU_STREAM_PER_THREAD is another stream in each thread */
	gm_cu_ctx ctx;    /* of the stream, which ends with it; NULL: the driver does not say */
	struct capture_origin *next;
};

static struct gm_lock capture_lock = GM_LOCK_INITIALIZER(GM_LOCK_LEAF);
static struct capture_origin *capture_origins; /* only those whose capture has begun */
bool gm_capture_of(const struct gm_driver *driver, gm_cu_stream stream)
{
	gm_cu_capture_status status = GM_CU_STREAM_CAPTURE_STATUS_NONE;

	return gm_preload_capturing() && driver->cuStreamIsCapturing &&
	       driver->cuStreamIsCapturing(stream, &status) == GM_CUDA_SUCCESS &&
	       status != GM_CU_STREAM_CAPTURE_STATUS_NONE;
}

/* ---- the captures */

/* Notes that a capture has ended, or did not begin. Takes ownership of its origin, which must not be in the list. */
static void capture_over(struct capture_origin *origin)
{
	free(origin);
	if (gm_preload_capture_end())
		gm_preload_graphs_drop_captured();
}

/* With the lock held. */
static struct capture_origin *capture_find(gm_cu_stream stream)
{
	struct capture_origin *origin;

	LL_FOREACH (capture_origins, origin)
		if (origin->stream == stream &&
			((uintptr_t)stream != GM_CU_STREAM_PER_THREAD ||
				pthread_equal(origin->thread, pthread_self())))
			return origin;
	return NULL;
}

/* Takes the origin of a stream out of the list. The caller owns it from now on. NULL: the stream has none. */
static struct capture_origin *capture_take(gm_cu_stream stream)
{
	gm_lock(&capture_lock);
	struct capture_origin *origin = capture_find(stream);
	if (origin)
		LL_DELETE(capture_origins, origin);
	gm_lock_drop(&capture_lock);
	return origin;
}

static void capture_end(gm_cu_stream stream)
{
	struct capture_origin *origin = capture_take(stream);

	if (origin)
		capture_over(origin);
}

void gm_capture_end_of(gm_cu_ctx ctx)
{
	struct capture_origin *origin, *next, *ended = NULL;

	if (!gm_preload_capturing())
		return;
	gm_lock(&capture_lock);
	LL_FOREACH_SAFE (capture_origins, origin, next)
		if (origin->ctx == ctx) {
			LL_DELETE(capture_origins, origin);
			LL_PREPEND(ended, origin);
		}
	gm_lock_drop(&capture_lock);
	LL_FOREACH_SAFE (ended, origin, next)
		capture_over(origin);
}

/* Prepares for a capture that the program is about to begin. NULL: the host has no memory, and the capture must not begin. */
static struct capture_origin *capture_begin(const struct gm_driver *driver, gm_cu_stream stream)
{
	struct capture_origin *origin = malloc(sizeof *origin);
	if (!origin)
		return NULL;

	*origin = (struct capture_origin){.stream = stream, .thread = pthread_self()};
	if (gm_preload_streams_context(driver, stream, &origin->ctx))
		origin->ctx = NULL;
	gm_preload_capture_begin();
	return origin;
}

static gm_cu_result capture_begun(struct capture_origin *origin, gm_cu_result result)
{
	if (result) {
		capture_over(origin);
		return result;
	}
	gm_lock(&capture_lock);
	LL_PREPEND(capture_origins, origin);
	gm_lock_drop(&capture_lock);
	return result;
}

/* Notes what the driver has answered to the end of a capture. A capture that was broken has ended as well. After other
 * failures this asks the driver whether the capture goes on. */
static gm_cu_result capture_ended(
	const struct gm_driver *driver, gm_cu_stream stream, gm_cu_result result)
{
	gm_cu_capture_status status = GM_CU_STREAM_CAPTURE_STATUS_NONE;

	if (result && driver->cuStreamIsCapturing &&
		driver->cuStreamIsCapturing(stream, &status) == GM_CUDA_SUCCESS &&
		status != GM_CU_STREAM_CAPTURE_STATUS_NONE)
		return result;
	if (gm_preload_capturing())
		capture_end(stream);
	return result;
}

/* Ends the capture of a stream that is about to be destroyed. Afterwards another thread may have a stream with the same
 * handle, and capture that. */
static void capture_end_before(const struct gm_driver *driver, gm_cu_stream stream)
{
	struct capture_origin *origin = capture_take(stream);
	gm_cu_graph graph = NULL;

	if (!origin)
		return;
	if (driver->cuStreamEndCapture)
		(void)driver->cuStreamEndCapture(stream, &graph);
	if (graph && driver->cuGraphDestroy)
		(void)driver->cuGraphDestroy(graph);
	capture_over(origin);
}

/* In a forked child nobody captures, whatever its parent's threads were doing. */
static void capture_after_fork(void)
{
	gm_lock_init(&capture_lock, GM_LOCK_LEAF);
	capture_origins = NULL;
}

static __attribute__((constructor)) void capture_prepare(void)
{
	pthread_atfork(NULL, NULL, capture_after_fork);
}

/* ---- the calls */

/* The thread's own default stream, where the program means that one by 0. */
#define CAPTURE_STREAM(stream, zero) ((stream) ? (stream) : (gm_cu_stream)(uintptr_t)(zero))

/* If a thread were cancelled within these calls, its capture would count as going on for good. */
#define CAPTURE_BEGIN(symbol, zero, parameters, arguments) \
	gm_cu_result symbol parameters \
	{ \
		GM_DRIVER_OR_RETURN(driver, symbol); \
		GM_UNCANCELLED; \
		gm_cu_stream named = CAPTURE_STREAM(stream, zero); \
		struct capture_origin *origin = capture_begin(driver, named); \
		if (!origin) \
			return GM_CUDA_ERROR_OUT_OF_MEMORY; \
		return capture_begun(origin, driver->symbol arguments); \
	}

#define CAPTURE_CALLS(suffix, zero) \
	CAPTURE_BEGIN(cuStreamBeginCapture##suffix, zero, (gm_cu_stream stream), (stream)) \
	CAPTURE_BEGIN(cuStreamBeginCapture_v2##suffix, zero, \
		(gm_cu_stream stream, gm_cu_capture_mode mode), (stream, mode)) \
	CAPTURE_BEGIN(cuStreamBeginCaptureToGraph##suffix, zero, \
		(gm_cu_stream stream, gm_cu_graph graph, const void *dependencies, \
			const void *edges, size_t n, gm_cu_capture_mode mode), \
		(stream, graph, dependencies, edges, n, mode)) \
\
	gm_cu_result cuStreamEndCapture##suffix(gm_cu_stream stream, gm_cu_graph *graph) \
	{ \
		GM_DRIVER_OR_RETURN(driver, cuStreamEndCapture##suffix); \
		GM_UNCANCELLED; \
		gm_cu_result result = driver->cuStreamEndCapture##suffix(stream, graph); \
		if (result == GM_CUDA_SUCCESS && graph) \
			gm_preload_graphs_captured(*graph); \
		return capture_ended(driver, CAPTURE_STREAM(stream, zero), result); \
	}

CAPTURE_CALLS(, 0)
CAPTURE_CALLS(_ptsz, GM_CU_STREAM_PER_THREAD)

#define CAPTURE_DESTROY(symbol) \
	gm_cu_result symbol(gm_cu_stream stream) \
	{ \
		GM_DRIVER_OR_RETURN(driver, symbol); \
		GM_UNCANCELLED; \
		gm_preload_grow_old(); \
		if (gm_preload_capturing()) \
			capture_end_before(driver, stream); \
		return driver->symbol(stream); \
	}

CAPTURE_DESTROY(cuStreamDestroy)
CAPTURE_DESTROY(cuStreamDestroy_v2)
