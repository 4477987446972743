/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DEVICE_RESERVE_H
#define GM_DEVICE_RESERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/device/device_private.h"

/*
 * Fresh chunks kept ready, because making one can take milliseconds on a busy GPU. They are pooled
 * chunks like others: they count as pooled, and the pool's size bounds them, too (without a pool,
 * there is no reserve). They differ in three ways: any domain may take them, used chunks never push
 * them out, and while pressure is low they are made again after they were taken.
 *
 * Their sizes go down by halves: 64M is 32 + 16 + 8 + 4 + 2 + 2. So a client's heap can grow by any
 * step of 2 to 32 MiB at once. They are made for the fd transport only: an ipc chunk has one of too
 * many sizes, and the first one costs the daemon a context. Where clients get ipc unless they ask
 * for fd by name, the reserve should be set to 0.
 */

/* Sets the size in bytes, rounded down to whole 2 MiB. */
void gm_reserve_set(struct gm_device *device, uint64_t bytes);
/* Starts to make what is missing and fits, if pressure is low and it is time. */
void gm_reserve_refill(struct gm_device *device);
/* gm_device_settle(), then gm_reserve_refill(): what to do after memory came back. */
void gm_reserve_settle(struct gm_device *device);
/* When gm_reserve_refill() must be called although nothing has happened; UINT64_MAX: never. */
uint64_t gm_reserve_due(const struct gm_device *device);
/* The device is out of memory: makes nothing for a while, longer each time. */
void gm_reserve_back_off(struct gm_device *device);
/* A creation for the reserve (chunk->reserve) ended. */
void gm_reserve_created(struct gm_device *device, struct gm_chunk *chunk, bool ok);

#endif
