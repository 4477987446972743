/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_ADMIN_DAEMON_H
#define GM_DAEMON_ADMIN_DAEMON_H

#include "daemon/serve/serve.h"

/* The requests about the daemon itself: one ends it, one makes it read its configuration again. */
gm_serve_handler gm_admin_stop, gm_admin_reload;

#endif
