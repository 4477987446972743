/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of the fake driver that only programs outside of the broker make: memory in rows, memory in the
 * order of a stream, and questions about pointers. Memory that is freed on a stream goes when the
 * stream's work is done, for which the call waits: the real one does not.
 */
#include "tests/fake/stream.h"

/* ---- rows */

#define PITCH 512

FAKE_API gm_cu_result cuMemAlloc_v2(gm_cu_ptr *ptr, size_t bytes);
FAKE_API gm_cu_result cuMemFree_v2(gm_cu_ptr ptr);
FAKE_API gm_cu_result cuStreamSynchronize(gm_cu_stream handle);
FAKE_API gm_cu_result cuPointerGetAttribute(
	void *data, gm_cu_pointer_attribute attribute, gm_cu_ptr ptr);

FAKE_API gm_cu_result cuMemAllocPitch_v2(
	gm_cu_ptr *ptr, size_t *pitch, size_t width, size_t height, unsigned int element);
FAKE_API gm_cu_result cuMemAllocPitch_v2(
	gm_cu_ptr *ptr, size_t *pitch, size_t width, size_t height, unsigned int element)
{
	size_t row = (width + PITCH - 1) & ~(size_t)(PITCH - 1);
	gm_cu_result result;

	FAKE_ENTER("cuMemAllocPitch");
	if (!ptr || !pitch || !width || !height || (element != 4 && element != 8 && element != 16))
		return GM_CUDA_ERROR_INVALID_VALUE;
	result = cuMemAlloc_v2(ptr, row * height);
	if (!result)
		*pitch = row;
	return result;
}

/* ---- pools: the handle of a device's default pool is its number + 1, of another the address of a byte */

static char others[16];
static uintptr_t pools[FAKE_DEVICES]; /* 0: the default one */

static uintptr_t pool_of(gm_cu_device device)
{
	return pools[device] ? pools[device] : (uintptr_t)device + 1;
}

FAKE_API gm_cu_result cuDeviceGetDefaultMemPool(void **pool, gm_cu_device device);
FAKE_API gm_cu_result cuDeviceGetDefaultMemPool(void **pool, gm_cu_device device)
{
	FAKE_ENTER("cuDeviceGetDefaultMemPool");
	if (!pool || !fake_get_device(device))
		return GM_CUDA_ERROR_INVALID_VALUE;
	*pool = (void *)((uintptr_t)device + 1);
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuDeviceGetMemPool(void **pool, gm_cu_device device);
FAKE_API gm_cu_result cuDeviceGetMemPool(void **pool, gm_cu_device device)
{
	FAKE_ENTER("cuDeviceGetMemPool");
	if (!pool || !fake_get_device(device))
		return GM_CUDA_ERROR_INVALID_VALUE;
	*pool = (void *)pool_of(device);
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuDeviceSetMemPool(gm_cu_device device, void *pool);
FAKE_API gm_cu_result cuDeviceSetMemPool(gm_cu_device device, void *pool)
{
	FAKE_ENTER("cuDeviceSetMemPool");
	if (!pool || !fake_get_device(device))
		return GM_CUDA_ERROR_INVALID_VALUE;
	pools[device] = (uintptr_t)pool;
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuMemPoolCreate(void **pool, const void *properties);
FAKE_API gm_cu_result cuMemPoolCreate(void **pool, const void *properties)
{
	static unsigned made;

	FAKE_ENTER("cuMemPoolCreate");
	if (!pool || !properties)
		return GM_CUDA_ERROR_INVALID_VALUE;
	*pool = &others[made++ % sizeof others];
	return GM_CUDA_SUCCESS;
}

/* ---- in the order of a stream */

static gm_cu_result alloc_on(gm_cu_ptr *ptr, size_t bytes, gm_cu_stream stream)
{
	struct fake_device *device;
	gm_cu_result result;
	int context;

	if ((result = fake_stream_context(stream, &device, &context)))
		return result;
	return cuMemAlloc_v2(ptr, bytes);
}

static gm_cu_result free_on(gm_cu_ptr ptr, gm_cu_stream stream)
{
	gm_cu_result result = cuStreamSynchronize(stream);

	return result ? result : fake_drop_plain(ptr, false);
}

#define POOL_CALLS(suffix, zero) \
	FAKE_API gm_cu_result cuMemAllocAsync##suffix( \
		gm_cu_ptr *ptr, size_t bytes, gm_cu_stream stream); \
	FAKE_API gm_cu_result cuMemAllocAsync##suffix( \
		gm_cu_ptr *ptr, size_t bytes, gm_cu_stream stream) \
	{ \
		FAKE_ENTER("cuMemAllocAsync"); \
		return alloc_on(ptr, bytes, stream ? stream : (gm_cu_stream)(uintptr_t)(zero)); \
	} \
	FAKE_API gm_cu_result cuMemAllocFromPoolAsync##suffix( \
		gm_cu_ptr *ptr, size_t bytes, void *pool, gm_cu_stream stream); \
	FAKE_API gm_cu_result cuMemAllocFromPoolAsync##suffix( \
		gm_cu_ptr *ptr, size_t bytes, void *pool, gm_cu_stream stream) \
	{ \
		FAKE_ENTER("cuMemAllocFromPoolAsync"); \
		if (!pool) \
			return GM_CUDA_ERROR_INVALID_VALUE; \
		return alloc_on(ptr, bytes, stream ? stream : (gm_cu_stream)(uintptr_t)(zero)); \
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

/* ---- pointers */

FAKE_API gm_cu_result cuMemGetAddressRange_v2(gm_cu_ptr *base, size_t *bytes, gm_cu_ptr ptr);
FAKE_API gm_cu_result cuMemGetAddressRange_v2(gm_cu_ptr *base, size_t *bytes, gm_cu_ptr ptr)
{
	gm_cu_result result = GM_CUDA_ERROR_NOT_FOUND;
	struct fake_map *map;

	FAKE_ENTER("cuMemGetAddressRange");
	pthread_mutex_lock(&fake.lock);
	map = fake_map_find((uintptr_t)ptr);
	if (map) {
		if (base)
			*base = map->va;
		if (bytes)
			*bytes = map->size;
		result = GM_CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

/* What an attribute has no value for becomes 0. */
FAKE_API gm_cu_result cuPointerGetAttributes(
	unsigned int n, gm_cu_pointer_attribute *attributes, void **data, gm_cu_ptr ptr);
FAKE_API gm_cu_result cuPointerGetAttributes(
	unsigned int n, gm_cu_pointer_attribute *attributes, void **data, gm_cu_ptr ptr)
{
	FAKE_ENTER("cuPointerGetAttributes");
	if (!attributes || !data)
		return GM_CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < n; i++)
		if (cuPointerGetAttribute(data[i], attributes[i], ptr))
			*(unsigned int *)data[i] = 0;
	return GM_CUDA_SUCCESS;
}
