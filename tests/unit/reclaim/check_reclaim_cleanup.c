/* SPDX-License-Identifier: Apache-2.0 */
/* gm_core_cleanup() and its dry run: the plan, what is done of it, and what is refused. */
#include "daemon/reclaim/reclaim.h"
#include "daemon/reclaim/reclaim_plan.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/lease.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"
#include "tests/unit/reclaim/reclaim_fixture.h"
#include "tests/unit/failing_malloc.h"

static void same_plan(const struct gm_reclaim_plan *x, const struct gm_reclaim_plan *y)
{
	ck_assert_uint_eq(x->need, y->need);
	ck_assert_uint_eq(x->planned, y->planned);
	ck_assert_uint_eq(x->n_steps, y->n_steps);
	for (size_t i = 0; i < x->n_steps; i++) {
		ck_assert_int_eq(x->steps[i].stage, y->steps[i].stage);
		ck_assert_ptr_eq(x->steps[i].session, y->steps[i].session);
		ck_assert_uint_eq(x->steps[i].bytes, y->steps[i].bytes);
	}
}

START_TEST(a_dry_run_names_the_victims_of_the_real_one_and_each_gives_what_the_plan_said)
{
	no_levels();
	struct gm_lease *of_a = fake_lease(&fake, a, d, 40 * GiB);
	struct gm_lease *of_b = fake_lease(&fake, b, d, 40 * GiB);
	gm_lease_return(c, fake_lease(&fake, c, d, 10 * GiB));
	fake_says(&fake, a, d, 15 * GiB, 0);
	fake_says(&fake, b, d, 20 * GiB, 5 * GiB);
	struct gm_reclaim_plan dry, real;
	uint64_t before = fake.n_events;
	/* 10 are free, 10 pooled, 20 of b, 10 of a. */
	ck_assert_int_eq(gm_core_cleanup_plan(fake.core, d, 50 * GiB, &dry, detail), GPUMEM_OK);
	ck_assert_uint_eq(asks(), 0);
	ck_assert_uint_eq(fake.n_events, before);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 10 * GiB);
	ck_assert_uint_eq(dry.need, 40 * GiB);
	ck_assert_uint_eq(dry.stages[GM_STAGE_POOL], 10 * GiB);
	ck_assert_uint_eq(dry.stages[GM_STAGE_CACHED], 30 * GiB);
	ck_assert_int_eq(gm_core_cleanup(fake.core, d, 50 * GiB, &real, detail), GPUMEM_OK);
	same_plan(&dry, &real);
	ck_assert_uint_eq(fake.n_asks, real.n_steps - 1);
	for (size_t i = 1; i < real.n_steps; i++) {
		ck_assert_uint_eq(fake.asks[i - 1].session, gm_session_id(real.steps[i].session));
		ck_assert_uint_eq(fake.asks[i - 1].ask.bytes, real.steps[i].bytes);
	}
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
	give_back(b, of_b, 20 * GiB);
	give_back(a, of_a, 10 * GiB);
	const struct fake_event *e = fake_told(&fake, GM_EVENT_RECLAIM_ENDED);
	ck_assert_int_eq(e->event.trigger, GM_RECLAIM_TRIGGER_MANUAL);
	for (unsigned r = 0; r < GM_STAGES; r++)
		ck_assert_uint_eq(e->event.stages[r], dry.stages[r]);
	ck_assert(e->event.reached);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_figures(&fake, d).free, 50 * GiB);
	gm_reclaim_plan_deinit(&dry);
	gm_reclaim_plan_deinit(&real);
	/* By now it is. */
	ck_assert_int_eq(gm_core_cleanup(fake.core, d, 50 * GiB, &real, detail), GPUMEM_OK);
	ck_assert_uint_eq(real.n_steps, 0);
	gm_reclaim_plan_deinit(&real);
}
END_TEST

START_TEST(a_cleanup_of_all_there_is_fails_only_if_a_client_still_caches_what_it_owes)
{
	no_levels();
	struct gm_reclaim_plan plan;
	struct gm_lease *of_a = fake_lease(&fake, a, d, 40 * GiB);
	fake_says(&fake, a, d, 15 * GiB, 0);
	ck_assert_int_eq(gm_core_cleanup(fake.core, d, 0, &plan, detail), GPUMEM_OK);
	gm_reclaim_plan_deinit(&plan);
	give_back(a, of_a, 10 * GiB);
	/* It has used the other five meanwhile. */
	fake_says(&fake, a, d, 0, 0);
	fake_pass(&fake, 100 * MS);
	ck_assert(fake_told(&fake, GM_EVENT_RECLAIM_ENDED)->event.reached);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_IGNORED), 0);

	fake_says(&fake, a, d, 5 * GiB, 0);
	ck_assert_int_eq(gm_core_cleanup(fake.core, d, 0, &plan, detail), GPUMEM_OK);
	gm_reclaim_plan_deinit(&plan);
	fake_pass(&fake, 100 * MS);
	ck_assert(!fake_told(&fake, GM_EVENT_RECLAIM_ENDED)->event.reached);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_IGNORED), 1);

	/* By an old client's word nobody can know whether it could come. */
	fake_says_roughly(&fake, a, d);
	ck_assert_int_eq(gm_core_cleanup(fake.core, d, 0, &plan, detail), GPUMEM_OK);
	gm_reclaim_plan_deinit(&plan);
	fake_pass(&fake, 100 * MS);
	ck_assert(fake_told(&fake, GM_EVENT_RECLAIM_ENDED)->event.reached);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_IGNORED), 1);
}
END_TEST

START_TEST(a_cleanup_of_all_there_is_fails_if_evictable_buffers_stay_but_blames_nobody)
{
	no_levels();
	struct gm_reclaim_plan plan;
	fake_lease(&fake, a, d, 40 * GiB);
	fake_says(&fake, a, d, 0, 15 * GiB);
	ck_assert_int_eq(gm_core_cleanup(fake.core, d, 0, &plan, detail), GPUMEM_OK);
	gm_reclaim_plan_deinit(&plan);
	fake_pass(&fake, 10 * SECOND);
	ck_assert(!fake_told(&fake, GM_EVENT_RECLAIM_ENDED)->event.reached);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_IGNORED), 0);
}
END_TEST

START_TEST(a_cleanup_of_more_than_there_is_says_so_and_does_nothing)
{
	no_levels();
	fake_lease(&fake, a, d, 80 * GiB);
	fake_says(&fake, a, d, 5 * GiB, 0);
	gm_lease_return(c, fake_lease(&fake, c, d, 10 * GiB));
	struct gm_reclaim_plan plan;
	ck_assert_int_eq(
		gm_core_cleanup(fake.core, d, 26 * GiB, &plan, detail), GPUMEM_E_NO_MEMORY);
	ck_assert_str_eq(detail,
		"device 0: 26.0G cannot be made free: 10.0G are free, the pool has 10.0G, and clients "
		"say they could return 5.0G; see gpumemctl clients");
	ck_assert_uint_eq(plan.planned, 15 * GiB);
	gm_reclaim_plan_deinit(&plan);
	ck_assert_int_eq(
		gm_core_cleanup(fake.core, d, 5000 * GiB, &plan, detail), GPUMEM_E_NO_MEMORY);
	ck_assert_str_eq(detail, "device 0: 4.9T can never be free: the whole device has 100.0G");
	gm_reclaim_plan_deinit(&plan);
	ck_assert_uint_eq(asks(), 0);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 10 * GiB);
	ck_assert_int_eq(gm_core_cleanup(fake.core, 9, GiB, NULL, detail), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(gm_core_cleanup(fake.core, d, 0, NULL, detail), GPUMEM_OK);
	ck_assert_uint_eq(asks(), 1);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
}
END_TEST

START_TEST(without_memory_for_a_plan_nobody_is_asked)
{
	no_levels();
	fake_lease(&fake, a, d, 100 * GiB);
	fake_says(&fake, a, d, 5 * GiB, 0);
	struct gm_reclaim_plan plan;
	for (uint64_t n = 1;; n++) {
		failing_malloc_arm(n);
		gpumem_status status = gm_core_cleanup_plan(fake.core, d, 0, &plan, detail);
		if (!failing_malloc_fired())
			break;
		ck_assert_int_eq(status, GPUMEM_E_HOST_MEMORY);
	}
	gm_reclaim_plan_deinit(&plan);
	static struct fake_request q;
	/* First there is none for the request's place in the queue, then none for the plan. */
	static const gpumem_status want[] = {GPUMEM_E_HOST_MEMORY, GPUMEM_E_NO_MEMORY};
	for (int i = 0; i < 2; i++) {
		failing_malloc_arm((uint64_t)i + 1);
		fake_ask(&fake, &q, b, d, 2 * GiB, GM_TRANSPORT_AUTO);
		ck_assert(failing_malloc_fired());
		ck_assert_int_eq(q.status, want[i]);
		ck_assert_uint_eq(asks(), 0);
	}
}
END_TEST

static uint64_t page_looks(void)
{
	uint64_t n = fake.page_looks;
	fake.page_looks = 0;
	return n;
}

/* What a dry run finds with clients, after so many looks at their pages. */
static uint64_t found_by(uint64_t looks)
{
	struct gm_reclaim_plan plan;
	ck_assert_int_eq(gm_core_cleanup_plan(fake.core, d, 0, &plan, detail), GPUMEM_OK);
	ck_assert_uint_eq(page_looks(), looks);
	uint64_t bytes = plan.stages[GM_STAGE_CACHED] + plan.stages[GM_STAGE_SPILL];
	gm_reclaim_plan_deinit(&plan);
	return bytes;
}

START_TEST(many_dry_runs_look_at_each_client_once_in_a_while)
{
	no_levels();
	fake_lease(&fake, a, d, 20 * GiB);
	struct gm_lease *of_b = fake_lease(&fake, b, d, 20 * GiB);
	fake_says(&fake, a, d, 2 * GiB, GiB);
	fake_says(&fake, b, d, 5 * GiB, 0);
	page_looks();
	ck_assert_uint_eq(found_by(2), 8 * GiB);
	for (int i = 0; i < 1000; i++)
		ck_assert_uint_eq(found_by(0), 8 * GiB);

	/* What a client holds has changed, so it is looked at again, and the others are not. */
	give_back(b, of_b, 16 * GiB);
	ck_assert_uint_eq(found_by(1), 7 * GiB);
	/* After a while all are. */
	fake.use[gm_session_id(a) % FAKE_LOG][d].cached = 4 * GiB;
	ck_assert_uint_eq(found_by(0), 7 * GiB);
	fake_pass(&fake, 50 * MS);
	ck_assert_uint_eq(found_by(2), 9 * GiB);
}
END_TEST

START_TEST(many_requests_that_do_not_fit_look_at_each_client_once_in_a_while)
{
	no_levels();
	static struct fake_request q[20];
	for (int i = 0; i < 20; i++) {
		struct gm_session *s = fake_session(&fake, 5, 5);
		fake_lease(&fake, s, d, 5 * GiB);
		fake_says(&fake, s, d, GiB, 0);
	}
	page_looks();
	for (int i = 0; i < 20; i++)
		fake_ask(&fake, &q[i], c, d, 2 * GiB, GM_TRANSPORT_AUTO);
	/* Each client was asked, and looked at again then. */
	ck_assert_uint_ge(asks(), 20);
	ck_assert_uint_le(page_looks(), 2 * 20);
	fake_pass(&fake, SECOND);
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(q[i].status, GPUMEM_E_NO_MEMORY);
}
END_TEST

#define IDLE 2000

/* How many clients plans considered since the last call. */
static uint64_t plan_steps(void)
{
	static uint64_t before;
	uint64_t now = fake.core->devices[d].reclaim.steps, n = now - before;
	before = now;
	return n;
}

START_TEST(clients_that_hold_nothing_cost_a_plan_nothing)
{
	no_levels();
	struct fake_request q;
	fake_lease(&fake, a, d, 40 * GiB);
	fake_lease(&fake, b, d, 40 * GiB);
	fake_says(&fake, a, d, GiB, 0);
	for (int i = 0; i < IDLE; i++)
		fake_session(&fake, 5, 5);
	plan_steps();
	fake_ask(&fake, &q, c, d, 30 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_ge(plan_steps(), 2);
	fake_pass(&fake, SECOND);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	/* None of them was considered, however often clients were asked. */
	plan_steps();
	fake_ask(&fake, &q, c, d, 30 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_le(plan_steps(), 16);
	fake_pass(&fake, SECOND);
}
END_TEST

START_TEST(a_plan_looks_at_a_bounded_number_of_clients)
{
	no_levels();
	static struct gm_session *holders[IDLE];
	static struct fake_request q;
	for (int i = 0; i < IDLE; i++) {
		holders[i] = fake_session(&fake, 5, 5);
		fake_lease(&fake, holders[i], d, 2 * MiB);
	}
	page_looks();
	/* In time each of them is looked at. */
	for (int i = 0; i < IDLE / GM_RECLAIM_LOOKS + 1; i++) {
		fake_ask(&fake, &q, c, d, 99 * GiB, GM_TRANSPORT_AUTO);
		uint64_t looks = page_looks();
		ck_assert_uint_le(looks, 4 * GM_RECLAIM_LOOKS);
		fake_pass(&fake, 100 * SECOND);
		ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
		page_looks();
	}
	for (int i = 0; i < IDLE; i++)
		ck_assert_uint_gt(holders[i]->payer.accounts[d].said.until_ns, 0);
}
END_TEST

START_TEST(a_client_that_used_its_memory_between_a_look_and_the_ask_is_not_blamed)
{
	no_levels();
	fake_lease(&fake, a, d, 40 * GiB);
	fake_says(&fake, a, d, 15 * GiB, 0);
	ck_assert_uint_eq(found_by(1), 15 * GiB);
	fake.use[gm_session_id(a) % FAKE_LOG][d].cached = 0;
	ck_assert_int_eq(gm_core_cleanup(fake.core, d, 0, NULL, detail), GPUMEM_OK);
	ck_assert_uint_eq(asks(), 1);
	fake_pass(&fake, 100 * MS);
	ck_assert(fake_told(&fake, GM_EVENT_RECLAIM_ENDED)->event.reached);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_IGNORED), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ladder_cleanup");
	TCase *tcase = tcase_create("reclaim");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase,
		a_dry_run_names_the_victims_of_the_real_one_and_each_gives_what_the_plan_said);
	tcase_add_test(
		tcase, a_cleanup_of_all_there_is_fails_only_if_a_client_still_caches_what_it_owes);
	tcase_add_test(
		tcase, a_cleanup_of_all_there_is_fails_if_evictable_buffers_stay_but_blames_nobody);
	tcase_add_test(tcase, a_cleanup_of_more_than_there_is_says_so_and_does_nothing);
	tcase_add_test(tcase, without_memory_for_a_plan_nobody_is_asked);
	tcase_add_test(tcase, many_dry_runs_look_at_each_client_once_in_a_while);
	tcase_add_test(tcase, many_requests_that_do_not_fit_look_at_each_client_once_in_a_while);
	tcase_add_test(tcase, clients_that_hold_nothing_cost_a_plan_nothing);
	tcase_add_test(tcase, a_plan_looks_at_a_bounded_number_of_clients);
	tcase_add_test(
		tcase, a_client_that_used_its_memory_between_a_look_and_the_ask_is_not_blamed);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
