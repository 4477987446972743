/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_ADMIN_STOP_H
#define GM_DAEMON_ADMIN_STOP_H

#include "daemon/serve/serve.h"

/* The request that ends the daemon. */
gm_serve_handler gm_admin_stop;

#endif
