/* SPDX-License-Identifier: Apache-2.0 */
/* A backend that has no memory for what fits (gm_queue_deny()), through the core: reclaim is
 * climbed as for any request, within the request's time, and the refusal names what is foreign. */
#include <errno.h>
#include <string.h>

#include "daemon/queue/queue.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"

#define SECOND UINT64_C(1000000000)
#define MS     UINT64_C(1000000)

static struct fake_core fake;
static uint32_t d;
static struct gm_session *a, *b;
static struct fake_request q, p;

static void setup(void)
{
	struct gm_core_device_info info = fake_info(4 * GiB);
	fake_no_levels(&info.policy);
	fake_core_init_probing(&fake);
	d = fake_core_add(&fake, &info);
	a = fake_session(&fake, 1, 1);
	b = fake_session(&fake, 2, 2);
	memset(&q, 0, sizeof(q));
	memset(&p, 0, sizeof(p));
}

static void teardown(void)
{
	fake_core_deinit(&fake);
}

/* All that is to be made fails, and again when it is tried once more. */
static void deny(void)
{
	for (int i = 0; i < 2; i++)
		for (size_t n = fake_core_count(&fake, false); n > 0; n--) {
			size_t k = 0;
			while (fake.jobs[k].destroy)
				k++;
			fake_core_complete(&fake, k, -ENOMEM);
		}
}

START_TEST(clients_are_asked_for_what_could_not_be_made_and_it_is_tried_again_when_it_came)
{
	struct gm_lease *lease = fake_lease(&fake, b, d, GiB);
	fake_says(&fake, b, d, GiB, 0);
	fake_ask(&fake, &q, a, d, GiB, GM_TRANSPORT_AUTO);
	deny();
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_uint_eq(gm_session_held(a, d), 0);
	ck_assert_uint_eq(fake_queue_length(&fake, d), 1);
	const struct gm_reclaim_message *ask = fake_asked(&fake, b);
	ck_assert_ptr_nonnull(ask);
	ck_assert_uint_eq(ask->bytes, GiB);
	ck_assert_int_eq(ask->stage, GM_STAGE_CACHED);
	/* Nothing came yet: nothing is tried. */
	ck_assert_uint_eq(fake_core_count(&fake, false), 0);
	gm_lease_return(b, lease);
	ck_assert_uint_eq(fake_core_count(&fake, false), 1);
	/* Pooled for its domain, it is no help to another one until the pool is dropped. */
	fake_core_complete(&fake, 0, -ENOMEM);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
	fake_core_run(&fake);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	fake_core_check(&fake, d);
}
END_TEST

START_TEST(where_nobody_can_be_asked_it_is_refused_and_foreign_use_is_named)
{
	fake_ask(&fake, &q, a, d, 66 * MiB, GM_TRANSPORT_AUTO);
	fake_core_complete(&fake, 0, -ENOMEM);
	fake_core_complete(&fake, 0, -ENOMEM);
	gm_core_sample(fake.core, d, GiB);
	fake_core_complete(&fake, 0, -ENOMEM);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	ck_assert_ptr_nonnull(strstr(q.detail, "out of memory: it could not make 66.0M"));
	ck_assert_ptr_nonnull(strstr(q.detail, "3.0G of it are used outside the broker"));
	ck_assert_uint_eq(gm_session_held(a, d), 0);
	fake_core_run(&fake);
}
END_TEST

START_TEST(a_client_that_ignores_it_costs_no_more_than_the_deadlines)
{
	fake_lease(&fake, b, d, GiB);
	fake_says(&fake, b, d, GiB, 0);
	fake_ask(&fake, &q, a, d, GiB, GM_TRANSPORT_AUTO);
	deny();
	ck_assert_uint_eq(q.ended, 0);
	fake_pass(&fake, 200 * MS);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	ck_assert_ptr_nonnull(strstr(q.detail, "out of memory"));
	fake_core_check(&fake, d);
}
END_TEST

START_TEST(what_others_took_since_the_last_sample_is_what_is_lacking)
{
	struct gm_lease *lease = fake_lease(&fake, b, d, 2 * GiB);
	fake_says(&fake, b, d, GiB, 0);
	fake_ask(&fake, &q, a, d, 2 * GiB, GM_TRANSPORT_AUTO);
	/* The thread looks before it tells of a failure: a program has 1 GiB of what was free. */
	gm_core_sample(fake.core, d, GiB);
	deny();
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_uint_eq(fake_asked(&fake, b)->bytes, 2 * GiB);
	ck_assert_uint_eq(fake.n_jobs, 0);
	/* With half of it back it fits beside that program. */
	uint64_t id = gm_lease_chunk(lease, 0)->id;
	ck_assert_int_eq(gm_lease_return_chunks(b, lease, &id, 1), GPUMEM_OK);
	ck_assert_uint_gt(fake_core_count(&fake, false), 0);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	fake_core_check(&fake, d);
}
END_TEST

START_TEST(one_that_waits_goes_back_to_its_place_and_is_tried_when_something_came_back)
{
	struct gm_lease *lease = fake_lease(&fake, b, d, 3 * GiB);
	fake_wait(&fake, &q, a, d, GiB, 10 * SECOND);
	fake_wait(&fake, &p, a, d, 2 * GiB, 10 * SECOND);
	ck_assert_uint_eq(fake_core_count(&fake, false), 1);
	deny();
	ck_assert_uint_eq(fake_queue_length(&fake, d), 2);
	const struct fake_event *told = fake_told(&fake, GM_EVENT_QUEUED);
	ck_assert_ptr_nonnull(strstr(told->text, "waits: device 0 is out of memory"));
	/* Both lack memory now, and the first to come is the first to go. */
	gm_lease_return(b, lease);
	size_t first = 0;
	while (fake.jobs[first].destroy)
		first++;
	ck_assert_ptr_eq(fake.jobs[first].chunk->request, &q.r);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	ck_assert_int_eq(p.status, GPUMEM_OK);
	fake_core_check(&fake, d);
}
END_TEST

START_TEST(one_that_waits_is_tried_again_from_time_to_time_and_ends_in_time)
{
	fake_wait(&fake, &q, a, d, GiB, 3 * SECOND + SECOND / 2);
	for (int i = 0; i < 4; i++) {
		ck_assert_uint_eq(fake_core_count(&fake, false), 1);
		deny();
		ck_assert_uint_eq(fake_core_count(&fake, false), 0);
		fake_pass(&fake, SECOND - 1);
		if (i < 3)
			ck_assert_uint_eq(fake_core_count(&fake, false), 0);
		fake_pass(&fake, 1);
	}
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_E_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(q.detail, ": device 0 is out of memory"));
	ck_assert_uint_eq(fake.n_jobs, 0);
}
END_TEST

START_TEST(its_time_counts_from_its_arrival_however_long_the_device_takes)
{
	fake_lease(&fake, b, d, GiB);
	fake_says(&fake, b, d, GiB, 0);
	fake_wait(&fake, &q, a, d, GiB, 3 * SECOND);
	fake_pass(&fake, 2 * SECOND);
	deny();
	ck_assert_uint_eq(fake_queue_length(&fake, d), 1);
	fake_pass(&fake, SECOND - 1);
	ck_assert_uint_eq(q.ended, 0);
	fake_pass(&fake, 1);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_E_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(q.detail, "waited 3"));
}
END_TEST

START_TEST(one_whose_time_is_over_when_it_is_denied_ends_at_once_and_disturbs_nobody)
{
	fake_lease(&fake, b, d, GiB);
	fake_says(&fake, b, d, GiB, 0);
	fake_wait(&fake, &q, a, d, GiB, 3 * SECOND);
	fake_pass(&fake, 4 * SECOND);
	deny();
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_E_TIMEOUT);
	ck_assert_ptr_null(fake_asked(&fake, b));
	/* One that may not wait is refused when clients had their time to return what it lacks. */
	fake_wait(&fake, &p, a, d, GiB, GM_WAIT_NEVER);
	fake_pass(&fake, 4 * SECOND);
	deny();
	ck_assert_uint_eq(p.ended, 0);
	ck_assert_ptr_nonnull(fake_asked(&fake, b));
	fake_pass(&fake, 4 * SECOND);
	ck_assert_uint_eq(p.ended, 1);
	ck_assert_int_eq(p.status, GPUMEM_E_NO_MEMORY);
}
END_TEST

START_TEST(what_it_gives_back_itself_is_no_reason_to_try_again)
{
	/* Somebody holds and ignores, so that it stays; of its two chunks one is made. */
	fake_lease(&fake, b, d, 2 * MiB);
	fake_wait(&fake, &q, a, d, GiB + 2 * MiB, 10 * SECOND);
	ck_assert_uint_eq(fake_core_count(&fake, false), 2);
	fake_core_complete(&fake, 1, 0);
	fake_core_complete(&fake, 0, -ENOMEM);
	fake_core_complete(&fake, fake.n_jobs - 1, -ENOMEM);
	ck_assert_uint_eq(q.ended, 0);
	while (fake.n_jobs > 0)
		fake_core_complete(&fake, 0, 0);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_uint_eq(fake_queue_length(&fake, d), 1);
	fake_core_check(&fake, d);
	gm_core_cancel(fake.core, &q.r);
}
END_TEST

START_TEST(what_goes_away_outside_the_broker_is_a_reason_to_try_again)
{
	gm_core_sample(fake.core, d, 2 * GiB);
	fake_wait(&fake, &q, a, d, GiB, 10 * SECOND);
	deny();
	ck_assert_uint_eq(fake.n_jobs, 0);
	/* It fits, but has been denied: so the device is looked at while it waits. */
	fake_pass(&fake, 20 * MS);
	ck_assert(fake.probing);
	fake_probed(&fake, d, 2 * GiB);
	ck_assert_uint_eq(fake.n_jobs, 0);
	fake_pass(&fake, 20 * MS);
	fake_probed(&fake, d, GiB);
	ck_assert_uint_eq(fake_core_count(&fake, false), 1);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

START_TEST(a_lease_that_grows_is_denied_its_growth_alone)
{
	struct gm_lease *lease = fake_lease(&fake, a, d, GiB);
	fake_grow(&fake, &q, a, lease, GiB);
	deny();
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	ck_assert_uint_eq(gm_session_held(a, d), GiB);
	ck_assert_uint_eq(fake_chunks(lease), 1);
	fake_core_check(&fake, d);
}
END_TEST

START_TEST(one_that_was_denied_goes_with_its_client)
{
	fake_wait(&fake, &p, b, d, 2 * GiB, 10 * SECOND);
	deny();
	ck_assert_uint_eq(p.ended, 0);
	gm_session_end_died(b);
	ck_assert_int_eq(p.status, GPUMEM_E_CANCELLED);
	fake_core_run(&fake);
	fake_core_check(&fake, d);
}
END_TEST

START_TEST(a_queue_that_is_full_takes_no_one_back)
{
	struct gm_session *twin = fake_session(&fake, 7, gm_session_info(a)->uid);
	static struct fake_request many[GM_BOUND_WAITING_PER_UID];
	fake_wait(&fake, &q, a, d, GiB, 10 * SECOND);
	for (size_t i = 0; i < GM_BOUND_WAITING_PER_UID; i++)
		fake_wait(&fake, &many[i], twin, d, 4 * GiB, 10 * SECOND);
	ck_assert_uint_eq(fake_queue_length(&fake, d), GM_BOUND_WAITING_PER_UID);
	fake_core_complete(&fake, 0, -ENOMEM);
	fake_core_complete(&fake, 0, -ENOMEM);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	ck_assert_ptr_nonnull(
		strstr(q.detail, "1024 requests that wait for device 0, which is the most"));
	gm_session_end_died(twin);
	fake_core_run(&fake);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("deny");
	TCase *tcase = tcase_create("deny");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase,
		clients_are_asked_for_what_could_not_be_made_and_it_is_tried_again_when_it_came);
	tcase_add_test(tcase, where_nobody_can_be_asked_it_is_refused_and_foreign_use_is_named);
	tcase_add_test(tcase, a_client_that_ignores_it_costs_no_more_than_the_deadlines);
	tcase_add_test(tcase, what_others_took_since_the_last_sample_is_what_is_lacking);
	tcase_add_test(
		tcase, one_that_waits_goes_back_to_its_place_and_is_tried_when_something_came_back);
	tcase_add_test(tcase, one_that_waits_is_tried_again_from_time_to_time_and_ends_in_time);
	tcase_add_test(tcase, its_time_counts_from_its_arrival_however_long_the_device_takes);
	tcase_add_test(
		tcase, one_whose_time_is_over_when_it_is_denied_ends_at_once_and_disturbs_nobody);
	tcase_add_test(tcase, what_it_gives_back_itself_is_no_reason_to_try_again);
	tcase_add_test(tcase, what_goes_away_outside_the_broker_is_a_reason_to_try_again);
	tcase_add_test(tcase, a_lease_that_grows_is_denied_its_growth_alone);
	tcase_add_test(tcase, one_that_was_denied_goes_with_its_client);
	suite_add_tcase(suite, tcase);
	/* Of thousands that wait, all are looked at whenever one more comes. */
	TCase *full = tcase_create("full");
	tcase_add_checked_fixture(full, setup, teardown);
	tcase_set_timeout(full, 120);
	tcase_add_test(full, a_queue_that_is_full_takes_no_one_back);
	suite_add_tcase(suite, full);
	return gm_tap_run(suite);
}
