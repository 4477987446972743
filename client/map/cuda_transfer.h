/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_CUDA_TRANSFER_H
#define GM_CLIENT_CUDA_TRANSFER_H

#include <stdint.h>

#include "client/map/cuda_context.h"

/* Copies between memory of a GPU and pinned host memory, on a stream of its own that waits for no other,
 * and waits for the copy. Returns a result of the driver. */
int gm_cuda_transfer(struct gm_cuda_contexts *contexts, void *to, const void *from, uint64_t bytes);

#endif
