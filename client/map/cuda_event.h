/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_CUDA_EVENT_H
#define GM_CLIENT_CUDA_EVENT_H

#include "client/map/cuda_context.h"
#include "gpumem/gpumem.h"

/*
 * Events on a GPU, each for all streams: it has a point in each context that is known, on this GPU
 * and on those beside it; what was destroyed since has passed. A point is an event of the driver's
 * where that is safe to use, which is in the primary context and, by threads that have it current,
 * in one of the program's own; otherwise the context's keeper waits for it.
 *
 * The driver refuses events for a whole context, and waits for one, while a stream of it is
 * captured into a graph, and breaks the capture; so while a stream that was given to this library
 * says that it is captured, they are refused here with -EAGAIN. Drivers before CUDA 12.5 have no
 * event for a whole context: there keepers do it all.
 *
 * None of this waits for the GPU. Results are the driver's, or -EAGAIN.
 */

struct gm_cuda_event;

int gm_cuda_event_record(struct gm_cuda_contexts *contexts, struct gm_cuda_event **ret_event);
/* GM_CUDA_ERROR_NOT_READY: not yet. */
int gm_cuda_event_passed(struct gm_cuda_event *event);
/* The stream is one of the GPU's whose contexts these are; the event may be another's.
 * GM_CUDA_ERROR_NOT_SUPPORTED: it has a point that a stream cannot be made to wait for. */
int gm_cuda_event_order(
	struct gm_cuda_contexts *contexts, gpumem_stream stream, struct gm_cuda_event *event);
/* NULL is fine. */
void gm_cuda_event_forget(struct gm_cuda_event *event);

#endif
