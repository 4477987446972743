/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_CUDA_EVENT_H
#define GM_CLIENT_CUDA_EVENT_H

#include "client/backend.h"
#include "client/cuda_context.h"

/*
 * Events on a GPU's streams. One for all streams (GPUMEM_STREAM_ANY) is made of an event of the
 * driver's in each context that is known; what was destroyed since has passed. The driver refuses
 * such events while a stream of the context is captured into a graph, and breaks the capture; so
 * while a stream that was given to this library says that it is captured, they are refused here
 * with -EAGAIN.
 *
 * Drivers before CUDA 12.5 have no event for a whole context. There a thread of its own waits for
 * the contexts (cuda_wait.c), and an event is a number that it reaches.
 *
 * None of this waits for the GPU, but for that thread. Results are the driver's, or -EAGAIN.
 */

int gm_cuda_event_record(
	struct gm_cuda_contexts *contexts, gpumem_stream stream, struct gm_event **ret_event);
/* GM_CUDA_ERROR_NOT_READY: not yet. */
int gm_cuda_event_passed(struct gm_cuda_contexts *contexts, struct gm_event *event);
/* GM_CUDA_ERROR_NOT_SUPPORTED: the event is none that a stream can wait for. */
int gm_cuda_event_order(
	struct gm_cuda_contexts *contexts, gpumem_stream stream, struct gm_event *event);
void gm_cuda_event_forget(struct gm_cuda_contexts *contexts, struct gm_event *event);

/* The stream is captured. For all mappings of the device: pinned host memory has one of its own. */
bool gm_cuda_event_captured(struct gm_cuda_contexts *contexts, gpumem_stream stream);
/* The stream, which the program has just named, is not: it is not asked any more by itself, so that
 * the program may destroy it. */
void gm_cuda_event_not_captured(struct gm_cuda_contexts *contexts, gpumem_stream stream);
/* The program is known to be capturing: the stream last seen at it still says so. */
bool gm_cuda_event_capturing(struct gm_cuda_contexts *contexts);

/* ---- for cuda_context.c, with walking held */

/* Ends the spare events of a context, which is current. */
void gm_cuda_points_destroy(const struct gm_cuda *cuda, struct gm_cuda_context *context);
/* Forgets them: they went with their context. */
void gm_cuda_points_drop(struct gm_cuda_context *context);

/* ---- cuda_wait.c */

/* Has all contexts waited for, from now on; the number that says so. A result of the driver. */
gm_cu_result gm_cuda_wait_ask(struct gm_cuda_contexts *contexts, uint64_t *ret_number);
/* Whether that was reached. If not, what failed is tried again. */
bool gm_cuda_wait_reached(struct gm_cuda_contexts *contexts, uint64_t number);
/* Lets the thread look whether anybody needs it still. */
void gm_cuda_wait_look(struct gm_cuda_contexts *contexts);

#endif
