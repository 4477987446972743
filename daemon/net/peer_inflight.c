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

#include "common/bounds.h"
#include "daemon/net/peer_inflight.h"

/* Sockets of the same user to ask about when its bound is reached. */
#define GM_PEER_INFLIGHT_SWEEP 16

void gm_peer_inflight_init(struct gm_peer_inflight *inflight, struct gm_hub_flow *flow, int socket)
{
	*inflight = (struct gm_peer_inflight){.flow = flow, .socket = socket};
	gm_user_charge_init(&inflight->unread, flow->user,
		gm_hub_flow_slot(flow, GM_USER_FDS_UNREAD, GM_USER_ADMIN_FDS_UNREAD));
}

static void peer_inflight_settle(struct gm_peer_inflight *inflight)
{
	if (inflight->unread.amount == 0)
		return;
	gm_user_charge_remove(&inflight->unread, inflight->unread.amount);
	DL_DELETE(inflight->flow->inflight, inflight);
}

void gm_peer_inflight_deinit(struct gm_peer_inflight *inflight)
{
	peer_inflight_settle(inflight);
	gm_user_charge_deinit(&inflight->unread);
}

/* Takes everything off the account if the client has read all that it was sent. */
static void peer_inflight_ask_kernel(struct gm_peer_inflight *inflight)
{
	int unread;

	if (ioctl(inflight->socket, SIOCOUTQ, &unread) == 0 && unread == 0)
		peer_inflight_settle(inflight);
}

static void peer_inflight_sweep(struct gm_hub_flow *flow)
{
	for (int i = 0; i < GM_PEER_INFLIGHT_SWEEP && flow->inflight; i++) {
		struct gm_peer_inflight *first = flow->inflight;

		DL_DELETE(flow->inflight, first);
		DL_APPEND(flow->inflight, first);
		peer_inflight_ask_kernel(first);
	}
}

int gm_peer_inflight_check(struct gm_peer_inflight *inflight, size_t n)
{
	if (inflight->sent - inflight->seen + n > GM_BOUND_FDS_IN_FLIGHT)
		return GM_PEER_INFLIGHT_E_ACK;

	/* The client has the time of another GM_BOUND_FDS_IN_FLIGHT to show an empty socket. */
	if (inflight->unread.amount + n > GM_BOUND_FDS_IN_FLIGHT)
		peer_inflight_ask_kernel(inflight);
	if (inflight->unread.amount + n > 2 * GM_BOUND_FDS_IN_FLIGHT)
		return GM_PEER_INFLIGHT_E_BOUND;

	const struct gm_user_charge *unread = &inflight->unread;
	if (gm_user_check(unread->user, unread->slot, n) == 0)
		return 0;
	peer_inflight_sweep(inflight->flow);
	return gm_user_check(unread->user, unread->slot, n) ? GM_PEER_INFLIGHT_E_BOUND : 0;
}

void gm_peer_inflight_add(struct gm_peer_inflight *inflight, size_t n)
{
	if (n == 0)
		return;
	if (inflight->unread.amount == 0)
		DL_APPEND(inflight->flow->inflight, inflight);
	inflight->sent += n;
	gm_user_charge_add(&inflight->unread, n);
}

bool gm_peer_inflight_acknowledge(struct gm_peer_inflight *inflight, uint64_t seen)
{
	if (seen > inflight->sent)
		return false;
	if (seen > inflight->seen)
		inflight->seen = seen;
	return true;
}
