/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake driver's devices: found as mounted tmpfs folders, filtered by CUDA_VISIBLE_DEVICES,
 * described, and kept account of for NVML in one small file per process and device (gpuN.use/PID),
 * which the kernel's own count of the file system is checked against.
 */
#include "tests/fake/fake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct fake fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .next_id = 1};

/* GPU n has the UUID f4k3 … n, stable over processes and runs, its MIG instance another one. */
static void make_uuid(int number, bool mig, gm_cu_uuid *uuid)
{
	static const unsigned char base[16] = {0xf4, 0x6b, 0x65, 0x00, 0x67, 0x70, 0x75, 0x6d, 0x65,
		0x6d, 0x64, 0x00, 0x00, 0x00, 0x00, 0x00};

	memcpy(uuid->bytes, base, 16);
	uuid->bytes[14] = (char)(mig ? 1 : 0);
	uuid->bytes[15] = (char)number;
}

static void uuid_text(const gm_cu_uuid *uuid, bool mig, char text[41])
{
	const unsigned char *b = (const unsigned char *)uuid->bytes;
	char *at = text + sprintf(text, mig ? "MIG-" : "GPU-");

	for (int i = 0; i < 16; i++)
		at += sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", b[i]);
}

static int hold(const struct fake_device *device, size_t bytes)
{
	int fd = openat(device->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0)
		return -1;
	if (bytes && fallocate(fd, 0, 0, (off_t)bytes) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static bool open_device(int number, struct fake_device *device)
{
	char path[4200];
	struct stat st, above;
	struct statvfs vfs;

	memset(device, 0, sizeof *device);
	device->context_fd = -1;
	device->number = number;
	snprintf(path, sizeof path, "%s/gpu%d", fake.folder, number);
	device->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (device->dir < 0)
		return false;
	if (fstat(device->dir, &st) < 0 || stat(fake.folder, &above) < 0 ||
		st.st_dev == above.st_dev || fstatvfs(device->dir, &vfs) < 0) {
		close(device->dir); /* a plain folder is no device: nothing would be counted */
		return false;
	}
	device->st_dev = st.st_dev;
	device->total = (size_t)vfs.f_blocks * vfs.f_frsize;
	device->mig = fake_device_mig(device);
	make_uuid(number, device->mig, &device->uuid);
	snprintf(path, sizeof path, "%s/gpu%d.use", fake.folder, number);
	if (mkdir(path, 01777) == 0)
		(void)!chmod(path, 01777);
	return true;
}

/* Which of the GPUs the program may see, in its order. Stops, as the driver does, at the first
 * entry that names none. */
static int visible(int order[FAKE_DEVICES])
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	int n = 0;

	if (!list) {
		for (; n < FAKE_DEVICES; n++)
			order[n] = n;
		return n;
	}
	while (*list && n < FAKE_DEVICES) {
		size_t length = strcspn(list, ",");
		int found = -1;
		bool mig = strncmp(list, "MIG-", 4) == 0;
		if (mig || strncmp(list, "GPU-", 4) == 0) {
			for (int i = 0; i < FAKE_DEVICES && found < 0; i++) {
				gm_cu_uuid uuid;
				char text[41];
				make_uuid(i, mig, &uuid);
				uuid_text(&uuid, mig, text);
				if (mig && !fake_device_mig(&(struct fake_device){.number = i}))
					continue;
				if (length <= 40 && strncmp(text, list, length) == 0)
					found = i;
			}
		} else {
			char *end;
			long i = strtol(list, &end, 10);
			if (end == list + length && length && i >= 0 && i < FAKE_DEVICES)
				found = (int)i;
		}
		if (found < 0)
			break;
		order[n++] = found;
		list += length + (list[length] == ',');
	}
	return n;
}

gm_cu_result fake_find_devices(void)
{
	const char *folder = getenv("GPUMEM_FAKE_DIR");
	int order[FAKE_DEVICES];
	int n;

	if (!folder)
		return GM_CUDA_ERROR_NO_DEVICE;
	snprintf(fake.folder, sizeof fake.folder, "%s", folder);
	n = visible(order);
	for (int i = 0; i < n; i++) {
		struct fake_device *device = &fake.device[fake.devices];
		if (!open_device(order[i], device))
			break;
		/* Of MIG instances a process sees one, whatever is visible. */
		bool second = false;
		for (int j = 0; j < fake.devices; j++)
			second = second || (device->mig && fake.device[j].mig);
		if (second) {
			close(device->dir);
			continue;
		}
		size_t bytes = fake_bytes_env("GPUMEM_FAKE_INIT_BYTES", (size_t)1 << 20);
		device->init_fd = hold(device, bytes);
		if (device->init_fd < 0)
			return GM_CUDA_ERROR_OUT_OF_MEMORY;
		fake.devices++;
		fake_account(device, (int64_t)bytes);
	}
	return fake.devices ? GM_CUDA_SUCCESS : GM_CUDA_ERROR_NO_DEVICE;
}

struct fake_device *fake_get_device(gm_cu_device device)
{
	return device >= 0 && device < fake.devices ? &fake.device[device] : NULL;
}

size_t fake_free_bytes(const struct fake_device *device)
{
	struct statvfs vfs;

	return fstatvfs(device->dir, &vfs) < 0 ? 0 : (size_t)vfs.f_bavail * vfs.f_frsize;
}

bool fake_lock(int fd, bool shared)
{
	struct flock lock = {.l_type = shared ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET};

	return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

/* The file gets its name when it is locked, or NVML would take it for one that a dead process left. */
static int use_open(const struct fake_device *device)
{
	static __thread char path[4300], hidden[4300];
	int fd;

	snprintf(
		path, sizeof path, "%s/gpu%d.use/%ld", fake.folder, device->number, (long)getpid());
	snprintf(hidden, sizeof hidden, "%s/gpu%d.use/.%ld", fake.folder, device->number,
		(long)getpid());
	unlink(hidden);
	fd = open(hidden, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return 0;
	if (!fake_lock(fd, false) || rename(hidden, path) < 0) {
		unlink(hidden);
		close(fd);
		return 0;
	}
	return fd;
}

static void account(struct fake_device *device, int64_t bytes, int64_t contexts)
{
	struct fake_use use = {0};

	if (!device->use_fd)
		device->use_fd = use_open(device);
	if (!device->use_fd)
		return;
	if (pread(device->use_fd, &use, sizeof use, 0) != sizeof use)
		use = (struct fake_use){0};
	use.bytes += bytes;
	use.contexts += contexts;
	(void)!pwrite(device->use_fd, &use, sizeof use, 0);
}

static off_t import_place(size_t place)
{
	return (off_t)(sizeof(struct fake_use) + (place - 1) * sizeof(struct fake_import));
}

size_t fake_account_import(struct fake_device *device, const struct fake_import *import)
{
	size_t place;

	account(device, 0, 0);
	if (!device->use_fd)
		return 0;
	place = device->n_free_imports ? device->free_imports[--device->n_free_imports]
				       : ++device->imports;
	(void)!pwrite(device->use_fd, import, sizeof *import, import_place(place));
	return place;
}

void fake_account_import_end(struct fake_device *device, size_t place)
{
	const struct fake_import none = {0};
	size_t *larger;

	if (!place)
		return;
	(void)!pwrite(device->use_fd, &none, sizeof none, import_place(place));
	larger = realloc(device->free_imports, (device->n_free_imports + 1) * sizeof *larger);
	if (!larger)
		return; /* never used again, then */
	device->free_imports = larger;
	larger[device->n_free_imports++] = place;
}

void fake_account(struct fake_device *device, int64_t bytes)
{
	account(device, bytes, 0);
}

void fake_account_context(struct fake_device *device, bool made)
{
	account(device, 0, made ? 1 : -1);
}

/* ---- the driver's functions */

static void child(void)
{
	if (fake.initialised)
		__atomic_store_n(&fake.forked, true, __ATOMIC_RELEASE);
}

FAKE_API gm_cu_result cuInit(unsigned int flags);
FAKE_API gm_cu_result cuInit(unsigned int flags)
{
	gm_cu_result result = fake_enter("cuInit");

	if (result)
		return result;
	if (flags)
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.lock);
	if (!fake.initialised) {
		result = fake_find_devices();
		if (!result) {
			fake.initialised = true;
			pthread_atfork(NULL, NULL, child);
		}
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

#define DEVICE(variable, number) \
	struct fake_device *variable = fake_get_device(number); \
	if (!variable) \
	return GM_CUDA_ERROR_INVALID_DEVICE

FAKE_API gm_cu_result cuDriverGetVersion(int *version);
FAKE_API gm_cu_result cuDriverGetVersion(int *version)
{
	if (!version)
		return GM_CUDA_ERROR_INVALID_VALUE;
	*version = (int)fake_bytes_env("GPUMEM_FAKE_VERSION", 13000);
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuDeviceGetCount(int *count);
FAKE_API gm_cu_result cuDeviceGetCount(int *count)
{
	FAKE_ENTER("cuDeviceGetCount");
	if (!count)
		return GM_CUDA_ERROR_INVALID_VALUE;
	*count = fake.devices;
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuDeviceGet(gm_cu_device *device, int ordinal);
FAKE_API gm_cu_result cuDeviceGet(gm_cu_device *device, int ordinal)
{
	FAKE_ENTER("cuDeviceGet");
	if (!device)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if (!fake_get_device(ordinal))
		return GM_CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuDeviceGetName(char *name, int room, gm_cu_device number);
FAKE_API gm_cu_result cuDeviceGetName(char *name, int room, gm_cu_device number)
{
	FAKE_ENTER("cuDeviceGetName");
	DEVICE(device, number);
	if (!name || room <= 0)
		return GM_CUDA_ERROR_INVALID_VALUE;
	snprintf(name, (size_t)room, "Fake GPU %d", device->number);
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuDeviceGetUuid_v2(gm_cu_uuid *uuid, gm_cu_device number);
FAKE_API gm_cu_result cuDeviceGetUuid_v2(gm_cu_uuid *uuid, gm_cu_device number)
{
	FAKE_ENTER("cuDeviceGetUuid");
	DEVICE(device, number);
	if (!uuid)
		return GM_CUDA_ERROR_INVALID_VALUE;
	*uuid = device->uuid;
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuDeviceGetPCIBusId(char *id, int room, gm_cu_device number);
FAKE_API gm_cu_result cuDeviceGetPCIBusId(char *id, int room, gm_cu_device number)
{
	FAKE_ENTER("cuDeviceGetPCIBusId");
	DEVICE(device, number);
	if (!id || room < 13)
		return GM_CUDA_ERROR_INVALID_VALUE;
	snprintf(id, (size_t)room, "0000:%02X:00.0", 0xA0 + device->number);
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuDeviceTotalMem_v2(size_t *bytes, gm_cu_device number);
FAKE_API gm_cu_result cuDeviceTotalMem_v2(size_t *bytes, gm_cu_device number)
{
	FAKE_ENTER("cuDeviceTotalMem");
	DEVICE(device, number);
	if (!bytes)
		return GM_CUDA_ERROR_INVALID_VALUE;
	*bytes = device->total;
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuDeviceGetAttribute(
	int *value, gm_cu_attribute attribute, gm_cu_device number);
FAKE_API gm_cu_result cuDeviceGetAttribute(
	int *value, gm_cu_attribute attribute, gm_cu_device number)
{
	FAKE_ENTER("cuDeviceGetAttribute");
	DEVICE(device, number);
	(void)device;
	if (!value)
		return GM_CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case GM_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*value = 9;
		break;
	case GM_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
	case GM_CU_DEVICE_ATTRIBUTE_INTEGRATED:
	case GM_CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
		*value = 0;
		break;
	case GM_CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
		*value = fake_device_fabric(device);
		break;
	case GM_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		*value = 132;
		break;
	case GM_CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
		*value = 1;
		break;
	case GM_CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
		*value = !fake_without("vmm");
		break;
	case GM_CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
		*value = !fake_without("vmm") && !fake_without("fd");
		break;
	case GM_CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
		if (fake_bytes_env("GPUMEM_FAKE_VERSION", 13000) < 12000)
			return GM_CUDA_ERROR_INVALID_VALUE; /* not known to it yet */
		*value = !fake_without("ipc");
		break;
	case GM_CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
		*value = !fake_without("managed");
		break;
	case GM_CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
		*value = !fake_without("pageable");
		break;
	case GM_CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
		*value = !fake_without("concurrent");
		break;
	case GM_CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
		*value = !fake_without("memops");
		break;
	case GM_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
		*value = !fake_without("rdma");
		break;
	case GM_CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
		*value = !fake_without("hostnuma");
		break;
	default:
		return GM_CUDA_ERROR_INVALID_VALUE;
	}
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuDeviceCanAccessPeer(int *can, gm_cu_device a, gm_cu_device b);
FAKE_API gm_cu_result cuDeviceCanAccessPeer(int *can, gm_cu_device a, gm_cu_device b)
{
	FAKE_ENTER("cuDeviceCanAccessPeer");
	if (!can)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if (!fake_get_device(a) || !fake_get_device(b))
		return GM_CUDA_ERROR_INVALID_DEVICE;
	*can = a != b && !fake_without("p2p");
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuGetErrorName(gm_cu_result error, const char **name);
FAKE_API gm_cu_result cuGetErrorName(gm_cu_result error, const char **name)
{
	static const struct {
		gm_cu_result value;
		const char *name;
	} names[] = {
#define NAME(value_name, value) {value, #value_name},
		GM_CU_VALUES(NAME)
#undef NAME
	};

	if (!name)
		return GM_CUDA_ERROR_INVALID_VALUE;
	*name = NULL;
	/* The table lists results first: the first match is one, or the number is none. */
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i].value == error && strncmp(names[i].name, "CUDA_", 5) == 0) {
			*name = names[i].name;
			return GM_CUDA_SUCCESS;
		}
	return GM_CUDA_ERROR_INVALID_VALUE;
}

FAKE_API gm_cu_result cuGetErrorString(gm_cu_result error, const char **text);
FAKE_API gm_cu_result cuGetErrorString(gm_cu_result error, const char **text)
{
	return cuGetErrorName(error, text);
}
