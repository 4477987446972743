/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_SHARED_H
#define GM_PRELOAD_SHARED_H

#include <stdbool.h>

#include "common/cuda_abi.h"
#include "gpumem/gpumem.h"

/*
 * Allocations that are buffers of their own, so that other processes can open them, and those of other
 * processes that this one has opened. Thread-safe. The calls take one lock for a short time, and call
 * nobody while they hold it.
 */

struct gm_shared {
	gm_cu_ptr base;
	gpumem_buffer *buffer;
	bool named; /* it has a token */
	gpumem_token token;
	unsigned opened; /* how often this process has opened it; 0: it is this process's own */
};

/* false: the host has no memory. */
bool gm_shared_add(const struct gm_shared *shared);
/* Finds the one that begins at the address. */
bool gm_shared_find(gm_cu_ptr base, struct gm_shared *ret_shared);
/* Finds the one that has this token. */
bool gm_shared_find_token(const gpumem_token *token, struct gm_shared *ret_shared);
/* Replaces what is known of the one that begins at the same address. */
void gm_shared_set(const struct gm_shared *shared);
/* Removes it. own: it must be this process's own. false: there is none. */
bool gm_shared_take(gm_cu_ptr base, bool own, gpumem_buffer **ret_buffer);

#endif
