/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_CALLS_H
#define GM_PRELOAD_CALLS_H

#include "common/cuda/cuda_abi.h"

/*
 * The calls of the driver that the library stands in for. doc/compat.md says what becomes of each of
 * them, and of those that are not here.
 *
 * X(exported symbol, name, CUDA version that has this signature, flags of cuGetProcAddress, parameters).
 * The name and the version are what a program gives cuGetProcAddress(). A symbol that ends in _ptsz
 * takes the thread's own default stream for the stream 0.
 *
 * To intercept one more call, add its row here, write the function of that name in a hook_*.c, and list
 * the symbol in libgpumem-preload.map.
 */

typedef struct gm_cu_pool_opaque *gm_cu_pool;
typedef struct gm_cu_graph_opaque *gm_cu_graph;
typedef int gm_cu_pool_attribute;

#define GM_PRELOAD_PER_THREAD 2 /* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */

#define GM_PRELOAD_CALLS(X) \
	GM_PRELOAD_LOOKUP_CALLS(X) \
	GM_PRELOAD_MEMORY_CALLS(X) \
	GM_PRELOAD_PHYSICAL_CALLS(X) \
	GM_PRELOAD_IPC_CALLS(X) \
	GM_PRELOAD_STREAM_CALLS(X, , 0) \
	GM_PRELOAD_STREAM_CALLS(X, _ptsz, GM_PRELOAD_PER_THREAD) \
	GM_PRELOAD_CONTEXT_CALLS(X) \
	GM_PRELOAD_DECLARED_CALLS(X)

#define GM_PRELOAD_LOOKUP_CALLS(X) \
	X(cuGetProcAddress, "cuGetProcAddress", 11030, 0, \
		(const char *name, void **fn, int version, gm_cu_u64 flags)) \
	X(cuGetProcAddress_v2, "cuGetProcAddress", 12000, 0, \
		(const char *name, void **fn, int version, gm_cu_u64 flags, \
			gm_cu_query_result *status))

#define GM_PRELOAD_MEMORY_CALLS(X) \
	X(cuMemAlloc_v2, "cuMemAlloc", 3020, 0, (gm_cu_ptr * ptr, size_t bytes)) \
	X(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, 0, \
		(gm_cu_ptr * ptr, size_t * pitch, size_t width, size_t height, \
			unsigned int element)) \
	X(cuMemFree_v2, "cuMemFree", 3020, 0, (gm_cu_ptr ptr)) \
	X(cuMemGetInfo_v2, "cuMemGetInfo", 3020, 0, (size_t * free_bytes, size_t * total)) \
	X(cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020, 0, (size_t * bytes, gm_cu_device device)) \
	X(cuMemGetAddressRange_v2, "cuMemGetAddressRange", 3020, 0, \
		(gm_cu_ptr * base, size_t * bytes, gm_cu_ptr ptr)) \
	X(cuPointerGetAttribute, "cuPointerGetAttribute", 4000, 0, \
		(void *data, gm_cu_pointer_attribute attribute, gm_cu_ptr ptr)) \
	X(cuPointerGetAttributes, "cuPointerGetAttributes", 7000, 0, \
		(unsigned int n, gm_cu_pointer_attribute *attributes, void **data, gm_cu_ptr ptr)) \
	X(cuMemHostAlloc, "cuMemHostAlloc", 2020, 0, \
		(void **ptr, size_t bytes, unsigned int flags)) \
	X(cuMemAllocHost_v2, "cuMemAllocHost", 3020, 0, (void **ptr, size_t bytes)) \
	X(cuMemFreeHost, "cuMemFreeHost", 2000, 0, (void *ptr)) \
	X(cuMemHostGetFlags, "cuMemHostGetFlags", 2030, 0, (unsigned int *flags, void *ptr)) \
	X(cuDeviceSetMemPool, "cuDeviceSetMemPool", 11020, 0, \
		(gm_cu_device device, gm_cu_pool pool)) \
	X(cuMemSetMemPool, "cuMemSetMemPool", 13000, 0, \
		(gm_cu_location * location, int type, gm_cu_pool pool)) \
	X(cuMemPoolCreate, "cuMemPoolCreate", 11020, 0, \
		(gm_cu_pool * pool, const gm_cu_pool_props *props)) \
	X(cuMemPoolDestroy, "cuMemPoolDestroy", 11020, 0, (gm_cu_pool pool)) \
	X(cuMemPoolTrimTo, "cuMemPoolTrimTo", 11020, 0, (gm_cu_pool pool, size_t keep)) \
	X(cuMemPoolGetAttribute, "cuMemPoolGetAttribute", 11020, 0, \
		(gm_cu_pool pool, gm_cu_pool_attribute attribute, void *value)) \
	X(cuMemPoolSetAttribute, "cuMemPoolSetAttribute", 11020, 0, \
		(gm_cu_pool pool, gm_cu_pool_attribute attribute, void *value))

#define GM_PRELOAD_PHYSICAL_CALLS(X) \
	X(cuMemCreate, "cuMemCreate", 10020, 0, \
		(gm_cu_mem * handle, size_t bytes, const gm_cu_prop *prop, \
			unsigned long long flags)) \
	X(cuMemRelease, "cuMemRelease", 10020, 0, (gm_cu_mem handle)) \
	X(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", 11000, 0, \
		(gm_cu_mem * handle, void *addr)) \
	X(cuMemMap, "cuMemMap", 10020, 0, \
		(gm_cu_ptr ptr, size_t bytes, size_t offset, gm_cu_mem handle, \
			unsigned long long flags)) \
	X(cuMemUnmap, "cuMemUnmap", 10020, 0, (gm_cu_ptr ptr, size_t bytes)) \
	X(cuMemExportToShareableHandle, "cuMemExportToShareableHandle", 10020, 0, \
		(void *shareable, gm_cu_mem handle, gm_cu_handle_type type, \
			unsigned long long flags)) \
	X(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", 10020, 0, \
		(gm_cu_mem * handle, void *os_handle, gm_cu_handle_type type)) \
	X(cuMemGetAllocationPropertiesFromHandle, "cuMemGetAllocationPropertiesFromHandle", 10020, \
		0, (gm_cu_prop * prop, gm_cu_mem handle))

#define GM_PRELOAD_IPC_CALLS(X) \
	X(cuIpcGetMemHandle, "cuIpcGetMemHandle", 4010, 0, \
		(gm_cu_ipc_mem * handle, gm_cu_ptr ptr)) \
	X(cuIpcOpenMemHandle, "cuIpcOpenMemHandle", 4010, 0, \
		(gm_cu_ptr * ptr, gm_cu_ipc_mem handle, unsigned int flags)) \
	X(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", 11000, 0, \
		(gm_cu_ptr * ptr, gm_cu_ipc_mem handle, unsigned int flags)) \
	X(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", 4010, 0, (gm_cu_ptr ptr))

/* Each exists twice: for the default stream that all threads share, and for a thread's own. */
#define GM_PRELOAD_STREAM_CALLS(X, suffix, flags) \
	X(cuMemAllocAsync##suffix, "cuMemAllocAsync", 11020, flags, \
		(gm_cu_ptr * ptr, size_t bytes, gm_cu_stream stream)) \
	X(cuMemAllocFromPoolAsync##suffix, "cuMemAllocFromPoolAsync", 11020, flags, \
		(gm_cu_ptr * ptr, size_t bytes, gm_cu_pool pool, gm_cu_stream stream)) \
	X(cuMemFreeAsync##suffix, "cuMemFreeAsync", 11020, flags, \
		(gm_cu_ptr ptr, gm_cu_stream stream)) \
	X(cuStreamBeginCapture##suffix, "cuStreamBeginCapture", 10000, flags, \
		(gm_cu_stream stream)) \
	X(cuStreamBeginCapture_v2##suffix, "cuStreamBeginCapture", 10010, flags, \
		(gm_cu_stream stream, gm_cu_capture_mode mode)) \
	X(cuStreamBeginCaptureToGraph##suffix, "cuStreamBeginCaptureToGraph", 12030, flags, \
		(gm_cu_stream stream, gm_cu_graph graph, const void *dependencies, \
			const void *edges, size_t n, gm_cu_capture_mode mode)) \
	X(cuStreamEndCapture##suffix, "cuStreamEndCapture", 10000, flags, \
		(gm_cu_stream stream, gm_cu_graph * graph))

#define GM_PRELOAD_CONTEXT_CALLS(X) \
	X(cuCtxDestroy, "cuCtxDestroy", 2000, 0, (gm_cu_ctx ctx)) \
	X(cuCtxDestroy_v2, "cuCtxDestroy", 4000, 0, (gm_cu_ctx ctx)) \
	X(cuCtxDetach, "cuCtxDetach", 2000, 0, (gm_cu_ctx ctx)) \
	X(cuCtxFromGreenCtx, "cuCtxFromGreenCtx", 12040, 0, (gm_cu_ctx * ctx, void *green)) \
	X(cuGreenCtxDestroy, "cuGreenCtxDestroy", 12040, 0, (void *green)) \
	X(cuStreamDestroy, "cuStreamDestroy", 2000, 0, (gm_cu_stream stream)) \
	X(cuStreamDestroy_v2, "cuStreamDestroy", 4000, 0, (gm_cu_stream stream)) \
	X(cuDevicePrimaryCtxReset, "cuDevicePrimaryCtxReset", 7000, 0, (gm_cu_device device)) \
	X(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, 0, (gm_cu_device device))

/* The driver serves these, and the daemon charges for what they make. */
#define GM_PRELOAD_DECLARED_CALLS(X) \
	X(cuMemAllocManaged, "cuMemAllocManaged", 6000, 0, \
		(gm_cu_ptr * ptr, size_t bytes, unsigned int flags)) \
	X(cuArrayCreate_v2, "cuArrayCreate", 3020, 0, \
		(void **array, const gm_cu_array_2d *description)) \
	X(cuArray3DCreate_v2, "cuArray3DCreate", 3020, 0, \
		(void **array, const gm_cu_array *description)) \
	X(cuArrayDestroy, "cuArrayDestroy", 2000, 0, (void *array)) \
	X(cuMipmappedArrayCreate, "cuMipmappedArrayCreate", 5000, 0, \
		(void **array, const gm_cu_array *description, unsigned int levels)) \
	X(cuMipmappedArrayDestroy, "cuMipmappedArrayDestroy", 5000, 0, (void *array)) \
	X(cuGraphAddMemAllocNode, "cuGraphAddMemAllocNode", 11040, 0, \
		(void **node, gm_cu_graph graph, const void *dependencies, size_t n, \
			gm_cu_alloc_node *parameters)) \
	X(cuGraphAddNode, "cuGraphAddNode", 12020, 0, \
		(void **node, gm_cu_graph graph, const void *dependencies, size_t n, \
			gm_cu_any_node *any)) \
	X(cuGraphAddNode_v2, "cuGraphAddNode", 12030, 0, \
		(void **node, gm_cu_graph graph, const void *dependencies, const void *edges, \
			size_t n, gm_cu_any_node *any)) \
	X(cuGraphInstantiate, "cuGraphInstantiate", 10000, 0, \
		(void **exec, gm_cu_graph graph, void **node, char *log, size_t room)) \
	X(cuGraphInstantiate_v2, "cuGraphInstantiate", 11000, 0, \
		(void **exec, gm_cu_graph graph, void **node, char *log, size_t room)) \
	X(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 11040, 0, \
		(void **exec, gm_cu_graph graph, unsigned long long flags)) \
	X(cuGraphInstantiateWithParams, "cuGraphInstantiateWithParams", 12000, 0, \
		(void **exec, gm_cu_graph graph, void *parameters)) \
	X(cuGraphInstantiateWithParams_ptsz, "cuGraphInstantiateWithParams", 12000, \
		GM_PRELOAD_PER_THREAD, (void **exec, gm_cu_graph graph, void *parameters)) \
	X(cuGraphClone, "cuGraphClone", 10000, 0, (void **clone, gm_cu_graph graph)) \
	X(cuGraphDestroy, "cuGraphDestroy", 10000, 0, (gm_cu_graph graph)) \
	X(cuGraphExecDestroy, "cuGraphExecDestroy", 10000, 0, (void *exec))

/* Of NVML. X(exported symbol, parameters). */
#define GM_PRELOAD_NVML_CALLS(X) \
	X(nvmlDeviceGetMemoryInfo, (gm_nvml_device device, gm_nvml_memory * memory)) \
	X(nvmlDeviceGetMemoryInfo_v2, (gm_nvml_device device, gm_nvml_memory_v2 * memory))

/* What the library calls itself and leaves to the driver. X(exported symbol, parameters). */
#define GM_PRELOAD_USED(X) \
	X(cuArrayGetMemoryRequirements, \
		(gm_cu_array_needs * needs, void *array, gm_cu_device device)) \
	X(cuCtxGetCurrent, (gm_cu_ctx * ctx)) \
	X(cuCtxGetDevice, (gm_cu_device * device)) \
	X(cuCtxSynchronize, (void)) \
	X(cuCtxSynchronize_v2, (gm_cu_ctx ctx)) \
	X(cuCtxPushCurrent_v2, (gm_cu_ctx ctx)) \
	X(cuCtxPopCurrent_v2, (gm_cu_ctx * ctx)) \
	X(cuDevicePrimaryCtxGetState, (gm_cu_device device, unsigned int *flags, int *active)) \
	X(cuDevicePrimaryCtxRetain, (gm_cu_ctx * ctx, gm_cu_device device)) \
	X(cuDevicePrimaryCtxRelease_v2, (gm_cu_device device)) \
	X(cuDeviceGetCount, (int *count)) \
	X(cuDeviceGetAttribute, (int *value, gm_cu_attribute attribute, gm_cu_device device)) \
	X(cuDeviceGetUuid_v2, (gm_cu_uuid * uuid, gm_cu_device device)) \
	X(cuDeviceGetDefaultMemPool, (gm_cu_pool * pool, gm_cu_device device)) \
	X(cuDeviceGetMemPool, (gm_cu_pool * pool, gm_cu_device device)) \
	X(cuStreamGetCtx, (gm_cu_stream stream, gm_cu_ctx * ctx)) \
	X(cuStreamGetCaptureInfo_v2, \
		(gm_cu_stream stream, gm_cu_capture_status * status, gm_cu_u64 * id, \
			gm_cu_graph * graph, const void **dependencies, size_t *n)) \
	X(cuStreamIsCapturing, (gm_cu_stream stream, gm_cu_capture_status * status))

/* A number for each call. */
enum gm_preload_call {
#define GM_PRELOAD_NUMBER(symbol, name, version, flags, parameters) GM_CALL_##symbol,
	GM_PRELOAD_CALLS(GM_PRELOAD_NUMBER)
#undef GM_PRELOAD_NUMBER
		GM_PRELOAD_CALLS_N
};

#define GM_PRELOAD_API __attribute__((visibility("default")))

#define GM_PRELOAD_DECLARE(symbol, name, version, flags, parameters) \
	GM_PRELOAD_API gm_cu_result symbol parameters;
GM_PRELOAD_CALLS(GM_PRELOAD_DECLARE)
#undef GM_PRELOAD_DECLARE

#define GM_PRELOAD_DECLARE_NVML(symbol, parameters) GM_PRELOAD_API gm_nvml_return symbol parameters;
GM_PRELOAD_NVML_CALLS(GM_PRELOAD_DECLARE_NVML)
#undef GM_PRELOAD_DECLARE_NVML

#endif
