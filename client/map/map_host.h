/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MAP_HOST_H
#define GM_CLIENT_MAP_HOST_H

#include "client/map/map.h"

/*
 * The host backend's mapping: chunks are memfds, "the device" is the CPU, and the processor that
 * frees has done with it, so there is no stream to wait for. It keeps nothing: its backend is NULL.
 */
const struct gm_map_ops *gm_map_host_ops(void);

#endif
