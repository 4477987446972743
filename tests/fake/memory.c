/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Physical memory and mappings of the fake driver; where they lie: address.c. A mapping of a
 * device's memory is a real mapping without access: it keeps the file, and so the memory, alive as
 * long as any process that has it (a forked child too), and a program that reads a device pointer
 * on the CPU is killed for it, as on a real machine.
 */
#include "tests/fake/fake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utlist.h>

static bool whole(size_t n)
{
	return n && n % FAKE_GRANULARITY == 0;
}

/* ---- numbers */

static struct free_number {
	uint32_t number;
	struct free_number *next;
} * free_numbers;
static uint32_t last_number = 0x5c000000;

uint32_t fake_number_take(void)
{
	struct free_number *first = free_numbers;
	uint32_t number;

	if (!first)
		return ++last_number;
	number = first->number;
	LL_DELETE(free_numbers, first);
	free(first);
	return number;
}

void fake_number_leave(uint32_t number)
{
	struct free_number *first = calloc(1, sizeof *first);

	if (!first)
		return; /* never used again, then */
	first->number = number;
	LL_PREPEND(free_numbers, first);
}

/* ---- physical memory */

gm_cu_result fake_mem_new(int number, size_t size, struct fake_mem **ret_mem)
{
	struct fake_mem *mem = calloc(1, sizeof *mem);

	if (!mem)
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	if (number >= 0) {
		struct fake_device *device = fake_get_device(number);
		if (fake_device_lost(device)) {
			free(mem);
			return GM_CUDA_ERROR_DEVICE_UNAVAILABLE;
		}
		mem->fd = openat(device->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	} else {
		mem->fd = memfd_create("fake-host", MFD_CLOEXEC);
	}
	if (mem->fd < 0 || fallocate(mem->fd, 0, 0, (off_t)size) < 0) {
		int error = errno;
		if (mem->fd >= 0)
			close(mem->fd);
		free(mem);
		return error == EMFILE || error == ENFILE ? GM_CUDA_ERROR_OPERATING_SYSTEM
							  : GM_CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (number >= 0) {
		fake_lock(mem->fd, true);
		(void)!fchmod(mem->fd, 0666); /* importers of other users open it */
	}
	mem->id = fake.next_id++;
	mem->number = fake_number_take();
	mem->size = size;
	mem->device = number;
	HASH_ADD(hh, fake.mems, id, sizeof mem->id, mem);
	if (number >= 0)
		fake_account(fake_get_device(number), (int64_t)size);
	*ret_mem = mem;
	return GM_CUDA_SUCCESS;
}

struct fake_mem *fake_mem_find(uint64_t id)
{
	struct fake_mem *mem;

	HASH_FIND(hh, fake.mems, &id, sizeof id, mem);
	return mem;
}

void fake_mem_put(struct fake_mem *mem)
{
	if (mem->handles || mem->mappings)
		return;
	HASH_DEL(fake.mems, mem);
	if (mem->device >= 0 && mem->imported)
		fake_account_import_end(fake_get_device(mem->device), mem->import);
	else if (mem->device >= 0)
		fake_account(fake_get_device(mem->device), -(int64_t)mem->size);
	if (!mem->imported)
		fake_number_leave(mem->number);
	close(mem->fd);
	free(mem);
}

/* ---- mappings */

struct fake_map *fake_map_find(uintptr_t addr)
{
	struct fake_map *map;

	DL_FOREACH (fake.maps, map)
		if (addr >= map->va && addr - map->va < map->size)
			return map;
	return NULL;
}

bool fake_map_overlaps(const struct fake_map *map, uintptr_t va, size_t size)
{
	return map->va < va + size && va < map->va + map->size;
}

gm_cu_result fake_map_add(uintptr_t va, struct fake_mem *mem, struct fake_map **ret_map)
{
	struct fake_map *map = calloc(1, sizeof *map);
	uintptr_t place = va;
	void *at;

	if (!map)
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	map->shadow = mmap(NULL, mem->size, PROT_READ | PROT_WRITE, MAP_SHARED, mem->fd, 0);
	if (map->shadow == MAP_FAILED) {
		free(map);
		return GM_CUDA_ERROR_MAP_FAILED;
	}
	if (!place)
		place = fake_place_take(mem->size);
	if (!place) {
		munmap(map->shadow, mem->size);
		free(map);
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	}
	at = mmap((void *)place, mem->size, PROT_NONE, MAP_SHARED | MAP_FIXED, mem->fd, 0);
	if (at == MAP_FAILED) {
		if (!va)
			fake_place_leave(place, mem->size);
		munmap(map->shadow, mem->size);
		free(map);
		return GM_CUDA_ERROR_MAP_FAILED;
	}
	map->va = (uintptr_t)at;
	map->size = mem->size;
	map->mem = mem;
	mem->mappings++;
	DL_APPEND(fake.maps, map);
	*ret_map = map;
	return GM_CUDA_SUCCESS;
}

void fake_map_remove(struct fake_map *map, bool keep_reserved)
{
	mmap((void *)map->va, map->size, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	if (!keep_reserved)
		fake_place_leave(map->va, map->size);
	munmap(map->shadow, map->size);
	DL_DELETE(fake.maps, map);
	if (map->pool)
		fake_pool_leave(map->pool, map->pool_bytes);
	map->mem->mappings--;
	fake_mem_put(map->mem);
	free(map);
}

/* ---- the driver's functions: physical memory */

FAKE_API gm_cu_result cuMemGetAllocationGranularity(
	size_t *granularity, const gm_cu_prop *prop, gm_cu_granularity option);
FAKE_API gm_cu_result cuMemGetAllocationGranularity(
	size_t *granularity, const gm_cu_prop *prop, gm_cu_granularity option)
{
	FAKE_ENTER("cuMemGetAllocationGranularity");
	if (!granularity || !prop || (option != 0 && option != 1))
		return GM_CUDA_ERROR_INVALID_VALUE;
	if (prop->location.type == GM_CU_MEM_LOCATION_TYPE_DEVICE &&
		!fake_get_device(prop->location.id))
		return GM_CUDA_ERROR_INVALID_DEVICE;
	*granularity = FAKE_GRANULARITY;
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuMemCreate(
	gm_cu_mem *handle, size_t size, const gm_cu_prop *prop, unsigned long long flags);
FAKE_API gm_cu_result cuMemCreate(
	gm_cu_mem *handle, size_t size, const gm_cu_prop *prop, unsigned long long flags)
{
	struct fake_mem *mem;
	gm_cu_result result;
	int device;

	FAKE_ENTER("cuMemCreate");
	if (fake_without("vmm"))
		return GM_CUDA_ERROR_NOT_SUPPORTED;
	if (!handle || !prop || flags || !whole(size) ||
		prop->type != GM_CU_MEM_ALLOCATION_TYPE_PINNED)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if (prop->location.type == GM_CU_MEM_LOCATION_TYPE_DEVICE) {
		device = prop->location.id;
		if (!fake_get_device(device))
			return GM_CUDA_ERROR_INVALID_DEVICE;
		if (prop->alloc_flags.gpu_direct_rdma_capable && fake_without("rdma"))
			return GM_CUDA_ERROR_NOT_SUPPORTED;
	} else if (prop->location.type == GM_CU_MEM_LOCATION_TYPE_HOST_NUMA &&
		   !fake_without("hostnuma")) {
		device = -1;
		if (prop->location.id != 0)
			return GM_CUDA_ERROR_INVALID_VALUE;
	} else {
		return GM_CUDA_ERROR_INVALID_VALUE;
	}
	if (prop->requested_handle_types & ~GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return GM_CUDA_ERROR_NOT_PERMITTED;
	if (prop->requested_handle_types && fake_without("fd"))
		return GM_CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&fake.lock);
	result = fake_mem_new(device, size, &mem);
	if (!result) {
		mem->handles = 1;
		mem->shareable = prop->requested_handle_types != 0;
		*handle = mem->id;
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

FAKE_API gm_cu_result cuMemRelease(gm_cu_mem handle);
FAKE_API gm_cu_result cuMemRelease(gm_cu_mem handle)
{
	struct fake_mem *mem;

	FAKE_ENTER("cuMemRelease");
	pthread_mutex_lock(&fake.lock);
	mem = fake_mem_find(handle);
	if (!mem || !mem->handles)
		fake_undefined("no such handle, or it was released");
	mem->handles--;
	fake_mem_put(mem);
	pthread_mutex_unlock(&fake.lock);
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuMemRetainAllocationHandle(gm_cu_mem *handle, void *addr);
FAKE_API gm_cu_result cuMemRetainAllocationHandle(gm_cu_mem *handle, void *addr)
{
	gm_cu_result result = GM_CUDA_ERROR_INVALID_VALUE;
	struct fake_map *map;

	FAKE_ENTER("cuMemRetainAllocationHandle");
	pthread_mutex_lock(&fake.lock);
	map = handle ? fake_map_find((uintptr_t)addr) : NULL;
	if (map && !map->plain) {
		map->mem->handles++;
		*handle = map->mem->id;
		result = GM_CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

FAKE_API gm_cu_result cuMemGetAllocationPropertiesFromHandle(gm_cu_prop *prop, gm_cu_mem handle);
FAKE_API gm_cu_result cuMemGetAllocationPropertiesFromHandle(gm_cu_prop *prop, gm_cu_mem handle)
{
	gm_cu_result result = GM_CUDA_ERROR_INVALID_VALUE;
	struct fake_mem *mem;

	FAKE_ENTER("cuMemGetAllocationPropertiesFromHandle");
	pthread_mutex_lock(&fake.lock);
	mem = prop ? fake_mem_find(handle) : NULL;
	if (mem && mem->handles) {
		*prop = (gm_cu_prop){.type = GM_CU_MEM_ALLOCATION_TYPE_PINNED};
		prop->location.type = mem->device >= 0 ? GM_CU_MEM_LOCATION_TYPE_DEVICE
						       : GM_CU_MEM_LOCATION_TYPE_HOST_NUMA;
		prop->location.id = mem->device >= 0 ? mem->device : 0;
		prop->requested_handle_types = mem->shareable;
		result = GM_CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

FAKE_API gm_cu_result cuMemExportToShareableHandle(
	void *shareable, gm_cu_mem handle, gm_cu_handle_type type, unsigned long long flags);
FAKE_API gm_cu_result cuMemExportToShareableHandle(
	void *shareable, gm_cu_mem handle, gm_cu_handle_type type, unsigned long long flags)
{
	gm_cu_result result = GM_CUDA_ERROR_INVALID_VALUE;
	struct fake_mem *mem;

	FAKE_ENTER("cuMemExportToShareableHandle");
	if (!shareable || flags || type != GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.lock);
	mem = fake_mem_find(handle);
	if (mem && mem->handles && mem->shareable && !mem->imported) {
		int fd = fcntl(mem->fd, F_DUPFD_CLOEXEC, 0);
		if (fd >= 0) {
			*(int *)shareable = fd;
			result = GM_CUDA_SUCCESS;
		} else {
			result = GM_CUDA_ERROR_OPERATING_SYSTEM;
		}
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

/* Whose memory a file is: a device's ordinal, -1 for the host's, -2 for none of ours. */
static int home(int fd, struct stat *st)
{
	char link[64], name[64] = "";

	if (fstat(fd, st) < 0 || !S_ISREG(st->st_mode) || st->st_size == 0)
		return -2;
	for (int i = 0; i < fake.devices; i++)
		if (fake.device[i].st_dev == st->st_dev)
			return i;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	(void)!readlink(link, name, sizeof name - 1);
	return strncmp(name, "/memfd:fake-host", 16) == 0 ? -1 : -2;
}

/* Memory of a device is opened anew, without the lock that its maker has. */
static int import_fd(int fd, int device)
{
	char path[64];

	if (device < 0)
		return fcntl(fd, F_DUPFD_CLOEXEC, 0);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return open(path, O_RDWR | O_CLOEXEC);
}

/* What is another's counts for nobody, until nobody but importers has it: so does the real driver. */
static void import_account(struct fake_mem *mem, const struct stat *st)
{
	const struct fake_import import = {st->st_dev, st->st_ino, st->st_size};

	if (mem->device >= 0)
		mem->import = fake_account_import(fake_get_device(mem->device), &import);
}

FAKE_API gm_cu_result cuMemImportFromShareableHandle(
	gm_cu_mem *handle, void *os_handle, gm_cu_handle_type type);
FAKE_API gm_cu_result cuMemImportFromShareableHandle(
	gm_cu_mem *handle, void *os_handle, gm_cu_handle_type type)
{
	gm_cu_result result = GM_CUDA_ERROR_INVALID_VALUE;
	struct fake_mem *mem = NULL;
	struct stat st;
	int device;

	FAKE_ENTER("cuMemImportFromShareableHandle");
	if (!handle || type != GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.lock);
	device = home((int)(intptr_t)os_handle, &st);
	if (device >= 0 && fake_device_lost(&fake.device[device])) {
		result = GM_CUDA_ERROR_DEVICE_UNAVAILABLE;
	} else if (device >= -1 && (mem = calloc(1, sizeof *mem))) {
		mem->fd = import_fd((int)(intptr_t)os_handle, device);
		if (mem->fd < 0) {
			free(mem);
			result = GM_CUDA_ERROR_OPERATING_SYSTEM;
		} else {
			mem->id = fake.next_id++;
			mem->size = (size_t)st.st_size;
			mem->device = device;
			mem->imported = true;
			mem->handles = 1;
			import_account(mem, &st);
			HASH_ADD(hh, fake.mems, id, sizeof mem->id, mem);
			*handle = mem->id;
			result = GM_CUDA_SUCCESS;
		}
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

/* ---- the driver's functions: mappings */

FAKE_API gm_cu_result cuMemMap(
	gm_cu_ptr ptr, size_t size, size_t offset, gm_cu_mem handle, unsigned long long flags);
FAKE_API gm_cu_result cuMemMap(
	gm_cu_ptr ptr, size_t size, size_t offset, gm_cu_mem handle, unsigned long long flags)
{
	gm_cu_result result = GM_CUDA_ERROR_INVALID_VALUE;
	struct fake_map *map;
	struct fake_mem *mem;
	bool inside;

	FAKE_ENTER("cuMemMap");
	if (flags || !size || ptr % FAKE_GRANULARITY)
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.lock);
	mem = fake_mem_find(handle);
	inside = fake_reserved((uintptr_t)ptr, size);
	DL_FOREACH (fake.maps, map)
		if (fake_map_overlaps(map, (uintptr_t)ptr, size))
			inside = false;
	if (inside && mem && mem->handles)
		result = offset || mem->size != size ? GM_CUDA_ERROR_NOT_SUPPORTED
						     : fake_map_add((uintptr_t)ptr, mem, &map);
	pthread_mutex_unlock(&fake.lock);
	return result;
}

/* Every mapping in the range, which must begin and end at borders and have no hole; 0 if it has
 * not. */
static size_t cover(uintptr_t va, size_t size, struct fake_map **maps, size_t room)
{
	size_t n = 0;

	for (uintptr_t at = va; at < va + size; n++) {
		struct fake_map *map = fake_map_find(at);
		if (!map || map->va != at || map->plain || at + map->size > va + size || n == room)
			return 0;
		maps[n] = map;
		at += map->size;
	}
	return n;
}

#define COVER_MAX 8192

FAKE_API gm_cu_result cuMemUnmap(gm_cu_ptr ptr, size_t size);
FAKE_API gm_cu_result cuMemUnmap(gm_cu_ptr ptr, size_t size)
{
	gm_cu_result result = GM_CUDA_SUCCESS;
	struct fake_map *map, *next;
	uintptr_t va = (uintptr_t)ptr;

	FAKE_ENTER("cuMemUnmap");
	if (!whole(size) || va % FAKE_GRANULARITY)
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.lock);
	if (!fake_reserved(va, size))
		result = GM_CUDA_ERROR_INVALID_VALUE;
	DL_FOREACH (fake.maps, map)
		if (fake_map_overlaps(map, va, size) &&
			(map->plain || map->va < va || map->va + map->size > va + size))
			result = GM_CUDA_ERROR_INVALID_VALUE;
	/* A reserved range that holds nothing is no error. */
	if (!result)
		DL_FOREACH_SAFE (fake.maps, map, next)
			if (fake_map_overlaps(map, va, size))
				fake_map_remove(map, true);
	pthread_mutex_unlock(&fake.lock);
	return result;
}

static void set_device_access(struct fake_map *map, int device, int flags)
{
	unsigned bit = 1u << device;

	map->device_access &= ~bit;
	map->device_write &= ~bit;
	if (flags != GM_CU_MEM_ACCESS_FLAGS_PROT_NONE)
		map->device_access |= bit;
	if (flags == GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		map->device_write |= bit;
}

FAKE_API gm_cu_result cuMemSetAccess(
	gm_cu_ptr ptr, size_t size, const gm_cu_access *access, size_t n_access);
FAKE_API gm_cu_result cuMemSetAccess(
	gm_cu_ptr ptr, size_t size, const gm_cu_access *access, size_t n_access)
{
	static struct fake_map *maps[COVER_MAX]; /* behind the lock */
	gm_cu_result result = GM_CUDA_SUCCESS;
	size_t n;

	FAKE_ENTER("cuMemSetAccess");
	if (!access || !n_access)
		return GM_CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n_access; i++) {
		if (access[i].flags != GM_CU_MEM_ACCESS_FLAGS_PROT_NONE &&
			access[i].flags != GM_CU_MEM_ACCESS_FLAGS_PROT_READ &&
			access[i].flags != GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return GM_CUDA_ERROR_INVALID_VALUE;
		if (access[i].location.type < GM_CU_MEM_LOCATION_TYPE_DEVICE ||
			access[i].location.type > GM_CU_MEM_LOCATION_TYPE_HOST_NUMA)
			return GM_CUDA_ERROR_INVALID_VALUE;
		if (access[i].location.type == GM_CU_MEM_LOCATION_TYPE_DEVICE &&
			!fake_get_device(access[i].location.id))
			return GM_CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_lock(&fake.lock);
	n = cover((uintptr_t)ptr, size, maps, COVER_MAX);
	if (!n)
		result = GM_CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n && !result; i++)
		for (size_t j = 0; j < n_access && !result; j++) {
			struct fake_map *map = maps[i];
			int flags = access[j].flags;
			if (access[j].location.type == GM_CU_MEM_LOCATION_TYPE_DEVICE) {
				if (map->mem->device >= 0 &&
					map->mem->device != access[j].location.id &&
					fake_without("p2p"))
					result = GM_CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
				else
					set_device_access(map, access[j].location.id, flags);
			} else if (map->mem->device >= 0) {
				result = GM_CUDA_ERROR_NOT_SUPPORTED; /* the CPU cannot reach it */
			} else {
				mprotect((void *)map->va, map->size,
					flags == GM_CU_MEM_ACCESS_FLAGS_PROT_NONE ? PROT_NONE
					: flags == GM_CU_MEM_ACCESS_FLAGS_PROT_READ
						? PROT_READ
						: PROT_READ | PROT_WRITE);
			}
		}
	pthread_mutex_unlock(&fake.lock);
	return result;
}
