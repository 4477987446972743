/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches of a session: one lease of several chunks, and which entry is to blame for a refusal.
 */
#include <string.h>

#include "common/wire/wire.h"
#include "tests/tap.h"
#include "tests/unit/open_fds.h"
#include "tests/unit/session/session_fixture.h"

static const gpumem_batch_entry entries[] = {
	{5 * MIB, 0, "first"}, {4 * MIB, 0, NULL}, {5 * MIB - 5, 0, "last"}};

START_TEST(a_batch_is_one_lease_of_several_chunks)
{
	unsigned before = open_fds();
	struct fake_will will = {.per_packet = 1};
	fake_will(fake, &will);
	gpumem_batch *batch;
	ck_assert_int_eq(gpumem_batch_create(session, 1, entries, 3, NULL, &batch), GPUMEM_OK);
	ck_assert_uint_eq(fake_leases(fake), 1);
	ck_assert_uint_eq(fake_chunks(fake), 3);
	ck_assert_uint_eq(gpumem_batch_device(batch), 1);
	for (size_t i = 0; i < 3; i++)
		memset(gpumem_batch_ptr(batch, i), (int)i, entries[i].bytes);
	ck_assert_uint_eq(open_fds(), before + 3);

	gpumem_stats_t stats = {.size = sizeof(stats)};
	ck_assert_int_eq(gpumem_stats(session, 1, &stats), GPUMEM_OK);
	ck_assert_uint_eq(stats.in_use, 14 * MIB - 5);
	ck_assert_uint_eq(stats.allocated, 14 * MIB);
	ck_assert_uint_eq(stats.slack, 5);
	ck_assert_uint_eq(stats.active_buffers, 3);
	ck_assert_uint_eq(stats.misses, 1);

	gpumem_batch_destroy(batch);
	fake_wait_leases(fake, 0);
	ck_assert_uint_eq(open_fds(), before);
	ck_assert_int_eq(gpumem_stats(session, 1, &stats), GPUMEM_OK);
	ck_assert_uint_eq(stats.in_use + stats.allocated + stats.active_buffers, 0);
	ck_assert_uint_eq(stats.returns, 3);
}
END_TEST

static size_t refused(const char *says)
{
	gpumem_batch *batch = NULL;
	gpumem_batch_options options = GPUMEM_BATCH_OPTIONS_INIT;
	size_t failed = 12345;
	options.ret_failed = &failed;
	ck_assert_int_eq(
		gpumem_batch_create(session, 0, entries, 3, &options, &batch), GPUMEM_E_NO_MEMORY);
	ck_assert_str_eq(gpumem_error_detail(), says);
	ck_assert_ptr_null(batch);
	return failed;
}

START_TEST(the_entry_that_the_daemons_page_has_no_room_for_is_named)
{
	struct fake_will will = {.fail = GM__WIRE__PACKET__BODY_LEASE};
	fake_will(fake, &will);
	ck_assert_uint_eq(refused("entry 0 of the batch (first, 5.0M) does not fit: no room"), 0);
	fake_room(fake, 0, 9 * MIB);
	ck_assert_uint_eq(refused("entry 1 of the batch (4.0M) does not fit: no room"), 1);
	/* In whole chunks. */
	fake_room(fake, 0, 10 * MIB);
	ck_assert_uint_eq(refused("entry 2 of the batch (last, 5.0M) does not fit: no room"), 2);
}
END_TEST

START_TEST(no_entry_is_named_if_all_of_them_would_fit)
{
	struct fake_will will = {.fail = GM__WIRE__PACKET__BODY_LEASE};
	fake_will(fake, &will);
	fake_room(fake, 0, 14 * MIB);
	ck_assert_uint_eq(refused("no room"), GPUMEM_BATCH_NO_ENTRY);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client batches");
	TCase *tc = tcase_create("batches");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, a_batch_is_one_lease_of_several_chunks);
	tcase_add_test(tc, the_entry_that_the_daemons_page_has_no_room_for_is_named);
	tcase_add_test(tc, no_entry_is_named_if_all_of_them_would_fit);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
