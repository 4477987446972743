/* SPDX-License-Identifier: Apache-2.0 */
/* Memory pools of a program that knows nothing of gpumemd. */
#include <pthread.h>

#include "tests/gpu/preload_scenes.h"

/* Of CUmemPool_attribute. */
enum {
	POOL_FOLLOW_EVENTS = 1,
	POOL_THRESHOLD = 4,
	POOL_RESERVED,
	POOL_RESERVED_HIGH,
	POOL_USED,
	POOL_USED_HIGH,
};

void *new_pool(int handle_types)
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

void scene_pools(void)
{
	gm_cu_stream stream;
	void *first, *pool, *now;
	gm_cu_ptr a, b;

	use_gpu();
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuDeviceGetDefaultMemPool(&first, 0));
	GM_REQUIRE(cu.cuMemPoolDestroy(first) != GM_CUDA_SUCCESS);
	CU(cu.cuMemAllocAsync(&a, 0, stream));
	GM_REQUIRE_EQ(a, 0);
	CU(cu.cuMemFreeAsync(0, stream));
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

/* ---- threads */

#define THREADS 6

/* Pools that come and go, and one that is everybody's. */
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

void scene_pool_threads(void)
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

/* The library gives memory back at once when the device is done with it, also if another of its threads is asking about that memory. */
void scene_pools_trimmed(void)
{
	gm_cu_stream stream;
	gm_cu_ptr kept, ptr;
	void *pool;

	use_gpu();
	CU(cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	CU(cu.cuDeviceGetDefaultMemPool(&pool, 0));
	CU(cu.cuMemAllocAsync(&kept, ACTOR_BYTES, stream));
	show('h');
	for (int i = 0; i < 20; i++) {
		CU(cu.cuMemAllocAsync(&ptr, ACTOR_BYTES, stream));
		CU(cu.cuMemsetD8Async(ptr, 1, ACTOR_BYTES, stream));
		CU(cu.cuMemFreeAsync(ptr, stream));
		CU(cu.cuStreamSynchronize(stream));
		CU(cu.cuMemPoolTrimTo(pool, 0));
		GM_REQUIRE(figure(pool, POOL_RESERVED) < 2 * ACTOR_BYTES);
	}
	CU(cu.cuMemFreeAsync(kept, stream));
}
