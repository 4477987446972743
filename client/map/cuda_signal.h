/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_CUDA_SIGNAL_H
#define GM_CLIENT_CUDA_SIGNAL_H

#include <stddef.h>

#include "client/map/cuda_context.h"
#include "gpumem/gpumem.h"

/*
 * 64-bit words in memory of a GPU that streams write and wait for, also across processes. The words
 * must be mapped for reading and writing, because a wait for a process that died ends only by a write
 * of this process.
 *
 * Each function returns a result of the driver (positive) or a negative errno: -EAGAIN if the stream is
 * being captured, -EOPNOTSUPP if the GPU or its driver has no such operations.
 */

/* Whether streams of the GPU can do it. */
bool gm_cuda_signal_able(const struct gm_cuda *cuda, gm_cu_device device);

/* Writes the value to each word, in this order, after all work that was launched on the stream before. */
int gm_cuda_signal_post(struct gm_cuda_contexts *contexts, gpumem_stream stream,
	uint64_t *const *words, size_t n, uint64_t value);
/* Makes all work that is launched on the stream from now on wait until the word is at least the value,
 * by a difference with a sign. */
int gm_cuda_signal_await(
	struct gm_cuda_contexts *contexts, gpumem_stream stream, uint64_t *word, uint64_t value);
/* Writes a word now, whatever the program's streams wait for, and returns when it is written. */
int gm_cuda_signal_poke(struct gm_cuda_contexts *contexts, uint64_t *word, uint64_t value);
/* Reads words. May wait for the device if its queues are all busy. */
int gm_cuda_signal_peek(
	struct gm_cuda_contexts *contexts, const uint64_t *words, size_t n, uint64_t *ret_values);

#endif
