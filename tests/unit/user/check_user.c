/* SPDX-License-Identifier: Apache-2.0 */
/* What is counted for each user, and the rule by which each gets a share. */
#include "daemon/user/user.h"

#include <string.h>

#include "common/limits.h"
#include "tests/tap.h"
#include "tests/unit/failing_malloc.h"

enum { USERS = 12 };

static struct gm_user_table table;
static struct gm_user *users[USERS];

static void set_up(void)
{
	gm_user_table_init(&table);
	for (uid_t u = 0; u < USERS; u++) {
		users[u] = gm_user_get(&table, 1000 + u);
		ck_assert_ptr_nonnull(users[u]);
	}
}

static void tear_down(void)
{
	for (int slot = 0; slot < GM_USER_SLOTS; slot++)
		ck_assert_uint_eq(table.all[slot], 0);
	for (int u = 0; u < USERS; u++)
		gm_user_unref(users[u]);
	gm_user_table_deinit(&table);
}

START_TEST(a_uid_is_one_user_as_long_as_somebody_refers_to_it)
{
	struct gm_user *user = gm_user_get(&table, 1000);
	struct gm_user_charge charge;

	ck_assert_ptr_eq(user, users[0]);
	ck_assert_ptr_eq(gm_user_find(&table, 1000), user);
	gm_user_unref(user);

	user = gm_user_get(&table, 77);
	gm_user_charge_init(&charge, user, GM_USER_NAMES);
	gm_user_unref(user);
	ck_assert_ptr_eq(gm_user_find(&table, 77), user);
	gm_user_charge_deinit(&charge);
	ck_assert_ptr_null(gm_user_find(&table, 77));
}
END_TEST

START_TEST(without_memory_there_is_no_user)
{
	failing_malloc_arm(1);
	ck_assert_ptr_null(gm_user_get(&table, 77));
	ck_assert(failing_malloc_fired());
	ck_assert_ptr_null(gm_user_find(&table, 77));
}
END_TEST

START_TEST(a_charge_gives_back_what_it_took)
{
	struct gm_user_charge a, b, none = {0};

	gm_user_charge_init(&a, users[0], GM_USER_SHARES);
	gm_user_charge_init(&b, users[0], GM_USER_SHARES);
	ck_assert_int_eq(gm_user_charge(&a, 3), 0);
	gm_user_charge_add(&a, 2);
	ck_assert_int_eq(gm_user_charge(&b, 1), 0);
	gm_user_charge_remove(&a, 1);
	ck_assert_uint_eq(a.amount, 4);
	ck_assert_uint_eq(users[0]->has[GM_USER_SHARES], 5);
	ck_assert_uint_eq(table.all[GM_USER_SHARES], 5);

	gm_user_charge_deinit(&a);
	gm_user_charge_deinit(&a);
	gm_user_charge_deinit(&none);
	ck_assert_uint_eq(users[0]->has[GM_USER_SHARES], 1);
	gm_user_charge_deinit(&b);
}
END_TEST

START_TEST(slots_do_not_count_for_one_another)
{
	struct gm_user_charge shares, names;

	gm_user_charge_init(&shares, users[0], GM_USER_SHARES);
	gm_user_charge_init(&names, users[0], GM_USER_NAMES);
	ck_assert_int_eq(gm_user_charge(&shares, GM_LIMIT_SHARES / 2), 0);
	ck_assert_int_eq(gm_user_charge(&shares, 1), GM_USER_E_SHARED);
	ck_assert_int_eq(gm_user_charge(&names, GM_LIMIT_NAMES / 2), 0);
	gm_user_charge_deinit(&shares);
	gm_user_charge_deinit(&names);
}
END_TEST

/* Charges one at a time, as often as that is allowed. Returns how often. */
static uint64_t fill(struct gm_user_charge *charge, struct gm_user *user, enum gm_user_slot slot)
{
	gm_user_charge_init(charge, user, slot);
	while (gm_user_charge(charge, 1) == 0)
		;
	return charge->amount;
}

START_TEST(a_user_gets_as_much_as_it_leaves_to_others)
{
	static const enum gm_user_slot slots[] = {
		GM_USER_SESSIONS, GM_USER_BARE_LEASES, GM_USER_SHARES, GM_USER_NAMES};

	for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
		struct gm_user_charge charges[USERS];
		uint64_t left = table.bounds[slots[i]].all;

		for (int u = 0; u < USERS; u++) {
			ck_assert_uint_eq(fill(&charges[u], users[u], slots[i]), (left + 1) / 2);
			ck_assert_int_eq(gm_user_check(users[u], slots[i], 1), GM_USER_E_SHARED);
			left -= charges[u].amount;
		}
		for (int u = 0; u < USERS; u++)
			gm_user_charge_deinit(&charges[u]);
	}
}
END_TEST

START_TEST(one_user_has_a_bound_of_its_own)
{
	struct gm_user_charge charge, other;

	ck_assert_uint_eq(fill(&charge, users[0], GM_USER_ESTATES), GM_LIMIT_ESTATES_PER_UID);
	ck_assert_int_eq(gm_user_check(users[0], GM_USER_ESTATES, 1), GM_USER_E_OWN);
	ck_assert_int_eq(gm_user_check(users[1], GM_USER_ESTATES, 1), 0);
	gm_user_charge_deinit(&charge);

	gm_user_charge_init(&charge, users[0], GM_USER_METADATA);
	gm_user_charge_init(&other, users[1], GM_USER_METADATA);
	ck_assert_int_eq(gm_user_charge(&charge, GM_LIMIT_METADATA_PER_UID + 1), GM_USER_E_OWN);
	ck_assert_uint_eq(charge.amount, 0);
	ck_assert_int_eq(gm_user_charge(&charge, GM_LIMIT_METADATA_PER_UID), 0);
	ck_assert_int_eq(gm_user_charge(&charge, 1), GM_USER_E_OWN);
	ck_assert_int_eq(gm_user_charge(&other, GM_LIMIT_METADATA_PER_UID), 0);
	gm_user_charge_deinit(&charge);
	gm_user_charge_deinit(&other);
}
END_TEST

START_TEST(what_an_earlier_daemon_allowed_is_counted_past_the_bound)
{
	struct gm_user_charge charge;

	gm_user_charge_init(&charge, users[0], GM_USER_ESTATES);
	gm_user_charge_add(&charge, GM_LIMIT_ESTATES + 1);
	ck_assert_int_eq(gm_user_check(users[0], GM_USER_ESTATES, 1), GM_USER_E_OWN);
	ck_assert_int_eq(gm_user_check(users[1], GM_USER_ESTATES, 1), GM_USER_E_SHARED);
	ck_assert_int_eq(gm_user_check(users[1], GM_USER_ESTATES, 0), 0);
	gm_user_charge_deinit(&charge);
	ck_assert_int_eq(gm_user_check(users[1], GM_USER_ESTATES, 1), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("user");
	TCase *tc = tcase_create("user");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, a_uid_is_one_user_as_long_as_somebody_refers_to_it);
	tcase_add_test(tc, without_memory_there_is_no_user);
	tcase_add_test(tc, a_charge_gives_back_what_it_took);
	tcase_add_test(tc, slots_do_not_count_for_one_another);
	tcase_add_test(tc, a_user_gets_as_much_as_it_leaves_to_others);
	tcase_add_test(tc, one_user_has_a_bound_of_its_own);
	tcase_add_test(tc, what_an_earlier_daemon_allowed_is_counted_past_the_bound);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
