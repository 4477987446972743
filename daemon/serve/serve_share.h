/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_SERVE_SHARE_H
#define GM_DAEMON_SERVE_SHARE_H

#include "daemon/serve/serve.h"

/* Requests about sharing, by token and by name. */
gm_serve_handler gm_serve_share, gm_serve_open, gm_serve_unshare, gm_serve_publish, gm_serve_attach,
	gm_serve_unpublish, gm_serve_expire_name, gm_serve_get_makers, gm_serve_share_chunks;

#endif
