/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers of a session: made, refused, ended, and shared with others.
 */
#include <string.h>

#include "common/wire/wire.h"
#include "tests/tap.h"
#include "tests/unit/open_fds.h"
#include "tests/unit/session/session_fixture.h"

START_TEST(a_buffer_is_one_range_of_several_chunks)
{
	unsigned before = open_fds();
	struct fake_will will = {.per_packet = 1};
	fake_will(fake, &will);
	gpumem_buffer *buffer;
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	options.tag = "weights";
	ck_assert_int_eq(
		gpumem_buffer_create(session, 1, 14 * MIB - 5, &options, &buffer), GPUMEM_OK);
	ck_assert_uint_eq(fake_chunks(fake), 3);
	ck_assert_uint_eq(gpumem_buffer_size(buffer), 14 * MIB - 5);
	ck_assert_uint_eq(gpumem_buffer_device(buffer), 1);
	ck_assert_str_eq(gpumem_buffer_tag(buffer), "weights");
	memset(gpumem_buffer_ptr(buffer), 1, 14 * MIB - 5);
	/* Three chunks of the daemon, and no fd left here. */
	ck_assert_uint_eq(open_fds(), before + 3);
	gpumem_stats_t stats = {.size = sizeof(stats)};
	ck_assert_int_eq(gpumem_stats(session, 1, &stats), GPUMEM_OK);
	ck_assert_uint_eq(stats.in_use, 14 * MIB - 5);
	ck_assert_uint_eq(stats.allocated, 14 * MIB);
	ck_assert_uint_eq(stats.active_buffers, 1);
	ck_assert_uint_eq(stats.misses, 1);
	gpumem_buffer_destroy(buffer);
	fake_wait_leases(fake, 0);
	ck_assert_uint_eq(open_fds(), before);
	ck_assert_int_eq(gpumem_stats(session, 1, &stats), GPUMEM_OK);
	ck_assert_uint_eq(stats.in_use, 0);
	ck_assert_uint_eq(stats.allocated, 0);
	ck_assert_uint_eq(stats.peak, 14 * MIB - 5);
	ck_assert_uint_eq(stats.returns, 3);
}
END_TEST

START_TEST(a_refusal_of_the_daemon_is_passed_on)
{
	struct fake_will will = {.fail = GM__WIRE__PACKET__BODY_LEASE};
	fake_will(fake, &will);
	gpumem_buffer *buffer;
	void *ptr;
	ck_assert_int_eq(gpumem_buffer_create(session, 0, MIB, NULL, &buffer), GPUMEM_E_NO_MEMORY);
	ck_assert_str_eq(gpumem_error_detail(), "no room");
	ck_assert_int_eq(gpumem_alloc(session, 0, MIB, NULL, NULL, &ptr), GPUMEM_E_NO_MEMORY);
	ck_assert_str_eq(gpumem_error_detail(), "no room");
}
END_TEST

static void sized_buffer(size_t size)
{
	GPUMEM_AUTO_BUFFER gpumem_buffer *buffer = make_buffer(size);
	ck_assert_uint_eq(gpumem_buffer_size(buffer), size);
	fake_wait_leases(fake, 1);
}

START_TEST(an_auto_buffer_ends_with_its_scope)
{
	sized_buffer(MIB);
	fake_wait_leases(fake, 0);
}
END_TEST

/* ---- sharing */

START_TEST(a_shared_buffer_is_the_same_memory)
{
	gpumem_session *other;
	gpumem_token token, again;
	char text[GPUMEM_TOKEN_TEXT_BYTES];
	gpumem_buffer *mine = make_buffer(6 * MIB), *theirs;
	ck_assert_int_eq(gpumem_buffer_set_tag(mine, "local"), GPUMEM_OK);
	ck_assert_int_eq(gpumem_share(mine, NULL, &token), GPUMEM_OK);
	gpumem_token_to_text(&token, text);
	ck_assert_uint_eq(strlen(text), 32);
	ck_assert_int_eq(gpumem_token_from_text(text, &again), GPUMEM_OK);
	ck_assert_mem_eq(&token, &again, sizeof(token));
	ck_assert_int_eq(try_connect(20000, &other), GPUMEM_OK);
	ck_assert_int_eq(gpumem_open(other, &again, &theirs), GPUMEM_OK);
	ck_assert_uint_eq(gpumem_buffer_size(theirs), 6 * MIB);
	char *a = gpumem_buffer_ptr(mine), *b = gpumem_buffer_ptr(theirs);
	ck_assert_ptr_ne(a, b);
	a[6 * MIB - 1] = 42;
	ck_assert_int_eq(b[6 * MIB - 1], 42);
	ck_assert_int_eq(gpumem_share(theirs, NULL, &token), GPUMEM_E_DENIED);
	ck_assert_int_eq(gpumem_unshare(mine), GPUMEM_OK);
	gpumem_buffer_destroy(mine);
	ck_assert_int_eq(b[6 * MIB - 1], 42);
	gpumem_buffer_destroy(theirs);
	fake_wait_leases(fake, 0);
	gpumem_disconnect(other);
}
END_TEST

START_TEST(tokens_are_32_digits_and_nothing_else)
{
	gpumem_token token;
	ck_assert_int_eq(gpumem_token_from_text("", &token), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_token_from_text("0123456789abcdef0123456789ABCDE", &token),
		GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_token_from_text("0123456789abcdef0123456789ABCDEFF", &token),
		GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_token_from_text("0123456789abcdef0123456789ABCDEg", &token),
		GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_token_from_text(NULL, &token), GPUMEM_E_INVALID);
	ck_assert_int_eq(
		gpumem_token_from_text("0123456789abcdef0123456789ABCDEF", &token), GPUMEM_OK);
	ck_assert_uint_eq(token.bytes[15], 0xef);
	ck_assert_uint_eq(token.bytes[0], 0x01);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client buffers");
	TCase *tc = tcase_create("buffers");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, a_buffer_is_one_range_of_several_chunks);
	tcase_add_test(tc, a_refusal_of_the_daemon_is_passed_on);
	tcase_add_test(tc, an_auto_buffer_ends_with_its_scope);
	tcase_add_test(tc, a_shared_buffer_is_the_same_memory);
	tcase_add_test(tc, tokens_are_32_digits_and_nothing_else);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
