/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds our declarations of the driver (common/cuda/cuda_abi.h) against NVIDIA's own, where cuda.h is
 * installed. Sizes, offsets and values: here. Signatures: check_cuda_abi_signatures.c. All of it
 * is decided by the compiler; the program says what was compared.
 */
#include <cuda.h>
#include <stddef.h>
#include <stdio.h>

#include "common/cuda/cuda_abi.h"

#define SAME_SIZE(ours, theirs) \
	_Static_assert(sizeof(ours) == sizeof(theirs) && _Alignof(ours) == _Alignof(theirs), \
		"size of " #ours)
#define SAME_OFFSET(ours, a, theirs, b) \
	_Static_assert(offsetof(ours, a) == offsetof(theirs, b), "offset of " #ours "." #a)

SAME_SIZE(gm_cu_result, CUresult);
SAME_SIZE(gm_cu_device, CUdevice);
SAME_SIZE(gm_cu_ptr, CUdeviceptr);
SAME_SIZE(gm_cu_mem, CUmemGenericAllocationHandle);
SAME_SIZE(gm_cu_ctx, CUcontext);
SAME_SIZE(gm_cu_stream, CUstream);
SAME_SIZE(gm_cu_event, CUevent);
SAME_SIZE(gm_cu_uuid, CUuuid);
SAME_SIZE(gm_cu_ipc_mem, CUipcMemHandle);
SAME_SIZE(gm_cu_location, CUmemLocation);
SAME_OFFSET(gm_cu_location, type, CUmemLocation, type);
SAME_OFFSET(gm_cu_location, id, CUmemLocation, id);
SAME_SIZE(gm_cu_prop, CUmemAllocationProp);
SAME_OFFSET(gm_cu_prop, type, CUmemAllocationProp, type);
SAME_OFFSET(gm_cu_prop, requested_handle_types, CUmemAllocationProp, requestedHandleTypes);
SAME_OFFSET(gm_cu_prop, location, CUmemAllocationProp, location);
SAME_OFFSET(gm_cu_prop, win32_handle_meta_data, CUmemAllocationProp, win32HandleMetaData);
SAME_OFFSET(
	gm_cu_prop, alloc_flags.compression_type, CUmemAllocationProp, allocFlags.compressionType);
SAME_OFFSET(gm_cu_prop, alloc_flags.gpu_direct_rdma_capable, CUmemAllocationProp,
	allocFlags.gpuDirectRDMACapable);
SAME_OFFSET(gm_cu_prop, alloc_flags.usage, CUmemAllocationProp, allocFlags.usage);
SAME_SIZE(gm_cu_access, CUmemAccessDesc);
SAME_OFFSET(gm_cu_access, location, CUmemAccessDesc, location);
SAME_OFFSET(gm_cu_access, flags, CUmemAccessDesc, flags);
SAME_SIZE(gm_cu_alloc_node, CUDA_MEM_ALLOC_NODE_PARAMS);
SAME_OFFSET(gm_cu_alloc_node, bytes, CUDA_MEM_ALLOC_NODE_PARAMS, bytesize);
SAME_OFFSET(gm_cu_alloc_node, ptr, CUDA_MEM_ALLOC_NODE_PARAMS, dptr);
#if CUDA_VERSION >= 12020
SAME_OFFSET(gm_cu_any_node, type, CUgraphNodeParams, type);
SAME_OFFSET(gm_cu_any_node, memory.bytes, CUgraphNodeParams, alloc.bytesize);
#endif
SAME_SIZE(gm_cu_array_2d, CUDA_ARRAY_DESCRIPTOR);
SAME_OFFSET(gm_cu_array_2d, channels, CUDA_ARRAY_DESCRIPTOR, NumChannels);
SAME_SIZE(gm_cu_array, CUDA_ARRAY3D_DESCRIPTOR);
SAME_OFFSET(gm_cu_array, depth, CUDA_ARRAY3D_DESCRIPTOR, Depth);
SAME_OFFSET(gm_cu_array, flags, CUDA_ARRAY3D_DESCRIPTOR, Flags);
SAME_SIZE(gm_cu_array_needs, CUDA_ARRAY_MEMORY_REQUIREMENTS);
SAME_SIZE(gm_cu_pool_props, CUmemPoolProps);
SAME_OFFSET(gm_cu_pool_props, type, CUmemPoolProps, allocType);
SAME_OFFSET(gm_cu_pool_props, handle_types, CUmemPoolProps, handleTypes);
SAME_OFFSET(gm_cu_pool_props, location, CUmemPoolProps, location);
SAME_OFFSET(gm_cu_pool_props, win32_security, CUmemPoolProps, win32SecurityAttributes);
SAME_SIZE(gm_cu_attribute, CUdevice_attribute);
SAME_SIZE(gm_cu_handle_type, CUmemAllocationHandleType);
SAME_SIZE(gm_cu_granularity, CUmemAllocationGranularity_flags);
SAME_SIZE(gm_cu_capture_status, CUstreamCaptureStatus);
SAME_SIZE(gm_cu_capture_mode, CUstreamCaptureMode);
SAME_SIZE(gm_cu_query_result, CUdriverProcAddressQueryResult);
_Static_assert((uintptr_t)GM_CU_STREAM_LEGACY == 1 && (uintptr_t)GM_CU_STREAM_PER_THREAD == 2,
	"default streams");

#define SAME_VALUE(name, value) _Static_assert((long)(name) == (long)(value), #name);
GM_CU_VALUES(SAME_VALUE)

int main(void)
{
	int n = 0;
#define COUNT(name, value) n++;
	GM_CU_VALUES(COUNT)
	printf("1..2\n");
	printf("ok 1 - sizes, alignments and offsets of our types are those of cuda.h %d\n",
		CUDA_VERSION);
	printf("ok 2 - %d values are those of cuda.h %d\n", n, CUDA_VERSION);
	return (CUstream)(uintptr_t)GM_CU_STREAM_LEGACY == CU_STREAM_LEGACY &&
			       (CUstream)(uintptr_t)GM_CU_STREAM_PER_THREAD == CU_STREAM_PER_THREAD
		       ? 0
		       : 1;
}
