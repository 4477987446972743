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
void gm_doubt_mend(struct gm_device *device, uid_t payer_uid, uint64_t bytes);

/* The users that are doubted, in order. */
struct gm_doubted {
	uid_t *uids;
	size_t n;
};
/* May return -ENOMEM. */
int gm_doubt_list(const struct gm_device *device, struct gm_doubted *ret_list);
void gm_doubt_list_deinit(struct gm_doubted *list);
bool gm_doubt_lists(const struct gm_doubted *list, uid_t payer_uid);

#endif
