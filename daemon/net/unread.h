/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_UNREAD_H
#define GM_DAEMON_UNREAD_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/net/lane.h"

/*
 * Bytes of answers that the daemon keeps because a client does not read them. They are bounded for
 * each client, for each uid, and in all. Past a bound, the daemon drops the client that does not read.
 */
struct gm_unread {
	struct gm_lane *lane;
	size_t bytes;
};

/* The lane must outlive the account. */
void gm_unread_init(struct gm_unread *unread, struct gm_lane *lane);
void gm_unread_deinit(struct gm_unread *unread);
/* Whether n more bytes may be kept. A uid must leave at least as much free as it has, but may always keep
 * one packet. So no user can use up all of it, and the sum is bounded. */
bool gm_unread_allows(const struct gm_unread *unread, size_t n);
void gm_unread_add(struct gm_unread *unread, size_t n);
void gm_unread_remove(struct gm_unread *unread, size_t n);

#endif
