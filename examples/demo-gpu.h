/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEMO_GPU_H
#define DEMO_GPU_H

#include <stddef.h>
#include <stdint.h>

/*
 * The CPU cannot access a GPU's memory. So the demo's worker copies to and from it with the CUDA
 * driver, as any program would. The driver is loaded at run time.
 */

/* Loads the driver and makes a context current on the device with this UUID. Returns NULL, or what
 * failed. */
const char *demo_gpu_start(const uint8_t uuid[16]);
/* Copies between the device and the host, in either direction, and waits until it is done. Returns
 * NULL, or what failed. */
const char *demo_gpu_copy(void *to, const void *from, size_t n);

#endif
