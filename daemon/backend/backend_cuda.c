/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Physical memory of NVIDIA GPUs. See backend.h for what it promises. Only this file and those
 * that it includes know CUDA.
 *
 * The calls for a device come from that device's thread, one at a time, so the state of a device
 * needs no lock. The devices share the numbers of ipc blocks, which have a lock (ipc_blocks.h). It
 * must never make a context for the fd transport: one costs some 500 MiB of the device.
 */
#include "daemon/backend/backend.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/arith.h"
#include "common/clock.h"
#include "common/cuda/cuda.h"
#include "common/cuda/cuda_device.h"
#include "common/log.h"
#include "common/system/memfd.h"
#include "common/system/platform.h"
#include "common/text/uid_name.h"
#include "common/text/units.h"
#include "daemon/backend/backend_nvml.h"
#include "daemon/backend/backend_pinned.h"
#include "daemon/backend/backend_vmm.h"
#include "daemon/backend/ipc_blocks.h"

struct device {
	gm_cu_device cu;
	gm_nvml_device nvml; /* NULL: no figures from NVML */
	struct gm_backend_device info;
	bool rdma, host_numa;
	uint64_t ipc_blocks;       /* how many need the context */
	gm_cu_ctx context;         /* NULL: none */
	gm_nvml_return nvml_error; /* the last one that was logged */
	gm_cu_result said;   /* the last driver error that was logged, until a creation works */
	const char *said_of; /* the call that failed; names of calls are literals */
	bool crowded; /* that old handles are in the way was logged, until a creation works */
	pthread_mutex_t trouble_lock;
	uint64_t trouble_ns;              /* when something went wrong last; 0: never */
	char trouble[GM_BACKEND_TROUBLE]; /* what that was */
	uint64_t used;                    /* of pinned host memory */
};

struct backend {
	const struct gm_cuda *cuda;
	const struct gm_nvml *nvml; /* NULL: none */
	struct gm_ipc_blocks *ipc_blocks;
	uint32_t n;
	struct gm_backend_pinned pinned;
	struct device devices[GM_BOUND_DEVICES];
};

static void cuda_note_trouble(struct device *device, const char *call, const char *name)
{
	pthread_mutex_lock(&device->trouble_lock);
	snprintf(device->trouble, sizeof device->trouble, "%s: %s", call, name);
	device->trouble_ns = gm_clock_ns();
	pthread_mutex_unlock(&device->trouble_lock);
}

/* Logs a failed driver call once, however often it fails, and returns a negative errno. */
static int cuda_failed(
	struct backend *backend, uint32_t device, const char *call, gm_cu_result result)
{
	struct device *d = &backend->devices[device];
	char number[32];
	const char *fields[] = {number, NULL};

	/* A full device is not a fault: the ledger expects that. */
	if (result != GM_CUDA_ERROR_OUT_OF_MEMORY)
		cuda_note_trouble(d, call, gm_cuda_error(backend->cuda, result));
	if (d->said == result && d->said_of == call)
		return gm_cuda_errno(result);

	d->said = result;
	d->said_of = call;
	snprintf(number, sizeof number, "GPUMEM_DEVICE=%u", device);
	gm_log_fields(result == GM_CUDA_ERROR_OUT_OF_MEMORY ? GM_LOG_DEBUG : GM_LOG_WARNING, fields,
		"device %u: %s: %s", device, call, gm_cuda_error(backend->cuda, result));
	return gm_cuda_errno(result);
}

/* ---- devices */

/* A device also works without an NVML handle. Its figures then come from the ledger alone. */
static void cuda_find_in_nvml(struct backend *backend, struct device *device)
{
	char uuid[GM_CUDA_UUID_TEXT];

	if (!backend->nvml)
		return;

	gm_cuda_uuid_text(device->info.uuid, false, uuid);
	if (gm_cuda_device_in_nvml(
		    backend->nvml, device->info.uuid, &device->nvml, &device->info.mig) < 0) {
		device->nvml = NULL;
		gm_log(GM_LOG_WARNING,
			"NVML does not know %s (%s): the daemon cannot see memory that other programs use on it",
			device->info.name, uuid);
		return;
	}

	gm_cuda_uuid_text(device->info.uuid, device->info.mig, uuid);
	if (device->info.mig)
		gm_log(GM_LOG_NOTICE,
			"%s (%s) is a MIG instance: a process sees only one, and this daemon serves this one; for each other instance, run a daemon with its own socket and with CUDA_VISIBLE_DEVICES set to the instance, see GPUS in gpumemd(8)",
			device->info.name, uuid);
}

/* Adds a device. Returns 1 if it is known already, under another number of the driver's. */
static int cuda_open_device(struct backend *backend, int ordinal, bool wsl, char why[256])
{
	struct device *device = &backend->devices[backend->n];
	struct gm_cuda_device found;
	int r = gm_cuda_device_read(backend->cuda, ordinal, wsl, &found, why);

	if (r < 0)
		return r;

	for (uint32_t i = 0; i < backend->n; i++)
		if (memcmp(backend->devices[i].info.uuid, found.uuid, GM_UUID_BYTES) == 0)
			return 1;
	pthread_mutex_init(&device->trouble_lock, NULL);
	device->cu = found.number;
	device->rdma = found.rdma;
	device->host_numa = found.host_numa;
	_Static_assert(sizeof found.name == sizeof device->info.name, "one size for names");
	memcpy(device->info.name, found.name, sizeof found.name);
	memcpy(device->info.uuid, found.uuid, GM_UUID_BYTES);
	_Static_assert(sizeof found.pci == sizeof device->info.pci, "one size for addresses");
	memcpy(device->info.pci, found.pci, sizeof found.pci);
	device->info.total = found.total;
	device->info.visibility = found.visibility;
	device->info.transport_fd = found.fd;
	device->info.transport_ipc = found.ipc;
	_Static_assert(sizeof found.fd_why == GM_BACKEND_WHY, "one size for reasons");
	memcpy(device->info.fd_why, found.fd_why, sizeof found.fd_why);
	memcpy(device->info.ipc_why, found.ipc_why, sizeof found.ipc_why);
	if (!found.fd)
		gm_log(GM_LOG_NOTICE, "%s: no fd transport: %s", found.name, found.fd_why);
	cuda_find_in_nvml(backend, device);
	device->info.measured = device->nvml != NULL;
	backend->n++;
	return 0;
}

/* ---- fd transport */

static int cuda_create_fd(
	struct backend *backend, uint32_t number, uint64_t bytes, struct gm_backend_handle *ret)
{
	struct device *device = &backend->devices[number];
	gm_cu_prop prop = {0};
	gm_cu_result result;
	const char *call;
	int fd;

	prop.type = GM_CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.requested_handle_types = GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	prop.location.type = GM_CU_MEM_LOCATION_TYPE_DEVICE;
	prop.location.id = device->cu;
	prop.alloc_flags.gpu_direct_rdma_capable = device->rdma;
	result = gm_backend_vmm_create(backend->cuda, &prop, bytes, &fd, &call);
	if (result)
		return cuda_failed(backend, number, call, result);

	*ret = (struct gm_backend_handle){.fd = fd};
	return 0;
}

/* ---- pinned host memory */

static void cuda_open_pinned(struct backend *backend, const struct gm_backend_config *config)
{
	struct device *device = &backend->devices[backend->n];
	bool shared = true;

	if (!config->host_limit)
		return;
	if (backend->n == GM_BOUND_DEVICES) {
		gm_log(GM_LOG_WARNING,
			"no pinned host memory: %d GPUs leave no device number for it; hide one with CUDA_VISIBLE_DEVICES",
			GM_BOUND_DEVICES);
		return;
	}

	for (uint32_t i = 0; i < backend->n; i++)
		shared = shared && backend->devices[i].info.transport_fd &&
			 backend->devices[i].host_numa;
	gm_backend_pinned_init(&backend->pinned, backend->cuda, backend->devices[0].cu, shared,
		config->host_memory);
	snprintf(device->info.name, sizeof device->info.name, "%s", GM_BACKEND_PINNED_NAME);
	device->info.total = gm_backend_pinned_bound(&backend->pinned, config->host_limit);
	device->info.transport_fd = true;
	device->info.pinned = true;
	device->info.visibility = GM_BACKEND_VISIBILITY_SYSTEM;
	snprintf(device->info.ipc_why, sizeof device->info.ipc_why,
		"host memory has no CUDA IPC handles");
	pthread_mutex_init(&device->trouble_lock, NULL);
	device->info.mapping = backend->pinned.memfd ? "host" : NULL;
	device->info.reopened = backend->pinned.memfd;
	backend->n++;
}

/* A chunk: a new one, or the one that an fd is (-1: none). */
static int cuda_take_pinned(struct backend *backend, uint32_t number, int fd, uint64_t bytes,
	struct gm_backend_handle *ret)
{
	struct device *device = &backend->devices[number];
	gm_cu_result result;
	const char *call;
	int r;

	/* The limit may have been higher when a chunk that exists was made. */
	if (fd < 0 && bytes > gm_u64_minus(device->info.total, device->used))
		return -ENOMEM;
	if (fd < 0)
		r = gm_backend_pinned_create(&backend->pinned, bytes, &fd, &call, &result);
	else
		r = gm_backend_pinned_check(&backend->pinned, fd, bytes, &call, &result);
	if (r)
		return r < 0 ? r : cuda_failed(backend, number, call, result);

	device->used += bytes;
	*ret = (struct gm_backend_handle){.fd = fd};
	return 0;
}

/* ---- the backend as a whole */

static void cuda_close(void *state)
{
	struct backend *backend = state;

	gm_ipc_blocks_free(backend->ipc_blocks);
	free(backend);
}

static int cuda_open(const struct gm_backend_config *config, void **ret_backend,
	uint32_t *ret_devices, char why[256])
{
	char nvml_why[GM_CUDA_WHY_BYTES];
	bool wsl = gm_platform_is_wsl(gm_platform_root());
	struct backend *backend;
	int count = 0, r;

	_Static_assert(GM_CUDA_WHY_BYTES == 256, "one size for reasons");
	backend = calloc(1, sizeof *backend);
	if (!backend)
		return -ENOMEM;

	r = gm_cuda_load(&backend->cuda, why);
	if (r == 0)
		r = gm_ipc_blocks_new(backend->cuda, &backend->ipc_blocks);
	if (r < 0) {
		free(backend);
		return r;
	}
	if (gm_nvml_load(&backend->nvml, nvml_why) < 0) {
		backend->nvml = NULL;
		gm_log(GM_LOG_WARNING, "%s: the daemon cannot see memory that other programs use",
			nvml_why);
	}

	gm_cu_result result = backend->cuda->cuDeviceGetCount(&count);
	if (result) {
		snprintf(why, 256, "the NVIDIA driver does not answer: %s",
			gm_cuda_error(backend->cuda, result));
		cuda_close(backend);
		return -ENODEV;
	}
	if (count > GM_BOUND_DEVICES) {
		gm_log(GM_LOG_WARNING, "there are %d GPUs; only the first %d are served", count,
			GM_BOUND_DEVICES);
		count = GM_BOUND_DEVICES;
	}

	for (int i = 0; i < count; i++) {
		r = cuda_open_device(backend, i, wsl, why);
		/* The others are still worth serving. The PCI address in why says which one is
		 * missing. */
		if (r < 0)
			gm_log(GM_LOG_ERROR, "%s: this GPU is not served", why);
	}

	if (backend->n == 0) {
		cuda_close(backend);
		return -ENODEV;
	}

	cuda_open_pinned(backend, config);
	*ret_devices = backend->n;
	*ret_backend = backend;
	return 0;
}

static void cuda_device_info(void *state, uint32_t device, struct gm_backend_device *ret)
{
	struct backend *backend = state;

	*ret = backend->devices[device].info;
}

/* Logs a failure of NVML once, because NVML is asked every second. */
static int cuda_nvml_failed(struct device *device, const char *call, gm_nvml_return result)
{
	char room[GM_NVML_ERROR_TEXT];
	const char *text = gm_nvml_error(result, room);

	if (device->nvml_error != result)
		gm_log(GM_LOG_WARNING, "%s: %s: %s", device->info.name, call, text);
	device->nvml_error = result;
	cuda_note_trouble(device, call, text);
	return result == GM_NVML_ERROR_GPU_IS_LOST ? -ENODEV : -EIO;
}

static int cuda_memory_free(void *state, uint32_t number, uint64_t *ret_free)
{
	struct backend *backend = state;
	struct device *device = &backend->devices[number];
	gm_nvml_memory memory;
	gm_nvml_return result;

	/* Nobody else uses the limit, and the driver has no figure for it. */
	if (device->info.pinned) {
		*ret_free = gm_u64_minus(device->info.total, device->used);
		return 0;
	}
	if (!device->nvml)
		return -EOPNOTSUPP;

	result = backend->nvml->nvmlDeviceGetMemoryInfo(device->nvml, &memory);
	if (result != GM_NVML_SUCCESS)
		return cuda_nvml_failed(device, "nvmlDeviceGetMemoryInfo", result);

	*ret_free = memory.free;
	return 0;
}

static int cuda_processes(
	void *state, uint32_t number, struct gm_backend_process **ret_list, size_t *ret_n)
{
	struct backend *backend = state;
	struct device *device = &backend->devices[number];
	struct gm_backend_nvml_failure failure;
	int r;

	if (device->info.pinned) { /* nobody else uses the limit */
		*ret_list = NULL;
		*ret_n = 0;
		return 0;
	}
	if (!device->nvml)
		return -EOPNOTSUPP;
	r = gm_backend_nvml_processes(backend->nvml, device->nvml, ret_list, ret_n, &failure);
	return r == -EIO ? cuda_nvml_failed(device, failure.call, failure.result) : r;
}

static bool cuda_trouble(
	void *state, uint32_t number, char text[GM_BACKEND_TROUBLE], uint64_t *ret_ns)
{
	struct backend *backend = state;
	struct device *device = &backend->devices[number];
	bool any;

	pthread_mutex_lock(&device->trouble_lock);
	any = device->trouble_ns != 0;
	if (any) {
		memcpy(text, device->trouble, GM_BACKEND_TROUBLE);
		*ret_ns = device->trouble_ns;
	}
	pthread_mutex_unlock(&device->trouble_lock);
	return any;
}

/* ---- chunks of an earlier daemon */

static int cuda_adopt(
	void *state, uint32_t number, int fd, uint64_t bytes, struct gm_backend_handle *ret)
{
	struct backend *backend = state;
	gm_cu_result result;
	const char *call;

	if (backend->devices[number].info.pinned)
		return cuda_take_pinned(backend, number, fd, bytes, ret);

	/* The driver does not tell the size of a handle. A wrong size fails when a client maps
	 * it. */
	result = gm_backend_vmm_check(backend->cuda, fd, &call);
	if (result)
		return cuda_failed(backend, number, call, result);
	*ret = (struct gm_backend_handle){.fd = fd};
	return 0;
}

/* ---- ipc transport */

/* The context goes with the last block, so that it costs nothing while nobody uses the
 * transport. */
static void cuda_release_unused(struct backend *backend, struct device *device)
{
	if (device->ipc_blocks == 0 && device->context) {
		device->context = NULL;
		backend->cuda->cuDevicePrimaryCtxRelease(device->cu);
	}
}

/* Makes the device's context current on this thread. The first block creates the context. */
static gm_cu_result cuda_enter(struct backend *backend, struct device *device)
{
	gm_cu_result result = GM_CUDA_SUCCESS;

	if (!device->context)
		result = backend->cuda->cuDevicePrimaryCtxRetain(&device->context, device->cu);
	if (result) {
		device->context = NULL;
		return result;
	}
	result = backend->cuda->cuCtxPushCurrent(device->context);
	if (result)
		cuda_release_unused(backend, device);
	return result;
}

static void cuda_leave(struct backend *backend, uint32_t number)
{
	struct device *device = &backend->devices[number];

	if (device->ipc_blocks == 0)
		gm_ipc_blocks_leave(backend->ipc_blocks, number);
	backend->cuda->cuCtxPopCurrent(NULL);
	cuda_release_unused(backend, device);
}

/* Refuses a uid that has had too many ipc blocks. Logged once per uid. */
static int cuda_refuse_spent(struct backend *backend, uid_t uid)
{
	uint64_t numbers;
	char field[32], user[GM_UID_NAME_TEXT];
	const char *fields[] = {field, NULL};

	if (gm_ipc_blocks_had(backend->ipc_blocks, uid, &numbers))
		return -EDQUOT;
	snprintf(field, sizeof field, "GPUMEM_UID=%u", (unsigned)uid);
	gm_log_fields(GM_LOG_WARNING, fields,
		"%s has used %llu ipc blocks whose handles somebody may have kept, and gets no more; other users are not affected. Restarting gpumemd invalidates old handles; the fd transport leaves none",
		gm_uid_name_say(uid, user), (unsigned long long)numbers);
	return -EDQUOT;
}

/* Refuses an ipc block because old handles would open it. Logged once until a creation works. */
static int cuda_refuse_crowded(struct device *device, uint32_t number)
{
	char field[32];
	const char *fields[] = {field, NULL};

	if (device->crowded)
		return -EDQUOT;
	device->crowded = true;
	snprintf(field, sizeof field, "GPUMEM_DEVICE=%u", number);
	gm_log_fields(GM_LOG_WARNING, fields,
		"device %u: old handles of other users would open every ipc block that the driver makes, so none is given out; use the fd transport, or restart gpumemd, which invalidates old handles",
		number);
	return -EDQUOT;
}

static int cuda_create_ipc(struct backend *backend, uint32_t number, uint64_t bytes,
	const struct gm_backend_seen *seen, struct gm_backend_handle *ret)
{
	struct device *device = &backend->devices[number];
	const char *call = "cuDevicePrimaryCtxRetain";
	struct gm_ipc_block block;
	gm_cu_result result = cuda_enter(backend, device);
	int r;

	_Static_assert(sizeof block.handle == GM_IPC_HANDLE_BYTES, "an IPC handle is 64 bytes");
	if (result)
		return cuda_failed(backend, number, call, result);

	r = gm_ipc_blocks_take(backend->ipc_blocks, number, bytes, seen, &block, &call, &result);
	if (r == 0)
		device->ipc_blocks++;
	cuda_leave(backend, number);
	if (r == GM_IPC_BLOCKS_E_DRIVER)
		return cuda_failed(backend, number, call, result);
	if (r == GM_IPC_BLOCKS_E_TAKEN)
		return cuda_refuse_crowded(device, number);
	if (r)
		return r == GM_IPC_BLOCKS_E_SPENT ? cuda_refuse_spent(backend, seen->payer_uid) : r;

	device->crowded = false;
	*ret = (struct gm_backend_handle){.fd = -1, .native = block.ptr};
	memcpy(ret->ipc, &block.handle, sizeof block.handle);
	return 0;
}

static void cuda_destroy_ipc(struct backend *backend, uint32_t number,
	const struct gm_backend_seen *seen, struct gm_backend_handle *handle)
{
	struct device *device = &backend->devices[number];
	struct gm_ipc_block block = {.ptr = handle->native};
	gm_cu_result result = cuda_enter(backend, device);

	if (result) {
		cuda_failed(backend, number, "cuCtxPushCurrent", result);
		return;
	}
	memcpy(&block.handle, handle->ipc, sizeof block.handle);
	result = gm_ipc_blocks_release(backend->ipc_blocks, &block, seen);
	if (result)
		cuda_failed(backend, number, "cuMemFree", result);
	device->ipc_blocks--;
	cuda_leave(backend, number);
}

static int cuda_create(void *state, uint32_t device, enum gm_transport transport, uint64_t bytes,
	const struct gm_backend_seen *seen, struct gm_backend_handle *ret)
{
	struct backend *backend = state;
	struct device *d = &backend->devices[device];
	int r;

	if (transport == GM_TRANSPORT_IPC)
		r = cuda_create_ipc(backend, device, bytes, seen, ret);
	else if (d->info.pinned)
		r = cuda_take_pinned(backend, device, -1, bytes, ret);
	else
		r = cuda_create_fd(backend, device, bytes, ret);
	if (r == 0)
		d->said = GM_CUDA_SUCCESS;
	return r;
}

static void cuda_destroy(void *state, uint32_t number, enum gm_transport transport, uint64_t bytes,
	const struct gm_backend_seen *seen, struct gm_backend_handle *handle)
{
	struct backend *backend = state;
	struct device *device = &backend->devices[number];

	if (transport == GM_TRANSPORT_IPC) {
		cuda_destroy_ipc(state, number, seen, handle);
	} else if (handle->fd >= 0) {
		close(handle->fd);
		handle->fd = -1;
		if (device->info.pinned)
			device->used -= bytes;
	}
}

/* A device may write to what a client registers, so everybody gets an fd for writing. */
static int cuda_open_fd(
	void *state, const struct gm_backend_handle *handle, bool read_only, int *ret_fd)
{
	(void)state;
	(void)read_only;
	return gm_memfd_open(handle->fd, false, ret_fd);
}

/* As that of the host backend: a path alone (O_PATH) keeps the file, with its memory. */
static void cuda_discard(
	void *state, const struct gm_backend_handle *handle, uint64_t from, uint64_t bytes)
{
	(void)state;
	if (gm_memfd_in_use(handle->fd) == GM_MEMFD_FREE)
		(void)fallocate(handle->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
			(off_t)bytes);
}

static bool cuda_in_use(void *state, const struct gm_backend_handle *handle)
{
	(void)state;
	return gm_memfd_in_use(handle->fd) == GM_MEMFD_IN_USE;
}

const struct gm_backend_ops gm_backend_cuda = {
	.name = "cuda",
	.open = cuda_open,
	.close = cuda_close,
	.device_info = cuda_device_info,
	.memory_free = cuda_memory_free,
	.processes = cuda_processes,
	.trouble = cuda_trouble,
	.create = cuda_create,
	.adopt = cuda_adopt,
	.discard = cuda_discard,
	.destroy = cuda_destroy,
	.open_fd = cuda_open_fd,
	.in_use = cuda_in_use,
};
