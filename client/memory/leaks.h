/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MEMORY_LEAKS_H
#define GM_CLIENT_MEMORY_LEAKS_H

#include "client/session/gpumem_session.h"

/* Says on stderr what the session tracks and was never freed; nothing if all was freed. For sessions
 * whose program asked for it, when they end and before their memory goes back. */
void gm_leaks_report(struct gpumem_session *session);

#endif
