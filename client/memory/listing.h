/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_LISTING_H
#define GM_CLIENT_LISTING_H

#include "client/session/gpumem_session.h"

/*
 * The blocks of a device's heap in the table of the client's page, for gpumemctl buffers. Those who
 * allocate have no part in it: this looks through the heap's books and gives a row to each block
 * that is large enough and alive by now, which so counts as born now. Freeing such a block ends its
 * row at once. What lives shorter than from one call to the next is never listed.
 *
 * When it returns, everything that was alive at the call and still is has a row or is counted, but
 * for want of rows. Costs little when nothing was allocated since.
 */
void gm_listing_publish(struct gpumem_session *session, uint32_t device);

#endif
