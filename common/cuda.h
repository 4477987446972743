/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_CUDA_H
#define GM_COMMON_CUDA_H

#include "common/cuda_abi.h"

/*
 * The CUDA driver and NVML, found at run time: one binary serves hosts with and without a GPU.
 * Nothing is loaded before the first call, nothing is ever unloaded (the driver does not bear it),
 * and loading twice gives the same table. Thread-safe.
 *
 * The functions' own results are the driver's; gm_cuda_error() has its names for them.
 */

#define GM_CUDA_WHY_BYTES 256

struct gm_cuda {
#define GM_CU_MEMBER(name, symbol, version, needed, parameters) gm_cu_result(*name) parameters;
	GM_CU_FUNCTIONS(GM_CU_MEMBER)
	GM_CU_OLD_FUNCTIONS(GM_CU_MEMBER)
#undef GM_CU_MEMBER
	int driver_version; /* 13000 */
};

struct gm_nvml {
#define GM_NVML_MEMBER(name, symbol, needed, parameters) gm_nvml_return(*name) parameters;
	GM_NVML_FUNCTIONS(GM_NVML_MEMBER)
#undef GM_NVML_MEMBER
};

/*
 * The driver, loaded and initialised (cuInit, which costs a few MiB of device memory and no
 * context). -ENODEV: no driver, no device, or one too old; why says which and what to do.
 */
int gm_cuda_load(const struct gm_cuda **ret_cuda, char why[GM_CUDA_WHY_BYTES]);
/* What it was that gm_cuda_load() lacked. */
enum gm_cuda_lack {
	GM_CUDA_THERE,     /* nothing */
	GM_CUDA_NO_DRIVER, /* no libcuda.so.1, or none that can be loaded */
	GM_CUDA_TOO_OLD,
	GM_CUDA_NO_DEVICE, /* none that this process may see */
	GM_CUDA_BROKEN,    /* it does not start, or does not answer */
};
enum gm_cuda_lack gm_cuda_lack(void);
/* NVML, loaded and initialised. -ENODEV likewise: figures then come from the broker's own ledger.
 */
int gm_nvml_load(const struct gm_nvml **ret_nvml, char why[GM_CUDA_WHY_BYTES]);

/* "NVML_ERROR_GPU_IS_LOST"; for those that cuda_abi.h does not name "NVML error 5". */
#define GM_NVML_ERROR_TEXT 48
const char *gm_nvml_error(gm_nvml_return result, char text[GM_NVML_ERROR_TEXT]);
/* "CUDA_ERROR_OUT_OF_MEMORY"; never NULL. */
const char *gm_cuda_error(const struct gm_cuda *cuda, gm_cu_result result);
/* The errno of ours that says the same: -ENOMEM, -ENODEV (the device is gone or unusable), -EINVAL,
 * -EIO for the rest; 0 for success. */
int gm_cuda_errno(gm_cu_result result);

#endif
