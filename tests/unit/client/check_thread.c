/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of the daemon, and the function of the program that hears them.
 */
#include <pthread.h>

#include "tests/tap.h"
#include "tests/unit/session/heard.h"
#include "tests/unit/session/session_fixture.h"

START_TEST(events_reach_the_program)
{
	listen_to(session);
	fake_send_pressure(fake, 1, 900000, 2);
	gpumem_event event = wait_event(GPUMEM_EVENT_PRESSURE, 1);
	ck_assert_uint_eq(event.size, sizeof(event));
	ck_assert_uint_eq(event.device, 1);
	ck_assert_int_eq(event.level, GPUMEM_LEVEL_HIGH);
	ck_assert_double_eq(event.pressure, 0.9);
	fake_send_goodbye(fake, "an upgrade");
	wait_event(GPUMEM_EVENT_GOODBYE, 1);
	ck_assert_str_eq(heard.text, "an upgrade");
}
END_TEST

START_TEST(a_reclaim_gives_back_what_is_cached)
{
	void *ptr;
	listen_to(session);
	ck_assert_int_eq(gpumem_alloc(session, 0, 8 * MIB, NULL, NULL, &ptr), GPUMEM_OK);
	ck_assert_int_eq(gpumem_free(session, ptr, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_uint_ge(fake_chunks(fake), 1);
	fake_send_reclaim(fake, 0, true, 0);
	gpumem_event event = wait_event(GPUMEM_EVENT_RECLAIM, 1);
	ck_assert_int_eq(event.urgent, 1);
	ck_assert_uint_eq(event.bytes, UINT64_MAX); /* as much as there is */
	ck_assert_uint_eq(fake_chunks(fake), 0);
}
END_TEST

START_TEST(an_urgent_reclaim_says_how_much_is_still_wanted)
{
	void *ptr;
	listen_to(session);
	ck_assert_int_eq(gpumem_alloc(session, 0, 8 * MIB, NULL, NULL, &ptr), GPUMEM_OK);
	ck_assert_int_eq(gpumem_free(session, ptr, GPUMEM_STREAM_DONE), GPUMEM_OK);
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	ck_assert_int_eq(gpumem_stats(session, 0, &stats), GPUMEM_OK);
	ck_assert_uint_ge(stats.allocated, 8 * MIB);

	/* All that the library has is not enough. */
	fake_send_reclaim(fake, 0, true, stats.allocated + 100 * MIB);
	gpumem_event event = wait_event(GPUMEM_EVENT_RECLAIM, 1);
	ck_assert_int_eq(event.urgent, 1);
	ck_assert_uint_eq(event.bytes, 100 * MIB);
	ck_assert_uint_eq(fake_chunks(fake), 0);
}
END_TEST

/* Memory that the program has in use, and how freeing it went. With heard.lock. */
static void *in_use;
static gpumem_status freed = GPUMEM_E_SYSTEM;

static void free_on_reclaim(void *user, const gpumem_event *event)
{
	pthread_mutex_lock(&heard.lock);
	if (event->kind == GPUMEM_EVENT_RECLAIM)
		freed = gpumem_free(session, in_use, GPUMEM_STREAM_DONE);
	pthread_mutex_unlock(&heard.lock);
	on_event(user, event);
}

START_TEST(what_the_program_frees_when_it_hears_of_a_reclaim_goes_back_too)
{
	ck_assert_int_eq(gpumem_on_event(session, free_on_reclaim, NULL), GPUMEM_OK);
	pthread_mutex_lock(&heard.lock);
	ck_assert_int_eq(gpumem_alloc(session, 0, 8 * MIB, NULL, NULL, &in_use), GPUMEM_OK);
	pthread_mutex_unlock(&heard.lock);
	fake_send_reclaim(fake, 0, true, 0);
	/* The thread is done with one event before it reads the next. */
	fake_send_pressure(fake, 0, 1, 0);
	wait_event(GPUMEM_EVENT_PRESSURE, 1);
	ck_assert_int_eq(freed, GPUMEM_OK);
	ck_assert_uint_eq(fake_chunks(fake), 0);
}
END_TEST

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool inside, go;
	_Atomic bool left;
	gpumem_status nested;
} slow = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void slow_event(void *user, const gpumem_event *event)
{
	slow.nested = gpumem_on_event(session, NULL, NULL);
	gpumem_disconnect(session); /* refused: it would wait for itself */
	pthread_mutex_lock(&slow.lock);
	slow.inside = true;
	pthread_cond_broadcast(&slow.changed);
	while (!slow.go)
		pthread_cond_wait(&slow.changed, &slow.lock);
	pthread_mutex_unlock(&slow.lock);
	slow.left = true;
}

static void *end_events(void *ctx)
{
	gpumem_status status = gpumem_on_event(session, NULL, NULL);
	return (void *)(uintptr_t)(status == GPUMEM_OK && slow.left);
}

START_TEST(no_function_runs_after_it_was_taken_away)
{
	ck_assert_int_eq(gpumem_on_event(session, slow_event, NULL), GPUMEM_OK);
	fake_send_pressure(fake, 0, 1, 0);
	pthread_mutex_lock(&slow.lock);
	while (!slow.inside)
		pthread_cond_wait(&slow.changed, &slow.lock);
	pthread_mutex_unlock(&slow.lock);
	pthread_t thread;
	ck_assert_int_eq(pthread_create(&thread, NULL, end_events, NULL), 0);
	/* The session works meanwhile. */
	gpumem_buffer_destroy(make_buffer(MIB));
	pthread_mutex_lock(&slow.lock);
	slow.go = true;
	pthread_cond_broadcast(&slow.changed);
	pthread_mutex_unlock(&slow.lock);
	void *ok;
	ck_assert_int_eq(pthread_join(thread, &ok), 0);
	ck_assert_ptr_nonnull(ok);
	ck_assert_int_eq(slow.nested, GPUMEM_E_BUSY);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client events");
	TCase *tc = tcase_create("events");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, events_reach_the_program);
	tcase_add_test(tc, a_reclaim_gives_back_what_is_cached);
	tcase_add_test(tc, an_urgent_reclaim_says_how_much_is_still_wanted);
	tcase_add_test(tc, what_the_program_frees_when_it_hears_of_a_reclaim_goes_back_too);
	tcase_add_test(tc, no_function_runs_after_it_was_taken_away);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
