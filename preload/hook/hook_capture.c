/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/hook/hook_capture.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <utlist.h>

#include "common/cancel.h"
#include "preload/preload.h"
#include "preload/broker/preload_broker.h"
#include "preload/broker/preload_graphs.h"
#include "preload/broker/preload_streams.h"

/* A stream whose capture has begun. */
struct capture_origin {
	gm_cu_stream stream;
	pthread_t thread; /* whose default stream it is, if it is a thread's own */
	gm_cu_ctx ctx;    /* the stream ends with it */
	struct capture_origin *next;
};

static pthread_mutex_t capture_lock = PTHREAD_MUTEX_INITIALIZER;
static struct capture_origin *capture_origins;
/* Origins, and captures that are about to begin. */
static _Atomic unsigned capture_count;

/* How many threads put captures off. Threads that count in different places do not slow each other down. */
#define CAPTURE_PLACES 16
static struct {
	_Alignas(64) _Atomic unsigned n;
} capture_off[CAPTURE_PLACES];
static _Atomic unsigned capture_threads;
static GM_PRELOAD_THREAD unsigned capture_place; /* + 1 */

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

/* ---- threads that wait for a context */

bool gm_capture_put_off(void)
{
	if (__builtin_expect(!capture_place, 0))
		capture_place = atomic_fetch_add(&capture_threads, 1) % CAPTURE_PLACES + 1;

	/* Either this thread sees the capture that is about to begin, or that one sees this thread. */
	atomic_fetch_add(&capture_off[capture_place - 1].n, 1);
	if (__builtin_expect(!atomic_load(&capture_count), 1))
		return true;
	gm_capture_let();
	return false;
}

void gm_capture_let(void)
{
	atomic_fetch_sub_explicit(&capture_off[capture_place - 1].n, 1, memory_order_release);
}

static bool capture_is_off(void)
{
	for (size_t i = 0; i < CAPTURE_PLACES; i++)
		if (atomic_load(&capture_off[i].n))
			return true;
	return false;
}

/*
 * Waits for threads that are about to wait for a context. Once they do, a capture that begins does them
 * no harm, nor they it; but nobody can see that. The GPU may even need the capture to go on before they
 * are done. So this waits for a second at most, by when they are inside of the driver.
 */
#define CAPTURE_PATIENCE_MS 1000

static void capture_await(void)
{
	struct timespec pause = {.tv_nsec = 1000 * 1000};

	for (int i = 0; i < 100 && capture_is_off(); i++)
		sched_yield();
	for (int i = 0; i < CAPTURE_PATIENCE_MS && capture_is_off(); i++)
		nanosleep(&pause, NULL);
}

/* ---- the captures */

static void capture_less(unsigned n)
{
	if (n && atomic_fetch_sub(&capture_count, n) == n)
		gm_graphs_drop_captured(gm_capture_any);
}

/* The capture has ended, or did not begin. Takes an origin that nobody else finds any more. */
static void capture_over(struct capture_origin *origin)
{
	gm_broker_capture_end();
	free(origin);
	capture_less(1);
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

/* The caller owns the origin of the stream from now on, and nobody finds it any more. NULL: the stream has none. */
static struct capture_origin *capture_take(gm_cu_stream stream)
{
	pthread_mutex_lock(&capture_lock);
	struct capture_origin *origin = capture_find(stream);
	if (origin)
		LL_DELETE(capture_origins, origin);
	pthread_mutex_unlock(&capture_lock);
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

	if (!gm_capture_any())
		return;
	pthread_mutex_lock(&capture_lock);
	LL_FOREACH_SAFE (capture_origins, origin, next)
		if (origin->ctx == ctx) {
			LL_DELETE(capture_origins, origin);
			LL_PREPEND(ended, origin);
		}
	pthread_mutex_unlock(&capture_lock);
	LL_FOREACH_SAFE (ended, origin, next)
		capture_over(origin);
}

/* Before a stream's capture begins. NULL: the host has no memory, and it must not begin. */
static struct capture_origin *capture_begin(const struct gm_driver *driver, gm_cu_stream stream)
{
	struct capture_origin *origin = malloc(sizeof *origin);
	if (!origin)
		return NULL;

	*origin = (struct capture_origin){.stream = stream, .thread = pthread_self()};
	gm_broker_capture_begin();
	if (gm_streams_context(driver, stream, &origin->ctx))
		origin->ctx = NULL;
	atomic_fetch_add(&capture_count, 1);
	capture_await();
	return origin;
}

static gm_cu_result capture_begun(struct capture_origin *origin, gm_cu_result result)
{
	if (result) {
		capture_over(origin);
		return result;
	}
	pthread_mutex_lock(&capture_lock);
	LL_PREPEND(capture_origins, origin);
	pthread_mutex_unlock(&capture_lock);
	return result;
}

/* A capture that was broken has ended as well. Whether it goes on after another failure, the driver knows. */
static gm_cu_result capture_ended(
	const struct gm_driver *driver, gm_cu_stream stream, gm_cu_result result)
{
	gm_cu_capture_status status = GM_CU_STREAM_CAPTURE_STATUS_NONE;

	if (result && driver->cuStreamIsCapturing &&
		driver->cuStreamIsCapturing(stream, &status) == GM_CUDA_SUCCESS &&
		status != GM_CU_STREAM_CAPTURE_STATUS_NONE)
		return result;
	if (gm_capture_any())
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
	pthread_mutex_init(&capture_lock, NULL);
	capture_origins = NULL;
	atomic_store(&capture_count, 0);
	for (size_t i = 0; i < CAPTURE_PLACES; i++)
		atomic_store(&capture_off[i].n, 0);
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
			gm_graphs_captured(*graph); \
		return capture_ended(driver, CAPTURE_STREAM(stream, zero), result); \
	}

CAPTURE_CALLS(, 0)
CAPTURE_CALLS(_ptsz, GM_CU_STREAM_PER_THREAD)

#define CAPTURE_DESTROY(symbol) \
	gm_cu_result symbol(gm_cu_stream stream) \
	{ \
		GM_DRIVER_OR_RETURN(driver, symbol); \
		gm_broker_grow_old(); \
		if (gm_capture_any()) \
			capture_end_before(driver, stream); \
		return driver->symbol(stream); \
	}

CAPTURE_DESTROY(cuStreamDestroy)
CAPTURE_DESTROY(cuStreamDestroy_v2)
