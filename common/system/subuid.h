/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_SYSTEM_SUBUID_H
#define GM_SYSTEM_SUBUID_H

#include <stddef.h>
#include <sys/types.h>

/*
 * Subordinate uids: those that /etc/subuid lets an ordinary user have, 65,536 of them by default
 * (newuidmap, rootless containers). If each of them counted as a user, that user would have 65,536
 * shares of everything. So its owner pays for such a uid: see payer_uid in identity.h.
 *
 * Nothing else is read here: no directory service, which may take a minute to answer.
 */

/* At most this many lines are read, and longer lines are skipped. */
#define GM_SUBUID_LINES      65536
#define GM_SUBUID_LINE_BYTES 256

struct gm_subuid_range {
	uid_t first, last;
	uid_t payer_uid;
};

/* Embedded in gm_hub. All zeros: there are no subordinate uids. */
struct gm_subuids {
	struct gm_subuid_range *ranges; /* in order, and none reaches into another */
	size_t n;
	uid_t *named; /* in order: uids in these ranges that have a name of their own */
	size_t n_named;
};

/*
 * Reads ROOT/etc/subuid and ROOT/etc/passwd. Blocks on the disk. Logs and skips files that cannot be read. Logs and
 * returns -ENOMEM if out of memory.
 */
int gm_subuids_read(const char *root, struct gm_subuids *ret_subuids);
void gm_subuids_deinit(struct gm_subuids *subuids);

/*
 * Who pays for processes with this uid: the owner of the range that it lies in, else the uid
 * itself. A uid that /etc/passwd names is a user of its own, and so is one that owns a range.
 *
 * A range of root, or of somebody whom /etc/passwd does not name, is one user by itself: the first
 * uid of the owner's first range pays. So nobody but uid 0 has 0 here.
 */
uid_t gm_subuids_payer(const struct gm_subuids *subuids, uid_t uid);

#endif
