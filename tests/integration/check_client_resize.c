/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Resizing buffers against a real daemon: they grow and shrink at their address, move where they
 * have to, and what is refused changes nothing.
 */

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

#include "common/bounds.h"
#include "common/types.h"
#include "tests/integration/device.h"
#include "tests/integration/resize_fixture.h"
#include "tests/tap.h"

static void set(gpumem_buffer *buffer, size_t from, size_t to, uint8_t byte)
{
	gm_device_set((uint8_t *)gpumem_buffer_ptr(buffer) + from, to - from, byte);
}

static void require(const gpumem_buffer *buffer, size_t from, size_t to, uint8_t byte)
{
	GM_REQUIRE(
		gm_device_is((const uint8_t *)gpumem_buffer_ptr(buffer) + from, to - from, byte));
}

/* All books say the same. */
static void require_held(uint64_t in_use, uint64_t held)
{
	gpumem_stats_t stats = stats_now();
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(stats.in_use, in_use);
	GM_REQUIRE_EQ(stats.allocated, held);
	GM_REQUIRE_EQ(stats.slack, held - in_use);
	GM_REQUIRE_EQ(f.leased, held);
}

/* ---- what it is for */

START_TEST(a_buffer_grows_and_shrinks_where_it_is)
{
	gpumem_buffer *buffer = create(6 * MIB, 256 * MIB);
	const void *place = gpumem_buffer_ptr(buffer);
	int moved = 7;
	GM_REQUIRE_EQ(gpumem_buffer_max_size(buffer), 256 * MIB);
	require_held(6 * MIB, 6 * MIB);
	set(buffer, 0, 6 * MIB, 1);

	OK(gpumem_buffer_resize(buffer, 64 * MIB, NULL, &moved));
	GM_REQUIRE_EQ(moved, 0);
	GM_REQUIRE(gpumem_buffer_ptr(buffer) == place);
	GM_REQUIRE_EQ(gpumem_buffer_size(buffer), 64 * MIB);
	require(buffer, 0, 6 * MIB, 1);
	set(buffer, 6 * MIB, 64 * MIB, 2);
	require_held(64 * MIB, gm_figures_now(&daemon_).leased);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leases, 1);

	OK(gpumem_buffer_resize(buffer, 256 * MIB, NULL, &moved));
	GM_REQUIRE_EQ(moved, 0);
	require(buffer, 0, 6 * MIB, 1);
	require(buffer, 6 * MIB, 64 * MIB, 2);
	set(buffer, 64 * MIB, 256 * MIB, 3);

	OK(gpumem_buffer_resize(buffer, 5 * MIB, GPUMEM_STREAM_DONE, &moved));
	GM_REQUIRE_EQ(moved, 0);
	GM_REQUIRE(gpumem_buffer_ptr(buffer) == place);
	require(buffer, 0, 5 * MIB, 1);
	require_held(5 * MIB, 6 * MIB);

	OK(gpumem_buffer_resize(buffer, 100 * MIB, NULL, NULL));
	GM_REQUIRE(gpumem_buffer_ptr(buffer) == place);
	require(buffer, 0, 5 * MIB, 1);
	set(buffer, 5 * MIB, 100 * MIB, 4);
	require(buffer, 0, 5 * MIB, 1);
	require(buffer, 5 * MIB, 100 * MIB, 4);
	GM_REQUIRE_EQ(stats_now().active_buffers, 1);
	gpumem_buffer_destroy(buffer);
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	require_held(0, 0);
}
END_TEST

START_TEST(what_fits_into_its_chunks_needs_no_more_of_them)
{
	gpumem_buffer *buffer = create(5 * MIB, 0);
	const void *place = gpumem_buffer_ptr(buffer);
	int moved = 7;
	require_held(5 * MIB, 6 * MIB);
	OK(gpumem_buffer_resize(buffer, 6 * MIB, NULL, &moved));
	require_held(6 * MIB, 6 * MIB);
	OK(gpumem_buffer_resize(buffer, 5 * MIB + 1, NULL, &moved));
	require_held(5 * MIB + 1, 6 * MIB);
	OK(gpumem_buffer_resize(buffer, 5 * MIB + 1, NULL, &moved));
	GM_REQUIRE_EQ(moved, 0);
	GM_REQUIRE(gpumem_buffer_ptr(buffer) == place);
	gpumem_buffer_destroy(buffer);
}
END_TEST

START_TEST(a_buffer_that_outgrows_its_place_moves_with_its_content)
{
	gpumem_buffer *buffer = create(8 * MIB, 16 * MIB);
	int moved = 7;
	set(buffer, 0, 8 * MIB, 1);
	OK(gpumem_buffer_resize(buffer, 40 * MIB, NULL, &moved));
	GM_REQUIRE_EQ(moved, 1);
	GM_REQUIRE_EQ(gpumem_buffer_size(buffer), 40 * MIB);
	require(buffer, 0, 8 * MIB, 1);
	set(buffer, 8 * MIB, 40 * MIB, 2);
	/* The old memory goes back by itself. */
	GM_UNTIL(gm_figures_now(&daemon_).leases == 1);
	require_held(40 * MIB, 40 * MIB);
	GM_REQUIRE_EQ(stats_now().active_buffers, 1);

	/* Then it has room. */
	const void *place = gpumem_buffer_ptr(buffer);
	GM_REQUIRE_EQ(gpumem_buffer_max_size(buffer), 80 * MIB);
	OK(gpumem_buffer_resize(buffer, 80 * MIB, GPUMEM_STREAM_ANY, &moved));
	GM_REQUIRE_EQ(moved, 0);
	GM_REQUIRE(gpumem_buffer_ptr(buffer) == place);
	OK(gpumem_buffer_resize(buffer, 82 * MIB, GPUMEM_STREAM_ANY, &moved));
	GM_REQUIRE_EQ(moved, 1);
	OK(gpumem_buffer_resize(buffer, 200 * MIB, GPUMEM_STREAM_DONE, &moved));
	GM_REQUIRE_EQ(moved, 1);
	require(buffer, 0, 8 * MIB, 1);
	require(buffer, 8 * MIB, 40 * MIB, 2);
	gpumem_buffer_destroy(buffer);
}
END_TEST

START_TEST(few_large_chunks_make_a_buffer_grow)
{
	gm_daemon_stop(&daemon_);
	gpumem_disconnect(session);
	gm_daemon_start(
		&daemon_, &(struct gm_daemon_options){.config = GM_DAEMON_CONFIG_WITH("", "20G")});
	session = join("the test");
	gpumem_buffer *buffer = create(1024 * MIB, 16384 * MIB), *small[64];
	/* The pool has small ones. */
	for (size_t i = 0; i < 64; i++)
		small[i] = create((i & 1 ? 32 : 2) * MIB, 0);
	for (size_t i = 0; i < 64; i++)
		gpumem_buffer_destroy(small[i]);
	OK(gpumem_trim(session, NULL));
	GM_REQUIRE(gm_figures_now(&daemon_).pooled > 0);

	/* From that pool, and from one that has large ones. */
	for (int i = 0; i < 2; i++) {
		OK(gpumem_buffer_resize(buffer, 16384 * MIB, NULL, NULL));
		GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, 16384 * MIB);
		uint64_t returns = stats_now().returns;
		OK(gpumem_buffer_resize(buffer, 1024 * MIB, GPUMEM_STREAM_DONE, NULL));
		GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, 1024 * MIB);
		/* As many as there would be of 256 MiB, at most. */
		GM_REQUIRE(stats_now().returns - returns <= 15 * 4);
	}
	gpumem_buffer_destroy(buffer);
}
END_TEST

START_TEST(a_buffer_of_a_request_grows_like_any_other)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_request *request;
	gpumem_buffer *buffer;
	int moved = 7;
	options.max_size = 64 * MIB;
	OK(gpumem_buffer_create_begin(session, 0, 4 * MIB, &options, &request));
	OK(gpumem_request_wait(request, GPUMEM_WAIT_FOREVER));
	OK(gpumem_buffer_take(request, &buffer));
	OK(gpumem_buffer_resize(buffer, 64 * MIB, NULL, &moved));
	GM_REQUIRE_EQ(moved, 0);
	gpumem_buffer_destroy(buffer);
}
END_TEST

/* ---- what is refused */

static void refused(gpumem_buffer *buffer, size_t size, gpumem_status status, const char *says)
{
	struct was was = now(buffer);
	int moved = 7;
	GM_REQUIRE_EQ(gpumem_buffer_resize(buffer, size, NULL, &moved), status);
	if (!strstr(gpumem_error_detail(), says))
		GM_FAIL("'%s' does not say '%s'", gpumem_error_detail(), says);
	GM_REQUIRE_EQ(moved, 7);
	require_as(buffer, &was);
}

START_TEST(sizes_that_make_no_sense_are_refused)
{
	gpumem_buffer *buffer = create(6 * MIB, 64 * MIB), *none = NULL;
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	set(buffer, 0, 6 * MIB, 1);
	refused(buffer, 0, GPUMEM_E_INVALID, "size must be from 1 to");
	refused(buffer, SIZE_MAX, GPUMEM_E_INVALID, "size must be");
	refused(buffer, GM_LEASE_BYTES_MAX + 1, GPUMEM_E_INVALID, "size must be");
	refused(buffer, GM_LEASE_BYTES_MAX, GPUMEM_E_NO_MEMORY, "");
	GM_REQUIRE_EQ(gpumem_buffer_resize(NULL, 1, NULL, NULL), GPUMEM_E_INVALID);
	GM_REQUIRE(strstr(gpumem_error_detail(), "buffer must not be NULL"));
	GM_REQUIRE_EQ(gpumem_buffer_max_size(NULL), 0);
	require(buffer, 0, 6 * MIB, 1);

	options.max_size = 2 * MIB;
	GM_REQUIRE_EQ(gpumem_buffer_create(session, 0, 3 * MIB, &options, &none), GPUMEM_E_INVALID);
	GM_REQUIRE(strstr(gpumem_error_detail(), "max_size"));
	options.max_size = SIZE_MAX;
	GM_REQUIRE_EQ(gpumem_buffer_create(session, 0, 3 * MIB, &options, &none), GPUMEM_E_INVALID);
	GM_REQUIRE(!none);
	gpumem_buffer_destroy(buffer);
}
END_TEST

START_TEST(what_the_device_or_a_limit_does_not_allow_changes_nothing)
{
	gpumem_buffer *buffer = create(6 * MIB, 2048 * MIB);
	set(buffer, 0, 6 * MIB, 1);
	refused(buffer, 2048 * MIB, GPUMEM_E_NO_MEMORY, "");
	refused(buffer, 1025 * MIB, GPUMEM_E_NO_MEMORY, "");
	/* Where it would have to move, too. */
	refused(buffer, 3000 * MIB, GPUMEM_E_NO_MEMORY, "");
	gm_daemon_reload(
		&daemon_, GM_DAEMON_CONFIG_WITH("[limit client:the test]\nmax = 64M\n", "1G"));
	refused(buffer, 66 * MIB, GPUMEM_E_LIMIT, "");
	OK(gpumem_buffer_resize(buffer, 64 * MIB, NULL, NULL));
	require(buffer, 0, 6 * MIB, 1);
	gpumem_buffer_destroy(buffer);
}
END_TEST

START_TEST(a_buffer_with_a_token_stays_as_it_is)
{
	gpumem_session *other = join("other");
	gpumem_buffer *buffer = create(6 * MIB, 64 * MIB), *opened;
	gpumem_token token;
	OK(gpumem_share(buffer, NULL, &token));
	refused(buffer, 32 * MIB, GPUMEM_E_BUSY, "gpumem_unshare");
	refused(buffer, 2 * MIB, GPUMEM_E_BUSY, "shared");
	refused(buffer, 5 * MIB, GPUMEM_E_BUSY, "shared");
	refused(buffer, 128 * MIB, GPUMEM_E_BUSY, "shared"); /* it would move */

	/* Nor while somebody has it open. */
	OK(gpumem_open(other, &token, &opened));
	OK(gpumem_unshare(buffer));
	refused(buffer, 32 * MIB, GPUMEM_E_BUSY, "opened");
	refused(buffer, 2 * MIB, GPUMEM_E_BUSY, "opened");
	GM_REQUIRE_EQ(gpumem_buffer_resize(opened, 2 * MIB, NULL, NULL), GPUMEM_E_DENIED);
	GM_REQUIRE(strstr(gpumem_error_detail(), "another process made"));
	GM_REQUIRE_EQ(gpumem_buffer_ensure(opened, 8 * MIB, NULL, NULL), GPUMEM_E_DENIED);
	GM_REQUIRE_EQ(gpumem_buffer_max_size(opened), 6 * MIB);
	gpumem_disconnect(other);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 1);

	OK(gpumem_buffer_resize(buffer, 32 * MIB + 5, NULL, NULL));
	OK(gpumem_buffer_resize(buffer, 7 * MIB + 3, GPUMEM_STREAM_DONE, NULL));
	/* And who opens it then sees its new size. */
	OK(gpumem_share(buffer, NULL, &token));
	other = join("other");
	OK(gpumem_open(other, &token, &opened));
	GM_REQUIRE_EQ(gpumem_buffer_size(opened), 7 * MIB + 3);
	gpumem_disconnect(other);
	gpumem_buffer_destroy(buffer);
}
END_TEST

START_TEST(a_buffer_with_a_name_stays_as_it_is)
{
	gpumem_buffer *buffer = create(6 * MIB, 64 * MIB), *attached;
	OK(gpumem_publish(buffer, "weights", NULL, NULL, NULL));
	refused(buffer, 32 * MIB, GPUMEM_E_BUSY, "published as weights");
	refused(buffer, 2 * MIB, GPUMEM_E_BUSY, "published as weights");
	OK(gpumem_attach(session, "weights", &attached));
	GM_REQUIRE_EQ(gpumem_buffer_resize(attached, 2 * MIB, NULL, NULL), GPUMEM_E_DENIED);
	gpumem_buffer_destroy(attached);
	OK(gpumem_trim(session, NULL));
	OK(gpumem_unpublish(session, "weights"));
	OK(gpumem_buffer_resize(buffer, 33 * MIB, NULL, NULL));
	OK(gpumem_publish(buffer, "weights", NULL, NULL, NULL));
	OK(gpumem_attach(session, "weights", &attached));
	GM_REQUIRE_EQ(gpumem_buffer_size(attached), 33 * MIB);
	gpumem_buffer_destroy(attached);
	OK(gpumem_unpublish(session, "weights"));
	gpumem_buffer_destroy(buffer);
}
END_TEST

/* ---- waiting */

static void *end_soon(void *other)
{
	GM_UNTIL(gm_queue_wait(&daemon_) == 1);
	gpumem_disconnect(other);
	return NULL;
}

START_TEST(a_buffer_that_grows_waits_as_it_did_when_it_was_made)
{
	gpumem_session *other = join("other");
	gpumem_buffer *filler, *buffer, *impatient;
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	pthread_t thread;
	OK(gpumem_buffer_create(other, 0, 900 * MIB, NULL, &filler));
	options.max_size = 512 * MIB;
	options.wait_ms = 20;
	impatient = create_with(2 * MIB, options);
	refused(impatient, 500 * MIB, GPUMEM_E_TIMEOUT, "");
	options.wait_ms = GPUMEM_WAIT_FOREVER;
	buffer = create_with(2 * MIB, options);
	GM_REQUIRE_EQ(pthread_create(&thread, NULL, end_soon, other), 0);
	OK(gpumem_buffer_resize(buffer, 500 * MIB, NULL, NULL));
	GM_REQUIRE_EQ(pthread_join(thread, NULL), 0);
	gpumem_buffer_destroy(buffer);
	gpumem_buffer_destroy(impatient);
}
END_TEST

/* ---- restarts */

struct call {
	gpumem_buffer *buffer;
	size_t size;
	gpumem_status status;
	int moved;
};

static void *resize(void *argument)
{
	struct call *call = argument;
	call->status = gpumem_buffer_resize(call->buffer, call->size, NULL, &call->moved);
	return NULL;
}

START_TEST(a_buffer_that_grows_while_the_daemon_is_away_waits_for_it)
{
	pthread_t thread;
	struct call call = {.buffer = create(6 * MIB, 64 * MIB), .size = (_i ? 5 : 63) * MIB};
	set(call.buffer, 0, 5 * MIB, 1);
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(pthread_create(&thread, NULL, resize, &call), 0);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_REQUIRE_EQ(pthread_join(thread, NULL), 0);
	GM_REQUIRE_EQ(call.status, GPUMEM_OK);
	GM_REQUIRE_EQ(call.moved, 0);
	require(call.buffer, 0, 5 * MIB, 1);
	require_held(call.size, _i ? 6 * MIB : 64 * MIB);

	/* The next daemon knows its size, too. */
	gpumem_token token;
	gpumem_buffer *opened;
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	OK(gpumem_share(call.buffer, NULL, &token));
	OK(gpumem_open(session, &token, &opened));
	GM_REQUIRE_EQ(gpumem_buffer_size(opened), call.size);
	gpumem_buffer_destroy(opened);
	gpumem_buffer_destroy(call.buffer);
}
END_TEST

START_TEST(a_growth_that_a_frozen_daemon_never_answered_is_not_granted_twice)
{
	pthread_t thread;
	struct call call = {.buffer = create(6 * MIB, 64 * MIB), .size = 62 * MIB};
	gm_daemon_signal(&daemon_, SIGSTOP);
	GM_REQUIRE_EQ(pthread_create(&thread, NULL, resize, &call), 0);
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_REQUIRE_EQ(pthread_join(thread, NULL), 0);
	GM_REQUIRE_EQ(call.status, GPUMEM_OK);
	require_held(62 * MIB, 62 * MIB);
	gpumem_buffer_destroy(call.buffer);
}
END_TEST

START_TEST(a_daemon_that_does_not_come_back_leaves_the_buffer_as_it_was)
{
	gpumem_session *s = join_away("short", 10);
	gpumem_buffer *buffer;
	OK(gpumem_buffer_create(s, 0, 6 * MIB, NULL, &buffer));
	set(buffer, 0, 6 * MIB, 1);
	const void *place = gpumem_buffer_ptr(buffer);
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gpumem_buffer_resize(buffer, 2 * MIB, NULL, NULL), GPUMEM_E_DISCONNECTED);
	GM_REQUIRE_EQ(gpumem_buffer_resize(buffer, 9 * MIB, NULL, NULL), GPUMEM_E_DISCONNECTED);
	GM_REQUIRE(gpumem_buffer_ptr(buffer) == place);
	GM_REQUIRE_EQ(gpumem_buffer_size(buffer), 6 * MIB);
	require(buffer, 0, 6 * MIB, 1);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	gpumem_disconnect(s);
}
END_TEST

/* ---- threads */

#define ROUNDS 60

static void *resize_often(void *argument)
{
	gpumem_buffer *buffer = argument;
	for (size_t i = 0; i < ROUNDS; i++) {
		OK(gpumem_buffer_resize(buffer, (1 + i * 7 % 32) * MIB + i,
			i & 1 ? GPUMEM_STREAM_DONE : NULL, NULL));
		(void)gpumem_buffer_size(buffer);
		(void)gpumem_buffer_ptr(buffer);
		OK(gpumem_buffer_report_use(buffer, 1));
	}
	return NULL;
}

static void *ensure_often(void *argument)
{
	gpumem_buffer *buffer = argument;
	for (size_t i = 1; i <= ROUNDS; i++) {
		OK(gpumem_buffer_ensure(buffer, i * MIB / 2, NULL, NULL));
		gpumem_buffer *other = create(3 * MIB, 64 * MIB);
		OK(gpumem_buffer_resize(other, 9 * MIB, NULL, NULL));
		gpumem_buffer_destroy(other);
	}
	return NULL;
}

static void *share_often(void *argument)
{
	gpumem_buffer *buffer = argument;
	for (size_t i = 0; i < ROUNDS; i++) {
		gpumem_token token;
		gpumem_status status;
		/* While the device may still use what was cut off, it cannot be shared. */
		while ((status = gpumem_share(buffer, NULL, &token)) == GPUMEM_E_BUSY)
			sched_yield();
		OK(status);
		OK(gpumem_unshare(buffer));
	}
	return NULL;
}

START_TEST(several_threads_resize_one_buffer_and_others)
{
	gpumem_buffer *buffer = create(3 * MIB, 64 * MIB);
	void *(*const work[])(void *) = {resize_often, resize_often, ensure_often};
	pthread_t threads[3];
	for (size_t i = 0; i < 3; i++)
		GM_REQUIRE_EQ(pthread_create(&threads[i], NULL, work[i], buffer), 0);
	for (size_t i = 0; i < 3; i++)
		GM_REQUIRE_EQ(pthread_join(threads[i], NULL), 0);
	OK(gpumem_buffer_resize(buffer, 20 * MIB, NULL, NULL));
	set(buffer, 0, 20 * MIB, 9);
	require(buffer, 0, 20 * MIB, 9);
	OK(gpumem_trim(session, NULL));
	GM_UNTIL(gm_figures_now(&daemon_).leases == 1);
	require_held(20 * MIB, gm_figures_now(&daemon_).leased);
	gpumem_buffer_destroy(buffer);
}
END_TEST

START_TEST(a_buffer_that_is_shared_meanwhile_is_either_resized_or_not)
{
	gpumem_buffer *buffer = create(3 * MIB, 64 * MIB);
	pthread_t thread;
	GM_REQUIRE_EQ(pthread_create(&thread, NULL, share_often, buffer), 0);
	for (size_t i = 0; i < ROUNDS; i++) {
		size_t size = (1 + i * 7 % 32) * MIB, before = gpumem_buffer_size(buffer);
		gpumem_status status = gpumem_buffer_resize(buffer, size, NULL, NULL);
		GM_REQUIRE(status == GPUMEM_OK || status == GPUMEM_E_BUSY);
		GM_REQUIRE_EQ(gpumem_buffer_size(buffer), status ? before : size);
	}
	GM_REQUIRE_EQ(pthread_join(thread, NULL), 0);
	OK(gpumem_trim(session, NULL));
	require_held(gpumem_buffer_size(buffer), gm_figures_now(&daemon_).leased);
	gpumem_buffer_destroy(buffer);
}
END_TEST

START_TEST(resized_buffers_end_with_their_session)
{
	gpumem_session *s = join("forgetful");
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer;
	options.max_size = 64 * MIB;
	OK(gpumem_buffer_create(s, 0, 6 * MIB, &options, &buffer));
	OK(gpumem_buffer_resize(buffer, 64 * MIB, NULL, NULL));
	OK(gpumem_buffer_resize(buffer, 80 * MIB, NULL, NULL));
	OK(gpumem_buffer_resize(buffer, 3 * MIB, NULL, NULL));
	gpumem_disconnect(s);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 1);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leases, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client resize");
	TCase *tc = tcase_create("client resize");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, a_buffer_grows_and_shrinks_where_it_is);
	tcase_add_test(tc, what_fits_into_its_chunks_needs_no_more_of_them);
	tcase_add_test(tc, a_buffer_that_outgrows_its_place_moves_with_its_content);
	if (!gm_on_gpu() && !gm_sanitized())
		tcase_add_test(tc, few_large_chunks_make_a_buffer_grow);
	tcase_add_test(tc, a_buffer_of_a_request_grows_like_any_other);
	tcase_add_test(tc, sizes_that_make_no_sense_are_refused);
	tcase_add_test(tc, what_the_device_or_a_limit_does_not_allow_changes_nothing);
	tcase_add_test(tc, a_buffer_with_a_token_stays_as_it_is);
	tcase_add_test(tc, a_buffer_with_a_name_stays_as_it_is);
	tcase_add_test(tc, a_buffer_that_grows_waits_as_it_did_when_it_was_made);
	tcase_add_loop_test(tc, a_buffer_that_grows_while_the_daemon_is_away_waits_for_it, 0, 2);
	tcase_add_test(tc, a_growth_that_a_frozen_daemon_never_answered_is_not_granted_twice);
	tcase_add_test(tc, a_daemon_that_does_not_come_back_leaves_the_buffer_as_it_was);
	tcase_add_test(tc, several_threads_resize_one_buffer_and_others);
	tcase_add_test(tc, a_buffer_that_is_shared_meanwhile_is_either_resized_or_not);
	tcase_add_test(tc, resized_buffers_end_with_their_session);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
