/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/reclaim/reclaim_overdue.c, through the core: a user whose client did not return what it had promised is not
 * believed, whichever of its clients says something, and however often it connects. */
#include "daemon/reclaim/reclaim_overdue.h"
#include "daemon/reclaim/reclaim_plan.h"
#include "daemon/lease/session_private.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"
#include "tests/unit/reclaim/reclaim_fixture.h"

/* A client of the liar's user, which is asked first and says that it can move all it holds. */
static struct gm_session *add_liar(void)
{
	struct gm_session *liar = fake_session(&fake, 9, 9);

	give(9, GM_LIMIT_PRIORITY, 0, -1);
	fake_lease(&fake, liar, d, 20 * GiB);
	fake_says(&fake, liar, d, 0, 20 * GiB);
	return liar;
}

/* The honest client c can move 40 GiB. The liar lets a deadline pass. */
static struct gm_session *add_known_liar(void)
{
	no_levels();
	struct gm_session *liar = add_liar();
	fake_lease(&fake, a, d, 40 * GiB);
	struct gm_lease *lease = fake_lease(&fake, c, d, 40 * GiB);
	fake_says(&fake, c, d, 0, 40 * GiB);
	static struct fake_request q;
	asks();
	fake_wait(&fake, &q, b, d, 8 * GiB, 100 * SECOND);
	ck_assert_uint_eq(fake_asked(&fake, liar)->spill, 8 * GiB);
	ck_assert_ptr_null(fake_asked(&fake, c));
	fake_pass(&fake, 2200 * MS);
	ck_assert_uint_eq(fake_asked(&fake, c)->spill, 8 * GiB);
	give_back(c, lease, 8 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	fake_pass(&fake, 5 * SECOND);
	return liar;
}

/* Whether a request for 4 GiB asks the honest client beside the liar's. */
static bool is_overdue(struct gm_session *liar)
{
	static struct fake_request q;
	fake_says(&fake, c, d, 0, 30 * GiB);
	asks();
	fake_ask(&fake, &q, b, d, 4 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_ptr_nonnull(fake_asked(&fake, liar));
	return fake_asked(&fake, c) != NULL;
}

START_TEST(a_liar_that_connects_again_is_overdue_at_once)
{
	gm_session_end_died(add_known_liar());
	fake_core_run(&fake);
	ck_assert(is_overdue(add_liar()));
}
END_TEST

START_TEST(after_ten_minutes_it_is_believed_again)
{
	gm_session_end_died(add_known_liar());
	fake_core_run(&fake);
	fake_pass(&fake, 601 * SECOND);
	ck_assert(!is_overdue(add_liar()));
}
END_TEST

START_TEST(a_user_whose_other_client_returns_what_a_liar_owed_is_believed_again)
{
	gm_session_end_died(add_known_liar());
	fake_core_run(&fake);
	struct gm_session *honest = add_liar();
	ck_assert(is_overdue(honest));
	/* The liar had promised 8 GiB, of which half must come. */
	give_back(honest, honest->refs->lease, 4 * GiB);
	fake_core_run(&fake);
	fake_pass(&fake, 5 * SECOND);
	fake_says(&fake, honest, d, 0, 10 * GiB);
	ck_assert(!is_overdue(honest));
}
END_TEST

START_TEST(no_client_of_an_overdue_user_is_counted_on)
{
	struct gm_session *liar = add_known_liar();
	struct gm_device *device = &fake.core->devices[d];
	give_back(liar, liar->refs->lease, 10 * GiB);
	fake_core_run(&fake);
	uint64_t before = gm_reclaim_claimed(device, &b->payer, false);
	struct gm_session *twin = fake_session(&fake, 9, 9);
	fake_lease(&fake, twin, d, 10 * GiB);
	fake_says(&fake, twin, d, 10 * GiB, 0);
	ck_assert_uint_eq(gm_reclaim_claimed(device, &b->payer, false), before);
}
END_TEST

/* There is a place for each of so many users. The first entry to end makes room for one more. */
START_TEST(the_table_of_overdue_users_has_an_end)
{
	struct gm_device *device = &fake.core->devices[d];
	struct gm_account_payer payer = {0};
	struct gm_account account = {
		.payer = &payer, .asked = {.quiet.failures = 1, .broken = GiB}};
	enum { FIRST = 5000 };

	for (uid_t uid = FIRST; uid <= FIRST + GM_RECLAIM_OVERDUE; uid++) {
		payer.user = gm_user_get(fake.core->env.users, uid);
		gm_reclaim_overdue_remember(device, &account);
		gm_user_unref(payer.user);
		fake_pass(&fake, MS);
	}
	/* The first user is gone with its entry. All others are kept, and overdue. */
	ck_assert_ptr_null(gm_user_find(fake.core->env.users, FIRST));
	uint64_t look = gm_reclaim_overdue_look(device);
	for (uid_t uid = FIRST + 1; uid <= FIRST + GM_RECLAIM_OVERDUE; uid++) {
		payer.user = gm_user_find(fake.core->env.users, uid);
		ck_assert_ptr_nonnull(payer.user);
		ck_assert(gm_reclaim_overdue_is_of(&payer, look));
	}
	ck_assert(!gm_reclaim_overdue_is_of(&b->payer, look));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("overdue");
	TCase *tcase = tcase_create("overdue");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_liar_that_connects_again_is_overdue_at_once);
	tcase_add_test(tcase, after_ten_minutes_it_is_believed_again);
	tcase_add_test(tcase, a_user_whose_other_client_returns_what_a_liar_owed_is_believed_again);
	tcase_add_test(tcase, no_client_of_an_overdue_user_is_counted_on);
	tcase_add_test(tcase, the_table_of_overdue_users_has_an_end);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
