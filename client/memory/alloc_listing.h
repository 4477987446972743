/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MEMORY_ALLOC_LISTING_H
#define GM_CLIENT_MEMORY_ALLOC_LISTING_H

#include "client/session/gpumem_session.h"

/*
 * Lists the blocks of a device's heap in the client's page, for gpumemctl buffers. Allocating costs
 * nothing for it: this function looks through the heap, and gives a row to each live block that is
 * large enough. The block's age counts from then. Freeing such a block frees its row at once. A
 * block that lives only between two calls is never listed.
 *
 * When it returns, every large block that was alive at the call and still is has a row, or is
 * counted if no row was free. If nothing was allocated since the last call, it costs little.
 */
void gm_alloc_listing_publish(struct gpumem_session *session, uint32_t device);
/* Lists a block at once, with the calling thread's stack if the session keeps stacks: for sessions that
 * track everything. The block must not be freed meanwhile. */
void gm_alloc_listing_add(struct gpumem_session *session, uint32_t device, void *ptr);

#endif
