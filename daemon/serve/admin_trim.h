/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_ADMIN_TRIM_H
#define GM_DAEMON_ADMIN_TRIM_H

#include "daemon/serve/serve.h"

/* Gives pooled chunks back to the devices, and asks clients for what they cache. */
gm_serve_handler gm_admin_trim;

#endif
