/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * What a program hears: pressure by others, a daemon that dies or stops, and that it is back.
 */

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "tests/integration/client_fixture.h"
#include "tests/integration/device.h"
#include "tests/tap.h"

struct heard {
	pthread_mutex_t lock;
	pthread_cond_t more;
	unsigned kinds; /* set of 1 << kind */
	gpumem_level level;
	int count;
};

static void hear_event(void *user, const gpumem_event *event)
{
	struct heard *heard = user;
	pthread_mutex_lock(&heard->lock);
	heard->kinds |= 1u << event->kind;
	if (event->kind == GPUMEM_EVENT_PRESSURE)
		heard->level = event->level;
	heard->count++;
	pthread_cond_broadcast(&heard->more);
	pthread_mutex_unlock(&heard->lock);
}

static void await_kind(struct heard *heard, gpumem_event_kind kind)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += GM_PATIENCE_MS / 1000;
	pthread_mutex_lock(&heard->lock);
	while (!(heard->kinds & 1u << kind)) {
		if (pthread_cond_timedwait(&heard->more, &heard->lock, &until) == ETIMEDOUT)
			GM_FAIL("event %d never came", (int)kind);
	}
	pthread_mutex_unlock(&heard->lock);
}

START_TEST(pressure_by_another_client_is_heard_and_can_be_read)
{
	struct heard heard = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0};
	double pressure = -1;
	gpumem_level level = GPUMEM_LEVEL_CRITICAL;
	OK(gpumem_on_event(session, hear_event, &heard));
	OK(gpumem_pressure(session, 0, &pressure, &level));
	GM_REQUIRE(pressure == 0 && level == GPUMEM_LEVEL_LOW);
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, 900 * MIB, &lease), GPUMEM_OK);
	await_kind(&heard, GPUMEM_EVENT_PRESSURE);
	GM_UNTIL(gpumem_pressure(session, 0, &pressure, &level) == GPUMEM_OK &&
		 level == GPUMEM_LEVEL_HIGH);
	GM_REQUIRE(pressure > 0.85 && pressure < 0.95);
	OK(gpumem_on_event(session, NULL, NULL));
	int count = heard.count;
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
	GM_UNTIL(gpumem_pressure(session, 0, &pressure, &level) == GPUMEM_OK &&
		 level == GPUMEM_LEVEL_LOW);
	GM_REQUIRE_EQ(heard.count, count);
}
END_TEST

START_TEST(memory_outlives_a_killed_daemon_and_the_session_comes_back)
{
	struct heard heard = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0};
	void *p, *q;
	gpumem_disconnect(session);
	session = join_away("the test", 0);
	OK(gpumem_on_event(session, hear_event, &heard));
	OK(gpumem_alloc(session, 0, 20 * MIB, NULL, NULL, &p));
	gm_device_set(p, 20 * MIB, 5);
	gm_daemon_kill(&daemon_);
	await_kind(&heard, GPUMEM_EVENT_LOST);
	GM_REQUIRE(gm_device_is(p, 20 * MIB, 5));
	gm_device_set(p, 20 * MIB, 6);
	/* New memory fails, what is cached works. */
	GM_REQUIRE_EQ(gpumem_alloc(session, 0, 300 * MIB, NULL, NULL, &q), GPUMEM_E_DISCONNECTED);
	OK(gpumem_free(session, p, GPUMEM_STREAM_DONE));
	OK(gpumem_alloc(session, 0, 20 * MIB, NULL, NULL, &p));
	gm_device_set(p, 20 * MIB, 7);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	await_kind(&heard, GPUMEM_EVENT_RESTORED);
	OK(gpumem_alloc(session, 0, 300 * MIB, NULL, NULL, &q));
	GM_REQUIRE(gm_device_is(p, 20 * MIB, 7));
	gm_device_set(q, 300 * MIB, 8);
	OK(gpumem_free(session, p, GPUMEM_STREAM_DONE));
	OK(gpumem_free(session, q, GPUMEM_STREAM_DONE));
	OK(gpumem_on_event(session, NULL, NULL));
}
END_TEST

START_TEST(a_daemon_that_stops_says_goodbye_first)
{
	struct heard heard = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0};
	void *p;
	OK(gpumem_on_event(session, hear_event, &heard));
	OK(gpumem_alloc(session, 0, 4 * MIB, NULL, NULL, &p));
	gm_daemon_signal(&daemon_, SIGTERM);
	await_kind(&heard, GPUMEM_EVENT_GOODBYE);
	await_kind(&heard, GPUMEM_EVENT_LOST);
	GM_REQUIRE_EQ(gm_daemon_wait(&daemon_), 0);
	gm_device_set(p, 4 * MIB, 1);
	OK(gpumem_free(session, p, GPUMEM_STREAM_DONE));
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	await_kind(&heard, GPUMEM_EVENT_RESTORED);
	OK(gpumem_on_event(session, NULL, NULL));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client events");
	TCase *tc = tcase_create("client events");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, pressure_by_another_client_is_heard_and_can_be_read);
	tcase_add_test(tc, memory_outlives_a_killed_daemon_and_the_session_comes_back);
	tcase_add_test(tc, a_daemon_that_stops_says_goodbye_first);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
