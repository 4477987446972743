/* SPDX-License-Identifier: Apache-2.0 */
/* The last stage of daemon/reclaim/reclaim_pressure.c, through the core: who is terminated, when, and by whose
 * leave, and when nobody is. */
#include <errno.h>
#include <string.h>

#include "daemon/reclaim/reclaim.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"
#include "tests/unit/reclaim/reclaim_fixture.h"

static void when_out_of_memory(enum gm_policy_oom oom)
{
	policy.oom = oom;
	gm_core_set_policy(fake.core, d, &policy);
}

/* So many were terminated by now, and the last of them is that one. */
static void victim_is(uint64_t n, const struct gm_session *session)
{
	ck_assert_uint_eq(fake.victims, n);
	ck_assert_uint_eq(fake.victim, gm_session_id(session));
}

START_TEST(only_oom_terminate_ends_a_client_and_the_right_one)
{
	when_out_of_memory(GM_POLICY_OOM_WAIT);
	struct gm_session *e = fake_session(&fake, 5, 5);
	fake_lease(&fake, a, d, 40 * GiB);
	fake_lease(&fake, b, d, 25 * GiB);
	fake_lease(&fake, c, d, 5 * GiB);
	fake_lease(&fake, e, d, 28 * GiB);
	give(1, GM_LIMIT_PRIORITY, 0, 1);
	give(5, GM_LIMIT_GUARANTEE, 28 * GiB, 0);
	fake_pass(&fake, 10 * SECOND);
	ck_assert_uint_eq(fake.victims, 0);
	when_out_of_memory(GM_POLICY_OOM_TERMINATE);
	fake_pass(&fake, 3 * SECOND);
	/* Not a (its priority), not e (within its guarantee), not c (smaller). */
	victim_is(1, b);
	const struct fake_event *told = fake_told(&fake, GM_EVENT_VICTIM);
	ck_assert_uint_eq(told->session, gm_session_id(b));
	ck_assert_uint_eq(told->event.held, 25 * GiB);
	/* One at a time, however long it takes to die. */
	fake_pass(&fake, 30 * SECOND);
	ck_assert_uint_eq(fake.victims, 1);
	gm_session_end_died(b);
	fake_core_run(&fake);
	fake_pass(&fake, 30 * SECOND);
	ck_assert_uint_eq(fake.victims, 1);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_PRESSURE_LEVEL_MEDIUM);
}
END_TEST

START_TEST(nobody_is_terminated_or_asked_again_while_buffers_may_still_move)
{
	when_out_of_memory(_i ? GM_POLICY_OOM_TERMINATE : GM_POLICY_OOM_WAIT);
	fake_lease(&fake, a, d, 96 * GiB);
	fake_says(&fake, a, d, 0, 30 * GiB);
	asks();
	fake_pass(&fake, SECOND);
	ck_assert_uint_eq(asks(), 1);
	ck_assert_int_eq(fake.asks[0].ask.stage, GM_STAGE_SPILL);

	fake_pass(&fake, fake.asks[0].ask.deadline_ns - fake.now - 1);
	ck_assert_uint_eq(fake.victims, 0);
	ck_assert_uint_eq(asks(), 0);
	ck_assert(fake_reclaims(&fake, d, GM_RECLAIM_TRIGGER_PRESSURE));
	fake_pass(&fake, 1);
	ck_assert(!fake_reclaims(&fake, d, GM_RECLAIM_TRIGGER_PRESSURE));
	ck_assert_uint_eq(fake.victims, _i ? 1 : 0);
}
END_TEST

START_TEST(a_client_that_has_moved_too_little_is_not_waited_for)
{
	when_out_of_memory(GM_POLICY_OOM_TERMINATE);
	struct gm_lease *lease = fake_lease(&fake, a, d, 96 * GiB);
	fake_says(&fake, a, d, 0, GiB);
	asks();
	fake_pass(&fake, SECOND);
	ck_assert_uint_eq(asks(), 1);
	ck_assert_uint_eq(fake.asks[0].ask.bytes, GiB);
	give_back(a, lease, GiB);
	fake_says(&fake, a, d, 0, 0);
	fake_pass(&fake, SECOND - 1);
	ck_assert_uint_eq(fake.victims, 0);
	fake_pass(&fake, 1);
	victim_is(1, a);
}
END_TEST

/* Returns what the last ask wants moved, if the client was asked to move anything. */
static bool answer_spill(struct gm_session *session, struct gm_lease *lease)
{
	const struct gm_reclaim_message *ask = fake_asked(&fake, session);
	if (!ask || ask->spill == 0)
		return false;
	give_back(session, lease, (ask->spill + GiB - 1) / GiB * GiB);
	return true;
}

START_TEST(nobody_is_terminated_for_a_lie_before_it_was_asked_itself)
{
	when_out_of_memory(GM_POLICY_OOM_TERMINATE);
	give(2, GM_LIMIT_PRIORITY, 0, -1);
	give(3, GM_LIMIT_GUARANTEE, 30 * GiB, 0);
	fake_lease(&fake, c, d, 30 * GiB);
	struct gm_lease *lease = fake_lease(&fake, a, d, 50 * GiB);
	fake_says(&fake, a, d, 0, 50 * GiB);
	/* It claims enough, and is asked first. */
	fake_lease(&fake, b, d, 16 * GiB);
	fake_says(&fake, b, d, 0, 16 * GiB);
	give(2, GM_LIMIT_PRIORITY, 0, _i ? 0 : -1);
	asks();
	for (int i = 0; i < 50 && !answer_spill(a, lease); i++)
		fake_pass(&fake, 100 * MS);
	ck_assert_uint_eq(fake.victims, 0);
	fake_core_run(&fake);
	fake_pass(&fake, 10 * SECOND);
	ck_assert_uint_eq(fake.victims, 0);
}
END_TEST

/* The client's cache did not come back in time. That is no reason not to ask for its buffers. */
START_TEST(a_client_that_was_asked_for_its_cache_is_still_asked_to_move_buffers)
{
	policy.reclaim_ns = 500 * MS;
	when_out_of_memory(GM_POLICY_OOM_TERMINATE);
	struct gm_lease *lease = fake_lease(&fake, a, d, 90 * GiB);
	fake_says(&fake, a, d, GiB, 60 * GiB);
	fake_lease(&fake, b, d, 6 * GiB);
	ck_assert_int_eq(fake_asked(&fake, a)->stage, GM_STAGE_UNUSED);
	asks();
	fake_pass(&fake, SECOND);
	ck_assert_uint_eq(fake.victims, 0);
	ck_assert(answer_spill(a, lease));
	fake_core_run(&fake);
	fake_pass(&fake, 10 * SECOND);
	ck_assert_uint_eq(fake.victims, 0);
}
END_TEST

/* Each time, the buffers move that must, and then another client takes the room. */
START_TEST(nobody_is_terminated_while_moving_buffers_works)
{
	policy.dwell_ns = 100 * SECOND;
	when_out_of_memory(GM_POLICY_OOM_TERMINATE);
	struct gm_lease *lease = fake_lease(&fake, a, d, 90 * GiB);
	fake_lease(&fake, b, d, 6 * GiB);
	fake_says(&fake, a, d, 0, 80 * GiB);
	asks();
	for (int i = 0; i < 5; i++) {
		for (int k = 0; k < 50 && !answer_spill(a, lease); k++)
			fake_pass(&fake, 100 * MS);
		asks();
		fake_core_run(&fake);
		/* With and without a time in which pressure has left the level. */
		if (_i)
			fake_pass(&fake, 1500 * MS);
		fake_lease(&fake, b, d, 7 * GiB);
		ck_assert_int_eq(fake_figures(&fake, d).level, GM_PRESSURE_LEVEL_CRITICAL);
		ck_assert_uint_eq(fake.victims, 0);
	}
}
END_TEST

/* A level is left below its threshold less the hysteresis: there it still is, and something is
 * missing. */
START_TEST(on_the_border_of_a_level_there_is_something_to_do)
{
	when_out_of_memory(GM_POLICY_OOM_TERMINATE);
	struct gm_lease *lease = fake_lease(&fake, a, d, 96 * GiB);
	give_back(a, lease, 6 * GiB);
	fake_core_run(&fake);
	fake_pass(&fake, 5 * SECOND);
	ck_assert_uint_eq(fake_figures(&fake, d).pressure_ppm, 900000);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_PRESSURE_LEVEL_CRITICAL);
	ck_assert_uint_eq(fake.victims, 1);
}
END_TEST

START_TEST(nobody_is_terminated_while_the_level_only_waits_for_its_dwell)
{
	policy.settle_ns = MS;
	when_out_of_memory(GM_POLICY_OOM_TERMINATE);
	fake_lease(&fake, a, d, 50 * GiB);
	fake_lease(&fake, b, d, 46 * GiB);
	fake_pass(&fake, 10 * MS);
	victim_is(1, a);
	gm_session_end_died(a);
	fake_core_run(&fake);
	ck_assert_int_eq(fake.level, GM_PRESSURE_LEVEL_CRITICAL);
	fake_pass(&fake, 5 * SECOND);
	ck_assert_int_eq(fake.level, GM_PRESSURE_LEVEL_LOW);
	ck_assert_uint_eq(fake.victims, 1);
}
END_TEST

START_TEST(cleanup_comes_a_second_before_the_first_termination)
{
	when_out_of_memory(GM_POLICY_OOM_TERMINATE);
	fake_lease(&fake, a, d, 50 * GiB);
	fake_lease(&fake, a, d, 46 * GiB);
	ck_assert_uint_eq(asks(), 1);
	fake_pass(&fake, SECOND - 1);
	ck_assert_uint_eq(fake.victims, 0);
	fake_pass(&fake, 1);
	ck_assert_uint_eq(fake.victims, 1);
}
END_TEST

START_TEST(nobody_is_terminated_while_a_level_only_waits_to_fall)
{
	policy.dwell_ns = 10 * SECOND;
	when_out_of_memory(GM_POLICY_OOM_TERMINATE);
	fake_lease(&fake, a, d, 60 * GiB);
	fake_lease(&fake, b, d, 36 * GiB);
	fake_pass(&fake, 2500 * MS);
	victim_is(1, a);
	/* It ends, and 64 GiB are free; the level stays for its dwell, but there is nothing to do.
	 */
	gm_session_end_died(a);
	fake_core_run(&fake);
	asks();
	fake_pass(&fake, 9 * SECOND);
	ck_assert_int_eq(fake.level, GM_PRESSURE_LEVEL_CRITICAL);
	ck_assert_uint_eq(fake.victims, 1);
	ck_assert_uint_eq(asks(), 0);
	/* When it is short again within the dwell, somebody is. */
	struct gm_session *e = fake_session(&fake, 5, 5);
	fake_lease(&fake, e, d, 60 * GiB);
	fake_pass(&fake, 3 * SECOND);
	victim_is(2, e);
}
END_TEST

START_TEST(a_victim_that_ended_by_itself_is_no_lack_of_rights)
{
	when_out_of_memory(GM_POLICY_OOM_TERMINATE);
	fake.terminate = -ESRCH;
	fake_lease(&fake, a, d, 50 * GiB);
	fake_lease(&fake, b, d, 46 * GiB);
	fake_pass(&fake, 3 * SECOND);
	ck_assert_uint_eq(fake.victims, 1);
	ck_assert_ptr_null(fake_told(&fake, GM_EVENT_VICTIM));
	/* Its memory is as good as back; when it is and does not do, the next one goes. */
	fake.terminate = 0;
	gm_session_end_died(a);
	fake_core_run(&fake);
	fake_lease(&fake, b, d, 50 * GiB);
	fake_pass(&fake, 5 * SECOND);
	victim_is(2, b);
	ck_assert_int_eq(fake_told(&fake, GM_EVENT_VICTIM)->event.error, 0);
}
END_TEST

START_TEST(without_the_right_to_terminate_it_is_told_once)
{
	when_out_of_memory(GM_POLICY_OOM_TERMINATE);
	fake.terminate = -EPERM;
	fake_lease(&fake, a, d, 96 * GiB);
	fake_pass(&fake, 20 * SECOND);
	ck_assert_uint_eq(fake.victims, 1);
	ck_assert_int_eq(fake_told(&fake, GM_EVENT_VICTIM)->event.error, -EPERM);
	ck_assert_ptr_nonnull(
		strstr(fake_told(&fake, GM_EVENT_VICTIM)->text, "the daemon has no right to"));
	/* Nor for another reason, and that is not called a right. */
	gm_session_end_died(a);
	fake_core_run(&fake);
	fake_pass(&fake, 5 * SECOND);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_PRESSURE_LEVEL_LOW);
	fake.terminate = -ENOMEM;
	fake_lease(&fake, b, d, 96 * GiB);
	fake_pass(&fake, 20 * SECOND);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_VICTIM), 2);
	ck_assert_ptr_nonnull(strstr(fake_told(&fake, GM_EVENT_VICTIM)->text, "but cannot be"));
}
END_TEST

START_TEST(nobody_is_terminated_for_what_foreign_programs_use)
{
	when_out_of_memory(GM_POLICY_OOM_TERMINATE);
	fake_lease(&fake, a, d, 2 * GiB);
	gm_core_sample(fake.core, d, 2 * GiB);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_PRESSURE_LEVEL_CRITICAL);
	fake_pass(&fake, 20 * SECOND);
	ck_assert_uint_eq(fake.victims, 0);
}
END_TEST

/* A session of a process of its own. */
static struct gm_session *session_of(uid_t uid, pid_t pid)
{
	uint8_t token[GM_TOKEN_BYTES];
	struct gm_session *session;
	struct gm_session_info info = {.pid = pid, .uid = uid, .gid = uid, .domain = uid};
	ck_assert_int_eq(gm_session_new(fake.core, &info, token, &session), 0);
	return session;
}

START_TEST(many_small_sessions_do_not_hide_a_large_holder)
{
	when_out_of_memory(GM_POLICY_OOM_TERMINATE);
	fake_lease(&fake, a, d, 30 * GiB);
	struct gm_session *last = NULL;
	for (int i = 0; i < 66; i++) {
		last = session_of(70, 700);
		fake_lease(&fake, last, d, GiB);
	}
	fake_pass(&fake, 3 * SECOND);
	victim_is(1, last);
	/* The process holds all of it. */
	ck_assert_uint_eq(fake_told(&fake, GM_EVENT_VICTIM)->event.held, 66 * GiB);
}
END_TEST

START_TEST(of_the_user_that_holds_most_the_process_ends_that_holds_most)
{
	when_out_of_memory(GM_POLICY_OOM_TERMINATE);
	fake_lease(&fake, a, d, 30 * GiB);
	struct gm_session *large[2];
	fake_lease(&fake, session_of(70, 700), d, 25 * GiB);
	large[0] = session_of(70, 701);
	fake_lease(&fake, large[0], d, 10 * GiB);
	large[1] = session_of(70, 701);
	fake_lease(&fake, large[1], d, 16 * GiB);
	/* Another user's process of the same number is another process. */
	fake_lease(&fake, session_of(71, 700), d, 15 * GiB);
	fake_pass(&fake, 3 * SECOND);
	victim_is(1, large[1]);
	ck_assert_uint_eq(fake_told(&fake, GM_EVENT_VICTIM)->event.held, 26 * GiB);
}
END_TEST

START_TEST(what_a_user_holds_within_its_guarantee_does_not_count_against_it)
{
	when_out_of_memory(GM_POLICY_OOM_TERMINATE);
	give(1, GM_LIMIT_GUARANTEE, 45 * GiB, 0);
	fake_lease(&fake, a, d, 40 * GiB);
	fake_lease(&fake, a, d, 20 * GiB);
	fake_lease(&fake, b, d, 20 * GiB);
	fake_lease(&fake, c, d, 16 * GiB);
	fake_pass(&fake, 3 * SECOND);
	/* a is 15 GiB beyond it. */
	victim_is(1, b);
}
END_TEST

START_TEST(a_lower_priority_goes_first_however_little_its_user_holds)
{
	when_out_of_memory(GM_POLICY_OOM_TERMINATE);
	give(3, GM_LIMIT_PRIORITY, 0, -1);
	fake_lease(&fake, a, d, 60 * GiB);
	fake_lease(&fake, c, d, 16 * GiB);
	fake_lease(&fake, b, d, 20 * GiB);
	fake_pass(&fake, 3 * SECOND);
	victim_is(1, c);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ladder_terminate");
	TCase *tcase = tcase_create("reclaim");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, only_oom_terminate_ends_a_client_and_the_right_one);
	tcase_add_loop_test(
		tcase, nobody_is_terminated_or_asked_again_while_buffers_may_still_move, 0, 2);
	tcase_add_test(tcase, a_client_that_has_moved_too_little_is_not_waited_for);
	tcase_add_loop_test(tcase, nobody_is_terminated_for_a_lie_before_it_was_asked_itself, 0, 2);
	tcase_add_test(tcase, a_client_that_was_asked_for_its_cache_is_still_asked_to_move_buffers);
	tcase_add_loop_test(tcase, nobody_is_terminated_while_moving_buffers_works, 0, 2);
	tcase_add_test(tcase, on_the_border_of_a_level_there_is_something_to_do);
	tcase_add_test(tcase, nobody_is_terminated_while_the_level_only_waits_for_its_dwell);
	tcase_add_test(tcase, cleanup_comes_a_second_before_the_first_termination);
	tcase_add_test(tcase, nobody_is_terminated_while_a_level_only_waits_to_fall);
	tcase_add_test(tcase, a_victim_that_ended_by_itself_is_no_lack_of_rights);
	tcase_add_test(tcase, without_the_right_to_terminate_it_is_told_once);
	tcase_add_test(tcase, nobody_is_terminated_for_what_foreign_programs_use);
	tcase_add_test(tcase, many_small_sessions_do_not_hide_a_large_holder);
	tcase_add_test(tcase, of_the_user_that_holds_most_the_process_ends_that_holds_most);
	tcase_add_test(tcase, what_a_user_holds_within_its_guarantee_does_not_count_against_it);
	tcase_add_test(tcase, a_lower_priority_goes_first_however_little_its_user_holds);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
