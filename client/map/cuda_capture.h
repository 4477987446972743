/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_CUDA_CAPTURE_H
#define GM_CLIENT_CUDA_CAPTURE_H

#include <stdbool.h>

#include "client/map/map.h"
#include "common/cuda/cuda.h"

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

/*
 * Whether this stream, which the program has just named, is being captured.
 *
 * The legacy default stream (NULL or CU_STREAM_LEGACY) is not captured itself. For it, this says whether a stream of the
 * current context that waits for it is being captured. The module does not remember those captures. So a thread must ask
 * again in each context in which it is about to record an event for all streams, or to wait.
 */
bool gm_cuda_captured(const struct gm_cuda *cuda, gm_cu_device device, gpumem_stream stream);
/* Call when the stream is known not to be captured. The module forgets it and never asks the driver about it again, so
 * the program may destroy it. */
void gm_cuda_not_captured(const struct gm_cuda *cuda, gm_cu_device device, gpumem_stream stream);
/* Whether the program captures: it has said so (gm_cuda_capture_begin()), or a stream that was seen being captured
 * still is. A thread's own default stream (CU_STREAM_PER_THREAD) counts until that thread asks again, or ends: no other
 * thread can ask the driver about it. */
bool gm_cuda_capturing(const struct gm_cuda *cuda, gm_cu_device device);

/*
 * A capture may begin right after gm_cuda_capturing() has returned false. A thread that is going to record an event
 * for all streams of a context, or to wait for a context, therefore first keeps captures out: until the thread calls
 * gm_cuda_capture_let_in(), gm_cuda_capture_begin() waits. Returns false if the program is capturing. Then the thread
 * must not make its call, and keeps nothing out. While nothing is captured, the two calls cost two atomic additions.
 */
bool gm_cuda_capture_keep_out(const struct gm_cuda *cuda, gm_cu_device device);
/* The same, for all GPUs. Knows only the captures that the program has announced. */
bool gm_cuda_capture_keep_out_announced(void);
void gm_cuda_capture_let_in(void);

/*
 * A thread calls gm_cuda_capture_launch() before it launches work on a stream of the program's, in the context of that
 * work. If it returns false, the thread must launch nothing: the work would become a part of the graph that the stream is
 * captured into, or, on the legacy default stream, break the capture of a stream that waits for it. If it returns true,
 * the thread calls gm_cuda_capture_launched() for the same stream when it has launched the work.
 *
 * On the legacy default stream, the thread keeps captures out between the two calls. On other streams, a thread's own
 * default stream among them, it does not: only a capture of the same stream could meet the work, and a program does not
 * begin one while it has the library launch work there.
 */
bool gm_cuda_capture_launch(const struct gm_cuda *cuda, gm_cu_device device, gpumem_stream stream);
void gm_cuda_capture_launched(gpumem_stream stream);

/* The program calls the first before it begins a capture, on any GPU, and the second when the capture has ended. The first
 * waits for the threads that keep captures out: for a second at most, because a wait for a context can take as long as
 * the program likes. By then such a thread is inside of the driver, where a capture that begins does it no harm. */
void gm_cuda_capture_begin(void);
void gm_cuda_capture_end(void);

#endif
