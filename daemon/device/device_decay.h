/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DEVICE_DEVICE_DECAY_H
#define GM_DEVICE_DEVICE_DECAY_H

#include <stdint.h>

#include "daemon/device/device_private.h"

/*
 * Pooled chunks that nobody took for a while go back to the device, so that programs outside the
 * broker can have the memory. The reserve stays.
 *
 * They go in slices: the next ones when those before are gone. The device's thread does a user's
 * destructions before that user's creations, and a creation that needs the room waits for all
 * destructions before it. Slices keep both waits short, however large the pool is.
 */

/* Releases the next slice if one is due and none is under way. */
void gm_device_decay_run(struct gm_device *device);
/* When gm_device_decay_run() must be called although nothing has happened; UINT64_MAX: never. */
uint64_t gm_device_decay_due(const struct gm_device *device);
/* The destruction of a decayed chunk ended. */
void gm_device_decay_destroyed(struct gm_device *device);

#endif
