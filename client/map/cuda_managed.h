/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_CUDA_MANAGED_H
#define GM_CLIENT_CUDA_MANAGED_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cuda/cuda.h"

/* Managed memory of a GPU, for map_cuda.c. The caller has a context of the GPU current, in which the
 * memory then is: when the program destroys that context, the driver frees it. gm_cuda_managed_free()
 * finds that out by the id, and leaves alone what has the address by then. 0: this driver has no ids. */
gm_cu_result gm_cuda_managed_make(const struct gm_cuda *cuda, uint64_t bytes, bool attach_host,
	void **ret_addr, uint64_t *ret_id);
gm_cu_result gm_cuda_managed_free(const struct gm_cuda *cuda, void *addr, uint64_t id);
gm_cu_result gm_cuda_managed_prefetch(const struct gm_cuda *cuda, void *addr, uint64_t bytes,
	gm_cu_device device, bool to_host, gm_cu_stream stream);
gm_cu_result gm_cuda_managed_advise(const struct gm_cuda *cuda, void *addr, uint64_t bytes,
	int advice, gm_cu_device device, bool host);

#endif
