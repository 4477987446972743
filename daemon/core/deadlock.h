/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_DEADLOCK_H
#define GM_CORE_DEADLOCK_H

#include "daemon/core/core.h"

struct gm_device;

/*
 * Whether everybody waits for everybody: who holds what a waiting request lacks (memory of the
 * device, or under the limit in its way) waits for more there, and nobody has been asked for
 * memory. The request to refuse, the last in the order of those who hold something of it; NULL:
 * somebody can still move. Who waits because programs outside the broker have the memory is in no
 * deadlock: they can end.
 */
struct gm_request *gm_deadlock_find(struct gm_device *device);

#endif
