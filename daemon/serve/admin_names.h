/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_ADMIN_NAMES_H
#define GM_DAEMON_ADMIN_NAMES_H

#include "daemon/serve/serve.h"

/* Lists the names of leases that the asker may attach to; an administrator sees all. */
gm_serve_handler gm_admin_get_names;

#endif
