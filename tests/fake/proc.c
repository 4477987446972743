/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuGetProcAddress of the fake driver: a symbol in the version that has the caller's signature, as
 * the real one answers.
 */
#include "tests/fake/fake.h"

#include <dlfcn.h>
#include <string.h>

static const struct {
	const char *name, *exported;
	int version;
	gm_cu_u64 flags; /* 2: of those who mean their thread's own default stream by 0 */
} symbols[] = {
#define SYMBOL(name, symbol, version, needed, parameters) {#name, symbol, version, 0},
	GM_CU_FUNCTIONS(SYMBOL) GM_CU_OLD_FUNCTIONS(SYMBOL)
#undef SYMBOL
	/* The last that fits is the answer. */
	{"cuStreamBeginCapture", "cuStreamBeginCapture_v2", 10010, 0},
	{"cuStreamEndCapture", "cuStreamEndCapture", 10000, 0},
	{"cuGraphCreate", "cuGraphCreate", 10000, 0},
	{"cuGraphDestroy", "cuGraphDestroy", 10000, 0},
	{"cuGraphExecDestroy", "cuGraphExecDestroy", 10000, 0},
	{"cuGraphInstantiate", "cuGraphInstantiateWithFlags", 11040, 0},
	{"cuGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags", 11040, 0},
	{"cuGraphAddMemAllocNode", "cuGraphAddMemAllocNode", 11040, 0},
	{"cuGraphAddNode", "cuGraphAddNode_v2", 12030, 0},
	{"cuGetProcAddress", "cuGetProcAddress", 11030, 0},
	{"cuGetProcAddress", "cuGetProcAddress_v2", 12000, 0},
	{"cuMemGetAllocationPropertiesFromHandle", "cuMemGetAllocationPropertiesFromHandle", 10020,
		0},
	{"cuMemAllocPitch", "cuMemAllocPitch_v2", 3020, 0},
	{"cuMemGetAddressRange", "cuMemGetAddressRange_v2", 3020, 0},
	{"cuPointerGetAttributes", "cuPointerGetAttributes", 7000, 0},
	{"cuStreamGetCtx", "cuStreamGetCtx", 9020, 0},
	{"cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2", 11000, 0},
	{"cuDeviceGetDefaultMemPool", "cuDeviceGetDefaultMemPool", 11020, 0},
	{"cuDeviceGetMemPool", "cuDeviceGetMemPool", 11020, 0},
	{"cuDeviceSetMemPool", "cuDeviceSetMemPool", 11020, 0},
	{"cuArrayCreate", "cuArrayCreate_v2", 3020, 0},
	{"cuArray3DCreate", "cuArray3DCreate_v2", 3020, 0},
	{"cuArrayDestroy", "cuArrayDestroy", 2000, 0},
	{"cuArrayGetMemoryRequirements", "cuArrayGetMemoryRequirements", 11060, 0},
	{"cuMipmappedArrayCreate", "cuMipmappedArrayCreate", 5000, 0},
	{"cuMipmappedArrayDestroy", "cuMipmappedArrayDestroy", 5000, 0},
	{"cuMemAllocHost", "cuMemAllocHost_v2", 3020, 0},
	{"cuMemHostGetFlags", "cuMemHostGetFlags", 2030, 0},
	{"cuMemPoolCreate", "cuMemPoolCreate", 11020, 0},
	{"cuMemPoolDestroy", "cuMemPoolDestroy", 11020, 0},
	{"cuMemPoolTrimTo", "cuMemPoolTrimTo", 11020, 0},
	{"cuMemPoolGetAttribute", "cuMemPoolGetAttribute", 11020, 0},
	{"cuMemPoolSetAttribute", "cuMemPoolSetAttribute", 11020, 0},
	{"cuMemPoolGetAccess", "cuMemPoolGetAccess", 11020, 0},
	{"cuMemPoolSetAccess", "cuMemPoolSetAccess", 11020, 0},
	{"cuMemAllocAsync", "cuMemAllocAsync", 11020, 0},
	{"cuMemAllocAsync", "cuMemAllocAsync_ptsz", 11020, 2},
	{"cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync", 11020, 0},
	{"cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz", 11020, 2},
	{"cuMemFreeAsync", "cuMemFreeAsync", 11020, 0},
	{"cuMemFreeAsync", "cuMemFreeAsync_ptsz", 11020, 2},
};

/*
 * What a driver may lack must not be in the library's symbol table either, where a program looks
 * next: it stands there under a name that nobody asks for.
 */
static const char *own_name(size_t i)
{
	if (strcmp(symbols[i].name, "cuStreamGetId") == 0)
		return "fake_cuStreamGetId";
	if (strcmp(symbols[i].name, "cuCtxRecordEvent") == 0)
		return "fake_cuCtxRecordEvent";
	if (strcmp(symbols[i].name, "cuCtxGetId") == 0)
		return "fake_cuCtxGetId";
	return symbols[i].exported;
}

static bool absent(const char *name)
{
	return (strcmp(name, "cuStreamGetId") == 0 && fake_without("streamid")) ||
	       (strcmp(name, "cuCtxRecordEvent") == 0 && fake_without("ctxevent")) ||
	       (strcmp(name, "cuCtxGetId") == 0 && fake_without("ctxid"));
}

FAKE_API gm_cu_result cuGetProcAddress_v2(
	const char *name, void **fn, int version, gm_cu_u64 flags, gm_cu_query_result *status);

/* A function of this library itself: another one may have put its own in front of it. */
static void *own(const char *symbol)
{
	Dl_info self;
	void *handle = NULL;

	if (dladdr((void *)cuGetProcAddress_v2, &self))
		handle = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	return handle ? dlsym(handle, symbol) : NULL;
}

FAKE_API gm_cu_result cuGetProcAddress_v2(
	const char *name, void **fn, int version, gm_cu_u64 flags, gm_cu_query_result *status)
{
	int driver = (int)fake_bytes_env("GPUMEM_FAKE_VERSION", 13000);
	bool known = false;

	if (!name || !fn)
		return GM_CUDA_ERROR_INVALID_VALUE;
	*fn = NULL;
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
		if (strcmp(symbols[i].name, name) == 0 && !absent(name)) {
			known = true;
			if (symbols[i].version <= version && symbols[i].version <= driver &&
				(symbols[i].flags & flags) == symbols[i].flags)
				*fn = own(own_name(i));
		}
	if (status)
		*status = *fn ? 0 : known ? 2 : 1;
	return *fn ? GM_CUDA_SUCCESS : GM_CUDA_ERROR_NOT_FOUND;
}

/* As drivers before CUDA 12 have it. */
FAKE_API gm_cu_result cuGetProcAddress(const char *name, void **fn, int version, gm_cu_u64 flags);
FAKE_API gm_cu_result cuGetProcAddress(const char *name, void **fn, int version, gm_cu_u64 flags)
{
	return cuGetProcAddress_v2(name, fn, version, flags, NULL);
}
