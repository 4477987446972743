/* SPDX-License-Identifier: Apache-2.0 */

/* Lanes with descriptors that are always ready: who is served, and how often, in a turn. */

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/net/lane.h"
#include "tests/tap.h"

enum { MANY = 100 };

static uv_loop_t loop;
static struct gm_lanes lanes;

struct source {
	struct gm_lane_fd fd;
	struct gm_lane_task task;
	unsigned int served, ran;
	unsigned int again; /* the task posts itself so many times more */
};

static void on_ready(struct gm_lane_fd *fd, uint32_t events)
{
	ck_assert(events & EPOLLIN);
	((struct source *)fd)->served++;
}

static void on_run(struct gm_lane_task *task)
{
	struct source *source = (struct source *)((char *)task - offsetof(struct source, task));

	source->ran++;
	if (source->again && source->again--)
		gm_lane_post(source->fd.lane, task);
}

static void setup(void)
{
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	ck_assert_int_eq(gm_lanes_init(&lanes, &loop), 0);
}

static void teardown(void)
{
	ck_assert_ptr_null(lanes.all);
	ck_assert_uint_eq(lanes.n_busy, 0);
	gm_lanes_close(&lanes);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static void open_source(struct source *source, uid_t uid)
{
	struct gm_lane *lane;

	memset(source, 0, sizeof(*source));
	source->fd.fd = eventfd(1, EFD_CLOEXEC);
	source->fd.events = EPOLLIN;
	source->fd.ready = on_ready;
	source->task.run = on_run;
	ck_assert_int_eq(gm_lane_get(&lanes, uid, &lane), 0);
	ck_assert_int_eq(gm_lane_add(lane, &source->fd), 0);
}

static void close_source(struct source *source)
{
	struct gm_lane *lane = source->fd.lane;

	gm_lane_withdraw(&source->task);
	gm_lane_remove(&source->fd);
	close(source->fd.fd);
	gm_lane_unref(lane);
}

static unsigned int sum_served(const struct source *sources, size_t n)
{
	unsigned int sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += sources[i].served;
	return sum;
}

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
		open_source(&busy[i], 1000);
		gm_lane_post(busy[i].fd.lane, &busy[i].task);
		gm_lane_post(busy[i].fd.lane, &busy[i].task); /* it is posted already */
	}
	open_source(&other, 1001);
	other.again = 4;
	gm_lane_post(other.fd.lane, &other.task);
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
	ck_assert(!uv_is_active((uv_handle_t *)&lanes.idle));
	close_source(&other);
}
END_TEST

START_TEST(a_task_that_is_withdrawn_does_not_run)
{
	struct source one, two;

	open_source(&one, 1000);
	open_source(&two, 1000);
	gm_lane_post(one.fd.lane, &one.task);
	gm_lane_post(two.fd.lane, &two.task);
	gm_lane_withdraw(&one.task);
	gm_lane_withdraw(&one.task);
	uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(one.ran, 0);
	ck_assert_uint_eq(two.ran, 1);
	close_source(&one);
	close_source(&two);
}
END_TEST

static struct source victims[3];

/* Ends everything, the lane and itself included. */
static void on_ready_end_all(struct gm_lane_fd *fd, uint32_t events)
{
	(void)fd;
	(void)events;
	for (size_t i = 0; i < 3; i++)
		close_source(&victims[i]);
}

START_TEST(a_descriptor_may_end_all_others_and_the_lane)
{
	for (size_t i = 0; i < 3; i++) {
		open_source(&victims[i], 1000);
		victims[i].fd.ready = on_ready_end_all;
		gm_lane_post(victims[i].fd.lane, &victims[i].task);
	}
	uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_ptr_null(gm_lane_find(&lanes, 1000));
	uv_run(&loop, UV_RUN_NOWAIT);
	for (size_t i = 0; i < 3; i++)
		ck_assert_uint_le(victims[i].ran, 1);
}
END_TEST

START_TEST(a_descriptor_is_heard_of_only_for_what_it_asked)
{
	struct source source;

	open_source(&source, 1000);
	ck_assert_int_eq(gm_lane_change(&source.fd, 0), 0);
	uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(source.served, 0);
	ck_assert_int_eq(gm_lane_change(&source.fd, EPOLLIN), 0);
	uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(source.served, 1);
	close_source(&source);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lane");
	TCase *tests = tcase_create("lane");

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, a_user_with_many_ready_sockets_gets_one_turn_like_everybody);
	tcase_add_test(tests, a_user_with_many_tasks_gets_one_turn_like_everybody);
	tcase_add_test(tests, a_task_that_is_withdrawn_does_not_run);
	tcase_add_test(tests, a_descriptor_may_end_all_others_and_the_lane);
	tcase_add_test(tests, a_descriptor_is_heard_of_only_for_what_it_asked);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
