/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DEVICE_DEVICE_PLAN_H
#define GM_DEVICE_DEVICE_PLAN_H

#include <stdint.h>

#include "daemon/books/pool.h"

/*
 * How a number of bytes becomes chunks.
 *
 * On the fd transport, a lease is made of powers of two from 2 MiB to 1 GiB, the largest first, in
 * two steps. First, pooled chunks are used, as long as each has at least 1/64 of the size. What is
 * left is written as a sum of powers of two. Each of these comes from the pool if it has one of
 * that very size, and is created otherwise. On the ipc transport, a lease is one chunk of one size
 * class. A client can also ask for one chunk of exactly the size that it
 * names, for memory that it maps itself.
 */
struct gm_device_plan {
	uint64_t bytes; /* of all chunks */
	/* fd: the powers of two, smallest first. ipc: the one chunk is at 0. */
	uint64_t size[GM_CHUNK_CLASSES];
	uint32_t pooled[GM_CHUNK_CLASSES];
	uint32_t created[GM_CHUNK_CLASSES];
	unsigned classes; /* how many of them may be in use: the others are larger than the lease */
	uint32_t n_pooled, n_created;
};

#define GM_DEVICE_PLAN_E_NO_ROOM 1

/* Rounds up to whole 2 MiB. bytes must be at most GM_LEASE_BYTES_MAX. */
uint64_t gm_device_plan_exact(uint64_t bytes);
/* The size class of an ipc chunk: four per doubling, whole 2 MiB. */
uint64_t gm_device_plan_ipc_class(uint64_t bytes);

/* Makes a plan for the bytes, rounded up by at most 1/64 where that saves chunks. Changes nothing:
 * the chunks that it counts on must be taken before the pool changes. GM_DEVICE_PLAN_E_NO_ROOM: not even
 * the exact size is within the budget. */
int gm_device_plan_make(const struct gm_pool *pool, enum gm_transport transport, gm_domain domain,
	uint64_t bytes, uint64_t budget, struct gm_device_plan *ret_plan);
/* A plan for one new chunk of exactly so many bytes, which are whole 2 MiB. */
void gm_device_plan_one(uint64_t bytes, struct gm_device_plan *ret_plan);

#endif
