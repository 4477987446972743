/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CUDA_CUDA_ABI_H
#define GM_CUDA_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

/*
 * Our own declarations of the parts of the CUDA driver and of NVML that we use, so that no Toolkit
 * is needed to build. If cuda.h is installed, check_cuda_abi.c and check_cuda_abi_signatures.c in
 * tests/unit/cuda compare every size, offset, value, signature and version here with it. If
 * nvml.h is installed, check_cuda_abi_nvml.c does the same.
 *
 * Those tests define GM_CU_ABI_TYPES_GIVEN or GM_NVML_ABI_TYPES_GIVEN if they define the types
 * themselves.
 */

#ifndef GM_CU_ABI_TYPES_GIVEN
typedef int gm_cu_result;
typedef int gm_cu_device;
typedef unsigned long long gm_cu_ptr;
typedef unsigned long long gm_cu_mem; /* a physical allocation's generic handle */
typedef struct gm_cu_ctx_opaque *gm_cu_ctx;
typedef struct gm_cu_stream_opaque *gm_cu_stream;
typedef struct gm_cu_event_opaque *gm_cu_event;
typedef uint64_t gm_cu_u64;

typedef struct gm_cu_uuid {
	char bytes[16];
} gm_cu_uuid;

typedef struct gm_cu_ipc_mem {
	char reserved[64];
} gm_cu_ipc_mem;

typedef struct gm_cu_location {
	int type;
	int id;
} gm_cu_location;

typedef struct gm_cu_prop {
	int type;
	int requested_handle_types;
	gm_cu_location location;
	void *win32_handle_meta_data;
	struct {
		unsigned char compression_type;
		unsigned char gpu_direct_rdma_capable;
		unsigned short usage;
		unsigned char reserved[4];
	} alloc_flags;
} gm_cu_prop;

typedef struct gm_cu_access {
	gm_cu_location location;
	int flags;
} gm_cu_access;

/* The properties of a memory pool. Drivers before CUDA 12 reserve everything after win32_security; callers
 * set it to 0. */
typedef struct gm_cu_pool_props {
	int type;
	int handle_types;
	gm_cu_location location;
	void *win32_security;
	size_t max_size; /* 0: as the driver likes */
	unsigned short usage;
	unsigned char reserved[54];
} gm_cu_pool_props;

/* Of a memory node of a graph. */
typedef struct gm_cu_alloc_node {
	gm_cu_pool_props pool;
	const gm_cu_access *access;
	size_t n_access;
	size_t bytes;
	gm_cu_ptr ptr; /* the driver writes it */
} gm_cu_alloc_node;

/* The driver takes these parameters for a node that is a graph. */
typedef struct gm_cu_child_node {
	void *graph;
	int ownership;
} gm_cu_child_node;

#define GM_CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE 0
#define GM_CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE  1
#define GM_CU_GRAPH_NODE_TYPE_GRAPH             4
#define GM_CU_GRAPH_NODE_TYPE_MEM_ALLOC         10

/* The driver takes these parameters for any node. gpumemd names only the kinds that it reads. */
typedef struct gm_cu_any_node {
	int type;
	int reserved[3];
	union {
		gm_cu_alloc_node memory;
		gm_cu_child_node child;
	};
} gm_cu_any_node;

/* Shapes of arrays, and what one of them needs. */
typedef struct gm_cu_array_2d {
	size_t width, height;
	int format;
	unsigned int channels;
} gm_cu_array_2d;

typedef struct gm_cu_array {
	size_t width, height, depth;
	int format;
	unsigned int channels;
	unsigned int flags;
} gm_cu_array;

typedef struct gm_cu_array_needs {
	size_t size;
	size_t alignment;
	unsigned int reserved[4];
} gm_cu_array_needs;

/* Enumerations of the driver. All are as wide as an int. */
typedef int gm_cu_attribute;
typedef int gm_cu_handle_type;
typedef int gm_cu_granularity;
typedef int gm_cu_capture_status;
typedef int gm_cu_capture_mode;
typedef int gm_cu_query_result;
typedef int gm_cu_pointer_attribute;
typedef int gm_cu_advice;
typedef void (*gm_cu_host_fn)(void *user);
#endif

/* Values. X(name, value): the driver's own name; ours is the same with GM_ in front. */
#define GM_CU_VALUES(X) \
	X(CUDA_SUCCESS, 0) \
	X(CUDA_ERROR_INVALID_VALUE, 1) \
	X(CUDA_ERROR_OUT_OF_MEMORY, 2) \
	X(CUDA_ERROR_NOT_INITIALIZED, 3) \
	X(CUDA_ERROR_DEINITIALIZED, 4) \
	X(CUDA_ERROR_STUB_LIBRARY, 34) \
	X(CUDA_ERROR_DEVICE_UNAVAILABLE, 46) \
	X(CUDA_ERROR_NO_DEVICE, 100) \
	X(CUDA_ERROR_INVALID_DEVICE, 101) \
	X(CUDA_ERROR_INVALID_CONTEXT, 201) \
	X(CUDA_ERROR_MAP_FAILED, 205) \
	X(CUDA_ERROR_ALREADY_MAPPED, 208) \
	X(CUDA_ERROR_ECC_UNCORRECTABLE, 214) \
	X(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217) \
	X(CUDA_ERROR_OPERATING_SYSTEM, 304) \
	X(CUDA_ERROR_INVALID_HANDLE, 400) \
	X(CUDA_ERROR_ILLEGAL_STATE, 401) \
	X(CUDA_ERROR_NOT_FOUND, 500) \
	X(CUDA_ERROR_NOT_READY, 600) \
	X(CUDA_ERROR_ILLEGAL_ADDRESS, 700) \
	X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712) \
	X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713) \
	X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709) \
	X(CUDA_ERROR_LAUNCH_FAILED, 719) \
	X(CUDA_ERROR_NOT_PERMITTED, 800) \
	X(CUDA_ERROR_NOT_SUPPORTED, 801) \
	X(CUDA_ERROR_SYSTEM_NOT_READY, 802) \
	X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803) \
	X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900) \
	X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901) \
	X(CUDA_ERROR_STREAM_CAPTURE_MERGE, 902) \
	X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, 903) \
	X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, 904) \
	X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, 905) \
	X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906) \
	X(CUDA_ERROR_CAPTURED_EVENT, 907) \
	X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908) \
	X(CUDA_ERROR_UNKNOWN, 999) \
	X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16) \
	X(CU_DEVICE_ATTRIBUTE_INTEGRATED, 18) \
	X(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 41) \
	X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75) \
	X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76) \
	X(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 83) \
	X(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 88) \
	X(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 89) \
	X(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102) \
	X(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103) \
	X(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 110) \
	X(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 122) \
	X(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 125) \
	X(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 128) \
	X(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 134) \
	X(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 141) \
	X(CU_MEM_ALLOCATION_TYPE_PINNED, 1) \
	X(CU_MEM_HANDLE_TYPE_NONE, 0) \
	X(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1) \
	X(CU_MEM_LOCATION_TYPE_DEVICE, 1) \
	X(CU_MEM_LOCATION_TYPE_HOST, 2) \
	X(CU_MEM_LOCATION_TYPE_HOST_NUMA, 3) \
	X(CU_MEM_ACCESS_FLAGS_PROT_NONE, 0) \
	X(CU_MEM_ACCESS_FLAGS_PROT_READ, 1) \
	X(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3) \
	X(CU_MEM_ALLOC_GRANULARITY_MINIMUM, 0) \
	X(CU_STREAM_CAPTURE_STATUS_NONE, 0) \
	X(CU_STREAM_CAPTURE_STATUS_ACTIVE, 1) \
	X(CU_STREAM_CAPTURE_STATUS_INVALIDATED, 2) \
	X(CU_STREAM_CAPTURE_MODE_GLOBAL, 0) \
	X(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1) \
	X(CU_STREAM_CAPTURE_MODE_RELAXED, 2) \
	X(CU_STREAM_NON_BLOCKING, 1) \
	X(CU_STREAM_WAIT_VALUE_GEQ, 0) \
	X(CU_STREAM_WRITE_VALUE_DEFAULT, 0) \
	X(CU_EVENT_DISABLE_TIMING, 2) \
	X(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, 1) \
	X(CU_MEM_ATTACH_GLOBAL, 1) \
	X(CU_MEM_ATTACH_HOST, 2) \
	X(CU_MEM_ADVISE_SET_READ_MOSTLY, 1) \
	X(CU_MEM_ADVISE_UNSET_READ_MOSTLY, 2) \
	X(CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 3) \
	X(CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, 4) \
	X(CU_MEM_ADVISE_SET_ACCESSED_BY, 5) \
	X(CU_MEM_ADVISE_UNSET_ACCESSED_BY, 6) \
	X(CU_MEMHOSTREGISTER_PORTABLE, 1) \
	X(CU_MEMHOSTREGISTER_DEVICEMAP, 2) \
	X(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2) \
	X(CU_POINTER_ATTRIBUTE_BUFFER_ID, 7) \
	X(CU_MEMORYTYPE_HOST, 1) \
	X(CU_MEMORYTYPE_DEVICE, 2) \
	X(CU_GET_PROC_ADDRESS_DEFAULT, 0)

enum gm_cu_value {
#define GM_CU_VALUE_ENUM(name, value) GM_##name = (value),
	GM_CU_VALUES(GM_CU_VALUE_ENUM)
#undef GM_CU_VALUE_ENUM
};

/* The two default streams by their special handles; NULL is the legacy one. */
#define GM_CU_STREAM_LEGACY     1
#define GM_CU_STREAM_PER_THREAD 2

/*
 * Functions. X(name, exported symbol, CUDA version that has this signature, needed, parameters).
 * needed is 1 if nothing works without the function. If it is 0, the pointer may be NULL, and
 * callers must do without.
 */
#define GM_CU_FUNCTIONS(X) \
	X(cuInit, "cuInit", 2000, 1, (unsigned int flags)) \
	X(cuDriverGetVersion, "cuDriverGetVersion", 2020, 1, (int *version)) \
	X(cuGetErrorName, "cuGetErrorName", 6000, 1, (gm_cu_result error, const char **name)) \
	X(cuGetErrorString, "cuGetErrorString", 6000, 1, (gm_cu_result error, const char **text)) \
	X(cuDeviceGetCount, "cuDeviceGetCount", 2000, 1, (int *count)) \
	X(cuDeviceGet, "cuDeviceGet", 2000, 1, (gm_cu_device * device, int ordinal)) \
	X(cuDeviceGetName, "cuDeviceGetName", 2000, 1, \
		(char *name, int room, gm_cu_device device)) \
	X(cuDeviceGetUuid, "cuDeviceGetUuid_v2", 11040, 1, \
		(gm_cu_uuid * uuid, gm_cu_device device)) \
	X(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId", 4010, 1, \
		(char *id, int room, gm_cu_device device)) \
	X(cuDeviceTotalMem, "cuDeviceTotalMem_v2", 3020, 1, (size_t * bytes, gm_cu_device device)) \
	X(cuDeviceGetAttribute, "cuDeviceGetAttribute", 2000, 1, \
		(int *value, gm_cu_attribute attribute, gm_cu_device device)) \
	X(cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer", 4000, 0, \
		(int *can, gm_cu_device device, gm_cu_device peer)) \
	X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, 1, \
		(gm_cu_ctx * ctx, gm_cu_device device)) \
	X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", 11000, 1, \
		(gm_cu_device device)) \
	X(cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState", 7000, 1, \
		(gm_cu_device device, unsigned int *flags, int *active)) \
	X(cuCtxGetCurrent, "cuCtxGetCurrent", 4000, 1, (gm_cu_ctx * ctx)) \
	X(cuCtxSetCurrent, "cuCtxSetCurrent", 4000, 1, (gm_cu_ctx ctx)) \
	X(cuCtxPushCurrent, "cuCtxPushCurrent_v2", 4000, 1, (gm_cu_ctx ctx)) \
	X(cuCtxPopCurrent, "cuCtxPopCurrent_v2", 4000, 1, (gm_cu_ctx * ctx)) \
	X(cuCtxGetDevice, "cuCtxGetDevice", 2000, 1, (gm_cu_device * device)) \
	X(cuCtxSynchronize, "cuCtxSynchronize", 2000, 1, (void)) \
	X(cuCtxGetApiVersion, "cuCtxGetApiVersion", 3020, 1, \
		(gm_cu_ctx ctx, unsigned int *version)) \
	X(cuCtxGetId, "cuCtxGetId", 12000, 0, (gm_cu_ctx ctx, unsigned long long *id)) \
	X(cuCtxDestroy, "cuCtxDestroy_v2", 4000, 1, (gm_cu_ctx ctx)) \
	X(cuCtxRecordEvent, "cuCtxRecordEvent", 12050, 0, (gm_cu_ctx ctx, gm_cu_event event)) \
	X(cuMemGetInfo, "cuMemGetInfo_v2", 3020, 1, (size_t * free_bytes, size_t * total)) \
	X(cuMemAlloc, "cuMemAlloc_v2", 3020, 1, (gm_cu_ptr * ptr, size_t bytes)) \
	X(cuMemFree, "cuMemFree_v2", 3020, 1, (gm_cu_ptr ptr)) \
	X(cuIpcGetMemHandle, "cuIpcGetMemHandle", 4010, 0, \
		(gm_cu_ipc_mem * handle, gm_cu_ptr ptr)) \
	X(cuIpcOpenMemHandle, "cuIpcOpenMemHandle_v2", 11000, 0, \
		(gm_cu_ptr * ptr, gm_cu_ipc_mem handle, unsigned int flags)) \
	X(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", 4010, 0, (gm_cu_ptr ptr)) \
	X(cuMemGetAllocationGranularity, "cuMemGetAllocationGranularity", 10020, 0, \
		(size_t * granularity, const gm_cu_prop *prop, gm_cu_granularity option)) \
	X(cuMemCreate, "cuMemCreate", 10020, 0, \
		(gm_cu_mem * handle, size_t bytes, const gm_cu_prop *prop, \
			unsigned long long flags)) \
	X(cuMemRelease, "cuMemRelease", 10020, 0, (gm_cu_mem handle)) \
	X(cuMemExportToShareableHandle, "cuMemExportToShareableHandle", 10020, 0, \
		(void *shareable, gm_cu_mem handle, gm_cu_handle_type type, \
			unsigned long long flags)) \
	X(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", 10020, 0, \
		(gm_cu_mem * handle, void *os_handle, gm_cu_handle_type type)) \
	X(cuMemAddressReserve, "cuMemAddressReserve", 10020, 0, \
		(gm_cu_ptr * ptr, size_t bytes, size_t alignment, gm_cu_ptr addr, \
			unsigned long long flags)) \
	X(cuMemAddressFree, "cuMemAddressFree", 10020, 0, (gm_cu_ptr ptr, size_t bytes)) \
	X(cuMemMap, "cuMemMap", 10020, 0, \
		(gm_cu_ptr ptr, size_t bytes, size_t offset, gm_cu_mem handle, \
			unsigned long long flags)) \
	X(cuMemUnmap, "cuMemUnmap", 10020, 0, (gm_cu_ptr ptr, size_t bytes)) \
	X(cuMemSetAccess, "cuMemSetAccess", 10020, 0, \
		(gm_cu_ptr ptr, size_t bytes, const gm_cu_access *access, size_t n)) \
	X(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", 11000, 0, \
		(gm_cu_mem * handle, void *addr)) \
	X(cuMemAllocManaged, "cuMemAllocManaged", 6000, 0, \
		(gm_cu_ptr * ptr, size_t bytes, unsigned int flags)) \
	X(cuMemHostAlloc, "cuMemHostAlloc", 2020, 1, \
		(void **ptr, size_t bytes, unsigned int flags)) \
	X(cuMemFreeHost, "cuMemFreeHost", 2000, 1, (void *ptr)) \
	X(cuMemHostRegister, "cuMemHostRegister_v2", 6050, 1, \
		(void *ptr, size_t bytes, unsigned int flags)) \
	X(cuMemHostUnregister, "cuMemHostUnregister", 4000, 1, (void *ptr)) \
	X(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2", 3020, 1, \
		(gm_cu_ptr * ptr, void *host, unsigned int flags)) \
	X(cuMemsetD8Async, "cuMemsetD8Async", 3020, 1, \
		(gm_cu_ptr ptr, unsigned char value, size_t bytes, gm_cu_stream stream)) \
	X(cuMemcpyAsync, "cuMemcpyAsync", 4000, 1, \
		(gm_cu_ptr to, gm_cu_ptr from, size_t bytes, gm_cu_stream stream)) \
	X(cuPointerGetAttribute, "cuPointerGetAttribute", 4000, 0, \
		(void *data, gm_cu_pointer_attribute attribute, gm_cu_ptr ptr)) \
	X(cuStreamCreate, "cuStreamCreate", 2000, 1, (gm_cu_stream * stream, unsigned int flags)) \
	X(cuStreamDestroy, "cuStreamDestroy_v2", 4000, 1, (gm_cu_stream stream)) \
	X(cuStreamSynchronize, "cuStreamSynchronize", 2000, 1, (gm_cu_stream stream)) \
	X(cuStreamQuery, "cuStreamQuery", 2000, 1, (gm_cu_stream stream)) \
	X(cuStreamWaitEvent, "cuStreamWaitEvent", 3020, 1, \
		(gm_cu_stream stream, gm_cu_event event, unsigned int flags)) \
	X(cuStreamWaitValue64, "cuStreamWaitValue64_v2", 11070, 0, \
		(gm_cu_stream stream, gm_cu_ptr addr, gm_cu_u64 value, unsigned int flags)) \
	X(cuStreamWriteValue64, "cuStreamWriteValue64_v2", 11070, 0, \
		(gm_cu_stream stream, gm_cu_ptr addr, gm_cu_u64 value, unsigned int flags)) \
	X(cuStreamGetId, "cuStreamGetId", 12000, 0, (gm_cu_stream stream, unsigned long long *id)) \
	X(cuStreamIsCapturing, "cuStreamIsCapturing", 10000, 0, \
		(gm_cu_stream stream, gm_cu_capture_status * status)) \
	X(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", 10010, 0, \
		(gm_cu_capture_mode * mode)) \
	X(cuLaunchHostFunc, "cuLaunchHostFunc", 10000, 0, \
		(gm_cu_stream stream, gm_cu_host_fn fn, void *user)) \
	X(cuEventCreate, "cuEventCreate", 2000, 1, (gm_cu_event * event, unsigned int flags)) \
	X(cuEventRecord, "cuEventRecord", 2000, 1, (gm_cu_event event, gm_cu_stream stream)) \
	X(cuEventQuery, "cuEventQuery", 2000, 1, (gm_cu_event event)) \
	X(cuEventDestroy, "cuEventDestroy_v2", 4000, 1, (gm_cu_event event))

/* Functions in an older version than the one that cuda.h selects today. Drivers still have them. */
#define GM_CU_OLD_FUNCTIONS(X) \
	X(cuCtxCreate, "cuCtxCreate_v2", 3020, 0, \
		(gm_cu_ctx * ctx, unsigned int flags, gm_cu_device device)) \
	X(cuMemPrefetchAsync, "cuMemPrefetchAsync", 8000, 0, \
		(gm_cu_ptr ptr, size_t bytes, gm_cu_device device, gm_cu_stream stream)) \
	X(cuMemAdvise, "cuMemAdvise", 8000, 0, \
		(gm_cu_ptr ptr, size_t bytes, gm_cu_advice advice, gm_cu_device device)) \
	X(cuStreamGetCaptureInfo, "cuStreamGetCaptureInfo", 10010, 0, \
		(gm_cu_stream stream, gm_cu_capture_status * status, gm_cu_u64 * id))

/* ---- NVML. Its header may be missing even if the Toolkit is installed. */

/* Values. X(name, value): NVML's own name; ours is the same with GM_ in front. */
#define GM_NVML_VALUES(X) \
	X(NVML_SUCCESS, 0) \
	X(NVML_ERROR_UNINITIALIZED, 1) \
	X(NVML_ERROR_INVALID_ARGUMENT, 2) \
	X(NVML_ERROR_NOT_SUPPORTED, 3) \
	X(NVML_ERROR_NO_PERMISSION, 4) \
	X(NVML_ERROR_NOT_FOUND, 6) \
	X(NVML_ERROR_INSUFFICIENT_SIZE, 7) \
	X(NVML_ERROR_DRIVER_NOT_LOADED, 9) \
	X(NVML_ERROR_LIBRARY_NOT_FOUND, 12) \
	X(NVML_ERROR_FUNCTION_NOT_FOUND, 13) \
	X(NVML_ERROR_GPU_IS_LOST, 15) \
	X(NVML_ERROR_RESET_REQUIRED, 16) \
	X(NVML_ERROR_OPERATING_SYSTEM, 17) \
	X(NVML_ERROR_LIB_RM_VERSION_MISMATCH, 18) \
	X(NVML_ERROR_ARGUMENT_VERSION_MISMATCH, 25) \
	X(NVML_ERROR_UNKNOWN, 999)

enum gm_nvml_value {
#define GM_NVML_VALUE_ENUM(name, value) GM_##name = (value),
	GM_NVML_VALUES(GM_NVML_VALUE_ENUM)
#undef GM_NVML_VALUE_ENUM
};
#define GM_NVML_USED_UNKNOWN UINT64_MAX /* the driver does not know how much a process uses */

#ifndef GM_NVML_ABI_TYPES_GIVEN
typedef int gm_nvml_return;
typedef int gm_nvml_enable; /* 0 or 1 */
typedef struct gm_nvml_device_opaque *gm_nvml_device;

typedef struct gm_nvml_memory {
	unsigned long long total;
	unsigned long long free;
	unsigned long long used;
} gm_nvml_memory;

typedef struct gm_nvml_memory_v2 {
	unsigned int version;
	unsigned long long total;
	unsigned long long reserved; /* nobody can have it; it is no part of used */
	unsigned long long free;
	unsigned long long used;
} gm_nvml_memory_v2;

typedef struct gm_nvml_process {
	unsigned int pid;
	unsigned long long used;
	unsigned int gpu_instance;
	unsigned int compute_instance;
} gm_nvml_process;
#endif

#define GM_NVML_FUNCTIONS(X) \
	X(nvmlInit, "nvmlInit_v2", 1, (void)) \
	X(nvmlShutdown, "nvmlShutdown", 1, (void)) \
	X(nvmlSystemGetDriverVersion, "nvmlSystemGetDriverVersion", 1, \
		(char *version, unsigned int room)) \
	X(nvmlDeviceGetHandleByUUID, "nvmlDeviceGetHandleByUUID", 1, \
		(const char *uuid, gm_nvml_device *device)) \
	X(nvmlDeviceGetMemoryInfo, "nvmlDeviceGetMemoryInfo", 1, \
		(gm_nvml_device device, gm_nvml_memory * memory)) \
	X(nvmlDeviceGetComputeRunningProcesses, "nvmlDeviceGetComputeRunningProcesses_v3", 0, \
		(gm_nvml_device device, unsigned int *n, gm_nvml_process *processes)) \
	X(nvmlDeviceGetGraphicsRunningProcesses, "nvmlDeviceGetGraphicsRunningProcesses_v3", 0, \
		(gm_nvml_device device, unsigned int *n, gm_nvml_process *processes)) \
	X(nvmlDeviceGetPersistenceMode, "nvmlDeviceGetPersistenceMode", 0, \
		(gm_nvml_device device, gm_nvml_enable * mode)) \
	X(nvmlDeviceGetMigMode, "nvmlDeviceGetMigMode", 0, \
		(gm_nvml_device device, unsigned int *current, unsigned int *pending))

#endif
