/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts of the fake driver, and plain allocations, which belong to one. Only primary contexts
 * exist. Making one takes device memory, as on a real machine, which is what a daemon that holds
 * none saves; its end takes everything with it that was made in it.
 */
#include "tests/fake/fake.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utlist.h>

#define STACK_MAX 16

static __thread struct {
	gm_cu_ctx at[STACK_MAX];
	int n;
} stack;

static gm_cu_ctx context_of(struct fake_device *device)
{
	return (gm_cu_ctx)device;
}

gm_cu_result fake_check_context(gm_cu_ctx ctx, struct fake_device **ret_device)
{
	for (int i = 0; i < fake.devices; i++)
		if (context_of(&fake.device[i]) == ctx) {
			*ret_device = &fake.device[i];
			return __atomic_load_n(&fake.device[i].context_refs, __ATOMIC_ACQUIRE) > 0
				       ? GM_CUDA_SUCCESS
				       : GM_CUDA_ERROR_CONTEXT_IS_DESTROYED;
		}
	return GM_CUDA_ERROR_INVALID_CONTEXT;
}

gm_cu_result fake_need_context(struct fake_device **ret_device)
{
	gm_cu_result result;

	if (!stack.n || !stack.at[stack.n - 1])
		return GM_CUDA_ERROR_INVALID_CONTEXT;
	result = fake_check_context(stack.at[stack.n - 1], ret_device);
	if (!result && fake_device_lost(*ret_device))
		result = GM_CUDA_ERROR_DEVICE_UNAVAILABLE;
	return result;
}

FAKE_API gm_cu_result cuDevicePrimaryCtxRetain(gm_cu_ctx *ctx, gm_cu_device number);
FAKE_API gm_cu_result cuDevicePrimaryCtxRetain(gm_cu_ctx *ctx, gm_cu_device number)
{
	gm_cu_result result = GM_CUDA_SUCCESS;
	struct fake_device *device = fake_get_device(number);

	FAKE_ENTER("cuDevicePrimaryCtxRetain");
	if (!device)
		return GM_CUDA_ERROR_INVALID_DEVICE;
	if (!ctx)
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.lock);
	if (fake_device_lost(device)) {
		result = GM_CUDA_ERROR_DEVICE_UNAVAILABLE;
	} else if (!device->context_refs) {
		size_t bytes = fake_bytes_env("GPUMEM_FAKE_CONTEXT_BYTES", (size_t)16 << 20);
		device->context_fd = openat(device->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		if (device->context_fd < 0 ||
			(bytes && fallocate(device->context_fd, 0, 0, (off_t)bytes) < 0)) {
			if (device->context_fd >= 0)
				close(device->context_fd);
			device->context_fd = -1;
			result = GM_CUDA_ERROR_OUT_OF_MEMORY;
		} else {
			fake_account(device, (int64_t)bytes);
			fake_account_context(device, true);
		}
	}
	if (!result) {
		__atomic_add_fetch(&device->context_refs, 1, __ATOMIC_RELEASE);
		*ctx = context_of(device);
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

/* With a context its streams, events, allocations and openings end. */
static void context_end(struct fake_device *device)
{
	int number = (int)(device - fake.device);
	struct fake_map *map, *tmp;
	struct stat st;

	fake_streams_end(number);
	pthread_mutex_lock(&fake.lock);
	DL_FOREACH_SAFE (fake.maps, map, tmp)
		if (map->plain && map->context == number) {
			map->mem->handles = 0;
			fake_map_remove(map, false);
		}
	fake_hosts_end(number);
	if (fstat(device->context_fd, &st) == 0)
		fake_account(device, -(int64_t)st.st_size);
	fake_account_context(device, false);
	close(device->context_fd);
	device->context_fd = -1;
	pthread_mutex_unlock(&fake.lock);
}

FAKE_API gm_cu_result cuDevicePrimaryCtxRelease_v2(gm_cu_device number);
FAKE_API gm_cu_result cuDevicePrimaryCtxRelease_v2(gm_cu_device number)
{
	struct fake_device *device = fake_get_device(number);
	gm_cu_result result = GM_CUDA_SUCCESS;
	bool last = false;

	FAKE_ENTER("cuDevicePrimaryCtxRelease");
	if (!device)
		return GM_CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&fake.lock);
	if (!device->context_refs)
		result = GM_CUDA_ERROR_INVALID_CONTEXT;
	else
		last = __atomic_sub_fetch(&device->context_refs, 1, __ATOMIC_RELEASE) == 0;
	pthread_mutex_unlock(&fake.lock);
	if (last)
		context_end(device);
	return result;
}

FAKE_API gm_cu_result cuDevicePrimaryCtxGetState(
	gm_cu_device number, unsigned int *flags, int *active);
FAKE_API gm_cu_result cuDevicePrimaryCtxGetState(
	gm_cu_device number, unsigned int *flags, int *active)
{
	struct fake_device *device = fake_get_device(number);

	FAKE_ENTER("cuDevicePrimaryCtxGetState");
	if (!device)
		return GM_CUDA_ERROR_INVALID_DEVICE;
	if (!flags || !active)
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.lock);
	*flags = 0;
	*active = device->context_refs > 0;
	pthread_mutex_unlock(&fake.lock);
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuCtxGetCurrent(gm_cu_ctx *ctx);
FAKE_API gm_cu_result cuCtxGetCurrent(gm_cu_ctx *ctx)
{
	FAKE_ENTER("cuCtxGetCurrent");
	if (!ctx)
		return GM_CUDA_ERROR_INVALID_VALUE;
	*ctx = stack.n ? stack.at[stack.n - 1] : NULL;
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuCtxSetCurrent(gm_cu_ctx ctx);
FAKE_API gm_cu_result cuCtxSetCurrent(gm_cu_ctx ctx)
{
	struct fake_device *device;
	gm_cu_result result;

	FAKE_ENTER("cuCtxSetCurrent");
	if (ctx && (result = fake_check_context(ctx, &device)))
		return result;
	if (!stack.n)
		stack.n = 1;
	stack.at[stack.n - 1] = ctx;
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuCtxPushCurrent_v2(gm_cu_ctx ctx);
FAKE_API gm_cu_result cuCtxPushCurrent_v2(gm_cu_ctx ctx)
{
	struct fake_device *device;
	gm_cu_result result;

	FAKE_ENTER("cuCtxPushCurrent");
	if ((result = fake_check_context(ctx, &device)))
		return result;
	if (stack.n == STACK_MAX)
		fake_undefined("contexts are pushed and not popped");
	stack.at[stack.n++] = ctx;
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuCtxPopCurrent_v2(gm_cu_ctx *ctx);
FAKE_API gm_cu_result cuCtxPopCurrent_v2(gm_cu_ctx *ctx)
{
	FAKE_ENTER("cuCtxPopCurrent");
	if (!stack.n)
		return GM_CUDA_ERROR_INVALID_CONTEXT;
	stack.n--;
	if (ctx)
		*ctx = stack.at[stack.n];
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuCtxGetDevice(gm_cu_device *number);
FAKE_API gm_cu_result cuCtxGetDevice(gm_cu_device *number)
{
	struct fake_device *device;
	gm_cu_result result;

	FAKE_ENTER("cuCtxGetDevice");
	if (!number)
		return GM_CUDA_ERROR_INVALID_VALUE;
	result = fake_need_context(&device);
	if (!result)
		*number = (gm_cu_device)(device - fake.device);
	return result;
}

FAKE_API gm_cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total);
FAKE_API gm_cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	struct fake_device *device;
	gm_cu_result result;

	FAKE_ENTER("cuMemGetInfo");
	if (!free_bytes || !total)
		return GM_CUDA_ERROR_INVALID_VALUE;
	result = fake_need_context(&device);
	if (!result) {
		*free_bytes = fake_free_bytes(device);
		*total = device->total;
	}
	return result;
}

/* ---- plain allocations */

FAKE_API gm_cu_result cuMemAlloc_v2(gm_cu_ptr *ptr, size_t bytes);
FAKE_API gm_cu_result cuMemAlloc_v2(gm_cu_ptr *ptr, size_t bytes)
{
	struct fake_device *device;
	struct fake_map *map;
	struct fake_mem *mem;
	gm_cu_result result;

	FAKE_ENTER("cuMemAlloc");
	if (!ptr || !bytes)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if ((result = fake_need_context(&device)) || (result = fake_capture_forbids()))
		return result;
	if (bytes > device->total)
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	bytes = (bytes + FAKE_GRANULARITY - 1) & ~(FAKE_GRANULARITY - 1);
	pthread_mutex_lock(&fake.lock);
	result = fake_mem_new((int)(device - fake.device), bytes, &mem);
	if (!result) {
		result = fake_map_add(0, mem, &map);
		if (result) {
			fake_mem_put(mem);
		} else {
			fake_map_plain(map, device);
			*ptr = (gm_cu_ptr)map->va;
		}
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

void fake_map_plain(struct fake_map *map, const struct fake_device *context)
{
	map->plain = true;
	map->context = (int)(context - fake.device);
	map->device_access = map->device_write = ~0u;
}

gm_cu_result fake_drop_plain(gm_cu_ptr ptr, bool imported)
{
	gm_cu_result result = GM_CUDA_ERROR_INVALID_VALUE;
	struct fake_map *map;

	pthread_mutex_lock(&fake.lock);
	map = fake_map_find((uintptr_t)ptr);
	if (map && map->plain && map->va == ptr && map->mem->imported == imported) {
		if (imported && map->mem->handles > 1) {
			map->mem->handles--; /* opened more than once: this is not the last close */
		} else {
			map->mem->handles = 0;
			fake_map_remove(map, false);
		}
		result = GM_CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

FAKE_API gm_cu_result cuMemFree_v2(gm_cu_ptr ptr);
FAKE_API gm_cu_result cuMemFree_v2(gm_cu_ptr ptr)
{
	struct fake_device *device;
	gm_cu_result result;

	FAKE_ENTER("cuMemFree");
	if (!ptr)
		return GM_CUDA_SUCCESS;
	if ((result = fake_need_context(&device)) || (result = fake_capture_forbids()))
		return result;
	fake_sync_all(); /* as the real one: it waits for the device */
	return fake_drop_plain(ptr, false);
}
