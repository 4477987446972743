/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon goes, and comes back with or without a memory: what is held works on, and nothing is
 * lost.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/bounds.h"
#include "common/wire/wire.h"
#include "tests/scratch.h"
#include "tests/tap.h"
#include "tests/unit/session/heard.h"
#include "tests/unit/session/session_fixture.h"

START_TEST(what_is_held_works_on_while_the_daemon_is_away)
{
	void *ptr, *more;
	connect_again(0);
	listen_to(session);
	gpumem_buffer *buffer = make_buffer(4 * MIB), *other;
	memset(gpumem_buffer_ptr(buffer), 3, 4 * MIB);
	ck_assert_int_eq(gpumem_alloc(session, 0, 4096, NULL, NULL, &ptr), GPUMEM_OK);
	fake_away(fake);
	wait_event(GPUMEM_EVENT_LOST, 1);
	ck_assert_int_eq(
		gpumem_buffer_create(session, 0, MIB, NULL, &other), GPUMEM_E_DISCONNECTED);
	says("cannot be reached");
	ck_assert_int_eq(((char *)gpumem_buffer_ptr(buffer))[4 * MIB - 1], 3);
	/* The chunk has room: no message is needed. */
	ck_assert_int_eq(gpumem_alloc(session, 0, 4096, NULL, NULL, &more), GPUMEM_OK);
	ck_assert_int_eq(gpumem_free(session, more, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_int_eq(
		gpumem_alloc(session, 0, 512 * MIB, NULL, NULL, &more), GPUMEM_E_DISCONNECTED);
	ck_assert_int_eq(gpumem_pressure(session, 0, NULL, NULL), GPUMEM_OK);
	gpumem_buffer_destroy(buffer);
	ck_assert_int_eq(gpumem_free(session, ptr, GPUMEM_STREAM_DONE), GPUMEM_OK);
	/* Disconnecting needs no daemon. */
	gpumem_disconnect(session);
	session = NULL;
}
END_TEST

START_TEST(an_absence_is_told_with_a_whole_remedy_also_for_the_longest_path)
{
	char path[GM_BOUND_SOCKET_PATH_BYTES + 1];
	gpumem_connect_options options = usual_options();
	gpumem_buffer *buffer;

	gm_scratch_folder(path, sizeof(path));
	size_t n = strlen(path);
	memset(path + n, 'x', sizeof(path) - 1 - n);
	path[n] = '/';
	path[sizeof(path) - 1] = '\0';
	ck_assert_int_eq(symlink(fake_path(fake), path), 0);
	gpumem_disconnect(session);
	options.socket = path;
	options.away_ms = 200; /* it tries again meanwhile */
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_OK);

	fake_away(fake);
	ck_assert_int_eq(
		gpumem_buffer_create(session, 0, MIB, NULL, &buffer), GPUMEM_E_DISCONNECTED);
	says("no daemon listens there, because ");
	const char *text = gpumem_error_detail();
	ck_assert_msg(!strcmp(text + strlen(text) - 3, "xx'"), "%s", text);
}
END_TEST

START_TEST(a_session_is_taken_up_again_with_all_it_holds)
{
	listen_to(session);
	gpumem_buffer *kept = make_buffer(LARGE), *given = make_buffer(2 * MIB), *fresh;
	memset(gpumem_buffer_ptr(kept), 3, LARGE);
	fake_away(fake);
	wait_event(GPUMEM_EVENT_LOST, 1);
	/* Given back while nobody listens; and the daemon has one that nobody here knows. */
	gpumem_buffer_destroy(given);
	fake_wait_leases(fake, 2);
	fake_add_lease(fake, 2 * MIB);
	fake_back(fake);
	gpumem_event event = wait_event(GPUMEM_EVENT_RESTORED, 1);
	ck_assert_int_eq(event.kind, GPUMEM_EVENT_RESTORED);
	fake_wait_leases(fake, 1);
	ck_assert_int_eq(((char *)gpumem_buffer_ptr(kept))[0], 3);
	ck_assert_int_eq(gpumem_buffer_create(session, 0, MIB, NULL, &fresh), GPUMEM_OK);
	/* The new pages go on where the old ones ended. */
	struct gm_page_row row;
	fake_read_row(fake, 0, &row);
	ck_assert_uint_eq(row.bytes, LARGE);
	fake_pressure(fake, 0, 750000, 3);
	double pressure;
	ck_assert_int_eq(gpumem_pressure(session, 0, &pressure, NULL), GPUMEM_OK);
	ck_assert_double_eq(pressure, 0.75);
	/* And so do events. */
	fake_send_pressure(fake, 1, 500000, 1);
	wait_event(GPUMEM_EVENT_PRESSURE, 1);
	gpumem_token token;
	ck_assert_int_eq(gpumem_share(kept, NULL, &token), GPUMEM_OK);
	gpumem_buffer_destroy(fresh);
	gpumem_buffer_destroy(kept);
	fake_wait_leases(fake, 0);
}
END_TEST

START_TEST(a_grant_whose_answer_was_lost_goes_back_at_the_resume)
{
	void *first, *second;
	gpumem_buffer *buffer;
	connect_again(0);
	listen_to(session);
	ck_assert_int_eq(gpumem_alloc(session, 0, 3 * MIB, NULL, NULL, &first), GPUMEM_OK);
	unsigned chunks = fake_chunks(fake);
	struct fake_will will = {.drop = GM__WIRE__PACKET__BODY_GROW};
	fake_will(fake, &will);
	ck_assert_int_eq(
		gpumem_alloc(session, 0, 64 * MIB, NULL, NULL, &second), GPUMEM_E_DISCONNECTED);
	ck_assert_uint_gt(fake_chunks(fake), chunks);
	wait_event(GPUMEM_EVENT_RESTORED, 1);
	ck_assert_uint_eq(fake_chunks(fake), chunks);
	will = (struct fake_will){.drop = GM__WIRE__PACKET__BODY_LEASE};
	fake_will(fake, &will);
	ck_assert_int_eq(
		gpumem_buffer_create(session, 0, 8 * MIB, NULL, &buffer), GPUMEM_E_DISCONNECTED);
	wait_event(GPUMEM_EVENT_RESTORED, 2);
	fake_wait_leases(fake, 1);
	ck_assert_uint_eq(fake_chunks(fake), chunks);
	memset(first, 1, 3 * MIB);
	ck_assert_int_eq(gpumem_free(session, first, GPUMEM_STREAM_DONE), GPUMEM_OK);
}
END_TEST

START_TEST(a_daemon_that_forgot_the_session_gives_a_new_one)
{
	listen_to(session);
	void *ptr, *more;
	gpumem_buffer *old = make_buffer(4 * MIB);
	memset(gpumem_buffer_ptr(old), 3, 4 * MIB);
	ck_assert_int_eq(gpumem_alloc(session, 0, 3 * MIB, NULL, NULL, &ptr), GPUMEM_OK);
	fake_away(fake);
	wait_event(GPUMEM_EVENT_LOST, 1);
	struct fake_will will = {.forget = true};
	fake_will(fake, &will);
	fake_back(fake);
	wait_event(GPUMEM_EVENT_RESTORED, 1);
	ck_assert_ptr_nonnull(strstr(heard.text, "restarted"));
	fake_will(fake, &(struct fake_will){0});
	fake_wait_leases(fake, 0);
	/* What was held works on, but the daemon knows nothing of it. */
	memset(ptr, 4, 3 * MIB);
	ck_assert_int_eq(((char *)gpumem_buffer_ptr(old))[4 * MIB - 1], 3);
	gpumem_token token;
	ck_assert_int_eq(gpumem_share(old, NULL, &token), GPUMEM_E_DISCONNECTED);
	says("restarted");
	ck_assert_int_eq(gpumem_alloc(session, 0, 64 * MIB, NULL, NULL, &more), GPUMEM_OK);
	gpumem_buffer *fresh = make_buffer(2 * MIB);
	fake_wait_leases(fake, 2);
	unsigned returns = fake_seen(fake, GM__WIRE__PACKET__BODY_RETURN_CHUNKS);
	gpumem_buffer_destroy(old);
	ck_assert_uint_eq(fake_seen(fake, GM__WIRE__PACKET__BODY_RETURN_CHUNKS), returns);
	gpumem_buffer_destroy(fresh);
	fake_wait_leases(fake, 1);
	ck_assert_int_eq(gpumem_free(session, ptr, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_int_eq(gpumem_free(session, more, GPUMEM_STREAM_DONE), GPUMEM_OK);
	uint64_t bytes = 0;
	ck_assert_int_eq(gpumem_trim(session, &bytes), GPUMEM_OK);
	ck_assert_uint_ge(bytes, 67 * MIB);
	ck_assert_uint_eq(fake_chunks(fake), 0);
}
END_TEST

/* So many connections fail that would not, as on a socket whose mode the daemon has not set yet. */
static _Atomic unsigned denials;

int connect(int fd, const struct sockaddr *address, socklen_t n)
{
	int r = (int)syscall(SYS_connect, fd, address, n);
	if (r == 0 && denials > 0) {
		denials--;
		errno = EACCES;
		return -1;
	}
	return r;
}

/* The daemon is back, but the first try to reach it fails. */
static void require_the_same_session(const struct fake_will *will)
{
	gpumem_buffer *kept = make_buffer(4 * MIB);
	gpumem_token token;
	listen_to(session);
	fake_away(fake);
	wait_event(GPUMEM_EVENT_LOST, 1);
	fake_will(fake, will);
	fake_back(fake);
	wait_event(GPUMEM_EVENT_RESTORED, 1);
	ck_assert_int_eq(gpumem_share(kept, NULL, &token), GPUMEM_OK);
	ck_assert_uint_eq(fake_leases(fake), 1);
	gpumem_buffer_destroy(kept);
}

START_TEST(a_socket_that_cannot_be_opened_yet_does_not_cost_the_session)
{
	denials = 1;
	require_the_same_session(&(struct fake_will){0});
	ck_assert_uint_eq(denials, 0);
}
END_TEST

START_TEST(a_connection_that_is_refused_before_its_hello_does_not_cost_the_session)
{
	require_the_same_session(&(struct fake_will){.turn_away = 1});
}
END_TEST

static _Atomic bool over;

static void *stubborn(void *ctx)
{
	while (!over) {
		gpumem_buffer *buffer;
		gpumem_status status = gpumem_buffer_create(session, 0, 3 * MIB, NULL, &buffer);
		if (status == GPUMEM_OK) {
			memset(gpumem_buffer_ptr(buffer), 1, 3 * MIB);
			gpumem_buffer_destroy(buffer);
		} else if (status != GPUMEM_E_DISCONNECTED) {
			return (void *)1;
		}
	}
	return NULL;
}

START_TEST(nothing_is_lost_when_the_connection_breaks_again_and_again)
{
	enum { N = 4 };
	pthread_t threads[N];
	connect_again(0);
	listen_to(session);
	for (unsigned i = 0; i < N; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, stubborn, NULL), 0);
	for (unsigned i = 1; i <= 5; i++) {
		fake_wait_seen(fake, GM__WIRE__PACKET__BODY_LEASE,
			fake_seen(fake, GM__WIRE__PACKET__BODY_LEASE) + 20);
		fake_hang_up(fake);
		wait_event(GPUMEM_EVENT_RESTORED, i);
	}
	over = true;
	for (unsigned i = 0; i < N; i++) {
		void *bad;
		ck_assert_int_eq(pthread_join(threads[i], &bad), 0);
		ck_assert_ptr_null(bad);
	}
	fake_wait_leases(fake, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client resume");
	TCase *tc = tcase_create("the daemon goes and comes");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, what_is_held_works_on_while_the_daemon_is_away);
	tcase_add_test(tc, an_absence_is_told_with_a_whole_remedy_also_for_the_longest_path);
	tcase_add_test(tc, a_session_is_taken_up_again_with_all_it_holds);
	tcase_add_test(tc, a_grant_whose_answer_was_lost_goes_back_at_the_resume);
	tcase_add_test(tc, a_daemon_that_forgot_the_session_gives_a_new_one);
	tcase_add_test(tc, a_socket_that_cannot_be_opened_yet_does_not_cost_the_session);
	tcase_add_test(tc, a_connection_that_is_refused_before_its_hello_does_not_cost_the_session);
	tcase_add_test(tc, nothing_is_lost_when_the_connection_breaks_again_and_again);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
