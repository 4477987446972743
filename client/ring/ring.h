/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_RING_RING_H
#define GM_CLIENT_RING_RING_H

#include <stdbool.h>

#include "client/ring/ring_shape.h"
#include "gpumem/gpumem_ring.h"

/*
 * The folder client/ring/ promises rings as gpumem_ring.h describes them: one end of a ring carries messages between
 * processes, or between a process and a kernel, and stays safe whatever the other end writes. It must never know how
 * buffers, leases or chunks work: a ring is a buffer that a program could have made.
 *
 * An end reads and writes only where its private copies of the counters say. It checks every value that it finds in
 * the ring. Nothing in this header asks the daemon, except that closing a ring destroys its buffer;
 * ring_calls.c gets the memory.
 */

/* Makes an end in memory. It has no buffer and no session yet. The options have all fields. */
gpumem_status gm_ring_new(void *memory, const struct gm_ring_shape *shape, bool far,
	const gpumem_ring_options *options, gpumem_ring **ret_ring);
void gm_ring_set_buffer(gpumem_ring *ring, gpumem_buffer *buffer, gpumem_session *session);
gpumem_status gm_ring_options_check(
	const gpumem_ring_options *options, gpumem_ring_options *ret_given);

#endif
