/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory pools of the fake driver. A pool keeps no freed memory: it is as one with a release threshold of
 * 0 that is synchronized all the time. So what is reserved is what is used. Memory that is freed on a
 * stream goes when the stream's work is done, for which the call waits: the real one does not.
 */
#include <stdlib.h>

#include <utlist.h>

#include "tests/fake/stream.h"

/* Of CUmemPool_attribute. */
enum {
	REUSE_FIRST = 1,
	REUSE_LAST = 3,
	RELEASE_THRESHOLD,
	RESERVED_CURRENT,
	RESERVED_HIGH,
	USED_CURRENT,
	USED_HIGH,
};

struct fake_pool {
	int device; /* -1: the host's */
	bool first; /* the device began with it */
	bool destroyed;
	int reuse[REUSE_LAST + 1];
	uint64_t threshold, used, high;
	unsigned maps;
	unsigned access[FAKE_DEVICES];
	struct fake_pool *prev, *next;
};

static struct fake_pool *all; /* behind fake.lock, and so is what follows */
static struct fake_pool *firsts[FAKE_DEVICES], *currents[FAKE_DEVICES];

static struct fake_pool *pool_new(int device)
{
	struct fake_pool *pool = calloc(1, sizeof *pool);

	if (!pool)
		return NULL;
	pool->device = device;
	for (int i = REUSE_FIRST; i <= REUSE_LAST; i++)
		pool->reuse[i] = 1;
	if (device >= 0)
		pool->access[device] = GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	DL_APPEND(all, pool);
	return pool;
}

static struct fake_pool *pool_first(int device)
{
	if (!firsts[device] && (firsts[device] = pool_new(device)))
		firsts[device]->first = true;
	return firsts[device];
}

static struct fake_pool *pool_current(int device)
{
	return currents[device] ? currents[device] : pool_first(device);
}

static struct fake_pool *pool_find(void *handle)
{
	struct fake_pool *pool;

	DL_FOREACH (all, pool)
		if (pool == handle && !pool->destroyed)
			return pool;
	return NULL;
}

static void pool_put(struct fake_pool *pool)
{
	if (pool->destroyed && !pool->maps) {
		DL_DELETE(all, pool);
		free(pool);
	}
}

void fake_pool_leave(struct fake_pool *pool, size_t bytes)
{
	pool->used -= bytes;
	pool->maps--;
	pool_put(pool);
}

/* ---- the pools of devices */

static gm_cu_result pool_of(
	void **ret_pool, gm_cu_device device, struct fake_pool *(*which)(int device))
{
	if (!ret_pool || !fake_get_device(device))
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.lock);
	*ret_pool = which(device);
	pthread_mutex_unlock(&fake.lock);
	return *ret_pool ? GM_CUDA_SUCCESS : GM_CUDA_ERROR_OUT_OF_MEMORY;
}

FAKE_API gm_cu_result cuDeviceGetDefaultMemPool(void **pool, gm_cu_device device);
FAKE_API gm_cu_result cuDeviceGetDefaultMemPool(void **pool, gm_cu_device device)
{
	FAKE_ENTER("cuDeviceGetDefaultMemPool");
	return pool_of(pool, device, pool_first);
}

FAKE_API gm_cu_result cuDeviceGetMemPool(void **pool, gm_cu_device device);
FAKE_API gm_cu_result cuDeviceGetMemPool(void **pool, gm_cu_device device)
{
	FAKE_ENTER("cuDeviceGetMemPool");
	return pool_of(pool, device, pool_current);
}

FAKE_API gm_cu_result cuDeviceSetMemPool(gm_cu_device device, void *handle);
FAKE_API gm_cu_result cuDeviceSetMemPool(gm_cu_device device, void *handle)
{
	gm_cu_result result = GM_CUDA_ERROR_INVALID_VALUE;

	FAKE_ENTER("cuDeviceSetMemPool");
	pthread_mutex_lock(&fake.lock);
	struct fake_pool *pool = pool_find(handle);
	if (pool && fake_get_device(device) && pool->device == device) {
		currents[device] = pool;
		result = GM_CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

FAKE_API gm_cu_result cuMemPoolCreate(void **handle, const gm_cu_pool_props *props);
FAKE_API gm_cu_result cuMemPoolCreate(void **handle, const gm_cu_pool_props *props)
{
	FAKE_ENTER("cuMemPoolCreate");
	if (!handle || !props || props->type != GM_CU_MEM_ALLOCATION_TYPE_PINNED ||
		props->handle_types & ~GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return GM_CUDA_ERROR_INVALID_VALUE;
	bool on_host = props->location.type == GM_CU_MEM_LOCATION_TYPE_HOST ||
		       props->location.type == GM_CU_MEM_LOCATION_TYPE_HOST_NUMA;
	if (!on_host && (props->location.type != GM_CU_MEM_LOCATION_TYPE_DEVICE ||
				!fake_get_device(props->location.id)))
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.lock);
	struct fake_pool *pool = pool_new(on_host ? -1 : props->location.id);
	pthread_mutex_unlock(&fake.lock);
	if (!pool)
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	*handle = pool;
	return GM_CUDA_SUCCESS;
}

/* The memory of a destroyed pool stays until it is freed. */
FAKE_API gm_cu_result cuMemPoolDestroy(void *handle);
FAKE_API gm_cu_result cuMemPoolDestroy(void *handle)
{
	gm_cu_result result = GM_CUDA_ERROR_INVALID_VALUE;

	FAKE_ENTER("cuMemPoolDestroy");
	pthread_mutex_lock(&fake.lock);
	struct fake_pool *pool = pool_find(handle);
	if (pool && !pool->first) {
		for (int i = 0; i < FAKE_DEVICES; i++)
			if (currents[i] == pool)
				currents[i] = NULL;
		pool->destroyed = true;
		pool_put(pool);
		result = GM_CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

/* ---- attributes */

static gm_cu_result pool_get(struct fake_pool *pool, int attribute, void *value)
{
	if (attribute >= REUSE_FIRST && attribute <= REUSE_LAST)
		*(int *)value = pool->reuse[attribute];
	else if (attribute == RELEASE_THRESHOLD)
		*(uint64_t *)value = pool->threshold;
	else if (attribute == RESERVED_CURRENT || attribute == USED_CURRENT)
		*(uint64_t *)value = pool->used;
	else if (attribute == RESERVED_HIGH || attribute == USED_HIGH)
		*(uint64_t *)value = pool->high;
	else
		return GM_CUDA_ERROR_INVALID_VALUE;
	return GM_CUDA_SUCCESS;
}

static gm_cu_result pool_set(struct fake_pool *pool, int attribute, void *value)
{
	if (attribute >= REUSE_FIRST && attribute <= REUSE_LAST)
		pool->reuse[attribute] = *(const int *)value;
	else if (attribute == RELEASE_THRESHOLD)
		pool->threshold = *(const uint64_t *)value;
	else if ((attribute == RESERVED_HIGH || attribute == USED_HIGH) &&
		 *(const uint64_t *)value == 0)
		pool->high = pool->used;
	else
		return GM_CUDA_ERROR_INVALID_VALUE;
	return GM_CUDA_SUCCESS;
}

static gm_cu_result pool_attribute(void *handle, int attribute, void *value,
	gm_cu_result (*use)(struct fake_pool *pool, int attribute, void *value))
{
	pthread_mutex_lock(&fake.lock);
	struct fake_pool *pool = pool_find(handle);
	gm_cu_result result =
		pool && value ? use(pool, attribute, value) : GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&fake.lock);
	return result;
}

FAKE_API gm_cu_result cuMemPoolGetAttribute(void *handle, int attribute, void *value);
FAKE_API gm_cu_result cuMemPoolGetAttribute(void *handle, int attribute, void *value)
{
	FAKE_ENTER("cuMemPoolGetAttribute");
	return pool_attribute(handle, attribute, value, pool_get);
}

FAKE_API gm_cu_result cuMemPoolSetAttribute(void *handle, int attribute, void *value);
FAKE_API gm_cu_result cuMemPoolSetAttribute(void *handle, int attribute, void *value)
{
	FAKE_ENTER("cuMemPoolSetAttribute");
	return pool_attribute(handle, attribute, value, pool_set);
}

FAKE_API gm_cu_result cuMemPoolTrimTo(void *handle, size_t keep);
FAKE_API gm_cu_result cuMemPoolTrimTo(void *handle, size_t keep)
{
	(void)keep;
	FAKE_ENTER("cuMemPoolTrimTo");
	pthread_mutex_lock(&fake.lock);
	struct fake_pool *pool = pool_find(handle);
	pthread_mutex_unlock(&fake.lock);
	return pool ? GM_CUDA_SUCCESS : GM_CUDA_ERROR_INVALID_VALUE;
}

/* Kept, and without effect: every device reaches the memory. A device may not lose its own. */
FAKE_API gm_cu_result cuMemPoolSetAccess(void *handle, const gm_cu_access *access, size_t n);
FAKE_API gm_cu_result cuMemPoolSetAccess(void *handle, const gm_cu_access *access, size_t n)
{
	gm_cu_result result = GM_CUDA_SUCCESS;

	FAKE_ENTER("cuMemPoolSetAccess");
	pthread_mutex_lock(&fake.lock);
	struct fake_pool *pool = pool_find(handle);
	if (!pool || !access)
		result = GM_CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n && !result; i++) {
		int id = access[i].location.id;
		if (access[i].location.type != GM_CU_MEM_LOCATION_TYPE_DEVICE ||
			!fake_get_device(id) ||
			(id == pool->device &&
				access[i].flags != GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
			result = GM_CUDA_ERROR_INVALID_DEVICE;
		else
			pool->access[id] = (unsigned)access[i].flags;
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

FAKE_API gm_cu_result cuMemPoolGetAccess(int *flags, void *handle, gm_cu_location *location);
FAKE_API gm_cu_result cuMemPoolGetAccess(int *flags, void *handle, gm_cu_location *location)
{
	gm_cu_result result = GM_CUDA_ERROR_INVALID_VALUE;

	FAKE_ENTER("cuMemPoolGetAccess");
	pthread_mutex_lock(&fake.lock);
	struct fake_pool *pool = pool_find(handle);
	if (pool && flags && location && location->type == GM_CU_MEM_LOCATION_TYPE_DEVICE &&
		fake_get_device(location->id)) {
		*flags = (int)pool->access[location->id];
		result = GM_CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

/* ---- in the order of a stream */

FAKE_API gm_cu_result cuMemAlloc_v2(gm_cu_ptr *ptr, size_t bytes);
FAKE_API gm_cu_result cuStreamSynchronize(gm_cu_stream handle);

gm_cu_result fake_captured_memory(gm_cu_ptr *ret_ptr, size_t bytes)
{
	pthread_mutex_lock(&fake.lock);
	uintptr_t va = fake_place_take((bytes + FAKE_GRANULARITY - 1) & ~(FAKE_GRANULARITY - 1));
	pthread_mutex_unlock(&fake.lock);
	*ret_ptr = va;
	return va ? GM_CUDA_SUCCESS : GM_CUDA_ERROR_OUT_OF_MEMORY;
}

/* handle NULL: the current pool of the stream's device. */
static gm_cu_result alloc_on(gm_cu_ptr *ptr, size_t bytes, void *handle, gm_cu_stream stream)
{
	struct fake_device *device;
	gm_cu_result result;
	int context;

	if (!ptr)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if (!bytes) {
		*ptr = 0;
		return GM_CUDA_SUCCESS;
	}
	if ((result = fake_stream_context(stream, &device, &context)))
		return result;
	if (fake_captured(stream, &result))
		return result ? result : fake_captured_memory(ptr, bytes);
	pthread_mutex_lock(&fake.lock);
	struct fake_pool *pool =
		handle ? pool_find(handle) : pool_current((int)(device - fake.device));
	if (pool)
		pool->maps++; /* it stays */
	pthread_mutex_unlock(&fake.lock);
	if (!pool)
		return GM_CUDA_ERROR_INVALID_VALUE;

	result = cuMemAlloc_v2(ptr, bytes);
	pthread_mutex_lock(&fake.lock);
	if (result) {
		pool->maps--;
		pool_put(pool);
	} else {
		struct fake_map *map = fake_map_find((uintptr_t)*ptr);
		map->pool = pool;
		map->pool_bytes = bytes;
		pool->used += bytes;
		pool->high = pool->high < pool->used ? pool->used : pool->high;
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

static gm_cu_result free_on(gm_cu_ptr ptr, gm_cu_stream stream)
{
	gm_cu_result result;

	if (!ptr)
		return GM_CUDA_SUCCESS;
	if (fake_captured(stream, &result))
		return result;
	result = cuStreamSynchronize(stream);
	return result ? result : fake_drop_plain(ptr, false);
}

#define POOL_CALLS(suffix, zero) \
	FAKE_API gm_cu_result cuMemAllocAsync##suffix( \
		gm_cu_ptr *ptr, size_t bytes, gm_cu_stream stream); \
	FAKE_API gm_cu_result cuMemAllocAsync##suffix( \
		gm_cu_ptr *ptr, size_t bytes, gm_cu_stream stream) \
	{ \
		FAKE_ENTER("cuMemAllocAsync"); \
		return alloc_on( \
			ptr, bytes, NULL, stream ? stream : (gm_cu_stream)(uintptr_t)(zero)); \
	} \
	FAKE_API gm_cu_result cuMemAllocFromPoolAsync##suffix( \
		gm_cu_ptr *ptr, size_t bytes, void *pool, gm_cu_stream stream); \
	FAKE_API gm_cu_result cuMemAllocFromPoolAsync##suffix( \
		gm_cu_ptr *ptr, size_t bytes, void *pool, gm_cu_stream stream) \
	{ \
		FAKE_ENTER("cuMemAllocFromPoolAsync"); \
		if (!pool) \
			return GM_CUDA_ERROR_INVALID_VALUE; \
		return alloc_on( \
			ptr, bytes, pool, stream ? stream : (gm_cu_stream)(uintptr_t)(zero)); \
	} \
	FAKE_API gm_cu_result cuMemFreeAsync##suffix(gm_cu_ptr ptr, gm_cu_stream stream); \
	FAKE_API gm_cu_result cuMemFreeAsync##suffix(gm_cu_ptr ptr, gm_cu_stream stream) \
	{ \
		FAKE_ENTER("cuMemFreeAsync"); \
		return free_on(ptr, stream ? stream : (gm_cu_stream)(uintptr_t)(zero)); \
	}

POOL_CALLS(, 0)
POOL_CALLS(_ptsz, GM_CU_STREAM_PER_THREAD)

FAKE_API gm_cu_result cuStreamGetCtx(gm_cu_stream stream, gm_cu_ctx *ctx);
FAKE_API gm_cu_result cuStreamGetCtx(gm_cu_stream stream, gm_cu_ctx *ctx)
{
	struct fake_device *device;
	gm_cu_result result;
	int context;

	FAKE_ENTER("cuStreamGetCtx");
	if (!ctx)
		return GM_CUDA_ERROR_INVALID_VALUE;
	result = fake_stream_context(stream, &device, &context);
	if (!result)
		*ctx = fake_context_handle(context);
	return result;
}
