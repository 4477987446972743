/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Physical memory that the program maps itself. What cuMemCreate() returns is the driver's handle of a
 * chunk that gpumemd has made and this process has imported, so the driver maps and unmaps it as it does
 * its own. A chunk goes back when its last handle is released and its last mapping is gone. If a thread were cancelled
 * within one of these calls, the chunk would stay for good.
 */
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

#include "common/cancel.h"
#include "preload/broker/preload_broker.h"
#include "preload/broker/preload_report.h"
#include "preload/table/preload_handles.h"

/* Whether gpumemd makes memory as the program wants it. What the driver would refuse is the driver's. */
static bool physical_ours(
	const struct gm_driver *driver, size_t bytes, const gm_cu_prop *prop, uint64_t flags)
{
	int capable = 0;

	if (flags || bytes == 0 || bytes % GPUMEM_CHUNK_GRANULARITY ||
		prop->type != GM_CU_MEM_ALLOCATION_TYPE_PINNED ||
		prop->location.type != GM_CU_MEM_LOCATION_TYPE_DEVICE ||
		(prop->requested_handle_types & ~GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ||
		prop->alloc_flags.compression_type || prop->alloc_flags.usage)
		return false;
	/* The daemon makes all memory fit for this where the device has it. */
	return !prop->alloc_flags.gpu_direct_rdma_capable ||
	       (driver->cuDeviceGetAttribute &&
		       driver->cuDeviceGetAttribute(&capable,
			       GM_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
			       prop->location.id) == GM_CUDA_SUCCESS &&
		       capable);
}

/* The host has no memory for what is noted down of the program's. */
static gm_cu_result physical_no_host(void)
{
	gm_preload_report_why(GM_PRELOAD_REPORT_NO_HOST);
	gm_preload_report_refused();
	return GM_CUDA_ERROR_OUT_OF_MEMORY;
}

static gm_cu_result physical_create(const struct gm_driver *driver, uint32_t number, size_t bytes,
	const gm_cu_prop *prop, gm_cu_mem *ret_handle)
{
	struct gm_handle_about about = {.asked = *prop};
	gm_cu_mem handle;
	int fd;

	gm_cu_result result = gm_preload_chunk(number, bytes, &about.chunk, &fd);
	if (result)
		return result;
	result = driver->cuMemImportFromShareableHandle(
		&handle, (void *)(intptr_t)fd, GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	close(fd);
	if (result == GM_CUDA_SUCCESS && !gm_preload_handles_add(handle, &about)) {
		(void)driver->cuMemRelease(handle);
		result = physical_no_host();
	}
	if (result) {
		gm_preload_chunk_end(about.chunk);
		return result;
	}

	*ret_handle = handle;
	return GM_CUDA_SUCCESS;
}

gm_cu_result cuMemCreate(
	gm_cu_mem *handle, size_t bytes, const gm_cu_prop *prop, unsigned long long flags)
{
	GM_DRIVER_OR_RETURN(driver, cuMemCreate);
	GM_UNCANCELLED;
	uint32_t number;

	if (!handle || !prop || !driver->cuMemImportFromShareableHandle || !driver->cuMemRelease)
		return driver->cuMemCreate(handle, bytes, prop, flags);
	enum gm_preload_answer answer = gm_preload_begin();
	if (answer == GM_BROKER_REFUSED)
		return gm_preload_refuse();
	if (answer == GM_BROKER_READY && physical_ours(driver, bytes, prop, flags) &&
		gm_preload_device(driver, prop->location.id, &number)) {
		gm_cu_result result = physical_create(driver, number, bytes, prop, handle);
		if (result != GM_CUDA_ERROR_NOT_SUPPORTED)
			return result;
		/* The daemon is older than that, or cannot share memory of this device so. */
	}
	gm_preload_count_passed(GM_CALL_cuMemCreate);
	return driver->cuMemCreate(handle, bytes, prop, flags);
}

/* ---- handles */

gm_cu_result cuMemRelease(gm_cu_mem handle)
{
	GM_DRIVER_OR_RETURN(driver, cuMemRelease);
	GM_UNCANCELLED;
	void *entry;

	if (!gm_preload_there() || !gm_preload_handles_release_begin(handle, &entry))
		return driver->cuMemRelease(handle);
	gm_cu_result result = driver->cuMemRelease(handle);
	gm_preload_chunk_end(
		gm_preload_handles_release_end(entry, handle, result == GM_CUDA_SUCCESS));
	return result;
}

gm_cu_result cuMemRetainAllocationHandle(gm_cu_mem *handle, void *addr)
{
	GM_DRIVER_OR_RETURN(driver, cuMemRetainAllocationHandle);
	GM_UNCANCELLED;
	void *entry = handle && gm_preload_there()
			      ? gm_preload_handles_retain_begin((gm_cu_ptr)(uintptr_t)addr)
			      : NULL;
	gm_cu_result result = driver->cuMemRetainAllocationHandle(handle, addr);

	if (entry)
		gm_preload_chunk_end(gm_preload_handles_retain_end(
			entry, result ? 0 : *handle, result == GM_CUDA_SUCCESS));
	return result;
}

gm_cu_result cuMemImportFromShareableHandle(
	gm_cu_mem *handle, void *os_handle, gm_cu_handle_type type)
{
	GM_DRIVER_OR_RETURN(driver, cuMemImportFromShareableHandle);
	GM_UNCANCELLED;
	gm_cu_result result = driver->cuMemImportFromShareableHandle(handle, os_handle, type);

	/* A driver may return the handle that this process has already. */
	if (result == GM_CUDA_SUCCESS && gm_preload_there())
		gm_preload_handles_ref(*handle);
	return result;
}

/* The driver exports only what it made in this process, so the daemon is asked for another descriptor. */
gm_cu_result cuMemExportToShareableHandle(
	void *shareable, gm_cu_mem handle, gm_cu_handle_type type, unsigned long long flags)
{
	GM_DRIVER_OR_RETURN(driver, cuMemExportToShareableHandle);
	GM_UNCANCELLED;
	struct gm_handle_about about;
	int fd;

	/* The program may release the handle meanwhile. */
	void *entry = shareable && !flags && gm_preload_there() &&
				      type == GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
			      ? gm_preload_handles_use(handle, &about)
			      : NULL;
	bool wanted = entry && about.asked.requested_handle_types & type;
	gm_cu_result result =
		wanted ? gm_preload_chunk_fd(about.chunk, &fd)
		       : driver->cuMemExportToShareableHandle(shareable, handle, type, flags);

	if (entry)
		gm_preload_chunk_end(gm_preload_handles_use_end(entry));
	if (wanted && result == GM_CUDA_SUCCESS) {
		(void)fcntl(fd, F_SETFD, 0); /* the driver's descriptors outlive exec() */
		*(int *)shareable = fd;
	}
	return result;
}

/* Of an import, the driver does not know what the program wanted. */
gm_cu_result cuMemGetAllocationPropertiesFromHandle(gm_cu_prop *prop, gm_cu_mem handle)
{
	GM_DRIVER_OR_RETURN(driver, cuMemGetAllocationPropertiesFromHandle);
	gm_cu_result result = driver->cuMemGetAllocationPropertiesFromHandle(prop, handle);
	struct gm_handle_about about;

	if (result == GM_CUDA_SUCCESS && gm_preload_there() &&
		gm_preload_handles_find(handle, &about)) {
		prop->requested_handle_types = about.asked.requested_handle_types;
		prop->alloc_flags = about.asked.alloc_flags;
	}
	return result;
}

/* ---- mappings */

gm_cu_result cuMemMap(
	gm_cu_ptr ptr, size_t bytes, size_t offset, gm_cu_mem handle, unsigned long long flags)
{
	GM_DRIVER_OR_RETURN(driver, cuMemMap);
	GM_UNCANCELLED;
	void *mapping = NULL;

	if (gm_preload_there() && !gm_preload_handles_map_begin(handle, ptr, bytes, &mapping))
		return physical_no_host();
	gm_cu_result result = driver->cuMemMap(ptr, bytes, offset, handle, flags);
	if (mapping)
		gm_preload_chunk_end(
			gm_preload_handles_map_end(mapping, result == GM_CUDA_SUCCESS));
	return result;
}

gm_cu_result cuMemUnmap(gm_cu_ptr ptr, size_t bytes)
{
	GM_DRIVER_OR_RETURN(driver, cuMemUnmap);
	GM_UNCANCELLED;
	void *list = gm_preload_there() ? gm_preload_handles_unmap_begin(ptr, bytes) : NULL;
	gm_cu_result result = driver->cuMemUnmap(ptr, bytes);

	while (list)
		gm_preload_chunk_end(
			gm_preload_handles_unmap_end(&list, result == GM_CUDA_SUCCESS));
	return result;
}
