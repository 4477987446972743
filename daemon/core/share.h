/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_SHARE_H
#define GM_CORE_SHARE_H

#include <uthash.h>

#include "daemon/core/core.h"
#include "daemon/core/token_hash.h"

/* One token for one lease. It ends with gm_lease_unshare(), or with its maker's part in the lease.
 */
struct gm_share {
	struct gm_token_hash hash;
	struct gm_lease *lease;
	struct gm_share_options options;
	struct gm_share *prev, *next; /* of the lease */
	UT_hash_handle hh;            /* of all shares, by the first half of the hash */
};

/* Ends every token of a lease whose maker still holds it. */
void gm_share_end_all(struct gm_lease *lease);

#endif
