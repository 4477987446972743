/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/reclaim/reclaim_plan.c, reclaim_run.c and reclaim_pressure.c, through the core, without a request: what each level of
 * pressure takes from whom, until it is left, and what goes when the device's own free memory is
 * short. */
#include <string.h>

#include "daemon/reclaim/reclaim.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"
#include "tests/unit/reclaim/reclaim_fixture.h"

START_TEST(at_medium_nothing_is_taken)
{
	gm_lease_return(b, fake_lease(&fake, b, d, 10 * GiB));
	fake_lease(&fake, a, d, 70 * GiB);
	fake_says(&fake, a, d, 70 * GiB, 0);
	fake_pass(&fake, 10 * SECOND);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_PRESSURE_LEVEL_MEDIUM);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 10 * GiB);
	ck_assert_uint_eq(asks(), 0);
}
END_TEST

START_TEST(at_high_the_pool_goes_and_clients_are_asked_for_what_takes_the_level_back)
{
	gm_lease_return(b, fake_lease(&fake, b, d, 10 * GiB));
	struct gm_lease *lease = fake_lease(&fake, a, d, 82 * GiB);
	fake_says(&fake, a, d, 40 * GiB, 0);
	/* It was high before the client could say so. */
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
	const struct fake_event *e = fake_told(&fake, GM_EVENT_RECLAIM_ENDED);
	ck_assert_int_eq(e->event.trigger, GM_RECLAIM_TRIGGER_PRESSURE);
	ck_assert_uint_eq(e->event.stages[GM_STAGE_POOL], 10 * GiB);
	ck_assert(!e->event.reached);
	ck_assert_uint_eq(asks(), 0);
	/* The next action comes a second after the first. */
	fake_pass(&fake, SECOND - 1);
	ck_assert_uint_eq(asks(), 0);
	fake_pass(&fake, 1);
	ck_assert_uint_eq(asks(), 1);
	ck_assert_int_eq(fake.asks[0].ask.stage, GM_STAGE_CACHED);
	/* From 82 to below 75, the threshold less its hysteresis. */
	ck_assert_uint_eq(fake.asks[0].ask.bytes, 7 * GiB + 2 * MiB);
	give_back(a, lease, 8 * GiB);
	e = fake_told(&fake, GM_EVENT_RECLAIM_ENDED);
	ck_assert(e->event.reached);
	ck_assert_uint_eq(e->event.stages[GM_STAGE_CACHED], 8 * GiB);
	/* What was asked for because of pressure is destroyed, not pooled. */
	ck_assert_uint_le(fake_pool(&fake, d).pooled, GiB);
	fake_pass(&fake, 3 * SECOND);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_PRESSURE_LEVEL_MEDIUM);
	ck_assert_uint_eq(asks(), 0);
}
END_TEST

START_TEST(while_it_is_high_what_is_idle_goes_and_what_is_used_stays)
{
	struct gm_lease *lease = fake_lease(&fake, a, d, 82 * GiB);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_PRESSURE_LEVEL_HIGH);
	gm_lease_return(b, fake_lease(&fake, b, d, GiB));
	gm_lease_return(c, fake_lease(&fake, c, d, 2 * GiB));
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 3 * GiB);
	for (int i = 0; i < 8; i++) {
		fake_pass(&fake, SECOND / 2);
		uint64_t misses = fake_pool(&fake, d).misses;
		gm_lease_return(b, fake_lease(&fake, b, d, GiB));
		ck_assert_uint_eq(fake_pool(&fake, d).misses, misses);
	}
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, GiB);
	gm_lease_return(a, lease);
}
END_TEST

START_TEST(at_critical_everything_unused_goes_at_once)
{
	struct gm_lease *mine = fake_lease(&fake, a, d, 50 * GiB);
	struct gm_lease *others = fake_lease(&fake, b, d, 44 * GiB);
	asks();
	fake_says(&fake, a, d, 20 * GiB, 0);
	fake_says(&fake, b, d, 10 * GiB, 0);
	struct gm_lease *last = fake_lease(&fake, c, d, 2 * GiB);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_PRESSURE_LEVEL_CRITICAL);
	/* Within the second after the action at high: a higher level does not wait. What c asked
	 * for is not made yet, so there is nothing it could return. */
	ck_assert_uint_eq(asks(), 2);
	ck_assert(fake_figures(&fake, d).pooled == 0);
	for (int i = 0; i < 2; i++) {
		ck_assert(fake.asks[i].ask.urgent);
		ck_assert_int_eq(fake.asks[i].ask.stage, GM_STAGE_UNUSED);
		ck_assert_int_eq(fake.asks[i].ask.trigger, GM_RECLAIM_TRIGGER_PRESSURE);
		ck_assert_uint_eq(fake.asks[i].ask.deadline_ns, fake.now + 100 * MS);
	}
	/* Nothing is pooled while it lasts. */
	gm_lease_return(c, last);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
	give_back(a, mine, 20 * GiB);
	give_back(b, others, 10 * GiB);
	const struct fake_event *e = fake_told(&fake, GM_EVENT_RECLAIM_ENDED);
	ck_assert_uint_eq(e->event.stages[GM_STAGE_UNUSED], 30 * GiB);
	ck_assert(e->event.reached);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_figures(&fake, d).created, 64 * GiB);
	fake_pass(&fake, 5 * SECOND);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_PRESSURE_LEVEL_MEDIUM);
	ck_assert_uint_eq(fake.victims, 0);
}
END_TEST

START_TEST(at_high_nothing_more_goes_once_pressure_has_left_it)
{
	policy.dwell_ns = 60 * SECOND;
	gm_core_set_policy(fake.core, d, &policy);
	struct gm_lease *lease = fake_lease(&fake, a, d, 85 * GiB);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_PRESSURE_LEVEL_HIGH);
	fake_says(&fake, a, d, 10 * GiB, 0);
	give_back(a, lease, 15 * GiB);
	fake_core_run(&fake);
	asks();
	uint64_t pooled = fake_pool(&fake, d).pooled;
	ck_assert_uint_gt(pooled, 0);
	fake_pass(&fake, 30 * SECOND);
	/* Nobody was told of a lower level yet. */
	ck_assert_int_eq(fake.level, GM_PRESSURE_LEVEL_HIGH);
	ck_assert_uint_eq(asks(), 0);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, pooled);
}
END_TEST

START_TEST(the_level_that_is_shown_is_that_of_the_pressure_that_is_shown)
{
	policy.dwell_ns = 60 * SECOND;
	gm_core_set_policy(fake.core, d, &policy);
	give(1, GM_LIMIT_PRIORITY, 0, 5);
	for (int i = 0; i < 12; i++)
		fake_lease(&fake, i % 2 ? b : c, d, 8 * GiB);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_PRESSURE_LEVEL_CRITICAL);
	ck_assert_int_eq(fake.level, GM_PRESSURE_LEVEL_CRITICAL);

	/* A mass exit. Others hear of it when the dwell is over. */
	gm_session_end_died(b);
	gm_session_end_died(c);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_figures(&fake, d).pressure_ppm, 0);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_PRESSURE_LEVEL_LOW);
	ck_assert_int_eq(fake.level, GM_PRESSURE_LEVEL_CRITICAL);

	/* And nobody is refused for a pressure that is not there. */
	static struct fake_request q;
	b = fake_session(&fake, 2, 2);
	c = fake_session(&fake, 3, 3);
	fake_ask(&fake, &q, b, d, 2 * MiB, GM_TRANSPORT_AUTO);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	fake_pass(&fake, 60 * SECOND);
	ck_assert_int_eq(fake.level, GM_PRESSURE_LEVEL_LOW);

	/* Back within the dwell: shown at once, told later. */
	fake_lease(&fake, c, d, 96 * GiB);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_PRESSURE_LEVEL_CRITICAL);
	ck_assert_int_eq(fake.level, GM_PRESSURE_LEVEL_LOW);
}
END_TEST

START_TEST(it_was_enough_when_the_level_has_fallen_before_the_last_answer)
{
	policy.dwell_ns = 0;
	policy.reclaim_ns = 10 * SECOND;
	gm_core_set_policy(fake.core, d, &policy);
	struct gm_lease *mine = fake_lease(&fake, a, d, 50 * GiB);
	fake_lease(&fake, b, d, 44 * GiB);
	fake_says(&fake, a, d, 45 * GiB, 0);
	fake_says(&fake, b, d, GiB, 0);
	fake_lease(&fake, c, d, 2 * GiB);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_PRESSURE_LEVEL_CRITICAL);
	give_back(a, mine, 45 * GiB);
	fake_pass(&fake, SECOND);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_PRESSURE_LEVEL_LOW);
	/* b never answers; what was wanted is there all the same. */
	fake_pass(&fake, 20 * SECOND);
	const struct fake_event *e = fake_told(&fake, GM_EVENT_RECLAIM_ENDED);
	ck_assert_int_eq(e->event.trigger, GM_RECLAIM_TRIGGER_PRESSURE);
	ck_assert(e->event.reached);
	ck_assert_ptr_nonnull(strstr(e->text, "; enough"));
	/* What was wanted on the way down was a part of it, not more. */
	ck_assert_uint_le(e->event.need, 22 * GiB);
	ck_assert_ptr_nonnull(fake_told(&fake, GM_EVENT_IGNORED));
}
END_TEST

START_TEST(at_critical_lower_priorities_get_nothing_new)
{
	give(1, GM_LIMIT_PRIORITY, 0, 5);
	struct gm_lease *lease = fake_lease(&fake, b, d, 96 * GiB);
	static struct fake_request q, r, w;
	fake_ask(&fake, &q, b, d, 2 * MiB, GM_TRANSPORT_AUTO);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	ck_assert_ptr_nonnull(strstr(q.detail, "critical pressure, and priority 0 gets nothing"));
	fake_wait(&fake, &w, c, d, 2 * MiB, 60 * SECOND);
	ck_assert_uint_eq(w.ended, 0);
	fake_ask(&fake, &r, a, d, 2 * MiB, GM_TRANSPORT_AUTO);
	fake_core_run(&fake);
	ck_assert_int_eq(r.status, GPUMEM_OK);
	/* Not while it is critical by the hysteresis, but as soon as it is not. */
	give_back(b, lease, 5 * GiB);
	fake_core_run(&fake);
	ck_assert_uint_eq(w.ended, 0);
	give_back(b, lease, 5 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(w.status, GPUMEM_OK);
	fake_pass(&fake, SECOND);
	/* When nobody is above, nobody is below. */
	gm_session_end_died(a);
	fake_lease(&fake, c, d, 10 * GiB);
	ck_assert_int_eq(fake.level, GM_PRESSURE_LEVEL_HIGH);
	fake_pass(&fake, 2 * SECOND);
	ck_assert_int_eq(fake.level, GM_PRESSURE_LEVEL_CRITICAL);
	fake_lease(&fake, c, d, 2 * MiB);
}
END_TEST

START_TEST(evictable_buffers_are_asked_for_after_what_is_unused)
{
	struct gm_lease *lease = fake_lease(&fake, a, d, 96 * GiB);
	fake_says(&fake, a, d, 0, 30 * GiB);
	asks();
	fake_pass(&fake, SECOND);
	ck_assert_uint_eq(asks(), 1);
	ck_assert_int_eq(fake.asks[0].ask.stage, GM_STAGE_SPILL);
	ck_assert_uint_eq(fake.asks[0].ask.bytes, 6 * GiB + 2 * MiB);
	ck_assert(fake.asks[0].ask.urgent);
	give_back(a, lease, 7 * GiB);
	ck_assert_uint_eq(
		fake_told(&fake, GM_EVENT_RECLAIM_ENDED)->event.stages[GM_STAGE_SPILL], 7 * GiB);
}
END_TEST

START_TEST(pressure_moves_no_buffers_that_a_guarantee_covers)
{
	give(1, GM_LIMIT_GUARANTEE | GM_LIMIT_PRIORITY, 50 * GiB, 10);
	struct gm_session *other = fake_session(&fake, 4, 4);
	fake_lease(&fake, a, d, 50 * GiB);
	fake_says(&fake, a, d, 0, 50 * GiB);
	fake_lease(&fake, other, d, 40 * GiB);
	fake_lease(&fake, b, d, 6 * GiB);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_PRESSURE_LEVEL_CRITICAL);
	asks();
	fake_pass(&fake, 20 * SECOND);
	const struct gm_reclaim_message *ask = fake_asked(&fake, a);
	ck_assert(!ask || ask->spill == 0);

	/* What it holds beyond it helps, after what clients of a lower priority have. */
	fake_says(&fake, other, d, 0, 4 * GiB);
	fake_lease(&fake, a, d, 3 * GiB);
	fake_says(&fake, a, d, 0, 53 * GiB);
	asks();
	for (int i = 0; i < 100 && !fake_asked(&fake, other); i++)
		fake_pass(&fake, 100 * MS);
	ck_assert_uint_eq(fake_asked(&fake, other)->spill, 4 * GiB);
	ck_assert_uint_eq(fake_asked(&fake, a)->spill, 3 * GiB);
}
END_TEST

/* A hundred clients with idle caches: the time it takes is theirs, core asks all of them at once.
 */
/* Somebody takes what makes the device critical, and gives it back when others have moved buffers. Each time,
 * the client moves them back. Returns how often it had to move them. */
static unsigned press(uint64_t ns)
{
	uint64_t until = fake.now + ns;
	fake_lease(&fake, a, d, 60 * GiB);
	struct gm_lease *lease = fake_lease(&fake, a, d, 20 * GiB);
	unsigned moves = 0;

	while (fake.now < until) {
		struct gm_lease *bait = fake_lease(&fake, b, d, 16 * GiB);
		fake_says(&fake, a, d, 0, 80 * GiB);
		asks();
		/* It has no longer than 4 s of patience. */
		bool moved = false;
		for (int i = 0; i < 40 && !moved; i++) {
			fake_pass(&fake, 100 * MS);
			const struct gm_reclaim_message *ask = fake_asked(&fake, a);
			moved = ask && ask->spill > 0;
			asks();
		}
		if (moved)
			gm_lease_return(a, lease);
		gm_lease_return(b, bait);
		fake_core_run(&fake);
		if (moved)
			lease = fake_lease(&fake, a, d, 20 * GiB);
		moves += moved;
		fake_pass(&fake, 2 * SECOND);
	}
	return moves;
}

START_TEST(pressure_does_not_make_a_client_move_its_buffers_over_and_over)
{
	policy.max_pool = 0;
	gm_core_set_policy(fake.core, d, &policy);
	unsigned moves = press(200 * SECOND);
	ck_assert_uint_ge(moves, 2);
	ck_assert_uint_le(moves, 10);
}
END_TEST

/* The client that could move buffers is the last of more clients than a request's plan looks at. */
START_TEST(under_pressure_nobody_is_overlooked_however_many_there_are)
{
	for (int i = 0; i < 1000; i++)
		fake_lease(&fake, fake_session(&fake, 5, 5), d, 2 * MiB);
	fake_lease(&fake, a, d, 94 * GiB);
	fake_says(&fake, a, d, 0, 30 * GiB);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_PRESSURE_LEVEL_CRITICAL);
	asks();
	fake_pass(&fake, SECOND);
	ck_assert_ptr_nonnull(fake_asked(&fake, a));
	ck_assert_int_eq(fake_asked(&fake, a)->stage, GM_STAGE_SPILL);
}
END_TEST

START_TEST(a_hundred_idle_caches_are_asked_for_in_the_call_that_made_it_critical)
{
	struct gm_session *s[100];
	struct gm_lease *l[100];
	for (int i = 0; i < 100; i++) {
		s[i] = fake_session(&fake, 100 + (gm_domain)i, 100 + (uid_t)i);
		l[i] = fake_lease(&fake, s[i], d, 900 * MiB);
		fake_says(&fake, s[i], d, 900 * MiB, 0);
	}
	asks();
	struct gm_lease *last = fake_lease(&fake, a, d, 9 * GiB);
	(void)last;
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_PRESSURE_LEVEL_CRITICAL);
	ck_assert_uint_ge(fake.n_asks, 100);
	for (int i = 0; i < 100; i++) {
		ck_assert(fake_asked(&fake, s[i])->urgent);
		gm_lease_return(s[i], l[i]);
	}
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_figures(&fake, d).created, 9 * GiB);
	ck_assert(fake_told(&fake, GM_EVENT_RECLAIM_ENDED)->event.reached);
}
END_TEST

START_TEST(below_min_free_the_pool_gives_and_nobody_else)
{
	no_levels();
	policy.min_free = 4 * GiB;
	gm_core_set_policy(fake.core, d, &policy);
	fake_lease(&fake, a, d, 50 * GiB);
	fake_says(&fake, a, d, 50 * GiB, 0);
	gm_lease_return(b, fake_lease(&fake, b, d, 10 * GiB));
	/* A foreign program takes all but 1 GiB of what is free. */
	gm_core_sample(fake.core, d, GiB);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 7 * GiB);
	const struct fake_event *e = fake_told(&fake, GM_EVENT_RECLAIM_ENDED);
	ck_assert_int_eq(e->event.trigger, GM_RECLAIM_TRIGGER_MIN_FREE);
	ck_assert_uint_eq(e->event.need, 3 * GiB);
	ck_assert_uint_eq(e->event.stages[GM_STAGE_POOL], 3 * GiB);
	ck_assert(e->event.reached);
	ck_assert_uint_eq(asks(), 0);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_figures(&fake, d).free, 4 * GiB);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ladder_levels");
	TCase *tcase = tcase_create("reclaim");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, at_medium_nothing_is_taken);
	tcase_add_test(
		tcase, at_high_the_pool_goes_and_clients_are_asked_for_what_takes_the_level_back);
	tcase_add_test(tcase, while_it_is_high_what_is_idle_goes_and_what_is_used_stays);
	tcase_add_test(tcase, at_critical_everything_unused_goes_at_once);
	tcase_add_test(tcase, at_high_nothing_more_goes_once_pressure_has_left_it);
	tcase_add_test(tcase, the_level_that_is_shown_is_that_of_the_pressure_that_is_shown);
	tcase_add_test(tcase, it_was_enough_when_the_level_has_fallen_before_the_last_answer);
	tcase_add_test(tcase, at_critical_lower_priorities_get_nothing_new);
	tcase_add_test(tcase, evictable_buffers_are_asked_for_after_what_is_unused);
	tcase_add_test(tcase, pressure_moves_no_buffers_that_a_guarantee_covers);
	tcase_add_test(tcase, pressure_does_not_make_a_client_move_its_buffers_over_and_over);
	tcase_add_test(tcase, under_pressure_nobody_is_overlooked_however_many_there_are);
	tcase_add_test(
		tcase, a_hundred_idle_caches_are_asked_for_in_the_call_that_made_it_critical);
	tcase_add_test(tcase, below_min_free_the_pool_gives_and_nobody_else);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
