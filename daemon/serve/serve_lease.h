/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_SERVE_LEASE_H
#define GM_DAEMON_SERVE_LEASE_H

#include "daemon/serve/serve.h"

/* Requests for memory, and returns. */
gm_serve_handler gm_serve_lease, gm_serve_grow, gm_serve_cancel, gm_serve_return,
	gm_serve_get_handles;

#endif
