/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MEMORY_ALLOC_H
#define GM_CLIENT_MEMORY_ALLOC_H

#include "client/session/gpumem_session.h"

/*
 * The folder client/memory/ promises a program its memory: pointers, buffers, pinned host memory
 * and their figures, made from the leases that the session brings and mapped by the backends. It
 * must never know when a session begins, reconnects or ends: the files right in client/ call it
 * then.
 *
 * This header is for pointers: gpumem_alloc() and gpumem_free() on the heap of each device.
 */

/* Ends the heaps and unmaps their memory. No thread may be allocating. */
void gm_alloc_drop_all(struct gpumem_session *session);
/* Gives unused memory of one device back, until that many bytes are returned (UINT64_MAX: all of
 * it). Returns how many bytes were. */
uint64_t gm_alloc_trim(struct gpumem_session *session, uint32_t device, uint64_t bytes);
/* Does the housekeeping of all heaps. Returns when to call it again (CLOCK_MONOTONIC), or
 * UINT64_MAX if only a wake-up requires it. */
uint64_t gm_alloc_tick(struct gpumem_session *session, uint64_t now_ns);

#endif
