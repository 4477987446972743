/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_BACKEND_CUDA_H
#define GM_DAEMON_BACKEND_CUDA_H

#include "daemon/backend/backend.h"

/*
 * NVIDIA GPUs, through the driver API. Devices are those the driver shows (CUDA_VISIBLE_DEVICES is
 * respected), in its order.
 *
 * fd transport: a chunk is created and exported once; from then on the fd alone is the chunk, and
 * closing the last copy of it frees the memory. No context is ever made for it. ipc transport: a
 * chunk is a plain allocation in the device's primary context, which is made for the first one and
 * kept while there is any. It never lies where another trust domain had one, whose handles would
 * open it (ipc_blocks.h).
 *
 * Pinned host memory is made without a context, too, and is of one kind for all clients:
 * daemon/backend/backend_pinned.h.
 *
 * open() fails with -ENODEV where there is no driver or no device; why says what is missing.
 */
extern const struct gm_backend_ops gm_backend_cuda;

#endif
