/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_BACKEND_CUDA_H
#define GM_DAEMON_BACKEND_CUDA_H

#include "daemon/backend/backend.h"

/*
 * NVIDIA GPUs, through the driver API. The devices are those that the driver shows, in its order;
 * it respects CUDA_VISIBLE_DEVICES.
 *
 * fd transport: a chunk is created and exported once. From then on the fd alone is the chunk, and
 * closing the last copy of it frees the memory. No context is ever made for it.
 *
 * ipc transport: a chunk is a plain allocation in the device's primary context, which exists while
 * there is any such chunk. The old IPC handles of another trust domain never open it
 * (ipc_blocks.h).
 *
 * Pinned host memory needs no context either, and is of the same kind for all clients
 * (backend_pinned.h).
 *
 * open() fails with -ENODEV if there is no driver or no device, and why says what is missing.
 */
extern const struct gm_backend_ops gm_backend_cuda;

#endif
