/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEMO_GPU_H
#define DEMO_GPU_H

#include <stddef.h>
#include <stdint.h>

/*
 * The processor cannot reach into a GPU's memory: the demo's worker copies to and from it, with the
 * CUDA driver, as any program would. Found at run time, like everything of CUDA here.
 */

/* Loads the driver and makes a context on the device with this UUID current. NULL, or what failed.
 */
const char *demo_gpu_start(const uint8_t uuid[16]);
/* Between the device and the host, whichever way; returns when it is done. NULL, or what failed. */
const char *demo_gpu_copy(void *to, const void *from, size_t n);

#endif
