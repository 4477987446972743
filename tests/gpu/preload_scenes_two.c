/* SPDX-License-Identifier: Apache-2.0 */
/* See preload_actor.h: streams and memory of two devices. */
#include "tests/gpu/preload_scenes.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdbool.h>

static sem_t closed;

static void wait_until_open(void *unused)
{
	while (sem_wait(&closed) < 0 && errno == EINTR)
		;
}

/* A scene without a second device only shows that it was there. */
static bool two_devices(void)
{
	gm_cu_result (*count)(int *);
	int n = 0;

	*(void **)&count = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuDeviceGetCount");
	GM_REQUIRE(count);
	CU(cu.cuInit(0));
	CU(count(&n));
	if (n < 2)
		show('t');
	return n > 1;
}

/* A stream of the second device. The first one's context is current before and after. */
static gm_cu_stream stream_there(gm_cu_ctx here, gm_cu_ctx *ret_there)
{
	gm_cu_stream stream;

	CU(cu.cuDevicePrimaryCtxRetain(ret_there, 1));
	CU(cu.cuCtxSetCurrent(*ret_there));
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuCtxSetCurrent(here));
	return stream;
}

/* Memory that is freed in the order of another device's stream is nobody's before that stream comes to it. Afterwards the
 * program can have it again. */
static void free_across(bool capture)
{
	gm_cu_result (*query)(gm_cu_stream);
	gm_cu_ctx here, there;
	gm_cu_stream stream, other, captured;
	gm_cu_ptr ptr, next;
	void *graph;

	if (!two_devices())
		return;
	here = use_gpu();
	other = stream_there(here, &there);

	*(void **)&query = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuStreamQuery");
	GM_REQUIRE(query && sem_init(&closed, 0, 0) == 0);
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuMemAllocAsync(&ptr, ACTOR_BYTES, stream));
	CU(cu.cuStreamSynchronize(stream));
	CU(cu.cuLaunchHostFunc(other, wait_until_open, NULL));
	show('t');
	if (capture) {
		CU(cu.cuStreamCreate(&captured, GM_CU_STREAM_NON_BLOCKING));
		CU(cu.cuStreamBeginCapture(captured, GM_CU_STREAM_CAPTURE_MODE_RELAXED));
	}
	CU(cu.cuMemFreeAsync(ptr, other));
	if (capture)
		CU(cu.cuStreamEndCapture(captured, &graph));
	/* The limit allows no other memory. So there is none, or what uses it waits. */
	gm_cu_result result = cu.cuMemAllocAsync(&next, ACTOR_BYTES, stream);
	if (result == GM_CUDA_SUCCESS) {
		CU(cu.cuMemsetD8Async(next, 1, ACTOR_BYTES, stream));
		for (int i = 0; i < 1000; i++) {
			GM_REQUIRE_EQ(query(stream), GM_CUDA_ERROR_NOT_READY);
			sched_yield();
		}
	} else {
		GM_REQUIRE_EQ(result, GM_CUDA_ERROR_OUT_OF_MEMORY);
	}
	sem_post(&closed);
	CU(cu.cuStreamSynchronize(other));
	if (result)
		CU(cu.cuMemAllocAsync(&next, ACTOR_BYTES, stream));
	CU(cu.cuStreamSynchronize(stream));
	CU(cu.cuMemFreeAsync(next, stream));
	CU(cu.cuStreamSynchronize(stream));
}

void scene_across(void)
{
	free_across(false);
}

void scene_across_capture(void)
{
	free_across(true);
}

static gm_cu_ctx cancelled_ctx;
static gm_cu_ptr cancelled_ptr;
static gm_cu_stream cancelled_stream;
static bool cancelled_whole;

static void *free_cancelled(void *unused)
{
	gm_cu_ptr other;

	CU(cu.cuCtxSetCurrent(cancelled_ctx));
	/* From here on the library knows the stream's device, and what may be cancelled is the free alone. */
	CU(cu.cuMemAllocAsync(&other, ACTOR_PIECE, cancelled_stream));
	CU(cu.cuMemFreeAsync(other, cancelled_stream));
	pthread_cancel(pthread_self());
	CU(cu.cuMemFreeAsync(cancelled_ptr, cancelled_stream));
	cancelled_whole = true;
	return NULL;
}

/* A thread that is cancelled makes its call to the end. The limit allows no other memory than what it frees. */
void scene_across_cancel(void)
{
	gm_cu_stream stream;
	pthread_t thread;
	gm_cu_ctx there;

	if (!two_devices())
		return;
	cancelled_ctx = use_gpu();
	cancelled_stream = stream_there(cancelled_ctx, &there);
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuMemAllocAsync(&cancelled_ptr, ACTOR_BYTES, stream));
	show('t');
	GM_REQUIRE(pthread_create(&thread, NULL, free_cancelled, NULL) == 0);
	pthread_join(thread, NULL);
	GM_REQUIRE(cancelled_whole);
	CU(cu.cuMemAllocAsync(&cancelled_ptr, ACTOR_BYTES, stream));
	CU(cu.cuMemFreeAsync(cancelled_ptr, stream));
	CU(cu.cuStreamSynchronize(stream));
}

/* What is freed while a stream of another device than the current one is captured does not break that capture. Much of
 * it lies in host memory, which every device uses. */
void scene_two_capture(void)
{
	gm_cu_stream captured, stream;
	gm_cu_ctx here, there;
	gm_cu_ptr ptrs[8], small;
	void *graph;

	if (!two_devices())
		return;
	here = use_gpu();
	CU(cu.cuStreamCreate(&captured, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuMemAlloc(&small, 4096));
	stream = stream_there(here, &there);

	CU(cu.cuCtxSetCurrent(there));
	for (size_t i = 0; i < 8; i++)
		CU(cu.cuMemAllocAsync(&ptrs[i], ACTOR_BYTES, stream));
	CU(cu.cuStreamSynchronize(stream));
	show('t');
	CU(cu.cuStreamBeginCapture(captured, GM_CU_STREAM_CAPTURE_MODE_RELAXED));
	for (size_t i = 0; i < 8; i++)
		CU(cu.cuMemFreeAsync(ptrs[i], stream));
	CU(cu.cuStreamEndCapture(captured, &graph));
	CU(cu.cuGraphDestroy(graph));
	CU(cu.cuStreamSynchronize(stream));
	CU(cu.cuMemFree(small));
}
