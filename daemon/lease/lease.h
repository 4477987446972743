/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_LEASE_LEASE_H
#define GM_LEASE_LEASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpumem/status.h"
#include "daemon/books/chunk.h"
#include "daemon/books/text_say.h"

/*
 * This folder knows what clients hold. It promises that when an object ends, everything that depends
 * on it ends, too. It must never know a socket or a device thread.
 *
 * Leases: chunks granted to a session for one purpose. A request makes them, see request.h.
 */

struct gm_lease;
struct gm_session;

/* A lease that the session made or opened; NULL: it has no such lease. */
struct gm_lease *gm_session_find_lease(struct gm_session *session, uint64_t lease);
/* Whether the session has the lease, and the session that made it has it, too. */
bool gm_session_maker_holds(const struct gm_session *session, uint64_t lease);
/* In order of age, from the oldest (after NULL) to the last (returns NULL). */
struct gm_lease *gm_session_next_lease(struct gm_session *session, struct gm_lease *after);

uint64_t gm_lease_id(const struct gm_lease *lease);

struct gm_lease_info {
	uint64_t id;
	uint32_t device;
	enum gm_transport transport;
	uint64_t bytes;      /* whole chunks */
	uint64_t user_bytes; /* what was asked for */
	bool read_only;      /* for the session that asks */
	uint64_t version;    /* of the name that it was published under; 0: none */
	bool signals;        /* it has a control block */
	int word;            /* with signals: the memfd of that; it is the lease's */
	bool made;           /* the session that made it still has it */
	bool piece;          /* the session made it, and it is one of gm_session_share_some() */
	const char *tag;
};
void gm_lease_info(
	const struct gm_lease *lease, const struct gm_session *session, struct gm_lease_info *ret);
/* The chunk with the lowest index >= from; NULL: there are no more. From there, chunk->next leads
 * to the others in order of index. */
const struct gm_chunk *gm_lease_chunk(const struct gm_lease *lease, uint64_t from);
/* The same where the chunk before it is known by its id: costs the same however long the lease is.
 * from is for the case that this chunk has left the lease. */
const struct gm_chunk *gm_lease_chunk_after(
	const struct gm_lease *lease, uint64_t id, uint64_t from);

/*
 * Finds what a request brought to the session (gm_request.id is asked): the chunks of *ret_lease with
 * indexes from *ret_from on, without *ret_to itself. For a client that was resumed and repeats a
 * request. Returns false if it brought nothing, or nothing is left of it. After a resume, one call
 * looks at all chunks of the session; the others cost little.
 */
bool gm_session_find_grant(struct gm_session *session, uint64_t asked, struct gm_lease **ret_lease,
	uint64_t *ret_from, uint64_t *ret_to);
/* The same for an Open: the lease that it opened. */
bool gm_session_find_open(struct gm_session *session, uint64_t asked, struct gm_lease **ret_lease);

/*
 * Gives back some chunks of a lease that the session made, all or nothing. GPUMEM_E_NOT_FOUND: an
 * id is not (or no longer) in the lease, or is named twice. _at: or the chunk has come back to the lease with
 * another index than the one given; indexes may be NULL. GPUMEM_E_BUSY: the lease is shared, so
 * it can be returned only as a whole.
 *
 * If there are very many chunks, one call releases only some of them, about a millisecond's work. Then
 * gm_lease_is_leaving() is true, and each gm_lease_return_more() releases some of the others and returns whether
 * there are more. If the session loses its connection first, core releases the rest in ticks.
 */
gpumem_status gm_lease_return_chunks(
	struct gm_session *session, struct gm_lease *lease, const uint64_t *ids, size_t n);
gpumem_status gm_lease_return_chunks_at(struct gm_session *session, struct gm_lease *lease,
	const uint64_t *ids, const uint64_t *indexes, size_t n);
bool gm_lease_is_leaving(const struct gm_lease *lease);
/*
 * Says how many bytes of the lease its maker uses from now on: 1 to those of its chunks. On error,
 * nothing changes, and detail says why: GPUMEM_E_DENIED, _INVALID, _BUSY (somebody else has the lease,
 * or could get it) or _HOST_MEMORY.
 */
gpumem_status gm_lease_set_size(struct gm_session *session, struct gm_lease *lease,
	uint64_t user_bytes, char detail[GM_DETAIL_BYTES]);
#define GM_LEASE_NOT_ALONE \
	"the buffer is shared, so it stays as it is: end its tokens (gpumem_unshare), and let the " \
	"processes that opened it destroy it"
bool gm_lease_return_more(struct gm_session *session, struct gm_lease *lease);
/* From now on the chunks of the lease are never pooled, because the daemon cannot see whether a client still has
 * them. */
void gm_lease_spoil(struct gm_lease *lease);
/* Gives back the whole lease, or the session's view of it if the session opened it. The lease ends
 * with its last holder. */
void gm_lease_return(struct gm_session *session, struct gm_lease *lease);
/*
 * A session that opened a lease several times has several views of it. The id of the packet that opened it
 * (gm_session_open_by()) names a view; 0 stands for any view. gm_lease_has_view() says whether the session still has
 * the view. For the session that made the lease, it is true for every view. gm_lease_return_view() gives the view
 * back, and does nothing if the session does not have it.
 */
bool gm_lease_has_view(
	const struct gm_session *session, const struct gm_lease *lease, uint64_t view);
void gm_lease_return_view(struct gm_session *session, struct gm_lease *lease, uint64_t view);
/*
 * Does a part of gm_lease_return(), about a millisecond's work: if the lease would end with it,
 * releases some of the chunks. Call gm_lease_return() when this returns false: no work is left that
 * is worth a part of its own.
 */
bool gm_lease_return_some(struct gm_session *session, struct gm_lease *lease);

#endif
