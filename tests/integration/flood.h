/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_FLOOD_H
#define GM_TESTS_INTEGRATION_FLOOD_H

#include "tests/integration/raw.h"

/* Requests that cost the daemon more than they cost their sender. A packet is valid until the same
 * function is called again. */

const Gm__Wire__Packet *gm_flood_status(void);
const Gm__Wire__Packet *gm_flood_clients(void);
/* A cleanup that only says what it would do. */
const Gm__Wire__Packet *gm_flood_cleanup(void);
/* A return of as many chunks as a request may name. There are no such chunks. */
const Gm__Wire__Packet *gm_flood_return(void);
/* A lease of 8 GiB, for a user who may not have that much. */
const Gm__Wire__Packet *gm_flood_lease(void);

/* What a connection's requests are about: made by gm_flood_prepare(). */
struct gm_flood_state {
	uint64_t session, lease, chunk;
	uint8_t token[GM_TOKEN_BYTES];
	uint64_t ids[256],
		chunks[256]; /* of leases, or the lease again and again, and their chunks */
};

/* A kind of request, and the packet of that kind that costs the daemon most. */
struct gm_flood_kind {
	Gm__Wire__Packet__BodyCase body;
	enum {
		GM_FLOOD_LIST,   /* it lists what all connections have */
		GM_FLOOD_LEASE,  /* it is about what its connection has */
		GM_FLOOD_ADMIN,  /* administrators send it */
		GM_FLOOD_SILENT, /* it has no answer */
		GM_FLOOD_OWN, /* it comes with others, or once in a connection: the caller's own */
	} how;
	const Gm__Wire__Packet *(*packet)(struct gm_flood_state *state);
};
/* All kinds of requests, ended by one without a body. */
extern const struct gm_flood_kind gm_flood_kinds[];
/* The name of the kind, as the schema has it. */
const char *gm_flood_name(const struct gm_flood_kind *kind);
/* The name of a request of the schema that gm_flood_kinds lacks, or NULL. */
const char *gm_flood_missing(void);
/* Makes what the kind's packets are about. raw has joined. */
void gm_flood_prepare(
	const struct gm_flood_kind *kind, struct gm_raw *raw, struct gm_flood_state *ret);

#endif
