/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MAP_CUDA_IPC_H
#define GM_CLIENT_MAP_CUDA_IPC_H

#include "client/map/map.h"

/* Chunks of the ipc transport: the operations attach and detach of struct gm_map_ops, for a GPU. ctx is a
 * struct gm_map_cuda. */

int gm_cuda_ipc_attach(void *ctx, const uint8_t handle[GM_IPC_HANDLE_BYTES], void **ret_addr);
int gm_cuda_ipc_detach(void *ctx, void *addr);

#endif
