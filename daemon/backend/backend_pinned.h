/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_BACKEND_PINNED_H
#define GM_DAEMON_BACKEND_PINNED_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cuda/cuda.h"
#include "daemon/backend/backend.h"

/*
 * Pinned host memory beside GPUs, for the cuda backend. A host has one of two kinds:
 *
 *   the driver's own   HOST_NUMA memory, which clients import
 *   memfds             filled at once, in huge pages if the kernel can, which clients register with
 *                      the driver
 *
 * Both lie on the NUMA node next to the first GPU. The caller counts how much is in use.
 */
struct gm_backend_pinned {
	const struct gm_cuda *cuda;
	int node;   /* of the host's memory; -1: any */
	bool memfd; /* the second kind */
};

/*
 * Chooses the kind, and logs it if the choice costs something. wanted is what the configuration
 * says. shared says whether every GPU can reach the driver's memory as an fd. Clients must be told
 * the kind before they get the first chunk, so the choice is tried with one small chunk.
 */
void gm_backend_pinned_init(struct gm_backend_pinned *pinned, const struct gm_cuda *cuda,
	gm_cu_device first, bool shared, enum gm_backend_host_memory wanted);

/* Lowers a limit to what is possible. Memfds count as the daemon's own memory, and the kernel kills
 * a process that takes more than it may. The driver refuses its own memory itself. */
uint64_t gm_backend_pinned_bound(const struct gm_backend_pinned *pinned, uint64_t limit);

enum {
	GM_BACKEND_PINNED_E_DRIVER = 1, /* *ret_call failed with *ret_result */
};

/* Makes a chunk. Returns 0, a negative errno or GM_BACKEND_PINNED_E_DRIVER. */
int gm_backend_pinned_create(const struct gm_backend_pinned *pinned, uint64_t bytes, int *ret_fd,
	const char **ret_call, gm_cu_result *ret_result);
/* Checks that an fd is a chunk of this kind. Fails like gm_backend_pinned_create(), or with
 * -EINVAL: it is not a chunk of that size. */
int gm_backend_pinned_check(const struct gm_backend_pinned *pinned, int fd, uint64_t bytes,
	const char **ret_call, gm_cu_result *ret_result);

#endif
