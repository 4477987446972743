/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests whose answers come at bad moments or not at all, and requests in a process that has no
 * memory for itself. The library's thread is kept busy with an event where the test's own thread is
 * to do the work.
 */
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "common/wire/wire.h"
#include "tests/tap.h"
#include "tests/unit/failing_malloc.h"
#include "tests/unit/session/session_fixture.h"

#define FOREVER GPUMEM_WAIT_FOREVER

/* A buffer has a lease of its own, so that the daemon's books tell it from others. */
static gpumem_request *begin(size_t size)
{
	gpumem_request *request = NULL;
	ck_assert_int_eq(gpumem_buffer_create_begin(session, 0, size, NULL, &request), GPUMEM_OK);
	return request;
}

static gpumem_buffer *take(gpumem_request *request)
{
	gpumem_buffer *buffer = NULL;
	ck_assert_int_eq(gpumem_request_wait(request, FOREVER), GPUMEM_OK);
	gpumem_status status = gpumem_buffer_take(request, &buffer);
	if (status)
		ck_abort_msg("%s", gpumem_error_detail());
	memset(gpumem_buffer_ptr(buffer), 1, gpumem_buffer_size(buffer));
	return buffer;
}

static void refused(gpumem_request *request, gpumem_status status, const char *words)
{
	gpumem_buffer *buffer = NULL;
	ck_assert_int_eq(gpumem_request_wait(request, FOREVER), GPUMEM_OK);
	ck_assert_int_eq(gpumem_request_ready(request), GPUMEM_REQUEST_FAILED);
	ck_assert_int_eq(gpumem_buffer_take(request, &buffer), status);
	ck_assert_ptr_null(buffer);
	says(words);
}

#define LEASE_BODY  GM__WIRE__PACKET__BODY_LEASE
#define GROW_BODY   GM__WIRE__PACKET__BODY_GROW
#define CANCEL_BODY GM__WIRE__PACKET__BODY_CANCEL

/* ---- the connection ends */

START_TEST(a_request_whose_answer_was_lost_is_repeated_and_granted_once)
{
	/* The daemon grants and hangs up; grants, sends a part and hangs up; hangs up. */
	struct fake_will wills[] = {
		{.repeats = true, .drop = LEASE_BODY},
		{.repeats = true, .half = LEASE_BODY, .per_packet = 1},
		{.repeats = true, .die = LEASE_BODY},
	};
	fake_will(fake, &wills[_i]);
	gpumem_request *request = begin(14 * MIB);
	fake_wait_seen(fake, LEASE_BODY, 1);
	fake_will(fake, &(struct fake_will){.repeats = true});
	gpumem_buffer *buffer = take(request);
	ck_assert_uint_eq(fake_most_leases(fake), 1);
	ck_assert_uint_ge(fake_repeated(fake), 1);
	gpumem_buffer_destroy(buffer);
	fake_wait_leases(fake, 0);
}
END_TEST

START_TEST(a_request_that_is_dropped_when_its_answer_was_lost_goes_back)
{
	fake_will(fake, &(struct fake_will){.repeats = true, .drop = LEASE_BODY});
	gpumem_request *request = begin(14 * MIB);
	fake_wait_seen(fake, LEASE_BODY, 1);
	gpumem_request_cancel(request);
	fake_will(fake, &(struct fake_will){.repeats = true});
	gpumem_buffer_destroy(take(begin(2 * MIB)));
	fake_wait_leases(fake, 0);
}
END_TEST

START_TEST(a_daemon_that_forgot_the_session_is_asked_anew)
{
	void *ptr;
	/* The heap's lease is unknown to it, too. */
	ck_assert_int_eq(gpumem_alloc(session, 0, 3 * MIB, NULL, NULL, &ptr), GPUMEM_OK);
	fake_will(fake, &(struct fake_will){.forget = true});
	fake_away(fake);
	gpumem_request *buffer = begin(2 * MIB), *more = NULL;
	ck_assert_int_eq(gpumem_alloc_begin(session, 0, 40 * MIB, NULL, NULL, &more), GPUMEM_OK);
	fake_back(fake);
	gpumem_buffer_destroy(take(buffer));
	ck_assert_int_eq(gpumem_request_wait(more, FOREVER), GPUMEM_OK);
	void *other = NULL;
	ck_assert_int_eq(gpumem_alloc_take(more, &other), GPUMEM_OK);
	memset(other, 2, 40 * MIB);
	ck_assert_int_eq(gpumem_free(session, other, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_int_eq(gpumem_free(session, ptr, GPUMEM_STREAM_DONE), GPUMEM_OK);
}
END_TEST

START_TEST(a_request_that_was_asked_for_anew_waits_for_the_daemon_as_long_as_another)
{
	void *ptr;
	ck_assert_int_eq(gpumem_alloc(session, 0, 40 * MIB, NULL, NULL, &ptr), GPUMEM_OK);
	ck_assert_int_eq(gpumem_free(session, ptr, GPUMEM_STREAM_DONE), GPUMEM_OK);

	/* The daemon refuses. So the library returns what it cached and asks again, and then the
	 * daemon goes away. */
	fake_will(fake,
		&(struct fake_will){.repeats = true, .fail_once = GROW_BODY, .die = GROW_BODY});
	gpumem_request *request = NULL;
	ck_assert_int_eq(gpumem_alloc_begin(session, 0, 80 * MIB, NULL, NULL, &request), GPUMEM_OK);
	fake_wait_seen(fake, GROW_BODY, 2);
	fake_away(fake);
	ck_assert_int_eq(gpumem_request_wait(request, 100), GPUMEM_E_TIMEOUT);

	fake_back(fake);
	ck_assert_int_eq(gpumem_request_wait(request, FOREVER), GPUMEM_OK);
	ck_assert_int_eq(gpumem_alloc_take(request, &ptr), GPUMEM_OK);
	ck_assert_int_eq(gpumem_free(session, ptr, GPUMEM_STREAM_DONE), GPUMEM_OK);
}
END_TEST

/* ---- answers */

START_TEST(a_request_that_is_dropped_is_cancelled_and_what_comes_late_goes_back)
{
	fake_will(fake, &(struct fake_will){.hold = LEASE_BODY});
	gpumem_request *request = begin(14 * MIB);
	fake_wait_seen(fake, LEASE_BODY, 1);
	ck_assert_int_eq(gpumem_request_ready(request), GPUMEM_REQUEST_PENDING);
	gpumem_request_cancel(request);
	fake_wait_seen(fake, CANCEL_BODY, 1);
	/* The daemon grants it all the same. */
	fake_will(fake, &(struct fake_will){0});
	gpumem_buffer_destroy(take(begin(2 * MIB)));
	fake_wait_leases(fake, 0);
}
END_TEST

START_TEST(a_daemon_that_does_not_answer_fails_the_request_in_time)
{
	gpumem_disconnect(session);
	ck_assert_int_eq(try_connect(50, &session), GPUMEM_OK);
	fake_will(fake, &(struct fake_will){.hold = LEASE_BODY});
	refused(begin(2 * MIB), GPUMEM_E_TIMEOUT, "did not answer");
	fake_wait_seen(fake, CANCEL_BODY, 1);
	fake_will(fake, &(struct fake_will){0});
	fake_wait_leases(fake, 0);
}
END_TEST

START_TEST(handles_that_were_lost_are_requested_again)
{
	fake_will(fake, &(struct fake_will){.cut = 1});
	gpumem_buffer_destroy(take(begin(14 * MIB)));
	ck_assert_uint_ge(fake_seen(fake, GM__WIRE__PACKET__BODY_GET_HANDLES), 1);
	fake_wait_leases(fake, 0);
}
END_TEST

START_TEST(an_answer_that_lists_a_chunk_twice_is_refused)
{
	fake_will(fake, &(struct fake_will){.twice = true});
	refused(begin(2 * MIB), GPUMEM_E_PROTOCOL, "twice");
	fake_wait_leases(fake, 0);
}
END_TEST

START_TEST(a_refusal_is_passed_on)
{
	fake_will(fake, &(struct fake_will){.fail = LEASE_BODY});
	refused(begin(2 * MIB), GPUMEM_E_NO_MEMORY, "");
	fake_will(fake, &(struct fake_will){0});
	gpumem_buffer_destroy(take(begin(2 * MIB)));
	fake_wait_leases(fake, 0);
}
END_TEST

/* ---- without memory */

static _Atomic bool busy, may_end;

static void keep_busy(void *user, const gpumem_event *event)
{
	busy = true;
	while (!may_end)
		sched_yield();
}

/* Check allocates at every assertion that holds. */
static void expect(bool holds, const char *what)
{
	if (holds)
		return;
	failing_malloc_pause(true);
	ck_abort_msg("%s (%s)", what, gpumem_error_detail());
}

static bool fine(gpumem_status status, unsigned *failures)
{
	if (status == GPUMEM_OK)
		return true;
	expect(status == GPUMEM_E_HOST_MEMORY, "a call fails for want of memory only");
	expect(*gpumem_error_detail(), "a call that fails says why");
	++*failures;
	return false;
}

static unsigned ask_and_take(void)
{
	gpumem_request *request = NULL, *dropped = NULL;
	gpumem_buffer *buffer;
	unsigned failures = 0;
	void *ptr;
	if (fine(gpumem_alloc_begin(session, 0, 4 * MIB, NULL, NULL, &request), &failures)) {
		expect(!gpumem_request_wait(request, FOREVER), "wait");
		if (fine(gpumem_alloc_take(request, &ptr), &failures))
			expect(!gpumem_free(session, ptr, GPUMEM_STREAM_DONE), "free");
	}
	if (fine(gpumem_buffer_create_begin(session, 0, 6 * MIB, NULL, &request), &failures)) {
		if (fine(gpumem_alloc_begin(session, 0, 40 * MIB, NULL, NULL, &dropped), &failures))
			(void)gpumem_request_wait(dropped, 0);
		expect(!gpumem_request_wait(request, FOREVER), "wait");
		if (fine(gpumem_buffer_take(request, &buffer), &failures))
			gpumem_buffer_destroy(buffer);
		gpumem_request_cancel(dropped);
	}
	return failures;
}

START_TEST(every_allocation_may_fail_once)
{
	unsigned n, failed = 0;
	gpumem_disconnect(session);
	for (n = 1;; n++) {
		ck_assert_int_eq(try_connect(20000, &session), GPUMEM_OK);
		busy = may_end = false;
		ck_assert_int_eq(gpumem_on_event(session, keep_busy, NULL), GPUMEM_OK);
		fake_send_pressure(fake, 0, 500000, 1);
		while (!busy)
			sched_yield();

		failing_malloc_arm(n);
		unsigned failures = ask_and_take();
		bool fired = failing_malloc_fired();
		may_end = true;
		gpumem_disconnect(session);
		fake_wait_leases(fake, 0);
		fake_wait_idle(fake);
		failed += failures;
		if (!fired) {
			ck_assert_uint_eq(failures, 0);
			break;
		}
	}
	session = NULL;
	ck_assert_uint_gt(n, 20);
	ck_assert_uint_gt(failed, 10);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("requests");
	TCase *tc = tcase_create("requests");
	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_loop_test(tc, a_request_whose_answer_was_lost_is_repeated_and_granted_once, 0, 3);
	tcase_add_test(tc, a_request_that_is_dropped_when_its_answer_was_lost_goes_back);
	tcase_add_test(tc, a_daemon_that_forgot_the_session_is_asked_anew);
	tcase_add_test(
		tc, a_request_that_was_asked_for_anew_waits_for_the_daemon_as_long_as_another);
	tcase_add_test(tc, a_request_that_is_dropped_is_cancelled_and_what_comes_late_goes_back);
	tcase_add_test(tc, a_daemon_that_does_not_answer_fails_the_request_in_time);
	tcase_add_test(tc, handles_that_were_lost_are_requested_again);
	tcase_add_test(tc, an_answer_that_lists_a_chunk_twice_is_refused);
	tcase_add_test(tc, a_refusal_is_passed_on);
	tcase_add_test(tc, every_allocation_may_fail_once);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
