/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MAP_HOST_H
#define GM_CLIENT_MAP_HOST_H

#include "client/backend.h"

/* The host backend's mapping: chunks are memfds, "the device" is the CPU, nothing is asynchronous.
 */
struct gm_map_host;

/* 0; -ENOMEM. */
int gm_map_host_new(struct gm_map_host **ret_backend);
/* Events must be forgotten before. */
void gm_map_host_free(struct gm_map_host *backend);
/* Memory alone: the processor that frees has done with it, so there is no stream to wait for. */
const struct gm_map_ops *gm_map_host_ops(void);
/* The same with streams and events, for tests of what a backend has that works on its own. */
const struct gm_map_ops *gm_map_host_streams_ops(void);

/*
 * For tests: events recorded from now on do not pass before gm_map_host_release(), as if work had
 * not ended.
 */
void gm_map_host_hold(struct gm_map_host *backend);
/* Lets pass what is held, and what is recorded from now on. */
void gm_map_host_release(struct gm_map_host *backend);
/* How often order() put a stream behind an event that had not passed. */
uint64_t gm_map_host_orders(struct gm_map_host *backend);

#endif
