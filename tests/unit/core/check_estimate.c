/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/core/estimate.c: memory of a GPU that was destroyed and did not come back. */
#include <string.h>

#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"

/* What the driver has for itself, and what programs have. */
#define OWN    (20 * MiB)
#define OTHERS (100 * MiB)

static struct fake_core fake;
static struct gm_session *s;
static uint32_t d;
static uint64_t programs; /* what NVML says that they have */

static void setup(void)
{
	struct gm_core_device_info info = fake_info(GiB);
	info.policy.pooling = false;
	info.policy.reserve = 0;
	fake_core_init(&fake);
	d = fake_core_add(&fake, &info);
	s = fake_session(&fake, 1, 7);
	programs = OTHERS;
}

static void teardown(void)
{
	fake_core_check(&fake, d);
	fake_core_deinit(&fake);
}

/* A sample. stayed: what was destroyed and somebody still has. */
static void sample(uint64_t stayed, uint64_t attributed)
{
	uint64_t free_bytes = GiB - fake.backend_bytes[d] - OWN - programs - stayed;
	gm_core_sample(fake.core, d, free_bytes);
	if (gm_core_wants_attribution(fake.core, d))
		gm_core_attributed(fake.core, d, free_bytes, attributed);
	fake_core_check(&fake, d);
	struct gm_device_figures f = fake_figures(&fake, d);
	/* No byte is counted twice, and none is missing. */
	ck_assert_uint_eq(f.foreign + f.created + free_bytes, GiB);
}

/* A session leases that much and dies, and somebody keeps all of it. */
static void die_with(uid_t uid, uint64_t bytes)
{
	struct gm_session *dying = fake_session(&fake, uid, uid);
	fake_lease(&fake, dying, d, bytes);
	fake.stays = true;
	gm_session_end_died(dying);
	fake_core_run(&fake);
	fake.stays = false;
}

START_TEST(what_did_not_come_back_and_is_nobodys_is_charged_to_its_uid_until_it_is_gone)
{
	sample(0, programs);
	ck_assert(!gm_core_wants_attribution(fake.core, d));
	ck_assert_uint_eq(fake_figures(&fake, d).foreign, OWN + OTHERS);

	die_with(8, 64 * MiB);
	ck_assert(gm_core_wants_attribution(fake.core, d));
	ck_assert_uint_eq(fake_left_by(&fake, 8, d), 0);
	sample(64 * MiB, programs);
	ck_assert_uint_eq(fake_figures(&fake, d).lingering, 64 * MiB);
	ck_assert_uint_eq(fake_figures(&fake, d).foreign, OWN + OTHERS);
	ck_assert_uint_eq(fake_left_by(&fake, 8, d), 64 * MiB);

	/* Other programs take memory and leave it: that is theirs. */
	programs = 300 * MiB;
	sample(64 * MiB, programs);
	ck_assert_uint_eq(fake_figures(&fake, d).lingering, 64 * MiB);
	programs = 0;
	sample(64 * MiB, programs);
	ck_assert_uint_eq(fake_figures(&fake, d).lingering, 64 * MiB);
	ck_assert_uint_eq(fake_figures(&fake, d).foreign, OWN);

	sample(24 * MiB, programs);
	ck_assert_uint_eq(fake_left_by(&fake, 8, d), 24 * MiB);
	/* What was found to be gone does not come again. */
	sample(64 * MiB, programs);
	ck_assert_uint_eq(fake_left_by(&fake, 8, d), 24 * MiB);
	programs = 500 * MiB;
	sample(0, programs);
	ck_assert_uint_eq(fake_figures(&fake, d).lingering, 0);
	ck_assert_uint_eq(fake_left_by(&fake, 8, d), 0);
	ck_assert(!gm_core_wants_attribution(fake.core, d));
}
END_TEST

START_TEST(what_belongs_to_a_process_is_not_taken_for_it)
{
	sample(0, programs);
	die_with(8, 64 * MiB);
	/* It did come back, but a program took as much at that moment. */
	programs += 64 * MiB;
	sample(0, programs);
	ck_assert_uint_eq(fake_figures(&fake, d).lingering, 0);
	ck_assert(!gm_core_wants_attribution(fake.core, d));
}
END_TEST

START_TEST(the_oldest_debt_is_charged_first)
{
	sample(0, programs);
	die_with(8, 32 * MiB);
	die_with(9, 32 * MiB);
	die_with(8, 16 * MiB);
	sample(80 * MiB, programs);
	ck_assert_uint_eq(fake_left_by(&fake, 8, d), 48 * MiB);
	ck_assert_uint_eq(fake_left_by(&fake, 9, d), 32 * MiB);
	sample(60 * MiB, programs);
	ck_assert_uint_eq(fake_left_by(&fake, 8, d), 48 * MiB);
	ck_assert_uint_eq(fake_left_by(&fake, 9, d), 12 * MiB);
	sample(10 * MiB, programs);
	ck_assert_uint_eq(fake_left_by(&fake, 8, d), 10 * MiB);
	ck_assert_uint_eq(fake_left_by(&fake, 9, d), 0);
}
END_TEST

START_TEST(nobody_else_gets_less_than_if_it_were_foreign)
{
	/* With fraction = 0.5, foreign memory takes nothing from the broker as long as the other half
	 * has room for it. */
	for (int half = 0; half < 2; half++) {
		struct gm_policy policy = fake_figures(&fake, d).policy;
		policy.fraction = half ? 0.5 : 1.0;
		gm_core_set_policy(fake.core, d, &policy);
		sample(0, programs);
		die_with(8, 64 * MiB);
		struct gm_device_figures before, after;
		gm_core_sample(fake.core, d, GiB - OWN - programs - 64 * MiB);
		before = fake_figures(&fake, d);
		sample(64 * MiB, programs);
		after = fake_figures(&fake, d);
		ck_assert_uint_eq(after.lingering, 64 * MiB);
		ck_assert_uint_eq(before.lingering, 0);
		ck_assert_uint_eq(after.available, before.available);
		ck_assert_uint_eq(after.pressure_ppm, before.pressure_ppm);
		sample(0, programs);
	}
}
END_TEST

START_TEST(its_uid_is_refused_by_its_limit_and_another_is_not)
{
	struct fake_request q;
	struct gm_owner owner;
	char detail[GM_DETAIL_BYTES];
	gm_owner_by_id(GM_OWNER_UID, 7, &owner);
	struct gm_quota_values values = {.set = GM_QUOTA_MAX, .max = 64 * MiB};
	ck_assert_int_eq(gm_core_set_quota(fake.core, &owner, d, &values, detail), GPUMEM_OK);
	sample(0, programs);
	die_with(7, 64 * MiB);
	sample(64 * MiB, programs);
	fake_ask(&fake, &q, s, d, 2 * MiB, GM_TRANSPORT_AUTO);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_E_LIMIT);
	fake_lease(&fake, fake_session(&fake, 3, 8), d, 64 * MiB);
	sample(0, programs);
	fake_lease(&fake, s, d, 64 * MiB);
}
END_TEST

START_TEST(where_nobody_can_tell_nothing_lingers)
{
	sample(0, programs);
	die_with(8, 64 * MiB);
	sample(64 * MiB, programs);
	ck_assert_uint_eq(fake_figures(&fake, d).lingering, 64 * MiB);
	sample(64 * MiB, GM_CORE_UNKNOWN);
	ck_assert(!gm_core_wants_attribution(fake.core, d));
	ck_assert_uint_eq(fake_figures(&fake, d).lingering, 0);
	ck_assert_uint_eq(fake_figures(&fake, d).foreign, OWN + OTHERS + 64 * MiB);
	ck_assert_uint_eq(fake_left_by(&fake, 8, d), 0);
}
END_TEST

START_TEST(a_chunk_that_was_pooled_is_a_debt_of_the_uid_that_had_it_last)
{
	struct gm_policy policy = fake_figures(&fake, d).policy;
	policy.pooling = true;
	gm_core_set_policy(fake.core, d, &policy);
	sample(0, programs);
	gm_lease_return(s, fake_lease(&fake, s, d, 64 * MiB));
	ck_assert_uint_eq(fake_figures(&fake, d).pooled, 64 * MiB);
	fake.stays = true;
	uint64_t slice = UINT64_MAX;
	gm_core_trim(fake.core, d, &slice);
	fake_core_run(&fake);
	sample(64 * MiB, programs);
	ck_assert_uint_eq(fake_left_by(&fake, 7, d), 64 * MiB);
	/* The core ends with it. */
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("estimate");
	TCase *tcase = tcase_create("estimate");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase,
		what_did_not_come_back_and_is_nobodys_is_charged_to_its_uid_until_it_is_gone);
	tcase_add_test(tcase, what_belongs_to_a_process_is_not_taken_for_it);
	tcase_add_test(tcase, the_oldest_debt_is_charged_first);
	tcase_add_test(tcase, nobody_else_gets_less_than_if_it_were_foreign);
	tcase_add_test(tcase, its_uid_is_refused_by_its_limit_and_another_is_not);
	tcase_add_test(tcase, where_nobody_can_tell_nothing_lingers);
	tcase_add_test(tcase, a_chunk_that_was_pooled_is_a_debt_of_the_uid_that_had_it_last);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
