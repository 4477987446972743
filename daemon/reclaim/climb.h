/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_RECLAIM_CLIMB_H
#define GM_RECLAIM_CLIMB_H

#include "daemon/device/device_private.h"

/* The ladder under pressure: when it acts, and which rung it climbs. ladder.h explains the rungs. */

/* Acts on the pressure level when it is time, and ends the reclaims that are over. */
void gm_climb_act(struct gm_device *device);
/* When it must be called next although nothing has happened; UINT64_MAX: never. */
uint64_t gm_climb_due(const struct gm_device *device);

#endif
