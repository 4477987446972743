/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake libnvidia-ml.so.1: what the kernel counts on the devices' file systems, and what each
 * process says that it uses. It is a library of its own, as the real one, and shares nothing with
 * the fake driver but the folder.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "tests/fake/fake.h"

#define API __attribute__((visibility("default")))
#define EXTRA \
	((unsigned long long)16 << 20) /* counted in the total, never to be had: as NVML does */

/* A handle is a place in one of two tables, and that place is all there is to it. */
struct gm_nvml_device_opaque {
	char unused;
};

static struct gm_nvml_device_opaque devices[FAKE_DEVICES];
/* Their MIG instances, one each. */
static struct gm_nvml_device_opaque instances[FAKE_DEVICES];
static bool initialised;

static const char *folder(void)
{
	return getenv("GPUMEM_FAKE_DIR");
}

static bool is_there(int number, const char *mark)
{
	char path[4200];

	snprintf(path, sizeof path, "%s/gpu%d%s", folder(), number, mark);
	return access(path, F_OK) == 0;
}

static bool is_instance(gm_nvml_device device)
{
	return device >= instances && device < instances + FAKE_DEVICES;
}

static int number_of(gm_nvml_device device)
{
	return (int)(device - (is_instance(device) ? instances : devices));
}

static gm_nvml_return enter(gm_nvml_device device)
{
	if (!initialised)
		return GM_NVML_ERROR_UNINITIALIZED;
	if (!is_instance(device) && (device < devices || device >= devices + FAKE_DEVICES))
		return GM_NVML_ERROR_INVALID_ARGUMENT;
	if (!is_there(number_of(device), ""))
		return GM_NVML_ERROR_INVALID_ARGUMENT;
	return is_there(number_of(device), ".lost") ? GM_NVML_ERROR_GPU_IS_LOST : GM_NVML_SUCCESS;
}

static bool is_without(const char *what)
{
	const char *list = getenv("GPUMEM_FAKE_WITHOUT");

	return list && strstr(list, what);
}

API gm_nvml_return nvmlInit_v2(void);
API gm_nvml_return nvmlInit_v2(void)
{
	if (!folder() || is_without("nvml"))
		return GM_NVML_ERROR_DRIVER_NOT_LOADED;
	initialised = true;
	return GM_NVML_SUCCESS;
}

API gm_nvml_return nvmlShutdown(void);
API gm_nvml_return nvmlShutdown(void)
{
	initialised = false;
	return GM_NVML_SUCCESS;
}

API gm_nvml_return nvmlSystemGetDriverVersion(char *version, unsigned int room);
API gm_nvml_return nvmlSystemGetDriverVersion(char *version, unsigned int room)
{
	if (!initialised)
		return GM_NVML_ERROR_UNINITIALIZED;
	if (!version || room < 8)
		return GM_NVML_ERROR_INVALID_ARGUMENT;
	snprintf(version, room, "580.00");
	return GM_NVML_SUCCESS;
}

API gm_nvml_return nvmlDeviceGetHandleByUUID(const char *uuid, gm_nvml_device *device);
API gm_nvml_return nvmlDeviceGetHandleByUUID(const char *uuid, gm_nvml_device *device)
{
	unsigned number;

	if (!initialised)
		return GM_NVML_ERROR_UNINITIALIZED;
	if (!uuid || !device)
		return GM_NVML_ERROR_INVALID_ARGUMENT;
	if (is_without("uuid"))
		return GM_NVML_ERROR_NOT_FOUND;
	if (sscanf(uuid, "GPU-f46b6500-6770-756d-656d-6400000000%2x", &number) == 1 &&
		number < FAKE_DEVICES && is_there((int)number, "")) {
		*device = &devices[number];
		return GM_NVML_SUCCESS;
	}
	if (sscanf(uuid, "MIG-f46b6500-6770-756d-656d-6400000001%2x", &number) == 1 &&
		number < FAKE_DEVICES && is_there((int)number, ".mig")) {
		*device = &instances[number];
		return GM_NVML_SUCCESS;
	}
	return GM_NVML_ERROR_NOT_FOUND;
}

API gm_nvml_return nvmlDeviceGetMemoryInfo(gm_nvml_device device, gm_nvml_memory *memory);
API gm_nvml_return nvmlDeviceGetMemoryInfo(gm_nvml_device device, gm_nvml_memory *memory)
{
	gm_nvml_return result = enter(device);
	struct statvfs vfs;
	char path[4200];

	if (result)
		return result;
	snprintf(path, sizeof path, "%s/gpu%d", folder(), number_of(device));
	if (!memory || statvfs(path, &vfs) < 0)
		return GM_NVML_ERROR_UNKNOWN;
	memory->total = (unsigned long long)vfs.f_blocks * vfs.f_frsize + EXTRA;
	memory->free = (unsigned long long)vfs.f_bavail * vfs.f_frsize;
	memory->used = memory->total - memory->free;
	return GM_NVML_SUCCESS;
}

API gm_nvml_return nvmlDeviceGetMemoryInfo_v2(gm_nvml_device device, gm_nvml_memory_v2 *memory);
API gm_nvml_return nvmlDeviceGetMemoryInfo_v2(gm_nvml_device device, gm_nvml_memory_v2 *memory)
{
	gm_nvml_memory first;
	gm_nvml_return result = nvmlDeviceGetMemoryInfo(device, &first);

	if (result)
		return result;
	if (memory->version != (sizeof *memory | 2 << 24))
		return GM_NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	memory->total = first.total;
	memory->reserved = EXTRA;
	memory->free = first.free;
	memory->used = first.used - EXTRA;
	return GM_NVML_SUCCESS;
}

API gm_nvml_return nvmlDeviceGetUUID(gm_nvml_device device, char *uuid, unsigned int room);
API gm_nvml_return nvmlDeviceGetUUID(gm_nvml_device device, char *uuid, unsigned int room)
{
	gm_nvml_return result = enter(device);

	if (result)
		return result;
	if (!uuid || room < 41)
		return GM_NVML_ERROR_INSUFFICIENT_SIZE;
	snprintf(uuid, room, "%s-f46b6500-6770-756d-656d-64000000%02x%02x",
		is_instance(device) ? "MIG" : "GPU", is_instance(device), number_of(device));
	return GM_NVML_SUCCESS;
}

API gm_nvml_return nvmlDeviceGetHandleByIndex_v2(unsigned int index, gm_nvml_device *device);
API gm_nvml_return nvmlDeviceGetHandleByIndex_v2(unsigned int index, gm_nvml_device *device)
{
	if (!initialised)
		return GM_NVML_ERROR_UNINITIALIZED;
	if (!device || index >= FAKE_DEVICES || !is_there((int)index, ""))
		return GM_NVML_ERROR_INVALID_ARGUMENT;
	*device = &devices[index];
	return GM_NVML_SUCCESS;
}

/* ---- processes */

/* Memory that its maker, or an fd from its maker, still has. */
struct held {
	uint64_t device, inode;
};

static int by_inode(const void *a, const void *b)
{
	const struct held *x = a, *y = b;

	if (x->inode != y->inode)
		return x->inode < y->inode ? -1 : 1;
	return x->device < y->device ? -1 : x->device > y->device;
}

/* The kernel's list of locks has all of it. Returns a sorted list, which the caller frees. */
static struct held *read_held(size_t *ret_n)
{
	FILE *file = fopen("/proc/locks", "re");
	size_t n = 0, room = 0;
	struct held *list = NULL;
	char line[256];

	while (file && fgets(line, sizeof line, file)) {
		unsigned major, minor;
		unsigned long long inode;
		if (sscanf(line, "%*d: OFDLCK %*s %*s %*s %x:%x:%llu", &major, &minor, &inode) != 3)
			continue;
		if (n == room) {
			struct held *larger = realloc(list, (room = 2 * room + 64) * sizeof *list);
			if (!larger)
				break;
			list = larger;
		}
		list[n++] = (struct held){makedev(major, minor), inode};
	}
	if (file)
		fclose(file);
	if (n)
		qsort(list, n, sizeof *list, by_inode);
	*ret_n = n;
	return list;
}

/* The kernel prints its list a page at a time. If a lock goes meanwhile, another one may be left out.
 * So whatever is not there is looked for again. */
#define LOOKS 4

struct held_list {
	struct held *list;
	size_t n;
};

static bool is_held(struct held_list *held, const struct held *key)
{
	for (int i = 0; i < LOOKS; i++) {
		if (held->n && bsearch(key, held->list, held->n, sizeof *key, by_inode))
			return true;
		free(held->list);
		held->list = read_held(&held->n);
	}
	return held->n && bsearch(key, held->list, held->n, sizeof *key, by_inode);
}

/* What a process imported and nobody but importers has any more. */
static int64_t left_over(int fd)
{
	struct held_list held = {0};
	int64_t bytes = 0;
	struct fake_import import;
	off_t at = sizeof(struct fake_use);

	for (; pread(fd, &import, sizeof import, at) == sizeof import; at += sizeof import) {
		struct held key = {import.device, import.inode};
		if (import.bytes != 0 && !is_held(&held, &key))
			bytes += import.bytes;
	}
	free(held.list);
	return bytes;
}

/* Whether the process that wrote the file lives, or a child that it forked does. */
static bool in_use(int fd)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* As the real one: without a context it is not listed. */
static bool read_use(int fd, unsigned long long *ret_bytes)
{
	struct fake_use use;

	if (pread(fd, &use, sizeof use, 0) != sizeof use || use.contexts <= 0)
		return false;
	*ret_bytes = (unsigned long long)(use.bytes + left_over(fd));
	return true;
}

API gm_nvml_return nvmlDeviceGetComputeRunningProcesses_v3(
	gm_nvml_device device, unsigned int *n, gm_nvml_process *processes);
API gm_nvml_return nvmlDeviceGetComputeRunningProcesses_v3(
	gm_nvml_device device, unsigned int *n, gm_nvml_process *processes)
{
	gm_nvml_return result = enter(device);
	unsigned int found = 0;
	struct dirent *entry;
	char path[4200];
	DIR *dir;

	if (result)
		return result;
	if (!n || (*n && !processes))
		return GM_NVML_ERROR_INVALID_ARGUMENT;
	snprintf(path, sizeof path, "%s/gpu%d.use", folder(), number_of(device));
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		long pid = atol(entry->d_name);
		unsigned long long bytes;
		bool listed;
		int fd;
		if (pid <= 0)
			continue;
		fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (!in_use(fd))
			unlinkat(dirfd(dir), entry->d_name, 0);
		listed = in_use(fd) && read_use(fd, &bytes);
		close(fd);
		if (!listed)
			continue;
		if (found < *n)
			processes[found] =
				(gm_nvml_process){(unsigned)pid, bytes, 0xffffffff, 0xffffffff};
		found++;
	}
	if (dir)
		closedir(dir);
	result = found > *n ? GM_NVML_ERROR_INSUFFICIENT_SIZE : GM_NVML_SUCCESS;
	*n = found;
	return result;
}

API gm_nvml_return nvmlDeviceGetGraphicsRunningProcesses_v3(
	gm_nvml_device device, unsigned int *n, gm_nvml_process *processes);
API gm_nvml_return nvmlDeviceGetGraphicsRunningProcesses_v3(
	gm_nvml_device device, unsigned int *n, gm_nvml_process *processes)
{
	gm_nvml_return result = enter(device);

	(void)processes;
	if (!result && n)
		*n = 0;
	return result;
}

API gm_nvml_return nvmlDeviceGetPersistenceMode(gm_nvml_device device, int *mode);
API gm_nvml_return nvmlDeviceGetPersistenceMode(gm_nvml_device device, int *mode)
{
	gm_nvml_return result = enter(device);

	if (!result && is_instance(device))
		return GM_NVML_ERROR_NOT_SUPPORTED;
	if (!result && mode)
		*mode = !is_there(number_of(device), ".nopm");
	return result;
}

API gm_nvml_return nvmlDeviceGetMigMode(
	gm_nvml_device device, unsigned int *current, unsigned int *pending);
API gm_nvml_return nvmlDeviceGetMigMode(
	gm_nvml_device device, unsigned int *current, unsigned int *pending)
{
	gm_nvml_return result = enter(device);

	if (!result && is_instance(device))
		return GM_NVML_ERROR_NOT_SUPPORTED;
	if (!result && current && pending)
		*current = *pending = is_there(number_of(device), ".mig");
	return result;
}
