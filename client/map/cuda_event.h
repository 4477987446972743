/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_CUDA_EVENT_H
#define GM_CLIENT_CUDA_EVENT_H

#include "client/map/cuda_context.h"
#include "gpumem/gpumem.h"

/*
 * Events that cover all streams of a GPU. An event has a point in each known context of this GPU
 * and of the GPUs beside it. A context that was destroyed since has passed its point.
 *
 * A point is an event of the driver's where that is safe: in the primary context, and in a context
 * of the program's own if the calling thread has it current. Elsewhere the context's keeper waits
 * for the point.
 *
 * While a stream of a context is being captured into a graph, the driver refuses to record an event
 * for the whole context, or to wait for the context, and the attempt breaks the capture. So while a
 * stream that the program named to this library is being captured, this module refuses with
 * -EAGAIN. Drivers before CUDA 12.5 have no event for a whole context; with those, keepers do all
 * the waiting.
 *
 * No call waits for the GPU. Each returns a result of the driver (positive) or a negative errno.
 */

struct gm_cuda_event;

int gm_cuda_event_record(struct gm_cuda_contexts *contexts, struct gm_cuda_event **ret_event);
/* The same for one stream. If the stream is of a context that this thread cannot make an event in,
 * the event covers all streams. */
int gm_cuda_event_record_on(
	struct gm_cuda_contexts *contexts, gpumem_stream stream, struct gm_cuda_event **ret_event);
/* GM_CUDA_ERROR_NOT_READY: the event has not passed yet. */
int gm_cuda_event_passed(struct gm_cuda_event *event);
/* Makes the stream wait for the event. contexts are those of the stream's GPU; the event may be
 * another GPU's. GM_CUDA_ERROR_NOT_SUPPORTED: the event has a point that a stream cannot wait
 * for. */
int gm_cuda_event_order(
	struct gm_cuda_contexts *contexts, gpumem_stream stream, struct gm_cuda_event *event);
/* Frees an event, which may be NULL. */
void gm_cuda_event_forget(struct gm_cuda_event *event);

#endif
