/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MEMORY_RAW_CHUNK_H
#define GM_CLIENT_MEMORY_RAW_CHUNK_H

#include "client/session/gpumem_session.h"
#include "gpumem/gpumem_chunk.h"

/* Frees the structs of all chunks that are left, at the end of a session. Their memory goes back with the
 * session. */
void gm_raw_chunk_drop_all(struct gpumem_session *session);

#endif
