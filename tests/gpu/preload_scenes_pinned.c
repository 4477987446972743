/* SPDX-License-Identifier: Apache-2.0 */
/* Pinned host memory, and what NVML says. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/preload_scenes.h"

/* As the driver says it of its own. */
static void require_pinned(char *ptr, size_t bytes, unsigned int expected_flags, gm_cu_ctx ctx)
{
	gm_cu_ptr at = (gm_cu_ptr)(uintptr_t)ptr, base = 0, device = 0;
	unsigned int kind = 0, flags = 99;
	gm_cu_ctx of = NULL;
	size_t size = 0;

	CU(cu.cuMemHostGetFlags(&flags, ptr));
	GM_REQUIRE_EQ(flags, expected_flags);
	CU(cu.cuMemHostGetDevicePointer(&device, ptr, 0));
	GM_REQUIRE(device == at);
	CU(cu.cuPointerGetAttribute(&kind, GM_CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + 1));
	GM_REQUIRE_EQ(kind, GM_CU_MEMORYTYPE_HOST);
	CU(cu.cuPointerGetAttribute(&of, 1, at));
	GM_REQUIRE(of == ctx);
	CU(cu.cuMemGetAddressRange(&base, &size, at + bytes / 2));
	GM_REQUIRE(base == at && size == bytes);
}

/* The CPU writes, the device copies, and sets all of it. */
static void use_pinned(char *ptr, size_t bytes)
{
	gm_cu_ptr device;

	memset(ptr, 0x61, bytes);
	CU(cu.cuMemAlloc(&device, bytes));
	CU(cu.cuMemcpyAsync(device, (gm_cu_ptr)(uintptr_t)ptr, bytes, NULL));
	CU(cu.cuMemsetD8Async((gm_cu_ptr)(uintptr_t)ptr, 0x62, bytes, NULL));
	CU(cu.cuStreamSynchronize(NULL));
	GM_REQUIRE(ptr[0] == 0x62 && memcmp(ptr, ptr + 1, bytes - 1) == 0);
	CU(cu.cuMemcpyAsync((gm_cu_ptr)(uintptr_t)ptr, device, bytes, NULL));
	CU(cu.cuStreamSynchronize(NULL));
	GM_REQUIRE(ptr[0] == 0x61 && memcmp(ptr, ptr + 1, bytes - 1) == 0);
	CU(cu.cuMemFree(device));
}

void scene_pinned(void)
{
	gm_cu_ctx ctx = use_gpu();
	void *a, *b, *c;

	CU(cu.cuMemHostAlloc(&a, ACTOR_PIECE, 1));
	CU(cu.cuMemAllocHost(&b, 1000));
	require_pinned(a, ACTOR_PIECE, 3, ctx);
	require_pinned(b, 1000, 2, ctx);
	use_pinned(a, ACTOR_PIECE);
	use_pinned(b, 1000);
	show('p');

	GM_REQUIRE(cu.cuMemFree((gm_cu_ptr)(uintptr_t)a) != GM_CUDA_SUCCESS);
	GM_REQUIRE_EQ(cu.cuMemFreeHost((char *)a + 8), GM_CUDA_ERROR_INVALID_VALUE);
	CU(cu.cuMemFreeHost(a));
	GM_REQUIRE_EQ(cu.cuMemFreeHost(a), GM_CUDA_ERROR_INVALID_VALUE);
	CU(cu.cuMemFreeHost(b));

	/* Some kinds are the driver's. */
	CU(cu.cuMemHostAlloc(&c, ACTOR_PIECE, 4));
	unsigned int flags;
	CU(cu.cuMemHostGetFlags(&flags, c));
	GM_REQUIRE_EQ(flags, 6);
	CU(cu.cuMemFreeHost(c));
	GM_REQUIRE_EQ(cu.cuMemHostAlloc(&c, 64, 8), GM_CUDA_ERROR_INVALID_VALUE);

	/* However large it is, the device can set all of it. */
	CU(cu.cuMemHostAlloc(&a, 2 * ACTOR_BYTES, 0));
	use_pinned(a, 2 * ACTOR_BYTES);
	CU(cu.cuMemFreeHost(a));
}

/* ---- NVML */

/* NVML says the same, before there is a session and with one. */
unsigned long long nvml_total(void)
{
	gm_nvml_return (*init)(void), (*get)(unsigned int, gm_nvml_device *);
	gm_nvml_return (*info)(gm_nvml_device, gm_nvml_memory *);
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	gm_nvml_memory memory;
	gm_nvml_device device;

	GM_REQUIRE(library);
	*(void **)&init = dlsym(library, "nvmlInit_v2");
	*(void **)&get = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
	*(void **)&info = dlsym(library, "nvmlDeviceGetMemoryInfo");
	CU(init());
	CU(get(0, &device));
	CU(info(device, &memory));
	return memory.total;
}

void scene_nvml(void)
{
	gm_nvml_return (*init)(void), (*get)(unsigned int, gm_nvml_device *);
	gm_nvml_return (*info)(gm_nvml_device, gm_nvml_memory *);
	gm_nvml_return (*info2)(gm_nvml_device, gm_nvml_memory_v2 *);
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	const char *limit = getenv("GPUMEM_RUN_LIMIT");
	gm_nvml_memory_v2 second = {.version = sizeof second | 2 << 24};
	gm_nvml_memory memory;
	gm_nvml_device device;
	size_t total, free_bytes;
	gm_cu_ptr ptr;

	GM_REQUIRE(library);
	*(void **)&init = dlsym(library, "nvmlInit_v2");
	*(void **)&get = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
	*(void **)&info = dlsym(library, "nvmlDeviceGetMemoryInfo");
	*(void **)&info2 = dlsym(library, "nvmlDeviceGetMemoryInfo_v2");
	CU(init());
	CU(get(0, &device));
	CU(info(device, &memory));
	GM_REQUIRE(memory.free + memory.used == memory.total);
	if (limit)
		GM_REQUIRE_EQ(memory.total, atoll(limit));

	use_gpu();
	CU(cu.cuMemAlloc(&ptr, ACTOR_BYTES));
	show('h');
	CU(cu.cuMemGetInfo(&free_bytes, &total));
	CU(info(device, &memory));
	CU(info2(device, &second));
	GM_REQUIRE_EQ(memory.total, second.total);
	GM_REQUIRE(memory.free + memory.used == memory.total);
	GM_REQUIRE(second.free + second.used + second.reserved == second.total);
	if (limit) {
		GM_REQUIRE_EQ(memory.total, total);
		GM_REQUIRE(memory.used >= ACTOR_BYTES && second.used >= ACTOR_BYTES);
		GM_REQUIRE_EQ(second.reserved, 0);
		GM_REQUIRE_EQ(memory.free, free_bytes);
	}
	second.version = 7;
	GM_REQUIRE(info2(device, &second) != GM_NVML_SUCCESS);
	CU(cu.cuMemFree(ptr));
}
