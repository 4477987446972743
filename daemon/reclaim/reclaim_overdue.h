/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_RECLAIM_RECLAIM_OVERDUE_H
#define GM_RECLAIM_RECLAIM_OVERDUE_H

#include "daemon/device/device_private.h"

/*
 * Users whose claims core does not count on, because a client of theirs did not return what it had said it
 * could. This header promises that all clients of such a user are overdue, those that connect later as
 * well. It must never decide whom to ask.
 */

/* Call when an overdue client leaves. Its user is overdue for GM_RECLAIM_OVERDUE_NS, or until the user's other clients have
 * returned as much as that client owed. */
void gm_reclaim_overdue_remember(struct gm_device *device, const struct gm_account *account);
/* A client of the user returned bytes that it had promised. */
void gm_reclaim_overdue_mend(struct gm_device *device, const struct gm_user *user, uint64_t bytes);
/* Drops the references to all users. */
void gm_reclaim_overdue_forget_all(struct gm_device *device);

/* Marks the users that are overdue. Returns the mark, with which gm_reclaim_overdue_is_of() finds them until the next look. */
uint64_t gm_reclaim_overdue_look(struct gm_device *device);

static inline bool gm_reclaim_overdue_is_of(const struct gm_account_payer *payer, uint64_t look)
{
	return payer->user->overdue == look;
}

#endif
