/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * What a session tracks: everything that is not freed, with its tag, type, precision, age and the place
 * where it was allocated; and what its end says about it.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "client/session/gpumem_session.h"
#include "common/bounds.h"
#include "tests/bound.h"
#include "tests/tap.h"
#include "tests/unit/session/session_fixture.h"

static void track(gpumem_track how)
{
	gpumem_connect_options options = usual_options();
	options.track = how;
	gpumem_disconnect(session);
	session = NULL;
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_OK);
}

/* ---- what gpumem_leaks() tells */

#define MOST 4096
struct told {
	gpumem_leak leak;
	char tag[64], type[16], precision[16], stack[8192];
};
static struct told told[MOST];
static size_t n_told;

static void tell(void *user, const gpumem_leak *leak)
{
	ck_assert_ptr_eq(user, &n_told);
	ck_assert_uint_eq(leak->size, sizeof(*leak));
	ck_assert_uint_lt(n_told, MOST);
	struct told *to = &told[n_told++];
	to->leak = *leak;
	snprintf(to->tag, sizeof(to->tag), "%s", leak->tag);
	snprintf(to->type, sizeof(to->type), "%s", leak->type);
	snprintf(to->precision, sizeof(to->precision), "%s", leak->precision);
	snprintf(to->stack, sizeof(to->stack), "%s", leak->stack);
}

static size_t leaks(uint64_t older_than_ms)
{
	uint64_t count = 77;
	n_told = 0;
	ck_assert_int_eq(gpumem_leaks(session, older_than_ms, tell, &n_told, &count), GPUMEM_OK);
	ck_assert_uint_eq(count, n_told);
	return n_told;
}

START_TEST(a_session_that_tracks_knows_all_that_is_not_freed)
{
	gpumem_alloc_options named = GPUMEM_ALLOC_OPTIONS_INIT;
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_batch_options both = GPUMEM_BATCH_OPTIONS_INIT;
	gpumem_batch_entry entries[] = {{100, 0, "first"}, {200, 0, NULL}};
	gpumem_buffer *buffer;
	gpumem_batch *batch;
	void *small, *large;

	track(GPUMEM_TRACK_ALL);
	ck_assert_uint_eq(leaks(0), 0);
	named.tag = "tiny";
	ck_assert_int_eq(gpumem_alloc(session, 0, 16, NULL, &named, &small), GPUMEM_OK);
	ck_assert_int_eq(gpumem_alloc(session, 1, LARGE, NULL, NULL, &large), GPUMEM_OK);
	options.tag = "layer 1";
	options.type = "weights";
	options.precision = "bf16";
	ck_assert_int_eq(gpumem_buffer_create(session, 0, 4096, &options, &buffer), GPUMEM_OK);
	both.tag = "batch";
	both.type = "kv";
	both.precision = "fp8";
	ck_assert_int_eq(gpumem_batch_create(session, 0, entries, 2, &both, &batch), GPUMEM_OK);

	/* The oldest comes first. */
	ck_assert_uint_eq(leaks(0), 5);
	ck_assert_ptr_eq(told[0].leak.ptr, small);
	ck_assert_uint_eq(told[0].leak.bytes, 16);
	ck_assert_str_eq(told[0].tag, "tiny");
	ck_assert_str_eq(told[0].type, "");
	ck_assert_str_eq(told[0].stack, "");
	ck_assert_ptr_eq(told[1].leak.ptr, large);
	ck_assert_uint_eq(told[1].leak.device, 1);
	ck_assert_ptr_eq(told[2].leak.ptr, gpumem_buffer_ptr(buffer));
	ck_assert_str_eq(told[2].tag, "layer 1");
	ck_assert_str_eq(told[2].type, "weights");
	ck_assert_str_eq(told[2].precision, "bf16");
	ck_assert_ptr_eq(told[3].leak.ptr, gpumem_batch_ptr(batch, 0));
	ck_assert_str_eq(told[3].tag, "first");
	ck_assert_str_eq(told[4].tag, "batch");
	ck_assert_str_eq(told[4].type, "kv");
	ck_assert_str_eq(told[4].precision, "fp8");

	/* None is that old, now or ever. */
	ck_assert_uint_eq(leaks(24 * 3600 * 1000), 0);
	ck_assert_uint_eq(leaks(UINT64_MAX), 0);

	/* And whatever is freed is gone at once. */
	ck_assert_int_eq(gpumem_free(session, small, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_int_eq(gpumem_batch_free_entry(batch, 0, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_uint_eq(leaks(0), 3);
	gpumem_batch_destroy(batch);
	gpumem_buffer_destroy(buffer);
	ck_assert_uint_eq(leaks(0), 1);
	ck_assert_ptr_eq(told[0].leak.ptr, large);
	ck_assert_int_eq(gpumem_free(session, large, NULL), GPUMEM_OK);
	ck_assert_uint_eq(leaks(0), 0);
	ck_assert_int_eq(gpumem_leaks(session, 0, NULL, NULL, NULL), GPUMEM_OK);
	ck_assert_int_eq(gpumem_leaks(NULL, 0, NULL, NULL, NULL), GPUMEM_E_INVALID);
}
END_TEST

START_TEST(other_sessions_know_what_is_large)
{
	void *small, *large;
	gpumem_buffer *buffer = make_buffer(LARGE);

	ck_assert_int_eq(gpumem_alloc(session, 0, LARGE - 1, NULL, NULL, &small), GPUMEM_OK);
	ck_assert_int_eq(gpumem_alloc(session, 0, LARGE, NULL, NULL, &large), GPUMEM_OK);
	ck_assert_uint_eq(leaks(0), 2);
	ck_assert_ptr_eq(told[0].leak.ptr, gpumem_buffer_ptr(buffer));
	ck_assert_ptr_eq(told[1].leak.ptr, large);
	gpumem_buffer_destroy(buffer);
	ck_assert_int_eq(gpumem_free(session, small, NULL), GPUMEM_OK);
	ck_assert_int_eq(gpumem_free(session, large, NULL), GPUMEM_OK);
	ck_assert_uint_eq(leaks(0), 0);
}
END_TEST

START_TEST(a_request_is_tracked_when_it_is_taken)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_request *request, *other;
	gpumem_buffer *buffer;
	void *ptr;

	track(GPUMEM_TRACK_STACKS);
	options.type = "kv";
	options.precision = "fp16";
	ck_assert_int_eq(
		gpumem_buffer_create_begin(session, 0, 4096, &options, &request), GPUMEM_OK);
	ck_assert_int_eq(gpumem_alloc_begin(session, 0, 64, NULL, NULL, &other), GPUMEM_OK);
	ck_assert_int_eq(gpumem_request_wait(request, GPUMEM_WAIT_FOREVER), GPUMEM_OK);
	ck_assert_int_eq(gpumem_request_wait(other, GPUMEM_WAIT_FOREVER), GPUMEM_OK);
	ck_assert_int_eq(gpumem_buffer_take(request, &buffer), GPUMEM_OK);
	ck_assert_int_eq(gpumem_alloc_take(other, &ptr), GPUMEM_OK);
	ck_assert_uint_eq(leaks(0), 2);
	ck_assert_str_eq(told[0].type, "kv");
	ck_assert_str_eq(told[0].precision, "fp16");
	ck_assert_ptr_nonnull(strstr(told[0].stack, "check_leaks+0x"));
	ck_assert_ptr_nonnull(strstr(told[1].stack, "check_leaks+0x"));
	gpumem_buffer_destroy(buffer);
	ck_assert_int_eq(gpumem_free(session, ptr, NULL), GPUMEM_OK);
	ck_assert_uint_eq(leaks(0), 0);
}
END_TEST

START_TEST(a_touch_ends_the_idle_time_and_not_the_age)
{
	gpumem_buffer *buffer;
	const struct timespec moment = {.tv_nsec = 30000000};

	track(GPUMEM_TRACK_ALL);
	buffer = make_buffer(LARGE);
	/* The clocks are coarse: wait until the buffer has an age. */
	do {
		nanosleep(&moment, NULL);
		leaks(0);
	} while (told[0].leak.age_ms < 20);
	ck_assert_uint_eq(told[0].leak.idle_ms, told[0].leak.age_ms);
	ck_assert_int_eq(gpumem_buffer_touch(buffer), GPUMEM_OK);
	leaks(0);
	ck_assert_uint_lt(told[0].leak.idle_ms, told[0].leak.age_ms);
	ck_assert_uint_eq(leaks(1), 1);
	ck_assert_int_eq(gpumem_buffer_touch(NULL), GPUMEM_E_INVALID);
	gpumem_buffer_destroy(buffer);
}
END_TEST

START_TEST(a_type_or_precision_has_eleven_bytes_at_most)
{
	GM_BOUND_TEST(KIND_BYTES);
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_batch_options both = GPUMEM_BATCH_OPTIONS_INIT;
	gpumem_batch_entry entry = {100, 0, NULL};
	gpumem_request *request;
	gpumem_buffer *buffer = NULL;
	gpumem_batch *batch = NULL;

	options.type = "activations";
	ck_assert_uint_eq(strlen(options.type), GM_BOUND_KIND_BYTES);
	ck_assert_int_eq(gpumem_buffer_create(session, 0, 4096, &options, &buffer), GPUMEM_OK);
	gpumem_buffer_destroy(buffer);
	options.type = "activations_";
	ck_assert_int_eq(
		gpumem_buffer_create(session, 0, 4096, &options, &buffer), GPUMEM_E_INVALID);
	says("type must be printable UTF-8 of at most 11 bytes");
	ck_assert_int_eq(
		gpumem_buffer_create_begin(session, 0, 4096, &options, &request), GPUMEM_E_INVALID);
	options.type = NULL;
	options.precision = "a\nb";
	ck_assert_int_eq(
		gpumem_buffer_create(session, 0, 4096, &options, &buffer), GPUMEM_E_INVALID);
	says("precision");
	both.precision = "twelve bytes";
	ck_assert_int_eq(
		gpumem_batch_create(session, 0, &entry, 1, &both, &batch), GPUMEM_E_INVALID);
	says("precision");
}
END_TEST

/* More than the page has rows for: the session keeps the others by itself. */
START_TEST(a_session_that_tracks_knows_more_than_the_page)
{
	GM_BOUND_TEST(TRACKED_BUFFERS);
	enum { N = GM_BOUND_TRACKED_BUFFERS + 200 };
	static void *ptr[N];
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	struct gm_page_use use;

	track(GPUMEM_TRACK_ALL);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < N; i++)
			ck_assert_int_eq(
				gpumem_alloc(session, 0, 100 + (size_t)i, NULL, NULL, &ptr[i]),
				GPUMEM_OK);
		ck_assert_uint_eq(leaks(0), N);
		for (int i = 0; i < N; i++) {
			ck_assert_ptr_eq(told[i].leak.ptr, ptr[i]);
			ck_assert_uint_eq(told[i].leak.bytes, 100 + (size_t)i);
		}
		ck_assert_int_eq(gpumem_stats(session, 0, &stats), GPUMEM_OK);
		fake_read_use(fake, 0, &use);
		ck_assert_uint_eq(use.untracked, 200);
		for (int i = 0; i < N; i++)
			ck_assert_int_eq(
				gpumem_free(session, ptr[i], GPUMEM_STREAM_DONE), GPUMEM_OK);
		ck_assert_uint_eq(leaks(0), 0);
	}
	ck_assert_int_eq(gpumem_stats(session, 0, &stats), GPUMEM_OK);
	fake_read_use(fake, 0, &use);
	ck_assert_uint_eq(use.untracked, 0);
}
END_TEST

/* ---- how a session comes to track */

static gpumem_status with_environment(const char *value, gpumem_session **ret)
{
	setenv("GPUMEM_TRACK", value, 1);
	gpumem_status status = try_connect(20000, ret);
	unsetenv("GPUMEM_TRACK");
	return status;
}

START_TEST(the_environment_turns_tracking_on)
{
	gpumem_session *other = NULL;

	ck_assert_int_eq(with_environment("all", &other), GPUMEM_OK);
	ck_assert_int_eq(other->tracking, GM_SESSION_TRACK_ALL);
	ck_assert(other->report);
	gpumem_disconnect(other);
	ck_assert_int_eq(with_environment("stacks", &other), GPUMEM_OK);
	ck_assert_int_eq(other->tracking, GM_SESSION_TRACK_STACKS);
	gpumem_disconnect(other);
	ck_assert_int_eq(with_environment("", &other), GPUMEM_OK);
	ck_assert_int_eq(other->tracking, GM_SESSION_TRACK_LATER);
	ck_assert(!other->report);
	gpumem_disconnect(other);
	ck_assert_int_eq(with_environment("stack", &other), GPUMEM_E_INVALID);
	says("GPUMEM_TRACK must be all or stacks, and is stack");

	gpumem_connect_options options = usual_options();
	options.track = (gpumem_track)3;
	ck_assert_int_eq(gpumem_connect(&options, &other), GPUMEM_E_INVALID);
	says("no way of tracking 3");
}
END_TEST

/* ---- the end of a session */

/* Ends the session, and returns what it wrote to stderr. */
static char *end_session(void)
{
	static char text[32768];
	FILE *file = tmpfile();
	int old = dup(STDERR_FILENO);

	ck_assert_ptr_nonnull(file);
	fflush(stderr);
	ck_assert_int_ge(dup2(fileno(file), STDERR_FILENO), 0);
	gpumem_disconnect(session);
	session = NULL;
	fflush(stderr);
	dup2(old, STDERR_FILENO);
	close(old);
	rewind(file);
	size_t n = fread(text, 1, sizeof(text) - 1, file);
	text[n] = '\0';
	fclose(file);
	return text;
}

static void has(const char *text, const char *words)
{
	if (!strstr(text, words))
		ck_abort_msg("\"%s\" is not in \"%s\"", words, text);
}

static __attribute__((noinline)) void lose_one(const char *tag)
{
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	void *ptr;
	options.tag = tag;
	ck_assert_int_eq(gpumem_alloc(session, 0, MIB, NULL, &options, &ptr), GPUMEM_OK);
}

START_TEST(the_end_reports_what_was_never_freed_if_the_program_asked)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer;
	gpumem_request *request;

	track(GPUMEM_TRACK_ALL);
	for (int i = 0; i < 3; i++)
		lose_one("lost");
	options.type = "weights";
	options.precision = "bf16";
	ck_assert_int_eq(gpumem_buffer_create(session, 1, 4 * MIB, &options, &buffer), GPUMEM_OK);
	/* What the program never took, it did not forget to free. */
	ck_assert_int_eq(
		gpumem_buffer_create_begin(session, 0, 2 * MIB, NULL, &request), GPUMEM_OK);
	ck_assert_int_eq(gpumem_request_wait(request, GPUMEM_WAIT_FOREVER), GPUMEM_OK);
	const char *text = end_session();
	has(text, "gpumem: 7.0M in 4 allocations of test (pid ");
	has(text, ") were never freed:\n"
		  "gpumem:   4.0M in 1 allocation on device 1, type weights, precision bf16\n"
		  "gpumem:   3.0M in 3 allocations on device 0, tag lost\n");
	ck_assert_ptr_null(strstr(text, "+0x"));
}
END_TEST

START_TEST(the_end_says_where_it_was_allocated)
{
	volatile int n = 3; /* so that the loop has one call */

	track(GPUMEM_TRACK_STACKS);
	for (int i = 0; i < n; i++)
		lose_one("lost");
	lose_one("lost");
	const char *text = end_session();
	/* Two places in this function. */
	has(text, "gpumem:   3.0M in 3 allocations on device 0, tag lost\ngpumem:     /");
	has(text, "gpumem:   1.0M in 1 allocation on device 0, tag lost\ngpumem:     /");
	has(text, "check_leaks+0x");
}
END_TEST

START_TEST(the_end_says_nothing_otherwise)
{
	lose_one("lost");
	ck_assert_str_eq(end_session(), "");
	ck_assert_int_eq(try_connect(20000, &session), GPUMEM_OK);
	track(GPUMEM_TRACK_STACKS);
	gpumem_buffer_destroy(make_buffer(MIB));
	ck_assert_str_eq(end_session(), "");
}
END_TEST

/* ---- threads */

static void *allocate(void *unused)
{
	void *ptr[32];
	(void)unused;
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 32; i++)
			ck_assert_int_eq(
				gpumem_alloc(session, 0, 64 << (i % 12), NULL, NULL, &ptr[i]),
				GPUMEM_OK);
		for (int i = 0; i < 32; i++)
			ck_assert_int_eq(
				gpumem_free(session, ptr[i], GPUMEM_STREAM_ANY), GPUMEM_OK);
	}
	return NULL;
}

START_TEST(threads_that_allocate_leave_nothing_behind)
{
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	pthread_t threads[4];

	track(GPUMEM_TRACK_STACKS);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, allocate, NULL), 0);
	for (int i = 0; i < 50; i++) {
		/* Lists blocks at the same time, as the library's thread does. */
		ck_assert_int_eq(gpumem_stats(session, 0, &stats), GPUMEM_OK);
		ck_assert_int_eq(gpumem_leaks(session, 0, NULL, NULL, NULL), GPUMEM_OK);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(leaks(0), 0);
	ck_assert_str_eq(end_session(), "");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("leaks");
	TCase *tc = tcase_create("leaks");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_session_that_tracks_knows_all_that_is_not_freed);
	tcase_add_test(tc, other_sessions_know_what_is_large);
	tcase_add_test(tc, a_request_is_tracked_when_it_is_taken);
	tcase_add_test(tc, a_touch_ends_the_idle_time_and_not_the_age);
	tcase_add_test(tc, a_type_or_precision_has_eleven_bytes_at_most);
	tcase_add_test(tc, a_session_that_tracks_knows_more_than_the_page);
	tcase_add_test(tc, the_environment_turns_tracking_on);
	tcase_add_test(tc, the_end_reports_what_was_never_freed_if_the_program_asked);
	tcase_add_test(tc, the_end_says_where_it_was_allocated);
	tcase_add_test(tc, the_end_says_nothing_otherwise);
	tcase_add_test(tc, threads_that_allocate_leave_nothing_behind);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
