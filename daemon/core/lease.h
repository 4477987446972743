/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_LEASE_H
#define GM_CORE_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include <uthash.h>

#include "daemon/core/core.h"
#include "daemon/core/device.h"

struct gm_share;

/* A session's part in a lease: it made it, or opened it. */
struct gm_hold {
	uint64_t lease_id;
	struct gm_lease *lease;
	struct gm_session *session;
	uint32_t count;              /* of times it made or opened it and did not return it */
	bool read_only;              /* it was opened for reading each time */
	struct gm_hold *prev, *next; /* of the lease, oldest first */
	UT_hash_handle hh;           /* of the session */
};

/*
 * A lease. Who pays is always the oldest hold: the maker's, as long as it has one. reusable tells
 * what becomes of the chunks: it starts with the maker's word and is lost, for good, when somebody
 * of another domain opens the lease or when a holder dies while others hold it, for then nobody can
 * say that all mappings are gone.
 */
struct gm_lease {
	uint64_t id;
	struct gm_core *core;
	struct gm_device *device;
	enum gm_transport transport;
	gm_domain domain;
	bool reusable;
	bool across;              /* somebody of another domain has opened it */
	struct gm_session *maker; /* NULL: it returned the lease or is gone */
	struct gm_hold *holds;
	struct gm_hold own; /* the maker's */
	uint32_t n_opens;   /* by anyone, counted as often as they opened it */
	struct gm_share *shares;
	struct gm_chunk *chunks; /* in order of index */
	uint64_t next_index;
	uint64_t bytes, user_bytes;
	char tag[GM_LIMIT_NAME_BYTES + 1];
};

/* A lease to be, held by nobody. NULL: no memory. The tag is NULL or fits. */
struct gm_lease *gm_lease_new(struct gm_session *maker, struct gm_device *device,
	enum gm_transport transport, const char *tag);
/* Of one that nobody holds and that has no chunks. */
void gm_lease_free(struct gm_lease *lease);
/* The maker holds it from now on. -ENOMEM */
int gm_lease_begin(struct gm_lease *lease);
/* Takes created chunks, charged to the one who pays already, in this order. The first one's index.
 */
uint64_t gm_lease_append(struct gm_lease *lease, struct gm_chunk *chunks, uint64_t user_bytes);

struct gm_hold *gm_lease_find_hold(const struct gm_lease *lease, const struct gm_session *session);
/* One more open. -ENOMEM */
int gm_lease_add_opener(struct gm_lease *lease, struct gm_session *session, bool read_only);
/* The end of a session's part in it, however often it opened it. The lease goes with its last hold.
 */
void gm_lease_drop(struct gm_lease *lease, struct gm_hold *hold, bool died);

#endif
