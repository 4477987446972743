/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_REGION_REGION_H
#define GM_CLIENT_REGION_REGION_H

#include "client/session/gpumem_session.h"

/*
 * The folder client/region/ promises heaps whose memory a program can give away for a while, and get back
 * at the same addresses, with its content if the program wants that. It must never know the heaps of
 * gpumem_alloc(), nor what a program keeps in a region.
 */

/* Makes the session's list of regions. On error, returns -ENOMEM. */
int gm_region_list_init(struct gpumem_session *session);
/* Ends all regions without a message, and frees the list, if it was made: the session ends. */
void gm_region_drop_all(struct gpumem_session *session);

#endif
