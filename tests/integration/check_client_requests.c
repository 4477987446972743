/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Requests that nobody waits for in a call: hundreds of them over one session, taken and dropped in
 * every state. At the end of each test the daemon has everything back.
 */

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/bounds.h"
#include "tests/integration/device.h"
#include "tests/integration/refused.h"
#include "tests/integration/requests_fixture.h"
#include "tests/tap.h"

/* ---- one request */

START_TEST(a_request_for_a_pointer_becomes_ready_and_is_taken)
{
	gpumem_request *request = begin(20 * MIB);
	void *ptr = take(request);
	gm_device_set(ptr, 20 * MIB, 7);
	GM_REQUIRE(gm_device_is(ptr, 20 * MIB, 7));
	let_go(ptr);
}
END_TEST

START_TEST(a_request_for_a_buffer_becomes_ready_and_is_taken)
{
	gpumem_buffer *buffer = take_buffer(begin_buffer(3 * MIB, 0));
	GM_REQUIRE_EQ(gpumem_buffer_size(buffer), 3 * MIB);
	GM_REQUIRE(!strcmp(gpumem_buffer_tag(buffer), "begun"));
	gm_device_set(gpumem_buffer_ptr(buffer), 3 * MIB, 9);
	GM_REQUIRE(gm_device_is(gpumem_buffer_ptr(buffer), 3 * MIB, 9));
	gpumem_buffer_destroy(buffer);
}
END_TEST

START_TEST(memory_that_is_cached_is_ready_at_once_without_a_message)
{
	let_go(hold(4 * MIB));
	gpumem_stats_t before = GPUMEM_STATS_INIT, after = GPUMEM_STATS_INIT;
	OK(gpumem_stats(session, 0, &before));
	/* A daemon that is gone cannot have been asked. */
	gm_daemon_kill(&daemon_);
	gpumem_request *request = begin(4 * MIB);
	GM_REQUIRE_EQ(gpumem_request_ready(request), GPUMEM_REQUEST_READY);
	void *ptr;
	OK(gpumem_alloc_take(request, &ptr));
	OK(gpumem_stats(session, 0, &after));
	GM_REQUIRE_EQ(after.misses, before.misses);
	GM_REQUIRE_EQ(after.hits, before.hits + 1);
	let_go(ptr);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
}
END_TEST

START_TEST(what_cannot_be_granted_fails_with_the_sentence_of_the_daemon)
{
	gpumem_request *request = begin(2048 * MIB);
	void *ptr = &request;
	OK(gpumem_request_wait(request, FOREVER));
	GM_REQUIRE_EQ(gpumem_request_ready(request), GPUMEM_REQUEST_FAILED);
	GM_REQUIRE_EQ(gpumem_alloc_take(request, &ptr), GPUMEM_E_NO_MEMORY);
	GM_REQUIRE(ptr == &request);
	char asked[512], waited[512];
	snprintf(asked, sizeof(asked), "%s", gpumem_error_detail());
	GM_REQUIRE_EQ(gpumem_alloc(session, 0, 2048 * MIB, NULL, NULL, &ptr), GPUMEM_E_NO_MEMORY);
	snprintf(waited, sizeof(waited), "%s", gpumem_error_detail());
	GM_REQUIRE(asked[0] && !strcmp(asked, waited));

	request = begin_buffer(2048 * MIB, 0);
	gpumem_buffer *buffer;
	OK(gpumem_request_wait(request, FOREVER));
	GM_REQUIRE_EQ(gpumem_buffer_take(request, &buffer), GPUMEM_E_NO_MEMORY);
	/* One that is dropped instead is gone, too. */
	request = begin_buffer(2048 * MIB, 0);
	OK(gpumem_request_wait(request, FOREVER));
	gpumem_request_cancel(request);
}
END_TEST

START_TEST(wrong_arguments_are_named_and_change_nothing)
{
	gpumem_request *request = NULL;
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	gpumem_buffer_options wrong = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer;
	void *ptr;
	REFUSED(gpumem_alloc_begin(NULL, 0, 1, NULL, NULL, &request), GPUMEM_E_INVALID, "session");
	REFUSED(gpumem_alloc_begin(session, 0, 1, NULL, NULL, NULL), GPUMEM_E_INVALID,
		"ret_request");
	REFUSED(gpumem_alloc_begin(session, 0, 0, NULL, NULL, &request), GPUMEM_E_INVALID, "size");
	REFUSED(gpumem_alloc_begin(session, 0, SIZE_MAX, NULL, NULL, &request), GPUMEM_E_INVALID,
		"18446744073709551615");
	REFUSED(gpumem_alloc_begin(session, 7, 1, NULL, NULL, &request), GPUMEM_E_NOT_FOUND,
		"device 7");
	REFUSED(gpumem_alloc_begin(session, 0, 1, GPUMEM_STREAM_DONE, NULL, &request),
		GPUMEM_E_INVALID, "name a stream, or none");
	options.alignment = 3;
	REFUSED(gpumem_alloc_begin(session, 0, 1, NULL, &options, &request), GPUMEM_E_INVALID,
		"align");
	REFUSED(gpumem_buffer_create_begin(session, 0, SIZE_MAX, NULL, &request), GPUMEM_E_INVALID,
		"18446744073709551615");
	REFUSED(gpumem_buffer_create_begin(session, 0, 1, NULL, NULL), GPUMEM_E_INVALID,
		"ret_request");
	wrong.transport = 77;
	REFUSED(gpumem_buffer_create_begin(session, 0, 1, &wrong, &request), GPUMEM_E_INVALID,
		"transport 77");
	GM_REQUIRE(!request);
	REFUSED(gpumem_request_wait(NULL, 0), GPUMEM_E_INVALID, "request");
	REFUSED(gpumem_alloc_take(NULL, &ptr), GPUMEM_E_INVALID, "request");
	REFUSED(gpumem_request_on_done(NULL, NULL, NULL), GPUMEM_E_INVALID, "request");
	REFUSED(gpumem_session_fd(session, NULL), GPUMEM_E_INVALID, "ret_fd");
	gpumem_request_cancel(NULL);

	request = begin(MIB);
	OK(gpumem_request_wait(request, FOREVER));
	REFUSED(gpumem_alloc_take(request, NULL), GPUMEM_E_INVALID, "ret_ptr");
	REFUSED(gpumem_buffer_take(request, &buffer), GPUMEM_E_INVALID, "gpumem_alloc_take");
	let_go(take(request));
	request = begin_buffer(MIB, 0);
	OK(gpumem_request_wait(request, FOREVER));
	REFUSED(gpumem_alloc_take(request, &ptr), GPUMEM_E_INVALID, "gpumem_buffer_take");
	gpumem_buffer_destroy(take_buffer(request));
}
END_TEST

START_TEST(a_pending_request_is_not_taken_and_goes_on)
{
	void *all = hold(1000 * MIB), *ptr = NULL;
	gpumem_request *request = begin_waiting(session, 100 * MIB, FOREVER);
	GM_UNTIL(gm_queue_wait(&daemon_) == 1);
	GM_REQUIRE_EQ(gpumem_request_ready(request), GPUMEM_REQUEST_PENDING);
	GM_REQUIRE_EQ(gpumem_alloc_take(request, &ptr), GPUMEM_E_BUSY);
	GM_REQUIRE(!ptr);
	GM_REQUIRE_EQ(gpumem_request_wait(request, 0), GPUMEM_E_TIMEOUT);
	GM_REQUIRE_EQ(gpumem_request_wait(request, 1), GPUMEM_E_TIMEOUT);
	let_go(all);
	let_go(take(request));
}
END_TEST

START_TEST(a_request_whose_time_is_over_fails)
{
	void *all = hold(1000 * MIB), *ptr;
	gpumem_request *request = begin_waiting(session, 100 * MIB, 20);
	OK(gpumem_request_wait(request, FOREVER));
	GM_REQUIRE_EQ(gpumem_alloc_take(request, &ptr), GPUMEM_E_TIMEOUT);
	let_go(all);
}
END_TEST

/* ---- many requests */

enum { MANY = 400 };
static gpumem_request *many[MANY];

START_TEST(hundreds_of_requests_are_in_flight_and_the_daemon_sees_only_so_many)
{
	/* In pieces: a chunk of which the heap keeps a part does not go back for buffers. */
	enum { PIECES = 512 };
	void *all[PIECES], *taken[MANY];
	for (int i = 0; i < PIECES; i++)
		all[i] = hold(2 * MIB);
	for (int i = 0; i < MANY; i++)
		many[i] = i % 2 ? begin_waiting(session, 2 * MIB, FOREVER)
				: begin_buffer(2 * MIB, FOREVER);
	GM_UNTIL(gm_queue_wait(&daemon_) >= 16);
	GM_REQUIRE(gm_queue_wait(&daemon_) <= GM_BOUND_WAITING_PER_CLIENT);
	for (int i = 0; i < MANY; i++)
		GM_REQUIRE_EQ(gpumem_request_ready(many[i]), GPUMEM_REQUEST_PENDING);
	/* A thread that calls and waits still finds room in the daemon's queue. */
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	options.wait_ms = 20;
	GM_REQUIRE_EQ(
		gpumem_alloc(session, 0, 100 * MIB, NULL, &options, &taken[0]), GPUMEM_E_TIMEOUT);

	for (int i = 0; i < PIECES; i++)
		let_go(all[i]);
	for (int i = 0; i < MANY; i++)
		taken[i] = i % 2 ? take(many[i]) : (void *)take_buffer(many[i]);
	for (int i = 0; i < MANY; i++) {
		void *ptr = i % 2 ? taken[i] : gpumem_buffer_ptr(taken[i]);
		gm_device_set(ptr, 2 * MIB, (uint8_t)i);
	}
	for (int i = 0; i < MANY; i++) {
		void *ptr = i % 2 ? taken[i] : gpumem_buffer_ptr(taken[i]);
		GM_REQUIRE(gm_device_is(ptr, 2 * MIB, (uint8_t)i));
		if (i % 2)
			let_go(ptr);
		else
			gpumem_buffer_destroy(taken[i]);
	}
}
END_TEST

START_TEST(small_requests_share_a_chunk)
{
	void *taken[MANY];
	for (int i = 0; i < MANY; i++)
		many[i] = begin(1000);
	for (int i = 0; i < MANY; i++)
		taken[i] = take(many[i]);
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	OK(gpumem_stats(session, 0, &stats));
	GM_REQUIRE(stats.allocated <= 4 * GM_CHUNK_MIN);
	for (int i = 0; i < MANY; i++)
		let_go(taken[i]);
}
END_TEST

START_TEST(a_request_that_does_not_wait_is_answered_while_others_wait)
{
	void *all = hold(1024 * MIB), *ptr;
	gpumem_buffer *buffer;
	for (int i = 0; i < 100; i++)
		many[i] = begin_waiting(session, i % 2 ? 1000 : 10 * MIB, FOREVER);
	GM_UNTIL(gm_queue_wait(&daemon_) >= 16);
	for (int i = 0; i < 50; i++) {
		gpumem_request *small = begin(1000), *large = begin_buffer(3 * MIB, 0);
		OK(gpumem_request_wait(small, FOREVER));
		GM_REQUIRE_EQ(gpumem_alloc_take(small, &ptr), GPUMEM_E_NO_MEMORY);
		OK(gpumem_request_wait(large, FOREVER));
		GM_REQUIRE_EQ(gpumem_buffer_take(large, &buffer), GPUMEM_E_NO_MEMORY);
	}
	for (int i = 0; i < 100; i++)
		gpumem_request_cancel(many[i]);
	let_go(all);
}
END_TEST

START_TEST(handles_that_this_process_cannot_receive_fail_the_request)
{
	struct rlimit limit, none;
	gpumem_buffer *buffer = NULL;
	/* The driver is loaded first, which needs descriptors, too. */
	gpumem_buffer_destroy(take_buffer(begin_buffer(2 * MIB, 0)));
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	GM_REQUIRE_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
	/* The next descriptor is the lowest one that is free. */
	int next = dup(0);
	GM_REQUIRE(next >= 0);
	none = limit;
	none.rlim_cur = (rlim_t)next;
	close(next);
	GM_REQUIRE_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
	gpumem_request *request = begin_buffer(2 * MIB, 0);
	OK(gpumem_request_wait(request, FOREVER));
	gpumem_status status = gpumem_buffer_take(request, &buffer);
	GM_REQUIRE_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
	GM_REQUIRE_EQ(status, GPUMEM_E_SYSTEM);
	GM_REQUIRE(strstr(gpumem_error_detail(), "open files"));
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	gpumem_buffer_destroy(take_buffer(begin_buffer(2 * MIB, 0)));
}
END_TEST

START_TEST(a_pending_request_gets_memory_that_this_process_frees)
{
	/* The piece lies in a chunk that stays in use, so the daemon never gets it. */
	void *all = hold(1022 * MIB), *rest = hold(MIB), *piece = hold(768 << 10);
	gpumem_request *request = begin_waiting(session, 700 << 10, FOREVER);
	GM_UNTIL(gm_queue_wait(&daemon_) == 1);
	let_go(piece);
	let_go(take(request));
	GM_UNTIL(gm_queue_wait(&daemon_) == 0);
	let_go(rest);
	let_go(all);
}
END_TEST

START_TEST(requests_are_dropped_in_every_state)
{
	void *all = hold(1000 * MIB);
	gpumem_request *ready = begin(MIB);
	OK(gpumem_request_wait(ready, FOREVER));
	for (int i = 0; i < MANY; i++)
		many[i] = i % 2 ? begin_waiting(session, 100 * MIB, FOREVER)
				: begin_buffer(100 * MIB, FOREVER);
	GM_UNTIL(gm_queue_wait(&daemon_) >= 16);
	/* The first ones wait in the daemon, the others here. */
	for (int i = 0; i < MANY; i++)
		gpumem_request_cancel(many[i]);
	GM_UNTIL(gm_queue_wait(&daemon_) == 0);
	gpumem_request_cancel(ready);
	let_go(all);
	OK(gpumem_trim(session, NULL));
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
}
END_TEST

START_TEST(the_end_of_the_session_frees_its_requests)
{
	(void)hold(1000 * MIB);
	gpumem_request *ready = begin(MIB);
	OK(gpumem_request_wait(ready, FOREVER));
	for (int i = 0; i < 100; i++)
		(void)begin_waiting(session, 100 * MIB, FOREVER);
	GM_UNTIL(gm_queue_wait(&daemon_) >= 16);
	/* tear_down() ends it, and looks. */
}
END_TEST

/* ---- completions */

static unsigned completed;
static pthread_t completed_on;

static void on_done(void *user, gpumem_request *request)
{
	void **ret = user;
	completed++;
	completed_on = pthread_self();
	GM_REQUIRE_EQ(gpumem_request_ready(request), GPUMEM_REQUEST_READY);
	OK(gpumem_alloc_take(request, ret));
}

static bool readable(int fd, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return poll(&p, 1, timeout_ms) == 1;
}

START_TEST(completions_run_in_dispatch_and_the_descriptor_says_when)
{
	enum { N = 100 };
	void *ptrs[N] = {0};
	uint32_t ran = 77, sum = 0;
	int fd = -1, again = -1;
	OK(gpumem_session_fd(session, &fd));
	OK(gpumem_session_fd(session, &again));
	GM_REQUIRE_EQ(fd, again);
	GM_REQUIRE(!readable(fd, 0));
	OK(gpumem_dispatch(session, &ran));
	GM_REQUIRE_EQ(ran, 0);
	for (int i = 0; i < N; i++)
		OK(gpumem_request_on_done(begin(2 * MIB), on_done, &ptrs[i]));
	while (sum < N) {
		GM_REQUIRE(readable(fd, 60000));
		OK(gpumem_dispatch(session, &ran));
		sum += ran;
	}
	GM_REQUIRE_EQ(completed, N);
	GM_REQUIRE(pthread_equal(completed_on, pthread_self()));
	GM_REQUIRE(!readable(fd, 0));
	for (int i = 0; i < N; i++)
		let_go(ptrs[i]);
}
END_TEST

START_TEST(a_function_that_is_set_late_runs_and_one_that_was_unset_does_not)
{
	int fd;
	void *ptr = NULL;
	gpumem_request *request = begin(MIB);
	OK(gpumem_request_wait(request, FOREVER));
	OK(gpumem_request_on_done(request, on_done, &ptr));
	OK(gpumem_session_fd(session, &fd));
	GM_REQUIRE(readable(fd, 0));
	OK(gpumem_request_on_done(request, NULL, NULL));
	GM_REQUIRE(!readable(fd, 0));
	OK(gpumem_dispatch(session, NULL));
	GM_REQUIRE_EQ(completed, 0);
	OK(gpumem_request_on_done(request, on_done, &ptr));
	GM_REQUIRE(readable(fd, 0));
	OK(gpumem_dispatch(session, NULL));
	GM_REQUIRE_EQ(completed, 1);
	let_go(ptr);

	/* Nor does that of a request which is taken or dropped first. */
	for (int i = 0; i < 2; i++) {
		request = begin(MIB);
		OK(gpumem_request_wait(request, FOREVER));
		OK(gpumem_request_on_done(request, on_done, &ptr));
		if (i)
			let_go(take(request));
		else
			gpumem_request_cancel(request);
		GM_REQUIRE(!readable(fd, 0));
	}
	GM_REQUIRE_EQ(completed, 1);
}
END_TEST

/* A chain: each completion begins the next request. */
static void on_link(void *user, gpumem_request *request)
{
	unsigned *left = user;
	void *ptr;
	OK(gpumem_alloc_take(request, &ptr));
	let_go(ptr);
	if (--*left)
		OK(gpumem_request_on_done(begin(MIB), on_link, left));
}

START_TEST(a_function_that_begins_the_next_request_does_not_keep_dispatch_busy)
{
	unsigned left = 100;
	int fd;
	uint32_t ran;
	let_go(hold(MIB)); /* from now on, each is ready at once */
	OK(gpumem_session_fd(session, &fd));
	OK(gpumem_request_on_done(begin(MIB), on_link, &left));
	while (left) {
		GM_REQUIRE(readable(fd, 60000));
		OK(gpumem_dispatch(session, &ran));
		GM_REQUIRE_EQ(ran, 1);
	}
}
END_TEST

static _Atomic bool event_over;

static void wait_in_event(void *user, const gpumem_event *event)
{
	if (event->kind != GPUMEM_EVENT_RESTORED)
		return;
	gpumem_buffer_destroy(take_buffer(begin_buffer(6 * MIB, FOREVER)));
	let_go(take(begin(20 * MIB)));
	event_over = true;
}

START_TEST(the_event_function_may_begin_a_request_and_wait_for_it)
{
	OK(gpumem_on_event(session, wait_in_event, NULL));
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_UNTIL(event_over);
	OK(gpumem_on_event(session, NULL, NULL));
}
END_TEST

static _Atomic bool event_waits, event_may_end;

static void block_in_event(void *user, const gpumem_event *event)
{
	event_waits = true;
	GM_UNTIL(event_may_end);
}

START_TEST(a_thread_that_waits_gets_its_request_while_the_event_function_is_busy)
{
	OK(gpumem_on_event(session, block_in_event, NULL));
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_UNTIL(event_waits);
	let_go(take(begin(20 * MIB)));
	gpumem_buffer_destroy(take_buffer(begin_buffer(6 * MIB, FOREVER)));
	event_may_end = true;
	OK(gpumem_on_event(session, NULL, NULL));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client requests");
	TCase *tc = tcase_create("requests");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, a_request_for_a_pointer_becomes_ready_and_is_taken);
	tcase_add_test(tc, a_request_for_a_buffer_becomes_ready_and_is_taken);
	tcase_add_test(tc, memory_that_is_cached_is_ready_at_once_without_a_message);
	tcase_add_test(tc, what_cannot_be_granted_fails_with_the_sentence_of_the_daemon);
	tcase_add_test(tc, wrong_arguments_are_named_and_change_nothing);
	tcase_add_test(tc, a_pending_request_is_not_taken_and_goes_on);
	tcase_add_test(tc, a_request_whose_time_is_over_fails);
	tcase_add_test(tc, hundreds_of_requests_are_in_flight_and_the_daemon_sees_only_so_many);
	tcase_add_test(tc, small_requests_share_a_chunk);
	tcase_add_test(tc, a_request_that_does_not_wait_is_answered_while_others_wait);
	tcase_add_test(tc, handles_that_this_process_cannot_receive_fail_the_request);
	tcase_add_test(tc, a_pending_request_gets_memory_that_this_process_frees);
	tcase_add_test(tc, requests_are_dropped_in_every_state);
	tcase_add_test(tc, the_end_of_the_session_frees_its_requests);
	tcase_add_test(tc, completions_run_in_dispatch_and_the_descriptor_says_when);
	tcase_add_test(tc, a_function_that_is_set_late_runs_and_one_that_was_unset_does_not);
	tcase_add_test(tc, a_function_that_begins_the_next_request_does_not_keep_dispatch_busy);
	tcase_add_test(tc, the_event_function_may_begin_a_request_and_wait_for_it);
	tcase_add_test(tc, a_thread_that_waits_gets_its_request_while_the_event_function_is_busy);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
