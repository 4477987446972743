/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_LEASE_COMMIT_H
#define GM_LEASE_COMMIT_H

#include "daemon/lease/session_private.h"

/* Each writes the record of what it is given, as it stands. Only the first write of each can fail:
 * -ENOSPC, … */
int gm_commit_session(struct gm_session *session);
int gm_commit_orphan(struct gm_orphan *orphan);
int gm_commit_lease(struct gm_lease *lease);
/* Writes the record of a new lease, and then that of the chunk that becomes its only one: it is still
 * in another lease. On error, the records are as before. */
int gm_commit_piece(struct gm_lease *lease, struct gm_chunk *chunk);
/* open->hold is not used. */
int gm_commit_open(
	struct gm_ref_entry *open, const struct gm_lease *lease, const struct gm_session *session);
int gm_commit_share(struct gm_token *share);
int gm_commit_name(struct gm_name *name);
/* The chunk is orphaned from now on. */
void gm_commit_orphaned(struct gm_chunk *chunk);
/*
 * Commits a grant: the chunks, in this order, are about to be appended to the lease, and user_bytes
 * were asked for. If a record cannot be written, none of them stays.
 */
int gm_commit_grant(
	struct gm_lease *lease, struct gm_chunk *chunks, uint64_t asked, uint64_t user_bytes);
/* Takes back a grant that made the lease. */
void gm_commit_undo(struct gm_lease *lease, struct gm_chunk *chunks);
/* Writes the record of what the session declared. Only the first write can fail. */
int gm_commit_declared(struct gm_session *session);
/* The orphaned mapping as it stands; one of 0 bytes has no record. */
void gm_commit_orphan_map(struct gm_orphan_map *map);
/* Writes the counts of a device, if they have changed. Core writes them in each tick, and at a grant that raises
 * the peak or comes this many requests after the last write. So a daemon that is killed forgets fewer
 * requests than that, and never a peak. */
#define GM_COMMIT_LAG 64
void gm_commit_device(struct gm_device *device);

#endif
