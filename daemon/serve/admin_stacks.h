/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_ADMIN_STACKS_H
#define GM_DAEMON_ADMIN_STACKS_H

#include "daemon/serve/serve.h"

/* Where a client allocated its buffers, as its page says. Only those who may see the client's buffers
 * may ask. */
gm_serve_handler gm_admin_get_stacks;

#endif
