/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_ADMIN_EVICT_H
#define GM_DAEMON_ADMIN_EVICT_H

#include "daemon/serve/serve.h"

/* Asks a client, or all clients of a process, to move evictable buffers to host memory, or back: gpumemctl evict and restore. */
gm_serve_handler gm_admin_evict;

#endif
