/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_CUDA_CAPTURE_H
#define GM_CLIENT_CUDA_CAPTURE_H

#include <stdbool.h>

#include "client/map/map.h"
#include "common/cuda.h"

/*
 * Whether the program is capturing streams of a GPU into graphs. The driver tells that of one
 * stream only, so those are remembered that were seen at it, per GPU for all mappings: pinned host
 * memory has one of its own. While there is none, asking costs one load. Any thread.
 */

/* How many captures at once need no memory. */
#define GM_CUDA_CAPTURED_PLACES 16

/* The stream, which the program has just named, is captured. */
bool gm_cuda_captured(const struct gm_cuda *cuda, gm_cu_device device, gpumem_stream stream);
/* It is not: it is not asked any more by itself, so that the program may destroy it. */
void gm_cuda_not_captured(gm_cu_device device, gpumem_stream stream);
/* The program is known to be capturing: a stream that was seen at it still says so. */
bool gm_cuda_capturing(const struct gm_cuda *cuda, gm_cu_device device);

#endif
