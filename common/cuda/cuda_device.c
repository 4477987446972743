/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a GPU is and what it can do. Only this file reads a GPU's attributes: for the daemon, which
 * acts on them, and for gpumemctl doctor, which shows them.
 *
 * On WSL2 the driver's answers cannot be trusted. Known cases, and where they are reported:
 *   - The driver offers gpuDirectRDMACapable, but cuMemSetAccess() fails with CUDA_ERROR_UNKNOWN on
 *     memory created with that flag. Without the flag it works (pytorch/pytorch 192330; fixed in
 *     driver 615).
 *   - Without the flag, memory for POSIX file descriptors works (NVIDIA/cuda-python 1127, 1175,
 *     1179). Memory pools for them are refused, although the driver offers them
 *     (NVIDIA/cuda-python 1045).
 *   - The driver offers CUDA IPC since version 510, but opening a handle fails with "invalid
 *     resource handle" (sgl-project/sglang 36212).
 *
 * So on WSL2 a GPU has no RDMA. It has fd if a chunk can really be created and exported. It has ipc
 * only if it does not have fd: only a client that tries can know whether an ipc handle opens.
 */
#include "common/cuda/cuda_device.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool cuda_device_can(
	const struct gm_cuda *cuda, gm_cu_device device, gm_cu_attribute attribute)
{
	int value = 0;

	return cuda->cuDeviceGetAttribute(&value, attribute, device) == GM_CUDA_SUCCESS && value;
}

/* Creates a chunk and exports it, as the daemon will. */
static bool cuda_device_try_fd(const struct gm_cuda *cuda, struct gm_cuda_device *device)
{
	const char *call = "cuMemCreate";
	gm_cu_prop prop = {0};
	gm_cu_mem mem;
	gm_cu_result result;
	int fd = -1;

	prop.type = GM_CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.requested_handle_types = GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	prop.location.type = GM_CU_MEM_LOCATION_TYPE_DEVICE;
	prop.location.id = device->number;
	result = cuda->cuMemCreate(&mem, GM_CHUNK_MIN, &prop, 0);
	if (!result) {
		call = "cuMemExportToShareableHandle";
		result = cuda->cuMemExportToShareableHandle(
			&fd, mem, GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
		if (!result)
			close(fd);
		cuda->cuMemRelease(mem);
	}

	if (result)
		snprintf(device->fd_why, sizeof device->fd_why, "%s: %s", call,
			gm_cuda_error(cuda, result));
	return !result;
}

static bool cuda_device_has_fd(const struct gm_cuda *cuda, struct gm_cuda_device *device, bool wsl)
{
	if (!cuda->cuMemCreate || !cuda->cuMemExportToShareableHandle ||
		!cuda->cuMemImportFromShareableHandle) {
		snprintf(device->fd_why, sizeof device->fd_why, "the driver is older than 450");
		return false;
	}

	if (!cuda_device_can(cuda, device->number,
		    GM_CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) ||
		!cuda_device_can(cuda, device->number,
			GM_CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
		snprintf(device->fd_why, sizeof device->fd_why, "the driver says that it cannot");
		return false;
	}
	return !wsl || cuda_device_try_fd(cuda, device);
}

static bool cuda_device_has_ipc(const struct gm_cuda *cuda, struct gm_cuda_device *device, bool wsl)
{
	const char *why = NULL;
	int value = 1;

	if (cuda->cuDeviceGetAttribute(
		    &value, GM_CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, device->number))
		value = 1; /* CUDA 11 has no such attribute: the functions decide */
	if (!cuda->cuIpcGetMemHandle || !cuda->cuIpcOpenMemHandle || !cuda->cuIpcCloseMemHandle)
		why = "the driver has no CUDA IPC";
	else if (cuda_device_can(cuda, device->number, GM_CU_DEVICE_ATTRIBUTE_INTEGRATED))
		why = "there is no CUDA IPC for memory that a GPU shares with the processor";
	else if (!value)
		why = "the driver says that it cannot";
	else if (wsl && device->fd)
		why = "on WSL2 the handles do not open";
	snprintf(device->ipc_why, sizeof device->ipc_why, "%s", why ? why : "");
	return !why;
}

/*
 * A GPU that reaches pageable memory (HMM, or one coherent memory), or managed memory while the CPU does,
 * shares it at any time. Whether the GPU is integrated does not matter: an integrated one without
 * concurrent access moves pages no less. On WSL2, memory cannot be used by both at a time, whatever the driver says.
 */
static enum gm_backend_visibility cuda_device_visibility(
	const struct gm_cuda *cuda, gm_cu_device number, bool wsl)
{
	bool pageable =
		cuda_device_can(cuda, number, GM_CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS);
	bool managed = cuda_device_can(cuda, number, GM_CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
	bool concurrent =
		cuda_device_can(cuda, number, GM_CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);

	if (!wsl && (pageable || (managed && concurrent)))
		return GM_BACKEND_VISIBILITY_SYSTEM;
	return managed ? GM_BACKEND_VISIBILITY_DEVICE : GM_BACKEND_VISIBILITY_EXPLICIT;
}

int gm_cuda_device_read(const struct gm_cuda *cuda, int ordinal, bool wsl,
	struct gm_cuda_device *ret, char why[GM_CUDA_WHY_BYTES])
{
	struct gm_cuda_device device = {0};
	gm_cu_uuid uuid;
	size_t total = 0;
	gm_cu_result result = cuda->cuDeviceGet(&device.number, ordinal);

	if (!result)
		result = cuda->cuDeviceGetName(device.name, sizeof device.name, device.number);
	if (!result)
		result = cuda->cuDeviceGetUuid(&uuid, device.number);
	if (!result)
		result = cuda->cuDeviceTotalMem(&total, device.number);
	if (!result)
		result = cuda->cuDeviceGetPCIBusId(device.pci, sizeof device.pci, device.number);
	if (result) {
		snprintf(why, GM_CUDA_WHY_BYTES, "device %d cannot be read: %s", ordinal,
			gm_cuda_error(cuda, result));
		return -ENODEV;
	}

	memcpy(device.uuid, uuid.bytes, GM_UUID_BYTES);
	device.total = total;
	device.fd = cuda_device_has_fd(cuda, &device, wsl);
	device.ipc = cuda_device_has_ipc(cuda, &device, wsl);
	device.rdma =
		!wsl && cuda_device_can(cuda, device.number,
				GM_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
	device.host_numa = cuda_device_can(cuda, device.number,
		GM_CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
	device.fabric = cuda_device_can(
		cuda, device.number, GM_CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
	device.visibility = cuda_device_visibility(cuda, device.number, wsl);
	*ret = device;
	return 0;
}

void gm_cuda_uuid_text(const uint8_t uuid[GM_UUID_BYTES], bool mig, char text[GM_CUDA_UUID_TEXT])
{
	char *at = text + sprintf(text, mig ? "MIG-" : "GPU-");

	for (int i = 0; i < GM_UUID_BYTES; i++)
		at += sprintf(
			at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

int gm_cuda_device_in_nvml(const struct gm_nvml *nvml, const uint8_t uuid[GM_UUID_BYTES],
	gm_nvml_device *ret_device, bool *ret_mig)
{
	char text[GM_CUDA_UUID_TEXT];

	for (int mig = 0; mig < 2; mig++) {
		gm_cuda_uuid_text(uuid, mig, text);
		if (nvml->nvmlDeviceGetHandleByUUID(text, ret_device) == GM_NVML_SUCCESS) {
			*ret_mig = mig;
			return 0;
		}
	}
	return -ENOENT;
}
