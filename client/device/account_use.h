/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_DEVICE_ACCOUNT_USE_H
#define GM_CLIENT_DEVICE_ACCOUNT_USE_H

#include "client/session/gpumem_session.h"

/* How this process uses a device, heap and buffers together. */
void gm_page_read_use(struct gpumem_session *session, uint32_t device, gpumem_stats_t *ret_stats);
/* Writes these figures into the client's page. Returns true if they have changed. */
bool gm_page_publish_use(struct gpumem_session *session, uint32_t device);

#endif
