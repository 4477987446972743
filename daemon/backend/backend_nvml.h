/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_BACKEND_NVML_H
#define GM_DAEMON_BACKEND_NVML_H

#include <stddef.h>

#include "common/cuda/cuda.h"
#include "daemon/backend/backend.h"

/* Which processes use a GPU, according to NVML: gm_backend_ops.processes of the cuda backend. */

/* A call of NVML that failed. */
struct gm_backend_nvml_failure {
	const char *call;
	gm_nvml_return result;
};

/*
 * Lists each process once, even if it is in several of NVML's lists. *ret_list is malloc'ed.
 * Returns 0; -EOPNOTSUPP: NVML does not tell for this device; -ENOMEM; or -EIO: *ret_failure says
 * what went wrong.
 */
int gm_backend_nvml_processes(const struct gm_nvml *nvml, gm_nvml_device device,
	struct gm_backend_process **ret_list, size_t *ret_n,
	struct gm_backend_nvml_failure *ret_failure);

#endif
