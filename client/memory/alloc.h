/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_ALLOC_H
#define GM_CLIENT_ALLOC_H

#include "client/session/gpumem_session.h"

/* Ends the heaps: their memory is unmapped. Nobody may be allocating. */
void gm_alloc_drop_all(struct gpumem_session *session);
/* Gives back what nothing uses, of one device, until that many bytes went (UINT64_MAX: all of it);
 * how many did. */
uint64_t gm_alloc_trim(struct gpumem_session *session, uint32_t device, uint64_t bytes);
/* Housekeeping of all heaps; when to come again (CLOCK_MONOTONIC), UINT64_MAX: when woken. */
uint64_t gm_alloc_tick(struct gpumem_session *session, uint64_t now_ns);

#endif
