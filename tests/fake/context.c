/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts of the fake driver, and plain allocations, which belong to one. Making one takes device
 * memory, as on a real machine, which is what a daemon that holds none saves; its end takes
 * everything with it that was made in it. The handle of one that was destroyed may come again, but
 * not while it is current in a thread.
 */
#include "tests/fake/stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utlist.h>

static gm_cu_ctx context_of(struct fake_device *device)
{
	return (gm_cu_ctx)device;
}

/* Contexts that are not primary; behind fake.lock, but for live. */
static struct own {
	bool live;
	bool green; /* a part of the primary one of its device */
	int device;
	int fd; /* what it uses, as an unlinked file */
	unsigned long long id;
	bool taken; /* still to be ended where it is not live */
	int held;   /* how often it is on the threads' stacks */
} own[FAKE_OWN];
static unsigned long long primary_ids[FAKE_DEVICES];
static unsigned long long next_id = 1;

gm_cu_result fake_check_context(gm_cu_ctx ctx, struct fake_device **ret_device, int *ret_context)
{
	for (int i = 0; i < fake.devices; i++)
		if (context_of(&fake.device[i]) == ctx) {
			*ret_device = &fake.device[i];
			*ret_context = i;
			return __atomic_load_n(&fake.device[i].context_live, __ATOMIC_ACQUIRE)
				       ? GM_CUDA_SUCCESS
				       : GM_CUDA_ERROR_CONTEXT_IS_DESTROYED;
		}
	for (int i = 0; i < FAKE_OWN; i++)
		if ((gm_cu_ctx)&own[i] == ctx) {
			*ret_device = &fake.device[own[i].device];
			*ret_context = FAKE_DEVICES + i;
			return __atomic_load_n(&own[i].live, __ATOMIC_ACQUIRE)
				       ? GM_CUDA_SUCCESS
				       : GM_CUDA_ERROR_CONTEXT_IS_DESTROYED;
		}
	return GM_CUDA_ERROR_INVALID_CONTEXT;
}

gm_cu_result fake_find_context(struct fake_device **ret_device)
{
	gm_cu_ctx current = fake_current();
	gm_cu_result result;
	int unused;

	if (!current)
		return GM_CUDA_ERROR_INVALID_CONTEXT;
	result = fake_check_context(current, ret_device, &unused);
	if (!result && fake_device_lost(*ret_device))
		result = GM_CUDA_ERROR_DEVICE_UNAVAILABLE;
	return result;
}

gm_cu_result fake_need_context(struct fake_device **ret_device)
{
	gm_cu_result result = fake_find_context(ret_device);

	return result ? result : fake_sticky();
}

gm_cu_result fake_allow_no_context(void)
{
	struct fake_device *device;

	return fake_current() ? fake_need_context(&device) : fake_sticky();
}

int fake_context(void)
{
	struct fake_device *device;
	int context = 0;

	(void)fake_check_context(fake_current(), &device, &context);
	return context;
}

struct fake_device *fake_context_device(int context)
{
	return &fake.device[context < FAKE_DEVICES ? context : own[context - FAKE_DEVICES].device];
}

gm_cu_ctx fake_context_handle(int context)
{
	return context < FAKE_DEVICES ? context_of(&fake.device[context])
				      : (gm_cu_ctx)&own[context - FAKE_DEVICES];
}

gm_cu_result fake_hold(gm_cu_ctx ctx)
{
	struct fake_device *device;
	gm_cu_result result;
	int context;

	pthread_mutex_lock(&fake.lock);
	result = fake_check_context(ctx, &device, &context);
	if (result != GM_CUDA_ERROR_INVALID_CONTEXT) {
		int *held = context < FAKE_DEVICES ? &device->context_held
						   : &own[context - FAKE_DEVICES].held;
		/* The real driver lets that pass, and dies when it is popped; unless a thread has
		 * it still. */
		if (result && !*held && context >= FAKE_DEVICES)
			fake_undefined("a context that was destroyed is made current");
		if (*held)
			result = GM_CUDA_SUCCESS;
		*held += !result;
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

void fake_let_go(gm_cu_ctx ctx)
{
	struct fake_device *device;
	int context = 0;

	pthread_mutex_lock(&fake.lock);
	(void)fake_check_context(ctx, &device, &context);
	if (context < FAKE_DEVICES)
		device->context_held--;
	else
		own[context - FAKE_DEVICES].held--;
	pthread_mutex_unlock(&fake.lock);
}

/* What a context uses of its device, with the lock held. */
static gm_cu_result context_begin(struct fake_device *device, int *ret_fd)
{
	size_t bytes = fake_bytes_env("GPUMEM_FAKE_CONTEXT_BYTES", (size_t)16 << 20);
	int fd;

	if (fake_device_lost(device))
		return GM_CUDA_ERROR_DEVICE_UNAVAILABLE;
	if (fake_sticky())
		return fake_sticky(); /* neither a destroyed context nor a reset one helps */
	fd = openat(device->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0 || (bytes && fallocate(fd, 0, 0, (off_t)bytes) < 0)) {
		if (fd >= 0)
			close(fd);
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	}
	fake_account(device, (int64_t)bytes);
	fake_account_context(device, true);
	*ret_fd = fd;
	return GM_CUDA_SUCCESS;
}

/* With a context its streams, events, allocations and openings end. */
static void context_end(struct fake_device *device, int context, int *fd)
{
	struct fake_map *map, *tmp;
	struct stat st;

	fake_streams_end(context);
	pthread_mutex_lock(&fake.lock);
	DL_FOREACH_SAFE (fake.maps, map, tmp)
		if (map->plain && map->context == context) {
			map->mem->handles = 0;
			fake_map_remove(map, false);
		}
	fake_managed_end(context);
	fake_arrays_end(context);
	fake_hosts_end(context);
	if (fstat(*fd, &st) == 0)
		fake_account(device, -(int64_t)st.st_size);
	fake_account_context(device, false);
	close(*fd);
	*fd = -1;
	pthread_mutex_unlock(&fake.lock);
}

/* ---- primary contexts */

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
	} else if (!device->context_live) {
		result = context_begin(device, &device->context_fd);
		if (!result)
			primary_ids[device - fake.device] = next_id++;
	}
	if (!result) {
		device->context_refs++;
		__atomic_store_n(&device->context_live, true, __ATOMIC_RELEASE);
		*ctx = context_of(device);
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
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
	if (device->context_refs == 1) {
		pthread_mutex_unlock(&fake.lock);
		fake_streams_await((int)(device - fake.device));
		pthread_mutex_lock(&fake.lock);
	}
	if (!device->context_refs)
		result = GM_CUDA_ERROR_INVALID_CONTEXT;
	else if (--device->context_refs == 0)
		last = __atomic_exchange_n(&device->context_live, false, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&fake.lock);
	if (last)
		context_end(device, (int)(device - fake.device), &device->context_fd);
	return result;
}

/* Who retained it has it retained still; it is made anew when somebody retains it again. */
FAKE_API gm_cu_result cuDevicePrimaryCtxReset_v2(gm_cu_device number);
FAKE_API gm_cu_result cuDevicePrimaryCtxReset_v2(gm_cu_device number)
{
	struct fake_device *device = fake_get_device(number);
	bool live;

	FAKE_ENTER("cuDevicePrimaryCtxReset");
	if (!device)
		return GM_CUDA_ERROR_INVALID_DEVICE;
	fake_streams_await((int)(device - fake.device));
	pthread_mutex_lock(&fake.lock);
	live = __atomic_exchange_n(&device->context_live, false, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&fake.lock);
	if (live)
		context_end(device, (int)(device - fake.device), &device->context_fd);
	return GM_CUDA_SUCCESS;
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
	*active = device->context_live;
	pthread_mutex_unlock(&fake.lock);
	return GM_CUDA_SUCCESS;
}

/* ---- others */

FAKE_API gm_cu_result cuCtxCreate_v2(gm_cu_ctx *ctx, unsigned int flags, gm_cu_device number);
FAKE_API gm_cu_result cuCtxCreate_v2(gm_cu_ctx *ctx, unsigned int flags, gm_cu_device number)
{
	struct fake_device *device = fake_get_device(number);
	gm_cu_result result = GM_CUDA_ERROR_OUT_OF_MEMORY;
	int i = 0;

	FAKE_ENTER("cuCtxCreate");
	(void)flags;
	if (!device)
		return GM_CUDA_ERROR_INVALID_DEVICE;
	if (!ctx)
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.lock);
	while (i < FAKE_OWN && (own[i].taken || own[i].held))
		i++;
	if (i < FAKE_OWN)
		result = context_begin(device, &own[i].fd);
	if (!result) {
		own[i].green = false;
		own[i].device = (int)number;
		own[i].id = next_id++;
		own[i].taken = true;
		__atomic_store_n(&own[i].live, true, __ATOMIC_RELEASE);
		*ctx = (gm_cu_ctx)&own[i];
	}
	pthread_mutex_unlock(&fake.lock);
	return result ? result : fake_push(*ctx);
}

FAKE_API gm_cu_result cuCtxDestroy_v2(gm_cu_ctx ctx);
FAKE_API gm_cu_result cuCtxDestroy_v2(gm_cu_ctx ctx)
{
	struct fake_device *device;
	gm_cu_result result;
	int context;

	FAKE_ENTER("cuCtxDestroy");
	if ((result = fake_check_context(ctx, &device, &context)))
		return result;
	if (context < FAKE_DEVICES)
		return GM_CUDA_ERROR_INVALID_CONTEXT;
	/* Nobody hears that it is destroyed before its work is over. */
	fake_streams_await(context);
	__atomic_store_n(&own[context - FAKE_DEVICES].live, false, __ATOMIC_RELEASE);
	if (fake_current() == ctx)
		fake_pop();
	context_end(device, context, &own[context - FAKE_DEVICES].fd);
	pthread_mutex_lock(&fake.lock);
	own[context - FAKE_DEVICES].taken = false;
	pthread_mutex_unlock(&fake.lock);
	return GM_CUDA_SUCCESS;
}

/* Keeps the primary context, but does not become current. */
gm_cu_result fake_green_new(gm_cu_ctx *ret_ctx, gm_cu_device number)
{
	gm_cu_ctx primary;
	gm_cu_result result = cuDevicePrimaryCtxRetain(&primary, number);

	if (result)
		return result;
	result = cuCtxCreate_v2(ret_ctx, 0, number);
	if (result) {
		(void)cuDevicePrimaryCtxRelease_v2(number);
		return result;
	}
	((struct own *)*ret_ctx)->green = true;
	(void)fake_pop();
	return GM_CUDA_SUCCESS;
}

gm_cu_result fake_green_end(gm_cu_ctx ctx)
{
	struct fake_device *device;
	int context;

	if (fake_check_context(ctx, &device, &context) || context < FAKE_DEVICES ||
		!own[context - FAKE_DEVICES].green)
		return GM_CUDA_ERROR_INVALID_CONTEXT;
	gm_cu_result result = cuCtxDestroy_v2(ctx);
	return result ? result : cuDevicePrimaryCtxRelease_v2(own[context - FAKE_DEVICES].device);
}

bool fake_context_part(int context, int of)
{
	return context == of ||
	       (of < FAKE_DEVICES && context >= FAKE_DEVICES && own[context - FAKE_DEVICES].green &&
		       own[context - FAKE_DEVICES].device == of);
}

FAKE_API gm_cu_result cuCtxGetApiVersion(gm_cu_ctx ctx, unsigned int *version);
FAKE_API gm_cu_result cuCtxGetApiVersion(gm_cu_ctx ctx, unsigned int *version)
{
	struct fake_device *device;
	int unused;

	FAKE_ENTER("cuCtxGetApiVersion");
	if (!version)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if (fake_check_context(ctx, &device, &unused))
		return GM_CUDA_ERROR_INVALID_CONTEXT;
	*version = 3020;
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result fake_cuCtxGetId(gm_cu_ctx ctx, unsigned long long *id);
FAKE_API gm_cu_result fake_cuCtxGetId(gm_cu_ctx ctx, unsigned long long *id)
{
	struct fake_device *device;
	gm_cu_result result;
	int context;

	FAKE_ENTER("cuCtxGetId");
	if (!id)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if ((result = fake_check_context(ctx, &device, &context)))
		return result;
	pthread_mutex_lock(&fake.lock);
	*id = context < FAKE_DEVICES ? primary_ids[context] : own[context - FAKE_DEVICES].id;
	pthread_mutex_unlock(&fake.lock);
	return GM_CUDA_SUCCESS;
}

/* ---- plain allocations */

FAKE_API gm_cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total);
FAKE_API gm_cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	struct fake_device *device;
	gm_cu_result result;

	FAKE_ENTER("cuMemGetInfo");
	if (!free_bytes || !total)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if (!(result = fake_find_context(&device)))
		result = fake_told();
	if (!result) {
		*free_bytes = fake_free_bytes(device);
		*total = device->total;
	}
	return result;
}

FAKE_API gm_cu_result cuMemAlloc_v2(gm_cu_ptr *ptr, size_t bytes);
FAKE_API gm_cu_result cuMemAlloc_v2(gm_cu_ptr *ptr, size_t bytes)
{
	struct fake_device *device;
	struct fake_map *map;
	struct fake_mem *mem;
	gm_cu_result result;

	FAKE_ENTER("cuMemAlloc");
	fake_staging_pass();
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
			fake_map_plain(map);
			*ptr = (gm_cu_ptr)map->va;
		}
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

void fake_map_plain(struct fake_map *map)
{
	map->plain = true;
	map->context = fake_context();
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
	gm_cu_result result;

	FAKE_ENTER("cuMemFree");
	if (!ptr)
		return GM_CUDA_SUCCESS;
	if ((result = fake_allow_no_context()) || (result = fake_capture_forbids()))
		return result;
	fake_sync_all(); /* as the real one: it waits for the device */
	pthread_mutex_lock(&fake.lock);
	bool managed = fake_managed_drop((uintptr_t)ptr);
	pthread_mutex_unlock(&fake.lock);
	return managed ? GM_CUDA_SUCCESS : fake_drop_plain(ptr, false);
}
