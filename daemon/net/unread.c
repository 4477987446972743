/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that clients do not read: three sums, and their bounds. */
#include "daemon/net/unread.h"

#include "common/arith.h"
#include "common/limits.h"

void gm_unread_init(struct gm_unread *unread, struct gm_lane *lane)
{
	*unread = (struct gm_unread){.lane = lane};
}

void gm_unread_deinit(struct gm_unread *unread)
{
	gm_unread_remove(unread, unread->bytes);
}

bool gm_unread_allows(const struct gm_unread *unread, size_t n)
{
	const struct gm_lane *lane = unread->lane;
	uint64_t own = lane->bytes_unread + n;
	uint64_t left = gm_minus(GM_LIMIT_UNREAD_BYTES, lane->lanes->bytes_unread + n);

	return unread->bytes + n <= GM_LIMIT_SEND_QUEUE_BYTES &&
	       own <= GM_LIMIT_UNREAD_BYTES_PER_UID &&
	       (own <= left || own <= GM_LIMIT_PACKET_BYTES);
}

void gm_unread_add(struct gm_unread *unread, size_t n)
{
	unread->bytes += n;
	unread->lane->bytes_unread += n;
	unread->lane->lanes->bytes_unread += n;
}

void gm_unread_remove(struct gm_unread *unread, size_t n)
{
	unread->bytes -= n;
	unread->lane->bytes_unread -= n;
	unread->lane->lanes->bytes_unread -= n;
}
