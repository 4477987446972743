/* SPDX-License-Identifier: Apache-2.0 */

/* One user's share of the log. */

#include <stdio.h>
#include <string.h>

#include "daemon/net/log_limit.h"
#include "tests/bound.h"
#include "tests/tap.h"

static uv_loop_t loop;
static struct gm_user_table users;
static struct gm_log_limit quiet;
static size_t n_lines;
static char line[512];

static void sink(enum gm_log_level level, const char *message, const char *const *fields)
{
	(void)level;
	(void)fields;
	n_lines++;
	snprintf(line, sizeof(line), "%s", message);
}

static void setup(void)
{
	gm_log_set_sink(sink);
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	gm_user_table_init(&users);
	gm_log_limit_init(&quiet, &users, &loop);
}

static void teardown(void)
{
	gm_log_limit_close(&quiet);
	gm_user_table_deinit(&users);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static unsigned int allowed(uid_t uid, enum gm_log_level level, enum gm_log_limit_kind kind, int n)
{
	unsigned int yes = 0;

	for (int i = 0; i < n; i++)
		yes += gm_log_limit_allows(&quiet, uid, level, kind);
	return yes;
}

START_TEST(a_user_causes_so_many_lines_and_then_a_sum)
{
	ck_assert_uint_eq(
		allowed(1000, GM_LOG_NOTICE, GM_LOG_LIMIT_CONNECTION, 5214), GM_LOG_LIMIT_LINES);
	ck_assert_uint_eq(n_lines, 0);
	gm_log_limit_close(&quiet);
	ck_assert_uint_eq(n_lines, 1);
	ck_assert_str_eq(line, "dropped 5164 more connections from user 1000 in 10 s");
}
END_TEST

START_TEST(lines_of_all_kinds_count_together)
{
	ck_assert_uint_eq(allowed(1000, GM_LOG_INFO, GM_LOG_LIMIT_OTHER, 40), 40);
	ck_assert_uint_eq(allowed(1000, GM_LOG_NOTICE, GM_LOG_LIMIT_CONNECTION, 20), 10);
	ck_assert_uint_eq(allowed(1000, GM_LOG_INFO, GM_LOG_LIMIT_OTHER, 7), 0);
	gm_log_limit_close(&quiet);
	ck_assert_uint_eq(n_lines, 1);
	ck_assert_str_eq(line,
		"dropped 10 more connections from user 1000 in 10 s, and left out 7 log "
		"lines about user 1000");
}
END_TEST

START_TEST(other_lines_do_not_hide_warnings)
{
	ck_assert_uint_eq(
		allowed(1000, GM_LOG_NOTICE, GM_LOG_LIMIT_OTHER, 1000), GM_LOG_LIMIT_LINES);
	ck_assert_uint_eq(allowed(1000, GM_LOG_WARNING, GM_LOG_LIMIT_CONNECTION, 30), 30);
	ck_assert_uint_eq(allowed(1000, GM_LOG_ERROR, GM_LOG_LIMIT_OTHER, 30), 20);
	ck_assert_uint_eq(allowed(1000, GM_LOG_INFO, GM_LOG_LIMIT_OTHER, 1), 0);
}
END_TEST

START_TEST(each_user_has_its_own_time)
{
	allowed(1000, GM_LOG_NOTICE, GM_LOG_LIMIT_OTHER, GM_LOG_LIMIT_LINES + 1);
	uint64_t first = uv_now(&loop);
	while (uv_now(&loop) == first)
		uv_update_time(&loop);
	allowed(1001, GM_LOG_NOTICE, GM_LOG_LIMIT_OTHER, GM_LOG_LIMIT_LINES + 1);

	gm_log_limit_expire(&quiet, first + GM_LOG_LIMIT_S * 1000 - 1);
	ck_assert_uint_eq(n_lines, 0);
	ck_assert_uint_eq(allowed(1000, GM_LOG_NOTICE, GM_LOG_LIMIT_OTHER, 1), 0);
	gm_log_limit_expire(&quiet, first + GM_LOG_LIMIT_S * 1000);
	ck_assert_uint_eq(n_lines, 1);
	ck_assert_str_eq(line, "left out 2 log lines about user 1000 in 10 s");
	ck_assert_uint_eq(allowed(1000, GM_LOG_NOTICE, GM_LOG_LIMIT_OTHER, 1), 1);
	ck_assert_uint_eq(allowed(1001, GM_LOG_NOTICE, GM_LOG_LIMIT_OTHER, 1), 0);
}
END_TEST

START_TEST(so_many_users_are_heard_until_the_sum)
{
	GM_BOUND_TEST(LOGGED_UIDS);
	for (uid_t uid = 0; uid < GM_BOUND_LOGGED_UIDS; uid++)
		ck_assert_uint_eq(allowed(uid, GM_LOG_NOTICE, GM_LOG_LIMIT_OTHER, 1), 1);
	ck_assert_uint_eq(allowed(GM_BOUND_LOGGED_UIDS, GM_LOG_NOTICE, GM_LOG_LIMIT_OTHER, 2), 0);
	ck_assert_uint_eq(allowed(7, GM_LOG_NOTICE, GM_LOG_LIMIT_OTHER, 1), 1);
	gm_log_limit_close(&quiet);
	ck_assert_uint_eq(n_lines, 0);
}
END_TEST

START_TEST(watchers_hear_of_so_many_events_about_a_user_in_a_second)
{
	unsigned int told = 0, firsts = 0;
	bool first;

	for (int i = 0; i < 1000; i++) {
		told += gm_log_limit_allows_news(&quiet, 1000, GM_LOG_NOTICE, &first);
		firsts += first;
	}
	ck_assert_uint_eq(told, GM_LOG_LIMIT_NEWS);
	ck_assert_uint_eq(firsts, 1);
	/* Neither others nor warnings are left out for that, nor lines of the log. */
	ck_assert(gm_log_limit_allows_news(&quiet, 1001, GM_LOG_NOTICE, &first));
	ck_assert(gm_log_limit_allows_news(&quiet, 1000, GM_LOG_WARNING, &first));
	ck_assert_uint_eq(allowed(1000, GM_LOG_NOTICE, GM_LOG_LIMIT_OTHER, 1), 1);

	uint64_t until = uv_now(&loop) + 1000;
	while (uv_now(&loop) < until)
		uv_update_time(&loop);
	ck_assert(gm_log_limit_allows_news(&quiet, 1000, GM_LOG_NOTICE, &first));
	gm_log_limit_close(&quiet);
	ck_assert_uint_eq(n_lines, 0);
}
END_TEST

START_TEST(events_about_something_else_are_counted_for_each_thing)
{
	struct gm_log_limit_news here = {0}, there = {0};
	bool first;

	for (int i = 0; i < GM_LOG_LIMIT_NEWS; i++)
		ck_assert(gm_log_limit_news_allows(&here, 7000, GM_LOG_INFO, &first) && !first);
	ck_assert(!gm_log_limit_news_allows(&here, 7999, GM_LOG_INFO, &first) && first);
	ck_assert(!gm_log_limit_news_allows(&here, 7999, GM_LOG_INFO, &first) && !first);
	ck_assert(gm_log_limit_news_allows(&there, 7999, GM_LOG_INFO, &first));
	ck_assert(gm_log_limit_news_allows(&here, 7999, GM_LOG_WARNING, &first));
	ck_assert(gm_log_limit_news_allows(&here, 8000, GM_LOG_INFO, &first));
}
END_TEST

START_TEST(another_user_is_heard)
{
	allowed(1000, GM_LOG_NOTICE, GM_LOG_LIMIT_OTHER, 1000);
	ck_assert_uint_eq(allowed(1001, GM_LOG_NOTICE, GM_LOG_LIMIT_OTHER, GM_LOG_LIMIT_LINES),
		GM_LOG_LIMIT_LINES);
	gm_log_limit_close(&quiet);
	ck_assert_uint_eq(n_lines, 1); /* nothing was left out about the other one */
	ck_assert_str_eq(line, "left out 950 log lines about user 1000 in 10 s");
}
END_TEST

START_TEST(events_that_are_left_out_are_summed_up_with_the_text_of_one)
{
	ck_assert(gm_log_limit_allows(&quiet, 1000, GM_LOG_NOTICE, GM_LOG_LIMIT_EVENT));
	for (int i = 0; i < 18000; i++)
		gm_log_limit_leave_out(&quiet, 1000, 3, i ? "another" : "a (pid 7): refused: why");
	gm_log_limit_expire(&quiet, UINT64_MAX);
	ck_assert_uint_eq(n_lines, 1);
	ck_assert_str_eq(line, "a (pid 7): refused: why (18,000 more like this)");

	/* Once they are summed up, the next ones are others. */
	gm_log_limit_leave_out(&quiet, 1000, 4, "b (pid 8): waits: why");
	gm_log_limit_close(&quiet);
	ck_assert_uint_eq(n_lines, 2);
	ck_assert_str_eq(line, "b (pid 8): waits: why (1 more like this)");
}
END_TEST

START_TEST(an_event_that_the_user_may_not_log_is_counted_once)
{
	ck_assert_uint_eq(allowed(1000, GM_LOG_NOTICE, GM_LOG_LIMIT_EVENT, GM_LOG_LIMIT_LINES + 7),
		GM_LOG_LIMIT_LINES);
	gm_log_limit_leave_out(&quiet, 1000, 3, "a: refused: why");
	gm_log_limit_leave_out(&quiet, 1000, 4, "a: waits: why");
	gm_log_limit_close(&quiet);
	ck_assert_uint_eq(n_lines, 2);
	ck_assert_str_eq(line, "left out 1 log line about user 1000 in 10 s");
}
END_TEST

START_TEST(lines_for_debugging_are_not_counted)
{
	ck_assert_uint_eq(allowed(1000, GM_LOG_DEBUG, GM_LOG_LIMIT_OTHER, 1000), 1000);
	ck_assert_uint_eq(allowed(1000, GM_LOG_INFO, GM_LOG_LIMIT_OTHER, 1), 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("quiet");
	TCase *tests = tcase_create("quiet");

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, a_user_causes_so_many_lines_and_then_a_sum);
	tcase_add_test(tests, lines_of_all_kinds_count_together);
	tcase_add_test(tests, other_lines_do_not_hide_warnings);
	tcase_add_test(tests, another_user_is_heard);
	tcase_add_test(tests, each_user_has_its_own_time);
	tcase_add_test(tests, so_many_users_are_heard_until_the_sum);
	tcase_add_test(tests, watchers_hear_of_so_many_events_about_a_user_in_a_second);
	tcase_add_test(tests, events_about_something_else_are_counted_for_each_thing);
	tcase_add_test(tests, events_that_are_left_out_are_summed_up_with_the_text_of_one);
	tcase_add_test(tests, an_event_that_the_user_may_not_log_is_counted_once);
	tcase_add_test(tests, lines_for_debugging_are_not_counted);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
