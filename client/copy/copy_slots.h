/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_COPY_SLOTS_H
#define GM_CLIENT_COPY_SLOTS_H

#include "client/session/gpumem_session.h"

/* Pinned bytes that the slots of a session's transfers may have, and those that they have now. */
struct gm_copy_limit {
	_Atomic uint64_t limit, used;
};

/* Makes the session's limit. On error, returns -ENOMEM. */
int gm_copy_limit_init(struct gpumem_session *session);
/* Frees the limit, if it was made. */
void gm_copy_limit_deinit(struct gpumem_session *session);

/*
 * The slots that a transfer goes through, side by side. They are pinned memory, as a program gets it
 * from gpumem_host_alloc(). This module keeps no slots: the session's heap of pinned memory caches what was
 * freed, returns it when the daemon asks, and gives it back after a while. Registered memory has no heap:
 * gm_pinned_retire() keeps it.
 */
struct gm_copy_slots {
	struct gpumem_session *session;
	uint8_t *memory;
	uint32_t n;
	size_t slot_bytes;
	bool pinned;
	gpumem_status
		refused; /* why there are fewer or smaller slots than wanted, or none pinned */
};

/* Gets n slots of that size, or fewer, or smaller ones. false: there is no pinned memory. Waits only for a
 * moment for memory, or for an absent daemon. */
bool gm_copy_slots_init(
	struct gm_copy_slots *slots, struct gpumem_session *session, uint32_t n, size_t slot_bytes);
/* Two slots of ordinary memory instead. false: there is no memory. */
bool gm_copy_slots_init_pageable(
	struct gm_copy_slots *slots, struct gpumem_session *session, size_t slot_bytes);
/* done: the device has finished with all slots. */
void gm_copy_slots_deinit(struct gm_copy_slots *slots, bool done);

#endif
