/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_BACKEND_HOST_H
#define GM_DAEMON_BACKEND_HOST_H

#include "daemon/backend/backend.h"

/*
 * Host memory as devices: gm_backend_host of daemon/backend/backend.h. Device 0 is always there; the others
 * are those the configuration gives a size, and the last is the pinned host memory. A chunk is a
 * sealed memfd (daemon/backend/backend_ram.h).
 *
 * For tests, and read by this backend only, when it is opened:
 *
 *   GPUMEM_TEST_HOST_GATE=PATH      PATH is a FIFO. Each creation takes one byte out of it and
 *                                   waits until there is one, so that a test holds creations back
 *                                   and lets them go one by one. Creations for the reserve count.
 *   GPUMEM_TEST_HOST_FAIL=N or N+   the N-th creation (from 1, over all devices) fails as if the
 *                                   device were out of memory; N+: that one and all after it.
 */

#endif
