/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_ADMIN_DAEMON_H
#define GM_DAEMON_ADMIN_DAEMON_H

#include "daemon/serve/serve.h"

/* A reload has ended. On success, detail names the keys that need a restart; otherwise it says why the old configuration
 * stays. */
void gm_admin_reloaded(struct gm_serve *serve, bool changed, const char *detail);
void gm_admin_reload_peer_closed(struct gm_serve *serve, const struct gm_peer *peer);

#endif
