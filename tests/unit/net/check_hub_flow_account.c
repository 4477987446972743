/* SPDX-License-Identifier: Apache-2.0 */

/* Accounts of users that come and go, and who pays for what. */

#include "tests/unit/net/hub_flow_fixture.h"

START_TEST(a_user_who_reconnects_all_the_time_gets_no_more_time_than_one_who_stays)
{
	struct source comes, stays, sum = {.takes_ns = 400 * USEC};

	open_source(&stays, 1001);
	stays.takes_ns = 10 * USEC;
	for (int i = 0; i < ENOUGH; i++) {
		open_source(&comes, 1000);
		comes.takes_ns = sum.takes_ns;
		for (int n = 0; n < ENOUGH && !comes.served; n++)
			uv_run(&loop, UV_RUN_NOWAIT);
		ck_assert_uint_eq(comes.served, 1);
		sum.served++;
		close_source(&comes);
		expect_alike(&sum, &stays);
	}
	close_source(&stays);
}
END_TEST

/* Closes itself, and the flow with it, at the end of a turn that took time. */
static void on_ready_leave(struct gm_hub_flow_fd *fd, uint32_t events)
{
	(void)events;
	((struct source *)fd)->served++;
	now_ns += LONG_NS;
	cpu_ns += LONG_NS;
	close_source((struct source *)fd);
}

START_TEST(a_rest_outlives_the_connection_and_ends_in_time)
{
	struct source source, again, other;

	open_source(&other, 1001);
	open_source(&source, 1000);
	source.fd.ready = on_ready_leave;
	run_turns(TURNS);
	ck_assert_uint_eq(source.served, 1);
	ck_assert_ptr_null(gm_hub_flow_find(&flows, 1000));
	open_source(&again, 1000);
	ck_assert(gm_hub_flow_rests(again.fd.flow));
	run_turns(TURNS);
	ck_assert_uint_eq(again.served, 0);
	pass(REST_NS);
	run_turns(TURNS);
	ck_assert_uint_ge(again.served, 1);

	/* Nothing is left to pay. */
	close_source(&again);
	now_ns += GM_HUB_FLOW_REST_MAX_NS;
	run_turns(TURNS);
	open_source(&again, 1000);
	ck_assert(!gm_hub_flow_rests(again.fd.flow));
	close_source(&again);
	close_source(&other);
}
END_TEST

START_TEST(what_is_done_for_a_user_without_a_connection_counts_when_it_comes)
{
	struct source source, other;

	open_source(&other, 1001);
	other.takes_ns = 10 * USEC;
	uint64_t began_ns = gm_hub_flow_begin_work(&flows);
	now_ns += 500 * USEC;
	cpu_ns += 500 * USEC;
	gm_hub_flow_end_work_of(&flows, 1000, began_ns);
	open_source(&source, 1000);
	source.takes_ns = 10 * USEC;
	while (!source.served)
		run_turns(1);
	ck_assert_uint_ge(other.served, 45);
	close_source(&source);
	close_source(&other);
}
END_TEST

START_TEST(each_time_is_paid_for_once_by_the_innermost_work)
{
	struct source outer, inner;

	open_idle(&outer, 1000);
	open_idle(&inner, 1001);
	uint64_t outer_ns = gm_hub_flow_begin_work(&flows);
	now_ns += 5 * USEC;
	uint64_t inner_ns = gm_hub_flow_begin_work(&flows);
	now_ns += 30 * USEC;
	gm_hub_flow_end_work(inner.fd.flow, inner_ns);
	now_ns += 7 * USEC;
	gm_hub_flow_end_work(outer.fd.flow, outer_ns);
	ck_assert_uint_eq(outer.fd.flow->virtual_ns, flows.virtual_ns + 12 * USEC);
	ck_assert_uint_eq(inner.fd.flow->virtual_ns, flows.virtual_ns + 30 * USEC);
	close_source(&outer);
	close_source(&inner);
}
END_TEST

START_TEST(accounts_of_users_that_left_do_not_pile_up)
{
	struct source stays, comes;

	open_source(&stays, 1);
	stays.takes_ns = 40 * USEC;
	for (uint64_t uid = 1000; uid < 1000 + ENOUGH; uid++) {
		open_source(&comes, uid);
		comes.takes_ns = 40 * USEC;
		run_turns(4);
		ck_assert_uint_ge(comes.served, 1);
		close_source(&comes);
		ck_assert_uint_le(HASH_COUNT(flows.left), 4);
	}
	close_source(&stays);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("flow account");
	TCase *tests = tcase_create("flow account");

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(
		tests, a_user_who_reconnects_all_the_time_gets_no_more_time_than_one_who_stays);
	tcase_add_test(tests, a_rest_outlives_the_connection_and_ends_in_time);
	tcase_add_test(tests, what_is_done_for_a_user_without_a_connection_counts_when_it_comes);
	tcase_add_test(tests, each_time_is_paid_for_once_by_the_innermost_work);
	tcase_add_test(tests, accounts_of_users_that_left_do_not_pile_up);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
