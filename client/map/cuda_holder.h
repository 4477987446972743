/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MAP_CUDA_HOLDER_H
#define GM_CLIENT_MAP_CUDA_HOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cuda/cuda.h"

/*
 * A thread that keeps one of the program's contexts current for as long as the context is needed.
 *
 * The driver gives no other hold on a context that somebody else may destroy. While a context is
 * current in any thread, every thread may query, push and pop its handle, and the driver gives the
 * handle to no other context, even after the context was destroyed. Without that, popping a
 * destroyed context kills the process. The context's memory and everything made in it (events,
 * streams) are gone with it all the same.
 *
 * The keeper also waits for the context, so that nobody else has to: when the number of a
 * gm_cuda_holder_ask() is reached, all work launched in the context before that call is over.
 */
struct gm_cuda_holder;

/* The context must be alive until this returns: it is current in the calling thread, or it is the
 * primary context, which the caller has retained and the keeper retains too. -ENOMEM; -EAGAIN: no
 * thread could be started; -EIO: the driver does not let the thread have the context. */
int gm_cuda_holder_new(const struct gm_cuda *cuda, gm_cu_device device, gm_cu_ctx cu, bool primary,
	struct gm_cuda_holder **ret_keeper);
/* Makes the keeper let go of the context as soon as its thread waits for nothing; does not wait for
 * that. keeper may be NULL. */
void gm_cuda_holder_free(struct gm_cuda_holder *keeper);

/* Returns the number to wait for, which is never 0. */
uint64_t gm_cuda_holder_ask(struct gm_cuda_holder *keeper);
/* Whether the number was reached. If not, a wait that has failed is tried again. */
bool gm_cuda_holder_reached(struct gm_cuda_holder *keeper, uint64_t number);

#endif
