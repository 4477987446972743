/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_LEASE_LEASE_PRIVATE_H
#define GM_LEASE_LEASE_PRIVATE_H

#include "daemon/lease/lease.h"
#include "daemon/lease/session_private.h"

/* ---- lease.c */

/* Makes a lease that nobody holds yet. tag is NULL or fits. id 0: a new one. maker NULL: the maker is
 * gone. NULL: no memory. */
struct gm_lease *gm_lease_new(struct gm_core *core, uint64_t id, struct gm_session *maker,
	struct gm_orphan *orphan, struct gm_device *device, enum gm_transport transport,
	const char *tag);
/* Frees a lease that nobody holds and that has no chunks. */
void gm_lease_free(struct gm_lease *lease);
/* The maker holds the lease from now on. -ENOMEM */
int gm_lease_begin(struct gm_lease *lease);
/* Takes ownership of created chunks, in this order. They are charged to the payer already. Returns
 * the index of the first. */
uint64_t gm_lease_append(struct gm_lease *lease, struct gm_chunk *chunks, uint64_t user_bytes);
/* Whether the session made the lease, and nobody else has it or could get it. */
bool gm_lease_is_alone(const struct gm_lease *lease, const struct gm_session *session);
struct gm_ref *gm_lease_find_ref(const struct gm_lease *lease, const struct gm_session *session);
/* The session, which did not hold the lease, does from now on, with a count of 0. -ENOMEM */
int gm_lease_join(struct gm_lease *lease, struct gm_session *session, struct gm_ref *ref);
/* Puts a chunk that an earlier daemon made behind those that the lease has, and charges it. */
void gm_lease_adopt_chunk(struct gm_lease *lease, struct gm_chunk *chunk);
/* Who is charged for the lease. */
struct gm_account *gm_lease_payer_account(const struct gm_lease *lease);
/* Ends a lease that nobody holds and that has no name. */
void gm_lease_end_unheld(struct gm_lease *lease);
/* The lease has lost its name: ends it, unless somebody holds it. Releases no more than *slice chunks
 * and counts them off; the rest is work of its user. */
void gm_lease_settle(struct gm_lease *lease, uint64_t *slice);
/*
 * Ends a session's part in the lease, however often it opened it. The lease ends with its last
 * hold. Releases no more than *slice chunks and counts them off. If there are more, the lease's
 * orphaned account is charged for them, and they are work of its user.
 */
void gm_lease_drop(struct gm_lease *lease, struct gm_ref *ref, bool died, uint64_t *slice);
/* Releases some chunks of a lease that has ended, or that was handed over, and counts them off. Returns whether there are more. If
 * not, the lease may be gone. */
bool gm_lease_end_some(struct gm_lease *lease, uint64_t *slice);
/* Takes a slice off a lease of a session that has ended: tokens, views, and the chunks if nobody else has the lease. Then the
 * session's part in it ends. */
void gm_lease_drop_some(struct gm_ref *ref, bool died, uint64_t *slice);
/* Call when the session lost its connection: the chunks that it has returned and that are not
 * released yet become work of its user. */
void gm_lease_hand_over(struct gm_session *session);
/* Ends the pending requests of a session that grow one lease as cancelled. */
void gm_lease_cancel_grows(struct gm_session *session, struct gm_lease *lease);

/* ---- ref.c */

/* One more open, by the client's packet of this id. -ENOMEM, -ENOSPC */
int gm_ref_open(struct gm_lease *lease, struct gm_session *session, bool read_only, uint64_t asked);
/* The same after a start: the record is there. -ENOMEM */
int gm_ref_adopt(struct gm_lease *lease, struct gm_session *session, uint64_t id, uint32_t place,
	const struct gm_record_ref *record);
/* Whether the session has this view: see gm_lease_has_view(). */
bool gm_ref_has(const struct gm_ref *ref, uint64_t view);
/* Ends one of several views: this one, or (0) any. */
void gm_ref_end_one(struct gm_ref *ref, uint64_t view);
/* Ends some opens and counts them off. The caller takes care of the counts of the lease. */
void gm_ref_end_some(struct gm_ref *ref, uint64_t *slice);
/* Ends all opens. The same. */
void gm_ref_end_all(struct gm_ref *ref);

/* ---- orphan_work.c */

/*
 * What ends may have very many parts: chunks, leases, shares, views. It is taken apart in slices, on
 * turns of the user that pays. A session that ends is charged to its orphaned account and has no record from
 * the beginning, so nobody sees a part of it.
 */

/* Number of chunks that are released in one go: about a millisecond's work. gm_core_ops.slice may
 * set another. */
#define GM_LEASE_SLICE 512
uint64_t gm_orphan_work_slice(const struct gm_env *env);
/* Put what has ended among the work of its user, or take it out. A lease may be in the list
 * already. After a session, gm_orphan_work_do() must follow. */
void gm_orphan_work_add_lease(struct gm_lease *lease);
void gm_orphan_work_remove_lease(struct gm_lease *lease);
void gm_orphan_work_add_session(struct gm_session *session);
/* Does a slice of a user's work and counts it off. Returns whether there is more. If not, the
 * work may be gone. */
bool gm_orphan_work_do(struct gm_orphan_work *work, uint64_t *slice);
/* Does a slice for each user whose work comes in ticks. */
void gm_orphan_work_tick(struct gm_core *core);
/* Does all of it. */
void gm_orphan_work_finish(struct gm_core *core);

#endif
