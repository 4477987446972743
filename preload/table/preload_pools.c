/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of pools by their handles, and a short list of the default ones, which last as long as the
 * process and need no lock. A pool that was destroyed stays until its last allocation is freed.
 */
#include "preload/table/preload_pools.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/cancel.h"
#include "common/lock.h"

struct gm_preload_pool {
	gm_cu_pool handle;
	gm_cu_device device;
	bool first;
	bool served;
	uint64_t most;
	_Atomic uint64_t used, used_high, reserved_high;
	atomic_uint refs; /* the table, each allocation, and each gm_preload_pools_get() */
	struct gm_preload_pool *next;
};

#define POOLS_DEVICES 64
#define POOLS_PLACES  256

static struct gm_lock pools_lock = GM_LOCK_INITIALIZER(GM_LOCK_LEAF);
static struct gm_preload_pool *pools_table[POOLS_PLACES];
static struct gm_preload_pool pools_firsts[POOLS_DEVICES];
static atomic_int pools_firsts_n = -1; /* -1: nobody has asked the driver */

/* ---- the default ones */

/* Another thread may have had the lock when the process forked. */
static void pools_after_fork(void)
{
	gm_lock_init(&pools_lock, GM_LOCK_LEAF);
}

/* Asks for the default pool of a device. Returns false if the driver may answer later. With the lock held. */
static bool pools_ask(
	const struct gm_driver *driver, gm_cu_device device, struct gm_preload_pool *ret_pool)
{
	gm_cu_pool handle = NULL;
	gm_cu_result result = driver->cuDeviceGetDefaultMemPool(&handle, device);

	*ret_pool = (struct gm_preload_pool){.handle = result ? NULL : handle,
		.device = device,
		.first = true,
		.served = true,
		.most = UINT64_MAX};
	return result != GM_CUDA_ERROR_OUT_OF_MEMORY;
}

static __attribute__((noinline, cold)) int pools_find_firsts(const struct gm_driver *driver)
{
	int devices = 0;
	GM_UNCANCELLED; /* the driver is asked while the lock is held */

	if (!driver->cuDeviceGetCount || !driver->cuDeviceGetDefaultMemPool ||
		driver->cuDeviceGetCount(&devices))
		return 0; /* the driver is not there yet */
	devices = devices < POOLS_DEVICES ? devices : POOLS_DEVICES;

	bool known = true;
	gm_lock(&pools_lock);
	if (atomic_load(&pools_firsts_n) < 0) {
		for (int i = 0; i < devices; i++)
			known = pools_ask(driver, i, &pools_firsts[i]) && known;
		if (known) {
			pthread_atfork(NULL, NULL, pools_after_fork);
			atomic_store_explicit(&pools_firsts_n, devices, memory_order_release);
		}
	}
	gm_lock_drop(&pools_lock);
	return known ? devices : 0;
}

static int pools_count_firsts(const struct gm_driver *driver)
{
	int n = atomic_load_explicit(&pools_firsts_n, memory_order_acquire);
	return n < 0 ? pools_find_firsts(driver) : n;
}

struct gm_preload_pool *gm_preload_pools_first(const struct gm_driver *driver, gm_cu_device device)
{
	if (device < 0 || device >= pools_count_firsts(driver) || !pools_firsts[device].handle)
		return NULL;
	return &pools_firsts[device];
}

/* ---- all */

static struct gm_preload_pool **pools_place(gm_cu_pool handle)
{
	uint64_t mixed = (uint64_t)(uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15);
	struct gm_preload_pool **place = &pools_table[mixed >> 56];

	while (*place && (*place)->handle != handle)
		place = &(*place)->next;
	return place;
}

void gm_preload_pools_return(struct gm_preload_pool *pool)
{
	gm_lock(&pools_lock);
	struct gm_preload_pool **place = pools_place(pool->handle);
	pool->next = *place ? (*place)->next : NULL;
	struct gm_preload_pool *before = *place;
	*place = pool;
	gm_lock_drop(&pools_lock);

	/* The driver has ended that one, in a way that nobody saw. */
	if (before)
		gm_preload_pools_put(before);
}

bool gm_preload_pools_add(gm_cu_pool handle, gm_cu_device device, bool served, uint64_t most)
{
	struct gm_preload_pool *pool = calloc(1, sizeof *pool);
	if (!pool)
		return false;

	pool->handle = handle;
	pool->device = device;
	pool->served = served;
	pool->most = most ? most : UINT64_MAX;
	atomic_init(&pool->refs, 1);
	gm_preload_pools_return(pool);
	return true;
}

struct gm_preload_pool *gm_preload_pools_get(const struct gm_driver *driver, gm_cu_pool handle)
{
	int firsts = pools_count_firsts(driver);

	for (int i = 0; i < firsts; i++)
		if (pools_firsts[i].handle == handle)
			return handle ? &pools_firsts[i] : NULL;

	gm_lock(&pools_lock);
	struct gm_preload_pool *pool = *pools_place(handle);
	if (pool)
		atomic_fetch_add_explicit(&pool->refs, 1, memory_order_relaxed);
	gm_lock_drop(&pools_lock);
	return pool;
}

void gm_preload_pools_put(struct gm_preload_pool *pool)
{
	if (!pool->first && atomic_fetch_sub_explicit(&pool->refs, 1, memory_order_acq_rel) == 1)
		free(pool);
}

struct gm_preload_pool *gm_preload_pools_take(gm_cu_pool handle)
{
	gm_lock(&pools_lock);
	struct gm_preload_pool **place = pools_place(handle), *pool = *place;
	if (pool)
		*place = pool->next;
	gm_lock_drop(&pools_lock);
	return pool;
}

gm_cu_pool gm_preload_pools_handle(const struct gm_preload_pool *pool)
{
	return pool->handle;
}

gm_cu_device gm_preload_pools_device(const struct gm_preload_pool *pool)
{
	return pool->device;
}

bool gm_preload_pools_is_served(const struct gm_preload_pool *pool)
{
	return pool->served;
}

bool gm_preload_pools_is_first(const struct gm_preload_pool *pool)
{
	return pool->first;
}

/* ---- figures */

static void pools_raise(_Atomic uint64_t *mark, uint64_t to)
{
	uint64_t seen = atomic_load_explicit(mark, memory_order_relaxed);

	while (seen < to && !atomic_compare_exchange_weak_explicit(
				    mark, &seen, to, memory_order_relaxed, memory_order_relaxed))
		;
}

bool gm_preload_pools_enter(struct gm_preload_pool *pool, uint64_t bytes)
{
	uint64_t before = atomic_fetch_add_explicit(&pool->used, bytes, memory_order_relaxed);

	if (before > pool->most || bytes > pool->most - before) {
		gm_preload_pools_leave(pool, bytes);
		return false;
	}
	pools_raise(&pool->used_high, before + bytes);
	pools_raise(&pool->reserved_high, before + bytes);
	return true;
}

void gm_preload_pools_leave(struct gm_preload_pool *pool, uint64_t bytes)
{
	atomic_fetch_sub_explicit(&pool->used, bytes, memory_order_relaxed);
}

void gm_preload_pools_free(const struct gm_preload_block *block)
{
	if (block->pool) {
		gm_preload_pools_leave(block->pool, block->bytes);
		gm_preload_pools_put(block->pool);
	}
}

uint64_t gm_preload_pools_used(const struct gm_preload_pool *pool)
{
	return atomic_load_explicit(&pool->used, memory_order_relaxed);
}

uint64_t gm_preload_pools_used_high(const struct gm_preload_pool *pool)
{
	return atomic_load_explicit(&pool->used_high, memory_order_relaxed);
}

uint64_t gm_preload_pools_reserved_high(struct gm_preload_pool *pool, uint64_t reserved)
{
	pools_raise(&pool->reserved_high, reserved);
	return atomic_load_explicit(&pool->reserved_high, memory_order_relaxed);
}

/* An allocation in another thread may raise the mark meanwhile, so it is raised again. */
static void pools_reset(struct gm_preload_pool *pool, _Atomic uint64_t *mark)
{
	atomic_store_explicit(mark, 0, memory_order_relaxed);
	pools_raise(mark, gm_preload_pools_used(pool));
}

void gm_preload_pools_reset_used_high(struct gm_preload_pool *pool)
{
	pools_reset(pool, &pool->used_high);
}

void gm_preload_pools_reset_reserved_high(struct gm_preload_pool *pool)
{
	pools_reset(pool, &pool->reserved_high);
}
