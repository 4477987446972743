/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory that devices of the fake driver reach: allocated by the driver, or the program's own,
 * registered. It belongs to the context that was current. Ranges do not overlap.
 */
#include "tests/fake/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utlist.h>

struct fake_host {
	uintptr_t va;
	size_t size;
	int context;    /* its number */
	bool allocated; /* else registered */
	unsigned int flags;
	uint32_t number;
	struct fake_host *prev, *next;
};
static struct fake_host *hosts; /* behind fake.lock */

bool fake_host_find(uintptr_t addr, size_t want, size_t *ret_n)
{
	struct fake_host *host;
	size_t n = want;
	bool found = false;

	DL_FOREACH (hosts, host) {
		if (addr >= host->va && addr - host->va < host->size) {
			found = true;
			n = host->size - (addr - host->va);
		} else if (host->va > addr && host->va - addr < n && !found) {
			n = host->va - addr; /* where the next one begins */
		}
	}
	*ret_n = n < want ? n : want;
	return found;
}

bool fake_host_range(uintptr_t addr, uintptr_t *ret_va, size_t *ret_size, int *ret_context)
{
	struct fake_host *host;

	DL_FOREACH (hosts, host)
		if (addr >= host->va && addr - host->va < host->size) {
			*ret_va = host->va;
			*ret_size = host->size;
			*ret_context = host->context;
			return true;
		}
	return false;
}

bool fake_host_numbered(uint32_t number)
{
	struct fake_host *host;

	DL_FOREACH (hosts, host)
		if (host->number == number)
			break;
	return host;
}

static gm_cu_result add(void *ptr, size_t bytes, int context, bool allocated)
{
	struct fake_host *host;

	DL_FOREACH (hosts, host)
		if ((uintptr_t)ptr < host->va + host->size && host->va < (uintptr_t)ptr + bytes)
			return host->allocated ? GM_CUDA_ERROR_INVALID_VALUE
					       : GM_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	host = calloc(1, sizeof *host);
	if (!host)
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	*host = (struct fake_host){
		(uintptr_t)ptr, bytes, context, allocated, 2, fake_number_take(), NULL, NULL};
	DL_APPEND(hosts, host);
	return GM_CUDA_SUCCESS;
}

gm_cu_result fake_host_add(void *ptr, size_t bytes)
{
	return add(ptr, bytes, fake_context(), true);
}

static void drop(struct fake_host *host)
{
	DL_DELETE(hosts, host);
	fake_number_leave(host->number);
	if (host->allocated)
		free((void *)host->va);
	free(host);
}

static bool drop_locked(void *ptr, bool allocated)
{
	struct fake_host *host;

	DL_FOREACH (hosts, host)
		if (host->va == (uintptr_t)ptr && host->allocated == allocated)
			break;
	if (host)
		drop(host);
	return host;
}

static bool drop_at(void *ptr, bool allocated)
{
	pthread_mutex_lock(&fake.lock);
	bool found = drop_locked(ptr, allocated);
	pthread_mutex_unlock(&fake.lock);
	return found;
}

bool fake_host_drop(void *ptr)
{
	return drop_locked(ptr, true);
}

void fake_hosts_end(int context)
{
	struct fake_host *host, *tmp;

	DL_FOREACH_SAFE (hosts, host, tmp)
		if (host->context == context)
			drop(host);
}

/* Whether there is memory at all of the range. */
static bool is_mapped(void *ptr, size_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = (uintptr_t)ptr & ~(page - 1);
	size_t n = (uintptr_t)ptr + bytes - from;
	unsigned char *there = malloc(n / page + 1);
	bool mapped = there && mincore((void *)from, n, there) == 0;

	free(there);
	return mapped;
}

/* ---- the driver's functions */

FAKE_API gm_cu_result cuMemHostAlloc(void **ptr, size_t bytes, unsigned int flags);
FAKE_API gm_cu_result cuMemHostAlloc(void **ptr, size_t bytes, unsigned int flags)
{
	struct fake_device *device;
	gm_cu_result result;
	void *made;

	FAKE_ENTER("cuMemHostAlloc");
	fake_staging_pass();
	if (!ptr || !bytes || flags > 7) /* portable, mapped, write-combined */
		return GM_CUDA_ERROR_INVALID_VALUE;
	if ((result = fake_need_context(&device)) || (result = fake_capture_forbids()))
		return result;
	if (posix_memalign(&made, 4096, bytes))
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&fake.lock);
	result = add(made, bytes, fake_context(), true);
	if (!result)
		hosts->prev->flags |= flags;
	pthread_mutex_unlock(&fake.lock);
	if (result)
		free(made);
	else
		*ptr = made;
	return result;
}

FAKE_API gm_cu_result cuMemAllocHost_v2(void **ptr, size_t bytes);
FAKE_API gm_cu_result cuMemAllocHost_v2(void **ptr, size_t bytes)
{
	return cuMemHostAlloc(ptr, bytes, 0);
}

/* Whether it is host memory that was mapped. With the lock held. */
static bool is_chunk(const void *ptr)
{
	struct fake_map *map = fake_map_find((uintptr_t)ptr);

	return map && map->mem->device < 0;
}

/* All of it is mapped for devices (2). Mapped chunks are portable (1), too. */
FAKE_API gm_cu_result cuMemHostGetFlags(unsigned int *flags, void *ptr);
FAKE_API gm_cu_result cuMemHostGetFlags(unsigned int *flags, void *ptr)
{
	gm_cu_result result = GM_CUDA_ERROR_INVALID_VALUE;
	struct fake_host *host;

	FAKE_ENTER("cuMemHostGetFlags");
	if (!flags)
		return result;
	pthread_mutex_lock(&fake.lock);
	DL_FOREACH (hosts, host)
		if ((uintptr_t)ptr >= host->va && (uintptr_t)ptr - host->va < host->size)
			break;
	if (host || is_chunk(ptr)) {
		*flags = host ? host->flags : 3;
		result = GM_CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

FAKE_API gm_cu_result cuMemFreeHost(void *ptr);
FAKE_API gm_cu_result cuMemFreeHost(void *ptr)
{
	gm_cu_result result;

	FAKE_ENTER("cuMemFreeHost");
	if ((result = fake_allow_no_context()) || (result = fake_capture_forbids()))
		return result;
	fake_sync_all_alone();
	return drop_at(ptr, true) ? GM_CUDA_SUCCESS : GM_CUDA_ERROR_INVALID_VALUE;
}

FAKE_API gm_cu_result cuMemHostRegister_v2(void *ptr, size_t bytes, unsigned int flags);
FAKE_API gm_cu_result cuMemHostRegister_v2(void *ptr, size_t bytes, unsigned int flags)
{
	struct fake_device *device;
	gm_cu_result result;

	FAKE_ENTER("cuMemHostRegister");
	fake_staging_pass();
	fake_ending_pass();
	if (!ptr || !bytes || flags > 15) /* portable, mapped, of a device, read-only */
		return GM_CUDA_ERROR_INVALID_VALUE;
	if ((result = fake_need_context(&device)) || (result = fake_capture_forbids()))
		return result;
	if (!is_mapped(ptr, bytes))
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.lock);
	result = add(ptr, bytes, fake_context(), false);
	pthread_mutex_unlock(&fake.lock);
	return result;
}

FAKE_API gm_cu_result cuMemHostUnregister(void *ptr);
FAKE_API gm_cu_result cuMemHostUnregister(void *ptr)
{
	gm_cu_result result;
	size_t unused;

	FAKE_ENTER("cuMemHostUnregister");
	if (!ptr)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if ((result = fake_sticky()) || (result = fake_capture_forbids()))
		return result;
	fake_sync_all_alone();
	if (drop_at(ptr, false))
		return GM_CUDA_SUCCESS;
	/* Inside of a registration, or of the driver's own, is something else than nothing. */
	pthread_mutex_lock(&fake.lock);
	result = fake_host_find((uintptr_t)ptr, 1, &unused)
			 ? GM_CUDA_ERROR_INVALID_VALUE
			 : GM_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	pthread_mutex_unlock(&fake.lock);
	return result;
}

FAKE_API gm_cu_result cuMemHostGetDevicePointer_v2(gm_cu_ptr *ptr, void *host, unsigned int flags);
FAKE_API gm_cu_result cuMemHostGetDevicePointer_v2(gm_cu_ptr *ptr, void *host, unsigned int flags)
{
	struct fake_device *device;
	gm_cu_result result;
	size_t unused;
	bool known;

	FAKE_ENTER("cuMemHostGetDevicePointer");
	if (!ptr || !host || flags)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if ((result = fake_need_context(&device)))
		return result;
	pthread_mutex_lock(&fake.lock);
	known = fake_host_find((uintptr_t)host, 1, &unused) || is_chunk(host);
	pthread_mutex_unlock(&fake.lock);
	if (!known)
		return GM_CUDA_ERROR_INVALID_VALUE;
	*ptr = (gm_cu_ptr)(uintptr_t)host;
	return GM_CUDA_SUCCESS;
}

/* For tests: how many registrations this process has. */
FAKE_API int fake_registered(void);
FAKE_API int fake_registered(void)
{
	struct fake_host *host;
	int n = 0;

	pthread_mutex_lock(&fake.lock);
	DL_FOREACH (hosts, host)
		n += !host->allocated;
	pthread_mutex_unlock(&fake.lock);
	return n;
}
