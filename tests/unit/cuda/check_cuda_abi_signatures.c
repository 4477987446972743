/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds the signatures in common/cuda/cuda_abi.h against cuda.h: our names for the types are made
 * NVIDIA's here, and then each function's type must be the very same, and the exported symbol the
 * one that cuda.h's macros lead to. The version that cuGetProcAddress is asked for must be the one
 * that brought this signature, by cudaTypedefs.h, which lies beside cuda.h since CUDA 11.3.
 */
#include <cuda.h>
#if __has_include(<cudaTypedefs.h>)
#include <cudaTypedefs.h>
#define HAVE_VERSIONS 1
#else
#define HAVE_VERSIONS 0
#endif
#include <stdio.h>
#include <string.h>

typedef CUresult gm_cu_result;
typedef CUdevice gm_cu_device;
typedef CUdeviceptr gm_cu_ptr;
typedef CUmemGenericAllocationHandle gm_cu_mem;
typedef CUcontext gm_cu_ctx;
typedef CUstream gm_cu_stream;
typedef CUevent gm_cu_event;
typedef cuuint64_t gm_cu_u64;
typedef CUuuid gm_cu_uuid;
typedef CUipcMemHandle gm_cu_ipc_mem;
typedef CUmemLocation gm_cu_location;
typedef CUmemAllocationProp gm_cu_prop;
typedef CUmemAccessDesc gm_cu_access;
typedef CUdevice_attribute gm_cu_attribute;
typedef CUmemAllocationHandleType gm_cu_handle_type;
typedef CUmemAllocationGranularity_flags gm_cu_granularity;
typedef CUstreamCaptureStatus gm_cu_capture_status;
typedef CUstreamCaptureMode gm_cu_capture_mode;
typedef CUdriverProcAddressQueryResult gm_cu_query_result;
typedef CUpointer_attribute gm_cu_pointer_attribute;
typedef CUmem_advise gm_cu_advice;
typedef CUhostFn gm_cu_host_fn;
#define GM_CU_ABI_TYPES_GIVEN
#include "common/cuda/cuda_abi.h"

#define SAME_SIGNATURE(name, symbol, version, needed, parameters) \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&name), CUresult(*) parameters), \
		"signature of " #name);
GM_CU_FUNCTIONS(SAME_SIGNATURE)

#if HAVE_VERSIONS
#define SAME_VERSION(name, symbol, version, needed, parameters) \
	_Static_assert( \
		__builtin_types_compatible_p(PFN_##name##_v##version, CUresult(*) parameters), \
		"version of " #name);
GM_CU_FUNCTIONS(SAME_VERSION)
GM_CU_OLD_FUNCTIONS(SAME_VERSION)
#endif

#define TEXT_OF(expanded) #expanded
#define TEXT(name)        TEXT_OF(name)

int main(void)
{
	static const struct {
		const char *ours, *theirs;
	} symbols[] = {
#define PAIR(name, symbol, version, needed, parameters) {symbol, TEXT(name)},
		GM_CU_FUNCTIONS(PAIR)};
	size_t n = sizeof symbols / sizeof *symbols, failed = 0;

	printf("1..%zu\n", n + 1);
	for (size_t i = 0; i < n; i++) {
		int same = strcmp(symbols[i].ours, symbols[i].theirs) == 0;
		failed += !same;
		printf("%sok %zu - %s has the signature of cuda.h and is exported as %s\n",
			same ? "" : "not ", i + 1, symbols[i].theirs, symbols[i].ours);
	}
	printf("ok %zu - each is asked for in the version that has its signature%s\n", n + 1,
		HAVE_VERSIONS ? "" : " # SKIP there is no cudaTypedefs.h beside cuda.h");
	return failed != 0;
}
