/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_RECLAIM_BACKOFF_FIXTURE_H
#define GM_TESTS_UNIT_RECLAIM_BACKOFF_FIXTURE_H

/* An honest client that returns what it caches when it is asked, and a user that wastes it. */

#include <check.h>

#include "daemon/lease/session_private.h"
#include "daemon/lease/lease.h"
#include "tests/unit/core/fake_core.h"
#include "tests/unit/reclaim/reclaim_fixture.h"

/* The honest client holds 40 GiB that it can move. Returns a lease of 10 GiB of them. */
static inline struct gm_lease *add_honest(void)
{
	no_levels();
	policy.max_pool = 0;
	gm_core_set_policy(fake.core, d, &policy);
	fake_lease(&fake, c, d, 30 * GiB);
	struct gm_lease *lease = fake_lease(&fake, c, d, 10 * GiB);
	fake_says(&fake, c, d, 0, 40 * GiB);
	return lease;
}

/* The honest client caches 10 GiB of its 40. Nothing is free. Returns the lease of those 10. */
static inline struct gm_lease *add_cache(void)
{
	struct gm_lease *lease = add_honest();

	fake_lease(&fake, a, d, 60 * GiB);
	fake_says(&fake, c, d, 10 * GiB, 0);
	return lease;
}

/* The honest client returns its cache if it was asked for it. Returns whether it was. */
static inline bool return_cache(struct gm_lease *lease)
{
	const struct gm_reclaim_message *ask = fake_asked(&fake, c);
	bool asked = ask && ask->bytes > 0;

	if (asked) {
		give_back(c, lease, 10 * GiB);
		fake_says(&fake, c, d, 0, 0);
	}
	asks();
	fake_core_run(&fake);
	return asked;
}

/* It takes its 10 GiB back, and caches them. */
static inline struct gm_lease *cache_again(void)
{
	struct gm_lease *lease = fake_lease(&fake, c, d, 10 * GiB);

	fake_says(&fake, c, d, 10 * GiB, 0);
	return lease;
}

/* Waits until the request is over. Returns how often the honest client returned its cache meanwhile. */
static inline unsigned serve_cache(struct fake_request *q, struct gm_lease *lease)
{
	unsigned n = 0;

	for (int i = 0; i < 500 && !q->ended; i++) {
		n += return_cache(lease);
		if (!q->ended)
			fake_pass(&fake, 10 * MS);
	}
	ck_assert_uint_eq(q->ended, 1);
	return n;
}

/* The user gets what the honest client cached, and gives it back at once. */
static inline void waste_cache(struct fake_request *q, struct gm_lease *lease)
{
	fake_ask(&fake, q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(serve_cache(q, lease), 1);
	gm_lease_return(b, q->r.lease);
	fake_core_run(&fake);
}

#endif
