/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_BACKEND_HOST_H
#define GM_DAEMON_BACKEND_HOST_H

#include "daemon/backend/backend.h"

/*
 * Host memory as devices: gm_backend_host. Device 0 always exists. The others are those to which
 * the configuration gives a size, and the last is the pinned host memory. A chunk is a sealed memfd
 * (backend_ram.h).
 *
 * When this backend is opened, it reads two variables that are meant for tests:
 *
 *   GPUMEM_TEST_HOST_GATE=PATH      PATH is a FIFO. Each creation takes one byte out of it, and
 *                                   waits for one if it is empty. So a test holds creations back
 *                                   and lets them go one by one. Creations for the reserve count.
 *   GPUMEM_TEST_HOST_FAIL=N or N+   The N-th creation (from 1, over all devices) fails as if the
 *                                   device were out of memory. N+: so do all creations after it.
 */
extern const struct gm_backend_ops gm_backend_host;

#endif
