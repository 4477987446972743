/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_LEASE_METADATA_H
#define GM_LEASE_METADATA_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "gpumem/status.h"
#include "daemon/books/text_say.h"

/*
 * Metadata of published leases: bytes that describe the content of a buffer, for clients that may attach. They
 * are in a memfd that the daemon makes, fills with what the client sends, and seals when the lease is
 * published. Nobody but the daemon and its keeper ever has that memfd. So nobody can change the
 * metadata, nor keep its memory after it has ended.
 *
 * Before the lease is published, the metadata is a draft of the client that made the lease. The draft ends with any
 * publish of the lease, and when that client gives up the lease. Published metadata ends with the lease, or when the
 * lease is published once more. The daemon charges metadata to the lease's user, from the first byte of a draft.
 */

struct gm_core;
struct gm_lease;
struct gm_session;

struct gm_metadata_piece {
	uint64_t size; /* of all of the metadata */
	uint64_t offset;
	const void *bytes;
	size_t n;
};

/*
 * Adds a piece to the draft. offset 0 begins another one. A piece that leaves a gap is no failure, but
 * it ends the draft: see PutMetadata. Returns GPUMEM_OK, or one of these, with the cause and the remedy
 * in detail; then there is no draft, or the one of the session that made the lease stays:
 *   GPUMEM_E_DENIED       the session did not make the lease
 *   GPUMEM_E_BUSY         the lease is published
 *   GPUMEM_E_INVALID      the size, or the piece is not within it
 *   GPUMEM_E_LIMIT        the user has GM_BOUND_METADATA_PER_UID bytes of metadata, as many as it leaves to
 *                         others (GM_BOUND_METADATA), or as many descriptors as it may have
 *   GPUMEM_E_HOST_MEMORY
 */
gpumem_status gm_lease_put_metadata(struct gm_session *session, struct gm_lease *lease,
	const struct gm_metadata_piece *piece, char detail[GM_DETAIL_BYTES]);

struct gm_metadata_info {
	uint64_t id;      /* 0: there is none */
	uint64_t size;    /* 0: there is none */
	uint64_t version; /* of the name; 0: it was not published */
};
void gm_lease_metadata(const struct gm_lease *lease, struct gm_metadata_info *ret);
/* The same of a uid's name that the session may attach to. As gm_session_attach(), it does not tell a
 * name that does not exist from one for another audience: GPUMEM_E_NOT_FOUND. */
gpumem_status gm_session_find_metadata(struct gm_session *session, uid_t uid, const char *text,
	const gid_t *groups, size_t n_groups, struct gm_metadata_info *ret);
/* Reads n bytes. -ENOENT: it has ended. */
int gm_core_read_metadata(
	const struct gm_core *core, uint64_t id, uint64_t offset, void *ret_bytes, size_t n);
/* How many bytes the daemon charges for metadata of this size: whole pages, and one page more. */
uint64_t gm_metadata_cost(uint64_t size);

#endif
