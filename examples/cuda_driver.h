/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXAMPLES_CUDA_DRIVER_H
#define EXAMPLES_CUDA_DRIVER_H

/*
 * The functions of the CUDA driver that the examples call, under their own names. They are looked
 * up at run time, so that the examples can be built without the Toolkit. Your own program would
 * include <cuda.h> and link with -lcuda instead; the rest of the code would be the same.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

typedef int CUresult, CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct {
	char bytes[16];
} CUuuid;
typedef struct {
	char reserved[64];
} CUipcMemHandle;

enum { CU_STREAM_NON_BLOCKING = 1, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1 };

#define CUDA_FUNCTIONS(X) \
	X(cuInit, "cuInit", (unsigned)) \
	X(cuGetErrorName, "cuGetErrorName", (CUresult, const char **)) \
	X(cuDeviceGetCount, "cuDeviceGetCount", (int *)) \
	X(cuDeviceGet, "cuDeviceGet", (CUdevice *, int)) \
	X(cuDeviceGetUuid, "cuDeviceGetUuid_v2", (CUuuid *, CUdevice)) \
	X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice)) \
	X(cuCtxSetCurrent, "cuCtxSetCurrent", (CUcontext)) \
	X(cuStreamCreate, "cuStreamCreate", (CUstream *, unsigned)) \
	X(cuStreamSynchronize, "cuStreamSynchronize", (CUstream)) \
	X(cuMemcpyAsync, "cuMemcpyAsync", (CUdeviceptr, CUdeviceptr, size_t, CUstream)) \
	X(cuModuleLoadData, "cuModuleLoadData", (CUmodule *, const void *)) \
	X(cuModuleGetFunction, "cuModuleGetFunction", (CUfunction *, CUmodule, const char *)) \
	X(cuLaunchKernel, "cuLaunchKernel", \
		(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
			CUstream, void **, void **)) \
	X(cuIpcOpenMemHandle, "cuIpcOpenMemHandle_v2", (CUdeviceptr *, CUipcMemHandle, unsigned)) \
	X(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", (CUdeviceptr))

#define CUDA_POINTER(name, symbol, parameters) \
	static CUresult(*name) parameters __attribute__((unused));
CUDA_FUNCTIONS(CUDA_POINTER)
#undef CUDA_POINTER

/* Loads the driver. On error, prints a line and returns -1. Functions that the driver does not have
 * stay NULL. */
static int cuda_load(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (!driver) {
		fprintf(stderr, "no NVIDIA driver: %s\n", dlerror());
		return -1;
	}
#define CUDA_FIND(name, symbol, parameters) name = (CUresult(*) parameters)dlsym(driver, symbol);
	CUDA_FUNCTIONS(CUDA_FIND)
#undef CUDA_FIND
	return 0;
}

/* If the call fails, prints the driver's name for the error and returns 1 from the function. */
#define CUDA(call) \
	do { \
		CUresult result_ = (call); \
		if (result_) { \
			const char *name_ = "?"; \
			cuGetErrorName(result_, &name_); \
			fprintf(stderr, "%s: %s\n", #call, name_); \
			return 1; \
		} \
	} while (0)

#endif
