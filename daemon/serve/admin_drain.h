/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_ADMIN_DRAIN_H
#define GM_DAEMON_ADMIN_DRAIN_H

#include "daemon/serve/serve.h"

/* The request Drain. */
gm_serve_handler gm_admin_drain;

#endif
