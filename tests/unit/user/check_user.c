/* SPDX-License-Identifier: Apache-2.0 */
/* What is counted for each user, and the rule by which each gets a share. */
#include "daemon/user/user.h"

#include <string.h>

#include "common/bounds.h"
#include "tests/bound.h"
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
	ck_assert_int_eq(gm_user_charge(&shares, GM_BOUND_SHARES / 2), 0);
	ck_assert_int_eq(gm_user_charge(&shares, 1), GM_USER_E_SHARED);
	ck_assert_int_eq(gm_user_charge(&names, GM_BOUND_NAMES / 2), 0);
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

	ck_assert_uint_eq(fill(&charge, users[0], GM_USER_ORPHANS), GM_BOUND_ORPHANS_PER_UID);
	ck_assert_int_eq(gm_user_check(users[0], GM_USER_ORPHANS, 1), GM_USER_E_OWN);
	ck_assert_int_eq(gm_user_check(users[1], GM_USER_ORPHANS, 1), 0);
	gm_user_charge_deinit(&charge);

	gm_user_charge_init(&charge, users[0], GM_USER_METADATA);
	gm_user_charge_init(&other, users[1], GM_USER_METADATA);
	ck_assert_int_eq(gm_user_charge(&charge, GM_BOUND_METADATA_PER_UID + 1), GM_USER_E_OWN);
	ck_assert_uint_eq(charge.amount, 0);
	ck_assert_int_eq(gm_user_charge(&charge, GM_BOUND_METADATA_PER_UID), 0);
	ck_assert_int_eq(gm_user_charge(&charge, 1), GM_USER_E_OWN);
	ck_assert_int_eq(gm_user_charge(&other, GM_BOUND_METADATA_PER_UID), 0);
	gm_user_charge_deinit(&charge);
	gm_user_charge_deinit(&other);
}
END_TEST

START_TEST(what_an_earlier_daemon_allowed_is_counted_past_the_bound)
{
	struct gm_user_charge charge;

	gm_user_charge_init(&charge, users[0], GM_USER_ORPHANS);
	gm_user_charge_add(&charge, GM_BOUND_ORPHANS + 1);
	ck_assert_int_eq(gm_user_check(users[0], GM_USER_ORPHANS, 1), GM_USER_E_OWN);
	ck_assert_int_eq(gm_user_check(users[1], GM_USER_ORPHANS, 1), GM_USER_E_SHARED);
	ck_assert_int_eq(gm_user_check(users[1], GM_USER_ORPHANS, 0), 0);
	gm_user_charge_deinit(&charge);
	ck_assert_int_eq(gm_user_check(users[1], GM_USER_ORPHANS, 1), 0);
}
END_TEST

/* ---- answers that are not read */

enum { MIB = 1024 * 1024, UNREAD_MIB = GM_BOUND_UNREAD_BYTES_PER_UID / MIB };

/* Keeps as many MiB for the user as it may. Returns how many. */
static uint64_t keep_unread(struct gm_user_charge *charge, struct gm_user *user)
{
	uint64_t n = 0;

	gm_user_charge_init(charge, user, GM_USER_BYTES_UNREAD);
	while (gm_user_charge(charge, MIB) == 0)
		n++;
	return n;
}

START_TEST(all_clients_of_a_user_keep_so_much)
{
	GM_BOUND_TEST(UNREAD_BYTES_PER_UID);
	struct gm_user_charge charge;

	ck_assert_uint_eq(keep_unread(&charge, users[0]), UNREAD_MIB);
	ck_assert_int_eq(gm_user_charge(&charge, 1), GM_USER_E_OWN);
	ck_assert_int_eq(gm_user_check(users[1], GM_USER_BYTES_UNREAD, 1), 0);
	gm_user_charge_deinit(&charge);
}
END_TEST

START_TEST(all_users_keep_so_much_and_each_a_little)
{
	GM_BOUND_TEST(UNREAD_BYTES);
	enum { FULL = GM_BOUND_UNREAD_BYTES / GM_BOUND_UNREAD_BYTES_PER_UID - 1 };
	_Static_assert(FULL + 5 <= USERS, "there are users left");
	struct gm_user_charge charges[FULL + 5];

	for (size_t u = 0; u < FULL; u++)
		ck_assert_uint_eq(keep_unread(&charges[u], users[u]), UNREAD_MIB);
	/* From here on a user gets half of what is left. */
	for (size_t u = FULL, left = UNREAD_MIB; u < FULL + 4; u++, left /= 2)
		ck_assert_uint_eq(keep_unread(&charges[u], users[u]), left / 2);
	ck_assert_uint_eq(table.all[GM_USER_BYTES_UNREAD], GM_BOUND_UNREAD_BYTES - MIB);

	/* One packet is there for every user, and the sum stays bounded. */
	struct gm_user_charge *late = &charges[FULL + 4];
	gm_user_charge_init(late, users[FULL + 4], GM_USER_BYTES_UNREAD);
	ck_assert_int_eq(gm_user_charge(late, MIB), GM_USER_E_SHARED);
	ck_assert_int_eq(gm_user_charge(late, MIB / 2), 0);
	ck_assert_int_eq(gm_user_charge(late, 2), GM_USER_E_SHARED);
	gm_user_charge_remove(late, MIB / 2);
	gm_user_charge_add(&charges[0], MIB);
	ck_assert_int_eq(gm_user_charge(late, GM_BOUND_PACKET_BYTES + 1), GM_USER_E_SHARED);
	ck_assert_int_eq(gm_user_charge(late, GM_BOUND_PACKET_BYTES), 0);
	for (size_t u = 0; u < FULL + 5; u++)
		gm_user_charge_deinit(&charges[u]);
}
END_TEST

START_TEST(an_administrators_answers_count_for_all_and_not_for_the_user)
{
	struct gm_user_charge admin, plain;

	gm_user_charge_init(&admin, users[0], GM_USER_ADMIN_BYTES_UNREAD);
	gm_user_charge_add(&admin, GM_BOUND_UNREAD_BYTES - MIB);
	gm_user_charge_init(&plain, users[0], GM_USER_BYTES_UNREAD);
	ck_assert_int_eq(gm_user_charge(&plain, MIB), GM_USER_E_SHARED);
	ck_assert_int_eq(gm_user_charge(&plain, MIB / 2), 0);
	gm_user_charge_deinit(&admin);
	ck_assert_int_eq(gm_user_charge(&plain, GM_BOUND_UNREAD_BYTES_PER_UID - MIB / 2), 0);
	gm_user_charge_deinit(&plain);
}
END_TEST

/* ---- descriptors */

START_TEST(descriptors_on_their_way_are_left_to_others_up_to_a_packet)
{
	struct gm_user_charge charges[5];

	gm_user_table_bound_fds(&table, 512, 4 * 512);
	for (int u = 0; u < 4; u++) {
		gm_user_charge_init(&charges[u], users[u], GM_USER_FDS_UNREAD);
		ck_assert_int_eq(gm_user_charge(&charges[u], 513), GM_USER_E_OWN);
		ck_assert_int_eq(gm_user_charge(&charges[u], 512), 0);
	}
	gm_user_charge_init(&charges[4], users[4], GM_USER_FDS_UNREAD);
	ck_assert_int_eq(gm_user_charge(&charges[4], GM_BOUND_PACKET_FDS), 0);
	ck_assert_int_eq(gm_user_charge(&charges[4], 1), GM_USER_E_SHARED);
	for (int u = 0; u < 5; u++)
		gm_user_charge_deinit(&charges[u]);
}
END_TEST

START_TEST(a_client_without_a_connection_keeps_room_for_it)
{
	struct gm_user_charge flow, connection, client;

	gm_user_charge_init(&flow, users[0], GM_USER_FLOWS);
	gm_user_charge_init(&connection, users[0], GM_USER_CONNECTIONS);
	gm_user_charge_init(&client, users[0], GM_USER_CLIENTS);
	gm_user_charge_add(&flow, 1);
	gm_user_charge_add(&connection, 1);
	ck_assert_uint_eq(table.fds.connections, 1 + GM_USER_CONNECTION_FDS);
	gm_user_charge_add(&client, 1);
	ck_assert_uint_eq(table.fds.connections, 1 + GM_USER_CONNECTION_FDS + GM_USER_CLIENT_FDS);
	ck_assert(!gm_user_awaits_clients(users[0]));

	gm_user_charge_deinit(&connection);
	ck_assert(gm_user_awaits_clients(users[0]));
	ck_assert_uint_eq(table.fds.connections, 1 + GM_USER_CONNECTION_FDS + GM_USER_CLIENT_FDS);
	table.fds.total = 0; /* none are left */
	ck_assert_int_eq(gm_user_check(users[0], GM_USER_CONNECTIONS, 1), 0);
	ck_assert_int_eq(gm_user_check(users[0], GM_USER_CONNECTIONS, 2), GM_USER_E_SHARED);
	ck_assert_int_eq(gm_user_check(users[0], GM_USER_CLIENTS, 1), GM_USER_E_SHARED);
	ck_assert_int_eq(gm_user_check(users[1], GM_USER_CONNECTIONS, 1), GM_USER_E_SHARED);
	table.fds.total = UINT64_MAX / 8;

	gm_user_charge_deinit(&client);
	gm_user_charge_deinit(&flow);
	ck_assert_uint_eq(table.fds.connections, 0);
}
END_TEST

START_TEST(chunks_get_what_the_account_of_descriptors_allows)
{
	struct gm_user_charge charge;

	table.fds.total = 64;
	ck_assert_uint_eq(fill(&charge, users[0], GM_USER_CHUNK_FDS), 36);
	ck_assert_uint_eq(table.fds.chunks, 36);
	ck_assert_int_eq(gm_user_check(users[1], GM_USER_CHUNK_FDS, 1), 0);
	gm_user_charge_deinit(&charge);
	ck_assert_uint_eq(table.fds.chunks, 0);
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
	tcase_add_test(tc, all_clients_of_a_user_keep_so_much);
	tcase_add_test(tc, all_users_keep_so_much_and_each_a_little);
	tcase_add_test(tc, an_administrators_answers_count_for_all_and_not_for_the_user);
	tcase_add_test(tc, descriptors_on_their_way_are_left_to_others_up_to_a_packet);
	tcase_add_test(tc, a_client_without_a_connection_keeps_room_for_it);
	tcase_add_test(tc, chunks_get_what_the_account_of_descriptors_allows);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
