/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MAP_CUDA_H
#define GM_CLIENT_MAP_CUDA_H

#include "client/map/map.h"
#include "common/cuda/cuda.h"

/*
 * Maps chunks of an NVIDIA GPU, by either transport, and watches its streams.
 *
 * A call that needs a context uses the first of these that there is, and only during the call:
 *   1. the calling thread's context, if it is one of this GPU;
 *   2. a context of this GPU that the program was seen in;
 *   3. the primary context of this GPU, which is made if need be.
 *
 * An event covers every context in which a thread has allocated or freed memory of this GPU,
 * contexts of other GPUs included, and the primary context. While a stream that the program named
 * to this library is being captured, recording fails with -EAGAIN, and whatever waits for an event
 * goes on waiting (cuda_event.h). Two rules for programs follow from this:
 *   - A program that captures streams which this library never sees should free with a stream, or
 *     with GPUMEM_STREAM_DONE.
 *   - If a context uses memory but nobody allocates or frees there, the program must free that
 *     memory while the context is current, or with GPUMEM_STREAM_DONE.
 *
 * -ENOBUFS: the driver is out of memory of any kind. -ENOMEM: the host is.
 */
struct gm_map_cuda;

#define GM_MAP_CUDA_WHY 256

/* How many GPUs this process sees. -ENODEV: the driver does not say; why says what to do. */
int gm_map_cuda_count(const struct gm_cuda *cuda, int *ret_count, char why[GM_MAP_CUDA_WHY]);

/* Opens the GPU with that UUID. -ENODEV: this process does not see it; why says what to do.
 * -ENOMEM: why is untouched. */
int gm_map_cuda_new(const uint8_t uuid[GM_UUID_BYTES], struct gm_map_cuda **ret_backend,
	char why[GM_MAP_CUDA_WHY]);
const struct gm_map_ops *gm_map_cuda_ops(void);

/* Lets another GPU of this process use everything that access() is called for from now on.
 * -ENODEV: this process does not see that GPU. -EOPNOTSUPP: the two cannot reach each other. */
int gm_map_cuda_add_peer(struct gm_map_cuda *backend, const uint8_t uuid[GM_UUID_BYTES]);

/* Whether the program has a context on this GPU, as far as this library knows. */
bool gm_map_cuda_active(struct gm_map_cuda *backend);

/* Runs driver calls the way this module runs its own: in a context of the GPU, and without harm to
 * captures. */
int gm_map_cuda_call(struct gm_map_cuda *backend,
	gm_cu_result (*fn)(const struct gm_cuda *cuda, void *arg), void *arg);

/* The driver's name for the error that this thread's last failed call met; "" if the driver had no
 * part in it. */
const char *gm_map_cuda_error(void);

#endif
