/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_LEASE_NAME_PUBLISH_H
#define GM_LEASE_NAME_PUBLISH_H

#include "daemon/lease/name.h"
#include "daemon/lease/session_private.h"

/* Ends names whose time has come, or some of them. */
void gm_name_expire_some(struct gm_core *core);
/* Ends all names. */
void gm_name_end_all(struct gm_core *core);

#endif
