/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/device/reserve.c, through the core: what is kept ready, when it is made again and when not.
 */
#include <errno.h>
#include <string.h>

#include "daemon/device/reserve.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"

#define SECOND UINT64_C(1000000000)

static struct fake_core fake;

static void setup(void)
{
	fake_core_init(&fake);
}

static void teardown(void)
{
	fake_core_deinit(&fake);
}

static struct gm_core_device_info with_reserve(uint64_t total, uint64_t reserve)
{
	struct gm_core_device_info info = fake_info(total);
	info.policy.reserve = reserve;
	return info;
}

START_TEST(its_sizes_go_down_by_halves)
{
	struct gm_device device = {.info.total = 64 * GiB};
	const uint32_t *wanted = device.reserve.wanted;
	static const uint32_t of_64m[GM_CHUNK_CLASSES] = {2, 1, 1, 1, 1};
	static const uint32_t of_6m[GM_CHUNK_CLASSES] = {3};
	static const uint32_t of_2m[GM_CHUNK_CLASSES] = {1};
	static const uint32_t none[GM_CHUNK_CLASSES] = {0};
	gm_reserve_set(&device, 64 * MiB);
	ck_assert_mem_eq(wanted, of_64m, sizeof(none));
	gm_reserve_set(&device, 7 * MiB);
	ck_assert_mem_eq(wanted, of_6m, sizeof(none));
	gm_reserve_set(&device, 2 * MiB);
	ck_assert_mem_eq(wanted, of_2m, sizeof(none));
	gm_reserve_set(&device, 2 * MiB - 1);
	ck_assert_mem_eq(wanted, none, sizeof(none));
	/* However large: no more than the device has, and it adds up. */
	gm_reserve_set(&device, UINT64_MAX);
	uint64_t bytes = 0;
	for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++)
		bytes += wanted[c] * (GM_CHUNK_MIN << c);
	ck_assert_uint_eq(bytes, 64 * GiB);
}
END_TEST

START_TEST(what_others_use_from_the_beginning_is_left_to_them)
{
	struct gm_core_device_info info = with_reserve(1 * GiB, 64 * MiB);
	struct gm_device_figures figures;
	info.policy.fraction = 1;
	info.policy.min_free = 512 * MiB;
	info.measured = true;
	info.free_bytes = 516 * MiB;
	uint32_t d = fake_core_add(&fake, &info);
	/* Known before the first job is done, and no job was begun for more than there is. */
	gm_core_device_figures(fake.core, d, &figures);
	ck_assert(figures.measured);
	ck_assert_uint_eq(figures.foreign, 508 * MiB);
	ck_assert_uint_eq(figures.available, 4 * MiB);
	fake_core_run(&fake);
	ck_assert_uint_le(fake.backend_bytes[d], 4 * MiB);
}
END_TEST

START_TEST(every_step_of_a_heap_is_a_hit_and_what_was_taken_is_made_again)
{
	struct gm_core_device_info info = with_reserve(16 * GiB, 64 * MiB);
	uint32_t d = fake_core_add(&fake, &info);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 64 * MiB);
	struct gm_session *s = fake_session(&fake, 1, 1);
	for (uint64_t step = 2 * MiB; step <= 32 * MiB; step += 2 * MiB) {
		struct fake_request q;
		fake_ask(&fake, &q, s, d, step, GM_TRANSPORT_AUTO);
		ck_assert_uint_eq(q.ended, 1);
		ck_assert_int_eq(q.status, GPUMEM_OK);
		ck_assert_uint_gt(fake_core_count(&fake, false), 0);
		/* Jobs of the reserve are in nobody's turn. */
		for (size_t i = 0; i < fake.n_jobs; i++)
			ck_assert_uint_eq(fake.jobs[i].turn, 0);
		fake_core_run(&fake);
		ck_assert_uint_eq(fake_pool(&fake, d).pooled, 64 * MiB);
	}
	ck_assert_uint_eq(fake_pool(&fake, d).misses, 0);
}
END_TEST

START_TEST(it_is_not_made_again_under_pressure)
{
	struct gm_core_device_info info = with_reserve(GiB, 8 * MiB);
	uint32_t d = fake_core_add(&fake, &info);
	fake_core_run(&fake);
	struct gm_session *s = fake_session(&fake, 1, 1);
	struct gm_lease *big = fake_lease(&fake, s, d, 700 * MiB);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_PRESSURE_LEVEL_MEDIUM);
	uint64_t before = fake_pool(&fake, d).pooled;
	fake_lease(&fake, s, d, 2 * MiB);
	ck_assert_uint_eq(fake_core_count(&fake, false), 0);
	ck_assert_uint_lt(fake_pool(&fake, d).pooled, before + 1);
	/* Pressure goes, and after the dwell the level: then it fills. */
	gm_lease_return(s, big);
	gm_core_trim(fake.core, d, &(uint64_t){UINT64_MAX});
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
	uint64_t due = gm_core_tick(fake.core);
	ck_assert_uint_ne(due, UINT64_MAX);
	fake.now = due;
	gm_core_tick(fake.core);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_PRESSURE_LEVEL_LOW);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 8 * MiB);
}
END_TEST

START_TEST(it_stays_within_the_size_of_the_pool_and_its_buckets)
{
	struct gm_core_device_info info = with_reserve(16 * GiB, 64 * MiB);
	info.policy.max_pool = 40 * MiB;
	uint32_t d = fake_core_add(&fake, &info);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 40 * MiB);
	info.policy.max_pool = 0;
	gm_core_set_policy(fake.core, d, &info.policy);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
	info.policy.max_pool = GiB;
	info.policy.max_per_bucket = 1;
	gm_core_set_policy(fake.core, d, &info.policy);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 62 * MiB);
}
END_TEST

START_TEST(used_chunks_make_room_for_it)
{
	struct gm_core_device_info info = with_reserve(16 * GiB, 64 * MiB);
	info.policy.max_pool = 128 * MiB;
	uint32_t d = fake_core_add(&fake, &info);
	fake_core_run(&fake);
	struct gm_session *hog = fake_session(&fake, 1, 1);
	struct gm_lease *small[64];
	for (int i = 0; i < 64; i++)
		small[i] = fake_lease(&fake, hog, d, 2 * MiB);
	fake_core_run(&fake);

	/* The pool is full again when the second one takes of the reserve, and the first one's part is under way. */
	struct fake_request q[3];
	fake_ask(&fake, &q[0], fake_session(&fake, 2, 2), d, 32 * MiB, GM_TRANSPORT_AUTO);
	for (int i = 0; i < 64; i++)
		gm_lease_return(hog, small[i]);
	fake_ask(&fake, &q[1], fake_session(&fake, 3, 3), d, 16 * MiB, GM_TRANSPORT_AUTO);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 128 * MiB);
	fake_ask(&fake, &q[2], fake_session(&fake, 4, 4), d, 62 * MiB, GM_TRANSPORT_AUTO);
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(q[i].ended, 1);
		ck_assert_int_eq(q[i].status, GPUMEM_OK);
	}
	fake_core_run(&fake);
}
END_TEST

START_TEST(a_failure_is_tried_again_later_and_later)
{
	struct gm_core_device_info info = with_reserve(GiB, 2 * MiB);
	uint32_t d = fake_core_add(&fake, &info);
	uint64_t wait = SECOND;
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(fake.n_jobs, 1);
		fake_core_complete(&fake, 0, -ENOMEM);
		ck_assert_uint_eq(fake.n_jobs, 0);
		uint64_t due = gm_core_tick(fake.core);
		ck_assert_uint_eq(due, fake.now + wait);
		/* Samples do not make it hurry. */
		gm_core_sample(fake.core, d, GiB - (uint64_t)i - 1);
		ck_assert_uint_eq(fake.n_jobs, 0);
		fake.now = due;
		gm_core_tick(fake.core);
		wait *= 2;
	}
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 2 * MiB);
	ck_assert_uint_eq(gm_core_tick(fake.core), UINT64_MAX);
}
END_TEST

START_TEST(what_does_not_fit_when_it_is_time_waits_for_an_event)
{
	struct gm_core_device_info info = with_reserve(GiB, 2 * MiB);
	uint32_t d = fake_core_add(&fake, &info);
	fake_core_complete(&fake, 0, -ENOMEM);
	fake.now += SECOND;
	/* Others have taken all of it by now; the level stays low as long as it may. */
	info.policy.level_ppm[0] = info.policy.level_ppm[1] = info.policy.level_ppm[2] = 2000000;
	gm_core_set_policy(fake.core, d, &info.policy);
	fake_core_complete(&fake, 0, -ENOMEM);
	gm_core_sample(fake.core, d, 0);
	fake.now = gm_core_tick(fake.core);
	ck_assert_uint_ne(fake.now, UINT64_MAX);
	ck_assert_uint_eq(gm_core_tick(fake.core), UINT64_MAX);
	ck_assert_uint_eq(fake.n_jobs, 0);
	gm_core_sample(fake.core, d, GiB);
	ck_assert_uint_eq(fake.n_jobs, 1);
}
END_TEST

START_TEST(an_ipc_device_has_none)
{
	struct gm_core_device_info info = with_reserve(GiB, 64 * MiB);
	info.transport_fd = false;
	info.transport_ipc = true;
	fake_core_add(&fake, &info);
	ck_assert_uint_eq(fake.n_jobs, 0);
}
END_TEST

/* The time after a failure is for who has a reserve to make: where there is none, nothing is due.
 */
START_TEST(an_ipc_device_is_not_woken_for_the_reserve_that_it_has_not)
{
	struct gm_core_device_info info = with_reserve(GiB, 0);
	struct gm_session *session;
	struct fake_request q;
	info.transport_fd = false;
	info.transport_ipc = true;
	uint32_t d = fake_core_add(&fake, &info);
	session = fake_session(&fake, 1, 1000);
	fake_ask(&fake, &q, session, d, 4 * MiB, GM_TRANSPORT_IPC);
	fake_core_complete(&fake, 0, -ENOMEM);
	fake_core_complete(&fake, 0, -ENOMEM);
	ck_assert_uint_eq(q.ended, 1);
	fake.now += 2 * SECOND;
	ck_assert_uint_eq(gm_core_tick(fake.core), UINT64_MAX);
}
END_TEST

START_TEST(a_trim_takes_it_and_it_fills_again)
{
	struct gm_core_device_info info = with_reserve(GiB, 16 * MiB);
	uint32_t d = fake_core_add(&fake, &info);
	fake_core_run(&fake);
	ck_assert_uint_eq(gm_core_trim(fake.core, d, &(uint64_t){UINT64_MAX}), 16 * MiB);
	ck_assert_uint_eq(fake_figures(&fake, d).reclaim_epoch, 1);
	ck_assert_uint_eq(fake_figures(&fake, d).pooled, 0);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_figures(&fake, d).pooled, 16 * MiB);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("reserve");
	TCase *tcase = tcase_create("reserve");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, its_sizes_go_down_by_halves);
	tcase_add_test(tcase, what_others_use_from_the_beginning_is_left_to_them);
	tcase_add_test(tcase, every_step_of_a_heap_is_a_hit_and_what_was_taken_is_made_again);
	tcase_add_test(tcase, it_is_not_made_again_under_pressure);
	tcase_add_test(tcase, it_stays_within_the_size_of_the_pool_and_its_buckets);
	tcase_add_test(tcase, used_chunks_make_room_for_it);
	tcase_add_test(tcase, a_failure_is_tried_again_later_and_later);
	tcase_add_test(tcase, what_does_not_fit_when_it_is_time_waits_for_an_event);
	tcase_add_test(tcase, an_ipc_device_has_none);
	tcase_add_test(tcase, an_ipc_device_is_not_woken_for_the_reserve_that_it_has_not);
	tcase_add_test(tcase, a_trim_takes_it_and_it_fills_again);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
