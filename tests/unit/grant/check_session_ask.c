/* SPDX-License-Identifier: Apache-2.0 */
/* client/grant/session_ask.c: what happens to a thread, a process or a session while the daemon has its request. */
#include <sys/wait.h>
#include <unistd.h>

#include "client/session/gpumem_session.h"
#include "tests/tap.h"
#include "tests/unit/session/heard.h"
#include "tests/unit/session/session_fixture.h"
#include "tests/unit/session/asker.h"

static const struct fake_will holds = {.hold = GM__WIRE__PACKET__BODY_LEASE};

/* The call waits for an answer that the daemon holds back. */
static void start_held(struct asker *asker)
{
	unsigned seen = fake_seen(fake, GM__WIRE__PACKET__BODY_LEASE);

	fake_will(fake, &holds);
	asker_start(asker);
	fake_wait_seen(fake, GM__WIRE__PACKET__BODY_LEASE, seen + 1);
}

static void answer(void)
{
	fake_will(fake, &(struct fake_will){.repeats = true});
}

static void everything_goes_back(void)
{
	ck_assert_int_eq(gpumem_trim(session, NULL), GPUMEM_OK);
	ck_assert_uint_eq(fake_chunks(fake), 0);
}

START_TEST(a_thread_that_is_cancelled_ends_with_what_it_asked_for)
{
	struct asker askers[] = {{.ask = ask_alloc, .size = 4 * MIB, .wait_ms = 60000},
		{.ask = ask_buffer, .size = 4 * MIB}};

	start_held(&askers[_i]);
	ck_assert_int_eq(pthread_cancel(askers[_i].thread), 0);
	answer();
	asker_join(&askers[_i]);
	if (askers[_i].ptr)
		ck_assert_int_eq(gpumem_free(session, askers[_i].ptr, GPUMEM_STREAM_DONE), 0);
	gpumem_buffer_destroy(askers[_i].buffer);
	everything_goes_back();
}
END_TEST

START_TEST(a_child_has_no_part_in_the_request)
{
	struct asker asker = {.ask = ask_alloc, .size = 4 * MIB};
	int code;

	start_held(&asker);
	pid_t child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		void *ptr;
		gpumem_status status = gpumem_alloc(session, 0, MIB, NULL, NULL, &ptr);
		gpumem_disconnect(session);
		_exit(status == GPUMEM_E_FORKED ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &code, 0), child);
	ck_assert_int_eq(code, 0);
	answer();
	asker_done(&asker);
	ck_assert_int_eq(gpumem_free(session, asker.ptr, GPUMEM_STREAM_DONE), 0);
	everything_goes_back();
}
END_TEST

START_TEST(a_request_whose_connection_ends_is_repeated_and_granted_once)
{
	struct asker asker = {.ask = ask_alloc, .size = 4 * MIB, .wait_ms = 60000};

	fake_will(fake, &(struct fake_will){.repeats = true, .drop = GM__WIRE__PACKET__BODY_LEASE});
	listen_to(session);
	asker_start(&asker);
	wait_event(GPUMEM_EVENT_LOST, 1);
	answer();
	asker_done(&asker);
	ck_assert_uint_ge(fake_repeated(fake), 1);
	ck_assert_int_eq(gpumem_free(session, asker.ptr, GPUMEM_STREAM_DONE), 0);
	everything_goes_back();
}
END_TEST

static struct asker in_function = {.ask = ask_alloc, .size = 4 * MIB, .wait_ms = 60000};

static void ask_when_lost(void *user, const gpumem_event *event)
{
	if (event->kind == GPUMEM_EVENT_LOST)
		(void)asker_run(&in_function);
}

static void *disconnect(void *arg)
{
	gpumem_disconnect(arg);
	return NULL;
}

START_TEST(a_session_that_ends_waits_for_the_request_of_its_event_function)
{
	pthread_t thread;

	ck_assert_int_eq(gpumem_on_event(session, ask_when_lost, NULL), GPUMEM_OK);
	fake_will(fake, &holds);
	fake_hang_up(fake);
	fake_wait_seen(fake, GM__WIRE__PACKET__BODY_LEASE, 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, disconnect, session), 0);
	answer();
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	session = NULL;
	ck_assert_int_eq(in_function.status, GPUMEM_OK);
	fake_wait_idle(fake);
}
END_TEST

static void *ask_twice(void *arg)
{
	struct asker *askers = arg;

	(void)asker_run(&askers[0]);
	listen_to(session);
	fake_away(fake);
	wait_event(GPUMEM_EVENT_LOST, 1);
	return asker_run(&askers[1]);
}

START_TEST(a_call_does_not_wait_as_the_last_call_of_its_thread_did)
{
	struct asker askers[] = {
		{.ask = ask_alloc, .size = 4 * MIB, .wait_ms = GPUMEM_NO_WAIT},
		{.ask = ask_alloc, .size = 4 * MIB},
	};
	pthread_t thread;

	fake_will(fake, &(struct fake_will){.fail = GM__WIRE__PACKET__BODY_LEASE});
	ck_assert_int_eq(pthread_create(&thread, NULL, ask_twice, askers), 0);
	await_waiting(session, 1);
	answer();
	fake_back(fake);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_eq(askers[0].status, GPUMEM_E_NO_MEMORY);
	ck_assert_int_eq(askers[1].status, GPUMEM_OK);
	ck_assert_int_eq(gpumem_free(session, askers[1].ptr, GPUMEM_STREAM_DONE), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("session_ask");
	TCase *tcase = tcase_create("under way");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_loop_test(tcase, a_thread_that_is_cancelled_ends_with_what_it_asked_for, 0, 2);
	tcase_add_test(tcase, a_child_has_no_part_in_the_request);
	tcase_add_test(tcase, a_request_whose_connection_ends_is_repeated_and_granted_once);
	tcase_add_test(tcase, a_session_that_ends_waits_for_the_request_of_its_event_function);
	tcase_add_test(tcase, a_call_does_not_wait_as_the_last_call_of_its_thread_did);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
