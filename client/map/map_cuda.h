/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MAP_CUDA_H
#define GM_CLIENT_MAP_CUDA_H

#include "client/map/map.h"
#include "common/cuda.h"

/*
 * Chunks of an NVIDIA GPU in this process, by either transport, and its streams. Works in whatever
 * context the calling thread has, if that is one of the device; else in one that the program was
 * seen in, else in the device's primary context, which is made for the first call that needs one;
 * and only during that call.
 *
 * An event covers every context that allocated or freed here, those of other GPUs included, and the
 * primary one; while a stream that was given to this library is captured it is refused with
 * -EAGAIN, and what waits for one waits on: cuda_event.h. A program that captures streams which
 * this library never sees should free with a stream, or with GPUMEM_STREAM_DONE. What a context
 * uses in which nobody allocates or frees is freed while it is current, or with GPUMEM_STREAM_DONE.
 *
 * -ENOBUFS: the driver is out of memory, of whichever kind; -ENOMEM: the host is.
 */
struct gm_map_cuda;

#define GM_MAP_CUDA_WHY 256

/* How many GPUs this process sees. -ENODEV: the driver does not tell; why says what to do. */
int gm_map_cuda_count(const struct gm_cuda *cuda, int *ret_count, char why[GM_MAP_CUDA_WHY]);

/* The device with that UUID, as this process sees it. -ENODEV: it does not; why says what to do.
 * -ENOMEM. */
int gm_map_cuda_new(const uint8_t uuid[GM_UUID_BYTES], struct gm_map_cuda **ret_backend,
	char why[GM_MAP_CUDA_WHY]);
const struct gm_map_ops *gm_map_cuda_ops(void);

/* Lets another GPU of this process use what is given access from now on. -ENODEV; -EOPNOTSUPP: the
 * two cannot reach one another. */
int gm_map_cuda_add_peer(struct gm_map_cuda *backend, const uint8_t uuid[GM_UUID_BYTES]);

/* Whether the program has a context on the device, as far as that is known. */
bool gm_map_cuda_active(struct gm_map_cuda *backend);

/* Runs calls of the driver as this file's own are run: in a context of the device, and harmless to
 * captures. */
int gm_map_cuda_call(struct gm_map_cuda *backend,
	gm_cu_result (*fn)(const struct gm_cuda *cuda, void *arg), void *arg);

/* The driver's name for what this thread's last failed call here met; "" if the driver had no part
 * in it. */
const char *gm_map_cuda_error(void);

#endif
