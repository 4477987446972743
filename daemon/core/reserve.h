/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_RESERVE_H
#define GM_CORE_RESERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "daemon/core/device_private.h"

/*
 * Fresh chunks kept ready, because making one can take milliseconds on a busy GPU. They are pooled
 * chunks like others: they count as pooled, and the pool's size bounds them too (no pool, no
 * reserve). What sets them apart: any domain may take them, used chunks never push them out, and
 * they are made again when they were taken, while pressure is low.
 *
 * Its sizes go down by halves: 64M is 32 + 16 + 8 + 4 + 2 + 2, so that any step of 2 to 32 MiB by
 * which a client's heap grows is there. fd transport only: an ipc chunk has one of too many sizes,
 * and the first one costs the daemon a context. Where clients are given ipc unless they ask for
 * the other by name, its size is to be set to 0.
 */
/* Which chunks make up that many bytes (less what is not whole 2 MiB). */
void gm_reserve_sizes(uint64_t bytes, uint32_t ret_wanted[GM_CHUNK_CLASSES]);

void gm_reserve_set(struct gm_device *device, uint64_t bytes);
/* Starts what is missing and fits, if pressure is low and it is time. */
void gm_reserve_refill(struct gm_device *device);
/* When refilling wants to be tried without anything having happened; UINT64_MAX: not. */
uint64_t gm_reserve_due(const struct gm_device *device);
/* The device is out of memory: nothing is made for a while, longer each time. */
void gm_reserve_back_off(struct gm_device *device);
/* One of its creations ended. */
void gm_reserve_created(struct gm_device *device, struct gm_chunk *chunk, bool ok);

#endif
