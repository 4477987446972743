/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_LEASE_LINGER_H
#define GM_LEASE_LINGER_H

#include "daemon/lease/session_private.h"

/* Whether a process is known to have the chunk still. */
bool gm_linger_in_use(const struct gm_device *device, const struct gm_chunk *chunk);
/* Takes over a leased chunk that is in use, is charged to the account, and is in no list. From now
 * on it is charged to the estate. It is destroyed when it is no longer in use. */
void gm_linger_begin(struct gm_device *device, struct gm_chunk *chunk, struct gm_account *account,
	struct gm_estate *estate);
/* Takes over a chunk that lingered when an earlier daemon ended. The estate is charged already. */
void gm_linger_adopt(struct gm_device *device, struct gm_chunk *chunk, struct gm_estate *estate);
/* Looks at the chunks that are due, or at some of them. */
void gm_linger_look(struct gm_device *device);
/* Destroys all of them, in use or not. */
void gm_linger_end_all(struct gm_device *device);

#endif
