/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_SESSION_H
#define GM_CORE_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include <uthash.h>

#include "daemon/core/core.h"
#include "daemon/core/ledger.h"
#include "daemon/core/token_hash.h"

struct gm_hold;

/*
 * A client process: what it holds and what it is charged. It lives until the process is gone,
 * whatever becomes of the connection. The accounts are per device, in order of number. Rules about
 * owners (limits, guarantees, priorities) hang on the session, which knows its owner.
 */
struct gm_session {
	struct gm_core *core;
	uint64_t id;
	struct gm_session_info info;
	struct gm_token_hash token;
	bool quarantined;
	bool ending;
	bool limited; /* a limit applies to it */
	char *names;  /* what info's unit, container and name point to */
	uint64_t n_shares;
	uint64_t n_new;             /* requests for a new lease that are pending */
	struct gm_request *pending; /* oldest first */
	struct gm_hold *holds;      /* by lease, in order of age */
	UT_hash_handle hh;
	struct gm_account accounts[];
};

/* Tells that what it holds on a device changed; not when it is about to end. */
void gm_session_changed(struct gm_session *session, uint32_t device);
/* The session holds as many leases as it may, with those it asked for. */
bool gm_session_full(const struct gm_session *session);

#endif
