/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MEMORY_BATCH_H
#define GM_CLIENT_MEMORY_BATCH_H

#include "client/session/gpumem_session.h"

/* Forgets all batches. Their buffers end with the session, which waits for the device if it may
 * still use entries that were freed. */
void gm_batch_drop_all(struct gpumem_session *session);

#endif
