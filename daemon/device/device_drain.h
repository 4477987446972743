/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DEVICE_DEVICE_DRAIN_H
#define GM_DEVICE_DEVICE_DRAIN_H

#include <stdbool.h>

#include "daemon/device/device_private.h"

/* Drains: a device on which nobody gets new memory, so that it becomes empty. gm_core_drain() says
 * what that means. */

int gm_device_drain_begin(struct gm_device *device, uid_t uid);
/* Returns whether it was on. */
bool gm_device_drain_end(struct gm_device *device);
/* An earlier daemon drained the device. */
void gm_device_drain_adopt(
	struct gm_device *device, const struct gm_record_drain *record, uint32_t place);

/* A pool may be large, so a drain destroys it in slices: whether there is another one, and the next slice. */
bool gm_device_drain_wants_slice(const struct gm_device *device);
void gm_device_drain_release_some(struct gm_device *device);

#endif
