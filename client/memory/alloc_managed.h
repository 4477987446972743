/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MEMORY_ALLOC_MANAGED_H
#define GM_CLIENT_MEMORY_ALLOC_MANAGED_H

#include "client/session/gpumem_session.h"
#include "gpumem/gpumem_managed.h"

/* Frees all managed memory that is left, at the end of a session. */
void gm_alloc_managed_drop_all(struct gpumem_session *session);

#endif
