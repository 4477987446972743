/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_PLAN_H
#define GM_CORE_PLAN_H

#include <stdint.h>

#include "daemon/core/pool.h"

/*
 * How a number of bytes becomes chunks.
 *
 * fd: powers of two from 2 MiB to 1 GiB, the largest first, in two steps. What the pool has of at
 * least 1/64 of the size is used before anything is created; what is left is the sum of powers of
 * two it needs anyway, each from the pool if there is one of that very size. ipc: one chunk of one
 * size class.
 */
struct gm_plan {
	uint64_t bytes; /* of all chunks */
	/* The fd transport's powers of two, smallest first; the ipc transport's one chunk is at 0.
	 */
	uint64_t size[GM_CHUNK_CLASSES];
	uint32_t pooled[GM_CHUNK_CLASSES];
	uint32_t created[GM_CHUNK_CLASSES];
	unsigned classes; /* in use */
	uint32_t n_pooled, n_created;
};

#define GM_PLAN_E_NO_ROOM 1

/* Up to whole 2 MiB. bytes is at most GM_LEASE_BYTES_MAX. */
uint64_t gm_plan_exact(uint64_t bytes);
/* The size class of an ipc chunk: four per doubling, whole 2 MiB. */
uint64_t gm_plan_ipc_class(uint64_t bytes);
/* Rounded by at most 1/64 where that saves chunks, within the budget. */
uint64_t gm_plan_round(uint64_t bytes, uint64_t budget);

/* GM_PLAN_E_NO_ROOM: not even the exact size is within the budget. Changes nothing: what it found
 * in the pool must be taken before the pool changes. */
int gm_plan_make(const struct gm_pool *pool, enum gm_transport transport, gm_domain domain,
	uint64_t bytes, uint64_t budget, struct gm_plan *ret_plan);

#endif
