/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_BACKEND_PINNED_H
#define GM_DAEMON_BACKEND_PINNED_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cuda.h"
#include "daemon/backend/backend.h"

/*
 * Pinned host memory beside GPUs, for the cuda backend: of which kind it is on this host, and its
 * chunks. Either the driver's own (HOST_NUMA memory), which clients import; or memfds, real and in
 * huge pages where the kernel has them, which clients register with the driver. Both lie on the
 * node next to the first GPU. How much there may be is the caller's to count.
 */
struct gm_backend_pinned {
	const struct gm_cuda *cuda;
	int node;   /* of the host's memory; -1: any will do */
	bool memfd; /* the second kind */
};

/*
 * Decides which kind it is to be, and tells the journal where that costs something. wanted is what
 * the configuration says; shared is whether every GPU can reach memory of the driver's that comes
 * as an fd. What driver and kernel say of themselves is tried on one small chunk of which nothing
 * is left: clients have to be told before the first real one.
 */
void gm_backend_pinned_init(struct gm_backend_pinned *pinned, const struct gm_cuda *cuda,
	gm_cu_device first, bool shared, enum gm_host_memory wanted);

/* How much of a limit there can be. Memfds count as the daemon's own memory, and the kernel ends a
 * process that takes more than it may have; the driver's own memory is refused by the driver. */
uint64_t gm_backend_pinned_bound(const struct gm_backend_pinned *pinned, uint64_t limit);

enum {
	GM_BACKEND_PINNED_E_DRIVER = 1, /* ret_call and ret_result say what it was */
};

/* A chunk. Negative errno, or GM_BACKEND_PINNED_E_DRIVER. */
int gm_backend_pinned_create(const struct gm_backend_pinned *pinned, uint64_t bytes, int *ret_fd,
	const char **ret_call, gm_cu_result *ret_result);
/* Whether an fd is a chunk of this kind. The same errors; -EINVAL: it is none of that size. */
int gm_backend_pinned_check(const struct gm_backend_pinned *pinned, int fd, uint64_t bytes,
	const char **ret_call, gm_cu_result *ret_result);

#endif
