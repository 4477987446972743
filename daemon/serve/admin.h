/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_ADMIN_H
#define GM_DAEMON_ADMIN_H

#include "daemon/serve/serve.h"

/*
 * Requests of gpumemctl. Everybody sees the totals of all clients, and the details of their own
 * clients (same uid, same container). Administrators see everything, and only they may change
 * anything.
 */
gm_serve_handler gm_admin_get_status, gm_admin_get_pools, gm_admin_get_clients,
	gm_admin_get_buffers, gm_admin_get_config;

#endif
