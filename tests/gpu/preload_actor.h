/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_GPU_PRELOAD_ACTOR_H
#define GM_TESTS_GPU_PRELOAD_ACTOR_H

#include "common/cuda/cuda_abi.h"

/*
 * A program that uses the driver as any program does and knows nothing of gpumemd: check_preload.c runs
 * it with libgpumem-preload.so. preload_actor ROUTE SCENE; its channel to the test is fd 3.
 *
 * A route is how it finds the driver's functions: "dlsym", "default" (RTLD_DEFAULT), "proc" and "proc2"
 * (both versions of cuGetProcAddress), "none", or "linked", which only preload_linked has.
 */

#define ACTOR_CHANNEL 3
#define ACTOR_BYTES   ((size_t)24 << 20)
#define ACTOR_PIECE   ((size_t)4 << 20)
/* What an array of the actor has, and what a mipmap has on three levels, in whole 2 MiB. */
#define ACTOR_SOLID  ((size_t)16 << 20)
#define ACTOR_MIPMAP ((size_t)22 << 20)

/* How often a pair may call the driver: bench/README.md says which calls these are. */
#define ACTOR_PAIR_CALLS       3
#define ACTOR_ASYNC_PAIR_CALLS 8

/* X(name, exported symbol, version, parameters) */
#define ACTOR_CALLS(X) \
	X(cuInit, cuInit, 2000, (unsigned int flags)) \
	X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, \
		(gm_cu_ctx * ctx, gm_cu_device device)) \
	X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000, (gm_cu_device device)) \
	X(cuCtxSetCurrent, cuCtxSetCurrent, 4000, (gm_cu_ctx ctx)) \
	X(cuCtxDestroy, cuCtxDestroy_v2, 4000, (gm_cu_ctx ctx)) \
	X(cuCtxSynchronize, cuCtxSynchronize, 2000, (void)) \
	X(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020, (size_t * bytes, gm_cu_device device)) \
	X(cuMemAlloc, cuMemAlloc_v2, 3020, (gm_cu_ptr * ptr, size_t bytes)) \
	X(cuMemAllocPitch, cuMemAllocPitch_v2, 3020, \
		(gm_cu_ptr * ptr, size_t * pitch, size_t width, size_t height, \
			unsigned int element)) \
	X(cuMemFree, cuMemFree_v2, 3020, (gm_cu_ptr ptr)) \
	X(cuMemGetInfo, cuMemGetInfo_v2, 3020, (size_t * free_bytes, size_t * total)) \
	X(cuMemGetAddressRange, cuMemGetAddressRange_v2, 3020, \
		(gm_cu_ptr * base, size_t * bytes, gm_cu_ptr ptr)) \
	X(cuPointerGetAttribute, cuPointerGetAttribute, 4000, \
		(void *data, int attribute, gm_cu_ptr ptr)) \
	X(cuPointerGetAttributes, cuPointerGetAttributes, 7000, \
		(unsigned int n, int *attributes, void **data, gm_cu_ptr ptr)) \
	X(cuMemAllocAsync, cuMemAllocAsync, 11020, \
		(gm_cu_ptr * ptr, size_t bytes, gm_cu_stream stream)) \
	X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, \
		(gm_cu_ptr * ptr, size_t bytes, void *pool, gm_cu_stream stream)) \
	X(cuMemFreeAsync, cuMemFreeAsync, 11020, (gm_cu_ptr ptr, gm_cu_stream stream)) \
	X(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020, \
		(void **pool, gm_cu_device device)) \
	X(cuDeviceGetMemPool, cuDeviceGetMemPool, 11020, (void **pool, gm_cu_device device)) \
	X(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020, (gm_cu_device device, void *pool)) \
	X(cuMemPoolCreate, cuMemPoolCreate, 11020, (void **pool, const gm_cu_pool_props *props)) \
	X(cuMemPoolDestroy, cuMemPoolDestroy, 11020, (void *pool)) \
	X(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, (void *pool, size_t keep)) \
	X(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020, \
		(void *pool, int attribute, void *value)) \
	X(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, \
		(void *pool, int attribute, void *value)) \
	X(cuMemPoolGetAccess, cuMemPoolGetAccess, 11020, \
		(int *flags, void *pool, gm_cu_location *location)) \
	X(cuMemPoolSetAccess, cuMemPoolSetAccess, 11020, \
		(void *pool, const gm_cu_access *access, size_t n)) \
	X(cuMemHostAlloc, cuMemHostAlloc, 2020, (void **ptr, size_t bytes, unsigned int flags)) \
	X(cuMemAllocHost, cuMemAllocHost_v2, 3020, (void **ptr, size_t bytes)) \
	X(cuMemFreeHost, cuMemFreeHost, 2000, (void *ptr)) \
	X(cuMemHostGetFlags, cuMemHostGetFlags, 2030, (unsigned int *flags, void *ptr)) \
	X(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, 3020, \
		(gm_cu_ptr * ptr, void *host, unsigned int flags)) \
	X(cuMemAllocManaged, cuMemAllocManaged, 6000, \
		(gm_cu_ptr * ptr, size_t bytes, unsigned int flags)) \
	X(cuArrayCreate, cuArrayCreate_v2, 3020, (void **array, const gm_cu_array_2d *shape)) \
	X(cuArray3DCreate, cuArray3DCreate_v2, 3020, (void **array, const gm_cu_array *shape)) \
	X(cuArrayDestroy, cuArrayDestroy, 2000, (void *array)) \
	X(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, \
		(void **array, const gm_cu_array *shape, unsigned int levels)) \
	X(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, (void *array)) \
	X(cuMemCreate, cuMemCreate, 10020, \
		(gm_cu_mem * handle, size_t bytes, const gm_cu_prop *prop, \
			unsigned long long flags)) \
	X(cuMemRelease, cuMemRelease, 10020, (gm_cu_mem handle)) \
	X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, \
		(gm_cu_mem * handle, void *addr)) \
	X(cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle, 10020, \
		(gm_cu_prop * prop, gm_cu_mem handle)) \
	X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, \
		(void *shareable, gm_cu_mem handle, int type, unsigned long long flags)) \
	X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, \
		(gm_cu_mem * handle, void *os_handle, int type)) \
	X(cuMemAddressReserve, cuMemAddressReserve, 10020, \
		(gm_cu_ptr * ptr, size_t bytes, size_t alignment, gm_cu_ptr addr, \
			unsigned long long flags)) \
	X(cuMemAddressFree, cuMemAddressFree, 10020, (gm_cu_ptr ptr, size_t bytes)) \
	X(cuMemMap, cuMemMap, 10020, \
		(gm_cu_ptr ptr, size_t bytes, size_t offset, gm_cu_mem handle, \
			unsigned long long flags)) \
	X(cuMemUnmap, cuMemUnmap, 10020, (gm_cu_ptr ptr, size_t bytes)) \
	X(cuMemSetAccess, cuMemSetAccess, 10020, \
		(gm_cu_ptr ptr, size_t bytes, const gm_cu_access *access, size_t n)) \
	X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, (gm_cu_ipc_mem * handle, gm_cu_ptr ptr)) \
	X(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, 11000, \
		(gm_cu_ptr * ptr, gm_cu_ipc_mem handle, unsigned int flags)) \
	X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, (gm_cu_ptr ptr)) \
	X(cuMemsetD8Async, cuMemsetD8Async, 3020, \
		(gm_cu_ptr ptr, unsigned char value, size_t bytes, gm_cu_stream stream)) \
	X(cuMemcpyAsync, cuMemcpyAsync, 4000, \
		(gm_cu_ptr to, gm_cu_ptr from, size_t bytes, gm_cu_stream stream)) \
	X(cuStreamCreate, cuStreamCreate, 2000, (gm_cu_stream * stream, unsigned int flags)) \
	X(cuStreamDestroy, cuStreamDestroy_v2, 4000, (gm_cu_stream stream)) \
	X(cuStreamSynchronize, cuStreamSynchronize, 2000, (gm_cu_stream stream)) \
	X(cuStreamBeginCapture, cuStreamBeginCapture_v2, 10010, (gm_cu_stream stream, int mode)) \
	X(cuStreamEndCapture, cuStreamEndCapture, 10000, (gm_cu_stream stream, void **graph)) \
	X(cuGraphCreate, cuGraphCreate, 10000, (void **graph, unsigned int flags)) \
	X(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040, \
		(void **node, void *graph, const void *dependencies, size_t n, \
			gm_cu_alloc_node *parameters)) \
	X(cuGraphAddNode, cuGraphAddNode_v2, 12030, \
		(void **node, void *graph, const void *dependencies, const void *edges, size_t n, \
			gm_cu_any_node *any)) \
	X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, \
		(void **exec, void *graph, unsigned long long flags)) \
	X(cuGraphDestroy, cuGraphDestroy, 10000, (void *graph)) \
	X(cuGraphExecDestroy, cuGraphExecDestroy, 10000, (void *exec)) \
	X(cuLaunchHostFunc, cuLaunchHostFunc, 10000, \
		(gm_cu_stream stream, gm_cu_host_fn fn, void *user))

#endif
