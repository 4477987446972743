/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MAP_PINNED_H
#define GM_CLIENT_MAP_PINNED_H

#include <stdbool.h>

#include "client/map/map.h"
#include "client/map/map_cuda.h"

/*
 * Pinned host memory in this process: chunks that the CPU and all GPUs it sees reach at the same
 * address. They come in one of two kinds, as the daemon has it: memory of the driver's own,
 * imported and mapped; or memfds, mapped as on the host, each range that access() is called for
 * registered with the driver as a whole. The driver refuses a copy across two registrations, so no
 * heap can run over the second kind (whole in struct gm_map_ops).
 *
 * A GPU may be using a block when it is freed, and which one is not known: an event here is one on
 * each GPU on which this process has a context. It never makes a context on a GPU that the program
 * does not use, but for the first one, if there is none at all and the driver needs one.
 */
struct gm_map_pinned;

/* memfd: the second kind. -ENODEV: this process sees no GPU, and why says what to do. -ENOMEM. */
int gm_map_pinned_new(bool memfd, struct gm_map_pinned **ret_backend, char why[GM_MAP_CUDA_WHY]);
const struct gm_map_ops *gm_map_pinned_ops(bool memfd);

#endif
