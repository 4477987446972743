/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_LIMITS_FIXTURE_H
#define GM_TESTS_INTEGRATION_LIMITS_FIXTURE_H

/* For tests of bounds: a daemon with a witness, who must not notice, and the peer that goes too far. */

#include "tests/integration/witness.h"
#include "tests/bound.h"
#include "tests/tap.h"

static struct gm_witness witness;
static struct gm_raw peer;

static inline void set_up(void)
{
	gm_witness_start(&witness, NULL);
	gm_raw_join(&peer, &witness.daemon);
}

static inline void tear_down(void)
{
	gm_raw_close(&peer);
	gm_witness_stop(&witness);
}

/* A lease of n chunks of the smallest size. */
static inline void lease_chunks(struct gm_raw *raw, size_t n, struct gm_raw_lease *ret)
{
	GM_REQUIRE_EQ(gm_raw_lease(raw, 0, GM_CHUNK_MIN, ret), GPUMEM_OK);
	while (ret->n < n)
		GM_REQUIRE_EQ(gm_raw_grow(raw, ret, GM_CHUNK_MIN), GPUMEM_OK);
	GM_REQUIRE_EQ(ret->n, n);
}

static inline void give_back(struct gm_raw *raw, struct gm_raw_lease *lease)
{
	uint64_t id = lease->id;
	gm_raw_lease_clear(lease);
	/* Those of the last packet, if nobody took them. */
	gm_fdlist_deinit(&raw->fds);
	gm_fdlist_init(&raw->fds);
	GM_REQUIRE_EQ(gm_raw_return(raw, id, NULL, 0), GPUMEM_OK);
}

#endif
