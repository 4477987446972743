/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_RECLAIM_DOUBT_H
#define GM_RECLAIM_DOUBT_H

#include "daemon/device/device_private.h"

/*
 * Users whose claims core does not count on, because a client of theirs did not return what it had said it
 * could. This header promises that all clients of such a user are doubted, those that connect later as
 * well. It must never decide whom to ask.
 */

/* Call when a doubted client leaves. Its user is doubted for GM_DOUBT_NS, or until the user's other clients have
 * returned as much as that client owed. */
void gm_doubt_remember(struct gm_device *device, const struct gm_account *account);
/* A client of the user returned bytes that it had promised. */
void gm_doubt_mend(struct gm_device *device, const struct gm_user *user, uint64_t bytes);
/* Drops the references to all users. */
void gm_doubt_forget_all(struct gm_device *device);

/* Marks the users that are doubted. Returns the mark, with which gm_doubt_is_of() finds them until the next look. */
uint64_t gm_doubt_look(struct gm_device *device);

static inline bool gm_doubt_is_of(const struct gm_payer *payer, uint64_t look)
{
	return payer->user->doubted == look;
}

#endif
