/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_LEASE_ORPHAN_CHUNK_H
#define GM_LEASE_ORPHAN_CHUNK_H

#include "daemon/lease/session_private.h"

/* Whether a process is known to have the chunk still. */
bool gm_orphan_chunk_in_use(const struct gm_device *device, const struct gm_chunk *chunk);
/* Takes over a leased chunk that is in use, is charged to the account, and is in no list. From now
 * on it is charged to the orphaned account. It is destroyed when it is no longer in use. */
void gm_orphan_chunk_begin(struct gm_device *device, struct gm_chunk *chunk,
	struct gm_account *account, struct gm_orphan *orphan);
/* Takes over a chunk that was orphaned when an earlier daemon ended. The orphaned account is charged already. */
void gm_orphan_chunk_adopt(
	struct gm_device *device, struct gm_chunk *chunk, struct gm_orphan *orphan);
/* Looks at the chunks that are due, or at some of them. */
void gm_orphan_chunk_look(struct gm_device *device);
/* Destroys all of them, in use or not. */
void gm_orphan_chunk_end_all(struct gm_device *device);

#endif
