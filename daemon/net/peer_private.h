/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_PEER_PRIVATE_H
#define GM_DAEMON_PEER_PRIVATE_H

#include "daemon/net/peer.h"

/* For peer.c: has the loop close the peers in hub->doomed on its next turn. */
void gm_hub_doom(struct gm_hub *hub);

#endif
