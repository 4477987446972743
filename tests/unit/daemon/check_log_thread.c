/* SPDX-License-Identifier: Apache-2.0 */

/* The log's thread, before a reader that takes its time. */

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log_thread.h"
#include "tests/tap.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool shut;  /* the reader takes nothing */
static bool stuck; /* a line is held up by that */
static size_t n_lines;
static char last[256], last_field[64], first[256];

static void reader(enum gm_log_level level, const char *message, const char *const *fields)
{
	(void)level;
	pthread_mutex_lock(&lock);
	stuck = shut;
	pthread_cond_broadcast(&changed);
	while (shut)
		pthread_cond_wait(&changed, &lock);
	stuck = false;
	snprintf(n_lines++ ? last : first, sizeof(last), "%s", message);
	snprintf(last_field, sizeof(last_field), "%s", fields[0] ? fields[0] : "");
	pthread_mutex_unlock(&lock);
}

static void set_shut(bool value)
{
	pthread_mutex_lock(&lock);
	shut = value;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void setup(void)
{
	gm_log_set_sink(reader);
	ck_assert_int_eq(gm_log_thread_start(), 0);
}

START_TEST(lines_arrive_in_order_with_their_fields)
{
	const char *const fields[] = {"GPUMEM_DEVICE=3", NULL};

	gm_log(GM_LOG_INFO, "the first");
	gm_log_fields(GM_LOG_INFO, fields, "the second");
	gm_log_thread_stop();
	ck_assert_uint_eq(n_lines, 2);
	ck_assert_str_eq(first, "the first");
	ck_assert_str_eq(last, "the second");
	ck_assert_str_eq(last_field, "GPUMEM_DEVICE=3");
	/* From now on they are written directly. */
	gm_log(GM_LOG_INFO, "the third");
	ck_assert_str_eq(last, "the third");
	gm_log_thread_stop();
}
END_TEST

/* If a line waited for the reader, this test would never end. */
START_TEST(nobody_waits_for_the_reader_and_what_was_dropped_is_told)
{
	enum { MANY = 100000 };
	unsigned long long dropped;

	set_shut(true);
	for (int i = 0; i < MANY; i++)
		gm_log(GM_LOG_INFO, "line %d", i);
	set_shut(false);
	gm_log_thread_stop();
	ck_assert_uint_lt(n_lines, MANY);
	ck_assert_int_eq(sscanf(last, "%llu log lines were dropped", &dropped), 1);
	/* All that were not dropped came, and the line that says so. */
	ck_assert_uint_eq(n_lines + dropped, MANY + 1);
}
END_TEST

START_TEST(the_end_does_not_wait_for_a_reader_that_is_stuck)
{
	set_shut(true);
	gm_log(GM_LOG_INFO, "a line that is never read");
	pthread_mutex_lock(&lock);
	while (!stuck)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	gm_log_thread_stop();
	ck_assert_uint_eq(n_lines, 0);
	set_shut(false);
}
END_TEST

/* How many waits with a time limit end early, for no reason, as pthread_cond_wait(3) allows. After
 * the last, the reader goes on. */
static int early;

static bool ends_early(void)
{
	if (early == 0)
		return false;
	if (--early == 0)
		set_shut(false);
	return true;
}

/* Instead of those of the C library. */
int pthread_cond_timedwait(
	pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until)
{
	int (*wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *) =
		dlsym(RTLD_NEXT, "pthread_cond_timedwait");
	return ends_early() ? 0 : wait(cond, mutex, until);
}

int pthread_cond_clockwait(
	pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until)
{
	int (*wait)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *) =
		dlsym(RTLD_NEXT, "pthread_cond_clockwait");
	return ends_early() ? 0 : wait(cond, mutex, clock, until);
}

START_TEST(a_wait_that_ends_early_does_not_lose_lines)
{
	set_shut(true);
	gm_log(GM_LOG_INFO, "a line that is read late");
	pthread_mutex_lock(&lock);
	while (!stuck)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	early = 3;
	gm_log_thread_stop();
	ck_assert_int_eq(early, 0);
	ck_assert_uint_eq(n_lines, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("log_thread");
	TCase *tests = tcase_create("log_thread");

	tcase_add_checked_fixture(tests, setup, NULL);
	tcase_add_test(tests, lines_arrive_in_order_with_their_fields);
	tcase_add_test(tests, nobody_waits_for_the_reader_and_what_was_dropped_is_told);
	tcase_add_test(tests, the_end_does_not_wait_for_a_reader_that_is_stuck);
	tcase_add_test(tests, a_wait_that_ends_early_does_not_lose_lines);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
