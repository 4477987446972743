/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MAP_PINNED_H
#define GM_CLIENT_MAP_PINNED_H

#include <stdbool.h>

#include "client/map/map.h"
#include "client/map/map_cuda.h"

/*
 * Maps pinned host memory: the CPU and all GPUs that this process sees reach it at the same
 * address. The daemon decides which of two kinds it is:
 *
 *   - memory of the driver's own, which is imported and mapped;
 *   - memfds, which are mapped as on the host. Each range that access() is called for is registered
 *     with the driver as a whole. The driver refuses a copy that crosses two registrations, so no
 *     heap can run over this kind (`whole` in struct gm_map_ops).
 *
 * A GPU may still use a block when the program frees it, and nobody knows which GPU. So an event
 * here consists of one event on each GPU on which this process has a context. The mapping never
 * makes a context on a GPU that the program does not use, with one exception: if there is no
 * context at all and the driver needs one, it makes one on the first GPU.
 */
struct gm_map_pinned;

/* memfd: whether the memory is of the second kind. -ENODEV: this process sees no GPU that can be
 * used, and why says what to do. -ENOMEM: why is untouched. */
int gm_map_pinned_new(bool memfd, struct gm_map_pinned **ret_backend, char why[GM_MAP_CUDA_WHY]);
const struct gm_map_ops *gm_map_pinned_ops(bool memfd);

#endif
