/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The witness: the other client, whom no misbehaviour may reach. Must never itself do anything that
 * a careful client would not.
 */

#include "tests/integration/witness.h"

#define PATTERN 0x5a

void gm_witness_start(struct gm_witness *witness, const struct gm_daemon_options *options)
{
	gm_daemon_start(&witness->daemon, options);
	gm_raw_join(&witness->raw, &witness->daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&witness->raw, 0, GM_CHUNK_MIN, &witness->lease), GPUMEM_OK);
	GM_REQUIRE_EQ(witness->lease.n, 1);
	gm_alloc_raw_chunk_fill(&witness->lease.chunks[0], PATTERN);
}

void gm_witness_served(struct gm_witness *witness)
{
	struct gm_raw_lease lease;
	GM_REQUIRE_EQ(gm_raw_lease(&witness->raw, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(lease.n, 1);
	gm_alloc_raw_chunk_fill(&lease.chunks[0], PATTERN + 1);
	GM_REQUIRE(gm_alloc_raw_chunk_is(&lease.chunks[0], PATTERN + 1));
	uint64_t id = lease.id;
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_return(&witness->raw, id, NULL, 0), GPUMEM_OK);
	GM_REQUIRE(gm_alloc_raw_chunk_is(&witness->lease.chunks[0], PATTERN));
}

void gm_witness_stop(struct gm_witness *witness)
{
	gm_witness_served(witness);
	/* The daemon quarantines for a moment what a client held that went without a goodbye. */
	struct gm_figures f;
	GM_UNTIL((f = gm_figures_now(&witness->daemon),
		f.leased == GM_CHUNK_MIN && f.quarantined == 0));
	GM_REQUIRE_EQ(f.orphaned, 0);
	GM_REQUIRE_EQ(f.admitted, 0);
	GM_REQUIRE_EQ(f.leases, 1);
	uint64_t id = witness->lease.id;
	gm_raw_lease_clear(&witness->lease);
	GM_REQUIRE_EQ(gm_raw_return(&witness->raw, id, NULL, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_figures_now(&witness->daemon).leased, 0);
	GM_REQUIRE_EQ(gm_raw_goodbye(&witness->raw), GPUMEM_OK);
	gm_raw_close(&witness->raw);
	gm_daemon_stop(&witness->daemon);
}
