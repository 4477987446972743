/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_BACKEND_NVML_H
#define GM_DAEMON_BACKEND_NVML_H

#include <stddef.h>

#include "common/cuda.h"
#include "daemon/backend/backend.h"

/* Who uses a GPU, as NVML tells it: the cuda backend's answer to gm_backend_ops.processes. */

/* What NVML said when it did not answer. */
struct gm_backend_nvml_failure {
	const char *call;
	gm_nvml_return result;
};

/*
 * Each process once, whichever of NVML's lists it is in. *ret_list is malloc'ed. -EOPNOTSUPP: NVML
 * does not tell of this device; -ENOMEM; -EIO: *ret_failure says what went wrong.
 */
int gm_backend_nvml_processes(const struct gm_nvml *nvml, gm_nvml_device device,
	struct gm_backend_process **ret_list, size_t *ret_n,
	struct gm_backend_nvml_failure *ret_failure);

#endif
