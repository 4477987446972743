/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_CUDA_KEEPER_H
#define GM_CLIENT_CUDA_KEEPER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cuda.h"

/*
 * A thread that has a context of the program's current, as long as it is needed. That is the only
 * hold the driver gives on a context that somebody else may destroy: while it is current anywhere,
 * its handle can be asked, pushed and popped by any thread and comes for no other context, even
 * after its end; otherwise a destroyed one kills the process when it is popped. What was made in
 * the context (events, streams) is gone with its end all the same, and so is its memory.
 *
 * And it waits for the context, so that nobody else does: all that was launched there before
 * gm_cuda_keeper_ask() is over when the number is reached.
 */
struct gm_cuda_keeper;

/* The context is alive, and stays so until this returns: it is current in the calling thread, or it
 * is the primary one and retained, which this retains, too. -ENOMEM, -EAGAIN: no thread; -EIO: the
 * driver does not let it have the context. */
int gm_cuda_keeper_new(const struct gm_cuda *cuda, gm_cu_device device, gm_cu_ctx cu, bool primary,
	struct gm_cuda_keeper **ret_keeper);
/* Lets the context go as soon as the thread waits for nothing; does not wait for that. NULL is
 * fine. */
void gm_cuda_keeper_free(struct gm_cuda_keeper *keeper);

/* Never 0. */
uint64_t gm_cuda_keeper_ask(struct gm_cuda_keeper *keeper);
/* If not, what failed is tried again. */
bool gm_cuda_keeper_reached(struct gm_cuda_keeper *keeper, uint64_t number);

#endif
