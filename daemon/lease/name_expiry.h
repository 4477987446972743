/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_LEASE_NAME_EXPIRY_H
#define GM_LEASE_NAME_EXPIRY_H

#include "daemon/lease/session_private.h"

/* Room for one more name that ends by itself. -ENOMEM */
int gm_name_expiry_make_room(struct gm_core *core);
/* The name ends at that time; 0: never. There must be room. */
void gm_name_expiry_set(struct gm_name *name, uint64_t expires_ns);
/* When the next name ends; UINT64_MAX: none does. */
uint64_t gm_name_expiry_next(const struct gm_core *core);

#endif
