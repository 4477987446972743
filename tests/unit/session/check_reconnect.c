/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that are made while the daemon is away: they wait, and nothing else does. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/device/wait_elsewhere.h"
#include "client/session/gpumem_session.h"
#include "common/clock.h"
#include "tests/tap.h"
#include "tests/unit/session/heard.h"
#include "tests/unit/session/session_fixture.h"
#include "tests/unit/session/asker.h"

/* The daemon goes, and the session has noticed. */
static void lose_daemon(void)
{
	listen_to(session);
	fake_away(fake);
	wait_event(GPUMEM_EVENT_LOST, 1);
}

START_TEST(requests_made_while_the_daemon_is_away_wait_for_it)
{
	gpumem_buffer *mine = make_buffer(2 * MIB);
	gpumem_token token;
	ck_assert_int_eq(gpumem_share(mine, NULL, &token), GPUMEM_OK);
	struct asker askers[] = {
		{.ask = ask_buffer, .size = 4 * MIB},
		{.ask = ask_buffer, .size = 4 * MIB, .wait_ms = 60000},
		{.ask = ask_alloc, .size = 4 * MIB},
		{.ask = ask_alloc, .size = 100},
		{.ask = ask_alloc, .size = 8 * MIB, .wait_ms = 60000},
		{.ask = ask_alloc, .size = 8 * MIB, .wait_ms = GPUMEM_WAIT_FOREVER},
		{.ask = ask_share, .buffer = mine},
		{.ask = ask_open, .token = token},
	};
	enum { N = sizeof(askers) / sizeof(askers[0]) };
	lose_daemon();
	for (unsigned i = 0; i < N; i++)
		asker_start(&askers[i]);
	await_waiting(session, N);
	fake_back(fake);
	for (unsigned i = 0; i < N; i++)
		asker_done(&askers[i]);
	memset(gpumem_buffer_ptr(askers[0].buffer), 1, 4 * MIB);
	memset(askers[2].ptr, 1, 4 * MIB);
	memset(askers[3].ptr, 1, 100);
	ck_assert_int_eq(gpumem_unshare(mine), GPUMEM_OK);
	ck_assert_uint_eq(fake_repeated(fake), 0);
}
END_TEST

START_TEST(a_daemon_that_never_comes_back_is_waited_for_no_longer_than_away_ms)
{
	struct asker askers[] = {
		{.ask = ask_buffer, .size = 4 * MIB},
		{.ask = ask_alloc, .size = 4 * MIB},
		{.ask = ask_alloc, .size = 100},
		{.ask = ask_alloc, .size = 4 * MIB, .wait_ms = GPUMEM_WAIT_FOREVER},
	};
	enum { N = sizeof(askers) / sizeof(askers[0]) };
	connect_again(100);
	lose_daemon();
	for (unsigned i = 0; i < N; i++)
		asker_start(&askers[i]);
	for (unsigned i = 0; i < N; i++) {
		asker_join(&askers[i]);
		ck_assert_int_eq(askers[i].status, GPUMEM_E_DISCONNECTED);
		ck_assert_ptr_nonnull(strstr(askers[i].detail, "did not come back within"));
		ck_assert_ptr_nonnull(strstr(askers[i].detail, "no daemon listens there"));
		/* The advice at the end of the reason is not cut off. */
		ck_assert_msg(strstr(askers[i].detail, "run 'gpumemd --socket /"), "%s",
			askers[i].detail);
	}
}
END_TEST

START_TEST(the_time_that_a_call_may_wait_is_also_for_the_daemon)
{
	struct asker askers[] = {
		{.ask = ask_buffer, .size = 4 * MIB, .wait_ms = 100},
		{.ask = ask_alloc, .size = 4 * MIB, .wait_ms = 100},
	};
	/* Longer than the test may run. */
	connect_again(1000000);
	lose_daemon();
	for (unsigned i = 0; i < 2; i++) {
		asker_start(&askers[i]);
		asker_join(&askers[i]);
		ck_assert_int_eq(askers[i].status, GPUMEM_E_DISCONNECTED);
	}
}
END_TEST

/* The daemon goes while it has the request. */
START_TEST(who_must_not_wait_does_not_wait_for_a_daemon_that_goes_meanwhile)
{
	struct asker askers[] = {
		{.ask = ask_alloc, .size = 4 * MIB, .wait_ms = GPUMEM_NO_WAIT},
		{.ask = ask_alloc, .size = 100, .wait_ms = GPUMEM_NO_WAIT},
		{.ask = ask_buffer, .size = 4 * MIB, .wait_ms = GPUMEM_NO_WAIT},
	};
	/* Longer than the test may run. */
	connect_again(1000000);
	for (unsigned i = 0; i < 3; i++) {
		unsigned seen = fake_seen(fake, GM__WIRE__PACKET__BODY_LEASE);
		fake_will(fake, &(struct fake_will){.hold = GM__WIRE__PACKET__BODY_LEASE});
		asker_start(&askers[i]);
		fake_wait_seen(fake, GM__WIRE__PACKET__BODY_LEASE, seen + 1);
		fake_away(fake);
		asker_join(&askers[i]);
		ck_assert_int_eq(askers[i].status, GPUMEM_E_DISCONNECTED);
		fake_will(fake, &(struct fake_will){0});
		fake_back(fake);
		gpumem_buffer_destroy(make_buffer(2 * MIB));
	}
}
END_TEST

/* The daemon has granted the memory, and goes before it has answered. */
START_TEST(what_was_granted_to_a_call_that_did_not_wait_for_the_answer_goes_back)
{
	static const int bodies[] = {GM__WIRE__PACKET__BODY_LEASE, GM__WIRE__PACKET__BODY_GROW};
	void *ptr;
	connect_again(1000000);
	listen_to(session);
	for (unsigned i = 0; i < 2; i++) {
		struct asker asker = {
			.ask = ask_alloc, .size = 16 * MIB, .wait_ms = GPUMEM_NO_WAIT};
		unsigned chunks = fake_chunks(fake);
		fake_will(fake, &(struct fake_will){.drop = bodies[i]});
		asker_start(&asker);
		asker_join(&asker);
		ck_assert_int_eq(asker.status, GPUMEM_E_DISCONNECTED);
		fake_will(fake, &(struct fake_will){0});
		wait_event(GPUMEM_EVENT_RESTORED, i + 1);
		while (fake_chunks(fake) != chunks)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		ck_assert_int_eq(gpumem_alloc(session, 0, 16 * MIB, NULL, NULL, &ptr), GPUMEM_OK);
	}
}
END_TEST

START_TEST(an_answer_that_a_connected_daemon_owes_is_bounded_by_timeout_ms)
{
	gpumem_connect_options options = usual_options();
	options.timeout_ms = 100;
	options.away_ms = 1000000;
	gpumem_disconnect(session);
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_OK);
	fake_will(fake, &(struct fake_will){.hold = GM__WIRE__PACKET__BODY_LEASE});
	gpumem_buffer *buffer;
	ck_assert_int_eq(gpumem_buffer_create(session, 0, MIB, NULL, &buffer), GPUMEM_E_TIMEOUT);
	fake_will(fake, &(struct fake_will){0});
	fake_wait_leases(fake, 0);
}
END_TEST

START_TEST(connecting_waits_for_no_absent_daemon)
{
	gpumem_connect_options options = usual_options();
	gpumem_session *other;
	options.away_ms = 1000000;
	/* It dies between the hello and the list of devices, or is not there at all. */
	fake_will(fake, &(struct fake_will){.die = GM__WIRE__PACKET__BODY_GET_DEVICES});
	ck_assert_int_eq(gpumem_connect(&options, &other), GPUMEM_E_DISCONNECTED);
	fake_will(fake, &(struct fake_will){.die = GM__WIRE__PACKET__BODY_HELLO});
	ck_assert_int_eq(gpumem_connect(&options, &other), GPUMEM_E_DISCONNECTED);
	fake_away(fake);
	ck_assert_int_eq(gpumem_connect(&options, &other), GPUMEM_E_DISCONNECTED);
}
END_TEST

START_TEST(what_is_cached_is_served_and_freeing_never_waits)
{
	enum { N = 64 };
	void *blocks[N];
	struct asker waiting = {.ask = ask_alloc, .size = 512 * MIB};
	gpumem_buffer *buffer = make_buffer(2 * MIB);
	for (unsigned i = 0; i < N; i++)
		ck_assert_int_eq(gpumem_alloc(session, 0, MIB, NULL, NULL, &blocks[i]), GPUMEM_OK);
	lose_daemon();
	asker_start(&waiting);
	await_waiting(session, 1);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < N; i++)
			ck_assert_int_eq(
				gpumem_free(session, blocks[i], GPUMEM_STREAM_DONE), GPUMEM_OK);
		for (unsigned i = 0; i < N; i++) {
			ck_assert_int_eq(
				gpumem_alloc(session, 0, MIB, NULL, NULL, &blocks[i]), GPUMEM_OK);
			memset(blocks[i], 1, MIB);
		}
	}
	double pressure;
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	ck_assert_int_eq(gpumem_pressure(session, 0, &pressure, NULL), GPUMEM_OK);
	ck_assert_int_eq(gpumem_stats(session, 0, &stats), GPUMEM_OK);
	gpumem_buffer_destroy(buffer);
	for (unsigned i = 0; i < N; i++)
		ck_assert_int_eq(gpumem_free(session, blocks[i], GPUMEM_STREAM_DONE), GPUMEM_OK);
	/* What is given back meanwhile is sent later. */
	unsigned chunks = fake_chunks(fake);
	ck_assert_int_eq(gpumem_trim(session, NULL), GPUMEM_OK);
	ck_assert_uint_eq(fake_chunks(fake), chunks);
	fake_back(fake);
	asker_done(&waiting);
	ck_assert_int_eq(gpumem_free(session, waiting.ptr, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_int_eq(gpumem_trim(session, NULL), GPUMEM_OK);
	ck_assert_uint_eq(fake_chunks(fake), 0);
}
END_TEST

START_TEST(memory_that_another_thread_frees_ends_the_wait)
{
	void *block;
	struct asker waiting = {.ask = ask_alloc, .size = 64 * MIB};
	ck_assert_int_eq(gpumem_alloc(session, 0, 64 * MIB, NULL, NULL, &block), GPUMEM_OK);
	lose_daemon();
	asker_start(&waiting);
	await_waiting(session, 1);
	ck_assert_int_eq(gpumem_free(session, block, GPUMEM_STREAM_DONE), GPUMEM_OK);
	asker_done(&waiting);
	memset(waiting.ptr, 1, 64 * MIB);
}
END_TEST

START_TEST(what_went_back_meanwhile_makes_room_before_the_waiting_request_asks)
{
	struct asker waiting = {.ask = ask_buffer, .size = 4 * MIB};
	gpumem_buffer *buffer = make_buffer(4 * MIB);
	lose_daemon();
	gpumem_buffer_destroy(buffer);
	asker_start(&waiting);
	await_waiting(session, 1);
	(void)fake_most_leases(fake);
	fake_back(fake);
	asker_done(&waiting);
	ck_assert_uint_eq(fake_most_leases(fake), 1);
}
END_TEST

/* Looks as a call does that waits for these bytes for some time. */
static void look_elsewhere(uint64_t bytes)
{
	struct gm_wait_elsewhere elsewhere = {.session = session, .bytes = bytes};
	struct gm_wait wait = gm_wait_elsewhere_wait(&elsewhere, GPUMEM_WAIT_FOREVER);
	elsewhere.trim_ns = 0;
	ck_assert_uint_ne(wait.look->look(wait.look->ctx), 0);
}

START_TEST(a_call_that_can_never_succeed_costs_no_cache)
{
	void *ptr;
	ck_assert_int_eq(gpumem_alloc(session, 0, 4 * MIB, NULL, NULL, &ptr), GPUMEM_OK);
	ck_assert_int_eq(gpumem_free(session, ptr, GPUMEM_STREAM_DONE), GPUMEM_OK);
	unsigned chunks = fake_chunks(fake);
	ck_assert_uint_gt(chunks, 0);

	/* Then the page says how much the client may hold: less than that. */
	fake_pressure(fake, 0, 0, 0);
	look_elsewhere(8 * MIB);
	ck_assert_uint_eq(fake_chunks(fake), chunks);
	look_elsewhere(0);
	while (fake_chunks(fake))
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}
END_TEST

START_TEST(a_program_that_says_nothing_waits_for_30_seconds)
{
	gpumem_connect_options options = usual_options();
	ck_assert_uint_eq(session->away_ns, 30 * GM_NS_PER_S);
	/* One that was built before there was away_ms. */
	options.size = offsetof(gpumem_connect_options, away_ms);
	options.away_ms = 7;
	gpumem_disconnect(session);
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_OK);
	ck_assert_uint_eq(session->away_ns, 30 * GM_NS_PER_S);
	setenv("GPUMEM_SOCKET", fake_path(fake), 1);
	gpumem_disconnect(session);
	ck_assert_int_eq(gpumem_connect(NULL, &session), GPUMEM_OK);
	ck_assert_uint_eq(session->away_ns, 30 * GM_NS_PER_S);
	connect_again(0);
	ck_assert_uint_eq(session->away_ns, 0);
}
END_TEST

/* ---- the event function, which runs on the thread that resumes the session */

static struct asker in_function = {.ask = ask_buffer, .size = 4 * MIB};

static void ask_when_lost(void *user, const gpumem_event *event)
{
	if (event->kind == GPUMEM_EVENT_LOST)
		(void)asker_run(&in_function);
	on_event(user, event);
}

START_TEST(the_event_function_may_ask_while_the_daemon_is_away)
{
	struct asker other = {.ask = ask_buffer, .size = 4 * MIB};
	ck_assert_int_eq(gpumem_on_event(session, ask_when_lost, NULL), GPUMEM_OK);
	fake_away(fake);
	await_waiting(session, 1);
	asker_start(&other);
	await_waiting(session, 2);
	fake_back(fake);
	asker_done(&other);
	wait_event(GPUMEM_EVENT_RESTORED, 1);
	ck_assert_int_eq(in_function.status, GPUMEM_OK);
}
END_TEST

static pthread_mutex_t of_program = PTHREAD_MUTEX_INITIALIZER;

static void take_lock_when_lost(void *user, const gpumem_event *event)
{
	pthread_mutex_lock(&of_program);
	pthread_mutex_unlock(&of_program);
	on_event(user, event);
}

START_TEST(an_event_function_that_waits_for_a_waiting_thread_holds_nobody_up)
{
	gpumem_buffer *buffer;
	struct asker other = {.ask = ask_alloc, .size = 4 * MIB};
	ck_assert_int_eq(gpumem_on_event(session, take_lock_when_lost, NULL), GPUMEM_OK);
	pthread_mutex_lock(&of_program);
	fake_hang_up(fake);
	asker_start(&other);
	ck_assert_int_eq(gpumem_buffer_create(session, 0, MIB, NULL, &buffer), GPUMEM_OK);
	asker_done(&other);
	pthread_mutex_unlock(&of_program);
	wait_event(GPUMEM_EVENT_RESTORED, 1);
}
END_TEST

/* ---- the end */

START_TEST(disconnecting_ends_a_try_to_resume)
{
	gpumem_connect_options options = usual_options();
	options.timeout_ms = 1000000;
	gpumem_disconnect(session);
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_OK);
	gpumem_buffer *buffer = make_buffer(2 * MIB);
	unsigned hellos = fake_seen(fake, GM__WIRE__PACKET__BODY_HELLO);
	fake_will(fake, &(struct fake_will){.mute_hello = true});
	fake_hang_up(fake);
	fake_wait_seen(fake, GM__WIRE__PACKET__BODY_HELLO, hellos + 1);
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
	session = NULL;
}
END_TEST

START_TEST(disconnecting_ends_a_try_to_resume_that_got_further)
{
	gpumem_connect_options options = usual_options();
	options.timeout_ms = 1000000;
	gpumem_disconnect(session);
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_OK);
	unsigned asked = fake_seen(fake, GM__WIRE__PACKET__BODY_GET_DEVICES);
	fake_will(fake, &(struct fake_will){.hold = GM__WIRE__PACKET__BODY_GET_DEVICES});
	fake_hang_up(fake);
	fake_wait_seen(fake, GM__WIRE__PACKET__BODY_GET_DEVICES, asked + 1);
	gpumem_disconnect(session);
	session = NULL;
}
END_TEST

START_TEST(disconnecting_ends_the_wait_of_the_event_function)
{
	connect_again(1000000);
	ck_assert_int_eq(gpumem_on_event(session, ask_when_lost, NULL), GPUMEM_OK);
	fake_away(fake);
	await_waiting(session, 1);
	gpumem_disconnect(session);
	session = NULL;
	ck_assert_int_eq(in_function.status, GPUMEM_E_DISCONNECTED);
}
END_TEST

START_TEST(a_child_of_a_waiting_process_is_not_waiting)
{
	struct asker waiting = {.ask = ask_buffer, .size = 4 * MIB};
	lose_daemon();
	asker_start(&waiting);
	await_waiting(session, 1);
	pid_t child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		gpumem_buffer *buffer;
		gpumem_status status = gpumem_buffer_create(session, 0, MIB, NULL, &buffer);
		gpumem_disconnect(session);
		_exit(status == GPUMEM_E_FORKED ? 0 : 1);
	}
	int code;
	ck_assert_int_eq(waitpid(child, &code, 0), child);
	ck_assert_int_eq(code, 0);
	fake_back(fake);
	asker_done(&waiting);
}
END_TEST

START_TEST(a_thread_that_is_cancelled_while_it_waits_leaves_everything_in_order)
{
	struct asker cancelled = {.ask = ask_buffer, .size = 4 * MIB};
	struct asker other = {.ask = ask_alloc, .size = 4 * MIB};
	lose_daemon();
	asker_start(&cancelled);
	asker_start(&other);
	await_waiting(session, 2);
	ck_assert_int_eq(pthread_cancel(cancelled.thread), 0);
	fake_back(fake);
	asker_join(&cancelled);
	asker_done(&other);
	/* It had what it asked for when it ended. */
	gpumem_buffer_destroy(cancelled.buffer);
	ck_assert_int_eq(gpumem_free(session, other.ptr, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_int_eq(gpumem_trim(session, NULL), GPUMEM_OK);
	ck_assert_uint_eq(fake_chunks(fake), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("absence");
	TCase *tc = tcase_create("away");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, requests_made_while_the_daemon_is_away_wait_for_it);
	tcase_add_test(tc, a_daemon_that_never_comes_back_is_waited_for_no_longer_than_away_ms);
	tcase_add_test(tc, the_time_that_a_call_may_wait_is_also_for_the_daemon);
	tcase_add_test(tc, who_must_not_wait_does_not_wait_for_a_daemon_that_goes_meanwhile);
	tcase_add_test(tc, what_was_granted_to_a_call_that_did_not_wait_for_the_answer_goes_back);
	tcase_add_test(tc, an_answer_that_a_connected_daemon_owes_is_bounded_by_timeout_ms);
	tcase_add_test(tc, connecting_waits_for_no_absent_daemon);
	tcase_add_test(tc, what_is_cached_is_served_and_freeing_never_waits);
	tcase_add_test(tc, memory_that_another_thread_frees_ends_the_wait);
	tcase_add_test(tc, what_went_back_meanwhile_makes_room_before_the_waiting_request_asks);
	tcase_add_test(tc, a_call_that_can_never_succeed_costs_no_cache);
	tcase_add_test(tc, a_program_that_says_nothing_waits_for_30_seconds);
	tcase_add_test(tc, the_event_function_may_ask_while_the_daemon_is_away);
	tcase_add_test(tc, an_event_function_that_waits_for_a_waiting_thread_holds_nobody_up);
	tcase_add_test(tc, disconnecting_ends_a_try_to_resume);
	tcase_add_test(tc, disconnecting_ends_a_try_to_resume_that_got_further);
	tcase_add_test(tc, disconnecting_ends_the_wait_of_the_event_function);
	tcase_add_test(tc, a_child_of_a_waiting_process_is_not_waiting);
	tcase_add_test(tc, a_thread_that_is_cancelled_while_it_waits_leaves_everything_in_order);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
