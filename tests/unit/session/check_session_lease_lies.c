/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon that grants what cannot be: the call says so, nothing of it is used, and the session
 * goes on.
 */
#include <string.h>

#include "common/wire.h"
#include "tests/tap.h"
#include "tests/unit/open_fds.h"
#include "tests/unit/session/session_fixture.h"

static void tell(bool twice)
{
	/* In one packet, or in several. */
	struct fake_will will = {.twice = twice, .per_packet = twice ? 2 : 0};
	fake_will(fake, &will);
}

START_TEST(a_chunk_granted_twice_makes_no_buffer)
{
	size_t size = (_i ? 14 : 2) * MIB;
	unsigned before = open_fds();
	gpumem_buffer *buffer = NULL;
	tell(true);
	ck_assert_int_eq(gpumem_buffer_create(session, 0, size, NULL, &buffer), GPUMEM_E_PROTOCOL);
	says("one chunk twice");
	ck_assert_ptr_null(buffer);
	fake_wait_leases(fake, 0);
	tell(false);
	buffer = make_buffer(size);
	memset(gpumem_buffer_ptr(buffer), 5, size);
	gpumem_buffer_destroy(buffer);
	fake_wait_leases(fake, 0);
	ck_assert_uint_eq(open_fds(), before);
}
END_TEST

START_TEST(a_chunk_granted_twice_is_not_opened)
{
	gpumem_buffer *made = make_buffer(14 * MIB), *opened = NULL;
	gpumem_token token;
	ck_assert_int_eq(gpumem_share(made, NULL, &token), GPUMEM_OK);
	tell(true);
	ck_assert_int_eq(gpumem_open(session, &token, &opened), GPUMEM_E_PROTOCOL);
	says("one chunk twice");
	ck_assert_ptr_null(opened);
	tell(false);
	ck_assert_int_eq(gpumem_open(session, &token, &opened), GPUMEM_OK);
	gpumem_buffer_destroy(opened);
	gpumem_buffer_destroy(made);
	fake_wait_leases(fake, 0);
}
END_TEST

static void *allocate(size_t size)
{
	void *ptr = NULL;
	gpumem_status status = gpumem_alloc(session, 0, size, NULL, NULL, &ptr);
	if (status)
		ck_abort_msg("%s", gpumem_error_detail());
	memset(ptr, 6, size);
	return ptr;
}

static void refused(size_t size)
{
	void *ptr = NULL;
	tell(true);
	ck_assert_int_eq(gpumem_alloc(session, 0, size, NULL, NULL, &ptr), GPUMEM_E_PROTOCOL);
	says("one chunk twice");
	ck_assert_ptr_null(ptr);
	tell(false);
}

START_TEST(a_chunk_granted_twice_is_no_part_of_a_heap)
{
	/* As the first of it, and when it grows. */
	refused(6 * MIB);
	void *first = allocate(6 * MIB);
	refused(64 * MIB);
	void *second = allocate(64 * MIB);
	ck_assert_int_eq(gpumem_free(session, second, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_int_eq(gpumem_free(session, first, GPUMEM_STREAM_DONE), GPUMEM_OK);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client lies");
	TCase *tc = tcase_create("grants that cannot be");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_loop_test(tc, a_chunk_granted_twice_makes_no_buffer, 0, 2);
	tcase_add_test(tc, a_chunk_granted_twice_is_not_opened);
	tcase_add_test(tc, a_chunk_granted_twice_is_no_part_of_a_heap);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
