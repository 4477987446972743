/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MEMORY_MANAGED_H
#define GM_CLIENT_MEMORY_MANAGED_H

#include "client/session/gpumem_session.h"
#include "gpumem/gpumem_managed.h"

/* Frees what was destroyed and the device has finished with, and gives its charge back. May wait for
 * the device: it is for the library's thread. */
void gm_managed_settle(struct gpumem_session *session);
/* The end of a session calls this: frees all managed memory that is left. */
void gm_managed_drop_all(struct gpumem_session *session);

#endif
