/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_NET_PEER_INFLIGHT_H
#define GM_DAEMON_NET_PEER_INFLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/net/hub_flow.h"

/*
 * File descriptors on their way to a client: sent, and not known to have been read. The kernel
 * counts them for the daemon's user, and past the daemon's RLIMIT_NOFILE it takes no more of them,
 * for any client. So the daemon bounds them for each client, for each uid, and in all, well below that.
 *
 * A client acknowledges the descriptors that it has read. That decides when the daemon sends the next ones, but it is
 * no proof. The proof is the kernel's: nothing is left to read on the socket. Only then does the account
 * drop the descriptors.
 */
struct gm_peer_inflight {
	struct gm_hub_flow *flow;
	int socket;
	uint64_t seen; /* the client says that these were read */
	/* private to peer_inflight.c */
	uint64_t sent;
	struct gm_user_charge unread;         /* the kernel does not say that these were read */
	struct gm_peer_inflight *prev, *next; /* in flow->inflight while that is not 0 */
};

/* The flow must outlive the account. */
void gm_peer_inflight_init(struct gm_peer_inflight *inflight, struct gm_hub_flow *flow, int socket);
/* Must be called before the socket is closed. */
void gm_peer_inflight_deinit(struct gm_peer_inflight *inflight);

#define GM_PEER_INFLIGHT_E_ACK   1 /* not before the client acknowledges some */
#define GM_PEER_INFLIGHT_E_BOUND 2 /* not now; nothing tells when, so ask again */
/* Whether n more may be sent: 0, or one of the above. */
int gm_peer_inflight_check(struct gm_peer_inflight *inflight, size_t n);
/* n were sent. */
void gm_peer_inflight_add(struct gm_peer_inflight *inflight, size_t n);
/* The client says that it has read so many since the start. Returns false if that is more than it
 * was sent. */
bool gm_peer_inflight_acknowledge(struct gm_peer_inflight *inflight, uint64_t seen);

#endif
