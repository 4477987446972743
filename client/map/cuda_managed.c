/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Managed memory by the driver's own calls. This file uses the older versions of prefetch and advice,
 * which every driver has that has managed memory.
 */
#include "client/map/cuda_operations.h"

#include "gpumem/gpumem_managed.h"

/* As the driver numbers the CPU where it expects a device. */
#define MANAGED_CPU (-1)

_Static_assert(
	(int)GPUMEM_MANAGED_READ_MOSTLY == GM_CU_MEM_ADVISE_SET_READ_MOSTLY &&
		(int)GPUMEM_MANAGED_UNSET_READ_MOSTLY == GM_CU_MEM_ADVISE_UNSET_READ_MOSTLY &&
		(int)GPUMEM_MANAGED_PREFER == GM_CU_MEM_ADVISE_SET_PREFERRED_LOCATION &&
		(int)GPUMEM_MANAGED_UNSET_PREFER == GM_CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION &&
		(int)GPUMEM_MANAGED_ACCESSED_BY == GM_CU_MEM_ADVISE_SET_ACCESSED_BY &&
		(int)GPUMEM_MANAGED_UNSET_ACCESSED_BY == GM_CU_MEM_ADVISE_UNSET_ACCESSED_BY,
	"advice has the driver's numbers");

/* No two allocations of a process have the same id. */
static gm_cu_result managed_ask_id(const struct gm_cuda *cuda, gm_cu_ptr ptr, uint64_t *ret_id)
{
	unsigned long long id = 0;
	gm_cu_result result =
		cuda->cuPointerGetAttribute(&id, GM_CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr);
	*ret_id = id;
	return result;
}

gm_cu_result gm_cuda_managed_make(const struct gm_cuda *cuda, uint64_t bytes, bool attach_host,
	void **ret_addr, uint64_t *ret_id)
{
	gm_cu_ptr ptr = 0;
	if (!cuda->cuMemAllocManaged)
		return GM_CUDA_ERROR_NOT_SUPPORTED;
	gm_cu_result result = cuda->cuMemAllocManaged(
		&ptr, bytes, attach_host ? GM_CU_MEM_ATTACH_HOST : GM_CU_MEM_ATTACH_GLOBAL);
	if (result)
		return result;

	if (!cuda->cuPointerGetAttribute || managed_ask_id(cuda, ptr, ret_id))
		*ret_id = 0;
	*ret_addr = (void *)(uintptr_t)ptr;
	return GM_CUDA_SUCCESS;
}

gm_cu_result gm_cuda_managed_free(const struct gm_cuda *cuda, void *addr, uint64_t id)
{
	gm_cu_ptr ptr = (gm_cu_ptr)(uintptr_t)addr;
	if (id) {
		uint64_t now;
		gm_cu_result result = managed_ask_id(cuda, ptr, &now);
		if (result && result != GM_CUDA_ERROR_INVALID_VALUE)
			return result;
		/* It went with its context, and something else or nothing is there. */
		if (result || now != id)
			return GM_CUDA_SUCCESS;
	}
	return cuda->cuMemFree(ptr);
}

gm_cu_result gm_cuda_managed_prefetch(const struct gm_cuda *cuda, void *addr, uint64_t bytes,
	gm_cu_device device, bool to_host, gm_cu_stream stream)
{
	if (!cuda->cuMemPrefetchAsync)
		return GM_CUDA_ERROR_NOT_SUPPORTED;
	gm_cu_result result = cuda->cuMemPrefetchAsync(
		(gm_cu_ptr)(uintptr_t)addr, bytes, to_host ? MANAGED_CPU : device, stream);
	/* So says a device that cannot be prefetched to: it has no concurrent managed access. */
	return result == GM_CUDA_ERROR_INVALID_DEVICE ? GM_CUDA_ERROR_NOT_SUPPORTED : result;
}

gm_cu_result gm_cuda_managed_advise(const struct gm_cuda *cuda, void *addr, uint64_t bytes,
	int advice, gm_cu_device device, bool host)
{
	if (!cuda->cuMemAdvise)
		return GM_CUDA_ERROR_NOT_SUPPORTED;
	gm_cu_result result = cuda->cuMemAdvise(
		(gm_cu_ptr)(uintptr_t)addr, bytes, advice, host ? MANAGED_CPU : device);
	return result == GM_CUDA_ERROR_INVALID_DEVICE ? GM_CUDA_ERROR_NOT_SUPPORTED : result;
}
