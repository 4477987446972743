/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/lease/orphan_chunk.c: memory that somebody still reaches. */
#include <string.h>

#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"

#define SECOND UINT64_C(1000000000)
/* By then, a chunk that is gone has been found. */
#define AT_LAST (7 * SECOND)

static struct fake_core fake;
static struct gm_session *s;
static uint32_t d;

static void setup(void)
{
	struct gm_core_device_info info = fake_info(GiB);
	fake_core_init_asking(&fake);
	d = fake_core_add(&fake, &info);
	s = fake_session(&fake, 1, 7);
}

static void teardown(void)
{
	fake_core_check(&fake, d);
	fake_core_deinit(&fake);
}

/* Moves the clock, tick by tick, and does the jobs that come of it. */
static void pass(uint64_t ns)
{
	uint64_t end = fake.now + ns;
	for (uint64_t next = gm_core_tick(fake.core); next <= end; next = gm_core_tick(fake.core)) {
		fake_core_run(&fake);
		fake.now = next > fake.now ? next : fake.now;
	}
	fake.now = end;
	gm_core_tick(fake.core);
	fake_core_run(&fake);
}

static void limit_uid(uint64_t max)
{
	struct gm_owner owner;
	char detail[GM_DETAIL_BYTES];
	gm_owner_by_id(GM_OWNER_UID, 7, &owner);
	struct gm_limit_values values = {.set = GM_LIMIT_MAX, .max = max};
	ck_assert_int_eq(gm_core_set_limit(fake.core, &owner, d, &values, detail), GPUMEM_OK);
}

START_TEST(what_a_dead_process_left_mapped_stays_charged_to_its_uid_until_it_is_gone)
{
	struct fake_request q;
	limit_uid(64 * MiB);
	fake_lease(&fake, s, d, 64 * MiB);
	fake.in_use = true;
	gm_session_end_died(s);
	fake_core_run(&fake);
	struct gm_device_figures f = fake_figures(&fake, d);
	ck_assert_uint_eq(f.orphaned, 64 * MiB);
	ck_assert_uint_eq(f.quarantined, 64 * MiB);
	ck_assert_uint_eq(f.available, GiB - 64 * MiB);
	ck_assert_uint_eq(fake_left_by(&fake, 7, d), 64 * MiB);
	fake_core_check(&fake, d);

	s = fake_session(&fake, 1, 7);
	fake_ask(&fake, &q, s, d, 2 * MiB, GM_TRANSPORT_AUTO);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_E_LIMIT);
	pass(60 * SECOND);
	ck_assert_uint_eq(fake_figures(&fake, d).orphaned, 64 * MiB);

	fake.in_use = false;
	pass(AT_LAST);
	ck_assert_uint_eq(fake_figures(&fake, d).orphaned, 0);
	ck_assert_uint_eq(fake_left_by(&fake, 7, d), 0);
	ck_assert_uint_eq(fake.backend_bytes[d], 0);
	ck_assert_uint_eq(gm_core_tick(fake.core), UINT64_MAX);
}
END_TEST

START_TEST(what_is_returned_falsely_is_not_pooled)
{
	struct gm_lease *lease = fake_lease(&fake, s, d, 6 * MiB);
	uint64_t id = gm_lease_chunk(lease, 0)->id;
	fake.in_use = true;
	ck_assert_int_eq(gm_lease_return_chunks(s, lease, &id, 1), GPUMEM_OK);
	ck_assert_int_eq(gm_lease_return_chunks(s, lease, &id, 1), GPUMEM_E_NOT_FOUND);
	gm_lease_return(s, lease);
	ck_assert_uint_eq(gm_session_held(s, d), 0);
	ck_assert_uint_eq(fake_figures(&fake, d).pooled, 0);
	ck_assert_uint_eq(fake_figures(&fake, d).orphaned, 6 * MiB);

	/* Even when it is gone at last: nobody knows what was done with it. */
	fake.in_use = false;
	pass(AT_LAST);
	ck_assert_uint_eq(fake_figures(&fake, d).created, 0);
	fake_lease(&fake, s, d, 6 * MiB);
	ck_assert_uint_eq(fake_pool(&fake, d).hits, 0);
}
END_TEST

START_TEST(a_request_that_waits_is_granted_when_the_memory_is_gone)
{
	struct fake_request q;
	fake_lease(&fake, s, d, GiB);
	fake.in_use = true;
	gm_session_end_died(s);
	s = fake_session(&fake, 2, 8);
	fake_wait(&fake, &q, s, d, GiB, GM_WAIT_FOREVER);
	pass(60 * SECOND);
	ck_assert(!q.ended);

	fake.in_use = false;
	pass(AT_LAST);
	ck_assert(q.ended);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

START_TEST(a_call_looks_at_few_chunks_and_the_same_chunk_more_and_more_rarely)
{
	enum { CHUNKS = 200 };
	struct gm_lease *lease = fake_lease(&fake, s, d, 2 * MiB);
	for (int i = 1; i < CHUNKS; i++) {
		struct fake_request q;
		fake_grow(&fake, &q, s, lease, 2 * MiB);
		fake_core_run(&fake);
		ck_assert_int_eq(q.status, GPUMEM_OK);
	}
	fake.in_use = true;
	gm_session_end_died(s);
	fake.looks = 0;
	for (int i = 0; i < 1000; i++) {
		uint64_t before = fake.looks, next = gm_core_tick(fake.core);
		ck_assert_uint_le(fake.looks - before, 64);
		fake.now = next > fake.now ? next : fake.now;
	}
	/* Each chunk was looked at equally often, within one. */
	uint64_t looks = fake.looks, time = fake.now;
	ck_assert_uint_gt(looks, CHUNKS);
	pass(64 * SECOND);
	ck_assert_uint_le(fake.looks - looks, (64 / 6 + 1) * CHUNKS);
	ck_assert_uint_gt(fake.now, time);

	fake.in_use = false;
	pass(AT_LAST);
	ck_assert_uint_eq(fake.backend_bytes[d], 0);
}
END_TEST

START_TEST(a_shared_lease_is_orphaned_at_the_expense_of_its_maker)
{
	fake.for_others = true;
	struct gm_session *other = fake_session(&fake, 2, 8);
	struct gm_lease *lease = fake_lease(&fake, s, d, 4 * MiB), *opened;
	struct gm_token_options options = {.audience = GM_NAME_AUDIENCE_UID, .id = 8};
	uint8_t token[GM_TOKEN_BYTES];
	ck_assert_int_eq(gm_lease_share(s, lease, &options, token), GPUMEM_OK);
	ck_assert_int_eq(gm_session_open(other, token, NULL, 0, &opened), GPUMEM_OK);
	gm_lease_return(s, lease);
	fake.in_use = true;
	gm_session_end_died(other);
	ck_assert_uint_eq(fake_left_by(&fake, 7, d), 4 * MiB);
	ck_assert_uint_eq(fake_left_by(&fake, 8, d), 0);
	ck_assert_uint_eq(fake_figures(&fake, d).orphaned, 4 * MiB);
}
END_TEST

START_TEST(a_deadlock_is_found_only_some_time_after_the_last_of_it_was_gone)
{
	struct gm_session *other = fake_session(&fake, 2, 8), *dead = fake_session(&fake, 3, 9);
	static struct fake_request a, b; /* one of them waits to the end */
	fake_lease(&fake, s, d, 256 * MiB);
	fake_lease(&fake, other, d, 256 * MiB);
	fake_lease(&fake, dead, d, 2 * MiB);
	fake.in_use = true;
	gm_session_end_died(dead);
	fake_wait(&fake, &a, s, d, 768 * MiB, GM_WAIT_FOREVER);
	fake_wait(&fake, &b, other, d, 768 * MiB, GM_WAIT_FOREVER);
	pass(600 * SECOND);
	ck_assert(!a.ended && !b.ended);

	/* It is found to be gone within 7 s. From then on the clients have their time again. */
	fake.in_use = false;
	while (fake_figures(&fake, d).orphaned > 0)
		pass(SECOND / 10);
	pass(9 * SECOND);
	ck_assert(!a.ended && !b.ended);
	pass(2 * SECOND);
	ck_assert(a.ended || b.ended);
	ck_assert_int_eq(a.ended ? a.status : b.status, GPUMEM_E_DEADLOCK);
}
END_TEST

START_TEST(the_end_of_the_core_does_not_wait_for_it)
{
	fake_lease(&fake, s, d, 64 * MiB);
	fake.in_use = true;
	gm_session_end_died(s);
	ck_assert_uint_eq(fake_figures(&fake, d).orphaned, 64 * MiB);
	gm_core_shutdown(fake.core);
	fake_core_run(&fake);
	ck_assert(gm_core_idle(fake.core));
	ck_assert_uint_eq(fake.backend_bytes[d], 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("are orphaned");
	TCase *tcase = tcase_create("are orphaned");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(
		tcase, what_a_dead_process_left_mapped_stays_charged_to_its_uid_until_it_is_gone);
	tcase_add_test(tcase, what_is_returned_falsely_is_not_pooled);
	tcase_add_test(tcase, a_request_that_waits_is_granted_when_the_memory_is_gone);
	tcase_add_test(tcase, a_call_looks_at_few_chunks_and_the_same_chunk_more_and_more_rarely);
	tcase_add_test(tcase, a_shared_lease_is_orphaned_at_the_expense_of_its_maker);
	tcase_add_test(tcase, a_deadlock_is_found_only_some_time_after_the_last_of_it_was_gone);
	tcase_add_test(tcase, the_end_of_the_core_does_not_wait_for_it);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
