/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pinned host memory. It comes from the daemon's pinned pool where the program cannot tell it from the
 * driver's own; else, and whenever the daemon does not give any, from the driver.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "common/cancel.h"
#include "preload/table/preload_blocks.h"
#include "preload/broker/preload_broker.h"
#include "preload/driver/preload_next.h"

/* Of cuMemHostAlloc(). Every pinned memory has the second one. Write-combined memory is the driver's. */
#define PINNED_PORTABLE  1
#define PINNED_DEVICEMAP 2

/* What is larger rarely lies in one chunk. */
#define PINNED_MOST ((size_t)64 << 20)

/* ---- chunks: the driver refuses a set (cuMemset) across two of them */

static pthread_once_t pinned_once = PTHREAD_ONCE_INIT;
static gm_cu_result (*pinned_retain)(gm_cu_mem *handle, void *addr);
static gm_cu_result (*pinned_release)(gm_cu_mem handle);

static void pinned_find(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	if (!library)
		return;
	*(void **)&pinned_retain = gm_driver_next_symbol(library, "cuMemRetainAllocationHandle");
	*(void **)&pinned_release = gm_driver_next_symbol(library, "cuMemRelease");
	dlclose(library);
}

/* Set for good if the pool has memory that is registered with the driver, and not made by it. */
static atomic_bool pinned_unfit;

/* Whether all of it lies in one chunk: the driver names it by the same handle at both ends. Memory that is
 * registered has none. */
static bool pinned_whole(void *ptr, size_t bytes)
{
	gm_cu_mem first, last;

	pthread_once(&pinned_once, pinned_find);
	if (!pinned_retain || !pinned_release || pinned_retain(&first, ptr)) {
		atomic_store_explicit(&pinned_unfit, true, memory_order_relaxed);
		return false;
	}
	bool whole = pinned_retain(&last, (char *)ptr + bytes - 1) == GM_CUDA_SUCCESS;
	if (whole) {
		(void)pinned_release(last);
		whole = first == last;
	}
	(void)pinned_release(first);
	return whole;
}

/* ---- the calls */

/* true: it is there. false: the driver is to make it. */
static bool pinned_alloc(
	const struct gm_driver *driver, void **ret_ptr, size_t bytes, unsigned int flags)
{
	struct gm_preload_block block = {.bytes = bytes, .host_flags = flags | PINNED_DEVICEMAP};
	uint32_t number;
	void *ptr;
	GM_UNCANCELLED; /* so that what was granted is noted */

	/* To allocate during a capture may be forbidden, which the driver knows. */
	if (!ret_ptr || !bytes || bytes > PINNED_MOST ||
		(flags & ~(unsigned)(PINNED_PORTABLE | PINNED_DEVICEMAP)) ||
		gm_preload_capturing() ||
		atomic_load_explicit(&pinned_unfit, memory_order_relaxed) ||
		gm_preload_begin() != GM_BROKER_READY ||
		!gm_preload_current(driver, &block.ctx, &number) ||
		!gm_preload_host_alloc(bytes, &ptr))
		return false;

	block.base = (gm_cu_ptr)(uintptr_t)ptr;
	if (!pinned_whole(ptr, bytes) || !gm_preload_blocks_add(&block)) {
		gm_preload_free(block.base, GPUMEM_STREAM_DONE);
		return false;
	}
	*ret_ptr = ptr;
	return true;
}

gm_cu_result cuMemHostAlloc(void **ptr, size_t bytes, unsigned int flags)
{
	GM_DRIVER_OR_RETURN(driver, cuMemHostAlloc);
	return pinned_alloc(driver, ptr, bytes, flags) ? GM_CUDA_SUCCESS
						       : driver->cuMemHostAlloc(ptr, bytes, flags);
}

gm_cu_result cuMemAllocHost_v2(void **ptr, size_t bytes)
{
	GM_DRIVER_OR_RETURN(driver, cuMemAllocHost_v2);
	return pinned_alloc(driver, ptr, bytes, 0) ? GM_CUDA_SUCCESS
						   : driver->cuMemAllocHost_v2(ptr, bytes);
}

/* Does not wait: the memory is used again when the work that was launched before is done. */
gm_cu_result cuMemFreeHost(void *ptr)
{
	GM_DRIVER_OR_RETURN(driver, cuMemFreeHost);
	gm_cu_ptr at = (gm_cu_ptr)(uintptr_t)ptr;
	struct gm_preload_block block;

	if (!gm_preload_there() || !gm_preload_blocks_near(at) ||
		!gm_preload_blocks_take_host(at, &block))
		return driver->cuMemFreeHost(ptr);
	gm_preload_free(at, GPUMEM_STREAM_ANY); /* any context may use it */
	return GM_CUDA_SUCCESS;
}

gm_cu_result cuMemHostGetFlags(unsigned int *flags, void *ptr)
{
	GM_DRIVER_OR_RETURN(driver, cuMemHostGetFlags);
	gm_cu_ptr at = (gm_cu_ptr)(uintptr_t)ptr;
	struct gm_preload_block block;

	if (!flags || !gm_preload_there() || !gm_preload_blocks_near(at) ||
		!gm_preload_blocks_find(at, &block) || !block.host_flags)
		return driver->cuMemHostGetFlags(flags, ptr);
	*flags = block.host_flags;
	return GM_CUDA_SUCCESS;
}
