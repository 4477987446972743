/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_CUDA_DEVICE_H
#define GM_COMMON_CUDA_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cuda.h"
#include "common/limits.h"

/* A GPU as the driver describes it, and what it can do for the broker. Needs no context. */

struct gm_cuda_device {
	gm_cu_device number; /* the driver's */
	char name[64];
	uint8_t uuid[GM_UUID_BYTES];
	char pci[32];
	uint64_t total;
	bool fd;           /* memory can be handed over as a file descriptor */
	bool ipc;          /* by a CUDA IPC handle */
	bool rdma;         /* chunks may be read by other devices on the bus */
	bool host_numa;    /* pinned host memory can be handed over as a file descriptor */
	bool fabric;       /* by a fabric handle, to other machines */
	char fd_why[128];  /* why not fd; "" */
	char ipc_why[128]; /* likewise */
};

#define GM_CUDA_UUID_TEXT 41

/*
 * wsl: on the Windows Subsystem for Linux what the driver says of itself is tried out, since it has
 * been wrong there. Takes and frees a chunk of 2 MiB then, and nothing otherwise. 0; -ENODEV, and
 * why says what the driver said.
 */
int gm_cuda_device_read(const struct gm_cuda *cuda, int ordinal, bool wsl,
	struct gm_cuda_device *ret, char why[GM_CUDA_WHY_BYTES]);
/* As NVML and CUDA_VISIBLE_DEVICES have it: "GPU-0123…", of a MIG instance "MIG-0123…". */
void gm_cuda_uuid_text(const uint8_t uuid[GM_UUID_BYTES], bool mig, char text[GM_CUDA_UUID_TEXT]);
/*
 * The same device in NVML. Where MIG is on, the UUID that the driver tells is that of the instance
 * that this process sees (ret_mig), and NVML's handle is the instance's: its memory, its processes.
 * -ENOENT: NVML does not know it.
 */
int gm_cuda_device_in_nvml(const struct gm_nvml *nvml, const uint8_t uuid[GM_UUID_BYTES],
	gm_nvml_device *ret_device, bool *ret_mig);

#endif
