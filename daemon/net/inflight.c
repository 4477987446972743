/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors on their way. Asking the kernel costs a system call, so it is asked only when a bound
 * is reached: about the client's own socket, and about a few others of its user, in turn. A client
 * that reads is off the account at the latest then. Those that do not read use up the bound of
 * their own user and of nobody else.
 */
#include <sys/ioctl.h>

#include <linux/sockios.h>

#include <utlist.h>

#include "common/limits.h"
#include "daemon/net/inflight.h"

/* Sockets of the same user to ask about when its bound is reached. */
#define GM_INFLIGHT_SWEEP 16

void gm_inflight_init(struct gm_inflight *inflight, struct gm_lane *lane, int socket)
{
	*inflight = (struct gm_inflight){.lane = lane, .socket = socket};
}

static void inflight_settle(struct gm_inflight *inflight)
{
	uint64_t n = inflight->sent - inflight->gone;

	if (n == 0)
		return;
	inflight->gone = inflight->sent;
	inflight->lane->fds_unread -= n;
	inflight->lane->lanes->fds_unread -= n;
	DL_DELETE(inflight->lane->inflight, inflight);
}

void gm_inflight_deinit(struct gm_inflight *inflight)
{
	inflight_settle(inflight);
}

/* Takes everything off the account if the client has read all that it was sent. */
static void inflight_ask_kernel(struct gm_inflight *inflight)
{
	int unread;

	if (ioctl(inflight->socket, SIOCOUTQ, &unread) == 0 && unread == 0)
		inflight_settle(inflight);
}

static void inflight_sweep(struct gm_lane *lane)
{
	for (int i = 0; i < GM_INFLIGHT_SWEEP && lane->inflight; i++) {
		struct gm_inflight *first = lane->inflight;

		DL_DELETE(lane->inflight, first);
		DL_APPEND(lane->inflight, first);
		inflight_ask_kernel(first);
	}
}

/* Whether n more pass the bound of the uid, or the one for all. A uid whose clients read everything
 * is always sent something, so that others cannot use up its share. */
static bool inflight_too_many(const struct gm_lane *lane, size_t n)
{
	const struct gm_lanes *lanes = lane->lanes;

	return lane->fds_unread > 0 && (lane->fds_unread + n > lanes->fds_per_uid ||
					       lanes->fds_unread + n > lanes->fds_max);
}

int gm_inflight_check(struct gm_inflight *inflight, size_t n)
{
	if (inflight->sent - inflight->seen + n > GM_LIMIT_FDS_IN_FLIGHT)
		return GM_INFLIGHT_E_ACK;

	/* The client has the time of another GM_LIMIT_FDS_IN_FLIGHT to show an empty socket. */
	if (inflight->sent - inflight->gone + n > GM_LIMIT_FDS_IN_FLIGHT)
		inflight_ask_kernel(inflight);
	if (inflight->sent - inflight->gone + n > 2 * GM_LIMIT_FDS_IN_FLIGHT)
		return GM_INFLIGHT_E_BOUND;

	if (!inflight_too_many(inflight->lane, n))
		return 0;
	inflight_sweep(inflight->lane);
	return inflight_too_many(inflight->lane, n) ? GM_INFLIGHT_E_BOUND : 0;
}

void gm_inflight_add(struct gm_inflight *inflight, size_t n)
{
	if (n == 0)
		return;
	if (inflight->sent == inflight->gone)
		DL_APPEND(inflight->lane->inflight, inflight);
	inflight->sent += n;
	inflight->lane->fds_unread += n;
	inflight->lane->lanes->fds_unread += n;
}

bool gm_inflight_acknowledge(struct gm_inflight *inflight, uint64_t seen)
{
	if (seen > inflight->sent)
		return false;
	if (seen > inflight->seen)
		inflight->seen = seen;
	return true;
}
