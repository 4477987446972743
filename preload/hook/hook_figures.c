/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the program is told about the size of a GPU, and about its pointers.
 */
#include <stdint.h>

#include "preload/preload.h"
#include "preload/table/preload_blocks.h"
#include "preload/broker/preload_broker.h"
#include "preload/table/preload_pools.h"
#include "preload/table/preload_shared.h"

static uint64_t figures_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* ---- the GPU: its size is the limit, and what is free is what the program could have */

gm_cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	GM_DRIVER_OR_RETURN(driver, cuMemGetInfo_v2);
	const struct gm_preload_settings *settings = gm_preload_settings();
	gm_cu_result result = driver->cuMemGetInfo_v2(free_bytes, total);
	uint64_t room;
	gm_cu_ctx ctx;
	uint32_t number;

	if (result || !free_bytes || !total || settings->see_all ||
		gm_preload_begin() != GM_BROKER_READY || !gm_preload_current(driver, &ctx, &number))
		return result;

	*total = figures_min(*total, settings->limit);
	if (gm_preload_room(number, &room))
		*free_bytes = room;
	*free_bytes = figures_min(*free_bytes, *total);
	return result;
}

/* Whether the daemon serves a device. */
static bool figures_served(const struct gm_driver *driver, gm_cu_device device)
{
	gm_cu_uuid uuid;
	uint32_t number;

	if (gm_preload_there())
		return gm_preload_device(driver, device, &number);
	return !driver->cuDeviceGetUuid_v2 || driver->cuDeviceGetUuid_v2(&uuid, device) ||
	       gm_preload_serves(&uuid);
}

gm_cu_result cuDeviceTotalMem_v2(size_t *bytes, gm_cu_device device)
{
	GM_DRIVER_OR_RETURN(driver, cuDeviceTotalMem_v2);
	const struct gm_preload_settings *settings = gm_preload_settings();
	gm_cu_result result = driver->cuDeviceTotalMem_v2(bytes, device);

	if (result == GM_CUDA_SUCCESS && bytes && !settings->see_all &&
		figures_served(driver, device))
		*bytes = figures_min(*bytes, settings->limit);
	return result;
}

/* ---- pointers: the driver knows the chunk that an allocation lies in, and we the allocation */

/* Of CUpointer_attribute. */
enum {
	FIGURES_CONTEXT = 1,
	FIGURES_TYPE = 2,
	FIGURES_BUFFER_ID = 7,
	FIGURES_ORDINAL = 9,
	FIGURES_RANGE_START = 11,
	FIGURES_RANGE_SIZE = 12,
	FIGURES_HANDLE_TYPES = 14,
	FIGURES_POOL = 17,
};

static bool figures_block(gm_cu_ptr ptr, struct gm_preload_block *ret_block)
{
	return gm_preload_there() &&
	       ((gm_preload_blocks_near(ptr) && gm_preload_blocks_find(ptr, ret_block)) ||
		       gm_preload_shared_find(ptr, ret_block));
}

/* Writes the attributes that an allocation has. Others are those of the chunk. */
static bool figures_attribute(const struct gm_preload_block *block, int attribute, void *data)
{
	switch (attribute) {
	/* What was spilled is to look like memory of the device. */
	case FIGURES_TYPE:
		if (block->spilled)
			*(unsigned int *)data = GM_CU_MEMORYTYPE_DEVICE;
		return block->spilled;
	case FIGURES_ORDINAL:
		if (block->spilled)
			*(int *)data = block->device;
		return block->spilled;
	case FIGURES_CONTEXT:
		*(gm_cu_ctx *)data = block->ctx; /* NULL, for memory of a pool */
		return true;
	case FIGURES_BUFFER_ID:
		/* Far from the driver's own numbers, which begin at 0. */
		*(unsigned long long *)data = UINT64_C(1) << 62 | block->serial;
		return true;
	case FIGURES_RANGE_START:
		*(gm_cu_ptr *)data = block->base;
		return true;
	case FIGURES_RANGE_SIZE:
		*(size_t *)data = block->bytes;
		return true;
	case FIGURES_HANDLE_TYPES:
		*(unsigned long long *)data = 0; /* it cannot be exported */
		return true;
	case FIGURES_POOL:
		*(gm_cu_pool *)data = block->pool ? gm_preload_pools_handle(block->pool) : NULL;
		return true;
	default:
		return false;
	}
}

gm_cu_result cuMemGetAddressRange_v2(gm_cu_ptr *base, size_t *bytes, gm_cu_ptr ptr)
{
	GM_DRIVER_OR_RETURN(driver, cuMemGetAddressRange_v2);
	struct gm_preload_block block;

	if (!figures_block(ptr, &block))
		return driver->cuMemGetAddressRange_v2(base, bytes, ptr);
	if (base)
		*base = block.base;
	if (bytes)
		*bytes = block.bytes;
	return GM_CUDA_SUCCESS;
}

gm_cu_result cuPointerGetAttribute(void *data, gm_cu_pointer_attribute attribute, gm_cu_ptr ptr)
{
	GM_DRIVER_OR_RETURN(driver, cuPointerGetAttribute);
	struct gm_preload_block block;

	if (data && figures_block(ptr, &block) && figures_attribute(&block, attribute, data))
		return GM_CUDA_SUCCESS;
	return driver->cuPointerGetAttribute(data, attribute, ptr);
}

gm_cu_result cuPointerGetAttributes(
	unsigned int n, gm_cu_pointer_attribute *attributes, void **data, gm_cu_ptr ptr)
{
	GM_DRIVER_OR_RETURN(driver, cuPointerGetAttributes);
	gm_cu_result result = driver->cuPointerGetAttributes(n, attributes, data, ptr);
	struct gm_preload_block block;

	if (result == GM_CUDA_SUCCESS && figures_block(ptr, &block))
		for (unsigned int i = 0; i < n; i++)
			(void)figures_attribute(&block, attributes[i], data[i]);
	return result;
}
