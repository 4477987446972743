/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_RECLAIM_RECLAIM_FIXTURE_H
#define GM_TESTS_UNIT_RECLAIM_RECLAIM_FIXTURE_H

/* Three clients that can be asked, on one device of 100 GiB, and what they do about it. */

#include <check.h>

#include "daemon/reclaim/reclaim.h"
#include "daemon/device/limit.h"
#include "tests/unit/core/fake_core.h"

#define SECOND UINT64_C(1000000000)
#define MS     UINT64_C(1000000)

static struct fake_core fake;
static uint32_t d;
static char detail[GM_DETAIL_BYTES];
static struct gm_policy policy;
static struct gm_session *a, *b, *c;

/* 100 GiB, so that a GiB is a hundredth. */
static inline void setup(void)
{
	struct gm_core_device_info info = fake_info(100 * GiB);
	fake_core_init_asking(&fake);
	d = fake_core_add(&fake, &info);
	policy = info.policy;
	a = fake_session(&fake, 1, 1);
	b = fake_session(&fake, 2, 2);
	c = fake_session(&fake, 3, 3);
}

static inline void teardown(void)
{
	fake_core_deinit(&fake);
}

static inline void no_levels(void)
{
	fake_no_levels(&policy);
	gm_core_set_policy(fake.core, d, &policy);
}

static inline void give(uid_t uid, unsigned set, uint64_t bytes, int32_t priority)
{
	struct gm_owner o;
	struct gm_limit_values v = {
		.set = set, .max = bytes, .guarantee = bytes, .priority = priority};
	gm_owner_by_id(GM_OWNER_UID, uid, &o);
	ck_assert_int_eq(gm_core_set_limit(fake.core, &o, GM_ALL_DEVICES, &v, detail), GPUMEM_OK);
}

/* Returns so many bytes of a lease that is made of chunks of 1 GiB. */
static inline void give_back(struct gm_session *session, struct gm_lease *lease, uint64_t bytes)
{
	uint64_t ids[128];
	size_t n = 0;
	for (const struct gm_chunk *k = gm_lease_chunk(lease, 0); n < bytes / GiB; k = k->next)
		ids[n++] = k->id;
	ck_assert_int_eq(gm_lease_return_chunks(session, lease, ids, n), GPUMEM_OK);
}

static inline size_t asks(void)
{
	size_t n = fake.n_asks;
	fake.n_asks = 0;
	return n;
}

#endif
