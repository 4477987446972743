/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CUDA_CUDA_H
#define GM_CUDA_CUDA_H

#include "common/cuda/cuda_abi.h"

/*
 * The CUDA driver and NVML, loaded at run time, so that one binary serves hosts with and without a
 * GPU. Nothing is loaded before the first call. Nothing is ever unloaded, because the driver does
 * not survive that. Loading twice gives the same table. Thread-safe. This folder knows neither chunks nor clients.
 *
 * The loaded functions return the driver's own results; gm_cuda_error() gives their names.
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
 * Loads and initialises the driver. cuInit() costs a few MiB of device memory, but makes no
 * context. Returns -ENODEV if there is no driver, no device, or if the driver is too old; why then
 * says which, and what to do about it.
 */
int gm_cuda_load(const struct gm_cuda **ret_cuda, char why[GM_CUDA_WHY_BYTES]);
/* Why gm_cuda_load() failed. */
enum gm_cuda_lack {
	GM_CUDA_THERE,     /* it did not fail */
	GM_CUDA_NO_DRIVER, /* libcuda.so.1 is missing or cannot be loaded */
	GM_CUDA_TOO_OLD,
	GM_CUDA_NO_DEVICE, /* this process may use no device */
	GM_CUDA_BROKEN,    /* the driver does not start, or does not answer */
};
enum gm_cuda_lack gm_cuda_lack(void);
/* Loads and initialises NVML. On -ENODEV, why says why, and only the broker's own figures are
 * known. */
int gm_nvml_load(const struct gm_nvml **ret_nvml, char why[GM_CUDA_WHY_BYTES]);

/* "NVML_ERROR_GPU_IS_LOST", or "NVML error 5" if cuda_abi.h does not name the error. */
#define GM_NVML_ERROR_TEXT 48
const char *gm_nvml_error(gm_nvml_return result, char text[GM_NVML_ERROR_TEXT]);
/* "CUDA_ERROR_OUT_OF_MEMORY"; never NULL. */
const char *gm_cuda_error(const struct gm_cuda *cuda, gm_cu_result result);
/* The errno that says the same, or 0 for success: -ENOMEM, -ENODEV (the device is gone or
 * unusable), -EINVAL, -EOPNOTSUPP, -EPERM, and -EIO for all others. */
int gm_cuda_errno(gm_cu_result result);

#endif
