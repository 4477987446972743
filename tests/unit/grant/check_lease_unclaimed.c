/* SPDX-License-Identifier: Apache-2.0 */
/* Requests whose connection ends before their answer: they are repeated, and nothing is granted
 * twice or lost. */
#include <string.h>

#include "client/session/gpumem_session.h"
#include "tests/tap.h"
#include "tests/unit/session/heard.h"
#include "tests/unit/session/session_fixture.h"
#include "tests/unit/session/asker.h"

/* How the daemon fails a request, and whether it knows the repeated one again. */
struct fate {
	bool drop, half, repeats;
};
static const struct fate fates[] = {
	{.drop = false},
	{.drop = true},
	{.drop = true, .repeats = true},
	{.half = true},
	{.half = true, .repeats = true},
};
enum { FATES = sizeof(fates) / sizeof(fates[0]) };

static void will_fail(int body, const struct fate *fate)
{
	fake_will(fake, &(struct fake_will){
				.die = fate->drop || fate->half ? 0 : body,
				.drop = fate->drop ? body : 0,
				.half = fate->half ? body : 0,
				.repeats = fate->repeats,
				.per_packet = 1,
			});
}

/* The most leases that the daemon had at a time, beyond those that are needed. */
static void expect_leases(const struct fate *fate, unsigned n)
{
	fake_wait_leases(fake, n);
	if (fate->repeats)
		ck_assert_uint_eq(fake_most_leases(fake), n);
	ck_assert_uint_eq(fake_repeated(fake), 1);
}

START_TEST(a_lease_is_granted_once)
{
	const struct fate *fate = &fates[_i];
	gpumem_buffer *buffer;
	will_fail(GM__WIRE__PACKET__BODY_LEASE, fate);
	ck_assert_int_eq(gpumem_buffer_create(session, 0, 13 * MIB, NULL, &buffer), GPUMEM_OK);
	memset(gpumem_buffer_ptr(buffer), 1, 13 * MIB);
	expect_leases(fate, 1);
	/* 8 MiB, 4 MiB, 2 MiB. */
	ck_assert_uint_eq(fake_chunks(fake), 3);
	gpumem_buffer_destroy(buffer);
	fake_wait_leases(fake, 0);
}
END_TEST

START_TEST(a_growth_is_granted_once)
{
	const struct fate *fate = &fates[_i];
	void *first, *second, *third;
	ck_assert_int_eq(gpumem_alloc(session, 0, 3 * MIB, NULL, NULL, &first), GPUMEM_OK);
	unsigned chunks = fake_chunks(fake);
	listen_to(session);
	will_fail(GM__WIRE__PACKET__BODY_GROW, fate);
	ck_assert_int_eq(gpumem_alloc(session, 0, 64 * MIB, NULL, NULL, &second), GPUMEM_OK);
	memset(second, 1, 64 * MIB);
	wait_event(GPUMEM_EVENT_RESTORED, 1);
	ck_assert_int_eq(gpumem_alloc(session, 0, 32 * MIB, NULL, NULL, &third), GPUMEM_OK);
	ck_assert_int_eq(gpumem_free(session, third, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_int_eq(gpumem_free(session, second, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_int_eq(gpumem_trim(session, NULL), GPUMEM_OK);
	expect_leases(fate, 1);
	ck_assert_uint_eq(fake_chunks(fake), chunks);
	memset(first, 1, 3 * MIB);
	ck_assert_int_eq(gpumem_free(session, first, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_int_eq(gpumem_trim(session, NULL), GPUMEM_OK);
	ck_assert_uint_eq(fake_chunks(fake), 0);
}
END_TEST

START_TEST(sharing_and_opening_are_repeated)
{
	gpumem_buffer *buffer = make_buffer(2 * MIB), *view;
	gpumem_token token;
	fake_will(fake, &(struct fake_will){.drop = GM__WIRE__PACKET__BODY_SHARE});
	ck_assert_int_eq(gpumem_share(buffer, NULL, &token), GPUMEM_OK);
	fake_will(fake, &(struct fake_will){.die = GM__WIRE__PACKET__BODY_OPEN});
	ck_assert_int_eq(gpumem_open(session, &token, &view), GPUMEM_OK);
	((char *)gpumem_buffer_ptr(buffer))[0] = 7;
	ck_assert_int_eq(((char *)gpumem_buffer_ptr(view))[0], 7);
	gpumem_buffer_destroy(view);
	fake_will(fake, &(struct fake_will){.drop = GM__WIRE__PACKET__BODY_UNSHARE});
	ck_assert_int_eq(gpumem_unshare(buffer), GPUMEM_OK);
	ck_assert_int_eq(gpumem_open(session, &token, &view), GPUMEM_E_NOT_FOUND);
	ck_assert_uint_eq(fake_repeated(fake), 3);
	gpumem_buffer_destroy(buffer);
	fake_wait_leases(fake, 0);
}
END_TEST

START_TEST(handles_are_asked_for_again_on_the_next_connection)
{
	gpumem_buffer *buffer;
	fake_will(fake, &(struct fake_will){.cut = 1, .half = GM__WIRE__PACKET__BODY_GET_HANDLES});
	ck_assert_int_eq(gpumem_buffer_create(session, 0, 13 * MIB, NULL, &buffer), GPUMEM_OK);
	memset(gpumem_buffer_ptr(buffer), 1, 13 * MIB);
	gpumem_buffer_destroy(buffer);
	fake_wait_leases(fake, 0);
}
END_TEST

START_TEST(what_went_back_on_a_lost_connection_is_gone)
{
	gpumem_buffer *buffer = make_buffer(2 * MIB);
	int bodies[] = {GM__WIRE__PACKET__BODY_RETURN_CHUNKS};
	listen_to(session);
	fake_will(fake, _i ? &(struct fake_will){.drop = bodies[0]}
			   : &(struct fake_will){.die = bodies[0]});
	gpumem_buffer_destroy(buffer);
	wait_event(GPUMEM_EVENT_RESTORED, 1);
	fake_wait_leases(fake, 0);
}
END_TEST

/* ---- a daemon that does not know the session any more */

START_TEST(a_daemon_that_forgot_the_session_is_asked_again)
{
	void *old, *ptr;
	gpumem_buffer *buffer;
	ck_assert_int_eq(gpumem_alloc(session, 0, 3 * MIB, NULL, NULL, &old), GPUMEM_OK);
	fake_will(fake, &(struct fake_will){.forget = true, .half = GM__WIRE__PACKET__BODY_LEASE});
	ck_assert_int_eq(gpumem_buffer_create(session, 0, 13 * MIB, NULL, &buffer), GPUMEM_OK);
	fake_wait_leases(fake, 1);
	fake_will(fake, &(struct fake_will){.forget = true, .drop = GM__WIRE__PACKET__BODY_LEASE});
	ck_assert_int_eq(gpumem_alloc(session, 0, 64 * MIB, NULL, NULL, &ptr), GPUMEM_OK);
	fake_will(fake, &(struct fake_will){.forget = true, .half = GM__WIRE__PACKET__BODY_GROW});
	ck_assert_int_eq(gpumem_alloc(session, 0, 128 * MIB, NULL, NULL, &ptr), GPUMEM_OK);
	memset(ptr, 1, 128 * MIB);
	memset(old, 1, 3 * MIB);
	fake_wait_leases(fake, 1);
}
END_TEST

START_TEST(a_buffer_that_the_daemon_forgot_meanwhile_cannot_be_shared)
{
	gpumem_token token;
	gpumem_buffer *buffer = make_buffer(2 * MIB);
	fake_will(fake, &(struct fake_will){.forget = true, .die = GM__WIRE__PACKET__BODY_SHARE});
	ck_assert_int_eq(gpumem_share(buffer, NULL, &token), GPUMEM_E_DISCONNECTED);
	says("restarted");
}
END_TEST

/* ---- while the session is being resumed */

START_TEST(a_daemon_that_dies_while_it_resumes_the_session_is_tried_again)
{
	static const int bodies[] = {GM__WIRE__PACKET__BODY_HELLO,
		GM__WIRE__PACKET__BODY_GET_DEVICES, GM__WIRE__PACKET__BODY_GET_HANDLES};
	gpumem_buffer *kept = make_buffer(13 * MIB), *buffer;
	/* A request whose answer is lost, and then the death. */
	fake_will(fake,
		&(struct fake_will){
			.drop = GM__WIRE__PACKET__BODY_LEASE, .die = bodies[_i], .repeats = true});
	ck_assert_int_eq(gpumem_buffer_create(session, 0, 13 * MIB, NULL, &buffer), GPUMEM_OK);
	memset(gpumem_buffer_ptr(buffer), 1, 13 * MIB);
	fake_wait_leases(fake, 2);
	ck_assert_uint_eq(fake_most_leases(fake), 2);
	gpumem_buffer_destroy(buffer);
	gpumem_buffer_destroy(kept);
	fake_wait_leases(fake, 0);
}
END_TEST

/* ---- many */

static _Atomic bool over;

static void *persistent(void *ctx)
{
	while (!over) {
		gpumem_buffer *buffer;
		void *ptr;
		if (gpumem_buffer_create(session, 0, 3 * MIB, NULL, &buffer))
			return strdup(gpumem_error_detail());
		memset(gpumem_buffer_ptr(buffer), 1, 3 * MIB);
		if (gpumem_alloc(session, 0, 5 * MIB, NULL, NULL, &ptr))
			return strdup(gpumem_error_detail());
		memset(ptr, 1, 5 * MIB);
		if (gpumem_free(session, ptr, GPUMEM_STREAM_DONE) || gpumem_trim(session, NULL))
			return strdup(gpumem_error_detail());
		gpumem_buffer_destroy(buffer);
	}
	return NULL;
}

START_TEST(no_call_fails_when_the_connection_breaks_again_and_again)
{
	enum { N = 4 };
	static const int bodies[] = {GM__WIRE__PACKET__BODY_LEASE, GM__WIRE__PACKET__BODY_GROW,
		GM__WIRE__PACKET__BODY_RETURN_CHUNKS};
	pthread_t threads[N];
	listen_to(session);
	for (unsigned i = 0; i < N; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, persistent, NULL), 0);
	for (unsigned i = 1; i <= 15; i++) {
		fake_wait_seen(fake, GM__WIRE__PACKET__BODY_LEASE,
			fake_seen(fake, GM__WIRE__PACKET__BODY_LEASE) + 10);
		struct fake_will will = {.repeats = _i, .per_packet = 1};
		int body = bodies[i % 3];
		if (i % 5 == 0)
			will.drop = body;
		else if (i % 5 == 1)
			will.die = body;
		else if (i % 5 == 2)
			will.half = body;
		fake_will(fake, &will);
		if (i % 5 > 2)
			fake_hang_up(fake);
		wait_event(GPUMEM_EVENT_RESTORED, i);
	}
	over = true;
	for (unsigned i = 0; i < N; i++) {
		void *bad;
		ck_assert_int_eq(pthread_join(threads[i], &bad), 0);
		if (bad)
			ck_abort_msg("%s", (char *)bad);
	}
	ck_assert_int_eq(gpumem_trim(session, NULL), GPUMEM_OK);
	/* That of the heap, which is empty. */
	fake_wait_leases(fake, 1);
	ck_assert_uint_eq(fake_chunks(fake), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("unclaimed");
	TCase *tc = tcase_create("lost answers");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_loop_test(tc, a_lease_is_granted_once, 0, FATES);
	tcase_add_loop_test(tc, a_growth_is_granted_once, 0, FATES);
	tcase_add_test(tc, sharing_and_opening_are_repeated);
	tcase_add_test(tc, handles_are_asked_for_again_on_the_next_connection);
	tcase_add_loop_test(tc, what_went_back_on_a_lost_connection_is_gone, 0, 2);
	tcase_add_test(tc, a_daemon_that_forgot_the_session_is_asked_again);
	tcase_add_test(tc, a_buffer_that_the_daemon_forgot_meanwhile_cannot_be_shared);
	tcase_add_loop_test(
		tc, a_daemon_that_dies_while_it_resumes_the_session_is_tried_again, 0, 3);
	tcase_add_loop_test(tc, no_call_fails_when_the_connection_breaks_again_and_again, 0, 2);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
