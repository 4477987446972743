/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_BACKEND_VMM_H
#define GM_DAEMON_BACKEND_VMM_H

#include <stdint.h>

#include "common/cuda.h"

/*
 * Memory of the driver's as a file descriptor, for whoever in the cuda backend hands some out: a
 * GPU's, or pinned host memory. No context is made for it.
 */

/* Memory as prop says. The fd, CLOEXEC, is all that keeps it. On failure ret_call is which of the
 * driver's calls it was, and nothing is left. */
gm_cu_result gm_backend_vmm_create(const struct gm_cuda *cuda, const gm_cu_prop *prop,
	uint64_t bytes, int *ret_fd, const char **ret_call);

/* Whether an fd is such memory. Its size is known to the driver alone, which does not tell. */
gm_cu_result gm_backend_vmm_check(const struct gm_cuda *cuda, int fd, const char **ret_call);

#endif
