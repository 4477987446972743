/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers that come too late, and handles that are lost on the way: nothing of them is kept.
 */
#include <limits.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/wire/wire.h"
#include "tests/tap.h"
#include "tests/unit/open_fds.h"
#include "tests/unit/session/session_fixture.h"

START_TEST(a_lease_that_comes_too_late_goes_back_by_itself)
{
	gpumem_session *hasty;
	gpumem_buffer *buffer;
	ck_assert_int_eq(try_connect(50, &hasty), GPUMEM_OK);
	unsigned before = open_fds();
	struct fake_will will = {.hold = GM__WIRE__PACKET__BODY_LEASE};
	fake_will(fake, &will);
	ck_assert_int_eq(gpumem_buffer_create(hasty, 0, 6 * MIB, NULL, &buffer), GPUMEM_E_TIMEOUT);
	says("within 50ms");
	fake_wait_leases(fake, 0);
	/* The daemon gets round to it: it grants, in two packets, and has it back. */
	will = (struct fake_will){.per_packet = 1};
	fake_will(fake, &will);
	fake_wait_seen(fake, GM__WIRE__PACKET__BODY_RETURN_CHUNKS, 1);
	fake_wait_leases(fake, 0);
	ck_assert_uint_eq(open_fds(), before);
	gpumem_disconnect(hasty);
}
END_TEST

START_TEST(chunks_that_come_too_late_for_the_heap_go_back_by_themselves)
{
	gpumem_session *hasty;
	void *first, *second;
	ck_assert_int_eq(try_connect(50, &hasty), GPUMEM_OK);
	ck_assert_int_eq(gpumem_alloc(hasty, 0, 3 * MIB, NULL, NULL, &first), GPUMEM_OK);
	unsigned chunks = fake_chunks(fake);
	struct fake_will will = {.hold = GM__WIRE__PACKET__BODY_GROW};
	fake_will(fake, &will);
	ck_assert_int_eq(gpumem_alloc(hasty, 0, 64 * MIB, NULL, NULL, &second), GPUMEM_E_TIMEOUT);
	fake_will(fake, &(struct fake_will){0});
	fake_wait_seen(fake, GM__WIRE__PACKET__BODY_RETURN_CHUNKS, 1);
	/* The return was answered when the next request is. */
	ck_assert_int_eq(gpumem_free(hasty, first, GPUMEM_STREAM_DONE), GPUMEM_OK);
	while (fake_chunks(fake) > chunks) {
		gpumem_buffer *buffer;
		ck_assert_int_eq(gpumem_buffer_create(hasty, 0, MIB, NULL, &buffer), GPUMEM_OK);
		gpumem_buffer_destroy(buffer);
	}
	gpumem_disconnect(hasty);
}
END_TEST

START_TEST(handles_lost_on_the_way_are_asked_for_again)
{
	unsigned before = open_fds();
	struct fake_will will = {.cut = 2, .per_packet = 2};
	fake_will(fake, &will);
	gpumem_buffer *buffer = make_buffer(14 * MIB);
	ck_assert_uint_ge(fake_seen(fake, GM__WIRE__PACKET__BODY_GET_HANDLES), 1);
	memset(gpumem_buffer_ptr(buffer), 7, 14 * MIB);
	gpumem_buffer_destroy(buffer);
	fake_wait_leases(fake, 0);
	ck_assert_uint_eq(open_fds(), before);
}
END_TEST

/* One more file may be opened: the daemon's thread needs it for the chunk, and then the handle of
 * that finds no number here. */
START_TEST(a_process_that_stays_at_its_limit_of_files_is_told_so)
{
	struct rlimit old, tight;
	int last = dup(0);
	/* poll(), too, takes no more than the limit. */
	while (last < 256) {
		ck_assert_int_ge(last, 0);
		last = dup(0);
	}
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	tight = old;
	tight.rlim_cur = (rlim_t)last + 2;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &tight), 0);
	gpumem_buffer *buffer = NULL;
	gpumem_status status = gpumem_buffer_create(session, 0, 2 * MIB, NULL, &buffer);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
	ck_assert_int_eq(status, GPUMEM_E_SYSTEM);
	says("open files");
	says("ulimit -n");
	ck_assert_ptr_null(buffer);
	ck_assert_uint_ge(fake_seen(fake, GM__WIRE__PACKET__BODY_GET_HANDLES), 1);
	fake_wait_leases(fake, 0);
	gpumem_buffer_destroy(make_buffer(2 * MIB));
}
END_TEST

START_TEST(handles_that_never_come_are_not_put_down_to_the_limit_of_files)
{
	struct fake_will will = {.cut = UINT_MAX};
	fake_will(fake, &will);
	gpumem_buffer *buffer = NULL;
	ck_assert_int_eq(
		gpumem_buffer_create(session, 0, 2 * MIB, NULL, &buffer), GPUMEM_E_PROTOCOL);
	says("did not send the handles");
	ck_assert_ptr_null(strstr(gpumem_error_detail(), "ulimit"));
	ck_assert_ptr_null(buffer);
	fake_wait_leases(fake, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client late");
	TCase *tc = tcase_create("late and lost answers");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, a_lease_that_comes_too_late_goes_back_by_itself);
	tcase_add_test(tc, chunks_that_come_too_late_for_the_heap_go_back_by_themselves);
	tcase_add_test(tc, handles_lost_on_the_way_are_asked_for_again);
	tcase_add_test(tc, a_process_that_stays_at_its_limit_of_files_is_told_so);
	tcase_add_test(tc, handles_that_never_come_are_not_put_down_to_the_limit_of_files);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
