/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CLIENT_ADOPT_H
#define GM_DAEMON_CLIENT_ADOPT_H

#include "daemon/tenant/client.h"

/*
 * Takes back the clients of an earlier daemon. broker_keep.c calls this at the start, before anybody
 * can connect.
 */

/*
 * For gm_adopt_ops.client: takes back a client of an earlier daemon, and ownership of the fds that were
 * kept for it (-1: lost). A client whose process is gone is taken back, too, until
 * gm_clients_adopt_end().
 */
int gm_clients_adopt(struct gm_clients *clients, enum gm_trust trust, uint64_t id, uint32_t place,
	const struct gm_record_client *record, int pidfd, int page, int former,
	gm_domain *ret_domain, bool *ret_pooling);
/* After gm_core_adopt(): the clients are quarantined now. Those whose process is gone end; returns how
 * many. */
uint64_t gm_clients_adopt_end(struct gm_clients *clients);

#endif
