/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_ADMIN_RELOAD_H
#define GM_DAEMON_ADMIN_RELOAD_H

#include "daemon/serve/serve.h"

/* The request that reads the configuration again. */
gm_serve_handler gm_admin_reload;

#endif
