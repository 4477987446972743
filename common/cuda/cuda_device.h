/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CUDA_CUDA_DEVICE_H
#define GM_CUDA_CUDA_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cuda/cuda.h"
#include "common/bounds.h"
#include "common/types.h"

/* What the driver says about a GPU, and what the GPU can do for the broker. Needs no context. */

struct gm_cuda_device {
	gm_cu_device number; /* the driver's own number of it */
	char name[64];
	uint8_t uuid[GM_UUID_BYTES];
	char pci[32];
	uint64_t total;
	bool fd;        /* memory can be handed over as a file descriptor */
	bool ipc;       /* memory can be handed over as a CUDA IPC handle */
	bool rdma;      /* other devices on the bus may read chunks */
	bool host_numa; /* pinned host memory can be handed over as a file descriptor */
	bool fabric;    /* memory can be handed over to other machines as a fabric handle */
	enum gm_backend_visibility visibility;
	char fd_why[128];  /* why fd is false, or "" */
	char ipc_why[128]; /* why ipc is false, or "" */
};

#define GM_CUDA_UUID_TEXT 41

/*
 * Reads a device. On the Windows Subsystem for Linux (wsl) the function tries out what the driver
 * claims, because those claims have been wrong there: it allocates and frees a chunk of 2 MiB.
 * Returns -ENODEV if the device cannot be read; why then has the driver's error.
 */
int gm_cuda_device_read(const struct gm_cuda *cuda, int ordinal, bool wsl,
	struct gm_cuda_device *ret, char why[GM_CUDA_WHY_BYTES]);
/* As NVML and CUDA_VISIBLE_DEVICES write it: "GPU-0123…", or "MIG-0123…" for a MIG instance. */
void gm_cuda_uuid_text(const uint8_t uuid[GM_UUID_BYTES], bool mig, char text[GM_CUDA_UUID_TEXT]);
/*
 * Finds the same device in NVML. If MIG is on, the driver reports the UUID of the instance that
 * this process sees; *ret_mig is then true, and NVML's handle tells the memory and the processes of
 * that instance alone. Returns -ENOENT if NVML does not know the device.
 */
int gm_cuda_device_in_nvml(const struct gm_nvml *nvml, const uint8_t uuid[GM_UUID_BYTES],
	gm_nvml_device *ret_device, bool *ret_mig);

#endif
