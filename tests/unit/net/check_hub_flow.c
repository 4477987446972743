/* SPDX-License-Identifier: Apache-2.0 */

/* Who is served, how often, and for how long. */

#include "tests/unit/net/hub_flow_fixture.h"

START_TEST(a_user_with_many_ready_sockets_gets_one_turn_like_everybody)
{
	static struct source busy[MANY];
	struct source other;

	for (size_t i = 0; i < MANY; i++)
		open_source(&busy[i], 1000);
	open_source(&other, 1001);
	for (unsigned int turn = 1; turn <= 10; turn++) {
		uv_run(&loop, UV_RUN_NOWAIT);
		ck_assert_uint_eq(sum_served(busy, MANY), turn);
		ck_assert_uint_eq(other.served, turn);
	}

	/* The sockets of one user take turns as well. */
	for (int i = 10; i < MANY; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	for (size_t i = 0; i < MANY; i++)
		ck_assert_uint_eq(busy[i].served, 1);
	for (size_t i = 0; i < MANY; i++)
		close_source(&busy[i]);
	close_source(&other);
}
END_TEST

START_TEST(a_user_with_many_tasks_gets_one_turn_like_everybody)
{
	static struct source busy[MANY];
	struct source other;
	unsigned int ran = 0;

	for (size_t i = 0; i < MANY; i++) {
		open_idle(&busy[i], 1000);
		gm_hub_flow_post(busy[i].fd.flow, &busy[i].task);
		gm_hub_flow_post(busy[i].fd.flow, &busy[i].task); /* it is posted already */
	}
	open_idle(&other, 1001);
	other.again = 4;
	gm_hub_flow_post(other.fd.flow, &other.task);
	for (int turn = 0; turn < 5; turn++)
		uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(other.ran, 5);
	for (size_t i = 0; i < MANY; i++)
		ran += busy[i].ran;
	ck_assert_uint_eq(ran, 5);
	ck_assert_uint_eq(busy[4].ran, 1); /* in the order in which they were posted */

	/* The rest runs once each, and then the loop has nothing to do. */
	for (int turn = 0; turn < MANY; turn++)
		uv_run(&loop, UV_RUN_NOWAIT);
	for (size_t i = 0; i < MANY; i++) {
		ck_assert_uint_eq(busy[i].ran, 1);
		close_source(&busy[i]);
	}
	ck_assert(!uv_is_active((uv_handle_t *)&flows.idle));
	close_source(&other);
}
END_TEST

START_TEST(a_task_that_is_withdrawn_does_not_run)
{
	struct source one, two;

	open_idle(&one, 1000);
	open_idle(&two, 1000);
	gm_hub_flow_post(one.fd.flow, &one.task);
	gm_hub_flow_post(two.fd.flow, &two.task);
	gm_hub_flow_withdraw(&one.task);
	gm_hub_flow_withdraw(&one.task);
	uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(one.ran, 0);
	ck_assert_uint_eq(two.ran, 1);
	close_source(&one);
	close_source(&two);
}
END_TEST

static struct source victims[3];

/* Ends everything, the flow and itself included. */
static void on_ready_end_all(struct gm_hub_flow_fd *fd, uint32_t events)
{
	(void)fd;
	(void)events;
	for (size_t i = 0; i < 3; i++)
		close_source(&victims[i]);
}

START_TEST(a_descriptor_may_end_all_others_and_the_flow)
{
	for (size_t i = 0; i < 3; i++) {
		open_source(&victims[i], 1000);
		victims[i].fd.ready = on_ready_end_all;
		gm_hub_flow_post(victims[i].fd.flow, &victims[i].task);
	}
	uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_ptr_null(gm_hub_flow_find(&flows, 1000));
	uv_run(&loop, UV_RUN_NOWAIT);
	for (size_t i = 0; i < 3; i++)
		ck_assert_uint_le(victims[i].ran, 1);
}
END_TEST

START_TEST(a_descriptor_is_heard_of_only_for_what_it_asked)
{
	struct source source;

	open_source(&source, 1000);
	ck_assert_int_eq(gm_hub_flow_change(&source.fd, 0), 0);
	uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(source.served, 0);
	ck_assert_int_eq(gm_hub_flow_change(&source.fd, EPOLLIN), 0);
	uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(source.served, 1);
	close_source(&source);
}
END_TEST

START_TEST(events_and_tasks_of_a_user_alternate)
{
	struct source source;

	open_source(&source, 1000);
	source.again = 9;
	gm_hub_flow_post(source.fd.flow, &source.task);
	for (int turn = 0; turn < 10; turn++)
		uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(source.served, 5);
	ck_assert_uint_eq(source.ran, 5);
	close_source(&source);
}
END_TEST

/* ---- time */

START_TEST(a_user_with_long_turns_gets_no_more_time_than_one_with_short_turns)
{
	struct source lengthy, brief;

	open_source(&lengthy, 1000);
	open_source(&brief, 1001);
	lengthy.takes_ns = 400 * USEC;
	brief.takes_ns = 10 * USEC;
	for (int i = 0; i < ENOUGH; i++) {
		uv_run(&loop, UV_RUN_NOWAIT);
		expect_alike(&lengthy, &brief);
	}
	ck_assert_uint_ge(lengthy.served, 10);
	ck_assert_uint_ge(brief.served, 30 * lengthy.served);
	close_source(&lengthy);
	close_source(&brief);
}
END_TEST

START_TEST(the_time_of_tasks_and_that_of_events_count_alike)
{
	struct source tasks, events;

	open_idle(&tasks, 1000);
	open_source(&events, 1001);
	tasks.takes_ns = 300 * USEC;
	tasks.again = ENOUGH;
	events.takes_ns = 7 * USEC;
	gm_hub_flow_post(tasks.fd.flow, &tasks.task);
	for (int i = 0; i < ENOUGH; i++) {
		uv_run(&loop, UV_RUN_NOWAIT);
		expect_alike(&tasks, &events);
	}
	ck_assert_uint_ge(tasks.ran, 10);
	close_source(&tasks);
	close_source(&events);
}
END_TEST

START_TEST(many_connections_of_a_user_get_no_more_time_than_one_of_another)
{
	static struct source many[MANY];
	struct source one, sum = {.takes_ns = 50 * USEC};

	for (size_t i = 0; i < MANY; i++) {
		open_source(&many[i], 1000);
		many[i].takes_ns = sum.takes_ns;
	}
	open_source(&one, 1001);
	one.takes_ns = 20 * USEC;
	for (int i = 0; i < ENOUGH; i++) {
		uv_run(&loop, UV_RUN_NOWAIT);
		sum.served = sum_served(many, MANY);
		expect_alike(&sum, &one);
	}
	for (size_t i = 0; i < MANY; i++)
		close_source(&many[i]);
	close_source(&one);
}
END_TEST

START_TEST(a_user_who_asks_little_waits_for_one_turn_of_many_busy_users)
{
	enum { BUSY = 4 };
	struct source busy[BUSY], other;

	for (size_t i = 0; i < BUSY; i++) {
		open_source(&busy[i], 1000 + i);
		busy[i].takes_ns = GM_HUB_FLOW_QUANTUM_NS;
	}
	open_idle(&other, 2000);
	other.takes_ns = 10 * USEC;
	for (unsigned int i = 1; i <= 100; i++) {
		run_turns(BUSY);
		ck_assert_int_eq(gm_hub_flow_change(&other.fd, EPOLLIN), 0);
		unsigned int before = sum_served(busy, BUSY);
		while (other.served < i)
			uv_run(&loop, UV_RUN_NOWAIT);
		ck_assert_uint_le(sum_served(busy, BUSY) - before, 1);
		ck_assert_int_eq(gm_hub_flow_change(&other.fd, 0), 0);
	}
	for (size_t i = 0; i < BUSY; i++)
		close_source(&busy[i]);
	close_source(&other);
}
END_TEST

START_TEST(a_user_who_was_away_has_saved_no_time_up)
{
	struct source busy, away;

	open_source(&busy, 1000);
	open_idle(&away, 1001);
	busy.takes_ns = away.takes_ns = 30 * USEC;
	run_turns(ENOUGH);
	ck_assert_int_eq(gm_hub_flow_change(&away.fd, EPOLLIN), 0);
	busy.served = 0;
	for (int i = 0; i < ENOUGH; i++) {
		uv_run(&loop, UV_RUN_NOWAIT);
		expect_alike(&busy, &away);
	}
	close_source(&busy);
	close_source(&away);
}
END_TEST

START_TEST(a_user_alone_gets_the_whole_loop)
{
	struct source source;

	open_source(&source, 1000);
	source.takes_ns = GM_HUB_FLOW_LEAD_NS;
	run_turns(TURNS);
	ck_assert_uint_eq(source.served, TURNS);
	close_source(&source);
}
END_TEST

START_TEST(what_is_sent_to_a_user_in_the_turn_of_another_counts_as_its_time)
{
	struct source sender, receiver, third;

	open_source(&sender, 1000);
	open_source(&receiver, 1001);
	open_source(&third, 1002);
	sender.takes_ns = 40 * USEC;
	sender.sends_to = &receiver;
	third.takes_ns = 40 * USEC;
	run_turns(ENOUGH);
	/* The receiver pays, so the sender has turns without end and the receiver as good as
	 * none. */
	ck_assert_uint_le(receiver.served, 2);
	ck_assert_uint_ge(sender.served, third.served);
	close_source(&sender);
	close_source(&receiver);
	close_source(&third);
}
END_TEST

static bool was_up[3];

static void on_ready_ask(struct gm_hub_flow_fd *fd, uint32_t events)
{
	(void)events;
	was_up[0] = gm_hub_flow_time_is_up(fd->flow);
	now_ns += GM_HUB_FLOW_SLICE_NS - 1;
	was_up[1] = gm_hub_flow_time_is_up(fd->flow);
	now_ns += 1;
	was_up[2] = gm_hub_flow_time_is_up(fd->flow);
}

START_TEST(a_turn_has_a_slice_of_time_and_there_is_none_outside_of_it)
{
	struct source source;

	open_source(&source, 1000);
	source.fd.ready = on_ready_ask;
	ck_assert(gm_hub_flow_time_is_up(source.fd.flow));
	run_turns(1);
	ck_assert(!was_up[0] && !was_up[1] && was_up[2]);
	ck_assert(gm_hub_flow_time_is_up(source.fd.flow));
	close_source(&source);
}
END_TEST

/* ---- turns that take long */

START_TEST(a_user_whose_turn_took_long_rests_and_the_others_do_not)
{
	struct source slow, other;

	open_source(&other, 1001);
	open_source(&slow, 1000);
	slow.takes_ns = LONG_NS;
	run_turns(TURNS);
	ck_assert(gm_hub_flow_rests(slow.fd.flow));
	ck_assert_uint_eq(slow.served, 1);
	ck_assert_uint_eq(other.served, TURNS);

	/* It goes on where it was, and rests again after the next long turn. */
	ck_assert_uint_eq(slow.fd.flow->rest_until_ns, now_ns + REST_NS);
	pass(REST_NS);
	run_turns(TURNS);
	ck_assert_uint_eq(slow.served, 2);
	slow.takes_ns = 0;
	pass(REST_NS);
	run_turns(TURNS);
	ck_assert(!gm_hub_flow_rests(slow.fd.flow));
	ck_assert_uint_ge(slow.served, 2 + TURNS);
	close_source(&slow);
	close_source(&other);
}
END_TEST

START_TEST(a_user_whose_task_took_long_rests_with_all_its_tasks)
{
	struct source slow, second, other;

	open_idle(&slow, 1000);
	open_idle(&second, 1000);
	open_idle(&other, 1001);
	slow.takes_ns = LONG_NS;
	other.again = TURNS - 1;
	gm_hub_flow_post(other.fd.flow, &other.task);
	gm_hub_flow_post(slow.fd.flow, &slow.task);
	gm_hub_flow_post(second.fd.flow, &second.task);
	run_turns(TURNS);
	ck_assert_uint_eq(slow.ran, 1);
	ck_assert_uint_eq(second.ran, 0);
	ck_assert_uint_eq(other.ran, TURNS);

	/* What is posted and withdrawn meanwhile is neither run nor lost. */
	gm_hub_flow_post(slow.fd.flow, &slow.task);
	gm_hub_flow_withdraw(&second.task);
	run_turns(TURNS);
	ck_assert_uint_eq(slow.ran, 1);
	slow.takes_ns = 0;
	pass(REST_NS);
	run_turns(TURNS);
	ck_assert_uint_eq(slow.ran, 2);
	ck_assert_uint_eq(second.ran, 0);
	close_source(&slow);
	close_source(&second);
	close_source(&other);
}
END_TEST

START_TEST(the_loop_sleeps_while_the_only_user_rests)
{
	struct source slow;

	open_source(&slow, 1000);
	slow.takes_ns = UINT64_C(3600000000000);
	slow.again = 1;
	gm_hub_flow_post(slow.fd.flow, &slow.task);
	run_turns(TURNS);
	ck_assert_uint_eq(slow.served + slow.ran, 1);
	ck_assert(!uv_is_active((uv_handle_t *)&flows.idle));
	struct epoll_event event;
	ck_assert_int_eq(epoll_wait(flows.epoll, &event, 1, 0), 0);

	/* However long the turn took, the rest has a bound. */
	ck_assert_uint_eq(slow.fd.flow->rest_until_ns, now_ns + GM_HUB_FLOW_REST_MAX_NS);
	close_source(&slow);
	ck_assert_ptr_null(gm_hub_flow_find(&flows, 1000));
}
END_TEST

START_TEST(a_user_pays_for_what_is_sent_to_it_in_the_turn_of_another)
{
	struct source sender, receiver;

	open_source(&sender, 1000);
	open_idle(&receiver, 1001);
	sender.takes_ns = LONG_NS;
	sender.sends_to = &receiver;
	run_turns(TURNS);
	ck_assert(gm_hub_flow_rests(receiver.fd.flow));
	ck_assert(!gm_hub_flow_rests(sender.fd.flow));
	ck_assert_uint_eq(sender.served, TURNS);
	close_source(&sender);
	close_source(&receiver);
}
END_TEST

START_TEST(the_ends_of_a_users_processes_do_not_wait_while_it_rests)
{
	struct source slow, end;

	open_source(&slow, 1000);
	slow.takes_ns = LONG_NS;
	run_turns(TURNS);
	ck_assert(gm_hub_flow_rests(slow.fd.flow));

	open_source(&end, 1000 | GM_HUB_FLOW_ENDS);
	end.takes_ns = LONG_NS;
	run_turns(TURNS);
	ck_assert_uint_eq(end.served, TURNS);
	ck_assert_uint_eq(slow.served, 1);
	close_source(&slow);
	close_source(&end);
}
END_TEST

START_TEST(neither_administrators_rest_nor_users_whose_turn_waited_for_the_cpu)
{
	struct source admin, user;

	open_source(&admin, 1000 | GM_HUB_FLOW_ADMIN);
	admin.takes_ns = LONG_NS;
	run_turns(TURNS);
	ck_assert_uint_eq(admin.served, TURNS);

	/* However long its turns were, it comes next when the user has had as much as a lead. */
	open_source(&user, 1000);
	user.takes_ns = GM_HUB_FLOW_LEAD_NS / TURNS;
	admin.served = 0;
	while (admin.served < 2)
		run_turns(1);
	ck_assert_uint_le(user.served, 2 * TURNS + 2);
	close_source(&admin);

	user.served = 0;
	user.takes_ns = LONG_NS;
	user.waits = true;
	run_turns(TURNS);
	ck_assert_uint_eq(user.served, TURNS);
	close_source(&user);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("flow");
	TCase *tests = tcase_create("flow");

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, a_user_with_many_ready_sockets_gets_one_turn_like_everybody);
	tcase_add_test(tests, a_user_with_many_tasks_gets_one_turn_like_everybody);
	tcase_add_test(tests, a_task_that_is_withdrawn_does_not_run);
	tcase_add_test(tests, a_descriptor_may_end_all_others_and_the_flow);
	tcase_add_test(tests, a_descriptor_is_heard_of_only_for_what_it_asked);
	tcase_add_test(tests, events_and_tasks_of_a_user_alternate);
	tcase_add_test(tests, a_user_with_long_turns_gets_no_more_time_than_one_with_short_turns);
	tcase_add_test(tests, the_time_of_tasks_and_that_of_events_count_alike);
	tcase_add_test(tests, many_connections_of_a_user_get_no_more_time_than_one_of_another);
	tcase_add_test(tests, a_user_who_asks_little_waits_for_one_turn_of_many_busy_users);
	tcase_add_test(tests, a_user_who_was_away_has_saved_no_time_up);
	tcase_add_test(tests, a_user_alone_gets_the_whole_loop);
	tcase_add_test(tests, what_is_sent_to_a_user_in_the_turn_of_another_counts_as_its_time);
	tcase_add_test(tests, a_turn_has_a_slice_of_time_and_there_is_none_outside_of_it);
	tcase_add_test(tests, a_user_whose_turn_took_long_rests_and_the_others_do_not);
	tcase_add_test(tests, a_user_whose_task_took_long_rests_with_all_its_tasks);
	tcase_add_test(tests, the_loop_sleeps_while_the_only_user_rests);
	tcase_add_test(tests, a_user_pays_for_what_is_sent_to_it_in_the_turn_of_another);
	tcase_add_test(tests, the_ends_of_a_users_processes_do_not_wait_while_it_rests);
	tcase_add_test(tests, neither_administrators_rest_nor_users_whose_turn_waited_for_the_cpu);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
