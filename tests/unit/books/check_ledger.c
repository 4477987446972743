/* SPDX-License-Identifier: Apache-2.0 */
/* Every way between the columns of daemon/books/ledger.c, and what it must refuse to do. */
#include <signal.h>
#include <string.h>

#include "daemon/books/ledger.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"

static struct gm_ledger l;
static struct gm_account a, b;

static void setup(void)
{
	gm_ledger_init(&l, 100);
	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
}

static void columns(uint64_t admitted, uint64_t leased, uint64_t quarantined, uint64_t pooled,
	uint64_t unclaimed, uint64_t doomed)
{
	ck_assert_uint_eq(l.admitted, admitted);
	ck_assert_uint_eq(l.leased, leased);
	ck_assert_uint_eq(l.quarantined, quarantined);
	ck_assert_uint_eq(l.pooled, pooled);
	ck_assert_uint_eq(l.unclaimed, unclaimed);
	ck_assert_uint_eq(l.doomed, doomed);
	ck_assert_uint_eq(gm_ledger_created(&l), leased + quarantined + pooled);
	ck_assert_uint_eq(gm_ledger_charged(&l), admitted + leased + quarantined);
	ck_assert_uint_eq(a.held + b.held, gm_ledger_charged(&l));
}

START_TEST(a_chunk_goes_from_admission_to_destruction)
{
	ck_assert_int_eq(gm_ledger_admit(&l, &a, 100, 8), 0);
	columns(8, 0, 0, 0, 0, 0);
	gm_ledger_lease_created(&l, &a, 8);
	columns(0, 8, 0, 0, 0, 0);
	gm_ledger_pool_leased(&l, &a, 8);
	columns(0, 0, 0, 8, 0, 0);
	ck_assert_int_eq(gm_ledger_admit(&l, &b, 100, 8), 0);
	gm_ledger_lease_pooled(&l, &b, 8);
	columns(0, 8, 0, 0, 0, 0);
	gm_ledger_doom_leased(&l, &b, 8);
	columns(0, 0, 0, 0, 0, 8);
	gm_ledger_destroyed(&l, 8);
	columns(0, 0, 0, 0, 0, 0);
	gm_ledger_deinit(&l);
	ck_assert_uint_eq(l.peak_charged, 8);
}
END_TEST

START_TEST(nothing_is_admitted_past_the_ceiling)
{
	ck_assert_int_eq(gm_ledger_admit(&l, &a, 50, 51), GM_LEDGER_E_NO_ROOM);
	ck_assert_int_eq(gm_ledger_admit(&l, &a, 50, 50), 0);
	ck_assert_int_eq(gm_ledger_admit(&l, &b, 50, 1), GM_LEDGER_E_NO_ROOM);
	ck_assert_int_eq(gm_ledger_admit(&l, &b, 10, 1), GM_LEDGER_E_NO_ROOM);
	ck_assert_int_eq(gm_ledger_admit(&l, &b, 50, UINT64_MAX), GM_LEDGER_E_NO_ROOM);
	columns(50, 0, 0, 0, 0, 0);
	ck_assert_uint_eq(b.held, 0);
	gm_ledger_unadmit(&l, &a, 50);
	columns(0, 0, 0, 0, 0, 0);
}
END_TEST

START_TEST(a_creation_that_lost_its_request_is_unclaimed)
{
	ck_assert_int_eq(gm_ledger_admit(&l, &a, 100, 6), 0);
	gm_ledger_disown(&l, &a, 6);
	columns(0, 0, 0, 0, 6, 0);
	gm_ledger_pool_unclaimed(&l, 2);
	gm_ledger_doom_unclaimed(&l, 2);
	gm_ledger_fail_unclaimed(&l, 2);
	columns(0, 0, 0, 2, 0, 2);
	gm_ledger_doom_pooled(&l, 2);
	columns(0, 0, 0, 0, 0, 4);
}
END_TEST

START_TEST(charges_follow_quarantine_and_move_between_accounts)
{
	ck_assert_int_eq(gm_ledger_admit(&l, &a, 100, 10), 0);
	gm_ledger_lease_created(&l, &a, 10);
	gm_ledger_quarantine(&l, &a);
	columns(0, 0, 10, 0, 0, 0);
	gm_ledger_move(&l, &a, &b, 4);
	columns(0, 4, 6, 0, 0, 0);
	gm_ledger_quarantine(&l, &b);
	columns(0, 0, 10, 0, 0, 0);
	gm_ledger_resume(&l, &a);
	columns(0, 6, 4, 0, 0, 0);
	gm_ledger_move(&l, &a, &b, 6);
	columns(0, 0, 10, 0, 0, 0);
	gm_ledger_doom_leased(&l, &b, 4);
	gm_ledger_pool_leased(&l, &b, 6);
	columns(0, 0, 0, 6, 0, 4);
}
END_TEST

START_TEST(foreign_is_what_is_neither_free_nor_ours)
{
	ck_assert(!l.measured);
	ck_assert_uint_eq(gm_ledger_free(&l), 100);
	ck_assert_int_eq(gm_ledger_admit(&l, &a, 100, 30), 0);
	/* Admitted is not made yet: all of what is used is foreign. */
	ck_assert(gm_ledger_sample(&l, 95));
	ck_assert(l.measured);
	ck_assert_uint_eq(l.foreign, 5);
	ck_assert_uint_eq(gm_ledger_free(&l), 95);
	gm_ledger_lease_created(&l, &a, 30);
	ck_assert(!gm_ledger_sample(&l, 65));
	/* What waits for destruction is still ours. */
	gm_ledger_doom_leased(&l, &a, 30);
	ck_assert(!gm_ledger_sample(&l, 65));
	ck_assert_uint_eq(gm_ledger_free(&l), 65);
	/* Destroyed, but somebody maps it still: foreign. */
	gm_ledger_destroyed(&l, 30);
	ck_assert(gm_ledger_sample(&l, 65));
	ck_assert_uint_eq(l.foreign, 35);
	/* More free than there is, or less than is ours. */
	ck_assert(gm_ledger_sample(&l, UINT64_MAX));
	ck_assert_uint_eq(l.foreign, 0);
}
END_TEST

START_TEST(an_account_cannot_give_what_it_does_not_have)
{
	ck_assert_int_eq(gm_ledger_admit(&l, &a, 100, 8), 0);
	gm_ledger_lease_created(&l, &a, 8);
	gm_ledger_pool_leased(&l, &b, 8);
}
END_TEST

START_TEST(what_is_not_created_cannot_be_pooled)
{
	ck_assert_int_eq(gm_ledger_admit(&l, &a, 100, 8), 0);
	gm_ledger_pool_leased(&l, &a, 8);
}
END_TEST

START_TEST(a_ledger_does_not_end_with_something_in_it)
{
	gm_ledger_begin_unclaimed(&l, 1);
	gm_ledger_deinit(&l);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ledger");
	TCase *tcase = tcase_create("ledger");
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, a_chunk_goes_from_admission_to_destruction);
	tcase_add_test(tcase, nothing_is_admitted_past_the_ceiling);
	tcase_add_test(tcase, a_creation_that_lost_its_request_is_unclaimed);
	tcase_add_test(tcase, charges_follow_quarantine_and_move_between_accounts);
	tcase_add_test(tcase, foreign_is_what_is_neither_free_nor_ours);
	tcase_add_test_raise_signal(tcase, an_account_cannot_give_what_it_does_not_have, SIGABRT);
	tcase_add_test_raise_signal(tcase, what_is_not_created_cannot_be_pooled, SIGABRT);
	tcase_add_test_raise_signal(tcase, a_ledger_does_not_end_with_something_in_it, SIGABRT);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
