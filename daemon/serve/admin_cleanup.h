/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_ADMIN_CLEANUP_H
#define GM_DAEMON_ADMIN_CLEANUP_H

#include "daemon/serve/serve.h"

/* gpumemctl cleanup: answers with the plan and, unless it is a dry run, with what came of it. */
gm_serve_handler gm_admin_cleanup;
/* A reclaim that gpumemctl triggered has ended: tells the peers that wait for it. */
void gm_admin_cleanup_ended(struct gm_serve *serve, const struct gm_event *event);
void gm_admin_cleanup_peer_closed(struct gm_serve *serve, struct gm_peer *peer);

#endif
