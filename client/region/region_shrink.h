/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_REGION_REGION_SHRINK_H
#define GM_CLIENT_REGION_REGION_SHRINK_H

#include <stdint.h>

#include "client/session/gpumem_session.h"

struct gpumem_region;

/* Makes the heap of a region forget the memory behind the last allocation, which stays mapped. The region's memory
 * must belong to the calling thread (region_state.h). */
void gm_region_cut(struct gpumem_region *region);

/* Gives back leases of a device that lie behind the last allocation of their region, until so many bytes
 * are gone (UINT64_MAX: all). Regions that are not active are left alone. Returns how many bytes went. */
uint64_t gm_region_trim(struct gpumem_session *session, uint32_t device, uint64_t bytes);
/* Counts how much gm_region_trim() would give back now. */
void gm_region_recount(struct gpumem_session *session, uint32_t device);
/* Frees memory that waited for the device and that the device has finished with. For the library's thread. Returns
 * when to call again, as gm_arena_tick() does. */
uint64_t gm_region_tick(struct gpumem_session *session, uint64_t now_ns);

#endif
