/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_REGION_REGION_H
#define GM_CLIENT_REGION_REGION_H

#include "client/session/gpumem_session.h"

/* Ends all regions without a message: the session ends. */
void gm_region_drop_all(struct gpumem_session *session);

#endif
