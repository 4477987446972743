/* SPDX-License-Identifier: Apache-2.0 */
/* See preload_actor.h: waiting for the device, captures, and contexts that end. */
#include "tests/gpu/preload_scenes.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "tests/gpu/fake_gate.h"

static sem_t gate;

static void pass_gate(void *unused)
{
	while (sem_wait(&gate) < 0 && errno == EINTR)
		;
}

static _Atomic bool gate_passed;

static void note_gate_passed(void *unused)
{
	gate_passed = true;
}

static void *open_gate(void *unused)
{
	gm_text_say_word(ACTOR_CHANNEL, 'w');
	gm_hear_word(ACTOR_CHANNEL, 'o');
	sem_post(&gate);
	return NULL;
}

/* cuMemFree() returns when the work is done that was launched before. */
void scene_wait(void)
{
	gm_cu_stream stream;
	pthread_t opener;
	gm_cu_ptr ptr;

	use_gpu();
	sem_init(&gate, 0, 0);
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuMemAlloc(&ptr, ACTOR_BYTES));
	CU(cu.cuMemsetD8Async(ptr, 0x77, ACTOR_BYTES, stream));
	CU(cu.cuStreamSynchronize(stream));
	CU(cu.cuLaunchHostFunc(stream, pass_gate, NULL));
	CU(cu.cuMemsetD8Async(ptr, 0x78, ACTOR_BYTES, stream));
	CU(cu.cuLaunchHostFunc(stream, note_gate_passed, NULL));
	show('h');
	GM_REQUIRE(pthread_create(&opener, NULL, open_gate, NULL) == 0);
	CU(cu.cuMemFree(ptr));
	GM_REQUIRE(gate_passed);
	pthread_join(opener, NULL);
}

/* A program gets memory again that it freed during a capture, once the device is done with it. The limit allows no other memory. */
void scene_capture_full(void)
{
	gm_cu_stream stream, captured;
	gm_cu_ptr ptr, again;
	pthread_t opener;
	void *graph = NULL;

	use_gpu();
	sem_init(&gate, 0, 0);
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuStreamCreate(&captured, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuMemAlloc(&ptr, ACTOR_BYTES));
	CU(cu.cuLaunchHostFunc(stream, pass_gate, NULL));
	CU(cu.cuMemsetD8Async(ptr, 0x78, ACTOR_BYTES, stream));
	CU(cu.cuLaunchHostFunc(stream, note_gate_passed, NULL));
	show('h');
	CU(cu.cuStreamBeginCapture(captured, GM_CU_STREAM_CAPTURE_MODE_RELAXED));
	CU(cu.cuMemFree(ptr));
	CU(cu.cuStreamEndCapture(captured, &graph));
	GM_REQUIRE(pthread_create(&opener, NULL, open_gate, NULL) == 0);
	CU(cu.cuMemAlloc(&again, ACTOR_BYTES));
	GM_REQUIRE(gate_passed);
	pthread_join(opener, NULL);
	CU(cu.cuMemFree(again));
}

/* cuMemAlloc() does not wait for what was freed during a capture, if there is other memory. */
void scene_capture_room(void)
{
	gm_cu_stream stream, captured;
	gm_cu_ptr ptr, more;
	pthread_t opener;
	void *graph = NULL;

	use_gpu();
	sem_init(&gate, 0, 0);
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuStreamCreate(&captured, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuMemAlloc(&ptr, ACTOR_BYTES));
	CU(cu.cuLaunchHostFunc(stream, pass_gate, NULL));
	CU(cu.cuMemsetD8Async(ptr, 0x78, ACTOR_BYTES, stream));
	show('h');
	CU(cu.cuStreamBeginCapture(captured, GM_CU_STREAM_CAPTURE_MODE_RELAXED));
	CU(cu.cuMemFree(ptr));
	CU(cu.cuStreamEndCapture(captured, &graph));
	CU(cu.cuMemAlloc(&more, ACTOR_BYTES)); /* nobody has opened the gate */
	GM_REQUIRE(more != ptr);
	GM_REQUIRE(pthread_create(&opener, NULL, open_gate, NULL) == 0);
	CU(cu.cuMemFree(more));
	pthread_join(opener, NULL);
}

/* What is freed during a capture neither breaks it nor is used by others. */
void scene_capture(void)
{
	gm_cu_stream stream;
	gm_cu_ptr kept, freed, more;
	void *graph = NULL;

	use_gpu();
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuMemAlloc(&kept, ACTOR_BYTES));
	CU(cu.cuMemAlloc(&freed, ACTOR_BYTES));
	show('h');
	CU(cu.cuStreamBeginCapture(stream, GM_CU_STREAM_CAPTURE_MODE_RELAXED));
	CU(cu.cuMemsetD8Async(kept, 1, ACTOR_BYTES, stream));
	CU(cu.cuMemFree(freed));
	CU(cu.cuMemAlloc(&more, ACTOR_BYTES));
	GM_REQUIRE(more != freed);
	CU(cu.cuStreamEndCapture(stream, &graph));
	CU(cu.cuMemFree(more));
	CU(cu.cuMemFree(kept));
	GM_REQUIRE(cu.cuMemFree(freed) != GM_CUDA_SUCCESS);
}

/* A thread that frees memory all the time breaks no capture of another thread. */
static _Atomic bool racing;

static void *free_meanwhile(void *unused)
{
	gm_cu_ptr ptr;

	CU(cu.cuCtxSetCurrent(shared_ctx));
	while (racing) {
		CU(cu.cuMemAlloc(&ptr, 4096));
		CU(cu.cuMemFree(ptr));
	}
	return NULL;
}

void scene_capture_race(void)
{
	gm_cu_stream stream;
	pthread_t thread;
	gm_cu_ptr ptr;

	shared_ctx = use_gpu();
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuMemAlloc(&ptr, ACTOR_BYTES));
	show('h');
	racing = true;
	GM_REQUIRE(pthread_create(&thread, NULL, free_meanwhile, NULL) == 0);
	for (int i = 0; i < 100; i++) {
		void *graph = NULL;
		CU(cu.cuStreamBeginCapture(stream, GM_CU_STREAM_CAPTURE_MODE_RELAXED));
		CU(cu.cuMemsetD8Async(ptr, 1, 4096, stream));
		CU(cu.cuStreamEndCapture(stream, &graph));
	}
	racing = false;
	pthread_join(thread, NULL);
	CU(cu.cuMemFree(ptr));
}

/*
 * Memory that was freed just before a capture begins. The library has a thread that then asks the driver when the
 * device is done with it. Whatever that thread was about to do, it breaks no capture. The captures stay open for a
 * while, so that it would.
 */
void scene_capture_after_free(void)
{
	const struct timespec a_while = {.tv_nsec = 5 * 1000 * 1000};
	gm_cu_stream stream;
	gm_cu_ptr ptr, freed;
	void *host;

	use_gpu();
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuMemAlloc(&ptr, ACTOR_BYTES));
	show('h');
	for (int i = 0; i < 20; i++) {
		void *graph = NULL;
		CU(cu.cuMemHostAlloc(&host, 4096, 0));
		CU(cu.cuMemAllocAsync(&freed, ACTOR_BYTES, stream));
		CU(cu.cuMemFreeAsync(freed, stream));
		CU(cu.cuMemFreeHost(host));
		CU(cu.cuStreamBeginCapture(stream, GM_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
		CU(cu.cuMemsetD8Async(ptr, 1, 4096, stream));
		nanosleep(&a_while, NULL);
		CU(cu.cuStreamEndCapture(stream, &graph));
	}
	CU(cu.cuMemFree(ptr));
}

/* Threads that are cancelled. A call that has begun is made to its end: otherwise its thread would keep captures out
 * for good, or its capture would count as going on for good, or what it was to free would be lost. */
static _Atomic bool freed_whole, captured_whole, destroyed_whole, reset_whole;

static void *free_cancelled(void *ptr)
{
	CU(cu.cuCtxSetCurrent(shared_ctx));
	CU(cu.cuMemFree((gm_cu_ptr)(uintptr_t)ptr));
	freed_whole = true;
	return NULL;
}

static void *capture_cancelled(void *stream)
{
	void *graph = NULL;

	CU(cu.cuCtxSetCurrent(shared_ctx));
	pthread_cancel(pthread_self());
	CU(cu.cuStreamBeginCapture(stream, GM_CU_STREAM_CAPTURE_MODE_RELAXED));
	CU(cu.cuStreamEndCapture(stream, &graph));
	captured_whole = true;
	return NULL;
}

static void *destroy_cancelled(void *stream)
{
	CU(cu.cuCtxSetCurrent(shared_ctx));
	CU(cu.cuStreamBeginCapture(stream, GM_CU_STREAM_CAPTURE_MODE_RELAXED));
	pthread_cancel(pthread_self());
	CU(cu.cuStreamDestroy(stream));
	destroyed_whole = true;
	return NULL;
}

static void *reset_cancelled(void *unused)
{
	pthread_cancel(pthread_self());
	CU(cu.cuDevicePrimaryCtxReset(0));
	reset_whole = true;
	return unused;
}

void scene_capture_cancel(void)
{
	bool fake = getenv("GPUMEM_FAKE_DIR");
	pthread_t frees, captures, destroys;
	struct fake_gate waits;
	gm_cu_stream stream, destroyed;
	gm_cu_ptr ptr;

	fake_gate_prepare();
	shared_ctx = use_gpu();
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuStreamCreate(&destroyed, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuMemAlloc(&ptr, ACTOR_BYTES));
	show('h');
	GM_REQUIRE(pthread_create(&destroys, NULL, destroy_cancelled, destroyed) == 0);
	pthread_join(destroys, NULL);
	GM_REQUIRE(destroyed_whole);
	if (fake)
		fake_gate_close(&waits, "cuCtxSynchronize");
	GM_REQUIRE(pthread_create(&frees, NULL, free_cancelled, (void *)(uintptr_t)ptr) == 0);
	if (fake)
		fake_gate_await(&waits);
	pthread_cancel(frees);
	/* The capture waits for that thread before it begins, for as long as it may. */
	GM_REQUIRE(pthread_create(&captures, NULL, capture_cancelled, stream) == 0);
	pthread_join(captures, NULL);
	GM_REQUIRE(captured_whole);
	if (fake)
		fake_gate_open(&waits);
	pthread_join(frees, NULL);
	GM_REQUIRE(freed_whole || !fake);
	/* A reset takes the context's memory out of the library's table before it calls the driver. */
	GM_REQUIRE(pthread_create(&frees, NULL, reset_cancelled, NULL) == 0);
	pthread_join(frees, NULL);
	GM_REQUIRE(reset_whole);
}

/* The program takes its first memory of the broker while it captures, so the client library was not there when the capture
 * began. A trim makes the library ask the driver when the device is done, which must not break the capture. */
void scene_capture_first(void)
{
	gm_cu_stream captured, other;
	gm_cu_ptr freed, ptr;
	void *graph = NULL, *pool;

	use_gpu();
	CU(cu.cuStreamCreate(&captured, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuStreamCreate(&other, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuDeviceGetDefaultMemPool(&pool, 0));
	CU(cu.cuStreamBeginCapture(captured, GM_CU_STREAM_CAPTURE_MODE_RELAXED));
	CU(cu.cuMemAllocAsync(&ptr, ACTOR_BYTES, other));
	CU(cu.cuMemAllocAsync(&freed, ACTOR_BYTES, other));
	show('h');
	CU(cu.cuMemFreeAsync(freed, other));
	CU(cu.cuMemPoolTrimTo(pool, 0));
	CU(cu.cuStreamEndCapture(captured, &graph));
	CU(cu.cuMemFreeAsync(ptr, other));
	CU(cu.cuStreamSynchronize(other));
}

/* Pinned memory that is freed during a capture goes back to the daemon after it, although the program neither allocates
 * nor frees then. The test says 'e' when it has gone back. */
void scene_capture_pinned(void)
{
	char word = 'g';
	gm_cu_stream stream;
	void *host, *graph = NULL, *pool;

	use_gpu();
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuDeviceGetDefaultMemPool(&pool, 0));
	CU(cu.cuMemHostAlloc(&host, ACTOR_PIECE, 0));
	CU(cu.cuStreamBeginCapture(stream, GM_CU_STREAM_CAPTURE_MODE_RELAXED));
	CU(cu.cuMemFreeHost(host));
	show('p');
	CU(cu.cuStreamEndCapture(stream, &graph));
	while (word == 'g') {
		CU(cu.cuMemPoolTrimTo(pool, 0));
		gm_text_say_word(ACTOR_CHANNEL, 't');
		gm_hear(ACTOR_CHANNEL, &word, 1);
	}
	GM_REQUIRE_EQ(word, 'e');
}

/* A capture ends with its stream. What is freed afterwards can be had again. */
void scene_capture_destroyed(void)
{
	gm_cu_stream stream;
	gm_cu_ptr ptr, again;

	use_gpu();
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuMemAlloc(&ptr, ACTOR_BYTES));
	show('h');
	CU(cu.cuStreamBeginCapture(stream, GM_CU_STREAM_CAPTURE_MODE_RELAXED));
	CU(cu.cuStreamDestroy(stream));
	CU(cu.cuMemFree(ptr));
	CU(cu.cuMemAlloc(&again, ACTOR_BYTES));
	GM_REQUIRE_EQ(again, ptr);
	CU(cu.cuMemFree(again));
}

/* A stream that has joined the capture of another one does not end it. Once it is destroyed, nobody may ask the driver about
 * it, although memory was allocated and freed on it meanwhile. Only the fake driver minds. */
void scene_capture_joined(void)
{
	gm_cu_result (*create)(gm_cu_event *, unsigned), (*record)(gm_cu_event, gm_cu_stream),
		(*wait)(gm_cu_stream, gm_cu_event, unsigned);
	void *lib = dlopen("libcuda.so.1", RTLD_NOW), *graph = NULL;
	gm_cu_stream stream, joined;
	gm_cu_ptr ptr, captured;
	gm_cu_event event;

	use_gpu();
	CU(cu.cuMemAlloc(&ptr, ACTOR_BYTES));
	show('h');
	CU(cu.cuMemFree(ptr));
	if (!getenv("GPUMEM_FAKE_DIR"))
		return;
	*(void **)&create = dlsym(lib, "cuEventCreate");
	*(void **)&record = dlsym(lib, "cuEventRecord");
	*(void **)&wait = dlsym(lib, "cuStreamWaitEvent");
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuStreamCreate(&joined, GM_CU_STREAM_NON_BLOCKING));
	CU(create(&event, GM_CU_EVENT_DISABLE_TIMING));
	CU(cu.cuMemAllocAsync(&ptr, ACTOR_PIECE, joined));
	CU(cu.cuMemFreeAsync(ptr, joined));

	CU(cu.cuStreamBeginCapture(stream, GM_CU_STREAM_CAPTURE_MODE_RELAXED));
	CU(record(event, stream));
	CU(wait(joined, event, 0));
	CU(cu.cuMemAllocAsync(&captured, ACTOR_PIECE, joined));
	CU(cu.cuMemFreeAsync(captured, joined));
	CU(cu.cuStreamDestroy(joined));
	CU(cu.cuMemAlloc(&ptr, ACTOR_PIECE));
	CU(cu.cuMemFree(ptr));
	GM_REQUIRE(cu.cuStreamEndCapture(stream, &graph) != GM_CUDA_SUCCESS);
	CU(cu.cuMemAlloc(&ptr, ACTOR_PIECE));
	CU(cu.cuMemFree(ptr));
	CU(cu.cuStreamDestroy(stream));
}

/* Another thread may have a stream with the same handle, and capture it, before the driver has returned from the
 * destruction of the first. So the capture of the first one counts no more once the driver destroys it: pinned memory comes
 * from the broker, which it does not during captures. */
static void *destroy_captured(void *stream)
{
	CU(cu.cuCtxSetCurrent(shared_ctx));
	CU(cu.cuStreamDestroy(stream));
	return NULL;
}

void scene_capture_destroying(void)
{
	bool fake = getenv("GPUMEM_FAKE_DIR");
	struct fake_gate destroys;
	gm_cu_stream stream;
	pthread_t thread;
	void *host;

	fake_gate_prepare();
	shared_ctx = use_gpu();
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuStreamBeginCapture(stream, GM_CU_STREAM_CAPTURE_MODE_RELAXED));
	if (fake)
		fake_gate_close(&destroys, "cuStreamDestroy");
	GM_REQUIRE(pthread_create(&thread, NULL, destroy_captured, stream) == 0);
	if (fake)
		fake_gate_await(&destroys);
	else
		pthread_join(thread, NULL);
	CU(cu.cuMemHostAlloc(&host, ACTOR_PIECE, 0));
	show('p');
	if (fake) {
		fake_gate_open(&destroys);
		pthread_join(thread, NULL);
	}
	CU(cu.cuMemFreeHost(host));
}

/* How often the driver is called for a pair that comes from the library's cache. Only the fake driver counts. */
void scene_calls(void)
{
	unsigned long (*calls)(void), before;
	gm_cu_stream stream;
	gm_cu_ptr ptr, keep;

	*(void **)&calls = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "fake_calls");
	use_gpu();
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuMemAlloc(&keep, ACTOR_BYTES));
	show('h');
	for (int i = 0; calls && i < 3; i++) {
		before = calls();
		CU(cu.cuMemAlloc(&ptr, 2 << 20));
		CU(cu.cuMemFree(ptr));
		if (i && calls() - before > ACTOR_PAIR_CALLS)
			GM_FAIL("a pair made %lu calls", calls() - before);
	}
	for (int i = 0; calls && i < 3; i++) {
		before = calls();
		CU(cu.cuMemAllocAsync(&ptr, 2 << 20, stream));
		CU(cu.cuMemFreeAsync(ptr, stream));
		if (i && calls() - before > ACTOR_ASYNC_PAIR_CALLS)
			GM_FAIL("a pair on a stream made %lu calls", calls() - before);
	}
	CU(cu.cuMemFree(keep));
	CU(cu.cuStreamSynchronize(stream));
}

/* What was allocated in a context ends with it. */
void scene_reset(void)
{
	gm_cu_ptr ptr;

	use_gpu();
	CU(cu.cuMemAlloc(&ptr, ACTOR_BYTES));
	show('h');
	CU(cu.cuDevicePrimaryCtxReset(0));
	use_gpu();
	GM_REQUIRE(cu.cuMemFree(ptr) != GM_CUDA_SUCCESS);
	CU(cu.cuMemAlloc(&ptr, ACTOR_BYTES));
	use(ptr, ACTOR_BYTES, 0x66);
	CU(cu.cuMemFree(ptr));
}
