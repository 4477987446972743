/* SPDX-License-Identifier: Apache-2.0 */
/* See preload_actor.h. A scene that fails ends the program and says why. */
#include "tests/gpu/preload_scenes.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct actor_calls cu;
gm_cu_ctx shared_ctx;

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

gm_cu_ctx use_gpu(void)
{
	gm_cu_ctx ctx;

	CU(cu.cuInit(0));
	CU(cu.cuDevicePrimaryCtxRetain(&ctx, 0));
	CU(cu.cuCtxSetCurrent(ctx));
	return ctx;
}

/* ---- memory */

void use(gm_cu_ptr ptr, size_t bytes, unsigned char value)
{
	unsigned char *copy = malloc(bytes);
	GM_REQUIRE(copy);

	CU(cu.cuMemsetD8Async(ptr, value, bytes, NULL));
	CU(cu.cuMemcpyAsync((gm_cu_ptr)(uintptr_t)copy, ptr, bytes, NULL));
	CU(cu.cuStreamSynchronize(NULL));
	GM_REQUIRE(copy[0] == value && memcmp(copy, copy + 1, bytes - 1) == 0);
	free(copy);
}

void show(char word)
{
	gm_text_say_word(ACTOR_CHANNEL, word);
	gm_hear_word(ACTOR_CHANNEL, 'g');
}

void scene_alloc(void)
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

/* All of it has this value. */
static void expect(gm_cu_ptr ptr, size_t bytes, unsigned char value)
{
	unsigned char *copy = malloc(bytes);
	GM_REQUIRE(copy);

	CU(cu.cuMemcpyAsync((gm_cu_ptr)(uintptr_t)copy, ptr, bytes, NULL));
	CU(cu.cuStreamSynchronize(NULL));
	GM_REQUIRE(copy[0] == value && memcmp(copy, copy + 1, bytes - 1) == 0);
	free(copy);
}

#define IPC_SMALL 4096

/* What goes to the process that opens. */
struct ipc_handles {
	gm_cu_ipc_mem large, small;
};

/* The process that opens what the other one has made, and may free meanwhile. */
static void ipc_child(int other)
{
	struct ipc_handles handles;
	gm_cu_ipc_mem wrong;
	gm_cu_ptr ptr, again, small, base;
	gm_cu_stream stream;
	void *graph = NULL;
	size_t bytes;

	GM_REQUIRE(read(other, &handles, sizeof handles) == sizeof handles);
	use_gpu();
	GM_REQUIRE_EQ(cu.cuIpcOpenMemHandle(&ptr, handles.large, 0), GM_CUDA_ERROR_INVALID_VALUE);
	CU(cu.cuIpcOpenMemHandle(&ptr, handles.large, GM_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	CU(cu.cuIpcOpenMemHandle(&again, handles.large, GM_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	GM_REQUIRE(ptr == again);
	CU(cu.cuIpcOpenMemHandle(&small, handles.small, GM_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	CU(cu.cuMemGetAddressRange(&base, &bytes, ptr + 4096));
	GM_REQUIRE(base == ptr && bytes == ACTOR_BYTES);
	CU(cu.cuMemGetAddressRange(&base, &bytes, small + 1));
	GM_REQUIRE(base == small && bytes == IPC_SMALL);
	expect(ptr, ACTOR_BYTES, 0x61);
	expect(small, IPC_SMALL, 0x71);
	use(ptr, ACTOR_BYTES, 0x62);
	use(small, IPC_SMALL, 0x72);
	CU(cu.cuIpcCloseMemHandle(ptr));

	/* Guesses: of a token, of more than there is; and a handle that is nobody's. */
	wrong = handles.large;
	wrong.reserved[20] ^= 1;
	GM_REQUIRE_EQ(cu.cuIpcOpenMemHandle(&again, wrong, 1), GM_CUDA_ERROR_INVALID_HANDLE);
	wrong = handles.large;
	wrong.reserved[38] ^= 1;
	GM_REQUIRE_EQ(cu.cuIpcOpenMemHandle(&again, wrong, 1), GM_CUDA_ERROR_INVALID_HANDLE);
	memset(&wrong, 0, sizeof wrong);
	GM_REQUIRE(cu.cuIpcOpenMemHandle(&again, wrong, 1) != GM_CUDA_SUCCESS);

	gm_text_say_word(other, 'w');
	gm_hear_word(other, 'f');
	expect(ptr, ACTOR_BYTES, 0x62);
	expect(small, IPC_SMALL, 0x72);
	GM_REQUIRE_EQ(cu.cuMemFree(ptr), GM_CUDA_ERROR_INVALID_VALUE);
	GM_REQUIRE_EQ(cu.cuIpcGetMemHandle(&wrong, ptr), GM_CUDA_ERROR_INVALID_VALUE);
	GM_REQUIRE_EQ(cu.cuIpcCloseMemHandle(ptr + 4096), GM_CUDA_ERROR_INVALID_VALUE);
	CU(cu.cuIpcCloseMemHandle(ptr));
	GM_REQUIRE(cu.cuIpcCloseMemHandle(ptr) != GM_CUDA_SUCCESS);
	expect(small, IPC_SMALL, 0x72);

	/* During a capture too, which goes on. */
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuStreamBeginCapture(stream, GM_CU_STREAM_CAPTURE_MODE_RELAXED));
	CU(cu.cuIpcCloseMemHandle(small));
	CU(cu.cuStreamEndCapture(stream, &graph));
	GM_REQUIRE(cu.cuIpcCloseMemHandle(small) != GM_CUDA_SUCCESS);
	_exit(0);
}

/* Two processes share allocations, as those of torch.multiprocessing do. */
static void scene_ipc(void)
{
	struct ipc_handles handles;
	gm_cu_ipc_mem again;
	int ends[2], status;
	gm_cu_ptr ptr, small, beside, ordered, other;

	GM_REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
	pid_t child = fork();
	GM_REQUIRE(child >= 0);
	close(ends[child == 0 ? 0 : 1]);
	if (child == 0)
		ipc_child(ends[1]);

	use_gpu();
	CU(cu.cuMemAlloc(&beside, IPC_SMALL));
	CU(cu.cuMemAlloc(&small, IPC_SMALL));
	CU(cu.cuMemAlloc(&ptr, ACTOR_BYTES));
	use(ptr, ACTOR_BYTES, 0x61);
	use(small, IPC_SMALL, 0x71);
	use(beside, IPC_SMALL, 0x51);
	CU(cu.cuIpcGetMemHandle(&handles.small, small));
	CU(cu.cuIpcGetMemHandle(&again, beside));
	GM_REQUIRE(memcmp(&handles.small, &again, sizeof again) != 0);
	CU(cu.cuIpcGetMemHandle(&handles.large, ptr));
	CU(cu.cuIpcGetMemHandle(&again, ptr + 4096));
	GM_REQUIRE(memcmp(&handles.large, &again, sizeof again) == 0);
	GM_REQUIRE_EQ(
		cu.cuIpcOpenMemHandle(&other, handles.large, 1), GM_CUDA_ERROR_INVALID_CONTEXT);
	/* As the driver's pools: memory in stream order has no handle. */
	CU(cu.cuMemAllocAsync(&ordered, 4096, NULL));
	GM_REQUIRE_EQ(cu.cuIpcGetMemHandle(&again, ordered), GM_CUDA_ERROR_INVALID_VALUE);
	CU(cu.cuMemFreeAsync(ordered, NULL));
	show('h');
	GM_REQUIRE(write(ends[0], &handles, sizeof handles) == sizeof handles);
	gm_hear_word(ends[0], 'w');
	expect(ptr, ACTOR_BYTES, 0x62);
	expect(small, IPC_SMALL, 0x72);
	expect(beside, IPC_SMALL, 0x51);
	CU(cu.cuIpcGetMemHandle(&again, small));
	GM_REQUIRE(memcmp(&handles.small, &again, sizeof again) == 0);
	CU(cu.cuMemFree(ptr));
	CU(cu.cuMemFree(small));
	GM_REQUIRE(cu.cuIpcGetMemHandle(&again, ptr) != GM_CUDA_SUCCESS);
	gm_text_say_word(ends[0], 'f');
	GM_REQUIRE(waitpid(child, &status, 0) == child && status == 0);
	expect(beside, IPC_SMALL, 0x51);
	CU(cu.cuMemFree(beside));
}

/* A program that only asks what there is. */
static void scene_idle(void)
{
	size_t all;

	CU(cu.cuInit(0));
	CU(cu.cuDeviceTotalMem(&all, 0));
	show('i');
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

/* A library that was loaded for itself alone finds the driver that it is linked with. The program does not. */
static void scene_local(void)
{
	void *library = dlopen(getenv("LOCAL_LIBRARY"), RTLD_NOW | RTLD_LOCAL), *found;
	void *(*find_there)(const char *);
	gm_cu_result (*init)(void);
	Dl_info info;

	if (!library)
		GM_FAIL("%s", dlerror());
	*(void **)&find_there = dlsym(library, "local_find");
	*(void **)&init = dlsym(library, "local_init");
	CU(init());
	found = find_there("cuMemAlloc_v2");
	GM_REQUIRE(found && dladdr(found, &info) && strstr(info.dli_fname, "libgpumem-preload"));
	GM_REQUIRE(!dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
}

/* The size of a GPU that the daemon does not serve is the driver's. */
static void scene_unserved(void)
{
	size_t all;

	CU(cu.cuInit(0));
	CU(cu.cuDeviceTotalMem(&all, 0));
	GM_REQUIRE((long long)all > atoll(getenv("GPUMEM_RUN_LIMIT")));
	GM_REQUIRE((long long)nvml_total() > atoll(getenv("GPUMEM_RUN_LIMIT")));
	GM_REQUIRE(cu.cuDeviceTotalMem(NULL, 0) != GM_CUDA_SUCCESS);
	use_gpu();
	/* Whatever the driver says. What a real one does with it, nobody documents. */
	if (getenv("GPUMEM_FAKE_DIR")) {
		(void)cu.cuMemGetInfo(NULL, NULL);
		(void)cu.cuMemGetInfo(&all, NULL);
	}
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

/* Nor does a library of it. dlerror() says so: without that, NULL would be the address. */
static void scene_no_driver_beside(void)
{
	void *(*find_there)(const char *);

	*(void **)&find_there = dlsym(RTLD_DEFAULT, "beside_find");
	GM_REQUIRE(find_there);
	(void)dlerror();
	GM_REQUIRE(!find_there("cuMemAlloc_v2") && dlerror());
	GM_REQUIRE(!find_there("nvmlDeviceGetMemoryInfo") && dlerror());
	GM_REQUIRE(find_there("getppid") && !dlerror());
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

	gm_text_say_word(ACTOR_CHANNEL, getauxval(AT_SECURE) ? 's' : 'n');
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
		.location = {GM_CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}};
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

static const struct {
	const char *name;
	void (*scene)(void);
} scenes[] = {
	{"alloc", scene_alloc},
	{"pitch", scene_pitch},
	{"async", scene_async},
	{"pools", scene_pools},
	{"pools-trimmed", scene_pools_trimmed},
	{"pool-threads", scene_pool_threads},
	{"per-thread", scene_per_thread},
	{"physical", scene_physical},
	{"physical-restart", scene_physical_restart},
	{"physical-wrong", scene_physical_wrong},
	{"figures", scene_figures},
	{"nvml", scene_nvml},
	{"pointers", scene_pointers},
	{"wait", scene_wait},
	{"capture", scene_capture},
	{"capture-full", scene_capture_full},
	{"capture-room", scene_capture_room},
	{"capture-race", scene_capture_race},
	{"capture-after-free", scene_capture_after_free},
	{"capture-cancel", scene_capture_cancel},
	{"capture-first", scene_capture_first},
	{"capture-pinned", scene_capture_pinned},
	{"capture-destroyed", scene_capture_destroyed},
	{"capture-destroying", scene_capture_destroying},
	{"capture-joined", scene_capture_joined},
	{"calls", scene_calls},
	{"reset", scene_reset},
	{"destructor", scene_destructor},
	{"dlclose", scene_dlclose},
	{"abort", scene_abort},
	{"exit", scene_exit},
	{"thread", scene_thread},
	{"fork", scene_fork},
	{"fork-first", scene_fork_first},
	{"fork-connect", scene_fork_connect},
	{"ipc", scene_ipc},
	{"idle", scene_idle},
	{"refused", scene_refused},
	{"plain", scene_plain},
	{"fill", scene_fill},
	{"beside", scene_beside},
	{"before", scene_before},
	{"local", scene_local},
	{"unserved", scene_unserved},
	{"spill", scene_spill},
	{"pressure", scene_pressure},
	{"no-driver", scene_no_driver},
	{"no-driver-beside", scene_no_driver_beside},
	{"race", scene_race},
	{"passed", scene_passed},
	{"declared", scene_declared},
	{"graphs", scene_graphs},
	{"graphs-end", scene_graphs_end},
	{"green", scene_green},
	{"across", scene_across},
	{"across-capture", scene_across_capture},
	{"across-cancel", scene_across_cancel},
	{"two-capture", scene_two_capture},
	{"declared-threads", scene_declared_threads},
	{"declared-limit", scene_declared_limit},
	{"pinned", scene_pinned},
	{"secure", scene_secure},
	{"threads", scene_threads},
	{"restart", scene_restart},
	{"failing-memory", scene_failing_memory},
	{"failing-others", scene_failing_others},
	{"odd-files", scene_odd_files},
	{"odd-stacks", scene_odd_stacks},
	{"odd-cancel", scene_odd_cancel},
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
