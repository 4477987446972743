/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Physical memory that the driver exports: see backend_vmm.h. It must never make a context, and
 * never keep a handle of the driver beside the fd: closing the fd must free the memory.
 */
#include "daemon/backend/backend_vmm.h"

#include <fcntl.h>

gm_cu_result gm_backend_vmm_create(const struct gm_cuda *cuda, const gm_cu_prop *prop,
	uint64_t bytes, int *ret_fd, const char **ret_call)
{
	gm_cu_mem mem;
	gm_cu_result result;
	int fd = -1;

	*ret_call = "cuMemCreate";
	result = cuda->cuMemCreate(&mem, bytes, prop, 0);
	if (result)
		return result;

	*ret_call = "cuMemExportToShareableHandle";
	result = cuda->cuMemExportToShareableHandle(
		&fd, mem, GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);

	/* From now on the fd keeps the memory. If the export failed, this frees it. */
	cuda->cuMemRelease(mem);
	if (result)
		return result;

	fcntl(fd, F_SETFD, FD_CLOEXEC);
	*ret_fd = fd;
	return GM_CUDA_SUCCESS;
}

gm_cu_result gm_backend_vmm_check(const struct gm_cuda *cuda, int fd, const char **ret_call)
{
	gm_cu_mem mem;
	gm_cu_result result;

	*ret_call = "cuMemImportFromShareableHandle";
	result = cuda->cuMemImportFromShareableHandle(
		&mem, (void *)(intptr_t)fd, GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (result == GM_CUDA_SUCCESS)
		cuda->cuMemRelease(mem);
	return result;
}
