/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_BLOCKS_H
#define GM_PRELOAD_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cuda/cuda_abi.h"

/*
 * What the program has of the broker's memory, by address, so that a pointer into the middle of
 * an allocation finds it. Thread-safe. The calls take one lock for a short time, and call nobody while
 * they hold it.
 */

struct gm_preload_block {
	gm_cu_ptr base;
	uint64_t bytes; /* as asked for */
	gm_cu_ctx ctx;  /* it ends with this context; NULL: it was made in stream order */
	struct gm_preload_pool *pool; /* it was made from, and counts there; NULL: from none */
	unsigned
		host_flags; /* of pinned host memory, as cuMemHostGetFlags() says; 0: it is the device's */
	bool spilled;        /* the device's, but it lies in pinned host memory */
	gm_cu_device device; /* of one that is spilled */
	uint32_t number;     /* the daemon's of the device that it was asked of */
	uint64_t serial;     /* no two blocks of a process have the same */
};

/* Gives it a serial, unless it has one: then it was taken out before. false: the host has no memory. */
bool gm_preload_blocks_add(const struct gm_preload_block *block);
/* Finds the block that holds the address. */
bool gm_preload_blocks_find(gm_cu_ptr ptr, struct gm_preload_block *ret_block);
/* Removes the block that begins at the address. false: none begins there, or it is host memory. */
bool gm_preload_blocks_take(gm_cu_ptr ptr, struct gm_preload_block *ret_block);
/* The same for host memory. */
bool gm_preload_blocks_take_host(gm_cu_ptr ptr, struct gm_preload_block *ret_block);
/* Removes any block of a context. false: there is none left. */
bool gm_preload_blocks_take_of(gm_cu_ctx ctx, struct gm_preload_block *ret_block);
/* How many there have been, their bytes, and how many of these bytes were spilled. */
void gm_preload_blocks_total(uint64_t *ret_n, uint64_t *ret_bytes, uint64_t *ret_spilled);
/* Whether the address lies between the lowest and the highest that blocks have had: a quick look,
 * without the lock. */
bool gm_preload_blocks_near(gm_cu_ptr ptr);

#endif
