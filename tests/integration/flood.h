/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_FLOOD_H
#define GM_TESTS_INTEGRATION_FLOOD_H

#include "tests/integration/raw.h"

/* Requests that cost the daemon more than they cost their sender. A packet is valid until the same
 * function is called again. */

const Gm__Wire__Packet *gm_flood_status(void);
const Gm__Wire__Packet *gm_flood_clients(void);
const Gm__Wire__Packet *gm_flood_buffers(void);
/* A cleanup that only says what it would do. */
const Gm__Wire__Packet *gm_flood_cleanup(void);
/* A return of as many chunks as fit into a packet. There are no such chunks. */
const Gm__Wire__Packet *gm_flood_return(void);
/* A lease of 8 GiB, for a user who may not have that much. */
const Gm__Wire__Packet *gm_flood_lease(void);

#endif
