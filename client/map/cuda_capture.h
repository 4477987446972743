/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_CUDA_CAPTURE_H
#define GM_CLIENT_CUDA_CAPTURE_H

#include <stdbool.h>

#include "client/map/map.h"
#include "common/cuda.h"

/*
 * Knows whether the program is capturing streams of a GPU into graphs. The driver answers that for
 * one stream only, so this module remembers the streams that were seen being captured. It does so
 * per GPU and for all mappings together, because pinned host memory has a mapping of its own. While
 * no stream is being captured, asking costs one load.
 *
 * All calls may be made from any thread.
 */

/* How many captures at once need no memory. */
#define GM_CUDA_CAPTURED_PLACES 16

/* Whether this stream, which the program has just named, is being captured. For a default stream: whether a
 * stream that waits for it is. */
bool gm_cuda_captured(const struct gm_cuda *cuda, gm_cu_device device, gpumem_stream stream);
/* The stream is not being captured. It is forgotten and never asked again, so the program may
 * destroy it. */
void gm_cuda_not_captured(gm_cu_device device, gpumem_stream stream);
/* Whether a stream that was seen being captured still is. */
bool gm_cuda_capturing(const struct gm_cuda *cuda, gm_cu_device device);
/* Whether nothing may be launched on this stream now: it would become a part of the graph that the stream is
 * captured into, or, on a default stream, break the capture of a stream that waits for it. */
bool gm_cuda_capture_forbids(const struct gm_cuda *cuda, gm_cu_device device, gpumem_stream stream);

#endif
