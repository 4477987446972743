/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_CUDA_MANAGED_H
#define GM_CLIENT_CUDA_MANAGED_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cuda/cuda.h"

/* Managed memory of a GPU, for map_cuda.c. The caller has a context of the GPU current, and the memory belongs to that
 * context: when the program destroys the context, the driver frees the memory. gm_cuda_managed_free() notices that by
 * the id of the context, and then leaves the address alone, because other memory may lie there. An id of 0 means that
 * this driver has no ids. */
gm_cu_result gm_cuda_managed_make(const struct gm_cuda *cuda, uint64_t bytes, bool attach_host,
	void **ret_addr, uint64_t *ret_id);
gm_cu_result gm_cuda_managed_free(const struct gm_cuda *cuda, void *addr, uint64_t id);
gm_cu_result gm_cuda_managed_prefetch(const struct gm_cuda *cuda, void *addr, uint64_t bytes,
	gm_cu_device device, bool to_host, gm_cu_stream stream);
gm_cu_result gm_cuda_managed_advise(const struct gm_cuda *cuda, void *addr, uint64_t bytes,
	int advice, gm_cu_device device, bool host);

#endif
