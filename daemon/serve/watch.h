/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_WATCH_H
#define GM_DAEMON_WATCH_H

#include "daemon/serve/dispatch.h"

/*
 * Who wants to hear what happens: observers that sent Watch, and those who wait for the end of a
 * cleanup they asked for. What core tells goes to them and to the journal.
 */
struct gm_watch;

int gm_watch_new(struct gm_watch **ret_watch);
void gm_watch_free(struct gm_watch *watch);
void gm_watch_peer_closed(struct gm_watch *watch, struct gm_peer *peer);

/* Core's news. */
void gm_watch_event(struct gm_dispatch *dispatch, const struct gm_event *event);
void gm_watch_level(struct gm_dispatch *dispatch, uint32_t device);
/* Limits were changed by somebody, or by a reload (who NULL). */
void gm_watch_limits(struct gm_dispatch *dispatch, const struct gm_identity *who, const char *owner,
	const char *what);
/* The daemon ends. */
void gm_watch_goodbye(struct gm_dispatch *dispatch, const char *reason, bool restart);

/* Requests. */
void gm_watch_start(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);
void gm_watch_cleanup(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet);

#endif
