/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_PEER_PRIVATE_H
#define GM_DAEMON_PEER_PRIVATE_H

#include "daemon/net/peer.h"

/* Between hub.c and peer.c: a peer was put on the list of the doomed. */
void gm_hub_doom(struct gm_hub *hub);

#endif
