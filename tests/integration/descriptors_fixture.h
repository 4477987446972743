/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_DESCRIPTORS_FIXTURE_H
#define GM_TESTS_INTEGRATION_DESCRIPTORS_FIXTURE_H

/* A daemon with few descriptors. */

#include "tests/end_keeper.h"
#include "tests/integration/raw.h"
#include "tests/tap.h"

#define MANY 2000

static const struct gm_daemon_options few = {
	.config = GM_DAEMON_CONFIG_WITH("", "8G"), .nofile = 1024};
static const struct gm_daemon_options very_few = {
	.config = GM_DAEMON_CONFIG_WITH("", "8G"), .nofile = 256};

static inline void return_all(struct gm_raw *raw, const uint64_t *leases, size_t n)
{
	for (size_t i = 0; i < n; i++)
		GM_REQUIRE_EQ(gm_raw_return(raw, leases[i], NULL, 0), GPUMEM_OK);
}

/* A user of whom nothing special is expected: it joins, and has so many small chunks at once. */
static inline void expect_served(const struct gm_daemon *daemon, size_t chunks)
{
	struct gm_raw raw;
	uint64_t leases[MANY];
	size_t n;

	gm_raw_join(&raw, daemon);
	for (n = 0; n < chunks; n++) {
		struct gm_raw_lease lease;
		gpumem_status status = gm_raw_lease(&raw, 0, GM_CHUNK_MIN, &lease);
		if (status != GPUMEM_OK)
			GM_FAIL("refused after %zu: %s", n, gm_raw_detail(&raw));
		leases[n] = lease.id;
		gm_raw_lease_clear(&lease);
	}
	return_all(&raw, leases, n);
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
}

#endif
