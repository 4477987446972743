/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MAP_CUDA_BACKEND_H
#define GM_CLIENT_MAP_CUDA_BACKEND_H

#include <stdint.h>

#include "client/map/cuda_context.h"
#include "common/lock.h"
#include "common/cuda/cuda.h"

/*
 * A GPU of this process, for the files that run driver calls on it: map_cuda.c makes it, and cuda_ipc.c and
 * cuda_stream.c use it, too. Each enters a context, calls the driver, leaves, and returns the outcome.
 */

#define GM_CUDA_PEERS_MAX GM_BOUND_DEVICES

struct gm_map_cuda {
	const struct gm_cuda *cuda;
	gm_cu_device device;
	struct gm_cuda_contexts *contexts;
	struct gm_lock lock; /* protects the rest */
	gm_cu_device peers[GM_CUDA_PEERS_MAX];
	size_t n_peers;
};

gm_cu_result gm_cuda_backend_enter(
	struct gm_map_cuda *backend, struct gm_cuda_entered *ret_entered);
void gm_cuda_backend_leave(struct gm_map_cuda *backend, struct gm_cuda_entered *entered);

/* The errno for a result of the driver. Notes an error for gm_cuda_backend_error(). */
int gm_cuda_backend_outcome(struct gm_map_cuda *backend, gm_cu_result result);
/* See gm_map_cuda_error(). */
const char *gm_cuda_backend_error(void);
/* Forgets the driver's last error. For a call that may fail before it asks the driver. */
void gm_cuda_backend_no_error(void);

static inline gm_cu_ptr gm_cuda_backend_at(void *addr)
{
	return (gm_cu_ptr)(uintptr_t)addr;
}

#endif
