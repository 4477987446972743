/* SPDX-License-Identifier: Apache-2.0 */
/* See preload_actor.h. A scene that fails ends the program and says why. */
#include "tests/gpu/preload_actor.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/harness.h"

#define SPILLED 8 /* times ACTOR_BYTES, which is more than the daemon gives */

#define CU(call) GM_REQUIRE_EQ(call, GM_CUDA_SUCCESS)

static struct {
#define MEMBER(name, symbol, version, parameters) gm_cu_result(*name) parameters;
	ACTOR_CALLS(MEMBER)
#undef MEMBER
} cu;

/* ---- routes */

#ifdef ACTOR_LINKED
#define DECLARE(name, symbol, version, parameters) extern gm_cu_result symbol parameters;
ACTOR_CALLS(DECLARE)
#undef DECLARE
#endif

typedef gm_cu_result (*proc2_fn)(const char *, void **, int, uint64_t, int *);

/* As a program of 12.0 and later asks; cuGetProcAddress itself by that, once more. */
static void *by_proc2(void *library, const char *name, int version, uint64_t flags)
{
	proc2_fn first = (proc2_fn)dlsym(library, "cuGetProcAddress_v2"), proc;
	void *fn = NULL;
	int status;

	CU(first("cuGetProcAddress", (void **)&proc, 12000, 0, &status));
	CU(proc(name, &fn, version, flags, &status));
	GM_REQUIRE_EQ(status, 0);
	return fn;
}

#ifndef ACTOR_LINKED
typedef gm_cu_result (*proc_fn)(const char *, void **, int, uint64_t);

static void *find(const char *route, const char *name, const char *symbol, int version)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL), *fn = NULL;
	GM_REQUIRE(library);

	if (strcmp(route, "dlsym") == 0)
		return dlsym(library, symbol);
	if (strcmp(route, "default") == 0)
		return dlsym(RTLD_DEFAULT, symbol);
	if (strcmp(route, "proc2") == 0)
		return by_proc2(library, name, version, 0);
	GM_REQUIRE(strcmp(route, "proc") == 0);
	CU(((proc_fn)dlsym(library, "cuGetProcAddress"))(name, &fn, version, 0));
	return fn;
}
#endif

static void find_all(const char *route)
{
#ifdef ACTOR_LINKED
	GM_REQUIRE(strcmp(route, "linked") == 0);
#define FIND(name, symbol, version, parameters) cu.name = symbol;
#else
#define FIND(name, symbol, version, parameters) \
	cu.name = (gm_cu_result(*) parameters)find(route, #name, #symbol, version); \
	if (!cu.name) \
		GM_FAIL("no %s", #symbol);
#endif
	ACTOR_CALLS(FIND)
#undef FIND
}

static gm_cu_ctx use_gpu(void)
{
	gm_cu_ctx ctx;

	CU(cu.cuInit(0));
	CU(cu.cuDevicePrimaryCtxRetain(&ctx, 0));
	CU(cu.cuCtxSetCurrent(ctx));
	return ctx;
}

/* ---- memory */

/* The device writes all of it, and what the CPU reads is that. */
static void use(gm_cu_ptr ptr, size_t bytes, unsigned char value)
{
	unsigned char *copy = malloc(bytes);
	GM_REQUIRE(copy);

	CU(cu.cuMemsetD8Async(ptr, value, bytes, NULL));
	CU(cu.cuMemcpyAsync((gm_cu_ptr)(uintptr_t)copy, ptr, bytes, NULL));
	CU(cu.cuStreamSynchronize(NULL));
	GM_REQUIRE(copy[0] == value && memcmp(copy, copy + 1, bytes - 1) == 0);
	free(copy);
}

/* Shows the test what the daemon has meanwhile. */
static void show(char word)
{
	gm_say_word(ACTOR_CHANNEL, word);
	gm_hear_word(ACTOR_CHANNEL, 'g');
}

static void scene_alloc(void)
{
	gm_cu_ptr a, b;

	use_gpu();
	CU(cu.cuMemAlloc(&a, ACTOR_BYTES));
	CU(cu.cuMemAlloc(&b, 1));
	GM_REQUIRE_EQ(a % 512 + b % 512, 0);
	use(a, ACTOR_BYTES, 0x5a);
	show('h');

	/* Wrong calls get the driver's own errors. */
	gm_cu_ptr none; /* the driver may write to it, although it fails */
	GM_REQUIRE_EQ(cu.cuMemAlloc(&none, 0), GM_CUDA_ERROR_INVALID_VALUE);
	GM_REQUIRE_EQ(cu.cuMemFree(a + 512), GM_CUDA_ERROR_INVALID_VALUE);
	CU(cu.cuMemFree(0));
	CU(cu.cuMemFree(b));
	CU(cu.cuMemFree(a));
	GM_REQUIRE_EQ(cu.cuMemFree(a), GM_CUDA_ERROR_INVALID_VALUE);
}

static void scene_pitch(void)
{
	gm_cu_ptr ptr;
	size_t pitch = 0;

	use_gpu();
	CU(cu.cuMemAllocPitch(&ptr, &pitch, 1000, ACTOR_BYTES / 1024, 4));
	GM_REQUIRE(pitch >= 1000 && pitch % 4 == 0);
	use(ptr, pitch * (ACTOR_BYTES / 1024), 0x11);
	show('h');
	CU(cu.cuMemFree(ptr));
	GM_REQUIRE_EQ(cu.cuMemAllocPitch(&ptr, &pitch, 1000, 4, 3), GM_CUDA_ERROR_INVALID_VALUE);
}

static void scene_async(void)
{
	gm_cu_stream stream;
	gm_cu_ptr a, b;
	void *pool;

	use_gpu();
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuDeviceGetDefaultMemPool(&pool, 0));
	CU(cu.cuMemAllocAsync(&a, ACTOR_BYTES, stream));
	CU(cu.cuMemAllocFromPoolAsync(&b, 4096, pool, NULL));
	CU(cu.cuStreamSynchronize(stream));
	use(a, ACTOR_BYTES, 0x22);
	show('h');
	CU(cu.cuMemFreeAsync(a, stream));
	CU(cu.cuMemFree(b));
	GM_REQUIRE(cu.cuMemFreeAsync(a, stream) != GM_CUDA_SUCCESS);
	CU(cu.cuStreamSynchronize(stream));
}

/* ---- pools */

/* Of CUmemPool_attribute. */
enum {
	POOL_FOLLOW_EVENTS = 1,
	POOL_THRESHOLD = 4,
	POOL_RESERVED,
	POOL_RESERVED_HIGH,
	POOL_USED,
	POOL_USED_HIGH,
};

static void *new_pool(int handle_types)
{
	gm_cu_pool_props props = {.type = GM_CU_MEM_ALLOCATION_TYPE_PINNED,
		.handle_types = handle_types,
		.location = {GM_CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	void *pool;

	CU(cu.cuMemPoolCreate(&pool, &props));
	return pool;
}

static uint64_t figure(void *pool, int attribute)
{
	uint64_t value = UINT64_MAX;

	CU(cu.cuMemPoolGetAttribute(pool, attribute, &value));
	return value;
}

/* Marks go down to what there is, and nothing else can be written. */
static void reset_marks(void *pool)
{
	uint64_t zero = 0, five = 5;

	CU(cu.cuMemPoolSetAttribute(pool, POOL_USED_HIGH, &zero));
	CU(cu.cuMemPoolSetAttribute(pool, POOL_RESERVED_HIGH, &zero));
	GM_REQUIRE(cu.cuMemPoolSetAttribute(pool, POOL_USED_HIGH, &five) != GM_CUDA_SUCCESS);
	GM_REQUIRE(cu.cuMemPoolSetAttribute(pool, POOL_USED, &zero) != GM_CUDA_SUCCESS);
	GM_REQUIRE_EQ(figure(pool, POOL_USED_HIGH), figure(pool, POOL_USED));
}

static void keep_settings(void *pool)
{
	uint64_t all = UINT64_MAX;
	int reuse = 0, flags = 0;
	gm_cu_location location = {GM_CU_MEM_LOCATION_TYPE_DEVICE, 0};

	CU(cu.cuMemPoolSetAttribute(pool, POOL_THRESHOLD, &all));
	CU(cu.cuMemPoolSetAttribute(pool, POOL_FOLLOW_EVENTS, &reuse));
	reuse = 1;
	CU(cu.cuMemPoolGetAttribute(pool, POOL_FOLLOW_EVENTS, &reuse));
	GM_REQUIRE_EQ(reuse, 0);
	GM_REQUIRE_EQ(figure(pool, POOL_THRESHOLD), UINT64_MAX);
	CU(cu.cuMemPoolGetAccess(&flags, pool, &location));
	GM_REQUIRE_EQ(flags, GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

/* What is allocated from a pool, and what it says about it. */
static void count_pool(void *pool, gm_cu_stream stream)
{
	uint64_t before = figure(pool, POOL_USED), two = before + 2 * ACTOR_BYTES;
	gm_cu_ptr a, b;
	void *of;

	CU(cu.cuMemAllocFromPoolAsync(&a, ACTOR_BYTES, pool, stream));
	CU(cu.cuMemAllocAsync(&b, ACTOR_BYTES, stream)); /* it is the device's now */
	CU(cu.cuStreamSynchronize(stream));
	CU(cu.cuPointerGetAttribute(&of, 17, a + 1));
	GM_REQUIRE(of == pool);
	GM_REQUIRE(figure(pool, POOL_USED) >= two && figure(pool, POOL_USED_HIGH) >= two);
	GM_REQUIRE(figure(pool, POOL_RESERVED) >= figure(pool, POOL_USED));
	GM_REQUIRE(figure(pool, POOL_RESERVED_HIGH) >= two);
	CU(cu.cuMemFreeAsync(b, stream));
	CU(cu.cuStreamSynchronize(stream));
	GM_REQUIRE(figure(pool, POOL_USED) < two && figure(pool, POOL_USED_HIGH) >= two);
	reset_marks(pool);
	CU(cu.cuMemFree(a));
	GM_REQUIRE_EQ(figure(pool, POOL_USED), before);
}

static void scene_pools(void)
{
	gm_cu_stream stream;
	void *first, *pool, *now;
	gm_cu_ptr a, b;

	use_gpu();
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuDeviceGetDefaultMemPool(&first, 0));
	GM_REQUIRE(cu.cuMemPoolDestroy(first) != GM_CUDA_SUCCESS);
	count_pool(first, stream);

	pool = new_pool(GM_CU_MEM_HANDLE_TYPE_NONE);
	keep_settings(pool);
	CU(cu.cuDeviceSetMemPool(0, pool));
	count_pool(pool, stream);
	GM_REQUIRE_EQ(figure(first, POOL_USED), 0);

	/* What is freed goes back to the daemon when the pool is trimmed. */
	CU(cu.cuMemAllocAsync(&a, ACTOR_BYTES, stream));
	CU(cu.cuMemAllocAsync(&b, ACTOR_BYTES, stream));
	CU(cu.cuStreamSynchronize(stream));
	use(b, ACTOR_BYTES, 0x24);
	show('h');
	CU(cu.cuMemFreeAsync(a, stream));
	CU(cu.cuStreamSynchronize(stream));
	CU(cu.cuMemPoolTrimTo(pool, 0));
	show('t');

	/* A pool that is destroyed leaves what was allocated, and is no device's any more. */
	CU(cu.cuMemPoolDestroy(pool));
	CU(cu.cuDeviceGetMemPool(&now, 0));
	GM_REQUIRE(now == first);
	use(b, ACTOR_BYTES, 0x25);
	CU(cu.cuMemFreeAsync(b, stream));
	CU(cu.cuStreamSynchronize(stream));
	GM_REQUIRE_EQ(figure(first, POOL_USED), 0);
}

/* A program compiled for a default stream of each thread asks so. */
static void scene_per_thread(void)
{
	gm_cu_result (*alloc)(gm_cu_ptr *, size_t, gm_cu_stream);
	gm_cu_result (*release)(gm_cu_ptr, gm_cu_stream);
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	gm_cu_ptr ptr;

	*(void **)&alloc = by_proc2(library, "cuMemAllocAsync", 12000, 2);
	*(void **)&release = by_proc2(library, "cuMemFreeAsync", 12000, 2);
	GM_REQUIRE((void *)alloc != (void *)cu.cuMemAllocAsync);
	use_gpu();
	CU(alloc(&ptr, ACTOR_BYTES, NULL));
	CU(cu.cuStreamSynchronize((gm_cu_stream)GM_CU_STREAM_PER_THREAD));
	use(ptr, ACTOR_BYTES, 0x33);
	show('h');
	CU(release(ptr, NULL));
}

/* ---- what the program is told */

static void scene_figures(void)
{
	size_t total, free_before, free_after, all;
	const char *limit = getenv("GPUMEM_RUN_LIMIT");
	gm_cu_ptr ptr;

	CU(cu.cuInit(0));
	CU(cu.cuDeviceTotalMem(&all, 0));
	use_gpu();
	CU(cu.cuMemGetInfo(&free_before, &total));
	GM_REQUIRE_EQ(total, all);
	GM_REQUIRE(free_before <= total && free_before >= ACTOR_BYTES);
	if (limit)
		GM_REQUIRE_EQ(total, atoll(limit));

	CU(cu.cuMemAlloc(&ptr, ACTOR_BYTES));
	show('h');
	CU(cu.cuMemGetInfo(&free_after, &total));
	GM_REQUIRE(free_after <= free_before);
	if (!limit)
		GM_REQUIRE(free_after + ACTOR_BYTES <= free_before);
	CU(cu.cuMemFree(ptr));
}

/* NVML says the same, before there is a session and with one. */
static void scene_nvml(void)
{
	gm_nvml_return (*init)(void), (*get)(unsigned int, gm_nvml_device *);
	gm_nvml_return (*info)(gm_nvml_device, gm_nvml_memory *);
	gm_nvml_return (*info2)(gm_nvml_device, gm_nvml_memory_v2 *);
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	const char *limit = getenv("GPUMEM_RUN_LIMIT");
	gm_nvml_memory_v2 second = {.version = sizeof second | 2 << 24};
	gm_nvml_memory memory;
	gm_nvml_device device;
	size_t total, free_bytes;
	gm_cu_ptr ptr;

	GM_REQUIRE(library);
	*(void **)&init = dlsym(library, "nvmlInit_v2");
	*(void **)&get = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
	*(void **)&info = dlsym(library, "nvmlDeviceGetMemoryInfo");
	*(void **)&info2 = dlsym(library, "nvmlDeviceGetMemoryInfo_v2");
	CU(init());
	CU(get(0, &device));
	CU(info(device, &memory));
	GM_REQUIRE(memory.free + memory.used == memory.total);
	if (limit)
		GM_REQUIRE_EQ(memory.total, atoll(limit));

	use_gpu();
	CU(cu.cuMemAlloc(&ptr, ACTOR_BYTES));
	show('h');
	CU(cu.cuMemGetInfo(&free_bytes, &total));
	CU(info(device, &memory));
	CU(info2(device, &second));
	GM_REQUIRE_EQ(memory.total, second.total);
	GM_REQUIRE(memory.free + memory.used == memory.total);
	GM_REQUIRE(second.free + second.used + second.reserved == second.total);
	if (limit) {
		GM_REQUIRE_EQ(memory.total, total);
		GM_REQUIRE(memory.used >= ACTOR_BYTES && second.used >= ACTOR_BYTES);
		GM_REQUIRE_EQ(second.reserved, 0);
		GM_REQUIRE_EQ(memory.free, free_bytes);
	}
	second.version = 7;
	GM_REQUIRE(info2(device, &second) != GM_NVML_SUCCESS);
	CU(cu.cuMemFree(ptr));
}

static void scene_pointers(void)
{
	gm_cu_ptr a, b, base = 0, start = 0;
	size_t bytes = 0, range = 0;
	unsigned int kind = 0;
	gm_cu_ctx ctx = use_gpu(), of = NULL;
	unsigned long long ids[2] = {0};
	int attributes[] = {1, 2, 11, 12};
	void *data[] = {&of, &kind, &start, &range};

	CU(cu.cuMemAlloc(&a, ACTOR_BYTES));
	CU(cu.cuMemAlloc(&b, 1000));
	show('h');
	CU(cu.cuMemGetAddressRange(&base, &bytes, a + ACTOR_BYTES - 1));
	GM_REQUIRE(base == a && bytes == ACTOR_BYTES);
	CU(cu.cuMemGetAddressRange(&base, NULL, b + 999));
	GM_REQUIRE(base == b);

	CU(cu.cuPointerGetAttributes(4, attributes, data, a + 12345));
	GM_REQUIRE(of == ctx && kind == GM_CU_MEMORYTYPE_DEVICE);
	GM_REQUIRE(start == a && range == ACTOR_BYTES);
	CU(cu.cuPointerGetAttribute(&ids[0], 7, a + 1));
	CU(cu.cuPointerGetAttribute(&ids[1], 7, b));
	GM_REQUIRE(ids[0] != ids[1]);
	CU(cu.cuPointerGetAttribute(&kind, 2, a + 1));
	GM_REQUIRE_EQ(kind, GM_CU_MEMORYTYPE_DEVICE);

	CU(cu.cuMemFree(a));
	CU(cu.cuMemFree(b));
}

/* ---- waiting, captures, contexts */

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
	gm_say_word(ACTOR_CHANNEL, 'w');
	gm_hear_word(ACTOR_CHANNEL, 'o');
	sem_post(&gate);
	return NULL;
}

/* cuMemFree() returns when the work is done that was launched before. */
static void scene_wait(void)
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

/* What is freed during a capture neither breaks it nor is used by others. */
static void scene_capture(void)
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
static gm_cu_ctx shared_ctx;

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

static void scene_capture_race(void)
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

/* A capture ends with its stream. What is freed afterwards can be had again. */
static void scene_capture_destroyed(void)
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

/* How often the driver is called for a pair that comes from the library's cache. Only the fake driver counts. */
static void scene_calls(void)
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
static void scene_reset(void)
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

/* ---- ends */

static gm_cu_ptr late_ptr;
static char late; /* how the program ends: f, a, e, t, or 0 */

static __attribute__((destructor)) void free_late(void)
{
	/* The driver may have ended before. */
	if (late == 'f')
		(void)cu.cuMemFree(late_ptr);
}

static void *outlive(void *unused)
{
	for (;;) {
		gm_cu_ptr ptr;
		if (cu.cuMemAlloc(&ptr, 4096) == GM_CUDA_SUCCESS)
			(void)cu.cuMemFree(ptr);
	}
	return NULL;
}

static void scene_end(char how)
{
	pthread_t thread;

	use_gpu();
	CU(cu.cuMemAlloc(&late_ptr, ACTOR_BYTES));
	show('h');
	late = how;
	switch (how) {
	case 'a':
		abort();
	case 'e':
		_exit(0);
	case 't':
		/* It goes on while main() returns. */
		GM_REQUIRE(pthread_create(&thread, NULL, outlive, NULL) == 0);
		break;
	}
}

static void scene_destructor(void)
{
	scene_end('f');
}
static void scene_abort(void)
{
	scene_end('a');
}
static void scene_exit(void)
{
	scene_end('e');
}
static void scene_thread(void)
{
	scene_end('t');
}

/* ---- processes */

/* A child without exec() has the driver's own answer, and does its parent's memory no harm. */
static void scene_fork(void)
{
	gm_cu_ptr ptr, other;
	int status;

	use_gpu();
	CU(cu.cuMemAlloc(&ptr, ACTOR_BYTES));
	void *pool = new_pool(GM_CU_MEM_HANDLE_TYPE_NONE);
	show('h');
	pid_t child = fork();
	GM_REQUIRE(child >= 0);
	if (child == 0) {
		size_t total, free_bytes;
		GM_REQUIRE_EQ(cu.cuMemAlloc(&other, 4096), GM_CUDA_ERROR_NOT_INITIALIZED);
		GM_REQUIRE_EQ(cu.cuMemFree(ptr), GM_CUDA_ERROR_NOT_INITIALIZED);
		GM_REQUIRE_EQ(cu.cuMemPoolTrimTo(pool, 0), GM_CUDA_ERROR_NOT_INITIALIZED);
		GM_REQUIRE_EQ(cu.cuMemPoolDestroy(pool), GM_CUDA_ERROR_NOT_INITIALIZED);
		GM_REQUIRE_EQ(cu.cuMemGetInfo(&free_bytes, &total), GM_CUDA_ERROR_NOT_INITIALIZED);
		_exit(0);
	}
	GM_REQUIRE(waitpid(child, &status, 0) == child && status == 0);
	use(ptr, ACTOR_BYTES, 0x44);
	CU(cu.cuMemFree(ptr));
}

/* A child of a process that has not used CUDA yet, which then does: both are the broker's. */
static void scene_fork_first(void)
{
	pid_t child = fork();
	int status;

	GM_REQUIRE(child >= 0);
	scene_alloc();
	if (child == 0)
		_exit(0);
	GM_REQUIRE(waitpid(child, &status, 0) == child && status == 0);
}

static void *connect_slowly(void *unused)
{
	gm_cu_ptr ptr;

	CU(cu.cuCtxSetCurrent(shared_ctx));
	GM_REQUIRE(cu.cuMemAlloc(&ptr, ACTOR_BYTES) != GM_CUDA_SUCCESS);
	return NULL;
}

/* A child that is made while another thread waits for the daemon does not wait for that thread. */
static void scene_fork_connect(void)
{
	pthread_t thread;
	gm_cu_ptr ptr;
	int status;

	shared_ctx = use_gpu();
	GM_REQUIRE(pthread_create(&thread, NULL, connect_slowly, NULL) == 0);
	gm_hear_word(ACTOR_CHANNEL, 'g');
	pid_t child = fork();
	GM_REQUIRE(child >= 0);
	if (child == 0) {
		GM_REQUIRE_EQ(cu.cuMemAlloc(&ptr, 4096), GM_CUDA_ERROR_NOT_INITIALIZED);
		_exit(0);
	}
	GM_REQUIRE(waitpid(child, &status, 0) == child && status == 0);
	gm_say_word(ACTOR_CHANNEL, 'f');
	pthread_join(thread, NULL);
}

/* A program that only asks what there is. */
static void scene_idle(void)
{
	size_t all;

	CU(cu.cuInit(0));
	CU(cu.cuDeviceTotalMem(&all, 0));
	show('i');
}

/* There is no daemon. */
static void scene_refused(void)
{
	gm_cu_ptr ptr;

	use_gpu();
	GM_REQUIRE_EQ(cu.cuMemAlloc(&ptr, ACTOR_BYTES), GM_CUDA_ERROR_SYSTEM_NOT_READY);
}

static void scene_plain(void)
{
	gm_cu_ptr ptr;

	use_gpu();
	CU(cu.cuMemAlloc(&ptr, ACTOR_BYTES));
	use(ptr, ACTOR_BYTES, 0x12);
	CU(cu.cuMemFree(ptr));
}

/* Takes all there is, in pieces: what is refused is CUDA_ERROR_OUT_OF_MEMORY, and what is freed can be had
 * again. */
static void scene_fill(void)
{
	gm_cu_ptr ptrs[4096];
	gm_cu_result result = GM_CUDA_SUCCESS;
	size_t n = 0;

	use_gpu();
	while (n < 4096 && (result = cu.cuMemAlloc(&ptrs[n], ACTOR_BYTES)) == GM_CUDA_SUCCESS)
		n++;
	GM_REQUIRE(n > 0);
	GM_REQUIRE_EQ(result, GM_CUDA_ERROR_OUT_OF_MEMORY);
	show('h');
	CU(cu.cuMemFree(ptrs[0]));
	CU(cu.cuMemAlloc(&ptrs[0], ACTOR_BYTES));
	while (n)
		CU(cu.cuMemFree(ptrs[--n]));
}

/* Whatever has nothing to do with the driver is found where the program would find it without us, also by
 * another preloaded library. */
static void scene_beside(void)
{
	int (*calls)(void);

	*(void **)&calls = dlsym(RTLD_DEFAULT, "beside_calls");
	GM_REQUIRE(calls);
	GM_REQUIRE(getppid() > 0);
	GM_REQUIRE_EQ(calls(), 1);
	GM_REQUIRE(dlsym(RTLD_DEFAULT, "getpagesize") == dlsym(RTLD_NEXT, "getpagesize"));
	(void)dlerror();
	GM_REQUIRE(!dlsym(RTLD_DEFAULT, "cuNothingOfThatName") && dlerror());
	scene_alloc();
}

/* Another library stands before ours, and stands in for a call of the driver's: it is found first, and what it
 * finds behind itself is ours. */
static void scene_before(void)
{
	gm_cu_result (*info)(size_t *, size_t *);
	size_t free_bytes, total;
	int (*calls)(void);

	*(void **)&calls = dlsym(RTLD_DEFAULT, "beside_calls");
	*(void **)&info = dlsym(RTLD_DEFAULT, "cuMemGetInfo_v2");
	use_gpu();
	CU(info(&free_bytes, &total));
	GM_REQUIRE_EQ(calls(), 1);
	GM_REQUIRE_EQ(total, atoll(getenv("GPUMEM_RUN_LIMIT")));
	CU(cu.cuMemGetInfo(&free_bytes, &total));
	GM_REQUIRE_EQ(calls(), 1);
	GM_REQUIRE_EQ(total, atoll(getenv("GPUMEM_RUN_LIMIT")));
}

/* The size of a GPU that the daemon does not serve is the driver's. */
static void scene_unserved(void)
{
	size_t all;

	CU(cu.cuInit(0));
	CU(cu.cuDeviceTotalMem(&all, 0));
	GM_REQUIRE((long long)all > atoll(getenv("GPUMEM_RUN_LIMIT")));
	GM_REQUIRE(cu.cuDeviceTotalMem(NULL, 0) != GM_CUDA_SUCCESS);
	use_gpu();
	(void)cu.cuMemGetInfo(NULL, NULL); /* whatever the driver says */
	(void)cu.cuMemGetInfo(&all, NULL);
}

/* ---- a full device */

static void copy_through(gm_cu_ptr ptr, size_t bytes)
{
	unsigned char *from = malloc(bytes), *to = calloc(1, bytes);
	GM_REQUIRE(from && to);

	for (size_t i = 0; i < bytes; i++)
		from[i] = (unsigned char)(i * 31 >> 4);
	CU(cu.cuMemcpyAsync(ptr, (gm_cu_ptr)(uintptr_t)from, bytes, NULL));
	CU(cu.cuMemcpyAsync((gm_cu_ptr)(uintptr_t)to, ptr, bytes, NULL));
	CU(cu.cuStreamSynchronize(NULL));
	GM_REQUIRE(memcmp(from, to, bytes) == 0);
	free(from);
	free(to);
}

/* What no longer fits lies in host memory, and looks like memory of the device. */
static void scene_spill(void)
{
	gm_cu_ptr ptrs[SPILLED], async, base;
	unsigned int kind = 0;
	gm_cu_stream stream;
	size_t bytes;
	int device = -1;

	gm_cu_ctx ctx = use_gpu(), of = NULL;
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	for (size_t i = 0; i < SPILLED; i++)
		CU(cu.cuMemAlloc(&ptrs[i], ACTOR_BYTES));
	show('h');

	gm_cu_ptr last = ptrs[SPILLED - 1];
	copy_through(last, ACTOR_BYTES);
	CU(cu.cuPointerGetAttribute(&kind, 2, last + 100));
	GM_REQUIRE_EQ(kind, GM_CU_MEMORYTYPE_DEVICE);
	CU(cu.cuPointerGetAttribute(&device, 9, last));
	GM_REQUIRE_EQ(device, 0);
	CU(cu.cuPointerGetAttribute(&of, 1, last));
	GM_REQUIRE(of == ctx);
	CU(cu.cuMemGetAddressRange(&base, &bytes, last + 1));
	GM_REQUIRE(base == last && bytes == ACTOR_BYTES);

	CU(cu.cuMemAllocAsync(&async, ACTOR_BYTES, stream));
	copy_through(async, ACTOR_BYTES);
	CU(cu.cuMemFreeAsync(async, stream));
	for (size_t i = 0; i < SPILLED; i++)
		CU(cu.cuMemFree(ptrs[i]));
	GM_REQUIRE(cu.cuMemFree(last) != GM_CUDA_SUCCESS);
}

static _Atomic int signals;
static sem_t signalled;

static void on_signal(int number)
{
	signals++;
	sem_post(&signalled);
}

/* The program is told that the device is full: once. */
static void scene_pressure(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	size_t n = 0;
	gm_cu_ptr ptr;

	use_gpu();
	GM_REQUIRE(sem_init(&signalled, 0, 0) == 0);
	GM_REQUIRE(sigaction(SIGUSR2, &action, NULL) == 0);
	while (n < 4096 && cu.cuMemAlloc(&ptr, ACTOR_BYTES) == GM_CUDA_SUCCESS)
		n++;
	while (sem_wait(&signalled) < 0)
		;
	GM_REQUIRE_EQ(signals, 1);
	for (int i = 0; i < 50; i++)
		GM_REQUIRE(cu.cuMemAlloc(&ptr, ACTOR_BYTES) != GM_CUDA_SUCCESS);
	GM_REQUIRE_EQ(signals, 1);
}

/* A program without the driver finds none of its functions: it would take them for a driver. */
static void scene_no_driver(void)
{
	void *self = dlopen(NULL, RTLD_NOW);

	(void)dlerror();
	GM_REQUIRE(!dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") && dlerror());
	GM_REQUIRE(!dlsym(self, "cuMemAlloc_v2") && dlerror());
	GM_REQUIRE(!dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2") && dlerror());
}

/*
 * With more rights than its user. The dynamic linker leaves out what LD_PRELOAD names then, but not what
 * /etc/ld.so.preload does: the library is loaded here as it would be by that, and hands everything on.
 */
static void scene_secure(void)
{
	void *driver = dlopen(getenv("SECURE_DRIVER"), RTLD_NOW | RTLD_GLOBAL);
	void *library = dlopen(getenv("SECURE_LIBRARY"), RTLD_NOW | RTLD_GLOBAL);
	size_t plain, ours;
	gm_cu_ptr ptr;

	gm_say_word(ACTOR_CHANNEL, getauxval(AT_SECURE) ? 's' : 'n');
	if (!getauxval(AT_SECURE))
		return;
	if (!driver || !library)
		GM_FAIL("%s", dlerror());
#define FIND_SECURE(name, symbol, version, parameters) \
	cu.name = (gm_cu_result(*) parameters)dlsym(driver, #symbol);
	ACTOR_CALLS(FIND_SECURE)
#undef FIND_SECURE
	use_gpu();
	CU(cu.cuDeviceTotalMem(&plain, 0));
	*(void **)&cu.cuDeviceTotalMem = dlsym(library, "cuDeviceTotalMem_v2");
	*(void **)&cu.cuMemAlloc = dlsym(library, "cuMemAlloc_v2");
	*(void **)&cu.cuMemFree = dlsym(library, "cuMemFree_v2");
	CU(cu.cuDeviceTotalMem(&ours, 0));
	GM_REQUIRE_EQ(ours, plain);
	CU(cu.cuMemAlloc(&ptr, ACTOR_BYTES));
	show('i');
	CU(cu.cuMemFree(ptr));
}

/* Memory that the driver makes, and says so: it is not the broker's. */
static void scene_passed(void)
{
	gm_cu_prop prop = {.type = GM_CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {GM_CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	gm_cu_mem handle;

	gm_cu_ptr ptr;

	/* Only a program that also has memory of the broker's has a session that can say so. */
	use_gpu();
	CU(cu.cuMemCreate(&handle, ACTOR_PIECE, &prop, 0));
	CU(cu.cuMemRelease(handle));
	if (getenv("ACTOR_SHOWS")) {
		CU(cu.cuMemAlloc(&ptr, ACTOR_BYTES));
		CU(cu.cuMemCreate(&handle, ACTOR_PIECE, &prop, 0));
		CU(cu.cuMemRelease(handle));
		show('h');
	}
}

/* ---- memory that the driver makes, and the daemon charges */

#define FLOATS 0x20

static const gm_cu_array_2d flat = {1024, ACTOR_BYTES / 4096, FLOATS, 1};
static const gm_cu_array solid = {1024, 1024, 4, FLOATS, 1, 0}; /* ACTOR_SOLID */
static const gm_cu_array square = {2048, 2048, 0, FLOATS, 1, 0};

/* Each show() has what the test expects: see check_preload.c. */
static void scene_declared(void)
{
	gm_cu_stream stream;
	gm_cu_ptr managed, ptr;
	void *array, *pool;

	use_gpu();
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuMemAllocManaged(&managed, ACTOR_BYTES, GM_CU_MEM_ATTACH_GLOBAL));
	show('d');
	CU(cu.cuArray3DCreate(&array, &solid));
	show('d');
	CU(cu.cuMemFree(managed));
	show('d');
	CU(cu.cuArrayDestroy(array));
	show('d');

	CU(cu.cuArrayCreate(&array, &flat));
	show('d');
	CU(cu.cuArrayDestroy(array));
	CU(cu.cuMipmappedArrayCreate(&array, &square, 3));
	show('d');
	CU(cu.cuMipmappedArrayDestroy(array));
	show('d');

	pool = new_pool(GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	CU(cu.cuMemAllocFromPoolAsync(&ptr, ACTOR_BYTES, pool, stream));
	show('d');
	CU(cu.cuMemFreeAsync(ptr, stream));
	show('d');
	CU(cu.cuDeviceSetMemPool(0, pool));
	CU(cu.cuMemAllocAsync(&ptr, ACTOR_BYTES, stream));
	show('d');
	CU(cu.cuMemPoolDestroy(pool));
	CU(cu.cuMemFree(ptr));
	show('d');

	/* What is wrong, or fails, is not charged. */
	GM_REQUIRE(cu.cuMemAllocManaged(&ptr, 0, GM_CU_MEM_ATTACH_GLOBAL) != GM_CUDA_SUCCESS);
	GM_REQUIRE(cu.cuMemAllocManaged(&ptr, ACTOR_BYTES, 77) != GM_CUDA_SUCCESS);
	GM_REQUIRE(cu.cuArray3DCreate(&array, &(gm_cu_array){1024, 1024, 6, 77, 1, 0}) !=
		   GM_CUDA_SUCCESS);
	show('d');

	CU(cu.cuMemAllocManaged(&managed, ACTOR_BYTES, GM_CU_MEM_ATTACH_GLOBAL));
	CU(cu.cuArray3DCreate(&array, &solid));
	show('d');
	CU(cu.cuDevicePrimaryCtxReset(0));
	show('d');
}

/* The memory of a graph is charged until the last that has it is gone. */
static void scene_graphs(void)
{
	gm_cu_alloc_node parameters = {.pool = {.type = GM_CU_MEM_ALLOCATION_TYPE_PINNED,
					       .location = {GM_CU_MEM_LOCATION_TYPE_DEVICE, 0}},
		.bytes = ACTOR_BYTES};
	void *graph, *exec, *node;
	gm_cu_stream stream;
	gm_cu_ptr ptr;

	use_gpu();
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuStreamBeginCapture(stream, GM_CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cu.cuMemAllocAsync(&ptr, ACTOR_BYTES, stream));
	CU(cu.cuMemFreeAsync(ptr, stream));
	CU(cu.cuStreamEndCapture(stream, &graph));
	show('d');
	CU(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU(cu.cuGraphDestroy(graph));
	show('d');
	CU(cu.cuGraphExecDestroy(exec));
	show('d');

	CU(cu.cuGraphCreate(&graph, 0));
	CU(cu.cuGraphAddMemAllocNode(&node, graph, NULL, 0, &parameters));
	show('d');
	CU(cu.cuGraphDestroy(graph));
	show('d');

	/* A capture that is broken leaves nothing. */
	CU(cu.cuStreamBeginCapture(stream, GM_CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cu.cuMemAllocAsync(&ptr, ACTOR_BYTES, stream));
	GM_REQUIRE(cu.cuStreamSynchronize(stream) != GM_CUDA_SUCCESS);
	GM_REQUIRE(cu.cuStreamEndCapture(stream, &graph) != GM_CUDA_SUCCESS);
	show('d');
}

/* With a limit of 64 MiB, of which the library caches a part. */
static void scene_declared_limit(void)
{
	gm_cu_ptr a, b, more;
	void *array;

	use_gpu();
	CU(cu.cuMemAlloc(&a, ACTOR_BYTES));
	CU(cu.cuMemFree(a));
	CU(cu.cuMemAllocManaged(&a, ACTOR_BYTES, GM_CU_MEM_ATTACH_GLOBAL));
	CU(cu.cuMemAllocManaged(&b, ACTOR_BYTES, GM_CU_MEM_ATTACH_GLOBAL));
	/* The driver is not asked: a fake one would say something else. */
	setenv("GPUMEM_FAKE_FAIL", "cuMemAllocManaged:0:999,cuArrayCreate:0:999", 1);
	GM_REQUIRE_EQ(cu.cuMemAllocManaged(&more, ACTOR_BYTES, GM_CU_MEM_ATTACH_GLOBAL),
		GM_CUDA_ERROR_OUT_OF_MEMORY);
	GM_REQUIRE_EQ(cu.cuArrayCreate(&array, &flat), GM_CUDA_ERROR_OUT_OF_MEMORY);
	unsetenv("GPUMEM_FAKE_FAIL");
	GM_REQUIRE_EQ(cu.cuMipmappedArrayCreate(&array, &square, 3), GM_CUDA_ERROR_OUT_OF_MEMORY);
	GM_REQUIRE_EQ(cu.cuMemAlloc(&more, ACTOR_BYTES), GM_CUDA_ERROR_OUT_OF_MEMORY);
	show('d');
	CU(cu.cuMemFree(b));
	CU(cu.cuArrayCreate(&array, &flat));
	CU(cu.cuArrayDestroy(array));
	CU(cu.cuMemAlloc(&b, ACTOR_BYTES));
	use(b, ACTOR_BYTES, 0x31);
	CU(cu.cuMemFree(b));
	CU(cu.cuMemFree(a));
}

/* ---- pinned host memory */

/* As the driver says it of its own. */
static void require_pinned(char *ptr, size_t bytes, unsigned int expected_flags, gm_cu_ctx ctx)
{
	gm_cu_ptr at = (gm_cu_ptr)(uintptr_t)ptr, base = 0, device = 0;
	unsigned int kind = 0, flags = 99;
	gm_cu_ctx of = NULL;
	size_t size = 0;

	CU(cu.cuMemHostGetFlags(&flags, ptr));
	GM_REQUIRE_EQ(flags, expected_flags);
	CU(cu.cuMemHostGetDevicePointer(&device, ptr, 0));
	GM_REQUIRE(device == at);
	CU(cu.cuPointerGetAttribute(&kind, GM_CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + 1));
	GM_REQUIRE_EQ(kind, GM_CU_MEMORYTYPE_HOST);
	CU(cu.cuPointerGetAttribute(&of, 1, at));
	GM_REQUIRE(of == ctx);
	CU(cu.cuMemGetAddressRange(&base, &size, at + bytes / 2));
	GM_REQUIRE(base == at && size == bytes);
}

/* The CPU writes, the device copies, and sets all of it. */
static void use_pinned(char *ptr, size_t bytes)
{
	gm_cu_ptr device;

	memset(ptr, 0x61, bytes);
	CU(cu.cuMemAlloc(&device, bytes));
	CU(cu.cuMemcpyAsync(device, (gm_cu_ptr)(uintptr_t)ptr, bytes, NULL));
	CU(cu.cuMemsetD8Async((gm_cu_ptr)(uintptr_t)ptr, 0x62, bytes, NULL));
	CU(cu.cuStreamSynchronize(NULL));
	GM_REQUIRE(ptr[0] == 0x62 && memcmp(ptr, ptr + 1, bytes - 1) == 0);
	CU(cu.cuMemcpyAsync((gm_cu_ptr)(uintptr_t)ptr, device, bytes, NULL));
	CU(cu.cuStreamSynchronize(NULL));
	GM_REQUIRE(ptr[0] == 0x61 && memcmp(ptr, ptr + 1, bytes - 1) == 0);
	CU(cu.cuMemFree(device));
}

static void scene_pinned(void)
{
	gm_cu_ctx ctx = use_gpu();
	void *a, *b, *c;

	CU(cu.cuMemHostAlloc(&a, ACTOR_PIECE, 1));
	CU(cu.cuMemAllocHost(&b, 1000));
	require_pinned(a, ACTOR_PIECE, 3, ctx);
	require_pinned(b, 1000, 2, ctx);
	use_pinned(a, ACTOR_PIECE);
	use_pinned(b, 1000);
	show('p');

	GM_REQUIRE(cu.cuMemFree((gm_cu_ptr)(uintptr_t)a) != GM_CUDA_SUCCESS);
	GM_REQUIRE_EQ(cu.cuMemFreeHost((char *)a + 8), GM_CUDA_ERROR_INVALID_VALUE);
	CU(cu.cuMemFreeHost(a));
	GM_REQUIRE_EQ(cu.cuMemFreeHost(a), GM_CUDA_ERROR_INVALID_VALUE);
	CU(cu.cuMemFreeHost(b));

	/* Some kinds are the driver's. */
	CU(cu.cuMemHostAlloc(&c, ACTOR_PIECE, 4));
	unsigned int flags;
	CU(cu.cuMemHostGetFlags(&flags, c));
	GM_REQUIRE_EQ(flags, 6);
	CU(cu.cuMemFreeHost(c));
	GM_REQUIRE_EQ(cu.cuMemHostAlloc(&c, 64, 8), GM_CUDA_ERROR_INVALID_VALUE);

	/* However large it is, the device can set all of it. */
	CU(cu.cuMemHostAlloc(&a, 2 * ACTOR_BYTES, 0));
	use_pinned(a, 2 * ACTOR_BYTES);
	CU(cu.cuMemFreeHost(a));
}

/* Several threads that allocate, ask and free at once. */
#define THREADS 6

static void *work(void *argument)
{
	size_t seed = (size_t)(uintptr_t)argument;
	gm_cu_ptr ptrs[8] = {0}, base;

	CU(cu.cuCtxSetCurrent(shared_ctx));
	for (int i = 0; i < 400; i++) {
		gm_cu_ptr *ptr = &ptrs[i % 8];
		size_t bytes = 4096 * (1 + (seed = seed * 69069 + 12345) % 64), found;
		if (*ptr)
			CU(i % 3 ? cu.cuMemFree(*ptr)
				 : cu.cuMemFreeAsync(*ptr, (gm_cu_stream)GM_CU_STREAM_PER_THREAD));
		CU(i % 2 ? cu.cuMemAlloc(ptr, bytes)
			 : cu.cuMemAllocAsync(ptr, bytes, (gm_cu_stream)GM_CU_STREAM_PER_THREAD));
		CU(cu.cuMemGetAddressRange(&base, &found, *ptr + bytes / 2));
		GM_REQUIRE(base == *ptr && found == bytes);
	}
	for (int i = 0; i < 8; i++)
		CU(cu.cuMemFree(ptrs[i]));
	return NULL;
}

/* The same with pools that come and go, of which one is everybody's. */
static void *shared_pool;

static void *work_pools(void *argument)
{
	gm_cu_stream stream = (gm_cu_stream)GM_CU_STREAM_PER_THREAD;
	gm_cu_ptr a, b;

	CU(cu.cuCtxSetCurrent(shared_ctx));
	for (int i = 0; i < 100; i++) {
		void *own = new_pool(GM_CU_MEM_HANDLE_TYPE_NONE);
		CU(cu.cuMemAllocFromPoolAsync(&a, 65536, own, stream));
		CU(cu.cuMemAllocFromPoolAsync(&b, 4096, shared_pool, stream));
		GM_REQUIRE(figure(own, POOL_USED) >= 65536);
		GM_REQUIRE(figure(shared_pool, POOL_USED_HIGH) >= 4096);
		CU(cu.cuMemPoolDestroy(own));
		CU(cu.cuMemFreeAsync(a, stream));
		CU(i % 2 ? cu.cuMemFree(b) : cu.cuMemFreeAsync(b, stream));
		CU(cu.cuMemPoolTrimTo(shared_pool, i % 2 ? 0 : ACTOR_BYTES));
	}
	return argument;
}

static void scene_pool_threads(void)
{
	pthread_t threads[THREADS];

	shared_ctx = use_gpu();
	shared_pool = new_pool(GM_CU_MEM_HANDLE_TYPE_NONE);
	for (size_t i = 0; i < THREADS; i++)
		GM_REQUIRE(pthread_create(&threads[i], NULL, work_pools, NULL) == 0);
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	CU(cu.cuCtxSynchronize());
	GM_REQUIRE_EQ(figure(shared_pool, POOL_USED), 0);
	CU(cu.cuMemPoolDestroy(shared_pool));
}

static void scene_threads(void)
{
	pthread_t threads[THREADS];

	shared_ctx = use_gpu();
	for (size_t i = 0; i < THREADS; i++)
		GM_REQUIRE(
			pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(i + 1)) == 0);
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

/* One of many that want more together than there is. */
static void scene_race(void)
{
	gm_cu_ptr ptr;

	use_gpu();
	gm_cu_result result = cu.cuMemAlloc(&ptr, ACTOR_PIECE);
	GM_REQUIRE(result == GM_CUDA_SUCCESS || result == GM_CUDA_ERROR_OUT_OF_MEMORY);
	gm_say_word(ACTOR_CHANNEL, result == GM_CUDA_SUCCESS ? 'y' : 'n');
	gm_hear_word(ACTOR_CHANNEL, 'g');
	if (result == GM_CUDA_SUCCESS)
		CU(cu.cuMemFree(ptr));
}

/* The daemon restarts while it is shown what there is. */
static void scene_restart(void)
{
	gm_cu_ptr a, b, c;

	use_gpu();
	CU(cu.cuMemAlloc(&a, ACTOR_BYTES));
	show('h');
	CU(cu.cuMemAlloc(&b, ACTOR_BYTES));
	use(a, ACTOR_BYTES, 1);
	use(b, ACTOR_BYTES, 2);
	GM_REQUIRE_EQ(cu.cuMemAlloc(&c, ACTOR_BYTES), GM_CUDA_ERROR_OUT_OF_MEMORY);
	CU(cu.cuMemFree(a));
	CU(cu.cuMemAlloc(&c, ACTOR_BYTES));
	CU(cu.cuMemFree(b));
	CU(cu.cuMemFree(c));
}

static const struct {
	const char *name;
	void (*scene)(void);
} scenes[] = {
	{"alloc", scene_alloc},
	{"pitch", scene_pitch},
	{"async", scene_async},
	{"pools", scene_pools},
	{"pool-threads", scene_pool_threads},
	{"per-thread", scene_per_thread},
	{"figures", scene_figures},
	{"nvml", scene_nvml},
	{"pointers", scene_pointers},
	{"wait", scene_wait},
	{"capture", scene_capture},
	{"capture-race", scene_capture_race},
	{"capture-destroyed", scene_capture_destroyed},
	{"calls", scene_calls},
	{"reset", scene_reset},
	{"destructor", scene_destructor},
	{"abort", scene_abort},
	{"exit", scene_exit},
	{"thread", scene_thread},
	{"fork", scene_fork},
	{"fork-first", scene_fork_first},
	{"fork-connect", scene_fork_connect},
	{"idle", scene_idle},
	{"refused", scene_refused},
	{"plain", scene_plain},
	{"fill", scene_fill},
	{"beside", scene_beside},
	{"before", scene_before},
	{"unserved", scene_unserved},
	{"spill", scene_spill},
	{"pressure", scene_pressure},
	{"no-driver", scene_no_driver},
	{"race", scene_race},
	{"passed", scene_passed},
	{"declared", scene_declared},
	{"graphs", scene_graphs},
	{"declared-limit", scene_declared_limit},
	{"pinned", scene_pinned},
	{"secure", scene_secure},
	{"threads", scene_threads},
	{"restart", scene_restart},
};

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	if (strcmp(argv[1], "none") != 0)
		find_all(argv[1]);
	for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
		if (strcmp(scenes[i].name, argv[2]) == 0) {
			scenes[i].scene();
			return 0;
		}
	return 2;
}
