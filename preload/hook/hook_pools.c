/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory pools. Each call goes to the driver first, which says what is wrong with it, and keeps the
 * settings of all pools. What the broker serves is then added to the driver's figures, which are 0 for
 * such a pool. A thread that were cancelled in the driver's call would lose the pool, or what it counts.
 */
#include <stdint.h>

#include "common/cancel.h"
#include "preload/broker/preload_broker.h"
#include "preload/table/preload_pools.h"

/* Of CUmemPool_attribute. */
enum {
	POOLS_RESERVED = 5,
	POOLS_RESERVED_HIGH = 6,
	POOLS_USED = 7,
	POOLS_USED_HIGH = 8,
};

/* Plain memory that stays in the process. */
static bool pools_served(const gm_cu_pool_props *props)
{
	return props->type == GM_CU_MEM_ALLOCATION_TYPE_PINNED &&
	       props->handle_types == GM_CU_MEM_HANDLE_TYPE_NONE && !props->usage;
}

gm_cu_result cuMemPoolCreate(gm_cu_pool *pool, const gm_cu_pool_props *props)
{
	GM_DRIVER_OR_RETURN(driver, cuMemPoolCreate);
	GM_UNCANCELLED;
	gm_cu_result result = driver->cuMemPoolCreate(pool, props);

	/* If it cannot be noted down, the driver serves it. */
	if (result == GM_CUDA_SUCCESS && props->location.type == GM_CU_MEM_LOCATION_TYPE_DEVICE)
		(void)gm_preload_pools_add(
			*pool, props->location.id, pools_served(props), props->max_size);
	return result;
}

/* As the driver's, it leaves what was allocated. Another pool may have the handle at once. */
gm_cu_result cuMemPoolDestroy(gm_cu_pool pool)
{
	GM_DRIVER_OR_RETURN(driver, cuMemPoolDestroy);
	GM_UNCANCELLED;
	struct gm_preload_pool *own = gm_preload_pools_take(pool);
	gm_cu_result result = driver->cuMemPoolDestroy(pool);

	if (own && result == GM_CUDA_SUCCESS)
		gm_preload_pools_put(own);
	else if (own)
		gm_preload_pools_return(own);
	return result;
}

/* The library caches for all pools together, and gives back all or nothing: nothing, if the pool would
 * have less than the program wants to keep. */
gm_cu_result cuMemPoolTrimTo(gm_cu_pool pool, size_t keep)
{
	GM_DRIVER_OR_RETURN(driver, cuMemPoolTrimTo);
	gm_cu_result result = driver->cuMemPoolTrimTo(pool, keep);
	struct gm_preload_pool *own;

	if (result || !gm_preload_there() || !(own = gm_preload_pools_get(driver, pool)))
		return result;
	if (gm_preload_pools_is_served(own) && keep <= gm_preload_pools_used(own))
		gm_preload_trim();
	gm_preload_pools_put(own);
	return result;
}

/* What is used, and what the library has cached, which counts for the default pool. */
static uint64_t pools_reserved(const struct gm_driver *driver, struct gm_preload_pool *own)
{
	uint64_t bytes = gm_preload_pools_used(own);
	uint32_t number;

	if (gm_preload_pools_is_first(own) && gm_preload_there() &&
		gm_preload_device(driver, gm_preload_pools_device(own), &number))
		bytes += gm_preload_cached(number);
	return bytes;
}

static uint64_t pools_figure(
	const struct gm_driver *driver, struct gm_preload_pool *own, gm_cu_pool_attribute attribute)
{
	switch (attribute) {
	case POOLS_RESERVED:
		return pools_reserved(driver, own);
	case POOLS_RESERVED_HIGH:
		return gm_preload_pools_reserved_high(own, pools_reserved(driver, own));
	case POOLS_USED:
		return gm_preload_pools_used(own);
	default:
		return gm_preload_pools_used_high(own);
	}
}

gm_cu_result cuMemPoolGetAttribute(gm_cu_pool pool, gm_cu_pool_attribute attribute, void *value)
{
	GM_DRIVER_OR_RETURN(driver, cuMemPoolGetAttribute);
	gm_cu_result result = driver->cuMemPoolGetAttribute(pool, attribute, value);
	struct gm_preload_pool *own;

	if (result || attribute < POOLS_RESERVED || attribute > POOLS_USED_HIGH ||
		!(own = gm_preload_pools_get(driver, pool)))
		return result;
	*(uint64_t *)value += pools_figure(driver, own, attribute);
	gm_preload_pools_put(own);
	return result;
}

gm_cu_result cuMemPoolSetAttribute(gm_cu_pool pool, gm_cu_pool_attribute attribute, void *value)
{
	GM_DRIVER_OR_RETURN(driver, cuMemPoolSetAttribute);
	gm_cu_result result = driver->cuMemPoolSetAttribute(pool, attribute, value);
	struct gm_preload_pool *own;

	if (result || (attribute != POOLS_RESERVED_HIGH && attribute != POOLS_USED_HIGH) ||
		!(own = gm_preload_pools_get(driver, pool)))
		return result;
	if (attribute == POOLS_USED_HIGH)
		gm_preload_pools_reset_used_high(own);
	else
		gm_preload_pools_reset_reserved_high(own);
	gm_preload_pools_put(own);
	return result;
}
