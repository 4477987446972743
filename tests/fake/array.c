/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays and mipmaps of the fake driver: so much memory of the device, which nobody can read. They belong
 * to the context that was current. One with deferred mapping has no memory, and tells how much it needs.
 */
#include "tests/fake/fake.h"

#include <stdlib.h>

#include <utlist.h>

#define DEFERRED 0x80

struct fake_array {
	int context;
	size_t bytes; /* that it needs */
	bool deferred, mipmapped;
	struct fake_mem *mem; /* NULL: it has none */
	struct fake_array *prev, *next;
};
static struct fake_array *all; /* behind fake.lock */

/* Formats of 1, 2 and 4 bytes; there are others. */
static size_t texel(const gm_cu_array *shape)
{
	size_t bytes = shape->format == 1 || shape->format == 8      ? 1
		       : shape->format == 2 || shape->format == 9    ? 2
		       : shape->format == 3 || shape->format == 0x20 ? 4
								     : 0;

	return bytes * shape->channels;
}

static size_t level(size_t n, unsigned int i)
{
	return n >> i ? n >> i : 1;
}

static gm_cu_result create(
	void **handle, const gm_cu_array *shape, unsigned int levels, bool mipmapped)
{
	struct fake_device *device;
	gm_cu_result result;

	if (!handle || !shape->width || !levels || !texel(shape) || shape->channels == 3)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if ((result = fake_need_context(&device)) || (result = fake_capture_forbids()))
		return result;
	struct fake_array *array = calloc(1, sizeof *array);
	if (!array)
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned int i = 0; i < levels; i++)
		array->bytes += texel(shape) * level(shape->width, i) * level(shape->height, i) *
				level(shape->depth, i);
	array->deferred = shape->flags & DEFERRED;
	array->mipmapped = mipmapped;
	array->context = fake_context();

	pthread_mutex_lock(&fake.lock);
	if (!array->deferred) {
		size_t whole = (array->bytes + FAKE_GRANULARITY - 1) & ~(FAKE_GRANULARITY - 1);
		result = fake_mem_new((int)(device - fake.device), whole, &array->mem);
	}
	if (!result)
		DL_APPEND(all, array);
	pthread_mutex_unlock(&fake.lock);
	if (result)
		free(array);
	else
		*handle = array;
	return result;
}

static void end(struct fake_array *array)
{
	DL_DELETE(all, array);
	if (array->mem)
		fake_mem_put(array->mem);
	free(array);
}

void fake_arrays_end(int context)
{
	struct fake_array *array, *tmp;

	DL_FOREACH_SAFE (all, array, tmp)
		if (array->context == context)
			end(array);
}

static gm_cu_result destroy(void *handle, bool mipmapped)
{
	struct fake_array *array;

	pthread_mutex_lock(&fake.lock);
	DL_FOREACH (all, array)
		if (array == handle && array->mipmapped == mipmapped)
			break;
	if (array)
		end(array);
	pthread_mutex_unlock(&fake.lock);
	return array ? GM_CUDA_SUCCESS : GM_CUDA_ERROR_INVALID_HANDLE;
}

/* ---- the driver's functions */

FAKE_API gm_cu_result cuArrayCreate_v2(void **handle, const gm_cu_array_2d *shape);
FAKE_API gm_cu_result cuArrayCreate_v2(void **handle, const gm_cu_array_2d *shape)
{
	FAKE_ENTER("cuArrayCreate");
	if (!shape)
		return GM_CUDA_ERROR_INVALID_VALUE;
	const gm_cu_array full = {.width = shape->width,
		.height = shape->height,
		.format = shape->format,
		.channels = shape->channels};
	return create(handle, &full, 1, false);
}

FAKE_API gm_cu_result cuArray3DCreate_v2(void **handle, const gm_cu_array *shape);
FAKE_API gm_cu_result cuArray3DCreate_v2(void **handle, const gm_cu_array *shape)
{
	FAKE_ENTER("cuArray3DCreate");
	return shape ? create(handle, shape, 1, false) : GM_CUDA_ERROR_INVALID_VALUE;
}

FAKE_API gm_cu_result cuMipmappedArrayCreate(
	void **handle, const gm_cu_array *shape, unsigned int levels);
FAKE_API gm_cu_result cuMipmappedArrayCreate(
	void **handle, const gm_cu_array *shape, unsigned int levels)
{
	FAKE_ENTER("cuMipmappedArrayCreate");
	return shape ? create(handle, shape, levels, true) : GM_CUDA_ERROR_INVALID_VALUE;
}

FAKE_API gm_cu_result cuArrayDestroy(void *handle);
FAKE_API gm_cu_result cuArrayDestroy(void *handle)
{
	FAKE_ENTER("cuArrayDestroy");
	return destroy(handle, false);
}

FAKE_API gm_cu_result cuMipmappedArrayDestroy(void *handle);
FAKE_API gm_cu_result cuMipmappedArrayDestroy(void *handle)
{
	FAKE_ENTER("cuMipmappedArrayDestroy");
	return destroy(handle, true);
}

FAKE_API gm_cu_result cuArrayGetMemoryRequirements(
	gm_cu_array_needs *needs, void *handle, gm_cu_device device);
FAKE_API gm_cu_result cuArrayGetMemoryRequirements(
	gm_cu_array_needs *needs, void *handle, gm_cu_device device)
{
	gm_cu_result result = GM_CUDA_ERROR_INVALID_VALUE;
	struct fake_array *array;

	FAKE_ENTER("cuArrayGetMemoryRequirements");
	pthread_mutex_lock(&fake.lock);
	DL_FOREACH (all, array)
		if (array == handle)
			break;
	if (array && array->deferred && needs && fake_get_device(device)) {
		*needs = (gm_cu_array_needs){.size = array->bytes, .alignment = 65536};
		result = GM_CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}
