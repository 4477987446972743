/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MAP_HOST_H
#define GM_CLIENT_MAP_HOST_H

#include "client/map/map.h"

/*
 * Maps host memory: chunks are memfds, and "the device" is the CPU. The CPU that frees memory has
 * finished with it, so there are no streams to wait for. The mapping keeps no state: its backend
 * pointer is NULL.
 */
const struct gm_map_ops *gm_map_host_ops(void);

#endif
