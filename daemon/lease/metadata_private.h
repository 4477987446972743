/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_LEASE_METADATA_PRIVATE_H
#define GM_LEASE_METADATA_PRIVATE_H

#include "daemon/lease/metadata.h"
#include "daemon/lease/session_private.h"

/* Whether the draft is there, with all of its bytes. */
bool gm_metadata_is_whole(const struct gm_lease *lease, uint64_t size);
/* Seals the draft and gives it to the keeper, as the metadata of this version. -EAGAIN: that may be possible soon;
 * -ENOSPC, -ENOMEM. */
int gm_metadata_commit(struct gm_lease *lease, uint64_t version, uint64_t *ret_id);
/* The draft, or nothing if there is none, is the lease's metadata from now on. */
void gm_metadata_publish(struct gm_lease *lease);
/* The maker leaves the lease. */
void gm_metadata_drop_draft(struct gm_lease *lease);
/* The lease ends. */
void gm_metadata_drop(struct gm_lease *lease);
/* Puts back what an earlier daemon had. Takes ownership of the fd. -ENOMEM; -EINVAL: it is not sound. */
int gm_metadata_adopt(struct gm_lease *lease, uint64_t id, uint32_t place,
	const struct gm_record_metadata *record, int fd);

#endif
