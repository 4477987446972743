/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CLIENT_ADOPT_H
#define GM_DAEMON_CLIENT_ADOPT_H

#include "daemon/tenant/client.h"

/*
 * Takes back the clients of an earlier daemon. broker_store.c calls this at the start, before anybody
 * can connect.
 */

/* The descriptors that were kept for a client; -1: lost. */
struct gm_client_kept {
	int pidfd, page, former;
};
/*
 * For gm_adopt_ops.client: takes back a client of an earlier daemon, and ownership of what was
 * kept for it. A client whose process is gone is taken back as well, until gm_clients_adopt_end(). The strings of the
 * record must end within their fields.
 */
int gm_clients_adopt(struct gm_clients *clients, enum gm_domain_trust trust,
	const struct gm_record_client *record, struct gm_client_kept *kept, gm_domain *ret_domain,
	bool *ret_pooling);
/* After gm_core_adopt(): the clients are quarantined now. Those whose process is gone end; returns how
 * many. */
uint64_t gm_clients_adopt_end(struct gm_clients *clients);

#endif
