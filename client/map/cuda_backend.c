/* SPDX-License-Identifier: Apache-2.0 */
#include "client/map/cuda_backend.h"

#include <errno.h>

static __thread const char *last_error = "";

const char *gm_cuda_backend_error(void)
{
	return last_error;
}

void gm_cuda_backend_no_error(void)
{
	last_error = "";
}

int gm_cuda_backend_outcome(struct gm_map_cuda *backend, gm_cu_result result)
{
	/* A call that succeeds while a failure is being undone must not hide the failure. */
	if (result)
		last_error = gm_cuda_error(backend->cuda, result);
	/* -ENOMEM is for the host's memory only. */
	return result == GM_CUDA_ERROR_OUT_OF_MEMORY ? -ENOBUFS : gm_cuda_errno(result);
}

gm_cu_result gm_cuda_backend_enter(struct gm_map_cuda *backend, struct gm_cuda_entered *ret_entered)
{
	return gm_cuda_contexts_enter(backend->contexts, ret_entered);
}

void gm_cuda_backend_leave(struct gm_map_cuda *backend, struct gm_cuda_entered *entered)
{
	gm_cuda_contexts_leave(backend->contexts, entered);
}
