/* SPDX-License-Identifier: Apache-2.0 */
/* See preload_actor.h: programs that do what few do, and may. */
#include "tests/gpu/preload_scenes.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- limits of the process */

/* What the driver says if it cannot open a file. What was granted meanwhile goes back. */
void scene_odd_files(void)
{
	struct rlimit before, none;
	gm_cu_ptr a, b;

	use_gpu();
	CU(cu.cuMemAlloc(&a, ACTOR_BYTES));
	show('h');
	int next = dup(ACTOR_CHANNEL);
	GM_REQUIRE(next >= 0 && close(next) == 0 && getrlimit(RLIMIT_NOFILE, &before) == 0);
	none = before;
	none.rlim_cur = (rlim_t)next;
	GM_REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
	GM_REQUIRE_EQ(cu.cuMemAlloc(&b, 2 * ACTOR_BYTES), GM_CUDA_ERROR_OPERATING_SYSTEM);
	show('f');
	GM_REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
	CU(cu.cuMemAlloc(&b, 2 * ACTOR_BYTES));
	use(b, 2 * ACTOR_BYTES, 0x31);
	CU(cu.cuMemFree(a));
	CU(cu.cuMemFree(b));
}

/* Threads that name no size of their stack get the smallest one that there is. Those of the library, too. */
void scene_odd_stacks(void)
{
	gm_cu_ptr ptrs[4];
	pthread_attr_t attributes;
	gm_cu_stream stream;

	GM_REQUIRE(pthread_attr_init(&attributes) == 0);
	GM_REQUIRE(pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN) == 0);
	GM_REQUIRE(pthread_setattr_default_np(&attributes) == 0);
	pthread_attr_destroy(&attributes);

	use_gpu();
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	for (size_t i = 0; i < 4; i++)
		CU(cu.cuMemAllocAsync(&ptrs[i], ACTOR_BYTES, stream));
	show('h');
	for (size_t i = 0; i < 4; i++)
		CU(cu.cuMemFreeAsync(ptrs[i], stream));
	CU(cu.cuStreamSynchronize(stream));
	/* The library's thread gives all of it back. */
	show('f');
}

/* ---- threads that are cancelled */

/* What the calls below make and end. */
static struct {
	gm_cu_ptr ptr, place;
	gm_cu_mem handle;
	void *array, *pool, *host, *graph, *exec;
} odd;

static const gm_cu_array odd_shape = {1024, 1024, 4, 0x20, 1, 0};

static gm_cu_result odd_alloc_async(void)
{
	return cu.cuMemAllocAsync(&odd.ptr, ACTOR_PIECE, NULL);
}
static gm_cu_result odd_free_async(void)
{
	return cu.cuMemFreeAsync(odd.ptr, NULL);
}
static gm_cu_result odd_alloc_managed(void)
{
	return cu.cuMemAllocManaged(&odd.ptr, ACTOR_BYTES, GM_CU_MEM_ATTACH_GLOBAL);
}
static gm_cu_result odd_free(void)
{
	return cu.cuMemFree(odd.ptr);
}
static gm_cu_result odd_make_array(void)
{
	return cu.cuArray3DCreate(&odd.array, &odd_shape);
}
static gm_cu_result odd_end_array(void)
{
	return cu.cuArrayDestroy(odd.array);
}
static gm_cu_result odd_make_mipmap(void)
{
	return cu.cuMipmappedArrayCreate(&odd.array, &odd_shape, 3);
}
static gm_cu_result odd_end_mipmap(void)
{
	return cu.cuMipmappedArrayDestroy(odd.array);
}
static gm_cu_result odd_make_pool(void)
{
	gm_cu_pool_props props = {.type = GM_CU_MEM_ALLOCATION_TYPE_PINNED,
		.handle_types = GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {GM_CU_MEM_LOCATION_TYPE_DEVICE, 0}};

	return cu.cuMemPoolCreate(&odd.pool, &props);
}
static gm_cu_result odd_alloc_from_pool(void)
{
	return cu.cuMemAllocFromPoolAsync(&odd.ptr, ACTOR_PIECE, odd.pool, NULL);
}
static gm_cu_result odd_end_pool(void)
{
	return cu.cuMemPoolDestroy(odd.pool);
}
static gm_cu_result odd_create(void)
{
	gm_cu_prop prop = {.type = GM_CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {GM_CU_MEM_LOCATION_TYPE_DEVICE, 0}};

	return cu.cuMemCreate(&odd.handle, ACTOR_PIECE, &prop, 0);
}
static gm_cu_result odd_map(void)
{
	return cu.cuMemMap(odd.place, ACTOR_PIECE, 0, odd.handle, 0);
}
static gm_cu_result odd_retain(void)
{
	gm_cu_mem again;
	gm_cu_result result = cu.cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)odd.place);

	return result ? result : cu.cuMemRelease(again);
}
static gm_cu_result odd_unmap(void)
{
	return cu.cuMemUnmap(odd.place, ACTOR_PIECE);
}
static gm_cu_result odd_release(void)
{
	return cu.cuMemRelease(odd.handle);
}
static gm_cu_result odd_alloc_host(void)
{
	return cu.cuMemHostAlloc(&odd.host, 65536, 0);
}
static gm_cu_result odd_free_host(void)
{
	return cu.cuMemFreeHost(odd.host);
}
static gm_cu_result odd_add_node(void)
{
	gm_cu_alloc_node node = {.pool = {.type = GM_CU_MEM_ALLOCATION_TYPE_PINNED,
					 .location = {GM_CU_MEM_LOCATION_TYPE_DEVICE, 0}},
		.bytes = ACTOR_PIECE};
	void *added;

	return cu.cuGraphAddMemAllocNode(&added, odd.graph, NULL, 0, &node);
}
static gm_cu_result odd_instantiate(void)
{
	return cu.cuGraphInstantiateWithFlags(&odd.exec, odd.graph, 0);
}
static gm_cu_result odd_end_graph(void)
{
	return cu.cuGraphDestroy(odd.graph);
}
static gm_cu_result odd_end_exec(void)
{
	return cu.cuGraphExecDestroy(odd.exec);
}

static _Atomic int odd_whole;

static void *call_cancelled(void *call)
{
	gm_cu_result (*fn)(void);

	*(void **)&fn = call;
	CU(cu.cuCtxSetCurrent(shared_ctx));
	pthread_cancel(pthread_self());
	CU(fn());
	odd_whole++;
	return NULL;
}

/* A thread that is cancelled makes its call to the end: what the daemon has charged for it, or what it has taken out of
 * the library's tables, would be lost, and a lock that it holds, too. */
void scene_odd_cancel(void)
{
	gm_cu_result (*const calls[])(void) = {odd_alloc_async, odd_free_async, odd_alloc_managed,
		odd_free, odd_make_array, odd_end_array, odd_make_mipmap, odd_end_mipmap,
		odd_make_pool, odd_alloc_from_pool, odd_free_async, odd_end_pool, odd_create,
		odd_map, odd_retain, odd_unmap, odd_release, odd_alloc_host, odd_free_host,
		odd_add_node, odd_instantiate, odd_end_graph, odd_end_exec};
	const int n = sizeof calls / sizeof *calls;
	pthread_t thread;

	shared_ctx = use_gpu();
	CU(cu.cuMemAlloc(&odd.ptr, ACTOR_BYTES));
	show('h');
	CU(cu.cuMemFree(odd.ptr));
	CU(cu.cuMemAddressReserve(&odd.place, ACTOR_PIECE, 0, 0, 0));
	CU(cu.cuGraphCreate(&odd.graph, 0));
	for (int i = 0; i < n; i++) {
		void *call = *(void *const *)&calls[i];
		GM_REQUIRE(pthread_create(&thread, NULL, call_cancelled, call) == 0);
		pthread_join(thread, NULL);
		if (odd_whole != i + 1)
			GM_FAIL("call %d of the list was cut off", i);
	}
	CU(cu.cuMemAddressFree(odd.place, ACTOR_PIECE));
	show('d');
}
