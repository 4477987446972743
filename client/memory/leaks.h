/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MEMORY_LEAKS_H
#define GM_CLIENT_MEMORY_LEAKS_H

#include "client/session/gpumem_session.h"

/* Prints on stderr what the session tracks and the program never freed. Prints nothing if all was freed. Call it
 * at the end of a session whose program asked for it, before the memory goes back. */
void gm_leaks_report(struct gpumem_session *session);

#endif
