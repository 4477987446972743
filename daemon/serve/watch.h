/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_WATCH_H
#define GM_DAEMON_WATCH_H

#include "daemon/serve/serve.h"

/* News, for the journal and for the watchers: the peers that sent Watch. */
struct gm_watch;

int gm_watch_new(struct gm_watch **ret_watch);
/* All peers must be closed. watch may be NULL. */
void gm_watch_free(struct gm_watch *watch);
/* Stops watching for this peer. watch may be NULL. */
void gm_watch_peer_closed(struct gm_watch *watch, const struct gm_peer *peer);

/* Core's news: something happened, or a device's pressure has another level. */
void gm_watch_event(struct gm_serve *serve, const struct gm_event *event);
void gm_watch_level(struct gm_serve *serve, uint32_t device);
/* An administrator changed limits, or (who is NULL) a reload did. max: the new one; 0: it stays. */
void gm_watch_limits(struct gm_serve *serve, const struct gm_identity *who, const char *owner,
	const char *what, uint64_t max);
/* An administrator drains a device, or (undone) ends that. */
void gm_watch_drain(
	struct gm_serve *serve, const struct gm_identity *who, uint32_t device, bool undone);
/* The daemon stops. */
void gm_watch_goodbye(struct gm_serve *serve, const char *reason, bool restart);

#endif
