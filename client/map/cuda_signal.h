/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_CUDA_SIGNAL_H
#define GM_CLIENT_CUDA_SIGNAL_H

#include <stddef.h>

#include "client/map/cuda_context.h"
#include "client/map/map_control.h"
#include "gpumem/gpumem.h"

/*
 * Control blocks that streams write and wait for, also across processes. They lie in host memory that is
 * registered with the driver. So the CPU releases a wait with a store, however many streams wait: a GPU
 * has few queues, and a write by a stream can be stuck behind the waits that it is to release.
 *
 * Each function returns a result of the driver (positive) or a negative errno: -EAGAIN if the stream is
 * being captured, -EOPNOTSUPP if the GPU or its driver has no such operations.
 */

/* Whether streams of the GPU can write and wait for such words. */
bool gm_cuda_signal_able(const struct gm_cuda *cuda, gm_cu_device device);

/* Maps and registers the memfd of a control block. */
int gm_cuda_signal_open(
	struct gm_cuda_contexts *contexts, int fd, struct gm_map_control **ret_word);
/* The program is done with the block, which stays registered. */
void gm_cuda_signal_close(struct gm_map_control *word);
/* Ends the registrations of blocks that were closed, if there are many and no stream of this process waits
 * for a signal. May wait for the device. */
void gm_cuda_signal_settle(struct gm_cuda_contexts *contexts);
/* Called when a session ends. A stream that waits for a signal uses the GPU's contexts until it goes on; this
 * forgets the streams that have gone on. */
void gm_cuda_signal_leave(void);

/* Writes the value to the block when all work is done that was launched on the stream before. Writes it first as
 * the block's last value, then as its value. */
int gm_cuda_signal_post(struct gm_cuda_contexts *contexts, gpumem_stream stream,
	struct gm_map_control *word, uint64_t value);
/* Makes all work that is launched on the stream from now on wait until the block's value is at least this
 * one. The driver compares by the signed difference. */
int gm_cuda_signal_await(struct gm_cuda_contexts *contexts, gpumem_stream stream,
	struct gm_map_control *word, uint64_t value);

#endif
