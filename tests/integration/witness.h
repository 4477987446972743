/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_WITNESS_H
#define GM_TESTS_INTEGRATION_WITNESS_H

#include "tests/integration/raw.h"

/*
 * Nobody else is disturbed: a daemon with a well-behaved client that holds memory with a pattern in
 * it. Whatever the test does to the daemon, at the end that client still has its memory, can get
 * and give back more, and nothing but its own is charged.
 */
struct gm_witness {
	struct gm_daemon daemon;
	struct gm_raw raw;
	struct gm_raw_lease lease;
};

void gm_witness_start(struct gm_witness *witness, const struct gm_daemon_options *options);
/* The client is served: it leases, writes, reads and returns. */
void gm_witness_served(struct gm_witness *witness);
/* The same, and the daemon holds nothing for anybody but it, orphaned memory included; then all ends,
 * cleanly. The test must have closed what it returned. */
void gm_witness_stop(struct gm_witness *witness);

#endif
