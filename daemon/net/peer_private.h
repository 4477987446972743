/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_PEER_PRIVATE_H
#define GM_DAEMON_PEER_PRIVATE_H

#include "daemon/net/peer.h"

/* For peer.c: calls gm_peer_retry() for all in hub->waiting, a moment from now. */
void gm_hub_wait(struct gm_hub *hub);
/* For hub.c: the peer leaves hub->waiting and tries again on its user's turn. */
void gm_peer_retry(struct gm_peer *peer);

#endif
