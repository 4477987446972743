/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_POOLS_H
#define GM_PRELOAD_POOLS_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/table/preload_blocks.h"
#include "preload/driver/preload_driver.h"

/*
 * Memory pools. The broker serves the default pool of each device, and those of the program that hold
 * device memory and cannot be exported. Their handles are real pools of the driver, which stay empty. The
 * driver keeps their settings; what is allocated from them is counted here. Of other pools only the
 * device is known.
 *
 * Thread-safe. An allocation from a default pool takes no lock here.
 */

struct gm_preload_pool;

/* A pool that the driver has made, and that the broker serves or not. false: the host has no memory. most:
 * it may not have more bytes; 0: it may. */
bool gm_preload_pools_add(gm_cu_pool handle, gm_cu_device device, bool served, uint64_t most);
/* The default pool of a device. NULL: it has none. It needs no gm_preload_pools_put(). */
struct gm_preload_pool *gm_preload_pools_first(const struct gm_driver *driver, gm_cu_device device);
/* Finds a pool by its handle, and keeps it until gm_preload_pools_put(). NULL: it is not known. */
struct gm_preload_pool *gm_preload_pools_get(const struct gm_driver *driver, gm_cu_pool handle);
void gm_preload_pools_put(struct gm_preload_pool *pool);
/* The handle means nothing any more. Returns what had it, which the caller gives to gm_preload_pools_put() or, if
 * the pool lives on, to gm_preload_pools_return(). NULL: nothing had it. */
struct gm_preload_pool *gm_preload_pools_take(gm_cu_pool handle);
void gm_preload_pools_return(struct gm_preload_pool *pool);

gm_cu_pool gm_preload_pools_handle(const struct gm_preload_pool *pool);
gm_cu_device gm_preload_pools_device(const struct gm_preload_pool *pool);
/* Whether the broker serves it. */
bool gm_preload_pools_is_served(const struct gm_preload_pool *pool);
/* Whether it is the default one. The memory that the library caches counts as reserved there. */
bool gm_preload_pools_is_first(const struct gm_preload_pool *pool);

/* Counts an allocation that was made. false: the pool may not have so much, and nothing is counted. */
bool gm_preload_pools_enter(struct gm_preload_pool *pool, uint64_t bytes);
void gm_preload_pools_leave(struct gm_preload_pool *pool, uint64_t bytes);
/* The program has freed a block. It counts no more, and keeps its pool no longer, if it has one. */
void gm_preload_pools_free(const struct gm_preload_block *block);

uint64_t gm_preload_pools_used(const struct gm_preload_pool *pool);
uint64_t gm_preload_pools_used_high(const struct gm_preload_pool *pool);
/* The highest of what was used, and of all that was passed here. */
uint64_t gm_preload_pools_reserved_high(struct gm_preload_pool *pool, uint64_t reserved);
/* The marks go down to what is used now. */
void gm_preload_pools_reset_used_high(struct gm_preload_pool *pool);
void gm_preload_pools_reset_reserved_high(struct gm_preload_pool *pool);

#endif
