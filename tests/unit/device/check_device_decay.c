/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/device/device_decay.c, through the core: which chunks leave the pool by themselves, and when. */
#include <string.h>

#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"

#define SECOND UINT64_C(1000000000)
#define DECAY  (60 * SECOND)

static struct fake_core fake;

static void setup(void)
{
	fake_core_init_asking(&fake);
}

static void teardown(void)
{
	fake_core_deinit(&fake);
}

static uint32_t add(uint64_t total, uint64_t reserve)
{
	struct gm_core_device_info info = fake_info(total);
	info.transport_ipc = true;
	info.policy.pool_decay_ns = DECAY;
	info.policy.reserve = reserve;
	uint32_t d = fake_core_add(&fake, &info);
	fake_core_run(&fake);
	return d;
}

/* Moves the clock, tick by tick, and does the jobs that come of it. */
static void pass(uint64_t ns)
{
	uint64_t end = fake.now + ns;
	for (;;) {
		uint64_t next = gm_core_tick(fake.core);
		fake_core_run(&fake);
		if (next == fake.now)
			continue;
		if (next > end)
			break;
		fake.now = next;
	}
	fake.now = end;
	gm_core_tick(fake.core);
	fake_core_run(&fake);
}

/* A client takes so much and leaves in good order. */
static void use(uint32_t d, gm_domain domain, uint64_t bytes, enum gm_transport transport)
{
	struct gm_session *session = fake_session(&fake, domain, (uid_t)domain);
	struct fake_request q;
	fake_ask(&fake, &q, session, d, bytes, transport);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	gm_lease_return(session, q.r.lease);
	gm_session_end_died(session);
}

START_TEST(a_chunk_that_nobody_took_in_time_goes_back_to_the_device)
{
	uint32_t d = add(GiB, 0);
	use(d, 1, 32 * MiB, GM_TRANSPORT_FD);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 32 * MiB);
	ck_assert_uint_eq(fake.wake_ns, fake.now + DECAY);

	pass(DECAY - 1);
	ck_assert_uint_eq(fake.backend_bytes[d], 32 * MiB);
	pass(1);
	ck_assert_uint_eq(fake.backend_bytes[d], 0);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
	ck_assert_uint_eq(fake_pool(&fake, d).released, 1);
	ck_assert_uint_eq(fake_figures(&fake, d).free, GiB);
	/* Nothing is left to wait for. */
	ck_assert_uint_eq(gm_core_tick(fake.core), UINT64_MAX);
	fake_core_check(&fake, d);
}
END_TEST

START_TEST(a_chunk_that_is_taken_in_time_starts_anew)
{
	uint32_t d = add(GiB, 0);
	use(d, 1, 32 * MiB, GM_TRANSPORT_FD);
	pass(DECAY - 1);
	use(d, 1, 32 * MiB, GM_TRANSPORT_FD);
	ck_assert_uint_eq(fake_pool(&fake, d).hits, 1);
	pass(DECAY - 1);
	ck_assert_uint_eq(fake.backend_bytes[d], 32 * MiB);
	pass(1);
	ck_assert_uint_eq(fake.backend_bytes[d], 0);
}
END_TEST

START_TEST(a_chunk_in_use_does_not_decay)
{
	uint32_t d = add(GiB, 0);
	struct gm_session *session = fake_session(&fake, 1, 1);
	use(d, 1, 32 * MiB, GM_TRANSPORT_FD);
	fake_lease(&fake, session, d, 32 * MiB);
	pass(2 * DECAY);
	ck_assert_uint_eq(fake_figures(&fake, d).leased, 32 * MiB);
	ck_assert_uint_eq(fake.backend_bytes[d], 32 * MiB);
}
END_TEST

START_TEST(every_trust_domain_and_both_transports_decay_each_in_its_time)
{
	uint32_t d = add(GiB, 0);
	for (gm_domain domain = 1; domain <= 3; domain++) {
		use(d, domain, 4 * MiB, GM_TRANSPORT_FD);
		use(d, domain, 4 * MiB, GM_TRANSPORT_IPC);
		fake.now += SECOND;
	}
	ck_assert_uint_eq(fake.backend_bytes[d], 24 * MiB);

	/* The first has been there for three seconds. */
	pass(DECAY - 3 * SECOND);
	ck_assert_uint_eq(fake.backend_bytes[d], 16 * MiB);
	pass(SECOND);
	ck_assert_uint_eq(fake.backend_bytes[d], 8 * MiB);
	pass(SECOND);
	ck_assert_uint_eq(fake.backend_bytes[d], 0);
}
END_TEST

START_TEST(devices_decay_each_by_its_own_policy)
{
	struct gm_core_device_info info = fake_info(GiB);
	uint32_t slow = add(GiB, 0);
	info.policy.pool_decay_ns = SECOND;
	uint32_t fast = fake_core_add(&fake, &info);
	use(slow, 1, 4 * MiB, GM_TRANSPORT_FD);
	use(fast, 1, 4 * MiB, GM_TRANSPORT_FD);
	pass(SECOND);
	ck_assert_uint_eq(fake.backend_bytes[fast], 0);
	ck_assert_uint_eq(fake.backend_bytes[slow], 4 * MiB);
	pass(DECAY);
	ck_assert_uint_eq(fake.backend_bytes[slow], 0);
}
END_TEST

START_TEST(the_reserve_stays_and_wakes_nobody)
{
	uint32_t d = add(GiB, 64 * MiB);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 64 * MiB);
	ck_assert_uint_eq(gm_core_tick(fake.core), UINT64_MAX);

	/* One chunk of it is used: it decays, and another has taken its place. */
	use(d, 1, 32 * MiB, GM_TRANSPORT_FD);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 96 * MiB);
	pass(10 * DECAY);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 64 * MiB);
	ck_assert_uint_eq(fake_pool(&fake, d).released, 1);
	ck_assert_uint_eq(gm_core_tick(fake.core), UINT64_MAX);
}
END_TEST

/* A chunk that was made for a request which ended first is fresh, but not of the reserve. */
static void leave_unclaimed(uint32_t d, uint64_t bytes)
{
	struct gm_session *session = fake_session(&fake, 1, 1);
	struct fake_request q;
	fake_ask(&fake, &q, session, d, bytes, GM_TRANSPORT_FD);
	gm_core_cancel(fake.core, &q.r);
	fake_core_run(&fake);
	gm_session_end_died(session);
}

START_TEST(fresh_chunks_beyond_the_reserve_decay)
{
	uint32_t d = add(4 * GiB, 16 * MiB);
	fake.calls_off = false;
	leave_unclaimed(d, 512 * MiB);
	uint64_t pooled = fake_pool(&fake, d).pooled;
	ck_assert_uint_gt(pooled, 500 * MiB);
	pass(DECAY - 1);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, pooled);
	pass(1);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 16 * MiB);
}
END_TEST

START_TEST(what_is_beyond_a_smaller_reserve_goes_at_once)
{
	struct gm_core_device_info info = fake_info(GiB);
	uint32_t d = add(GiB, 64 * MiB);
	info.policy.pool_decay_ns = DECAY;
	info.policy.reserve = 16 * MiB;
	gm_core_set_policy(fake.core, d, &info.policy);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 16 * MiB);
	pass(2 * DECAY);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 16 * MiB);
}
END_TEST

START_TEST(a_new_policy_counts_for_what_is_pooled_already)
{
	struct gm_core_device_info info = fake_info(GiB);
	uint32_t d = add(GiB, 0);
	use(d, 1, 32 * MiB, GM_TRANSPORT_FD);
	pass(10 * SECOND);

	/* Off: nothing decays. */
	info.policy.pool_decay_ns = 0;
	gm_core_set_policy(fake.core, d, &info.policy);
	pass(100 * DECAY);
	ck_assert_uint_eq(fake.backend_bytes[d], 32 * MiB);
	ck_assert_uint_eq(gm_core_tick(fake.core), UINT64_MAX);

	use(d, 1, 32 * MiB, GM_TRANSPORT_FD);
	info.policy.pool_decay_ns = 5 * SECOND;
	gm_core_set_policy(fake.core, d, &info.policy);
	ck_assert_uint_eq(fake.wake_ns, fake.now + 5 * SECOND);
	pass(5 * SECOND);
	ck_assert_uint_eq(fake.backend_bytes[d], 0);
}
END_TEST

START_TEST(a_large_pool_goes_in_slices_and_requests_do_not_wait_for_it)
{
	uint32_t d = add(16 * GiB, 0);
	struct gm_session *session = fake_session(&fake, 1, 1);
	struct gm_lease *leases[100];
	for (int i = 0; i < 100; i++)
		leases[i] = fake_lease(&fake, session, d, 2 * MiB);
	for (int i = 0; i < 100; i++)
		gm_lease_return(session, leases[i]);
	fake.now += DECAY;
	gm_core_tick(fake.core);

	/* A slice is under way. A request gets a chunk from the pool, or a new one behind the
	 * slice. */
	size_t slice = fake_core_count(&fake, true);
	ck_assert_uint_gt(slice, 0);
	ck_assert_uint_le(slice, 8);
	struct fake_request q;
	fake_ask(&fake, &q, session, d, 2 * MiB, GM_TRANSPORT_FD);
	ck_assert_uint_eq(q.ended, 1);
	gm_core_tick(fake.core);
	ck_assert_uint_eq(fake_core_count(&fake, true), slice);

	size_t most = 0, rounds = 0;
	while (fake.n_jobs > 0) {
		fake_core_complete(&fake, 0, 0);
		most = fake.n_jobs > most ? fake.n_jobs : most;
		rounds++;
	}
	ck_assert_uint_le(most, 8);
	ck_assert_uint_eq(rounds, 99);
	ck_assert_uint_eq(fake.backend_bytes[d], 2 * MiB);
}
END_TEST

START_TEST(large_chunks_go_one_at_a_time)
{
	uint32_t d = add(16 * GiB, 0);
	struct gm_session *session = fake_session(&fake, 1, 1);
	struct gm_lease *lease = fake_lease(&fake, session, d, 3 * GiB);
	gm_lease_return(session, lease);
	fake.now += DECAY;
	gm_core_tick(fake.core);
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(fake.n_jobs, 1);
		ck_assert_uint_eq(fake.jobs[0].chunk->bytes, GiB);
		fake_core_complete(&fake, 0, 0);
	}
	ck_assert_uint_eq(fake.n_jobs, 0);
}
END_TEST

START_TEST(what_is_left_when_a_slice_ends_goes_in_its_own_time)
{
	uint32_t d = add(GiB, 0);
	use(d, 1, 4 * MiB, GM_TRANSPORT_FD);
	fake.now += 10 * SECOND;
	use(d, 2, 4 * MiB, GM_TRANSPORT_FD);
	fake.now += DECAY - 10 * SECOND;
	/* While the first is being destroyed, nothing is due. */
	ck_assert_uint_eq(gm_core_tick(fake.core), UINT64_MAX);
	ck_assert_uint_eq(fake.n_jobs, 1);
	fake_core_complete(&fake, 0, 0);
	ck_assert_uint_eq(fake.wake_ns, fake.now + 10 * SECOND);
}
END_TEST

START_TEST(a_stop_in_the_middle_of_a_slice_loses_nothing)
{
	uint32_t d = add(16 * GiB, 0);
	use(d, 1, 3 * GiB, GM_TRANSPORT_FD);
	fake.now += DECAY;
	gm_core_tick(fake.core);
	ck_assert_uint_eq(fake_core_count(&fake, true), 1);
	gm_core_shutdown(fake.core);
	fake_core_run(&fake);
	ck_assert(gm_core_idle(fake.core));
	ck_assert_uint_eq(fake.backend_bytes[d], 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("decay");
	TCase *tcase = tcase_create("decay");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_chunk_that_nobody_took_in_time_goes_back_to_the_device);
	tcase_add_test(tcase, a_chunk_that_is_taken_in_time_starts_anew);
	tcase_add_test(tcase, a_chunk_in_use_does_not_decay);
	tcase_add_test(tcase, every_trust_domain_and_both_transports_decay_each_in_its_time);
	tcase_add_test(tcase, devices_decay_each_by_its_own_policy);
	tcase_add_test(tcase, the_reserve_stays_and_wakes_nobody);
	tcase_add_test(tcase, fresh_chunks_beyond_the_reserve_decay);
	tcase_add_test(tcase, what_is_beyond_a_smaller_reserve_goes_at_once);
	tcase_add_test(tcase, a_new_policy_counts_for_what_is_pooled_already);
	tcase_add_test(tcase, a_large_pool_goes_in_slices_and_requests_do_not_wait_for_it);
	tcase_add_test(tcase, large_chunks_go_one_at_a_time);
	tcase_add_test(tcase, what_is_left_when_a_slice_ends_goes_in_its_own_time);
	tcase_add_test(tcase, a_stop_in_the_middle_of_a_slice_loses_nothing);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
