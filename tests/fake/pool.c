/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of the fake driver that only programs outside of the broker make: memory in rows, and questions
 * about pointers. Pools are in mempool.c.
 */
#include "tests/fake/fake.h"

/* ---- rows */

#define PITCH 512

FAKE_API gm_cu_result cuMemAlloc_v2(gm_cu_ptr *ptr, size_t bytes);
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

/* ---- pointers */

FAKE_API gm_cu_result cuMemGetAddressRange_v2(gm_cu_ptr *base, size_t *bytes, gm_cu_ptr ptr);
FAKE_API gm_cu_result cuMemGetAddressRange_v2(gm_cu_ptr *base, size_t *bytes, gm_cu_ptr ptr)
{
	gm_cu_result result = GM_CUDA_ERROR_NOT_FOUND;
	struct fake_map *map;
	uintptr_t va = 0;
	size_t size = 0;
	int context;

	FAKE_ENTER("cuMemGetAddressRange");
	pthread_mutex_lock(&fake.lock);
	map = fake_map_find((uintptr_t)ptr);
	if (map) {
		va = map->va;
		size = map->size;
	}
	if (map || fake_host_range((uintptr_t)ptr, &va, &size, &context)) {
		if (base)
			*base = va;
		if (bytes)
			*bytes = size;
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
