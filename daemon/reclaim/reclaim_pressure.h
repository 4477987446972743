/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_RECLAIM_RECLAIM_PRESSURE_H
#define GM_RECLAIM_RECLAIM_PRESSURE_H

#include "daemon/device/device_private.h"

/* Reclaim under pressure: when it acts, and which stage it runs. reclaim.h explains the stages. */

/* Acts on the pressure level when it is time, and ends the reclaims that are over. */
void gm_reclaim_pressure_act(struct gm_device *device);
/* When it must be called next although nothing has happened; UINT64_MAX: never. */
uint64_t gm_reclaim_pressure_due(const struct gm_device *device);

#endif
