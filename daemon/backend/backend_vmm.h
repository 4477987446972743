/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_BACKEND_VMM_H
#define GM_DAEMON_BACKEND_VMM_H

#include <stdint.h>

#include "common/cuda/cuda.h"

/* The driver's memory as a file descriptor: a GPU's, or pinned host memory. Needs no context. */

/* Makes memory as prop says. The memory lives as long as the fd, which is CLOEXEC. On error,
 * returns the driver's error, and *ret_call is the call that failed. */
gm_cu_result gm_backend_vmm_create(const struct gm_cuda *cuda, const gm_cu_prop *prop,
	uint64_t bytes, int *ret_fd, const char **ret_call);

/* Checks that an fd is such memory. Only the driver knows its size, and does not tell. */
gm_cu_result gm_backend_vmm_check(const struct gm_cuda *cuda, int fd, const char **ret_call);

#endif
